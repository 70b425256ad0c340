//! Runs the tests and reports to `cargo xtask vm` on a serial port, in lines:
//!
//! ```text
//! vm: absent SESSION: REASON  none of its tests are planned, because they cannot run on this kernel
//! vm: plan NAME...           the selected tests, before all results
//! vm: ok SECONDS NAME
//! vm: skip SECONDS NAME: REASON
//! vm: FAIL SECONDS NAME: MESSAGE
//! vm: crash NAME              the test crashes the machine now
//! vm: note TEXT              printed only
//! vm: count N CALL/STATE     instructions that a call executes
//! vm: doctor JSON            what `tollgate doctor` has found
//! vm: function, program, line, follow   for `cargo xtask counts --stages`: `count/stages.rs`
//! vm: broken MESSAGE         no test can run
//! vm: end
//! ```
//!
//! Loading BPF programs is slow on an emulated CPU: the tests of a session share one daemon, and the sessions of a group
//! do so too. Its start, the replacement of its rules and its end are tests too.

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use support::wait::wait_for;

use crate::daemon::{Daemon, programs};
use crate::machine::{Filter, has_option, option_value};

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

/// Sessions with one engine that share a daemon: the first one starts it, each other one replaces its rules, and the
/// last one ends it. A session that needs settings, another end or an untouched daemon is a group of its own.
pub(crate) type Group = &'static [Session];

/// Tests with the same rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// First part of each test's name.
    pub(crate) name: &'static str,
    /// The daemon's engine, or [`ANY`]. Where `fentry` does not start and `lsm` does, that takes its place.
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

/// The engines.
pub(crate) const FENTRY: &str = "fentry";
pub(crate) const LSM: &str = "lsm";
const TRACEPOINT: &str = "tracepoint";
/// In place of an engine: that of `--engine auto`.
pub(crate) const ANY: &str = "auto";

/// Kernel option: the engines that start on this kernel, the first one that of `--engine auto`.
const ENGINES: &str = "vm.engines";

/// Sessions about calls whose end `fentry` does not see, what it may cost, how many slots it uses, calls that stay at its raw
/// tracepoint, and hooks that root disables, which the kernel refuses while kprobes use them.
const NEED_FENTRY: [&str; 9] = [
    "count_fentry_10_rules",
    "disabled_hooks",
    "half_seen",
    "shared_functions",
    "slots",
    "slots_mapped",
    "slots_operations",
    "slots_subordinate",
    "stopping",
];

/// Sessions that one kernel of `make test` has, not each: they depend little on the kernel, or take a minute and more and
/// most of what they run is in others, too. `make vm KERNEL=all` has them on each kernel.
const ON_ONE_KERNEL: [&str; 19] = [
    "detections",
    "detections_of_the_daemon",
    "differential_watched_raw",
    "flood",
    "flood_tracepoint",
    "full_disk",
    "handover",
    "hunt",
    "json",
    "lists",
    "locked",
    "names_tracepoint",
    "pinned",
    "preemption",
    "slots",
    "slots_mapped",
    "slots_operations",
    "slots_subordinate",
    "stopping",
];

/// Kernel option: another kernel of the same run has those sessions.
const ELSEWHERE: &str = "vm.elsewhere";

/// The tests of the daemon's start, and of the rules of a session that finds it running.
const STARTS: &str = "daemon_starts";
const REPLACES: &str = "rules_are_replaced";
/// The test of the end of a session after which the daemon goes on.
const COMPLETE: &str = "events_are_complete";
/// The test of the daemon's end.
const ENDS: &str = "daemon_stops";
/// The tests of the state after the daemon's end, without and with locked rules.
const DETACHED: &str = "programs_are_detached";
const ATTACHED: &str = "programs_stay_attached";

