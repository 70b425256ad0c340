//! `tollgate run` next to `strace -f --seccomp-bpf`: both follow one command without root.
//!
//! The loop of the loader is run with every call kept, on one CPU together with its supervisor, and
//! wherever the scheduler puts the two: where they sit decides most of the price. Calls that no rule names
//! are timed beside it.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::{Case, Figure, Sample, in_state};
use crate::Options;
use crate::component::{Component, STRACE};
use crate::place::{Place, Placement, figure, output};
use crate::report::Bound;
use crate::state::State;
use crate::variant::Variant;
use crate::workload::{CALLS, FILE, OPEN_CLOSE};

#[derive(Debug)]
pub(crate) struct Run;

const STRACED: &str = "strace -f --seccomp-bpf";
const FOLLOWED: &str = "run";
const NO_RESULT: &str = "run --no-result";

/// Supervised pairs are an order of magnitude slower than others.
const PAIRS: u32 = 5000;
const BRIEF_PAIRS: u32 = 50;

const NAMED: &str = "-a always,exit -F arch=b64 -S openat,close -k named\n";
const UNNAMED: &str = "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2 -k other\n";

impl Case for Run {
    fn name(&self) -> &'static str {
        "run"
    }

    fn about(&self) -> &'static str {
        "`tollgate run` next to strace: pairs of open and close of one command, all followed, without root"
    }

    fn seed(&self) -> &'static str {
        "docs/decisions/0005-ptrace-or-notification.md"
    }

    fn components(&self) -> &'static [Component] {
        &[STRACE]
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::more("pairs on one CPU", "/s").beside(STRACED),
                Figure::more("pairs, free", "/s").beside(STRACED).goals(&[
                    (FOLLOWED, Bound::AtLeast(1.2)),
                    (NO_RESULT, Bound::AtLeast(8.0)),
                ]),
                Figure::less("getpid, not named", "ns").goals(&[
                    (FOLLOWED, Bound::AtMost(1.4)),
                    (NO_RESULT, Bound::AtMost(1.4)),
                ]),
            ]
        }
    }

    fn variants(&self, _options: &Options, _work: &Path) -> Vec<Variant> {
        [State::Off.name(), STRACED, FOLLOWED, NO_RESULT]
            .map(|name| Variant::named(name, State::Off, ""))
            .into()
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let pairs = if brief { BRIEF_PAIRS } else { PAIRS };
        let directory = place.nobodys("run")?;
        for (name, rules) in [("named", NAMED), ("unnamed", UNNAMED)] {
            fs::write(directory.join(name), rules).context("cannot write rules")?;
        }
        let command = Followed {
            place,
            variant,
            directory: &directory,
        };
        let (sample, _) = in_state(place, variant, || command.measure(pairs, brief))?;
        Ok(sample)
    }
}

/// A workload, and who follows it.
struct Followed<'a> {
    place: &'a Place,
    variant: &'a Variant,
    directory: &'a Path,
}

impl Followed<'_> {
    fn measure(&self, pairs: u32, brief: bool) -> anyhow::Result<Sample> {
        let mut sample = Sample::default();
        let rate = |elapsed: f64| f64::from(pairs) * 1e9 / elapsed;
        for (name, placement) in [
            ("pairs on one CPU", Placement::OneCpu),
            ("pairs, free", Placement::Free),
        ] {
            let printed = self.output(placement, "named", &[OPEN_CLOSE, &pairs.to_string()])?;
            sample
                .values
                .push((name, rate(figure(&printed, "elapsed_ns")?)));
            sample.complaints.extend(self.complaint(pairs)?);
        }
        if self.variant.name != STRACED {
            let calls = if brief { "100" } else { "4000" };
            let printed = self.output(Placement::OneCpu, "unnamed", &[CALLS, calls, FILE])?;
            let ns = figure(&printed, "getpid")?;
            sample.values.push(("getpid, not named", ns));
            self.remove_log()?;
        }
        Ok(sample)
    }

    /// What the workload printed.
    fn output(&self, placement: Placement, rules: &str, words: &[&str]) -> anyhow::Result<String> {
        let mut command = self.place.as_nobody(placement)?;
        let log = self.directory.join("log");
        match self.variant.name.as_str() {
            STRACED => {
                command.arg(STRACE.command()?.get_program()).args([
                    "-f",
                    "--seccomp-bpf",
                    "-e",
                    "trace=openat,close",
                    "-o",
                ]);
                command.arg(&log);
            }
            FOLLOWED | NO_RESULT => {
                command.arg(&self.place.copy).args(["run", "--rules"]);
                command
                    .arg(self.directory.join(rules))
                    .arg("--log")
                    .arg(&log);
                if self.variant.name == NO_RESULT {
                    command.arg("--no-result");
                }
                command.arg("--");
            }
            _ => {}
        }
        output(command.args(self.place.workload_words()).args(words))
    }

    /// Tells when tollgate's log lacks calls; strace has none of that form.
    fn complaint(&self, pairs: u32) -> anyhow::Result<Option<String>> {
        let log = self.directory.join("log");
        let mut complaint = None;
        if matches!(self.variant.name.as_str(), FOLLOWED | NO_RESULT) {
            let text = fs::read(&log).context("cannot read the log")?;
            ensure!(!text.is_empty(), "the log is empty");
            let calls = text
                .split(|&byte| byte == b'\n')
                .filter(|line| line.starts_with(b"type=SYSCALL "))
                .count();
            let least = u64::from(pairs) * 2;
            if u64::try_from(calls)? < least {
                complaint = Some(format!("{calls} events of {least} are in the log"));
            }
        }
        self.remove_log()?;
        Ok(complaint)
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
