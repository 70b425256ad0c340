//! Small reads by fio, which does little besides syscalls.

use std::path::Path;

use anyhow::Context as _;

use super::{Case, FigureSpec, NOT_NAMED, Sample, unmatched_variants, with_audit};
use crate::Options;
use crate::programs::{FIO, Program};
use crate::report::Bound;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, WorkDir, output};

#[derive(Debug)]
pub(crate) struct Fio;

impl Case for Fio {
    fn name(&self) -> &'static str {
        "fio"
    }

    fn about(&self) -> &'static str {
        "reads of 8 bytes by fio, ioengine psync, from the page cache"
    }

    fn origin(&self) -> &'static str {
        "Fedora's ticket on the cost of system call auditing by default: getpid, and fio psync"
    }

    fn programs(&self) -> &'static [Program] {
        &[FIO]
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[FigureSpec::more("reads", "/s")
                .headlines(NOT_NAMED)
                .goals(&[("tollgate", Bound::RatioAtLeast(0.88))])]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        unmatched_variants(options, work)
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(
        &self,
        work_dir: &WorkDir,
        variant: &Variant,
        _brief: bool,
    ) -> anyhow::Result<Sample> {
        let directory = work_dir.create_unprivileged("fio")?;
        let fio = FIO.command()?;
        let (printed, spent) = with_audit(work_dir, variant, || {
            let mut command = work_dir.unprivileged(CpuAffinity::First)?;
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
        let rate =
            rate(&printed).with_context(|| format!("unexpected output of fio: {printed}"))?;
        Ok(Sample {
            values: vec![("reads", rate)],
            startup_line: spent.startup_line,
            ..Sample::default()
        })
    }
}

/// Reads per second in the JSON of fio; other lines may precede it.
fn rate(printed: &str) -> Option<f64> {
    let (_, object) = printed.split_once('{')?;
    let json: serde_json::Value = serde_json::from_str(&format!("{{{object}")).ok()?;
    json.pointer("/jobs/0/read/iops")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_found_after_other_lines() {
        let printed = "fio: note\n{\"jobs\":[{\"read\":{\"iops\":1234.5}}]}\n";
        assert_eq!(rate(printed), Some(1234.5));
        assert_eq!(rate("fio: no\n"), None);
        assert_eq!(rate("{\"jobs\":[]}"), None);
    }
}
