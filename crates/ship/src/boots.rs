//! Boots of this machine, so that serials of one boot are not taken for those of another.
//!
//! The log does not name the boot of an event. The boots that runs have seen are kept in the state directory with the
//! times at which they began; an event belongs to the last one that began before it. Events from before the first known
//! boot have the empty id.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Most boots that are remembered.
const MAX_BOOTS: usize = 64;
/// A clock that is set while the machine boots moves the time at which the boot began.
const SLACK_MS: u64 = 2_000;

/// Boots with the times at which they began, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boots(Vec<(u64, String)>);

impl Boots {
    /// Reads the boots of a text, one `MILLISECONDS ID` on a line, and adds the current one.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn read(text: &str, proc_directory: &Path) -> anyhow::Result<Self> {
        let parse = |line: &str| {
            let (began, id) = line.split_once(' ')?;
            Some((began.parse().ok()?, id.to_owned()))
        };
        let mut boots: Vec<(u64, String)> = text.lines().filter_map(parse).collect();
        let (began, id) = current(proc_directory)?;
        if !boots.iter().any(|(_, known)| *known == id) {
            boots.push((began, id));
        }
        let excess = boots.len().saturating_sub(MAX_BOOTS);
        boots.drain(..excess);
        boots.sort();
        Ok(Self(boots))
    }

    /// The text that [`Boots::read`] reads.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.iter().map(|(began, id)| format!("{began} {id}\n"));
        lines.collect()
    }

    /// Id of the boot of an event at a time.
    pub(crate) fn at(&self, time_ms: u64) -> &str {
        let mut boots = self.0.iter().rev();
        let found = boots.find(|(began, _)| began.saturating_sub(SLACK_MS) <= time_ms);
        found.map_or("", |(_, id)| id)
    }
}

/// When the machine booted, and the id of the boot.
///
/// # Source
/// `random(4)`, `boot_id`; `proc_stat(5)`, `btime`.
fn current(proc_directory: &Path) -> anyhow::Result<(u64, String)> {
    let read = |name: &str| {
        let path = proc_directory.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))
    };
    let id = read("sys/kernel/random/boot_id")?.trim_end().to_owned();
    let stat = read("stat")?;
    let began = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let began: u64 = began
        .and_then(|seconds| seconds.trim_end().parse().ok())
        .context("`/proc/stat` has no `btime`")?;
    Ok((began.saturating_mul(1000), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_belong_to_the_last_boot_before_them() {
        let place = tempfile::tempdir().unwrap();
        let proc_directory = place.path();
        fs::create_dir_all(proc_directory.join("sys/kernel/random")).unwrap();
        fs::write(proc_directory.join("sys/kernel/random/boot_id"), "b\n").unwrap();
        fs::write(proc_directory.join("stat"), "cpu 1\nbtime 200\n").unwrap();
        let boots = Boots::read("", proc_directory).unwrap();
        assert_eq!(boots.text(), "200000 b\n");
        let boots = Boots::read("100000 a\nbad\n", proc_directory).unwrap();
        assert_eq!(boots.text(), "100000 a\n200000 b\n");
        for (time_ms, id) in [(97_999, ""), (98_000, "a"), (197_999, "a"), (u64::MAX, "b")] {
            assert_eq!(boots.at(time_ms), id, "{time_ms}");
        }
        assert_eq!(Boots::read(&boots.text(), proc_directory).unwrap(), boots);
    }
}
