//! Syscalls that rules do not select: what everybody pays once somebody is audited.
//!
//! The ten rules are those of Cloudflare's report on the cost of kernel audit: writes in ten
//! directories. The workload makes none, so every event would be a mistake.

use std::error::Error;

use super::arguments::Arguments;
use super::loader::figure;
use super::state::{Bench, State};
use super::statistics::Summary;
use super::table::Table;
use super::workload::{self, TIMED};

/// How many times longer getpid may take with tollgate than with nothing.
const GOAL: f64 = 1.45;

/// One run of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    round: u32,
    state: State,
    /// In the order of [`TIMED`].
    ns: [f64; TIMED.len()],
}

/// Runs the workload in every state, round by round.
///
/// # Errors
/// When a state cannot be entered.
pub(super) fn measure(bench: &Bench, arguments: &Arguments) -> Result<Vec<Row>, Box<dyn Error>> {
    let rules = rules();
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for state in arguments.round(round) {
            let entered = bench.enter(state, &rules)?;
            let printed = bench.workload(&[workload::SYSCALLS])?;
            entered.leave()?;
            let mut ns = [0.0; TIMED.len()];
            for (ns, name) in ns.iter_mut().zip(TIMED) {
                *ns = figure(&printed, &format!("{name}_tenths_ns"))? / 10.0;
            }
            rows.push(Row { round, state, ns });
        }
    }
    Ok(rows)
}

/// The table.
pub(super) fn report(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "state",
        "getpid ns",
        "ratio",
        "least",
        "most",
        "statx ns",
        "ratio",
        "open+close ns",
        "ratio",
    ]);
    for state in State::ALL {
        let mut cells = vec![state.to_string()];
        for (index, name) in TIMED.iter().enumerate() {
            let (Some(ns), Some(off)) = (time(rows, state, index), time(rows, State::Off, index))
            else {
                continue;
            };
            cells.push(format!("{:.1}", ns.median));
            cells.push(format!("{:.2}x", ns.median / off.median));
            if *name == "getpid" {
                cells.push(format!("{:.2}x", ns.least / off.median));
                cells.push(format!("{:.2}x", ns.most / off.median));
            }
        }
        if cells.len() > 1 {
            table.row(cells);
        }
    }
    let rounds = rows.iter().map(|row| row.round + 1).max().unwrap_or(0);
    format!(
        "getpid: calls that the ten Cloudflare rules do not select; {rounds} rounds, medians of \
         minima\n{}",
        table.render()
    )
}

/// Says by how much the goal is missed.
pub(super) fn missed_goal(rows: &[Row]) -> Option<String> {
    let ratio = time(rows, State::Tollgate, 0)?.median / time(rows, State::Off, 0)?.median;
    (ratio > GOAL).then(|| format!("getpid: {ratio:.3}x with tollgate, the goal is {GOAL}x"))
}

impl Row {
    /// The row for programs.
    pub(super) fn json(&self) -> String {
        let [getpid, statx, open_close] = self.ns;
        format!(
            "{{\"bench\":\"getpid\",\"round\":{},\"state\":\"{}\",\"getpid_ns\":{getpid:.1},\
             \"statx_ns\":{statx:.1},\"open_close_ns\":{open_close:.1}}}",
            self.round + 1,
            self.state
        )
    }
}

/// `scripts/bench.sh` makes the directories, because it also removes them.
fn rules() -> String {
    let calls = "-S unlinkat,linkat,renameat,openat,renameat2";
    (0..10)
        .map(|n| {
            format!(
                "-a always,exit -F arch=b64 {calls} -F perm=wa -F dir=/tmp/audit-bench/{n} \
                 -F key=BENCH{n}\n"
            )
        })
        .collect()
}

fn time(rows: &[Row], state: State, index: usize) -> Option<Summary> {
    let of_state = rows.iter().filter(|row| row.state == state);
    Summary::of(of_state.filter_map(|row| row.ns.get(index).copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(round: u32, state: State, getpid: f64) -> Row {
        Row {
            round,
            state,
            ns: [getpid, 700.0, 1500.0],
        }
    }

    #[test]
    fn ten_rules_differ_by_directory_and_key() {
        let rules = rules();
        assert_eq!(rules.lines().count(), 10);
        assert_eq!(
            rules.lines().next_back().unwrap(),
            "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,openat,renameat2 -F perm=wa \
             -F dir=/tmp/audit-bench/9 -F key=BENCH9"
        );
    }

    #[test]
    fn report_has_a_row_for_each_measured_state() {
        let rows = [
            row(0, State::Off, 100.0),
            row(0, State::Kernel, 300.0),
            row(1, State::Off, 100.0),
            row(1, State::Kernel, 320.0),
        ];
        let text = report(&rows);
        let kernel: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(
            kernel,
            [
                "kernel", "310.0", "3.10x", "3.00x", "3.20x", "700.0", "1.00x", "1500.0", "1.00x"
            ]
        );
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn goal_is_on_getpid() {
        let off = row(0, State::Off, 100.0);
        assert_eq!(missed_goal(&[off, row(0, State::Tollgate, 144.0)]), None);
        assert!(missed_goal(&[off, row(0, State::Tollgate, 150.0)]).is_some());
    }

    #[test]
    fn json_names_every_time() {
        assert_eq!(
            row(1, State::Tollgate, 130.25).json(),
            "{\"bench\":\"getpid\",\"round\":2,\"state\":\"tollgate\",\"getpid_ns\":130.2,\
             \"statx_ns\":700.0,\"open_close_ns\":1500.0}"
        );
    }
}
