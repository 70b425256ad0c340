//! Threads that yield and lock, by sysbench: cheap calls from several tasks.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use super::{Case, FigureSpec, NOT_NAMED, Sample, unmatched_variants, with_audit};
use crate::Options;
use crate::programs::{self, Program};
use crate::report::Bound;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, WorkDir, output};

#[derive(Debug)]
pub(crate) struct Sysbench;

impl Case for Sysbench {
    fn name(&self) -> &'static str {
        "sysbench"
    }

    fn about(&self) -> &'static str {
        "sysbench threads: 4 threads, 1,000 yields per event, 8 locks"
    }

    fn origin(&self) -> &'static str {
        "kernel commit e832bf48c8, audit: Reduce overhead using a coarse clock"
    }

    fn programs(&self) -> &'static [Program] {
        &[programs::SYSBENCH]
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::more("events", "/s")
                    .headlines(NOT_NAMED)
                    .goals(&[("tollgate", Bound::RatioAtLeast(0.93))]),
                FigureSpec::less("CPU per event", "us").headlines(NOT_NAMED),
            ]
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
        let sysbench = programs::SYSBENCH.command()?;
        let ((printed, cpu), spent) = with_audit(work_dir, variant, || {
            let before = children_cpu()?;
            let mut command = work_dir.unprivileged(CpuAffinity::Any)?;
            command.arg(sysbench.get_program()).args([
                "threads",
                "--threads=4",
                "--time=1",
                "--thread-yields=1000",
                "--thread-locks=8",
                "run",
            ]);
            let printed = output(&mut command)?;
            Ok((printed, children_cpu()?.saturating_sub(before)))
        })?;
        let count = |name| {
            number(&printed, name)
                .with_context(|| format!("unexpected output of sysbench: {printed}"))
        };
        let events = count("total number of events:")?;
        let seconds = count("total time:")?;
        Ok(Sample {
            values: vec![
                ("events", events / seconds),
                ("CPU per event", cpu.as_secs_f64() * 1e6 / events),
            ],
            startup_line: spent.startup_line,
            ..Sample::default()
        })
    }
}

/// CPU time of the children that were waited for.
fn children_cpu() -> anyhow::Result<Duration> {
    let usage =
        getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the CPU time of children")?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(us).unwrap_or(0)))
}

/// Parses the number at the end of the line with this name.
fn number(printed: &str, name: &str) -> Option<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.trim().strip_prefix(name))?;
    line.trim().trim_end_matches('s').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_line_name() {
        let printed = "General statistics:\n    total time:                          1.0005s\n    total number of events:              1784\n";
        assert_eq!(number(printed, "total time:"), Some(1.0005));
        assert_eq!(number(printed, "total number of events:"), Some(1784.0));
        assert_eq!(number(printed, "avg:"), None);
    }
}
