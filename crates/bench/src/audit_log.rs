//! Counts the events of a workload in an audit log.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::mem;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;

use super::programs::AUSEARCH;
use super::work_dir::parse_value;
use super::workload::FILE;

/// Selects the calls of one process on one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallFilter {
    pub(crate) pid: u64,
    pub(crate) descriptor: u64,
}

impl CallFilter {
    /// Parses the output of the `open-close` workload.
    ///
    /// # Errors
    /// When a value is missing.
    pub(crate) fn parse(printed: &str) -> anyhow::Result<Self> {
        let integer = |name| {
            let value = format!("{:.0}", parse_value(printed, name)?);
            value
                .parse()
                .context("no number in the output of the workload")
        };
        Ok(Self {
            pid: integer("pid")?,
            descriptor: integer("descriptor")?,
        })
    }
}

/// Matching events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogMatches {
    /// `openat` events that returned the descriptor.
    pub(crate) opens: u64,
    /// `close` events of the descriptor.
    pub(crate) closes: u64,
    /// `PATH` records with the name of the opened file.
    pub(crate) names: u64,
    /// Events with the time and serial of an earlier event.
    pub(crate) repeated: u64,
    /// Events of any process.
    pub(crate) events: u64,
}

/// Events per run of `ausearch`, which keeps every event open for two seconds of log time and searches all of
/// them for each line: version 3.0.9 takes minutes for a hundred thousand events of one second.
const EVENTS_PER_SEARCH: usize = 2000;

impl LogMatches {
    /// Reads a log with `ausearch`, in parts that are written to `scratch`.
    ///
    /// # Errors
    /// When the log cannot be read, or `ausearch` fails.
    pub(crate) fn from_log(log: &Path, scratch: &Path, filter: CallFilter) -> anyhow::Result<Self> {
        let log = File::open(log).context("cannot open the log")?;
        let mut lines = BufReader::with_capacity(1 << 20, log);
        let mut search = Search::new(filter);
        let mut carried = Vec::new();
        loop {
            let next_part = next_part(&mut lines, &mut carried, EVENTS_PER_SEARCH)
                .context("cannot read the log")?;
            if next_part.is_empty() {
                return Ok(search.found);
            }
            fs::write(scratch, &next_part).context("cannot write a part of the log")?;
            let output = AUSEARCH
                .command()?
                .arg("-if")
                .arg(scratch)
                .arg("--raw")
                .stdin(Stdio::null())
                .output()
                .context("cannot run `ausearch`")?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(
                output.status.success(),
                "`ausearch --raw` {}: {errors}",
                output.status
            );
            for line in output.stdout.split(|&byte| byte == b'\n') {
                search.scan_line(line);
            }
        }
    }
}

/// Returns the next `events` events. The line that follows them is kept in `carried` for the next call.
fn next_part(
    lines: &mut impl BufRead,
    carried: &mut Vec<u8>,
    events: usize,
) -> io::Result<Vec<u8>> {
    let mut next_part = mem::take(carried);
    let mut begun = usize::from(!next_part.is_empty());
    while lines.read_until(b'\n', carried)? != 0 {
        if carried.starts_with(SYSCALL) {
            if begun == events {
                return Ok(next_part);
            }
            begun += 1;
        }
        next_part.append(carried);
    }
    Ok(next_part)
}

/// Prefixes of the counted records.
const SYSCALL: &[u8] = b"type=SYSCALL ";
const PATH: &[u8] = b"type=PATH ";
const LOST: &[u8] = b"type=DAEMON_ERR ";

/// A search over several parts.
#[derive(Debug)]
struct Search {
    pid: String,
    returned: String,
    closed: String,
    name: String,
    /// `msg=audit(TIME:SERIAL):` is the same in all records of an event and in no other event.
    identities: HashSet<String>,
    found: LogMatches,
}

impl Search {
    fn new(filter: CallFilter) -> Self {
        Self {
            pid: format!("pid={}", filter.pid),
            returned: format!("exit={}", filter.descriptor),
            closed: format!("a0={:x}", filter.descriptor),
            name: format!("name=\"{FILE}\""),
            identities: HashSet::new(),
            found: LogMatches::default(),
        }
    }

    fn scan_line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let has = |filter: &str| text.split_ascii_whitespace().any(|field| field == filter);
        if line.starts_with(PATH) {
            self.found.names += u64::from(has(&self.name));
        }
        if !line.starts_with(SYSCALL) {
            return;
        }
        self.found.events += 1;
        let identity = text.split_ascii_whitespace().nth(1).unwrap_or_default();
        self.found.repeated += u64::from(!self.identities.insert(identity.to_owned()));
        if !has(&self.pid) {
            return;
        }
        // Syscall numbers of x86-64.
        if has("syscall=257") && has(&self.returned) {
            self.found.opens += 1;
        } else if has("syscall=3") && has(&self.closed) {
            self.found.closes += 1;
        }
    }
}

