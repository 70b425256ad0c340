//! Runs the machines, several at a time.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::boot::{Ended, Machine, Purpose};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Runs all machines; returns their ends in the same order.
///
/// Workers take the machines in their order. A machine waits for half of its time, for the kernel's grace periods while
/// programs are attached and detached, so there is one worker more than host CPUs. Machines that count instructions run
/// beside them with a low priority and use the time in which the others wait. A machine with racing CPUs uses two host CPUs and runs alone,
/// after all others.
pub(super) fn run_all(machines: &[Machine<'_>]) -> Result<Vec<Ended>> {
    let of = |wanted: fn(Purpose) -> bool| -> Vec<usize> {
        let indexes = 0..machines.len();
        indexes
            .filter(|&index| machines.get(index).is_some_and(|it| wanted(it.purpose)))
            .collect()
    };
    let counting = of(|purpose| purpose == Purpose::Count);
    let alone = of(|purpose| purpose == Purpose::Race);
    let shared = of(|purpose| !matches!(purpose, Purpose::Count | Purpose::Race));
    let mut ended = in_parallel(
        &[(&shared, workers()), (&counting, counting.len())],
        |index| -> Result<Ended> {
            let machine = machines.get(index).ok_or("no such machine")?;
            machine.run()
        },
    )?;
    for index in alone {
        let machine = machines.get(index).ok_or("no such machine")?;
        ended.push((index, machine.run()?));
    }
    ended.sort_by_key(|&(index, _)| index);
    Ok(ended.into_iter().map(|(_, ended)| ended).collect())
}

/// Number of machines at a time that do not count.
fn workers() -> usize {
    // A machine can take 2 GB of memory.
    const MOST: usize = 6;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors + 1).min(MOST)
}

/// Calls `run` for each item of each queue, by so many threads for a queue; returns the results with their items.
fn in_parallel<T: Send>(
    queues: &[(&[usize], usize)],
    run: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<(usize, T)>> {
    let run = &run;
    let starts: Vec<AtomicUsize> = queues.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((items, workers), next) in queues.iter().zip(&starts) {
            for _ in 0..(*workers).min(items.len()) {
                threads.push(scope.spawn(move || {
                    let mut done = Vec::new();
                    while let Some(&item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        done.push((item, run(item)?));
                    }
                    Ok::<_, Box<dyn Error + Send + Sync>>(done)
                }));
            }
        }
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
    fn every_item_of_every_queue_runs_once() {
        let queues: [(&[usize], usize); 3] = [(&[0, 2, 4, 6], 3), (&[1, 3, 5], 1), (&[], 2)];
        let mut done = in_parallel(&queues, |item| Ok(item * 10)).unwrap();
        done.sort_unstable();
        let expected: Vec<(usize, usize)> = (0..7).map(|item| (item, item * 10)).collect();
        assert_eq!(done, expected);
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
        let error = in_parallel(&[(&[0, 1, 2], 2)], run).unwrap_err();
        assert_eq!(error.to_string(), "no emulator");
    }
}
