//! What a machine says on its serial port, and what that comes to.
//!
//! Lines that start with `vm: ` are of the first process; `tests/vm/src/suite.rs` has the words. All
//! others are of the firmware or the kernel, and some of those mean that something is wrong.

use super::counts::Counts;
use crate::step::Tally;

/// Words of the kernel that no test may cause.
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

/// The kernel's last words when somebody has asked it to go down, `sysrq_handle_crash` in
/// `drivers/tty/sysrq.c`, Linux 6.12.
const LAST_WORDS: &str = "Kernel panic - not syncing: sysrq triggered crash";

/// Lines before an alarm, a silence or an early end that are shown.
const SHOWN_LINES: usize = 30;

/// What has been said so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Tests that have been announced and have not ended.
    open: Vec<String>,
    tally: Tally,
    /// What is wrong with the machine as a whole.
    alarms: Vec<String>,
    /// The test that takes the machine down, when it does now.
    dies: Option<String>,
    /// It was taken down.
    dead: bool,
    ended: bool,
    lines: Vec<String>,
    /// Instructions that calls execute.
    pub(crate) counts: Counts,
}

impl Report {
    /// Takes a line; returns what people should see of it.
    pub(crate) fn hear(&mut self, line: &str) -> Option<String> {
        let line = line.trim_end();
        self.lines.push(line.to_owned());
        if self.dead {
            // The kernel says how it was before.
            return None;
        }
        if line.contains(LAST_WORDS)
            && let Some(name) = self.dies.take()
        {
            (self.dead, self.ended) = (true, true);
            self.end_test(&name, "ok");
            return Some(format!("ok              {name}: {LAST_WORDS}"));
        }
        let Some((_, said)) = line.split_once("vm: ") else {
            if ALARMS.iter().any(|alarm| line.contains(alarm)) {
                self.alarms.push(line.to_owned());
            }
            return None;
        };
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        match word {
            "plan" => {
                self.open = rest.split_whitespace().map(str::to_owned).collect();
                if self.open.is_empty() {
                    self.alarms.push("no test has such a name".to_owned());
                }
                None
            }
            "ok" | "FAIL" => {
                let (seconds, named) = rest.split_once(' ').unwrap_or((rest, ""));
                let name = named.split(": ").next().unwrap_or(named);
                self.end_test(name, word);
                Some(format!("{word:<4} {seconds:>6} s  {named}"))
            }
            "count" if self.counts.hear(rest) => None,
            "dies" => {
                self.dies = Some(rest.to_owned());
                None
            }
            "note" => Some(format!("                {rest}")),
            "end" => {
                self.ended = true;
                None
            }
            _ => {
                self.alarms.push(said.to_owned());
                None
            }
        }
    }

    fn end_test(&mut self, name: &str, word: &str) {
        let known = self.open.iter().position(|open| open == name);
        match known {
            Some(at) => {
                self.open.remove(at);
            }
            None => self
                .alarms
                .push(format!("`{name}` has ended and was not announced")),
        }
        if word == "ok" {
            self.tally.passed += 1;
        } else {
            self.tally.failed += 1;
        }
    }

    /// Whether the kernel has died of a breakpoint that it had taken out of its code again.
    pub(crate) fn emulator_lost(&self) -> bool {
        self.alarms
            .first()
            .is_some_and(|alarm| alarm.contains("Oops: int3"))
    }

    /// Notes that the machine had to be stopped.
    pub(crate) fn stopped(&mut self, why: &str) {
        self.alarms.push(why.to_owned());
    }

    /// The count, and lines that tell people what has gone wrong outside of the tests.
    pub(crate) fn finish(mut self) -> (Tally, Vec<String>) {
        if !self.ended && self.alarms.is_empty() {
            self.alarms
                .push("the machine has ended before the tests".to_owned());
        }
        let mut shown = Vec::new();
        if !self.alarms.is_empty() {
            let from = self.lines.len().saturating_sub(SHOWN_LINES);
            shown.extend(self.lines.drain(from..).map(|line| format!("  | {line}")));
        }
        for name in &self.open {
            shown.push(format!("FAIL             {name}: it has not ended"));
        }
        for alarm in &self.alarms {
            shown.push(format!("FAIL             {alarm}"));
        }
        let extra = self.open.len() + self.alarms.len();
        self.tally.failed += u32::try_from(extra).unwrap_or(u32::MAX);
        (self.tally, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> (Tally, String) {
        let mut report = Report::default();
        let mut shown: Vec<String> = lines.iter().filter_map(|line| report.hear(line)).collect();
        let (tally, rest) = report.finish();
        shown.extend(rest);
        (tally, shown.join("\n"))
    }

    #[test]
    fn only_a_kernel_that_dies_of_a_breakpoint_was_lost_by_the_emulator() {
        let heard = |lines: &[&str]| {
            let mut report = Report::default();
            for line in lines {
                let _shown = report.hear(line);
            }
            report.emulator_lost()
        };
        assert!(heard(&["[ 1.6] Oops: int3: 0000 [#1]"]));
        assert!(!heard(&["[ 1.6] Run /init as init process"]));
        assert!(!heard(&["[ 1.6] BUG: x", "[ 1.7] Oops: int3: 0000 [#2]"]));
    }

    fn tally(passed: u32, failed: u32) -> Tally {
        Tally {
            passed,
            failed,
            skipped: 0,
        }
    }

    #[test]
    fn a_good_run_is_counted_and_shown() {
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
    fn failed_missing_and_surprising_tests_fail() {
        let (found, shown) = report(&[
            "vm: plan a b",
            "vm: FAIL 0.10 a: 3 is not 4: really",
            "vm: ok 0.10 c",
            "vm: end",
        ]);
        assert_eq!(found, tally(1, 3));
        assert!(shown.contains("a: 3 is not 4: really"), "{shown}");
        assert!(shown.contains("b: it has not ended"), "{shown}");
        assert!(
            shown.contains("`c` has ended and was not announced"),
            "{shown}"
        );
    }

    #[test]
    fn a_machine_may_only_die_when_and_how_it_was_said() {
        let last = "[    9.1] Kernel panic - not syncing: sysrq triggered crash";
        let after = "[    9.1] Call Trace:";
        let (found, shown) = report(&["vm: plan a", "vm: dies a", last, after]);
        assert_eq!(found, tally(1, 0));
        assert!(shown.contains("a: Kernel panic"), "{shown}");
        assert_eq!(report(&["vm: plan a", last, after]).0, tally(0, 3));
        assert_eq!(report(&["vm: plan a", "vm: dies a"]).0, tally(0, 2));
        let other = "[    9.1] Kernel panic - not syncing: Attempted to kill init!";
        assert_eq!(report(&["vm: plan a", "vm: dies a", other]).0, tally(0, 2));
        let lives = [
            "vm: plan a",
            "vm: dies a",
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
    }

    #[test]
    fn trouble_in_the_kernel_fails_a_run_whose_tests_pass() {
        let alarm = "[    3.1] WARNING: CPU: 0 PID: 1 at kernel/bpf/verifier.c:1";
        let (found, shown) = report(&["vm: plan a", alarm, "vm: ok 0.10 a", "vm: end"]);
        assert_eq!(found, tally(1, 1));
        assert!(shown.contains(alarm), "{shown}");
    }
}
