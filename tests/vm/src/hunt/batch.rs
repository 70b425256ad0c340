//! Programs that run under the rules of all of them.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use support::event::{self, Event};
use support::wait::wait_within;

use super::judge::{self, Subject, Verdict};
use super::program::HuntProgram;
use super::rules::{self, Flavor, PROGRAM};
use crate::daemon::Daemon;
use crate::differential::kernel::KernelAudit;
use crate::differential::line_of_kernel;
use crate::differential::uring::Layout;
use crate::lists::LastEvent;
use crate::lists::list_workload::{self, ListWorkload};
use crate::lists::random::Random;

/// The rules before the first batch.
pub(super) const IDLE_RULES: &str =
    "-a always,exit -F arch=b64 -S exit -F uid=599999 -k last-of-all-lists\n";

/// The longest run of a program.
const LONGEST_RUN: Duration = Duration::from_secs(20);
const LONGEST_LAG: Duration = Duration::from_secs(120);
/// Loading rules under emulation.
const LONGEST_RELOAD: Duration = Duration::from_secs(240);

/// The number of the last process, from which the first program of a batch goes on: below those that programs set.
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";
const FIRST_NUMBER: &str = "5000";

/// The kernel line of the host.
pub(super) const HOST: &str = "host";

/// The place of the run.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The kernel's version line, or [`HOST`].
    pub(super) line: String,
    /// Whether programs may keep the rights of root: only where they can break nothing.
    pub(super) may_be_root: bool,
}

impl Setup {
    pub(super) fn of_machine() -> anyhow::Result<Self> {
        Ok(Self {
            line: line_of_kernel()?,
            may_be_root: true,
        })
    }

    pub(super) fn of_host() -> anyhow::Result<Self> {
        Ok(Self {
            line: HOST.to_owned(),
            may_be_root: false,
        })
    }
}

/// A program, and the random choice of its rules.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) program: HuntProgram,
    pub(super) flavor: Flavor,
    pub(super) rules: Random,
}

impl Case {
    fn rules(&self, workload: &ListWorkload) -> Vec<String> {
        rules::rules(
            &mut self.rules.clone(),
            self.flavor,
            self.program.entry,
            workload,
        )
    }
}

/// Programs that run one after the other, each in its own directory with its own ids.
#[derive(Debug)]
pub(super) struct Batch {
    cases: Vec<(ListWorkload, Case)>,
}

/// Creates the directory of a run.
pub(super) fn prepare() -> anyhow::Result<()> {
    list_workload::clear()?;
    LastEvent::prepare()
}

/// Removes it.
pub(super) fn clear() -> anyhow::Result<()> {
    list_workload::clear()
}

impl Batch {
    pub(super) fn new(cases: Vec<Case>) -> Self {
        let workloads = (0..).map(ListWorkload::new);
        Self {
            cases: workloads.zip(cases).collect(),
        }
    }

    /// Runs all programs under both auditors.
    ///
    /// # Errors
    /// If an auditor rejects the rules, loses records or does not answer, or a program cannot be started.
    pub(super) fn run(&self, daemon: &Daemon, setup: &Setup) -> anyhow::Result<Vec<Verdict>> {
        prepare()?;
        let layout = Layout::ask(Path::new(list_workload::PLACES))?;
        let mut text = format!("{}\n", LastEvent::RULE);
        for (workload, case) in &self.cases {
            workload.make_files()?;
            case.program
                .write(workload, layout, &workload.at(PROGRAM))?;
            for line in case.rules(workload) {
                text += &(line + "\n");
            }
        }
        ensure!(
            daemon.replace(&text, LONGEST_RELOAD)?,
            "the daemon refuses\n{text}"
        );
        let begin = daemon.log_text()?.len();
        let mut audit = KernelAudit::start(daemon.rules())?;
        let mut run = || -> anyhow::Result<Vec<u32>> {
            if setup.may_be_root {
                fs::write(LAST_NUMBER, FIRST_NUMBER).context("cannot set the process number")?;
            }
            let parents = ParentDirectories::read()?;
            let mut pids = Vec::new();
            for (workload, _) in &self.cases {
                pids.push(start(workload)?);
                audit.drain()?;
            }
            if setup.may_be_root {
                parents.restore()?;
            }
            LastEvent::run()?;
            Ok(pids)
        };
        let pids = run();
        let theirs = audit.stop()?;
        let pids = pids?;
        let ours = wait_within(LONGEST_LAG, "the last event in the log", || {
            let log = daemon.log_text()?;
            let log = log.get(begin..).context("the log has become shorter")?;
            Ok(log.contains_str(LastEvent::KEY).then(|| log.to_vec()))
        })?;
        let theirs = event::parse_interleaved(&theirs)?;
        let mut ours = event::parse(&ours)?;
        ours.retain(Event::is_from_tollgate);
        let engine = daemon.engine();
        let cases = self.cases.iter().zip(pids);
        cases
            .map(|((workload, case), pid)| {
                let subject = Subject {
                    program: &case.program,
                    workload,
                    rules: case.rules(workload),
                    pid,
                };
                judge::judge(&theirs, &ours, subject, engine, &setup.line)
            })
            .collect()
    }
}

/// Owner and mode of the directories above those of the programs: a program with the rights of root can change them.
struct ParentDirectories([(&'static str, Metadata); 3]);

impl ParentDirectories {
    fn read() -> anyhow::Result<Self> {
        let of = |path| {
            anyhow::Ok((
                path,
                fs::metadata(path).with_context(|| format!("cannot look at {path}"))?,
            ))
        };
        Ok(Self([of("/")?, of("/tmp")?, of(list_workload::PLACES)?]))
    }

    fn restore(&self) -> anyhow::Result<()> {
        for (path, was) in &self.0 {
            chown(path, Some(was.uid()), Some(was.gid()))
                .and_then(|()| fs::set_permissions(path, was.permissions()))
                .with_context(|| format!("cannot restore {path}"))?;
        }
        Ok(())
    }
}

/// Runs the program of a workload; returns its process id.
fn start(workload: &ListWorkload) -> anyhow::Result<u32> {
    let path = workload.at(PROGRAM);
    let mut child = Command::new(&path)
        .args(["word", "two words"])
        .current_dir(&workload.place)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    let ended = wait_within(
        LONGEST_RUN,
        "the end of a program",
        || Ok(child.try_wait()?),
    );
    // Children that it has left would write into the next run.
    let group = Pid::from_raw(child.id().cast_signed());
    let _none_left = killpg(group, Signal::SIGKILL);
    if ended.is_err() {
        println!("vm: note {} does not end", path.display());
        child.wait().context("cannot wait for a program")?;
    }
    Ok(child.id())
}
