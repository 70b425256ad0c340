//! The delay of an event until it is in the log.
//!
//! While the loader runs, an observer makes probe calls that open files with unique names, and reads the size of
//! the log every 200 us. The offset of a name in the log then tells which size was the first to include it. The
//! observer treats both daemons alike.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::loader::RULES;
use super::{Case, FigureSpec, Sample, with_audit};
use crate::Options;
use crate::observer::{Observation, Probe};
use crate::report::Bound;
use crate::statistics::percentile;
use crate::variant::AuditMode;
use crate::variant::Variant;
use crate::work_dir::{BackgroundCommand, CpuAffinity, WorkDir, output};
use crate::workload::{LOAD, OBSERVE};

#[derive(Debug)]
pub(crate) struct Delay;

/// Duration of the probe calls, and of the loader, which outlasts the last record.
const PROBES_MS: u32 = 1500;
const LOADED_MS: u32 = 2300;
const BRIEF_MS: (u32, u32) = (50, 900);

impl Case for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn about(&self) -> &'static str {
        "time from the end of a call until its record is in the log, while the loader runs: about a thousand calls per run"
    }

    fn origin(&self) -> &'static str {
        "the window in which an intruder could still erase a record"
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::less("50 % within", "ms").relative_to("kernel"),
                FigureSpec::less("90 % within", "ms").relative_to("kernel"),
                FigureSpec::less("99 % within", "ms")
                    .relative_to("kernel")
                    .goals(&[("tollgate", Bound::ValueAtMost(10.0))]),
                FigureSpec::less("all within", "ms").relative_to("kernel"),
                FigureSpec::less("99 % of probe calls took", "ms").relative_to("kernel"),
                FigureSpec::more("probe calls", "calls").relative_to("kernel"),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let states = options
            .against
            .iter()
            .filter(|&&mode| mode != AuditMode::Off);
        states.map(|&mode| Variant::plain(mode, RULES)).collect()
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let (probes_ms, loaded_ms) = if brief {
            BRIEF_MS
        } else {
            (PROBES_MS, LOADED_MS)
        };
        let (printed, spent) = with_audit(work_dir, variant, || {
            let load = [LOAD, &loaded_ms.to_string()];
            let loader = BackgroundCommand::start(
                &mut work_dir.workload_command(CpuAffinity::First, &load)?,
            )?;
            let words = [OBSERVE, &probes_ms.to_string()];
            let mut observer = work_dir.unprivileged_fifo(CpuAffinity::Last)?;
            observer.args(work_dir.workload_program()).args(words);
            let log = File::open(work_dir.log()).context("cannot open the log")?;
            let printed = output(observer.stdin(log))?;
            loader.output()?;
            Ok(printed)
        })?;
        let observation =
            Observation::parse(&printed).context("unexpected output of the observer")?;
        let ends = probe_offsets(&work_dir.log()).context("cannot read the log")?;
        let mut delays_ms = Vec::new();
        for (number, probe) in observation.probes.iter().enumerate() {
            let end = ends.iter().find(|&&(of, _)| of == number);
            let Some(&(_, end)) = end else {
                continue;
            };
            delays_ms.push(observation.delay_ns(*probe, end) / 1e6);
        }
        ensure!(!delays_ms.is_empty(), "no probe call is in the log");
        let taken_ms = |probe: &Probe| (probe.after_ns - probe.before_ns) / 1e6;
        let taken_ms: Vec<f64> = observation.probes.iter().map(taken_ms).collect();
        let of = |values: &[f64], part| percentile(values, part).unwrap_or(f64::INFINITY);
        let mut sample = Sample {
            values: vec![
                ("50 % within", of(&delays_ms, 0.5)),
                ("90 % within", of(&delays_ms, 0.9)),
                ("99 % within", of(&delays_ms, 0.99)),
                ("all within", of(&delays_ms, 1.0)),
                ("99 % of probe calls took", of(&taken_ms, 0.99)),
                (
                    "probe calls",
                    f64::from(u32::try_from(observation.probes.len()).unwrap_or(u32::MAX)),
                ),
            ],
            startup_line: spent.startup_line,
            ..Sample::default()
        };
        let missing = observation.probes.len() - delays_ms.len();
        if variant.mode == AuditMode::Tollgate && missing != 0 {
            sample.failures.push(format!(
                "{missing} of {} probe calls are not in the log, which reports {} lost",
                observation.probes.len(),
                spent.lost
            ));
        }
        Ok(sample)
    }
}

/// Number and end offset of each probe record in a log.
fn probe_offsets(log: &Path) -> io::Result<Vec<(usize, u64)>> {
    let mut lines = BufReader::with_capacity(1 << 20, File::open(log)?);
    let (mut line, mut end, mut ends) = (Vec::new(), 0, Vec::new());
    loop {
        let read = lines.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(ends);
        }
        end += u64::try_from(read).map_err(io::Error::other)?;
        if let Some(number) = Probe::in_line(&line) {
            ends.push((number, end));
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_offset_is_the_end_of_its_line() {
        let work_dir = tempfile::tempdir().unwrap();
        let log = work_dir.path().join("log");
        let other = "type=PATH msg=audit(1.5:1): item=0 name=\"file1\" inode=3\n";
        let probe = "type=PATH msg=audit(1.5:1): item=0 name=\"probe-17\" nametype=UNKNOWN\n";
        std::fs::write(&log, [other, probe, other].concat()).unwrap();
        let end = u64::try_from(other.len() + probe.len()).unwrap();
        assert_eq!(probe_offsets(&log).unwrap(), [(17, end)]);
    }
}