/// Runs the selected tests; starts only the daemons that those need.
pub(crate) fn run(groups: &[Group], filter: &Filter) {
    let all = groups.concat();
    let names: Vec<String> = all.iter().flat_map(|it| it.names(Place::ALONE)).collect();
    if let Some(idle) = filter.idle_alternative(&names) {
        println!("vm: broken the filter `{idle}` selects no test");
        return;
    }
    let engines = engines();
    let is_elsewhere = has_option(ELSEWHERE).unwrap_or_default();
    let mut wanted: Vec<(Session, Place)> = Vec::new();
    for group in groups {
        let begin = wanted.len();
        for session in *group {
            let mut names = session.names(Place::ALONE);
            if !names.any(|name| filter.matches(&name)) {
                continue;
            }
            let elsewhere = || {
                let is_there = is_elsewhere && ON_ONE_KERNEL.contains(&session.name);
                is_there.then(|| "another kernel of this run has it".to_owned())
            };
            match session.absence(&engines).or_else(elsewhere) {
                None => wanted.push((*session, Place::BETWEEN)),
                Some(reason) => println!("vm: absent {}: {reason}", session.name),
            }
        }
        let chosen = wanted.get_mut(begin..).unwrap_or_default();
        if let Some((_, place)) = chosen.first_mut() {
            place.is_first = true;
        }
        if let Some((_, place)) = chosen.last_mut() {
            place.is_last = true;
        }
    }
    let names: Vec<String> = wanted
        .iter()
        .flat_map(|(session, place)| session.names(*place))
        .filter(|name| filter.matches(name))
        .collect();
    println!("vm: plan {}", names.join(" "));
    let mut running = None;
    for (session, place) in wanted {
        running = session.run(place, running, filter);
    }
    println!("vm: end");
}

/// Whether this is Linux 7.0 or newer, which preempts itself and has what the engine `lsm` needs.
pub(crate) fn has_task_work() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let major = release.split('.').next().unwrap_or_default();
    major.parse().is_ok_and(|major: u32| major >= 7)
}

/// The engines that [`ENGINES`] names, if the kernel is one of the matrix.
///
/// # Errors
/// If the kernel's command line cannot be read, or names another engine.
pub(crate) fn known_engines() -> anyhow::Result<Option<Vec<&'static str>>> {
    let value = option_value(ENGINES)?;
    value.as_deref().map(parse_engines).transpose()
}

fn parse_engines(names: &str) -> anyhow::Result<Vec<&'static str>> {
    let parse = |name| {
        let known = [FENTRY, LSM, TRACEPOINT].into_iter().find(|it| *it == name);
        known.with_context(|| format!("unknown engine `{name}`"))
    };
    names.split_terminator(',').map(parse).collect()
}

/// The engines that start on this kernel, as far as it is known without trying.
fn engines() -> Vec<&'static str> {
    match known_engines() {
        Ok(Some(engines)) => engines,
        _ if has_task_work() => vec![LSM],
        _ => vec![FENTRY, TRACEPOINT],
    }
}

/// The engine that starts soonest on this kernel.
pub(crate) fn quickest_engine() -> &'static str {
    let engines = engines();
    let quickest = engines.iter().find(|name| **name == TRACEPOINT);
    quickest
        .or_else(|| engines.first())
        .copied()
        .unwrap_or(TRACEPOINT)
}

