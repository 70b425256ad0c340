//! Steps of a longer command: each is announced, timed and counted. After a failed step, the others still run.

use std::error::Error;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::test_results::{OutputParser, TestResults};

/// Results of the steps that have run.
#[derive(Debug)]
pub(crate) struct StepReport {
    started: Instant,
    passed: Vec<&'static str>,
    failed: Vec<&'static str>,
    /// Tests of all steps; a failed step without a failed test counts as one.
    pub(crate) tests: TestResults,
}

impl StepReport {
    /// Starts the clock.
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            passed: Vec::new(),
            failed: Vec::new(),
            tests: TestResults::default(),
        }
    }

    /// Runs one step. `work` adds the step's tests to the results and returns whether the step passed.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut TestResults) -> Result<bool, Box<dyn Error>>,
    ) {
        println!("==> {name}");
        let started = Instant::now();
        let mut tests = TestResults::default();
        let mut cause = None;
        let passed = work(&mut tests).unwrap_or_else(|error| {
            eprintln!("{error}");
            cause = Some(error.to_string());
            false
        });
        let seconds = started.elapsed().as_secs_f64();
        if passed && tests.tally.failed == 0 {
            println!("    ok, {seconds:.1} s");
            self.passed.push(name);
        } else {
            println!("    FAILED, {seconds:.1} s");
            self.failed.push(name);
            if tests.tally.failed == 0 {
                tests.tally.failed = 1;
            }
            if let Some(cause) = cause {
                tests.failures.push(cause);
            } else if tests.failures.is_empty() {
                tests.failures.push("see its output above".to_owned());
            }
        }
        let failures = tests.failures.iter_mut().chain(&mut tests.unstable);
        for line in failures.chain(&mut tests.skips) {
            *line = format!("{name}: {line}");
        }
        self.tests.add(tests);
    }

    /// Whether every step has passed.
    pub(crate) fn is_success(&self) -> bool {
        self.failed.is_empty()
    }

    /// The end of the output: each failed, unstable and skipped test with its message, the steps, and the counts.
    pub(crate) fn summary(&self, command: &str) -> String {
        let (steps, verdict) = if self.is_success() {
            (&self.passed, "passed")
        } else {
            (&self.failed, "FAILED")
        };
        let seconds = self.started.elapsed().as_secs_f64();
        let steps = steps.join(", ");
        let tests = self.tests.listing();
        format!("{tests}{command} {verdict}: {steps} ({seconds:.1} s)")
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

/// Runs tests to their end, prints their output as it arrives, and adds up the summaries in it.
///
/// # Errors
/// If the command cannot be started, its output is not text, or it succeeds without a summary.
pub(crate) fn run_tests(
    command: &mut Command,
    tests: &mut TestResults,
) -> Result<bool, Box<dyn Error>> {
    let (success, parser) = parse_output(command)?;
    tests.add(parser.results);
    Ok(success)
}

/// As [`run_tests`], for tests selected by a filter: fails if a test program has no matching test.
///
/// # Errors
/// As [`run_tests`], or if the filter matches no test.
pub(crate) fn run_selected_tests(
    command: &mut Command,
    tests: &mut TestResults,
) -> Result<bool, Box<dyn Error>> {
    let (success, parser) = parse_output(command)?;
    let is_empty = parser.empty > 0;
    tests.add(parser.results);
    if is_empty {
        return Err("the filter matches no test".into());
    }
    Ok(success)
}

fn parse_output(command: &mut Command) -> Result<(bool, OutputParser), Box<dyn Error>> {
    let mut parser = OutputParser::default();
    let success = print_output(command, |line| parser.line(line))?;
    if success && parser.summaries == 0 {
        return Err("the tests ended without a summary".into());
    }
    Ok((success, parser))
}

/// Runs a command to its end and prints each line of its output as it arrives, after `take` has had it;
/// true when the command succeeds.
///
/// # Errors
/// If the command cannot be started or its output is not text.
pub(crate) fn print_output(
    command: &mut Command,
    mut take: impl FnMut(&str),
) -> Result<bool, Box<dyn Error>> {
    command.stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    let output = child
        .stdout
        .take()
        .ok_or("the child has no standard output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        take(&line);
        println!("{line}");
    }
    Ok(child.wait()?.success())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    let program = command.get_program().display();
    match error.kind() {
        ErrorKind::NotFound => format!("cannot run `{program}`: not found; see `make setup`"),
        _ => format!("cannot run `{program}`: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_step_counts_as_one_failed_test_and_stops_no_other() {
        let mut report = StepReport::new();
        report.step("one", |_| Ok(false));
        report.step("two", |_| Err("no such tool".into()));
        report.step("three", |tests| {
            tests.fail("a::b: 1 is not 2");
            tests.fail("a::c: 2 is not 3");
            tests.skip("a::d: needs root");
            Ok(false)
        });
        report.step("four", |tests| {
            tests.pass();
            tests.unstable.push("a::e: 3 is not 4".to_owned());
            Ok(true)
        });
        assert_eq!(
            report.tests.tally.to_string(),
            "1 passed, 4 failed, 1 skipped"
        );
        assert!(!report.is_success());
        let summary = report.summary("check");
        let (tests, steps) = summary.split_once("check FAILED: ").unwrap();
        assert_eq!(
            tests,
            "SKIPPED three: a::d: needs root\n\
             UNSTABLE four: a::e: 3 is not 4\n\
             FAILED one: see its output above\n\
             FAILED two: no such tool\n\
             FAILED three: a::b: 1 is not 2\n\
             FAILED three: a::c: 2 is not 3\n"
        );
        assert!(steps.starts_with("one, two, three ("), "{steps}");
    }

    #[test]
    fn test_output_is_counted_and_output_without_summary_is_an_error() {
        let mut tests = TestResults::default();
        let mut printf = Command::new("printf");
        printf.arg("noise\n2 passed, 0 failed, 1 skipped\n3 passed, 0 failed, 0 skipped\n");
        assert!(run_tests(&mut printf, &mut tests).unwrap());
        assert_eq!(tests.tally.to_string(), "5 passed, 0 failed, 1 skipped");
        assert!(run_tests(&mut Command::new("true"), &mut tests).is_err());
    }

    #[test]
    fn filter_without_matching_test_is_an_error() {
        let run = |summary: &str| {
            let mut tests = TestResults::default();
            let mut printf = Command::new("printf");
            run_selected_tests(printf.arg(summary), &mut tests)
        };
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out\n";
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 6 filtered out\n";
        assert!(run(one).unwrap());
        for output in [none.to_owned(), format!("{one}{none}"), String::new()] {
            assert!(run(&output).is_err(), "{output}");
        }
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
