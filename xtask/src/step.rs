//! Steps of a longer chore: each is announced, timed and counted; a failed one stops no other.

use std::error::Error;
use std::fmt;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

impl Tally {
    /// The counts in a line of test output, if it is a summary: libtest's
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; ...`, or ours, `3 passed, 0 failed, 1 skipped`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (counts, separator, skipped) = match line.strip_prefix("test result: ") {
            Some(result) => (result.split_once(". ")?.1, "; ", "ignored"),
            None => (line, ", ", "skipped"),
        };
        let mut parts = counts.split(separator);
        let mut count = |word: &str| {
            let (number, name) = parts.next()?.split_once(' ')?;
            if name == word {
                number.parse().ok()
            } else {
                None
            }
        };
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
            skipped: count(skipped)?,
        })
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// What the steps so far have come to.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    passed: Vec<&'static str>,
    failed: Vec<&'static str>,
    /// Tests of all steps; a failed step without a failed test counts as one.
    pub(crate) tests: Tally,
}

impl Report {
    /// Starts the clock.
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            passed: Vec::new(),
            failed: Vec::new(),
            tests: Tally::default(),
        }
    }

    /// Runs one step, which adds its tests to the tally and says whether it passed.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Tally) -> Result<bool, Box<dyn Error>>,
    ) {
        println!("==> {name}");
        let started = Instant::now();
        let mut tests = Tally::default();
        let passed = work(&mut tests).unwrap_or_else(|error| {
            eprintln!("{error}");
            false
        });
        let seconds = started.elapsed().as_secs_f64();
        if passed && tests.failed == 0 {
            println!("    ok, {seconds:.1} s");
            self.passed.push(name);
        } else {
            println!("    FAILED, {seconds:.1} s");
            self.failed.push(name);
            tests.failed = tests.failed.max(1);
        }
        self.tests.add(tests);
    }

    /// Whether every step has passed.
    pub(crate) fn is_success(&self) -> bool {
        self.failed.is_empty()
    }

    /// One line: which steps failed, or which passed, and how long all took.
    pub(crate) fn verdict(&self, chore: &str) -> String {
        let (steps, verdict) = if self.is_success() {
            (&self.passed, "passed")
        } else {
            (&self.failed, "FAILED")
        };
        let seconds = self.started.elapsed().as_secs_f64();
        format!("{chore} {verdict}: {} ({seconds:.1} s)", steps.join(", "))
    }
}

/// Runs a command to its end; true when it succeeds.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool, Box<dyn Error>> {
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    Ok(status.success())
}

/// Runs tests to their end, shows their output as it comes, and adds up every summary in it.
///
/// # Errors
/// When the command cannot be started, its output is no text, or it succeeds without a summary.
pub(crate) fn run_tests(command: &mut Command, tests: &mut Tally) -> Result<bool, Box<dyn Error>> {
    command.stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    let mut summaries = 0;
    let output = child
        .stdout
        .take()
        .ok_or("the child has no standard output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if let Some(tally) = Tally::parse(&line) {
            tests.add(tally);
            summaries += 1;
        }
    }
    let success = child.wait()?.success();
    if success && summaries == 0 {
        return Err("the tests ended without saying how many passed".into());
    }
    Ok(success)
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    let program = command.get_program().display();
    match error.kind() {
        ErrorKind::NotFound => format!("cannot run `{program}`: it is not there; see `make setup`"),
        _ => format!("cannot run `{program}`: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_reads_libtest_and_our_own_summary() {
        let libtest =
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        let expected = Tally {
            passed: 12,
            failed: 3,
            skipped: 1,
        };
        assert_eq!(Tally::parse(libtest), Some(expected));
        assert_eq!(
            Tally::parse("12 passed, 3 failed, 1 skipped"),
            Some(expected)
        );
        assert_eq!(Tally::parse(&expected.to_string()), Some(expected));
    }

    #[test]
    fn tally_ignores_other_lines() {
        for line in [
            "",
            "test a ... ok",
            "12 passed",
            "test result: ok",
            "a passed, b failed, c skipped",
        ] {
            assert_eq!(Tally::parse(line), None, "{line}");
        }
    }

    #[test]
    fn failed_step_counts_as_one_failed_test_and_stops_no_other() {
        let mut report = Report::new();
        report.step("one", |_| Ok(false));
        report.step("two", |_| Err("no such tool".into()));
        report.step("three", |tests| {
            tests.add(Tally {
                passed: 5,
                failed: 2,
                skipped: 0,
            });
            Ok(false)
        });
        report.step("four", |tests| {
            tests.passed += 4;
            Ok(true)
        });
        assert_eq!(
            report.tests,
            Tally {
                passed: 9,
                failed: 4,
                skipped: 0
            }
        );
        assert!(!report.is_success());
        assert!(
            report
                .verdict("check")
                .starts_with("check FAILED: one, two, three (")
        );
    }

    #[test]
    fn tests_are_added_up_from_output_and_silence_is_an_error() {
        let mut tests = Tally::default();
        let mut echo = Command::new("printf");
        echo.arg("noise\n2 passed, 0 failed, 1 skipped\n3 passed, 0 failed, 0 skipped\n");
        assert!(run_tests(&mut echo, &mut tests).unwrap());
        assert_eq!(
            tests,
            Tally {
                passed: 5,
                failed: 0,
                skipped: 1
            }
        );
        assert!(run_tests(&mut Command::new("true"), &mut tests).is_err());
    }

    #[test]
    fn missing_tool_is_named_with_advice() {
        let error = succeeds(&mut Command::new("/nonexistent/clang-format-19")).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("clang-format-19") && text.contains("make setup"),
            "{text}"
        );
    }
}
