//! A burst of deletes in a watched directory: what a monitor of file integrity must not miss.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::Context as _;

use super::{Case, Figure, Sample, in_state};
use crate::bench::Options;
use crate::bench::place::{Place, Placement, figure};
use crate::bench::report::Bound;
use crate::bench::state::State;
use crate::bench::variant::Variant;
use crate::bench::workload::DELETE;

#[derive(Debug)]
pub(crate) struct Burst;

const DELETES: u32 = 50_000;
const BRIEF_DELETES: u32 = 300;

impl Case for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn about(&self) -> &'static str {
        "50,000 deletes in a watched directory: how many are in the log, and what the daemon takes for it"
    }

    fn seed(&self) -> &'static str {
        "public comparisons of monitors of file integrity"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::more("deletes", "/s"),
                Figure::more("kept", "%").goals(&[("tollgate", Bound::Exactly(100.0))]),
                Figure::less("daemon CPU a delete", "us"),
                Figure::less("daemon memory", "MiB"),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let directory = work.join("burst");
        let rules = format!(
            "-a always,exit -F arch=b64 -S unlink,unlinkat,rename,renameat,renameat2 -F dir={} -F key=burst\n",
            directory.display()
        );
        options
            .against
            .iter()
            .map(|&state| Variant::plain(state, if state == State::Off { "" } else { &rules }))
            .collect()
    }

    fn seconds(&self) -> u32 {
        5
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let deletes = if brief { BRIEF_DELETES } else { DELETES };
        let directory = place.nobodys("burst")?;
        let (printed, spent) = in_state(place, variant, || {
            let mut command = place.as_nobody(Placement::OneCpu)?;
            command
                .arg(&place.workload)
                .args([
                    crate::bench::workload::COMMAND,
                    DELETE,
                    &deletes.to_string(),
                ])
                .current_dir(&directory);
            crate::bench::place::output(&mut command)
        })?;
        let count = f64::from(deletes);
        let mut sample = Sample {
            values: vec![("deletes", figure(&printed, "rate")?)],
            said: spent.said,
            ..Sample::default()
        };
        if variant.state != State::Off {
            let pid = format!("{:.0}", figure(&printed, "pid")?);
            let kept = deletes_in(&place.log(), &pid).context("cannot read the log")?;
            let memory = u32::try_from(spent.memory_bytes / 1024).unwrap_or(u32::MAX);
            sample.values.extend([
                ("kept", f64::from(kept) * 100.0 / count),
                ("daemon CPU a delete", spent.cpu.as_secs_f64() * 1e6 / count),
                ("daemon memory", f64::from(memory) / 1024.0),
            ]);
            if variant.state == State::Tollgate && kept != deletes {
                sample.complaints.push(format!(
                    "{kept} of {deletes} deletes are in the log, and it says that {} are lost",
                    spent.lost
                ));
            }
        }
        Ok(sample)
    }
}

/// Deletes of a process that are in a log: calls to `unlink`, 87 on x86-64.
fn deletes_in(log: &Path, pid: &str) -> std::io::Result<u32> {
    let mut lines = BufReader::with_capacity(1 << 20, File::open(log)?);
    let (mut line, mut found) = (Vec::new(), 0);
    let pid = format!("pid={pid}");
    while lines.read_until(b'\n', &mut line)? != 0 {
        if line.starts_with(b"type=SYSCALL ") {
            let text = String::from_utf8_lossy(&line);
            let has = |wanted: &str| text.split_ascii_whitespace().any(|field| field == wanted);
            found += u32::from(has("syscall=87") && has("success=yes") && has(&pid));
        }
        line.clear();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deletes_of_the_process_count() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let line = |call: &str, pid: &str| {
            format!("type=SYSCALL msg=audit(1.5:1): syscall={call} success=yes ppid=7 pid={pid}\n")
        };
        let text = [line("87", "7"), line("87", "70"), line("3", "70")].concat();
        std::fs::write(
            &log,
            text + "type=PATH msg=audit(1.5:1): pid=70 syscall=87\n",
        )
        .unwrap();
        assert_eq!(deletes_in(&log, "70").unwrap(), 1);
    }
}
