//! Random rule lists, loaded into the kernel's audit and into tollgate together: both record the same syscalls by
//! the same rule.
//!
//! Hundreds of lists are loaded at once, which saves restarts of the auditors. The rules of a list match only the
//! tasks or the directory of the list's own workload. The comparison covers the syscall, its task, arguments and
//! result, and the key, which names the rule.
//!
//! A list depends only on its seed and number; `cargo xtask lists` selects them and repeats one of them.

mod calls;
mod generate;
pub(crate) mod list_workload;
pub(crate) mod permitted;
pub(crate) mod random;
pub(crate) mod recorded_call;

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use support::wait::wait_within;

use crate::daemon::Daemon;
use crate::differential::kernel::KernelAudit;
use crate::differential::uring::Layout;
use crate::machine::option_value;
use crate::suite::{Rules, Session};
pub(crate) use list_workload::LastEvent;
use list_workload::ListWorkload;
use permitted::PermittedCall;
use random::Random;
use recorded_call::{CallDifference, RecordedCalls};

/// Lists with the fentry engine.
pub(crate) const SESSION: Session = Session {
    name: "lists",
    engine: "fentry",
    prepare: || prepare(&Wanted::of_machine()?),
    rules: Rules::Made(|| {
        Wanted::of_machine().map_or_else(|_| String::new(), |wanted| rules(&wanted))
    }),
    tests: &[("auditors_record_the_same_calls", |daemon| {
        compare(daemon, &Wanted::of_machine()?)
    })],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Kernel option that selects lists, `SEED:FIRST:COUNT`.
const LISTS: &str = "vm.lists";

/// The default lists.
const DEFAULT: &str = "1:0:40";

/// Number of lists after which the kernel's records are read from the socket.
const READ_EVERY: usize = 8;

/// Number of lists after which progress is printed: a machine without output is stopped.
const PROGRESS_EVERY: usize = 100;

const LONGEST_LAG: Duration = Duration::from_secs(120);

/// Number of differing lists that are printed.
const SHOWN: usize = 12;

/// Selected lists.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    seed: u64,
    first: u32,
    count: u32,
}

impl Wanted {
    fn of_machine() -> anyhow::Result<Self> {
        Self::read(option_value(LISTS)?.as_deref().unwrap_or(DEFAULT))
    }

    fn read(text: &str) -> anyhow::Result<Self> {
        let wrong = || format!("`{text}` is not SEED:FIRST:COUNT");
        let numbers: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        let [seed, first, count] = numbers.with_context(wrong)?[..] else {
            anyhow::bail!(wrong());
        };
        let (first, count) = (u32::try_from(first)?, u32::try_from(count)?);
        Ok(Self { seed, first, count })
    }

    fn workloads(&self) -> impl Iterator<Item = ListWorkload> {
        (self.first..)
            .take(usize::try_from(self.count).unwrap_or(0))
            .map(ListWorkload::new)
    }

    /// Rules of the filesystem list, which apply to all lists of a run.
    fn filesystems(&self) -> Vec<String> {
        generate::filesystems(&mut Random::of(self.seed, u32::MAX))
    }

    /// The lines of a list.
    fn list(&self, workload: &ListWorkload) -> Vec<String> {
        generate::list(&mut Random::of(self.seed, workload.number), workload)
    }
}

/// Runs lists on the host with the tracepoint engine.
///
/// # Errors
/// Names differing lists, or the cause why they cannot run.
pub(crate) fn run_on_host(text: &str, tollgate: &str) -> anyhow::Result<()> {
    let wanted = Wanted::read(text)?;
    let _lock = lock().context("cannot lock the kernel's audit")?;
    prepare(&wanted)?;
    let name = "tollgate-lists/daemon";
    let daemon = Daemon::start_program(tollgate, name, "tracepoint", &rules(&wanted))?;
    let compared = compare(&daemon, &wanted);
    let stopped = daemon.stop();
    list_workload::clear()?;
    compared.and(stopped)
}

/// The machine-wide lock for changes of the kernel's audit.
pub(crate) fn lock() -> std::io::Result<File> {
    let file = File::options()
        .create(true)
        .append(true)
        .open("/tmp/tollgate-machine.lock")?;
    file.lock()?;
    Ok(file)
}

fn prepare(wanted: &Wanted) -> anyhow::Result<()> {
    list_workload::clear()?;
    LastEvent::prepare()?;
    let layout = Layout::ask(Path::new(list_workload::PLACES))?;
    let mut workloads = wanted.workloads();
    workloads.try_for_each(|workload| workload.prepare(layout))
}

/// Rules of all lists.
fn rules(wanted: &Wanted) -> String {
    let lists = wanted
        .workloads()
        .flat_map(|workload| wanted.list(&workload));
    [LastEvent::RULE.to_owned()]
        .into_iter()
        .chain(wanted.filesystems())
        .chain(lists)
        .map(|line| line + "\n")
        .collect()
}

fn compare(daemon: &Daemon, wanted: &Wanted) -> anyhow::Result<()> {
    println!(
        "vm: note {} rule lists from number {} of seed {}",
        wanted.count, wanted.first, wanted.seed
    );
    for line in wanted.filesystems() {
        println!("vm: note   {line}");
    }
    let mut audit = KernelAudit::start(daemon.rules())?;
    let mut runs = Vec::new();
    let mut run = || -> anyhow::Result<()> {
        for (done, workload) in wanted.workloads().enumerate() {
            let subject = generate::subject(&mut Random::of(wanted.seed, workload.number));
            runs.push((workload.run(subject)?, workload));
            if done % READ_EVERY == 0 {
                audit.drain()?;
            }
            if done % PROGRESS_EVERY == PROGRESS_EVERY - 1 {
                println!("vm: note {} lists done", done + 1);
            }
        }
        LastEvent::run()
    };
    let ran = run();
    let theirs = audit.stop()?;
    ran?;
    let ours = wait_within(LONGEST_LAG, "the last event in the log", || {
        let log = fs::read(daemon.log()).context("cannot read the log")?;
        Ok(log.contains_str(LastEvent::KEY).then_some(log))
    })?;
    let (theirs, ours) = (RecordedCalls::read(&theirs)?, RecordedCalls::read(&ours)?);
    let mut permitted = permitted::for_engine(daemon.engine())?;
    let (mut differ, mut events) = (0, 0);
    for (pids, workload) in &runs {
        let lines = wanted.list(workload);
        let mut found = Vec::new();
        for &pid in pids {
            events += theirs.of(pid).len();
            found.extend(recorded_call::differences(theirs.of(pid), ours.of(pid)));
        }
        found.retain(|difference| {
            !permitted.permits(|entry: &PermittedCall| entry.permits(&lines, &[], difference))
        });
        if !found.is_empty() {
            differ += 1;
            if differ <= SHOWN {
                show(wanted, workload, &lines, &found);
            }
        }
    }
    for (uses, entry) in permitted.uses() {
        println!("vm: note permitted {uses} times: {}", entry.reason);
    }
    println!(
        "vm: note {} lists, {events} events: {differ} lists differ",
        runs.len()
    );
    ensure!(events > 0, "no event was recorded");
    ensure!(differ == 0, "{differ} lists differ");
    Ok(())
}

fn show(wanted: &Wanted, workload: &ListWorkload, lines: &[String], found: &[CallDifference]) {
    println!("vm: note list {} of seed {}", workload.number, wanted.seed);
    for line in lines {
        println!("vm: note   {line}");
    }
    for difference in found {
        println!("vm: note   {difference}");
    }
}
