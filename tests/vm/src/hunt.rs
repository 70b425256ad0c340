//! Random programs of syscalls, under random rules, while the kernel's audit and tollgate watch the same run.
//!
//! Programs run in batches: the rules of all programs of a batch are loaded at once, and match only what the program's
//! own group does, or its own directory. A program and its rules depend only on the seed, its number and the place
//! (machine or host). A program with a difference that no entry permits is run again in shorter forms, as a batch, and
//! the shortest that still differs is printed.
//!
//! [`judge`] compares the records.

mod batch;
mod forms;
mod generate;
mod judge;
mod minimise;
mod program;
mod rules;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::daemon::Daemon;
use crate::lists::{list_workload, lock, random::Random};
use crate::machine::option_value;
use crate::suite::{Rules, Session};
use batch::{Batch, Case, Setup};
use program::HuntProgram;
use rules::Flavor;

/// Programs of the default seed with the fentry engine.
pub(crate) const SESSION: Session = Session {
    name: "hunt",
    engine: "fentry",
    prepare: batch::prepare,
    rules: Rules::Text(batch::IDLE_RULES),
    tests: &[("auditors_agree_on_random_programs", |daemon| {
        hunt(daemon, &Wanted::of_machine()?, &Setup::of_machine()?)
    })],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Kernel option that selects programs: `SEED:FIRST:COUNT`, or `SEED:FIRST:COUNT:SECONDS` to go on with the next
/// programs until this time is over.
const HUNT: &str = "vm.hunt";

/// The default programs: some ten seconds.
const DEFAULT: &str = "1:0:64";

/// Failed batches that do not end a run.
const MAX_FAILED_BATCHES: usize = 3;

/// Programs of a batch.
const BATCH: u32 = 32;

/// Selected programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    seed: u64,
    first: u32,
    count: u32,
    /// Time after which no further batch starts; without it, `count` programs run.
    limit: Option<Duration>,
}

impl Wanted {
    fn of_machine() -> anyhow::Result<Self> {
        Self::read(option_value(HUNT)?.as_deref().unwrap_or(DEFAULT))
    }

    fn read(text: &str) -> anyhow::Result<Self> {
        let wrong = || format!("`{text}` is not SEED:FIRST:COUNT or SEED:FIRST:COUNT:SECONDS");
        let numbers: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        let numbers = numbers.with_context(wrong)?;
        let (&[seed, first, count], rest) = numbers.split_first_chunk().with_context(wrong)?;
        let limit = match rest {
            [] => None,
            [seconds] => Some(Duration::from_secs(*seconds)),
            _ => anyhow::bail!(wrong()),
        };
        let (first, count) = (u32::try_from(first)?, u32::try_from(count)?);
        Ok(Self {
            seed,
            first,
            count,
            limit,
        })
    }

    /// The numbers of each batch.
    fn batches(self) -> impl Iterator<Item = Vec<u32>> {
        let end = match self.limit {
            None => self.first.saturating_add(self.count),
            Some(_) => u32::MAX,
        };
        let mut next = self.first;
        std::iter::from_fn(move || {
            let start = next;
            // Batches begin at multiples of their size.
            next = (start - start % BATCH).saturating_add(BATCH).min(end);
            (start < end).then(|| (start..next).collect())
        })
    }

    /// A program with its rules.
    fn case(self, number: u32, setup: &Setup, engine: &str) -> Case {
        let mut random = Random::of(self.seed, number);
        let flavor = Flavor::of(number / BATCH, engine);
        Case {
            program: HuntProgram::random(&mut random, &flavor.favorites(), setup.may_be_root),
            flavor,
            rules: random,
        }
    }
}

/// Runs programs on the host with the tracepoint engine.
///
/// # Errors
/// Names the differences, or the cause why they cannot run.
pub(crate) fn run_on_host(text: &str, tollgate: &str) -> anyhow::Result<()> {
    let wanted = Wanted::read(text)?;
    let _lock = lock().context("cannot lock the kernel's audit")?;
    batch::prepare()?;
    let name = "tollgate-hunt/daemon";
    // The daemon would go on with the log of an earlier run.
    list_workload::empty_directory("/tmp/tollgate-hunt")?;
    let daemon = Daemon::start_program(tollgate, name, "tracepoint", batch::IDLE_RULES)?;
    let found = hunt(&daemon, &wanted, &Setup::of_host()?);
    let stopped = daemon.stop();
    batch::clear()?;
    found.and(stopped)
}

/// Numbers of a run.
#[derive(Debug, Default)]
struct Tally {
    programs: usize,
    events: usize,
    permitted: usize,
    differing: usize,
    failed_batches: usize,
}

fn hunt(daemon: &Daemon, wanted: &Wanted, setup: &Setup) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut known = minimise::Signatures::default();
    for numbers in wanted.batches() {
        if wanted.limit.is_some_and(|limit| started.elapsed() >= limit) {
            println!("vm: note next program {}", numbers.first().unwrap_or(&0));
            break;
        }
        let cases = numbers
            .iter()
            .map(|number| wanted.case(*number, setup, daemon.engine()))
            .collect();
        let verdicts = match Batch::new(cases).run(daemon, setup) {
            Ok(verdicts) => verdicts,
            // The next batch loads rules of its own.
            Err(error) if tally.failed_batches < MAX_FAILED_BATCHES => {
                tally.failed_batches += 1;
                let first = numbers.first().unwrap_or(&0);
                println!(
                    "vm: note hunt: batch of program {first} of seed {} failed: {error:#}",
                    wanted.seed
                );
                continue;
            }
            Err(error) => {
                known.print();
                return Err(error);
            }
        };
        for (verdict, number) in verdicts.into_iter().zip(numbers) {
            tally.programs += 1;
            tally.events += verdict.events;
            tally.permitted += verdict.permitted;
            if verdict.findings.is_empty() {
                continue;
            }
            tally.differing += 1;
            let name = format!("--seed {} --program {number}", wanted.seed);
            let case = wanted.case(number, setup, daemon.engine());
            minimise::report(daemon, setup, &name, &case, &verdict, &mut known)?;
        }
        println!("vm: note hunt: {tally:?}");
    }
    known.print();
    ensure!(tally.events > 0, "no event was recorded");
    let Tally {
        programs,
        differing,
        failed_batches,
        ..
    } = tally;
    ensure!(
        differing == 0 && failed_batches == 0,
        "{differing} programs of {programs} differ, {failed_batches} batches failed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_begin_at_multiples_of_their_size() {
        let batches = |text: &str| -> Vec<Vec<u32>> {
            let ranges = Wanted::read(text).unwrap().batches().take(3);
            ranges.collect()
        };
        assert_eq!(batches("7:30:1"), [vec![30]]);
        assert_eq!(batches("7:30:4"), [vec![30, 31], vec![32, 33]]);
        assert_eq!(batches("7:0:1:60").len(), 3);
        assert!(Wanted::read("7:1").is_err() && Wanted::read("7:1:1:1:1").is_err());
    }
}
