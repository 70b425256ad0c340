//! `tollgate run` next to `strace -f --seccomp-bpf`: both follow one command without root.
//!
//! The loop of the loader is run with every call audited, on one CPU together with its supervisor, and
//! wherever the scheduler puts the two: where they sit decides most of the price. Calls that no rule names
//! are timed beside it.

use std::error::Error;
use std::fmt;
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use super::WORKLOAD;
use super::arguments::Arguments;
use super::loader::figure;
use super::state::{Bench, State};
use super::statistics::Summary;
use super::table::{Table, grouped};
use super::workload::{self, TIMED};

/// Audited pairs a second next to strace's, with results and without, wherever the scheduler likes.
const GOALS: [(Way, f64); 2] = [(Way::Run, 1.2), (Way::NoResult, 8.0)];
/// How many times longer getpid may take under a filter that does not name it.
const UNNAMED_GOAL: f64 = 1.4;
/// Supervised pairs are an order of magnitude slower than others.
const FEWER: u32 = 10;
const USER: u32 = 65_534;
const NAMED: &str = "-a always,exit -F arch=b64 -S openat,close -k named\n";
const UNNAMED: &str = "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2 -k other\n";

/// Who follows the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nobody,
    Strace,
    Run,
    NoResult,
}

/// Where supervisor and command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    OneCpu,
    Free,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    round: u32,
    way: Way,
    placement: Placement,
    pair_ns: f64,
    getpid_ns: Option<f64>,
    /// Events in the log; strace has none.
    events: Option<u64>,
}

impl Way {
    const ALL: [Self; 4] = [Self::Nobody, Self::Strace, Self::Run, Self::NoResult];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nobody => "off",
            Self::Strace => "strace -f --seccomp-bpf",
            Self::Run => "run",
            Self::NoResult => "run --no-result",
        })
    }
}

impl Placement {
    const ALL: [Self; 2] = [Self::OneCpu, Self::Free];

    const fn name(self) -> &'static str {
        match self {
            Self::OneCpu => "one CPU",
            Self::Free => "free",
        }
    }
}

/// Runs the workload in every way, round by round.
///
/// # Errors
/// When something cannot be run.
pub(super) fn measure(bench: &Bench, arguments: &Arguments) -> Result<Vec<Row>, Box<dyn Error>> {
    let place = bench.work.join("run");
    fs::create_dir(&place)?;
    chown(&place, Some(USER), Some(USER))?;
    for (name, rules) in [("named", NAMED), ("unnamed", UNNAMED)] {
        fs::write(place.join(name), rules)?;
    }
    // Tasks started now are free of the kernel's own audit.
    let entered = bench.enter(State::Off, "")?;
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for placement in Placement::ALL {
            let first = usize::try_from(round).unwrap_or(0) % Way::ALL.len();
            for way in Way::ALL.iter().cycle().skip(first).take(Way::ALL.len()) {
                rows.push(one(bench, arguments.pairs / FEWER, round, placement, *way)?);
            }
        }
    }
    entered.leave()?;
    Ok(rows)
}

fn one(
    bench: &Bench,
    pairs: u32,
    round: u32,
    placement: Placement,
    way: Way,
) -> Result<Row, Box<dyn Error>> {
    let log = bench.work.join("run/log");
    let open_close = [workload::OPEN_CLOSE, &pairs.max(1).to_string()];
    let printed = followed(bench, placement, way, "named", &open_close)?;
    let elapsed = figure(&printed, "elapsed_ns")?;
    let events = match way {
        Way::Nobody | Way::Strace => None,
        Way::Run | Way::NoResult => Some(calls_in(&log)?),
    };
    let getpid_ns = if way == Way::Strace || placement == Placement::Free {
        None
    } else {
        let printed = followed(bench, placement, way, "unnamed", &[workload::SYSCALLS])?;
        let name = format!("{}_tenths_ns", TIMED[0]);
        Some(figure(&printed, &name)? / 10.0)
    };
    match fs::remove_file(&log) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(Row {
        round,
        way,
        placement,
        pair_ns: elapsed / f64::from(pairs.max(1)),
        getpid_ns,
        events,
    })
}

