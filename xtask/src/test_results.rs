//! Parses the output of test programs: counts, names and messages of failed tests.

use std::fmt::{self, Write as _};
use std::mem;

/// Longest message of a failed test in the summary, in characters.
const MAX_MESSAGE_CHARS: usize = 400;
/// Number of failed tests, and of skipped tests, in a summary: CI shows the last 40 lines of the output.
const MAX_LISTED: usize = 30;
/// Number of lines of a failure's output in its message.
const MESSAGE_LINES: usize = 4;
/// Start of the line `skipped: NAME: REASON` of a unit test that skips itself, which libtest counts as passed;
/// `crates/audit/tests/skip` prints it.
const SKIPPED: &str = "skipped: ";

/// Numbers of passed, failed and skipped tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

impl Tally {
    /// Parses a summary line: libtest's `test result: ok. 3 passed; 0 failed; 1 ignored; ...`, or this
    /// program's own `3 passed, 0 failed, 1 skipped`.
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

/// Results of some tests: the counts, and a line for each failed, unstable or skipped test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestResults {
    pub(crate) tally: Tally,
    /// `NAME: MESSAGE` of a test that failed and passed when it was run again. It is counted as passed.
    pub(crate) unstable: Vec<String>,
    /// `NAME: MESSAGE`, on one line.
    pub(crate) failures: Vec<String>,
    /// `NAME: REASON`, on one line.
    pub(crate) skips: Vec<String>,
}

impl TestResults {
    /// Counts a test that passed.
    pub(crate) const fn pass(&mut self) {
        self.tally.passed += 1;
    }

    /// Counts a test that failed.
    pub(crate) fn fail(&mut self, line: &str) {
        self.tally.failed += 1;
        self.failures.push(shorten(line));
    }

    /// Counts a test that was skipped.
    pub(crate) fn skip(&mut self, line: &str) {
        self.tally.skipped += 1;
        self.skips.push(shorten(line));
    }

    /// Takes the second run of failed tests into account. `failures` are their lines in `self.failures`. If every one
    /// of them has passed in `again`, they are unstable and count as passed.
    pub(crate) fn settle(&mut self, failures: &[String], again: &Self) {
        let count = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        if again.tally.failed == 0 && again.tally.passed >= count {
            self.failures.retain(|failure| !failures.contains(failure));
            self.unstable.extend_from_slice(failures);
            self.tally.failed = self.tally.failed.saturating_sub(count);
            self.tally.passed += count;
            return;
        }
        for failure in &mut self.failures {
            if !failures.contains(failure) {
                continue;
            }
            let name = test_name(failure);
            let mut others = again.failures.iter();
            let message = others.find_map(|other| other.strip_prefix(name)?.strip_prefix(": "));
            let message = message.unwrap_or("not passed");
            *failure = shorten(&format!("{failure}; again: {message}"));
        }
    }

    /// A line for each skipped, unstable and failed test, the failed ones last.
    pub(crate) fn listing(&self) -> String {
        let mut text = String::new();
        for (word, lines) in [
            ("SKIPPED", &self.skips),
            ("UNSTABLE", &self.unstable),
            ("FAILED", &self.failures),
        ] {
            let listed = lines.iter().take(MAX_LISTED);
            text.extend(listed.map(|line| format!("{word} {line}\n")));
            let more = lines.len().saturating_sub(MAX_LISTED);
            if more > 0 {
                // Writing to a string does not fail.
                let _written = writeln!(text, "{word} {more} more");
            }
        }
        text
    }

    /// Adds other results.
    pub(crate) fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.unstable.extend(other.unstable);
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }
}

/// The test's name in `NAME: MESSAGE`.
pub(crate) fn test_name(failure: &str) -> &str {
    failure.split_once(": ").map_or(failure, |(name, _)| name)
}

/// Parser of the output of libtest and libtest-mimic.
#[derive(Debug, Default)]
pub(crate) struct OutputParser {
    pub(crate) results: TestResults,
    /// Number of summary lines.
    pub(crate) summaries: u32,
    /// Number of summary lines of test programs in which the filter matched no test.
    pub(crate) empty: u32,
    /// The failure whose output is being read, and its lines.
    failure: Option<(String, Vec<String>)>,
    /// Number of tests of the running program that count themselves as passed and have skipped themselves.
    skipped: u32,
}