/// Counts of a log that is too long for `ausearch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCounts {
    /// Syscall events of any process.
    pub(crate) events: u64,
    /// Matching events.
    pub(crate) found: u64,
    /// Lost events that the log reports.
    pub(crate) reported_lost: u64,
}

impl LogCounts {
    /// Counts the events in a log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn from_log(log: &Path, filter: &[CallFilter]) -> io::Result<Self> {
        Self::from_lines(BufReader::with_capacity(1 << 20, File::open(log)?), filter)
    }

    fn from_lines(mut lines: impl BufRead, filter: &[CallFilter]) -> io::Result<Self> {
        let calls: Vec<[String; 3]> = filter
            .iter()
            .map(|&CallFilter { pid, descriptor }| {
                [
                    format!(" pid={pid} "),
                    format!(" exit={descriptor} "),
                    format!(" a0={descriptor:x} "),
                ]
            })
            .collect();
        let mut counts = Self::default();
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? != 0 {
            let has = |filter: &str| line.contains_str(filter);
            if line.starts_with(SYSCALL) {
                counts.events += 1;
                let is_wanted = |[pid, returned, closed]: &[String; 3]| {
                    // Syscall numbers of x86-64.
                    has(pid)
                        && (has(" syscall=257 ") && has(returned)
                            || has(" syscall=3 ") && has(closed))
                };
                counts.found += u64::from(calls.iter().any(is_wanted));
            } else if line.starts_with(LOST) {
                counts.reported_lost += parse_lost(&line).unwrap_or(0);
            }
            line.clear();
        }
        Ok(counts)
    }
}

/// Parses the number of lost events in a `DAEMON_ERR` record.
fn parse_lost(line: &[u8]) -> Option<u64> {
    let (_, rest) = line.split_once_str(" op=lost-events lost=")?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    digits.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
type=SYSCALL msg=audit(1.5:1): arch=c000003e syscall=257 success=yes exit=35 a0=ffffff9c ppid=7 pid=70 comm=\"x\"
type=CWD msg=audit(1.5:1): cwd=\"/\"
type=PATH msg=audit(1.5:1): item=0 name=\"file1\" inode=3
type=SYSCALL msg=audit(1.5:2): arch=c000003e syscall=3 success=yes exit=0 a0=23 ppid=7 pid=70 comm=\"x\"
type=SYSCALL msg=audit(1.5:3): arch=c000003e syscall=3 success=yes exit=0 a0=3 ppid=7 pid=70 comm=\"x\"
type=SYSCALL msg=audit(1.5:4): arch=c000003e syscall=257 success=yes exit=3 a0=ffffff9c ppid=7 pid=70 comm=\"x\"
type=PATH msg=audit(1.5:4): item=0 name=\"/lib/file1\" inode=3
type=SYSCALL msg=audit(1.5:5): arch=c000003e syscall=3 success=yes exit=0 a0=23 ppid=70 pid=71 comm=\"x\"
type=SYSCALL msg=audit(1.5:5): arch=c000003e syscall=3 success=yes exit=0 a0=23 ppid=7 pid=700 comm=\"x\"
";

    #[test]
    fn only_the_measured_calls_count() {
        let filter = CallFilter {
            pid: 70,
            descriptor: 35,
        };
        let mut search = Search::new(filter);
        for line in LOG.lines() {
            search.scan_line(line.as_bytes());
        }
        assert_eq!(
            search.found,
            LogMatches {
                opens: 1,
                closes: 1,
                names: 1,
                repeated: 1,
                events: 6,
            }
        );
    }

    #[test]
    fn long_log_is_counted() {
        let loss_record =
            "type=DAEMON_ERR msg=audit(1.5:7): op=lost-events lost=12 reason=\"ring-full\"\n";
        let log = [LOG, loss_record, loss_record].concat();
        let filter = |pid| CallFilter {
            pid,
            descriptor: 35,
        };
        let counts = |filter: &[CallFilter]| LogCounts::from_lines(log.as_bytes(), filter).unwrap();
        let expected = LogCounts {
            events: 6,
            found: 2,
            reported_lost: 24,
        };
        assert_eq!(counts(&[filter(70)]), expected);
        assert_eq!(counts(&[filter(70), filter(700)]).found, 3);
        assert_eq!(counts(&[]).found, 0);
    }

    #[test]
    fn parts_hold_whole_events_and_lose_nothing() {
        for events in 1..8 {
            let mut lines = LOG.as_bytes();
            let mut carried = Vec::new();
            let mut parts = Vec::new();
            loop {
                let next_part = next_part(&mut lines, &mut carried, events).unwrap();
                if next_part.is_empty() {
                    break;
                }
                assert!(next_part.starts_with(SYSCALL));
                parts.push(String::from_utf8(next_part).unwrap());
            }
            assert_eq!(parts.concat(), LOG);
            assert_eq!(parts.len(), 6_usize.div_ceil(events), "{events} at once");
        }
    }
}
