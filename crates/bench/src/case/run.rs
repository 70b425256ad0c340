//! `tollgate run` compared with `strace -f --seccomp-bpf`: both trace one command without root.
//!
//! The loader runs on one CPU together with its tracer, and on any CPU: the placement decides most of the cost.
//! Calls that no rule names are timed as well.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::{Case, FigureSpec, HeadlineSpec, Sample, with_audit};
use crate::Options;
use crate::programs::{Program, STRACE};
use crate::report::Bound;
use crate::variant::AuditMode;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, WorkDir, output, parse_value};
use crate::workload::{CALLS, FILE, OPEN_CLOSE};

#[derive(Debug)]
pub(crate) struct Run;

const STRACE_VARIANT: &str = "strace -f --seccomp-bpf";
const RUN: &str = "run";
const RUN_NO_RESULT: &str = "run --no-result";

/// Traced pairs are ten times slower than others.
const PAIRS: u32 = 5000;
const BRIEF_PAIRS: u32 = 50;

const NAMING_RULE: &str = "-a always,exit -F arch=b64 -S openat,close -k named\n";
const OTHER_RULE: &str =
    "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2 -k other\n";

const NOT_NAMED_BY_RUN: &[HeadlineSpec] = &[HeadlineSpec::of(
    "`tollgate run`, one rule, does not name it",
    RUN,
    "",
)];

impl Case for Run {
    fn name(&self) -> &'static str {
        "run"
    }

    fn about(&self) -> &'static str {
        "`tollgate run` compared with strace: pairs of open and close of one command, all traced, without root"
    }

    fn origin(&self) -> &'static str {
        "docs/decisions/0005-ptrace-or-notification.md"
    }

    fn programs(&self) -> &'static [Program] {
        &[STRACE]
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::more("pairs on one CPU", "/s").relative_to(STRACE_VARIANT),
                FigureSpec::more("pairs on any CPU", "/s")
                    .relative_to(STRACE_VARIANT)
                    .goals(&[
                        (RUN, Bound::RatioAtLeast(1.2)),
                        (RUN_NO_RESULT, Bound::RatioAtLeast(8.0)),
                    ]),
                FigureSpec::less("getpid, not named", "ns")
                    .headlines(NOT_NAMED_BY_RUN)
                    .goals(&[
                        (RUN, Bound::RatioAtMost(1.4)),
                        (RUN_NO_RESULT, Bound::RatioAtMost(1.4)),
                    ]),
            ]
        }
    }

    fn variants(&self, _options: &Options, _work: &Path) -> Vec<Variant> {
        [AuditMode::Off.name(), STRACE_VARIANT, RUN, RUN_NO_RESULT]
            .map(|name| Variant::named(name, AuditMode::Off, ""))
            .into()
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let pairs = if brief { BRIEF_PAIRS } else { PAIRS };
        let directory = work_dir.create_unprivileged("run")?;
        for (name, rules) in [("named", NAMING_RULE), ("unnamed", OTHER_RULE)] {
            fs::write(directory.join(name), rules).context("cannot write rules")?;
        }
        let command = TracedWorkload {
            work_dir,
            variant,
            directory: &directory,
        };
        let (sample, _) = with_audit(work_dir, variant, || command.measure(pairs, brief))?;
        Ok(sample)
    }
}

/// A workload and its tracer.
struct TracedWorkload<'a> {
    work_dir: &'a WorkDir,
    variant: &'a Variant,
    directory: &'a Path,
}

impl TracedWorkload<'_> {
    fn measure(&self, pairs: u32, brief: bool) -> anyhow::Result<Sample> {
        let mut sample = Sample::default();
        let rate = |elapsed: f64| f64::from(pairs) * 1e9 / elapsed;
        for (name, placement) in [
            ("pairs on one CPU", CpuAffinity::First),
            ("pairs on any CPU", CpuAffinity::Any),
        ] {
            let printed = self.output(placement, "named", &[OPEN_CLOSE, &pairs.to_string()])?;
            sample
                .values
                .push((name, rate(parse_value(&printed, "elapsed_ns")?)));
            sample.failures.extend(self.failure(pairs)?);
        }
        if self.variant.name != STRACE_VARIANT {
            let calls = if brief { "100" } else { "4000" };
            let printed = self.output(CpuAffinity::First, "unnamed", &[CALLS, calls, FILE])?;
            let ns = parse_value(&printed, "getpid")?;
            sample.values.push(("getpid, not named", ns));
            self.remove_log()?;
        }
        Ok(sample)
    }

    /// Returns the output of the workload.
    fn output(
        &self,
        placement: CpuAffinity,
        rules: &str,
        words: &[&str],
    ) -> anyhow::Result<String> {
        let mut command = self.work_dir.unprivileged(placement)?;
        let log = self.directory.join("log");
        match self.variant.name.as_str() {
            STRACE_VARIANT => {
                command.arg(STRACE.command()?.get_program()).args([
                    "-f",
                    "--seccomp-bpf",
                    "-e",
                    "trace=openat,close",
                    "-o",
                ]);
                command.arg(&log);
            }
            RUN | RUN_NO_RESULT => {
                command.arg(&self.work_dir.copy).args(["run", "--rules"]);
                command
                    .arg(self.directory.join(rules))
                    .arg("--log")
                    .arg(&log);
                if self.variant.name == RUN_NO_RESULT {
                    command.arg("--no-result");
                }
                command.arg("--");
            }
            _ => {}
        }
        output(command.args(self.work_dir.workload_program()).args(words))
    }

    /// Checks the log of tollgate; the log of strace has another format.
    fn failure(&self, pairs: u32) -> anyhow::Result<Option<String>> {
        let log = self.directory.join("log");
        let mut failure = None;
        if matches!(self.variant.name.as_str(), RUN | RUN_NO_RESULT) {
            let text = fs::read(&log).context("cannot read the log")?;
            ensure!(!text.is_empty(), "the log is empty");
            let calls = text
                .split(|&byte| byte == b'\n')
                .filter(|line| line.starts_with(b"type=SYSCALL "))
                .count();
            let least = u64::from(pairs) * 2;
            if u64::try_from(calls)? < least {
                failure = Some(format!("{calls} events of {least} are in the log"));
            }
        }
        self.remove_log()?;
        Ok(failure)
    }

    fn remove_log(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.directory.join("log")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("cannot remove the log")
            }
            _ => Ok(()),
        }
    }
}