impl OutputParser {
    /// Takes one line.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(mut tally) = Tally::parse(line) {
            self.end_failure();
            self.summaries += 1;
            self.empty += u32::from(tally == Tally::default());
            let skipped = mem::take(&mut self.skipped).min(tally.passed);
            tally.passed -= skipped;
            tally.skipped += skipped;
            self.results.tally.add(tally);
        } else if let Some(skip) = line.strip_prefix(SKIPPED) {
            self.skipped += 1;
            self.results.skips.push(shorten(skip));
        } else if let Some(name) = failure_heading(line) {
            self.end_failure();
            self.failure = Some((name.to_owned(), Vec::new()));
        } else if line == "failures:" {
            self.end_failure();
        } else if let Some((_, lines)) = &mut self.failure {
            if line == "stack backtrace:" {
                self.end_failure();
            } else if line.contains(" panicked at ") {
                // Earlier output of the test is not the message.
                lines.clear();
                lines.push(line.to_owned());
            } else if !line.trim().is_empty() && !line.starts_with("note: run with") {
                lines.push(line.trim().to_owned());
            }
        } else if let Some(skip) = skipped_test(line) {
            self.results.skips.push(shorten(&skip));
        }
    }

    fn end_failure(&mut self) {
        if let Some((name, lines)) = self.failure.take() {
            let shown: Vec<String> = lines.into_iter().take(MESSAGE_LINES).collect();
            let line = format!("{name}: {}", shown.join(" | "));
            self.results.failures.push(shorten(&line));
        }
    }
}

/// The test's name in `---- NAME stdout ----` (libtest) or `---- NAME ----` (libtest-mimic).
fn failure_heading(line: &str) -> Option<&str> {
    let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
    Some(name.strip_suffix(" stdout").unwrap_or(name))
}

/// `NAME: REASON` of `test NAME ... ignored, REASON`.
fn skipped_test(line: &str) -> Option<String> {
    let (name, reason) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = reason.strip_prefix(", ").unwrap_or("ignored");
    Some(format!("{}: {reason}", name.trim_end()))
}

fn shorten(line: &str) -> String {
    let line = line.replace('\n', " | ");
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_parses_libtest_and_own_summaries() {
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
    fn tally_rejects_other_lines() {
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

    fn parse(output: &str) -> TestResults {
        let mut parser = OutputParser::default();
        output.lines().for_each(|line| parser.line(line));
        parser.results
    }

    #[test]
    fn failures_of_libtest_have_name_and_message() {
        let results = parse(
            "running 2 tests\n.F\nfailures:\n\n---- a::b stdout ----\nprinted\n\n\
             thread 'a::b' (7) panicked at src/a.rs:3:5:\nleft: 1\nright: 2\n\
             stack backtrace:\n  0: start\n\n\nfailures:\n    a::b\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!((results.tally.passed, results.tally.failed), (1, 1));
        assert_eq!(
            results.failures,
            ["a::b: thread 'a::b' (7) panicked at src/a.rs:3:5: | left: 1 | right: 2"]
        );
    }

    #[test]
    fn failures_and_skips_of_libtest_mimic_have_name_and_message() {
        let results = parse(
            "test x::y ... FAILED\ntest x::z   ... ignored, needs root\n\nfailures:\n\n\
             ---- x::y ----\ne2e/x.rs:1:1: timeout after 30 s\n\n\nfailures:\n    x::y\n\n\
             test result: FAILED. 0 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(results.failures, ["x::y: e2e/x.rs:1:1: timeout after 30 s"]);
        assert_eq!(results.skips, ["x::z: needs root"]);
    }

    #[test]
    fn unit_tests_that_skip_themselves_are_not_counted_as_passed() {
        let results = parse(
            "running 3 tests\n..\nskipped: a::b: no public rule sets\n.\n\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
             running 1 test\n.\n\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(results.tally.to_string(), "3 passed, 0 failed, 1 skipped");
        assert_eq!(results.skips, ["a::b: no public rule sets"]);
    }

    #[test]
    fn listing_fits_the_end_of_a_log() {
        let mut results = TestResults::default();
        results.skip("a: needs root");
        (0..100).for_each(|number| results.fail(&format!("test{number}: wrong")));
        let listing = results.listing();
        assert_eq!(listing.lines().count(), MAX_LISTED + 2);
        assert!(listing.starts_with("SKIPPED a: needs root\nFAILED test0: wrong\n"));
        assert!(listing.ends_with("FAILED 70 more\n"), "{listing}");
    }

    #[test]
    fn long_messages_are_cut() {
        let mut results = TestResults::default();
        results.fail(&"é".repeat(1000));
        assert_eq!(results.failures[0].chars().count(), MAX_MESSAGE_CHARS + 3);
    }
}