impl Session {
    /// The engine on this kernel.
    pub(crate) fn engine(&self) -> &'static str {
        self.engine_of(&engines())
    }

    fn engine_of(&self, engines: &[&'static str]) -> &'static str {
        match (self.engine, engines) {
            (ANY, [first, ..]) => first,
            (FENTRY, engines) if !engines.contains(&FENTRY) && engines.contains(&LSM) => LSM,
            (engine, _) => engine,
        }
    }

    /// Why the session cannot run where these engines start.
    fn absence(&self, engines: &[&'static str]) -> Option<String> {
        let engine = self.engine_of(engines);
        if engines.is_empty() {
            Some("no engine starts".to_owned())
        } else if !engines.contains(&engine) {
            Some(format!("{engine} does not start"))
        } else if engine == LSM && NEED_FENTRY.contains(&self.name) {
            Some(format!("it tests {FENTRY}"))
        } else {
            None
        }
    }

    fn names(&self, place: Place) -> impl Iterator<Item = String> {
        let tests = self.tests.iter().map(|(name, _)| *name);
        let (end, after) = match place.is_last {
            true => (ENDS, Some(self.last())),
            false => (COMPLETE, None),
        };
        [place.first_test()]
            .into_iter()
            .chain(tests)
            .chain([end])
            .chain(after)
            .map(|name| format!("{}::{name}", self.name))
    }

    const fn last(&self) -> &'static str {
        if self.stays { ATTACHED } else { DETACHED }
    }

    /// Runs it with the daemon of the session before in its group, or with a new one if there is none or that has
    /// failed; returns the daemon if it goes on.
    fn run(&self, place: Place, running: Option<Daemon>, filter: &Filter) -> Option<Daemon> {
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
        let daemon = (self.prepare)().and_then(|()| self.begin(running));
        let daemon = match daemon {
            Ok(daemon) => {
                report(place.first_test(), started, &Ok(()));
                daemon
            }
            Err(error) => {
                report(place.first_test(), started, &Err(error));
                return None;
            }
        };
        if place.is_first {
            for line in daemon.costs() {
                println!("vm: note {line}");
            }
        }
        for (name, work) in self.tests {
            if filter.matches(&format!("{}::{name}", self.name)) {
                let started = Instant::now();
                report(name, started, &work(&daemon));
            }
        }
        let started = Instant::now();
        if !place.is_last {
            let complete = daemon.end_session();
            let is_complete = complete.is_ok();
            report(COMPLETE, started, &complete);
            return is_complete.then_some(daemon);
        }
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
        None
    }

    /// The daemon with the rules of this session.
    fn begin(&self, running: Option<Daemon>) -> anyhow::Result<Daemon> {
        let rules = self.rules.text();
        let Some(daemon) = running else {
            return Daemon::start(self.name, self.engine(), &rules);
        };
        daemon.begin_session(&rules)?;
        Ok(daemon)
    }
}

/// Where a session is among the selected ones of its group.
#[derive(Clone, Copy, Debug)]
struct Place {
    is_first: bool,
    is_last: bool,
}

impl Place {
    const ALONE: Self = Self {
        is_first: true,
        is_last: true,
    };
    const BETWEEN: Self = Self {
        is_first: false,
        is_last: false,
    };

    const fn first_test(self) -> &'static str {
        if self.is_first { STARTS } else { REPLACES }
    }
}

/// An error on one line.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").replace('\n', " | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Session = Session {
        name: "slots",
        engine: FENTRY,
        prepare: || Ok(()),
        rules: Rules::Text(""),
        tests: &[],
        stop: |_daemon| Ok(()),
        after: |_log| Ok(()),
        stays: false,
    };

    #[test]
    fn sessions_take_an_engine_that_starts_or_tell_why_not() {
        let of = |engine, name, names| {
            let engines = parse_engines(names).unwrap();
            let session = Session {
                name,
                engine,
                ..SESSION
            };
            match session.absence(&engines) {
                None => session.engine_of(&engines).to_owned(),
                Some(reason) => reason,
            }
        };
        for (engine, name, engines, outcome) in [
            (FENTRY, "slots", "fentry,tracepoint", FENTRY),
            (FENTRY, "slots", "lsm", "it tests fentry"),
            (FENTRY, "names", "lsm", LSM),
            (FENTRY, "names", "tracepoint", "fentry does not start"),
            (TRACEPOINT, "raw", "lsm", "tracepoint does not start"),
            (ANY, "contention", "lsm", LSM),
            (ANY, "contention", "", "no engine starts"),
        ] {
            assert_eq!(
                of(engine, name, engines),
                outcome,
                "{engine} {name} {engines}"
            );
        }
        assert!(parse_engines("fentry,bpf").is_err());
    }
}
