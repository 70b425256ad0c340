//! Runs the tests and tells the harness how each ended, one line each:
//!
//! ```text
//! vm: plan NAME...           the tests that will be run, first of all
//! vm: ok SECONDS NAME
//! vm: FAIL SECONDS NAME: WHY
//! vm: dies NAME              the machine goes down now, which is what the test is about
//! vm: note TEXT              for people
//! vm: count N CALL/STATE     instructions that a call executes
//! vm: broken WHY             nothing could be run
//! vm: end
//! ```
//!
//! Loading the programs is what takes long on an emulated processor, so that the tests of a session
//! share one daemon. Its start and its end are tests as well.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use support::wait::wait_for;

use crate::daemon::{Daemon, programs};

/// What a test does; it fails by an error.
pub(crate) type Work = fn(&Daemon) -> anyhow::Result<()>;

/// Tests that share one daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// First part of the name of each test.
    pub(crate) name: &'static str,
    /// Engine of the daemon.
    pub(crate) engine: &'static str,
    /// Makes what the rules are about.
    pub(crate) prepare: fn() -> anyhow::Result<()>,
    /// Rules of the daemon.
    pub(crate) rules: Rules,
    /// What is run while the daemon audits.
    pub(crate) tests: &'static [(&'static str, Work)],
    /// Ends the daemon and checks its account.
    pub(crate) stop: Work,
    /// What is run when it has ended, with its log.
    pub(crate) after: fn(&Path) -> anyhow::Result<()>,
    /// Whether what audits stays when all daemons have ended, because it is locked.
    pub(crate) stays: bool,
}

/// Rules of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rules {
    /// As they stand.
    Text(&'static str),
    /// As they are made.
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

/// The start of the daemon as a test.
const STARTS: &str = "starts_and_attaches";
/// Its end as a test.
const ENDS: &str = "ends_and_accounts_for_all";
/// What is left behind, as a test.
const LEAVES: &str = "leaves_nothing_behind";

/// Runs the tests whose name holds the filter; a daemon starts only for those.
pub(crate) fn run(sessions: &[Session], filter: &str) {
    let wanted: Vec<Session> = sessions
        .iter()
        .copied()
        .filter(|session| session.names().any(|name| name.contains(filter)))
        .collect();
    let names: Vec<String> = wanted
        .iter()
        .flat_map(Session::names)
        .filter(|name| name.contains(filter))
        .collect();
    println!("vm: plan {}", names.join(" "));
    for session in wanted {
        session.run(filter);
    }
    println!("vm: end");
}

impl Session {
    fn names(&self) -> impl Iterator<Item = String> {
        let tests = self.tests.iter().map(|(name, _)| *name);
        [STARTS]
            .into_iter()
            .chain(tests)
            .chain([ENDS, LEAVES])
            .map(|name| format!("{}::{name}", self.name))
    }

    fn run(&self, filter: &str) {
        let report = |test: &str, started: Instant, outcome: &anyhow::Result<()>| {
            let name = format!("{}::{test}", self.name);
            let seconds = started.elapsed().as_secs_f64();
            match outcome {
                _ if !name.contains(filter) && outcome.is_ok() => {}
                Ok(()) => println!("vm: ok {seconds:.2} {name}"),
                Err(error) => println!("vm: FAIL {seconds:.2} {name}: {}", one_line(error)),
            }
        };
        let started = Instant::now();
        let daemon = (self.prepare)()
            .and_then(|()| Daemon::start(self.name, self.engine, &self.rules.text()));
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
            if format!("{}::{name}", self.name).contains(filter) {
                let started = Instant::now();
                report(name, started, &work(&daemon));
            }
        }
        let started = Instant::now();
        report(ENDS, started, &(self.stop)(&daemon));
        let started = Instant::now();
        let left = wait_for("the end of all BPF programs, or their staying", || {
            Ok((programs()?.is_empty() != self.stays).then_some(()))
        })
        .with_context(|| programs().unwrap_or_default().join(" "));
        report(
            LEAVES,
            started,
            &left.and_then(|()| (self.after)(daemon.log())),
        );
    }
}

/// An error as a part of a line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").replace('\n', " | ")
}
