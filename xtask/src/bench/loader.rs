//! The loop in which every syscall is audited: opens and closes of one file, as fast as they go.

use std::error::Error;

use super::arguments::Arguments;
use super::log::{Found, Wanted};
use super::state::{Bench, Spent, State};
use super::statistics::Summary;
use super::table::{Table, grouped};
use super::workload;

const RULES: &str = "-a always,exit -F arch=b64 -S open,openat,close -F uid=65534\n";
/// How many times longer the loop may take with tollgate than with nothing.
const GOAL: f64 = 2.2;
/// Part of the loop's time that it may wait for others on its CPU before the row is doubtful.
const UNDISTURBED: f64 = 0.02;

/// One run of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    round: u32,
    state: State,
    pair_ns: f64,
    /// Part of the time that the loop waited for its CPU.
    waited: f64,
    /// In the log; `None` when nothing writes one.
    found: Option<Found>,
    spent: Spent,
}

/// Runs the loop in every state, round by round.
///
/// # Errors
/// When a state cannot be entered or the log cannot be read.
pub(super) fn measure(bench: &Bench, arguments: &Arguments) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for state in arguments.round(round) {
            let entered = bench.enter(state, RULES)?;
            let printed = bench.workload(&[workload::OPEN_CLOSE, &arguments.pairs.to_string()])?;
            let spent = entered.leave()?;
            let elapsed = figure(&printed, "elapsed_ns")?;
            let found = match state {
                State::Off => None,
                State::Kernel | State::Tollgate => {
                    let wanted = Wanted {
                        pid: integer(&printed, "pid")?,
                        descriptor: integer(&printed, "descriptor")?,
                    };
                    Some(Found::in_log(
                        &bench.log(),
                        &bench.work.join("log/part"),
                        wanted,
                    )?)
                }
            };
            rows.push(Row {
                round,
                state,
                pair_ns: elapsed / f64::from(arguments.pairs),
                waited: figure(&printed, "waited_ns")? / elapsed,
                found,
                spent,
            });
        }
    }
    Ok(rows)
}

/// The table, and what to know about it.
pub(super) fn report(rows: &[Row], pairs: u32) -> String {
    let mut table = Table::new(&[
        "state",
        "pairs/s",
        "ns/pair",
        "slowdown",
        "least",
        "most",
        "unwaited",
        "events",
        "lost",
        "daemon ms",
        "us/event",
        "log MB",
    ]);
    let off = pair_ns(rows, State::Off).map(|summary| summary.median);
    let running = |state| {
        let off = unwaited_ns(rows, State::Off)?.median;
        Some(unwaited_ns(rows, state)?.median / off)
    };
    for state in State::ALL {
        let (Some(ns), Some(off)) = (pair_ns(rows, state), off) else {
            continue;
        };
        let of_state = || rows.iter().filter(|row| row.state == state);
        let mut cells = vec![
            state.to_string(),
            format!("{:.0}", 1e9 / ns.median),
            format!("{:.0}", ns.median),
            format!("{:.2}x", ns.median / off),
            format!("{:.2}x", ns.least / off),
            format!("{:.2}x", ns.most / off),
            running(state).map_or_else(String::new, |ratio| format!("{ratio:.2}x")),
        ];
        // The worst round, because one that lacks an event is what a reader looks for.
        if let Some(events) = of_state().filter_map(Row::audited).min() {
            let lost = of_state().map(|row| row.spent.lost).max().unwrap_or(0);
            let cpu = Summary::of(of_state().map(|row| row.spent.cpu.as_secs_f64()));
            let cpu = cpu.map_or(0.0, |summary| summary.median);
            let bytes = of_state().map(|row| row.spent.bytes).max().unwrap_or(0);
            cells.extend([
                grouped(events),
                grouped(lost),
                format!("{:.0}", cpu * 1e3),
                format!("{:.2}", cpu * 1e6 / (f64::from(pairs) * 2.0)),
                format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10),
            ]);
        }
        table.row(cells);
    }
    let rounds = rows.iter().map(|row| row.round + 1).max().unwrap_or(0);
    let mut text = format!(
        "loader: {} open/close pairs as uid 65534, all audited; {rounds} rounds, medians\n\
         rule: {RULES}",
        grouped(u64::from(pairs))
    );
    text.push_str(&table.render());
    let doubtful = rows
        .iter()
        .filter(|row| row.state == State::Off && row.waited > UNDISTURBED)
        .count();
    if doubtful != 0 {
        text.extend([
            "  disturbed by other programs on the same CPU: ".to_owned(),
            format!("{doubtful} of {rounds} `off` rows\n"),
        ]);
    }
    text
}

