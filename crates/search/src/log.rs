//! `tollgate log`: the files of a log, and their text.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use audit::record::decode;
use bstr::ByteSlice as _;
use clap::Parser as _;
use jiff::Timestamp;
use logs::escaped::{Escaped, EscapedJson};
use logs::index::store;
use logs::log_file::{LogError, LogFile, is_archive_name};
use serde_json::{Value, json};

use crate::logs_arg::Logs;
use crate::{ERROR, search};

/// Bytes that are copied at once: a frame of an archive.
const CHUNK: usize = 1 << 20;
/// Text at each end of a file in which its first and last record are looked for.
const END_BYTES: u64 = 128 << 10;

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Which files has the log, and how long does it go back?
    tollgate log list
  Read a log with its archives by a stock tool:
    tollgate log cat | ausearch -k identity -i
  Give somebody the text of one archive:
    tollgate log cat /var/log/audit/audit.log.000001.zst > audit.log.txt";

/// List the files of the audit log, or print their text
///
/// A log is `audit.log` with its rotated predecessors and archives, oldest first. An archive is a predecessor that the
/// daemon has compressed, with an index: `audit.log.000001.zst`.
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-log", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the text of a log, byte for byte, archives too
    Cat {
        #[command(flatten)]
        files: Files,
    },
    /// List the files of a log with sizes, times and index
    List {
        #[command(flatten)]
        files: Files,
        /// Print a JSON object for each file
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Files {
    /// Logs [default: /var/log/audit/audit.log]
    ///
    /// One file or directory is read with its rotated predecessors and archives; several are read in this order. An
    /// archive or an old log is read alone.
    #[arg(value_name = "LOG", conflicts_with = "log")]
    logs: Vec<PathBuf>,
    /// The same as LOG
    #[arg(long, value_name = "LOG")]
    log: Vec<PathBuf>,
}

/// Runs a command.
///
/// # Errors
/// A log cannot be read, or the output cannot be written.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let command = Args::parse_from(words).command;
    let (Command::Cat { files } | Command::List { files, .. }) = &command;
    let logs = Logs::new("tollgate-log", [files.logs.as_slice(), &files.log].concat());
    let result = match command {
        Command::Cat { .. } => cat(&logs),
        Command::List { json, .. } => list(&logs, json),
    };
    match result {
        // The reader of the output has seen enough.
        Err(error) if !search::is_closed_pipe(&error) => Err(error),
        _ if logs.have_errors() => Ok(ExitCode::from(ERROR)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn cat(logs: &Logs) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut text = vec![0; CHUNK];
    for mut file in logs.open()?.into_files() {
        let mut at = 0;
        loop {
            let count = match file.read_at(&mut text, at) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => {
                    logs.report(&error);
                    match file.after_unreadable(at) {
                        Some(next) => at = next,
                        None => break,
                    }
                    continue;
                }
            };
            at += u64::try_from(count)?;
            out.write_all(text.get(..count).unwrap_or_default())
                .context("cannot write to standard output")?;
        }
    }
    out.flush().context("cannot write to standard output")
}

/// What is listed of a file.
#[derive(Default)]
struct FileFacts {
    name: String,
    is_archive: bool,
    /// # Units
    /// Bytes.
    text: Option<u64>,
    /// Length of the file itself.
    stored: Option<u64>,
    /// Time of the first and of the last record, in seconds since the epoch.
    times: Option<(u64, u64)>,
    /// Text that the index covers.
    indexed: Option<u64>,
    /// Why the file, or a part of it, cannot be read.
    error: Option<String>,
}

impl FileFacts {
    /// What is known of a file; `None` of a stream. Errors go to `failed`.
    fn of(entry: Result<LogFile, LogError>, failed: impl Fn(&LogError)) -> Option<Self> {
        let mut file = match entry {
            Ok(file) if file.id().is_none() => return None,
            Ok(file) => file,
            Err(error) => {
                failed(&error);
                let path = error.path().unwrap_or_else(|| Path::new(""));
                return Some(Self {
                    name: path.display().to_string(),
                    is_archive: is_archive_name(path),
                    stored: fs::metadata(path).ok().map(|about| about.len()),
                    error: Some(error.reason()),
                    ..Self::default()
                });
            }
        };
        let mut facts = Self {
            name: file.path().display().to_string(),
            is_archive: file.is_archive(),
            ..Self::default()
        };
        if let Err(error) = facts.read(&mut file) {
            failed(&error);
            facts.error = Some(error.reason());
        }
        Some(facts)
    }

    fn read(&mut self, file: &mut LogFile) -> Result<(), LogError> {
        let text = file.size()?.unwrap_or_default();
        self.text = Some(text);
        self.stored = Some(file.stored_len()?);
        self.indexed = Some(store::existing(file)?.end());
        self.times = times(file, text)?;
        Ok(())
    }

    fn json(&self) -> Value {
        let times = self.times.unzip();
        json!({
            "file": self.name,
            "archive": self.is_archive,
            "text_bytes": self.text,
            "stored_bytes": self.stored,
            "indexed_bytes": self.indexed,
            "first_event": times.0,
            "last_event": times.1,
            "error": self.error,
        })
    }

    fn row(&self) -> [String; 7] {
        let time = |seconds: Option<u64>| {
            let seconds = seconds.and_then(|seconds| i64::try_from(seconds).ok());
            let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            time.map_or_else(unknown, |time| time.strftime("%F %T").to_string())
        };
        let (first, last) = self.times.unzip();
        let index = match (&self.error, self.indexed.unwrap_or(0)) {
            (Some(error), _) => format!("error: {error}"),
            (None, 0) => "no".to_owned(),
            (None, indexed) if Some(indexed) >= self.text => "whole".to_owned(),
            (None, _) => "part".to_owned(),
        };
        [
            Escaped(self.name.as_bytes()).to_string(),
            self.text.map_or_else(unknown, kib),
            self.stored.map_or_else(unknown, kib),
            match (self.stored, self.text) {
                (Some(stored), Some(text)) => share(stored, text),
                _ => unknown(),
            },
            time(first),
            time(last),
            index,
        ]
    }
}

/// What is not known.
fn unknown() -> String {
    "-".to_owned()
}

const HEADER: [&str; 7] = [
    "file",
    "text KiB",
    "stored KiB",
    "share",
    "first event",
    "last event",
    "index",
];

fn kib(bytes: u64) -> String {
    bytes.div_ceil(1024).to_string()
}

/// Part of a whole, in per cent.
fn share(part: u64, whole: u64) -> String {
    match part.saturating_mul(1000).checked_div(whole) {
        Some(share) => format!("{}.{} %", share / 10, share % 10),
        None => unknown(),
    }
}

/// Times of the first and of the last record near the ends of the text.
fn times(file: &mut LogFile, len: u64) -> Result<Option<(u64, u64)>, LogError> {
    let first = text(file, 0, len.min(END_BYTES))?;
    let last = text(file, len.saturating_sub(END_BYTES), len)?;
    let time = |line: &[u8]| Some(decode::header(line).ok()?.time.sec);
    let first = first.lines().find_map(time);
    Ok(first.zip(last.lines().rev().find_map(time)))
}

fn text(file: &mut LogFile, start: u64, end: u64) -> Result<Vec<u8>, LogError> {
    let mut text = vec![0; usize::try_from(end - start).unwrap_or_default()];
    let count = file.fill_at(&mut text, start)?;
    text.truncate(count);
    Ok(text)
}

fn list(logs: &Logs, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let entries = logs.entries()?.into_entries().into_iter();
    let failed = |error: &LogError| {
        logs.note(error);
    };
    let files: Vec<FileFacts> = entries
        .filter_map(|entry| FileFacts::of(entry, failed))
        .collect();
    let lines: Vec<String> = if json {
        let line = |facts: &FileFacts| EscapedJson(&facts.json()).to_string();
        files.iter().map(line).collect()
    } else {
        table(&files)
    };
    for line in lines {
        writeln!(out, "{line}").context("cannot write to standard output")?;
    }
    out.flush().context("cannot write to standard output")
}

/// The files as a table, with a sum.
fn table(files: &[FileFacts]) -> Vec<String> {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(files.iter().map(FileFacts::row));
    let known = || files.iter().filter(|file| file.text.is_some());
    let sum = |of: fn(&FileFacts) -> Option<u64>| known().filter_map(of).sum::<u64>();
    let (text, stored) = (sum(|file| file.text), sum(|file| file.stored));
    let count = match files.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let empty = String::new;
    rows.push([
        count,
        kib(text),
        kib(stored),
        share(stored, text),
        empty(),
        empty(),
        empty(),
    ]);
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(number, (cell, width))| match number {
            1..=3 => format!("{cell:>width$}"),
            _ => format!("{cell:width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {

    use clap::CommandFactory as _;
    use logs::log_set::LogEntries;

    use super::*;

    #[test]
    fn manual_page_is_current() {
        let page = manual::Page::new("tollgate-log", Args::command());
        page.check().unwrap();
    }

    #[test]
    fn files_are_listed_with_times_and_shares() {
        let place = tempfile::tempdir().unwrap();
        let line = |second: u32| format!("type=SYSCALL msg=audit({second}.000:{second}): pid=1\n");
        let old: String = (1_700_000_000..1_700_001_000).map(line).collect();
        let path = place.path().join("audit.log.1");
        fs::write(&path, old).unwrap();
        let archive = place.path().join("audit.log.000007.zst");
        support::archive::write(&path, &archive).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(place.path().join("audit.log"), "").unwrap();
        let entries = LogEntries::rotated(place.path()).unwrap().into_entries();
        let entries = entries.into_iter();
        let files: Vec<FileFacts> = entries
            .filter_map(|entry| FileFacts::of(entry, |error| panic!("{error}")))
            .collect();
        let table = table(&files);
        assert_eq!(table.len(), 4, "{table:?}");
        let archive: Vec<&str> = table[1].split_whitespace().collect();
        assert!(archive[0].ends_with("audit.log.000007.zst"), "{table:?}");
        assert_eq!(
            archive[5..],
            ["2023-11-14", "22:13:20", "2023-11-14", "22:29:59", "whole"]
        );
        assert!(
            table[2].ends_with("-  -                    -                    no"),
            "{table:?}"
        );
        assert!(table[3].starts_with("2 files"), "{table:?}");
        let json = files[0].json();
        assert_eq!(json["last_event"], 1_700_000_999);
        assert_eq!(json["indexed_bytes"], json["text_bytes"]);
    }
}
