//! Boots machines again: for each failed test one that runs this test alone, and for a machine that failed as a whole
//! the same machine.

use std::error::Error;

use super::boot::{Ended, Machine, Purpose};
use super::report::NOT_ENDED;
use crate::rerun::{MAX_RERUNS, failed_run, too_many};
use crate::test_results::test_name;

/// Tests that run with each session: their result depends on all tests of the session.
const OF_SESSIONS: [&str; 6] = [
    "daemon_starts",
    "rules_are_replaced",
    "events_are_complete",
    "daemon_stops",
    "programs_are_detached",
    "programs_stay_attached",
];

/// A second boot.
#[derive(Debug, PartialEq, Eq)]
enum Boot {
    /// The same machine with all its tests.
    Whole,
    /// A machine of the same purpose with the tests of a filter.
    Tests {
        filter: String,
        /// Their lines in the results.
        failures: Vec<String>,
    },
}

impl Boot {
    /// Number of failures with a cause of their own: a broken machine is one, and so is a session that did not start.
    fn failures(&self) -> usize {
        match self {
            Self::Whole => 1,
            Self::Tests { failures, .. } => {
                let has_run = |failure: &&String| !failure.ends_with(NOT_ENDED);
                failures.iter().filter(has_run).count().max(1)
            }
        }
    }
}

/// Boots machines again for failures, one after another. `run` runs a machine. `tests_too` is false if the tests were
/// selected by a filter: then only machines that failed as a whole are booted again.
pub(super) fn boot_again<'a>(
    machines: &[Machine<'a>],
    ended: &mut [Ended],
    tests_too: bool,
    mut run: impl FnMut(&Machine<'a>) -> Result<Ended, Box<dyn Error + Send + Sync>>,
) {
    let boots: Vec<Vec<Boot>> = machines
        .iter()
        .zip(ended.iter())
        .map(|(machine, ended)| boots(machine, ended, tests_too))
        .collect();
    let number = boots.iter().flatten().map(Boot::failures).sum();
    if number > MAX_RERUNS {
        println!("    {}", too_many(number));
        return;
    }
    for ((machine, first), boots) in machines.iter().zip(ended).zip(boots) {
        for boot in boots {
            match boot {
                Boot::Whole => {
                    println!("    {:<9} booting the machine again", machine.line);
                    // Addresses that differ by chance cost some instructions: the same boot would count them again.
                    let mut other = machine.clone();
                    other.seed += 1;
                    match run(&other) {
                        Ok(again) => settle_machine(first, again),
                        Err(error) => println!("    {error}"),
                    }
                }
                Boot::Tests { filter, failures } => {
                    println!("    {:<9} running again, alone: {filter}", machine.line);
                    let mut other = machine.clone();
                    (other.filter, other.part) = (filter, None);
                    let again = run(&other).map_or_else(
                        |error| failed_run(&other.filter, &error.to_string()),
                        |again| again.results,
                    );
                    first.results.settle(&failures, &again);
                }
            }
        }
    }
}

/// The second boots for a machine's failures.
fn boots(machine: &Machine<'_>, ended: &Ended, tests_too: bool) -> Vec<Boot> {
    let failures = &ended.results.failures;
    // A machine that counts has to do all of it, and the one that panics has one test.
    let is_one = matches!(machine.purpose, Purpose::Count | Purpose::Panic);
    if ended.is_broken || (tests_too && is_one && !failures.is_empty()) {
        return vec![Boot::Whole];
    }
    let mut boots: Vec<Boot> = Vec::new();
    if !tests_too {
        return boots;
    }
    // Sessions that run as a whole, which covers their other tests.
    let of_session = |failure: &&String| {
        let (_, test) = session(machine, failure);
        OF_SESSIONS.contains(&test) || failure.ends_with(NOT_ENDED)
    };
    let whole: Vec<&str> = failures
        .iter()
        .filter(of_session)
        .map(|failure| session(machine, failure).0)
        .collect();
    for failure in failures {
        let (name, test) = session(machine, failure);
        let filter = if whole.contains(&name) {
            format!("^{name}")
        } else {
            format!("={name}::{test}")
        };
        let known = boots.iter_mut().find_map(|boot| match boot {
            Boot::Tests {
                filter: other,
                failures,
            } if *other == filter => Some(failures),
            _ => None,
        });
        match known {
            Some(failures) => failures.push(failure.clone()),
            None => boots.push(Boot::Tests {
                filter,
                failures: vec![failure.clone()],
            }),
        }
    }
    boots
}

/// Session and test in `KERNEL SESSION::TEST: MESSAGE`.
fn session<'a>(machine: &Machine<'_>, failure: &'a str) -> (&'a str, &'a str) {
    let name = test_name(failure);
    let name = name.strip_prefix(machine.line).unwrap_or(name).trim_start();
    name.split_once("::").unwrap_or((name, ""))
}