/// What is missing from a log, or lost.
pub(super) fn complaints(rows: &[Row], pairs: u32) -> Vec<String> {
    let pairs = u64::from(pairs);
    let mut complaints = Vec::new();
    for row in rows {
        let Some(found) = row.found else { continue };
        if (found.opens, found.closes, found.names) != (pairs, pairs, pairs) || found.repeated != 0
        {
            complaints.push(format!(
                "loader, round {}, {}: {pairs} pairs, but ausearch finds {} opens, {} closes, \
                 {} names, {} events twice",
                row.round + 1,
                row.state,
                found.opens,
                found.closes,
                found.names,
                found.repeated
            ));
        }
        // The kernel's own counter is for the whole machine, and its losses are not our failure.
        if row.state == State::Tollgate && row.spent.lost != 0 {
            complaints.push(format!(
                "loader, round {}, {}: it says that {} are lost",
                row.round + 1,
                row.state,
                row.spent.lost
            ));
        }
    }
    complaints
}

/// Says by how much the goal is missed.
pub(super) fn missed_goal(rows: &[Row]) -> Option<String> {
    let ratio = pair_ns(rows, State::Tollgate)?.median / pair_ns(rows, State::Off)?.median;
    (ratio > GOAL).then(|| format!("loader: {ratio:.3}x with tollgate, the goal is {GOAL}x"))
}

impl Row {
    /// Measured calls that are in the log.
    fn audited(&self) -> Option<u64> {
        self.found.map(|found| found.opens + found.closes)
    }

    /// The row for programs.
    pub(super) fn json(&self) -> String {
        let found = self.found.map_or_else(
            || "null".to_owned(),
            |found| {
                format!(
                    "{{\"opens\":{},\"closes\":{},\"names\":{},\"repeated\":{},\"all\":{}}}",
                    found.opens, found.closes, found.names, found.repeated, found.events
                )
            },
        );
        format!(
            "{{\"bench\":\"loader\",\"round\":{},\"state\":\"{}\",\"pair_ns\":{:.1},\
             \"waited\":{:.4},\"events\":{found},\"lost\":{},\"daemon_cpu_ns\":{},\"log_bytes\":{}}}",
            self.round + 1,
            self.state,
            self.pair_ns,
            self.waited,
            self.spent.lost,
            self.spent.cpu.as_nanos(),
            self.spent.bytes
        )
    }
}

fn pair_ns(rows: &[Row], state: State) -> Option<Summary> {
    let of_state = rows.iter().filter(|row| row.state == state);
    Summary::of(of_state.map(|row| row.pair_ns))
}

/// Time of a pair less what the loop has waited for its CPU while others ran there. Load that has
/// nothing to do with the measurement is left out of it, but so is a daemon that shares the CPU.
fn unwaited_ns(rows: &[Row], state: State) -> Option<Summary> {
    let of_state = rows.iter().filter(|row| row.state == state);
    Summary::of(of_state.map(|row| row.pair_ns * (1.0 - row.waited)))
}

/// A figure in the `name=value` pairs that a workload prints.
pub(super) fn figure(printed: &str, name: &str) -> Result<f64, Box<dyn Error>> {
    Ok(value(printed, name)?.parse()?)
}

