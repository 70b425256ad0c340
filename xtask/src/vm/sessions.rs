//! Which sessions have passed, failed and been left out on each kernel: the table at the end of a run on several.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::boot::{Ended, Machine};
use super::kernels::{Diagnosed, Doctor};
use crate::test_results::test_name;

/// The sessions of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    planned: BTreeSet<String>,
    /// `NAME: REASON`.
    absent: Vec<String>,
}

impl Sessions {
    /// Adds the sessions of tests, `SESSION::TEST`.
    pub(super) fn plan(&mut self, tests: &[String]) {
        let names = tests.iter().map(|test| session(test).to_owned());
        self.planned.extend(names);
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.planned.is_empty() && self.absent.is_empty()
    }

    /// Adds a session that cannot run, `NAME: REASON`.
    pub(super) fn add_absent(&mut self, line: &str) {
        self.absent.push(line.to_owned());
    }
}

/// What has become of the sessions of a kernel.
#[derive(Debug, Default)]
struct Row<'a> {
    arch: &'a str,
    doctor: Option<&'a Doctor>,
    planned: BTreeSet<&'a str>,
    failed: BTreeSet<&'a str>,
    /// The sessions that were left out or of which a test was skipped, by reason.
    skipped: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

/// Columns of the kernel, the preemption mode and the engine.
const WIDTHS: (usize, usize, usize) = (13, 26, 10);

/// A line for each kernel, then one for each kernel and reason with the names of sessions. Without a machine of
/// `tollgate doctor`, preemption mode and engine are those of the record.
pub(super) fn table(machines: &[Machine<'_>], ended: &[Ended], recorded: &[Diagnosed]) -> String {
    let mut rows = rows(machines, ended);
    for (name, row) in &mut rows {
        let of_record = recorded.iter().find(|it| it.kernel == *name);
        row.doctor = row.doctor.or_else(|| of_record.map(|it| &it.doctor));
    }
    let (kernel, mode, engine) = WIDTHS;
    let mut text = format!(
        "{:kernel$} {:7} {:mode$} {:engine$} passed failed skipped\n",
        "kernel", "arch", "preemption", "engine"
    );
    for (name, row) in &rows {
        let skipped: BTreeSet<&str> = row.skipped.values().flatten().copied().collect();
        let passed = row
            .planned
            .difference(&row.failed)
            .filter(|it| !skipped.contains(*it));
        // Writing to a string does not fail.
        let _written = writeln!(
            text,
            "{name:kernel$} {:7} {:mode$} {:engine$} {:6} {:6} {:7}",
            row.arch,
            row.doctor.map_or("not known", Doctor::mode),
            row.doctor.map_or("not known", Doctor::engine_name),
            passed.count(),
            row.failed.len(),
            skipped.len()
        );
    }
    for (name, row) in &rows {
        if !row.failed.is_empty() {
            let _written = writeln!(text, "{name}: failed: {}", join(&row.failed));
        }
        for (reason, sessions) in &row.skipped {
            let _written = writeln!(text, "{name}: skipped, {reason}: {}", join(sessions));
        }
    }
    text
}

/// The rows, in the order of the machines.
fn rows<'a>(machines: &'a [Machine<'_>], ended: &'a [Ended]) -> Vec<(&'a str, Row<'a>)> {
    let mut rows: Vec<(&str, Row<'_>)> = Vec::new();
    for (machine, ended) in machines.iter().zip(ended) {
        let at = rows.iter().position(|(name, _)| *name == machine.line);
        if at.is_none() {
            let empty = Row {
                arch: machine.target.machine(),
                ..Row::default()
            };
            rows.push((machine.line, empty));
        }
        let at = at.unwrap_or(rows.len() - 1);
        let Some((_, row)) = rows.get_mut(at) else {
            continue;
        };
        row.doctor = row.doctor.or(ended.doctor.as_ref());
        row.planned
            .extend(ended.sessions.planned.iter().map(String::as_str));
        let unlabelled =
            |line: &'a str| line.strip_prefix(machine.line).unwrap_or(line).trim_start();
        for failure in &ended.results.failures {
            row.failed.insert(session(unlabelled(failure)));
        }
        let absent = ended.sessions.absent.iter().map(String::as_str);
        let skips = ended.results.skips.iter().map(|line| unlabelled(line));
        for line in absent.chain(skips) {
            let (test, reason) = line.split_once(": ").unwrap_or((line, ""));
            row.skipped.entry(reason).or_default().insert(session(test));
        }
    }
    rows
}

/// The session of `SESSION::TEST: MESSAGE`; the whole text of the failure of a machine.
fn session(test: &str) -> &str {
    test_name(test)
        .split_once("::")
        .map_or(test, |(session, _)| session)
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::boot::{FIRST_SEED, Purpose};
    use super::super::target::Target;
    use super::*;

    fn machine(line: &str) -> Machine<'_> {
        Machine {
            target: Target::X86_64,
            purpose: Purpose::General,
            line,
            kernel: Path::new("/kernel"),
            initramfs: PathBuf::from("/initramfs"),
            filter: String::new(),
            part: None,
            options: String::new(),
            seed: FIRST_SEED,
            debugger: None,
        }
    }

    fn ended(tests: &[&str], absent: &[&str], failures: &[&str], skips: &[&str]) -> Ended {
        let mut ended = Ended::default();
        ended
            .sessions
            .plan(&tests.iter().map(ToString::to_string).collect::<Vec<_>>());
        absent
            .iter()
            .for_each(|line| ended.sessions.add_absent(line));
        failures.iter().for_each(|line| ended.results.fail(line));
        skips.iter().for_each(|line| ended.results.skip(line));
        ended
    }

    #[test]
    fn sessions_of_all_machines_of_a_kernel_are_counted_with_reasons() {
        let machines = [machine("6.12-full"), machine("6.12-full"), machine("5.10")];
        let ended = [
            ended(
                &["raw::a", "raw::b", "clock::a"],
                &["fentry: it does not start"],
                &["6.12-full raw::b: 1 is not 2: x"],
                &[],
            ),
            ended(
                &["json::a", "run::a"],
                &["names: it does not start"],
                &[],
                &["6.12-full run::a: no gcc"],
            ),
            ended(
                &[],
                &["raw: no engine starts"],
                &["5.10 Kernel panic - not syncing: x"],
                &[],
            ),
        ];
        let text = table(&machines, &ended, &[]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1],
            [
                "6.12-full",
                "x86_64",
                "not",
                "known",
                "not",
                "known",
                "2",
                "1",
                "3"
            ]
        );
        assert!(
            text.ends_with(
                "6.12-full: failed: raw\n\
             6.12-full: skipped, it does not start: fentry, names\n\
             6.12-full: skipped, no gcc: run\n\
             5.10: failed: Kernel panic - not syncing: x\n\
             5.10: skipped, no engine starts: raw\n"
            ),
            "{text}"
        );
    }
}