/// Takes the second boot of a machine into account: if all its tests have passed, the failures of the first boot are
/// unstable.
fn settle_machine(first: &mut Ended, again: Ended) {
    if again.is_broken || again.results.tally.failed > 0 {
        // The failures of either boot stand.
        for failure in again.results.failures {
            let name = test_name(&failure).to_owned();
            let mut known = first.results.failures.iter();
            if !known.any(|other| test_name(other) == name) {
                first.results.fail(&failure);
            }
        }
        return;
    }
    let failures = std::mem::take(&mut first.results.failures);
    *first = again;
    // What comes after the cause says nothing more.
    let is_cause = |failure: &String| !failure.ends_with(NOT_ENDED);
    first.results.unstable = failures.into_iter().filter(is_cause).collect();
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::test_results::TestResults;
    use crate::vm::target::Target;

    fn machine(purpose: Purpose, part: Option<usize>) -> Machine<'static> {
        Machine {
            target: Target::X86_64,
            purpose,
            line: "6.1",
            kernel: Path::new("/kernel"),
            initramfs: PathBuf::from("/initramfs"),
            filter: String::new(),
            part,
            options: String::new(),
            seed: 1,
            debugger: None,
        }
    }

    fn ended(passed: u32, failures: &[&str], is_broken: bool) -> Ended {
        let mut results = TestResults::default();
        (0..passed).for_each(|_| results.pass());
        failures.iter().for_each(|failure| results.fail(failure));
        Ended {
            results,
            is_broken,
            ..Ended::default()
        }
    }

    /// Boots again what failed; returns the results and what was booted.
    fn again(
        purpose: Purpose,
        first: Ended,
        tests_too: bool,
        second: impl Fn(&str) -> Ended,
    ) -> (TestResults, Vec<String>) {
        let (machine, mut first) = (machine(purpose, Some(2)), [first]);
        let mut booted = Vec::new();
        boot_again(&[machine], &mut first, tests_too, |machine| {
            let part = machine.part.map(|part| format!("part {part}"));
            booted.push(part.unwrap_or_else(|| machine.filter.clone()));
            Ok(second(&machine.filter))
        });
        let [first] = first;
        (first.results, booted)
    }

    #[test]
    fn failed_test_is_run_alone() {
        let first = ended(5, &["6.1 a::b: 1 is not 2", "6.1 a::c: wrong"], false);
        let (results, booted) = again(Purpose::General, first, true, |filter| match filter {
            "=a::b" => ended(1, &[], false),
            _ => ended(0, &["6.1 a::c: wrong too"], false),
        });
        assert_eq!(booted, ["=a::b", "=a::c"]);
        assert_eq!(results.tally.to_string(), "6 passed, 1 failed, 0 skipped");
        assert_eq!(
            results.listing(),
            "UNSTABLE 6.1 a::b: 1 is not 2\nFAILED 6.1 a::c: wrong; again: wrong too\n"
        );
    }

    #[test]
    fn session_that_did_not_start_or_stop_is_run_as_a_whole() {
        let failures = [
            "6.1 a::daemon_starts: timeout",
            "6.1 a::b: not ended",
            "6.1 a::c: not ended",
            "6.1 d::b: 1 is not 2",
            "6.1 d::daemon_stops: 1 lost",
        ];
        let first = ended(5, &failures, false);
        let (results, booted) = again(Purpose::General, first, true, |filter| match filter {
            "^a" => ended(5, &[], false),
            _ => ended(3, &["6.1 d::daemon_stops: 2 lost"], false),
        });
        assert_eq!(booted, ["^a", "^d"]);
        assert_eq!(results.tally.to_string(), "8 passed, 2 failed, 0 skipped");
        assert_eq!(results.unstable, failures[..3]);
    }

    #[test]
    fn broken_machine_is_booted_once_more() {
        let failures = ["6.1 a::b: not ended", "6.1 Kernel panic - not syncing: x"];
        let first = || ended(5, &failures, true);
        for tests_too in [true, false] {
            let (results, booted) =
                again(Purpose::Race, first(), tests_too, |_| ended(6, &[], false));
            assert_eq!(booted, ["part 2"]);
            assert_eq!(results.tally.to_string(), "6 passed, 0 failed, 0 skipped");
            assert_eq!(results.unstable, failures[1..]);
        }
        let (results, _) = again(Purpose::Race, first(), true, |_| {
            ended(5, &["6.1 a::c: wrong"], false)
        });
        assert_eq!(results.tally.failed, 3);
        assert_eq!(results.failures.last().unwrap(), "6.1 a::c: wrong");
    }

    #[test]
    fn counting_machine_counts_all_again() {
        let first = ended(5, &["6.1 count_a::b: 1 is not 2"], false);
        let (results, booted) = again(Purpose::Count, first, true, |_| ended(6, &[], false));
        assert_eq!(booted, ["part 2"]);
        assert_eq!(results.unstable, ["6.1 count_a::b: 1 is not 2"]);
    }

    #[test]
    fn neither_many_failures_nor_selected_tests_are_run_again() {
        let failures: Vec<String> = (0..=MAX_RERUNS)
            .map(|n| format!("6.1 a::t{n}: x"))
            .collect();
        let failures: Vec<&str> = failures.iter().map(String::as_str).collect();
        let pass = |_: &str| ended(1, &[], false);
        let (results, booted) = again(Purpose::General, ended(0, &failures, false), true, pass);
        assert_eq!((results.tally.failed, booted.len()), (7, 0));
        let mut of_session = failures.clone();
        of_session[0] = "6.1 a::daemon_stops: x";
        let (_, booted) = again(Purpose::General, ended(0, &of_session, false), true, pass);
        assert_eq!(booted.len(), 0);
        let (results, booted) = again(
            Purpose::General,
            ended(0, &failures[..1], false),
            false,
            pass,
        );
        assert_eq!((results.tally.failed, booted.len()), (1, 0));
    }
}
