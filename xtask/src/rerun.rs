//! Failed tests run once more, alone. One that passes then is unstable; one that fails again has failed.
//!
//! Nothing is hidden: both runs print their output, and the summary lists each unstable test with the message of its
//! failure.

use std::error::Error;

use crate::test_results::{TestResults, test_name};

/// The most failures of a step that are run again: more of them have a common cause, which is not noise.
pub(crate) const MAX_RERUNS: usize = 6;

/// Runs each failed test of a step once more. `run` runs the test of a name and returns its results.
pub(crate) fn rerun_failed(
    results: &mut TestResults,
    mut run: impl FnMut(&str) -> Result<TestResults, Box<dyn Error>>,
) {
    let failures = results.failures.clone();
    if failures.len() > MAX_RERUNS {
        println!("    {}", too_many(failures.len()));
        return;
    }
    for failure in failures {
        let name = test_name(&failure);
        println!("    running again, alone: {name}");
        let again = run(name).unwrap_or_else(|error| failed_run(name, &error.to_string()));
        results.settle(&[failure], &again);
    }
}

/// Why nothing is run again.
pub(crate) fn too_many(failures: usize) -> String {
    format!("{failures} failures, more than {MAX_RERUNS}: nothing is run again")
}

/// The results of a run that could not be started or counted no test.
pub(crate) fn failed_run(name: &str, error: &str) -> TestResults {
    let mut results = TestResults::default();
    results.fail(&format!("{name}: {error}"));
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(passed: u32, failures: &[&str]) -> TestResults {
        let mut results = TestResults::default();
        (0..passed).for_each(|_| results.pass());
        failures.iter().for_each(|failure| results.fail(failure));
        results
    }

    /// Runs failed tests again; returns the results, and the names that were run.
    fn rerun(
        mut first: TestResults,
        run: impl Fn(&str) -> Result<TestResults, Box<dyn Error>>,
    ) -> (TestResults, Vec<String>) {
        let mut names = Vec::new();
        rerun_failed(&mut first, |name| {
            names.push(name.to_owned());
            run(name)
        });
        (first, names)
    }

    #[test]
    fn test_that_passes_alone_is_unstable_and_passed() {
        let (results, names) = rerun(results(3, &["a::b: timeout: 5 s"]), |_| Ok(results(1, &[])));
        assert_eq!(names, ["a::b"]);
        assert_eq!(results.tally.to_string(), "4 passed, 0 failed, 0 skipped");
        assert_eq!(results.listing(), "UNSTABLE a::b: timeout: 5 s\n");
    }

    #[test]
    fn test_that_fails_twice_has_failed() {
        let (results, _) = rerun(results(3, &["a::b: one", "a::c: two"]), |name| {
            Ok(match name {
                "a::b" => results(0, &["a::b: three"]),
                _ => results(1, &[]),
            })
        });
        assert_eq!(results.tally.to_string(), "4 passed, 1 failed, 0 skipped");
        assert_eq!(
            results.listing(),
            "UNSTABLE a::c: two\nFAILED a::b: one; again: three\n"
        );
    }

    #[test]
    fn test_that_does_not_run_again_has_failed() {
        let mut skipped = TestResults::default();
        skipped.skip("a::b: no tool");
        for again in [Ok(skipped), Ok(results(0, &[])), Err("no summary")] {
            let (results, _) = rerun(results(0, &["a::b: one"]), |_| {
                again.clone().map_err(Into::into)
            });
            assert_eq!(results.tally.to_string(), "0 passed, 1 failed, 0 skipped");
            assert!(results.unstable.is_empty(), "{results:?}");
        }
    }

    #[test]
    fn many_failures_are_no_noise() {
        let failures: Vec<String> = (0..=MAX_RERUNS).map(|n| format!("t{n}: wrong")).collect();
        let failures: Vec<&str> = failures.iter().map(String::as_str).collect();
        let first = results(0, &failures);
        let (results, names) = rerun(first.clone(), |_| Ok(results(1, &[])));
        assert_eq!((results, names), (first, Vec::new()));
    }

    #[test]
    fn failures_without_a_name_stay() {
        let mut first = results(1, &["a::b: one"]);
        // The tests' program counts a failure that it does not describe.
        first.tally.failed += 1;
        let (results, _) = rerun(first, |_| Ok(results(1, &[])));
        assert_eq!(results.tally.to_string(), "2 passed, 1 failed, 0 skipped");
    }
}
