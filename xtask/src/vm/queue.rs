//! Runs the machines, several at a time.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::boot::{Ended, Machine, Purpose};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Runs all machines; returns their ends in the same order.
///
/// Workers take the machines in their order. A machine waits for half of its time, for the kernel's grace periods while
/// programs are attached and detached, so there is one worker more than host CPUs. A machine with racing CPUs uses two
/// host CPUs and runs alone, after all others.
pub(super) fn run_all(machines: &[Machine<'_>]) -> Result<Vec<Ended>> {
    let indexes = 0..machines.len();
    let (alone, shared): (Vec<usize>, Vec<usize>) = indexes.partition(|&index| {
        let machine = machines.get(index);
        machine.is_some_and(|it| it.purpose == Purpose::Race)
    });
    let run = |index: usize| -> Result<Ended> {
        let machine = machines.get(index).ok_or("no such machine")?;
        machine.run()
    };
    let mut ended = in_parallel(&shared, workers(), run)?;
    for index in alone {
        ended.push((index, run(index)?));
    }
    ended.sort_by_key(|&(index, _)| index);
    Ok(ended.into_iter().map(|(_, ended)| ended).collect())
}

/// Number of machines at a time.
fn workers() -> usize {
    // A machine can take 2 GB of memory.
    const MOST: usize = 6;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors + 1).min(MOST)
}

/// Calls `run` for each item, by so many threads; returns the results with their items.
fn in_parallel<T: Send>(
    items: &[usize],
    workers: usize,
    run: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<(usize, T)>> {
    let (run, next) = (&run, &AtomicUsize::new(0));
    thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            while let Some(&item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                done.push((item, run(item)?));
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(done)
        };
        let threads: Vec<_> = (0..workers.min(items.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let mut done = Vec::new();
        for thread in threads {
            let results = thread.join();
            done.extend(results.map_err(|_panic| "the thread of a machine panicked")??);
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_runs_once() {
        for workers in [1, 3, 9] {
            let mut done = in_parallel(&[0, 2, 4, 5], workers, |item| Ok(item * 10)).unwrap();
            done.sort_unstable();
            assert_eq!(done, [(0, 0), (2, 20), (4, 40), (5, 50)]);
        }
    }

    #[test]
    fn error_of_a_machine_is_returned() {
        let run = |item| {
            if item == 1 {
                Err("no emulator".into())
            } else {
                Ok(())
            }
        };
        let error = in_parallel(&[0, 1, 2], 2, run).unwrap_err();
        assert_eq!(error.to_string(), "no emulator");
    }
}
