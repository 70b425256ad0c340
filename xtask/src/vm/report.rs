//! Parser of the lines that a machine writes.
//!
//! Lines of the first process start with `vm: `; `tests/vm/src/suite.rs` documents them. All other lines
//! come from the emulator, the firmware or the kernel; some of those mean that something is wrong.

use super::counts::Counts;
use super::kernels::Doctor;
use super::sessions::Sessions;
use crate::test_results::TestResults;

/// Kernel messages that fail a run.
const ALARMS: [&str; 8] = [
    "Kernel panic",
    "BUG:",
    "Oops",
    "WARNING: ",
    "Call Trace",
    "general protection fault",
    "self-detected stall",
    "BEGIN PROG LOAD LOG",
];

/// The kernel's last message when a crash was requested: `sysrq_handle_crash` in `drivers/tty/sysrq.c`,
/// Linux 6.12.
const REQUESTED_CRASH: &str = "Kernel panic - not syncing: sysrq triggered crash";

/// The message of a planned test without a result.
pub(super) const NOT_ENDED: &str = "not ended";

/// Lines printed before an alarm, a timeout or an early end.
const SHOWN_LINES: usize = 30;

/// The state of one machine.
#[derive(Debug, Default)]
pub(crate) struct MachineReport {
    /// Planned tests that have not ended.
    open: Vec<String>,
    results: TestResults,
    /// Failures of the machine as a whole.
    alarms: Vec<String>,
    /// Failures of its tests' program: a second boot ends in the same way.
    mistakes: Vec<String>,
    /// The test that is about to crash the machine.
    crashing: Option<String>,
    /// The machine has crashed as planned.
    crashed: bool,
    ended: bool,
    lines: Vec<String>,
    /// Instructions that calls execute.
    pub(crate) counts: Counts,
    /// What `tollgate doctor` found.
    pub(crate) doctor: Option<Doctor>,
    pub(crate) sessions: Sessions,
}

