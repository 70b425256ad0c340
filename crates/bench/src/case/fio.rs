//! Small reads by fio: a program that does little but call.

use std::path::Path;

use anyhow::Context as _;

use super::{Case, Figure, Sample, in_state, plain};
use crate::Options;
use crate::component::{Component, FIO};
use crate::place::{Place, Placement, output};
use crate::report::Bound;
use crate::variant::Variant;

#[derive(Debug)]
pub(crate) struct Fio;

impl Case for Fio {
    fn name(&self) -> &'static str {
        "fio"
    }

    fn about(&self) -> &'static str {
        "reads of 8 bytes by fio, ioengine psync, from the page cache"
    }

    fn seed(&self) -> &'static str {
        "Fedora's ticket on the cost of system call auditing by default: getpid, and fio psync"
    }

    fn components(&self) -> &'static [Component] {
        &[FIO]
    }

    fn figures(&self) -> &'static [Figure] {
        const { &[Figure::more("reads", "/s").goals(&[("tollgate", Bound::AtLeast(0.88))])] }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        plain(options, work)
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, place: &Place, variant: &Variant, _brief: bool) -> anyhow::Result<Sample> {
        let directory = place.nobodys("fio")?;
        let fio = FIO.command()?;
        let (printed, spent) = in_state(place, variant, || {
            let mut command = place.as_nobody(Placement::OneCpu)?;
            command.arg(fio.get_program()).args([
                "--name=reads",
                "--ioengine=psync",
                "--rw=read",
                "--bs=8",
                "--size=256k",
                "--norandommap",
                "--time_based",
                "--runtime=1",
                "--thread",
                "--filename=testfile",
                "--output-format=json",
            ]);
            output(command.current_dir(&directory))
        })?;
        let rate = rate(&printed).with_context(|| format!("fio has printed {printed}"))?;
        Ok(Sample {
            values: vec![("reads", rate)],
            said: spent.said,
            ..Sample::default()
        })
    }
}

/// Reads a second in fio's JSON, which other lines may precede.
fn rate(printed: &str) -> Option<f64> {
    let (_, object) = printed.split_once('{')?;
    let json: serde_json::Value = serde_json::from_str(&format!("{{{object}")).ok()?;
    json.pointer("/jobs/0/read/iops")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_behind_other_lines() {
        let printed = "fio: note\n{\"jobs\":[{\"read\":{\"iops\":1234.5}}]}\n";
        assert_eq!(rate(printed), Some(1234.5));
        assert_eq!(rate("fio: no\n"), None);
        assert_eq!(rate("{\"jobs\":[]}"), None);
    }
}
