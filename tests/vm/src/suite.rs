//! Runs the tests and reports to `cargo xtask vm` on a serial port, in lines:
//!
//! ```text
//! vm: plan NAME...           the selected tests, first of all
//! vm: ok SECONDS NAME
//! vm: skip SECONDS NAME: REASON
//! vm: FAIL SECONDS NAME: MESSAGE
//! vm: crash NAME              the test crashes the machine now
//! vm: note TEXT              printed only
//! vm: count N CALL/STATE     instructions that a call executes
//! vm: broken MESSAGE         no test can run
//! vm: end
//! ```
//!
//! Loading BPF programs is slow on an emulated CPU: the tests of a session share one daemon. Its start and
//! its end are tests too.

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use support::wait::wait_for;

use crate::daemon::{Daemon, programs};
use crate::machine::Filter;

/// The function of a test. It fails with any error but [`Skipped`].
pub(crate) type Work = fn(&Daemon) -> anyhow::Result<()>;

/// The error of a test that needs something this machine lacks.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) &'static str);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Skipped {}

/// Tests that share one daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// First part of each test's name.
    pub(crate) name: &'static str,
    /// The daemon's engine. Where `fentry` refuses to start, [`Session::engine`] is `lsm` in its place.
    pub(crate) engine: &'static str,
    /// Creates the files that the rules name.
    pub(crate) prepare: fn() -> anyhow::Result<()>,
    /// The daemon's rules.
    pub(crate) rules: Rules,
    /// Tests that run while the daemon audits.
    pub(crate) tests: &'static [(&'static str, Work)],
    /// Ends the daemon and checks its summary.
    pub(crate) stop: Work,
    /// Runs after the daemon has ended, with its log.
    pub(crate) after: fn(&Path) -> anyhow::Result<()>,
    /// Whether BPF programs stay attached after the daemon's end, because the rules are locked.
    pub(crate) stays: bool,
}

/// Rules of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rules {
    /// Rule text.
    Text(&'static str),
    /// A function that generates the text.
    Made(fn() -> String),
}

impl Rules {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Text(text) => text.to_owned(),
            Self::Made(make) => make(),
        }
    }
}

/// The engine that newer kernels have only.
pub(crate) const LSM: &str = "lsm";
/// The engines that refuse kernels which preempt themselves.
pub(crate) const FENTRY: &str = "fentry";
const TRACEPOINT: &str = "tracepoint";
/// Sessions about calls whose end `fentry` does not see, how many slots it uses, calls that stay at its raw tracepoint, and
/// hooks that root disables, which the kernel refuses while kprobes use them.
const NEED_FENTRY: [&str; 8] = [
    "disabled_hooks",
    "half_seen",
    "shared_functions",
    "slots",
    "slots_mapped",
    "slots_operations",
    "slots_subordinate",
    "stopping",
];

/// Stands for the tests of a machine whose engines this kernel does not have.
const NONE: &str = "sessions::run_here";

/// The test of the daemon's start.
const STARTS: &str = "daemon_starts";
/// The test of the daemon's end.
const ENDS: &str = "daemon_stops";
/// The tests of the state after the daemon's end, without and with locked rules.
const DETACHED: &str = "programs_are_detached";
const ATTACHED: &str = "programs_stay_attached";

/// Runs the selected tests; starts only the daemons that those need.
pub(crate) fn run(sessions: &[Session], filter: &Filter) {
    let all: Vec<String> = sessions.iter().flat_map(Session::names).collect();
    if let Some(idle) = filter.idle_alternative(&all) {
        println!("vm: broken the filter `{idle}` selects no test");
        return;
    }
    let wanted: Vec<Session> = sessions
        .iter()
        .copied()
        .filter(Session::can_run)
        .filter(|session| session.names().any(|name| filter.matches(&name)))
        .collect();
    let names: Vec<String> = wanted
        .iter()
        .flat_map(Session::names)
        .filter(|name| filter.matches(name))
        .collect();
    if names.is_empty() {
        println!("vm: plan {NONE}");
        println!("vm: skip 0 {NONE}: no engine of these sessions starts on this kernel");
    } else {
        println!("vm: plan {}", names.join(" "));
    }
    for session in wanted {
        session.run(filter);
    }
    println!("vm: end");
}

/// Whether this is Linux 7.0 or newer, which preempts itself and has what the engine `lsm` needs.
pub(crate) fn has_task_work() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let major = release.split('.').next().unwrap_or_default();
    major.parse().is_ok_and(|major: u32| major >= 7)
}

/// The engine that starts soonest on this kernel.
pub(crate) fn quickest_engine() -> &'static str {
    if has_task_work() { LSM } else { TRACEPOINT }
}

impl Session {
    /// The engine on this kernel.
    pub(crate) fn engine(&self) -> &'static str {
        if self.engine == FENTRY && has_task_work() {
            LSM
        } else {
            self.engine
        }
    }

    /// Whether an engine of the session starts on this kernel.
    fn can_run(&self) -> bool {
        if has_task_work() {
            self.engine != TRACEPOINT && !NEED_FENTRY.contains(&self.name)
        } else {
            self.engine != LSM
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let tests = self.tests.iter().map(|(name, _)| *name);
        [STARTS]
            .into_iter()
            .chain(tests)
            .chain([ENDS, self.last()])
            .map(|name| format!("{}::{name}", self.name))
    }

    const fn last(&self) -> &'static str {
        if self.stays { ATTACHED } else { DETACHED }
    }

    fn run(&self, filter: &Filter) {
        let report = |test: &str, started: Instant, outcome: &anyhow::Result<()>| {
            let name = format!("{}::{test}", self.name);
            let seconds = started.elapsed().as_secs_f64();
            match outcome {
                _ if !filter.matches(&name) && outcome.is_ok() => {}
                Ok(()) => println!("vm: ok {seconds:.2} {name}"),
                Err(error) => {
                    let word = if error.is::<Skipped>() {
                        "skip"
                    } else {
                        "FAIL"
                    };
                    println!("vm: {word} {seconds:.2} {name}: {}", one_line(error));
                }
            }
        };
        let started = Instant::now();
        let daemon = (self.prepare)()
            .and_then(|()| Daemon::start(self.name, self.engine(), &self.rules.text()));
        let daemon = match daemon {
            Ok(daemon) => {
                report(STARTS, started, &Ok(()));
                daemon
            }
            Err(error) => return report(STARTS, started, &Err(error)),
        };
        for line in daemon.costs() {
            println!("vm: note {line}");
        }
        for (name, work) in self.tests {
            if filter.matches(&format!("{}::{name}", self.name)) {
                let started = Instant::now();
                report(name, started, &work(&daemon));
            }
        }
        let started = Instant::now();
        report(ENDS, started, &(self.stop)(&daemon));
        let started = Instant::now();
        let left = wait_for("the expected BPF programs", || {
            Ok((programs()?.is_empty() != self.stays).then_some(()))
        })
        .with_context(|| programs().unwrap_or_default().join(" "));
        report(
            self.last(),
            started,
            &left.and_then(|()| (self.after)(daemon.log())),
        );
    }
}

/// An error on one line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").replace('\n', " | ")
}
