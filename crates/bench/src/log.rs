//! What an audit log holds of a workload, as the stock `ausearch` reads it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::mem;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;

use super::component::AUSEARCH;
use super::place::figure;
use super::workload::FILE;

/// The calls to be found: those of one process on one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) pid: u64,
    pub(crate) descriptor: u64,
}

impl Wanted {
    /// Those of a loader, as it has printed.
    ///
    /// # Errors
    /// When it has printed something else.
    pub(crate) fn printed(printed: &str) -> anyhow::Result<Self> {
        let integer = |name| {
            let value = format!("{:.0}", figure(printed, name)?);
            value.parse().context("the workload has printed no number")
        };
        Ok(Self {
            pid: integer("pid")?,
            descriptor: integer("descriptor")?,
        })
    }
}

/// How many of them there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Events of opens that returned the descriptor.
    pub(crate) opens: u64,
    /// Events of closes of the descriptor.
    pub(crate) closes: u64,
    /// `PATH` records with the name of the file that is opened.
    pub(crate) names: u64,
    /// Events whose time and serial an event before had.
    pub(crate) repeated: u64,
    /// Events of any process: with the above, those of starting the workload, and of others.
    pub(crate) events: u64,
}

/// Events that `ausearch` is given at once. It keeps every event open for two seconds of the log's
/// time and looks through all of them for each line: a hundred thousand events of one second take
/// version 3.0.9 minutes.
const AT_ONCE: usize = 2000;

impl Found {
    /// Reads a log with `ausearch`, part by part; a part is written to `scratch` meanwhile.
    ///
    /// # Errors
    /// When the log cannot be read, or `ausearch` cannot be run or finds nothing.
    pub(crate) fn in_log(log: &Path, scratch: &Path, wanted: Wanted) -> anyhow::Result<Self> {
        let log = File::open(log).context("cannot open the log")?;
        let mut lines = BufReader::with_capacity(1 << 20, log);
        let mut search = Search::new(wanted);
        let mut carried = Vec::new();
        loop {
            let part = part(&mut lines, &mut carried, AT_ONCE).context("cannot read the log")?;
            if part.is_empty() {
                return Ok(search.found);
            }
            fs::write(scratch, &part).context("cannot write a part of the log")?;
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
                search.look_at(line);
            }
        }
    }
}

/// The next lines of a log, up to the first record of the event after `events` others; that line
/// is carried to the next call.
fn part(lines: &mut impl BufRead, carried: &mut Vec<u8>, events: usize) -> io::Result<Vec<u8>> {
    let mut part = mem::take(carried);
    let mut begun = usize::from(!part.is_empty());
    while lines.read_until(b'\n', carried)? != 0 {
        if carried.starts_with(SYSCALL) {
            if begun == events {
                return Ok(part);
            }
            begun += 1;
        }
        part.append(carried);
    }
    Ok(part)
}

/// How the records begin that count.
const SYSCALL: &[u8] = b"type=SYSCALL ";
const PATH: &[u8] = b"type=PATH ";
const LOST: &[u8] = b"type=DAEMON_ERR ";

/// A search that goes on from part to part.
#[derive(Debug)]
struct Search {
    pid: String,
    returned: String,
    closed: String,
    name: String,
    /// `msg=audit(TIME:SERIAL):` is the same in all records of an event, and in no other event.
    identities: HashSet<String>,
    found: Found,
}

impl Search {
    fn new(wanted: Wanted) -> Self {
        Self {
            pid: format!("pid={}", wanted.pid),
            returned: format!("exit={}", wanted.descriptor),
            closed: format!("a0={:x}", wanted.descriptor),
            name: format!("name=\"{FILE}\""),
            identities: HashSet::new(),
            found: Found::default(),
        }
    }

    fn look_at(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let has = |wanted: &str| text.split_ascii_whitespace().any(|field| field == wanted);
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
        // Numbers of x86-64.
        if has("syscall=257") && has(&self.returned) {
            self.found.opens += 1;
        } else if has("syscall=3") && has(&self.closed) {
            self.found.closes += 1;
        }
    }
}

/// What a log holds that is too long for `ausearch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Events of calls, of any process.
    pub(crate) events: u64,
    /// Of them, the calls that were to be found.
    pub(crate) found: u64,
    /// Lost events that it tells of.
    pub(crate) told: u64,
}

impl Tally {
    /// Counts what is in a log.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn of_log(log: &Path, wanted: &[Wanted]) -> io::Result<Self> {
        Self::of_lines(BufReader::with_capacity(1 << 20, File::open(log)?), wanted)
    }

    fn of_lines(mut lines: impl BufRead, wanted: &[Wanted]) -> io::Result<Self> {
        let calls: Vec<[String; 3]> = wanted
            .iter()
            .map(|&Wanted { pid, descriptor }| {
                [
                    format!(" pid={pid} "),
                    format!(" exit={descriptor} "),
                    format!(" a0={descriptor:x} "),
                ]
            })
            .collect();
        let mut tally = Self::default();
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? != 0 {
            let has = |wanted: &str| line.contains_str(wanted);
            if line.starts_with(SYSCALL) {
                tally.events += 1;
                let is_wanted = |[pid, returned, closed]: &[String; 3]| {
                    // Numbers of x86-64.
                    has(pid)
                        && (has(" syscall=257 ") && has(returned)
                            || has(" syscall=3 ") && has(closed))
                };
                tally.found += u64::from(calls.iter().any(is_wanted));
            } else if line.starts_with(LOST) {
                tally.told += lost(&line).unwrap_or(0);
            }
            line.clear();
        }
        Ok(tally)
    }
}

/// The number in a record of events that the log lacks.
fn lost(line: &[u8]) -> Option<u64> {
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
        let wanted = Wanted {
            pid: 70,
            descriptor: 35,
        };
        let mut search = Search::new(wanted);
        for line in LOG.lines() {
            search.look_at(line.as_bytes());
        }
        assert_eq!(
            search.found,
            Found {
                opens: 1,
                closes: 1,
                names: 1,
                repeated: 1,
                events: 6,
            }
        );
    }

    #[test]
    fn a_long_log_is_counted() {
        let lost =
            "type=DAEMON_ERR msg=audit(1.5:7): op=lost-events lost=12 reason=\"ring-full\"\n";
        let log = [LOG, lost, lost].concat();
        let wanted = |pid| Wanted {
            pid,
            descriptor: 35,
        };
        let tally = |wanted: &[Wanted]| Tally::of_lines(log.as_bytes(), wanted).unwrap();
        let expected = Tally {
            events: 6,
            found: 2,
            told: 24,
        };
        assert_eq!(tally(&[wanted(70)]), expected);
        assert_eq!(tally(&[wanted(70), wanted(700)]).found, 3);
        assert_eq!(tally(&[]).found, 0);
    }

    #[test]
    fn parts_hold_whole_events_and_lose_nothing() {
        for events in 1..8 {
            let mut lines = LOG.as_bytes();
            let mut carried = Vec::new();
            let mut parts = Vec::new();
            loop {
                let part = part(&mut lines, &mut carried, events).unwrap();
                if part.is_empty() {
                    break;
                }
                assert!(part.starts_with(SYSCALL));
                parts.push(String::from_utf8(part).unwrap());
            }
            assert_eq!(parts.concat(), LOG);
            assert_eq!(parts.len(), 6_usize.div_ceil(events), "{events} at once");
        }
    }
}