impl MachineReport {
    /// Takes a line of a serial port; returns the text to print for it.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        let line = line.trim_end();
        self.lines.push(line.to_owned());
        if self.crashed {
            // The kernel dumps its state.
            return None;
        }
        if line.contains(REQUESTED_CRASH)
            && let Some(name) = self.crashing.take()
        {
            (self.crashed, self.ended) = (true, true);
            self.end_test(&name, "ok", &name);
            return Some(format!("ok              {name}: {REQUESTED_CRASH}"));
        }
        let Some((_, message)) = line.split_once("vm: ") else {
            if ALARMS.iter().any(|alarm| line.contains(alarm)) {
                self.alarms.push(line.to_owned());
            }
            return None;
        };
        let (word, rest) = message.split_once(' ').unwrap_or((message, ""));
        match word {
            "plan" => {
                self.open = rest.split_whitespace().map(str::to_owned).collect();
                self.sessions.plan(&self.open);
                if self.sessions.is_empty() {
                    self.mistakes.push("the filter matches no test".to_owned());
                }
                None
            }
            "ok" | "skip" | "FAIL" => {
                let (seconds, outcome) = rest.split_once(' ').unwrap_or((rest, ""));
                let name = outcome.split(": ").next().unwrap_or(outcome);
                self.end_test(name, word, outcome);
                Some(format!("{word:<4} {seconds:>6} s  {outcome}"))
            }
            "count" if self.counts.parse_line(rest) => None,
            "doctor" => {
                match Doctor::parse(rest) {
                    Ok(doctor) => self.doctor = Some(doctor),
                    Err(error) => self.alarms.push(format!("doctor: {error}")),
                }
                None
            }
            "crash" => {
                self.crashing = Some(rest.to_owned());
                None
            }
            "absent" => {
                self.sessions.add_absent(rest);
                None
            }
            "note" => Some(format!("                {rest}")),
            "end" => {
                self.ended = true;
                None
            }
            _ => {
                self.alarms.push(message.to_owned());
                None
            }
        }
    }

    fn end_test(&mut self, name: &str, word: &str, outcome: &str) {
        match self.open.iter().position(|open| open == name) {
            Some(at) => drop(self.open.remove(at)),
            None => self.mistakes.push(format!("test `{name}` was not planned")),
        }
        match word {
            "ok" => self.results.pass(),
            "skip" => self.results.skip(outcome),
            _ => self.results.fail(outcome),
        }
    }

    /// Whether the machine failed as a whole: the kernel crashed or warned, or it was stopped or ended early.
    pub(crate) fn is_broken(&self) -> bool {
        !self.ended || !self.alarms.is_empty()
    }

    /// Records that the machine had to be stopped.
    pub(crate) fn stopped(&mut self, reason: &str) {
        self.alarms.push(reason.to_owned());
    }

    /// The results, and the lines to print about failures outside of the tests.
    pub(crate) fn finish(mut self) -> (TestResults, Vec<String>) {
        if !self.ended && self.alarms.is_empty() && self.mistakes.is_empty() {
            self.alarms
                .push("the machine ended before the tests".to_owned());
        }
        let mut shown = Vec::new();
        if !self.alarms.is_empty() {
            let from = self.lines.len().saturating_sub(SHOWN_LINES);
            shown.extend(self.lines.drain(from..).map(|line| format!("  | {line}")));
        }
        let open = self.open.iter().map(|name| format!("{name}: {NOT_ENDED}"));
        for failure in open.chain(self.mistakes).chain(self.alarms) {
            shown.push(format!("FAIL             {failure}"));
            self.results.fail(&failure);
        }
        (self.results, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_results::Tally;

    fn report(lines: &[&str]) -> (Tally, String) {
        let mut report = MachineReport::default();
        let mut shown: Vec<String> = lines.iter().filter_map(|line| report.line(line)).collect();
        let (results, rest) = report.finish();
        shown.extend(rest);
        (results.tally, shown.join("\n"))
    }

    #[test]
    fn crashed_stopped_and_unfinished_machines_are_broken() {
        let is_broken = |lines: &[&str]| {
            let mut report = MachineReport::default();
            for line in lines {
                let _shown = report.line(line);
            }
            report.is_broken()
        };
        assert!(is_broken(&["vm: plan a", "[ 1.6] Oops: int3: 0000 [#1]"]));
        assert!(is_broken(&["vm: plan a", "vm: ok 0.1 a"]));
        assert!(is_broken(&["vm: plan a", "[ 3.1] WARNING: x", "vm: end"]));
        assert!(is_broken(&["vm: broken no /proc", "vm: end"]));
        assert!(!is_broken(&["vm: plan a", "vm: FAIL 0.1 a: x", "vm: end"]));
        assert!(!is_broken(&["vm: plan a", "vm: ok 0.1 b", "vm: end"]));
        let mut report = MachineReport::default();
        let _shown = report.line("vm: end");
        report.stopped("timeout");
        assert!(report.is_broken());
    }

    fn tally(passed: u32, failed: u32) -> Tally {
        Tally {
            passed,
            failed,
            skipped: 0,
        }
    }

    #[test]
    fn passed_tests_are_counted_and_printed() {
        let (found, shown) = report(&[
            "[    0.0] booting",
            "vm: plan a::x a::y\r",
            "vm: ok 1.25 a::x\r",
            "vm: note 7 instructions",
            "vm: ok 0.50 a::y",
            "vm: end",
        ]);
        assert_eq!(found, tally(2, 0));
        assert_eq!(
            shown,
            "ok     1.25 s  a::x\n                7 instructions\nok     0.50 s  a::y"
        );
    }

    #[test]
    fn failed_missing_and_unplanned_tests_fail() {
        let (found, shown) = report(&[
            "vm: plan a b",
            "vm: FAIL 0.10 a: 3 is not 4: really",
            "vm: ok 0.10 c",
            "vm: end",
        ]);
        assert_eq!(found, tally(1, 3));
        assert!(shown.contains("a: 3 is not 4: really"), "{shown}");
        assert!(shown.contains("b: not ended"), "{shown}");
        assert!(shown.contains("`c` was not planned"), "{shown}");
    }

    #[test]
    fn only_an_announced_crash_passes() {
        let last = "[    9.1] Kernel panic - not syncing: sysrq triggered crash";
        let after = "[    9.1] Call Trace:";
        let (found, shown) = report(&["vm: plan a", "vm: crash a", last, after]);
        assert_eq!(found, tally(1, 0));
        assert!(shown.contains("a: Kernel panic"), "{shown}");
        assert_eq!(report(&["vm: plan a", last, after]).0, tally(0, 3));
        assert_eq!(report(&["vm: plan a", "vm: crash a"]).0, tally(0, 2));
        let other = "[    9.1] Kernel panic - not syncing: Attempted to kill init!";
        assert_eq!(report(&["vm: plan a", "vm: crash a", other]).0, tally(0, 2));
        let lives = [
            "vm: plan a",
            "vm: crash a",
            "vm: FAIL 60.0 a: it lives",
            "vm: end",
        ];
        assert_eq!(report(&lives).0, tally(0, 1));
    }

    #[test]
    fn an_early_end_and_an_empty_plan_fail() {
        assert_eq!(report(&[]).0, tally(0, 1));
        assert_eq!(report(&["vm: plan a", "vm: ok 0.10 a"]).0, tally(1, 1));
        assert_eq!(report(&["vm: plan ", "vm: end"]).0, tally(0, 1));
        assert_eq!(report(&["vm: broken no /proc", "vm: end"]).0, tally(0, 1));
        let absent = ["vm: absent a: no engine starts", "vm: plan ", "vm: end"];
        assert_eq!(report(&absent).0, tally(0, 0));
    }

    #[test]
    fn kernel_alarm_fails_a_run_whose_tests_pass() {
        let alarm = "[    3.1] WARNING: CPU: 0 PID: 1 at kernel/bpf/verifier.c:1";
        let (found, shown) = report(&["vm: plan a", alarm, "vm: ok 0.10 a", "vm: end"]);
        assert_eq!(found, tally(1, 1));
        assert!(shown.contains(alarm), "{shown}");
    }
    #[test]
    fn skipped_tests_are_counted_with_their_reason() {
        let mut report = MachineReport::default();
        for line in [
            "vm: absent b: no engine starts",
            "vm: plan a",
            "vm: skip 0.01 a: no rule sets",
            "vm: end",
        ] {
            let _shown = report.line(line);
        }
        let (results, _) = report.finish();
        assert_eq!(results.tally.to_string(), "0 passed, 0 failed, 1 skipped");
        assert_eq!(results.skips, ["a: no rule sets"]);
    }
}