fn integer(printed: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    Ok(value(printed, name)?.parse()?)
}

fn value<'a>(printed: &'a str, name: &str) -> Result<&'a str, String> {
    printed
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
        .ok_or_else(|| format!("the workload has not printed `{name}`"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(round: u32, state: State, pair_ns: f64) -> Row {
        let found = (state != State::Off).then_some(Found {
            opens: 10,
            closes: 10,
            names: 10,
            repeated: 0,
            events: 25,
        });
        Row {
            round,
            state,
            pair_ns,
            waited: 0.0,
            found,
            spent: Spent {
                cpu: Duration::from_micros(40),
                bytes: 1_250_000,
                lost: 0,
            },
        }
    }

    fn waiting(row: Row, waited: f64) -> Row {
        Row { waited, ..row }
    }

    #[test]
    fn report_divides_medians_by_off() {
        let rows = [
            row(0, State::Off, 1000.0),
            waiting(row(0, State::Tollgate, 1500.0), 0.5),
            row(1, State::Off, 1000.0),
            waiting(row(1, State::Tollgate, 2500.0), 0.5),
        ];
        let text = report(&rows, 10);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[3],
            ["off", "1000000", "1000", "1.00x", "1.00x", "1.00x", "1.00x"]
        );
        assert_eq!(
            lines[4],
            [
                "tollgate", "500000", "2000", "2.00x", "1.50x", "2.50x", "1.00x", "20", "0", "0",
                "2.00", "1.2"
            ]
        );
        assert_eq!(lines.len(), 5, "{text}");
    }

    #[test]
    fn disturbed_rows_are_told() {
        let disturbed = waiting(row(0, State::Off, 1000.0), 0.5);
        assert!(report(&[disturbed], 10).contains("1 of 1 `off` rows"));
        let busy = Row {
            state: State::Tollgate,
            ..disturbed
        };
        assert!(!report(&[busy], 10).contains("disturbed"));
    }

    #[test]
    fn missing_lost_and_repeated_events_are_complaints() {
        assert_eq!(
            complaints(&[row(0, State::Kernel, 1.0), row(0, State::Off, 1.0)], 10),
            [""; 0]
        );
        assert_eq!(complaints(&[row(0, State::Kernel, 1.0)], 11).len(), 1);
        let mut lossy = row(0, State::Tollgate, 1.0);
        lossy.spent.lost = 3;
        assert!(complaints(&[lossy], 10)[0].contains("3 are lost"));
        lossy.state = State::Kernel;
        assert_eq!(complaints(&[lossy], 10), [""; 0]);
        let mut twice = row(0, State::Tollgate, 1.0);
        twice.found.as_mut().unwrap().repeated = 1;
        assert!(complaints(&[twice], 10)[0].contains("1 events twice"));
    }

    #[test]
    fn goal_is_on_the_ratio_of_medians() {
        let off = row(0, State::Off, 1000.0);
        assert_eq!(missed_goal(&[off, row(0, State::Tollgate, 2200.0)]), None);
        let missed = missed_goal(&[off, row(0, State::Tollgate, 2300.0)]).unwrap();
        assert!(missed.contains("2.300x"), "{missed}");
        assert_eq!(missed_goal(&[off]), None);
    }

    #[test]
    fn figures_are_read_by_name() {
        let printed = "pid=12 elapsed_ns=500\n100 pairs/s\n";
        assert_eq!(integer(printed, "pid").unwrap(), 12);
        assert_eq!(figure(printed, "elapsed_ns").unwrap(), 500.0);
        assert!(figure(printed, "elapsed").is_err());
    }

    #[test]
    fn json_has_no_events_where_nothing_is_logged() {
        assert!(row(0, State::Off, 1.0).json().contains("\"events\":null"));
        assert!(row(0, State::Kernel, 1.0).json().contains("\"closes\":10"));
    }
}