/// What the workload printed.
fn followed(
    bench: &Bench,
    placement: Placement,
    way: Way,
    rules: &str,
    words: &[&str],
) -> Result<String, Box<dyn Error>> {
    let user = USER.to_string();
    let mut command = match placement {
        Placement::OneCpu => {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "setpriv"]);
            command
        }
        Placement::Free => Command::new("setpriv"),
    };
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
    let place = bench.work.join("run");
    let (rules, log): (PathBuf, PathBuf) = (place.join(rules), place.join("log"));
    match way {
        Way::Nobody => {}
        Way::Strace => {
            command.args([
                "strace",
                "-f",
                "--seccomp-bpf",
                "-e",
                "trace=openat,close",
                "-o",
            ]);
            command.arg(&log);
        }
        Way::Run | Way::NoResult => {
            command.arg(&bench.program).arg("run");
            command.arg("--rules").arg(rules).arg("--log").arg(&log);
            if way == Way::NoResult {
                command.arg("--no-result");
            }
            command.arg("--");
        }
    }
    let output = command
        .arg(&bench.workload)
        .args(["bench", WORKLOAD])
        .args(words)
        .current_dir(bench.work.join("files"))
        .output()
        .map_err(|error| format!("cannot run `{way}`: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !errors.is_empty() {
        return Err(format!("the workload under `{way}` {}: {errors}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn calls_in(log: &std::path::Path) -> Result<u64, Box<dyn Error>> {
    let text = fs::read(log)?;
    let start = b"type=SYSCALL ";
    let calls = text
        .split(|&byte| byte == b'\n')
        .filter(|line| line.starts_with(start));
    Ok(u64::try_from(calls.count())?)
}

fn pair_ns(rows: &[Row], way: Way, placement: Placement) -> Option<Summary> {
    let of_way = rows
        .iter()
        .filter(|row| row.way == way && row.placement == placement);
    Summary::of(of_way.map(|row| row.pair_ns))
}

fn getpid_ns(rows: &[Row], way: Way) -> Option<Summary> {
    let of_way = rows.iter().filter(|row| row.way == way);
    Summary::of(of_way.filter_map(|row| row.getpid_ns))
}

/// How many times as many pairs a second as strace.
fn faster(rows: &[Row], way: Way, placement: Placement) -> Option<f64> {
    let strace = pair_ns(rows, Way::Strace, placement)?.median;
    Some(strace / pair_ns(rows, way, placement)?.median)
}

/// The table.
pub(super) fn report(rows: &[Row], pairs: u32) -> String {
    let mut table = Table::new(&[
        "followed by",
        "placement",
        "pairs/s",
        "least",
        "most",
        "to strace",
        "getpid ns",
        "ratio",
    ]);
    for placement in Placement::ALL {
        for way in Way::ALL {
            let Some(ns) = pair_ns(rows, way, placement) else {
                continue;
            };
            let mut cells = vec![
                way.to_string(),
                placement.name().to_owned(),
                format!("{:.0}", 1e9 / ns.median),
                format!("{:.0}", 1e9 / ns.most),
                format!("{:.0}", 1e9 / ns.least),
                faster(rows, way, placement)
                    .map_or_else(String::new, |ratio| format!("{ratio:.2}x")),
            ];
            let off = getpid_ns(rows, Way::Nobody);
            let unnamed = getpid_ns(rows, way).filter(|_| placement == Placement::OneCpu);
            if let (Some(ns), Some(off)) = (unnamed, off) {
                cells.push(format!("{:.1}", ns.median));
                cells.push(format!("{:.2}x", ns.median / off.median));
            }
            table.row(cells);
        }
    }
    let rounds = rows.iter().map(|row| row.round + 1).max().unwrap_or(0);
    format!(
        "run: {} open/close pairs as uid {USER}, all audited by who follows; {rounds} rounds, medians\n\
         rule: {NAMED}getpid: {UNNAMED}{}",
        grouped(u64::from(pairs / FEWER)),
        table.render()
    )
}

/// What is missing from a log.
pub(super) fn complaints(rows: &[Row], pairs: u32) -> Vec<String> {
    let least = u64::from(pairs / FEWER) * 2;
    rows.iter()
        .filter(|row| row.events.is_some_and(|events| events < least))
        .map(|row| {
            let events = row.events.unwrap_or_default();
            format!(
                "run, round {}, {}: {events} events of {least}",
                row.round + 1,
                row.way
            )
        })
        .collect()
}

/// Says by how much the goals are missed.
pub(super) fn missed_goals(rows: &[Row]) -> Vec<String> {
    let mut missed = Vec::new();
    for (way, goal) in GOALS {
        if let Some(ratio) = faster(rows, way, Placement::Free).filter(|&ratio| ratio < goal) {
            missed.push(format!(
                "run: `{way}` {ratio:.2}x strace's pairs, the goal is {goal}x"
            ));
        }
        if let (Some(ns), Some(off)) = (getpid_ns(rows, way), getpid_ns(rows, Way::Nobody)) {
            let ratio = ns.median / off.median;
            if ratio > UNNAMED_GOAL {
                missed.push(format!(
                    "run: unnamed getpid {ratio:.3}x under `{way}`, the goal is {UNNAMED_GOAL}x"
                ));
            }
        }
    }
    missed
}

impl Row {
    /// The row for programs.
    pub(super) fn json(&self) -> String {
        let number = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
        format!(
            "{{\"bench\":\"run\",\"round\":{},\"way\":\"{}\",\"placement\":\"{}\",\"pair_ns\":{:.1},\
             \"getpid_ns\":{},\"events\":{}}}",
            self.round + 1,
            self.way,
            self.placement.name(),
            self.pair_ns,
            number(self.getpid_ns.map(|ns| format!("{ns:.1}"))),
            number(self.events.map(|events| events.to_string())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, placement: Placement, pair_ns: f64) -> Row {
        let followed = matches!(way, Way::Run | Way::NoResult);
        Row {
            round: 0,
            way,
            placement,
            pair_ns,
            getpid_ns: (way != Way::Strace).then_some(if followed { 130.0 } else { 100.0 }),
            events: followed.then_some(2000),
        }
    }

    #[test]
    fn ways_are_compared_with_strace_at_the_same_placement() {
        let rows = [
            row(Way::Nobody, Placement::OneCpu, 1000.0),
            row(Way::Strace, Placement::OneCpu, 20_000.0),
            row(Way::Run, Placement::OneCpu, 20_000.0),
            row(Way::Strace, Placement::Free, 300_000.0),
            row(Way::Run, Placement::Free, 100_000.0),
            row(Way::NoResult, Placement::Free, 50_000.0),
        ];
        let text = report(&rows, 10_000);
        assert!(text.contains("1,000 open/close pairs"), "{text}");
        assert!(
            text.contains("3.00x") && text.contains("6.00x") && text.contains("1.30x"),
            "{text}"
        );
        let missed = missed_goals(&rows);
        assert_eq!(missed.len(), 1, "{missed:?}");
        assert!(missed[0].contains("--no-result` 6.00x"), "{missed:?}");
        assert_eq!(complaints(&rows, 10_000), [""; 0]);
        assert_eq!(complaints(&rows, 20_000).len(), 3);
        assert!(
            rows[1]
                .json()
                .contains("\"getpid_ns\":null,\"events\":null")
        );
    }
}
