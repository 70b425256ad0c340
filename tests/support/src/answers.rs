//! Output of stock readers for two logs of one run: the kernel's, as written by `auditd`, and tollgate's.
//!
//! `questions.txt` has the questions. Serials differ because each auditor has its own counter; times differ because
//! the kernel takes them at the start of a syscall, and tollgate mostly at its end. `labels.rs` replaces both with
//! the number of the event.
//!
//! If records have permitted differences, answers may differ too. A third log gives the expected answer: the
//! kernel's log with the permitted differences applied. Its spacing and its order of fields, records and events are
//! the kernel's.

mod labels;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use audit::record::decode;
use bstr::{BString, ByteSlice as _};

use crate::event::FIRST_SERIAL;
use labels::Labels;

const QUESTIONS: &str = include_str!("../../differential/questions.txt");

/// The stock programs.
const PROGRAMS: [(&str, &str); 3] = [
    ("ausearch", "/usr/sbin/ausearch"),
    ("aureport", "/usr/sbin/aureport"),
    ("aulast", "/usr/bin/aulast"),
];

/// Maximum number of differing lines printed per answer.
const SHOWN_LINES: usize = 4;

/// Engines in the order of the columns of `questions.txt`.
const ENGINES: [&str; 2] = ["tracepoint", "fentry"];

/// The lines of an event in both logs; empty if a log does not have it.
#[derive(Clone, Debug, Default)]
pub struct Both {
    /// The kernel's lines.
    pub kernel: Vec<BString>,
    /// tollgate's lines.
    pub tollgate: Vec<BString>,
}

/// The logs of a run.
#[derive(Debug)]
pub struct Logs<'a> {
    /// The kernel's log. The run is the part between the two marks.
    pub kernel: &'a [u8],
    /// Tollgate's log of the same time.
    pub tollgate: &'a [u8],
    /// Texts of the messages that begin and end the run.
    pub marks: [&'a str; 2],
    /// Syscall events, in order for each task.
    pub events: &'a [Both],
}

/// The results of the questions.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Answers that are equal for both logs.
    pub same: usize,
    /// Answers with permitted differences.
    pub permitted: usize,
    /// Other answers, with their differences.
    pub wrong: Vec<String>,
}

/// Time and serial of an event.
type Stamp = (u64, u16, u32);

/// Runs all questions with the stock programs and `auparse_dump` in a directory. `values` replace the words in braces.
///
/// # Errors
/// If a program cannot run, or a log cannot be parsed.
pub fn compare(
    directory: &Path,
    auparse_dump: &Path,
    engine: &str,
    logs: &Logs<'_>,
    values: &[(&str, String)],
) -> anyhow::Result<Outcome> {
    let permitted = logs.permitted()?;
    let texts = [
        ("kernel", logs.run(logs.kernel, |event| &event.kernel)?),
        (
            "tollgate",
            logs.run(logs.tollgate, |event| &event.tollgate)?,
        ),
        ("permitted", permitted),
    ];
    for (name, text) in &texts {
        let place = directory.join(name);
        fs::create_dir_all(&place).context("cannot make a directory for a log")?;
        fs::write(place.join("audit.log"), text).context("cannot write a log")?;
    }
    let mut labels = Labels::default();
    for (number, event) in logs.events.iter().enumerate() {
        for line in [&event.kernel, &event.tollgate]
            .into_iter()
            .filter_map(|it| it.first())
        {
            let (_, _, serial) = stamp(line)?;
            let is_new = labels.add(serial, number);
            ensure!(is_new, "serial {serial} stands for two events");
        }
    }
    let ask = |log: &str, question: &str| -> anyhow::Result<String> {
        let answer = ask(&directory.join(log), auparse_dump, question, values);
        let answer = labels.put_in(&answer.with_context(|| question.to_owned())?);
        Ok(if question.starts_with("aureport") {
            unordered(&answer)
        } else {
            answer
        })
    };
    let mut outcome = Outcome::default();
    for line in QUESTIONS.lines() {
        let Some((expected, question)) = parse(line, engine)? else {
            continue;
        };
        let (theirs, ours) = (ask("kernel", question)?, ask("tollgate", question)?);
        let same = theirs == ours;
        match expected {
            Expected::Same | Expected::Either if is_empty(&theirs) => {
                outcome.wrong.push(format!("{question}: finds nothing"));
            }
            Expected::Same | Expected::Either if same => outcome.same += 1,
            Expected::Same => outcome.wrong.push(shown(question, &theirs, &ours)),
            Expected::Permitted if same => {
                let text = format!("{question}: no permitted difference shows in the answer");
                outcome.wrong.push(text);
            }
            Expected::Permitted | Expected::Either => {
                let permitted = ask("permitted", question)?;
                if permitted == ours {
                    outcome.permitted += 1;
                } else {
                    outcome.wrong.push(shown(question, &permitted, &ours));
                }
            }
        }
    }
    Ok(outcome)
}

/// The expected comparison of the answers to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Same,
    Permitted,
    Either,
}

/// The question in a line, if it applies to this engine.
fn parse<'a>(line: &'a str, engine: &str) -> anyhow::Result<Option<(Expected, &'a str)>> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut parts = line.splitn(3, ' ');
    let marks = [parts.next(), parts.next()];
    // The engine lsm has the records of fentry, but for those of some opens.
    let is_other = engine == "lsm";
    let engine = if is_other { "fentry" } else { engine };
    let column = ENGINES.iter().position(|known| *known == engine);
    let question = parts
        .next()
        .with_context(|| format!("no question: {line}"))?;
    Ok(match column.and_then(|column| *marks.get(column)?) {
        Some("=" | "~") if is_other => Some((Expected::Either, question)),
        Some("=") => Some((Expected::Same, question)),
        Some("~") => Some((Expected::Permitted, question)),
        Some("?") => Some((Expected::Either, question)),
        Some("-") => None,
        _ => bail!("none of `=`, `~`, `?` and `-`: {line}"),
    })
}

/// Runs a program in a log's directory; returns its output.
fn ask(
    log: &Path,
    auparse_dump: &Path,
    question: &str,
    values: &[(&str, String)],
) -> anyhow::Result<String> {
    let mut words = Vec::new();
    for word in question.split(' ') {
        match word
            .strip_prefix('{')
            .and_then(|word| word.strip_suffix('}'))
        {
            Some(name) => {
                let value = values.iter().find(|(known, _)| *known == name);
                let (_, value) = value.with_context(|| format!("nothing is called {name}"))?;
                words.extend(value.split(' '));
            }
            None => words.push(word),
        }
    }
    let (name, words) = words.split_first().context("no program")?;
    let known = PROGRAMS.iter().find(|(known, _)| known == name);
    let program = known.map_or_else(|| auparse_dump.to_owned(), |(_, path)| PathBuf::from(path));
    let input: &[&str] = match *name {
        "auparse_dump" => &["audit.log"],
        "aulast" => &["-f", "audit.log"],
        _ => &["-if", "audit.log"],
    };
    let output = Command::new(program)
        .args(input)
        .args(words)
        .current_dir(log)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .context("cannot be asked")?;
    let (said, complained) = (output.stdout.to_str_lossy(), output.stderr.to_str_lossy());
    Ok(format!("{said}{complained}{}\n", output.status))
}

/// Sorted lines without their numbers. `aureport` lists an event when it considers it complete, by the times of
/// later events: two events may change places if the run takes seconds longer. Answers of `ausearch` about the same
/// events are compared in order.
fn unordered(answer: &str) -> String {
    let number = |line: &str| {
        let (number, rest) = line.split_once(". ")?;
        number
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| rest.to_owned())
    };
    let lines = answer.lines();
    let mut lines: Vec<String> = lines
        .map(|line| number(line).unwrap_or_else(|| line.to_owned()))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Whether a program has found nothing, or printed only its exit status.
fn is_empty(answer: &str) -> bool {
    let says_so = ["<no matches>", "<no events of interest were found>"];
    says_so.iter().any(|text| answer.contains(text)) || answer.lines().count() < 2
}

/// The first lines that differ.
fn shown(question: &str, expected: &str, ours: &str) -> String {
    let mut text = format!("{question}:");
    let (mut theirs, mut ours) = (expected.lines(), ours.lines());
    let mut left = SHOWN_LINES;
    loop {
        match (theirs.next(), ours.next()) {
            (None, None) => return text,
            (their, our) if their == our => {}
            (their, our) => {
                let (their, our) = (their.unwrap_or_default(), our.unwrap_or_default());
                let _ok = write!(text, "\n    expected {their}\n    tollgate {our}");
                left -= 1;
                if left == 0 {
                    return text + "\n    ...";
                }
            }
        }
    }
}

impl Logs<'_> {
    /// Lines of the run: compared syscall events, and the kernel's own records. Left out are syscalls that only the
    /// kernel records, such as those that load BPF programs, and the kernel's syscall records in tollgate's log.
    fn run(&self, log: &[u8], of: fn(&Both) -> &[BString]) -> anyhow::Result<Vec<u8>> {
        let calls = self.calls(of)?;
        let mut others = BTreeSet::new();
        let lines = self.between_marks(log)?;
        for line in &lines {
            if line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=URINGOP ") {
                others.insert(stamp(line)?);
            }
        }
        let mut run = Vec::new();
        for line in lines {
            let stamp = stamp(line)?;
            if calls.contains(&stamp) || !others.contains(&stamp) {
                run.extend_from_slice(line);
                run.push(b'\n');
            }
        }
        Ok(run)
    }

    fn between_marks<'l>(&self, log: &'l [u8]) -> anyhow::Result<Vec<&'l [u8]>> {
        let lines: Vec<&[u8]> = log.lines().collect();
        let [first, last] = self.marks.map(|mark| {
            let has = |line: &&[u8]| line.starts_with(b"type=USER ") && line.contains_str(mark);
            lines.iter().position(has)
        });
        let first = first.context("no mark begins the run")?;
        let last = last.context("no mark ends the run")?;
        let run = lines.get(first..=last);
        Ok(run.context("the run ends before it begins")?.to_vec())
    }

    /// The kernel's log of the run with the records, values and stamps of tollgate's events.
    fn permitted(&self) -> anyhow::Result<Vec<u8>> {
        let mut events: BTreeMap<Stamp, Vec<BString>> = BTreeMap::new();
        let mut before = None;
        for event in self.events {
            let lines = merged(&event.kernel, &event.tollgate)?;
            let at = match event.kernel.first() {
                Some(line) => Some(stamp(line)?),
                // An event that only tollgate has follows the event before it.
                None => before,
            };
            let at = at.context("the first event is one that the kernel does not have")?;
            events.entry(at).or_default().extend(lines);
            before = Some(at);
        }
        let mut log = Vec::new();
        let calls = self.calls(|event| &event.kernel)?;
        for line in self.run(self.kernel, |event| &event.kernel)?.lines() {
            let stamp = stamp(line)?;
            if line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=URINGOP ") {
                for line in events.remove(&stamp).unwrap_or_default() {
                    log.extend_from_slice(&line);
                    log.push(b'\n');
                }
            } else if !calls.contains(&stamp) {
                log.extend_from_slice(line);
                log.push(b'\n');
            }
        }
        ensure!(events.is_empty(), "events that are not in the kernel's log");
        Ok(log)
    }

    /// Stamps of the compared events.
    fn calls(&self, of: fn(&Both) -> &[BString]) -> anyhow::Result<BTreeSet<Stamp>> {
        let first_lines = self.events.iter().filter_map(|event| of(event).first());
        first_lines.map(|line| stamp(line)).collect()
    }
}

fn stamp(line: &[u8]) -> anyhow::Result<Stamp> {
    let record = decode::line(line).with_context(|| line.as_bstr().to_string())?;
    Ok((record.time.sec, record.time.milli, record.serial.0))
}

/// The kernel's lines of an event with tollgate's values; records and fields of only one auditor are as in
/// tollgate's log.
fn merged(kernel: &[BString], tollgate: &[BString]) -> anyhow::Result<Vec<BString>> {
    if kernel.is_empty() {
        return Ok(tollgate.to_vec());
    }
    if tollgate.is_empty() {
        return Ok(Vec::new());
    }
    let mut ours: Vec<(usize, Words<'_>)> = Vec::new();
    for (place, line) in tollgate.iter().enumerate() {
        ours.push((place, Words::of(line)?));
    }
    let mut theirs: Vec<(usize, Words<'_>)> = Vec::new();
    for (place, line) in kernel.iter().enumerate() {
        theirs.push((place, Words::of(line)?));
    }
    // PATH records pair by their names, then by their items.
    let mut pairs: BTreeMap<usize, (usize, BString)> = BTreeMap::new();
    for key in [&["nametype", "name"][..], &["item"]] {
        theirs.retain(|(place, their)| {
            let Some(at) = ours
                .iter()
                .position(|(_, our)| our.key(key) == their.key(key))
            else {
                return true;
            };
            let (our_place, our) = ours.remove(at);
            pairs.insert(*place, (our_place, their.with_values_of(&our)));
            false
        });
    }
    let mut lines: Vec<(usize, BString)> = pairs.into_values().collect();
    for (place, our) in ours {
        let at = lines.iter().position(|(before, _)| before + 1 == place);
        lines.insert(at.map_or(0, |at| at + 1), (place, our.line()));
    }
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// A record, split at blanks.
struct Words<'a> {
    /// `type=PATH`.
    kind: &'a [u8],
    /// `msg=audit(...):`.
    stamp: &'a [u8],
    /// `name=value`.
    fields: Vec<&'a [u8]>,
}

impl<'a> Words<'a> {
    fn of(line: &'a BString) -> anyhow::Result<Self> {
        let mut words = line.split_str(" ");
        let mut next = || words.next().with_context(|| line.to_string());
        Ok(Self {
            kind: next()?,
            stamp: next()?,
            fields: words.collect(),
        })
    }

    fn field(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut fields = self.fields.iter();
        fields.find(|field| field_name(field) == name).copied()
    }

    /// The key of a record: its type, and the values of these fields.
    fn key(&self, names: &[&str]) -> String {
        let fields = names.iter().filter_map(|name| self.field(name.as_bytes()));
        let words: Vec<&[u8]> = [self.kind].into_iter().chain(fields).collect();
        bstr::join(" ", words).to_str_lossy().into_owned()
    }

    fn line(&self) -> BString {
        let words = [self.kind, self.stamp].into_iter();
        bstr::join(" ", words.chain(self.fields.iter().copied())).into()
    }

    /// This record, with the stamp and the fields of the other one, in the order of this one.
    fn with_values_of(&self, other: &Self) -> BString {
        let mut fields: Vec<&[u8]> = Vec::new();
        for field in &self.fields {
            fields.extend(other.field(field_name(field)));
        }
        let mut before = None;
        for field in &other.fields {
            let name = field_name(field);
            if self.field(name).is_none() {
                let at = fields
                    .iter()
                    .position(|field| Some(field_name(field)) == before);
                fields.insert(at.map_or(0, |at| at + 1), field);
            }
            before = Some(name);
        }
        let (kind, stamp) = (self.kind, other.stamp);
        Self {
            kind,
            stamp,
            fields,
        }
        .line()
    }
}

fn field_name(field: &[u8]) -> &[u8] {
    field.split_once_str("=").map_or(field, |(name, _)| name)
}

/// Whether a line belongs to tollgate's own event, not to one of the kernel.
///
/// # Errors
/// If the line is not a record.
pub fn is_of_tollgate(line: &[u8]) -> anyhow::Result<bool> {
    Ok(stamp(line)?.2 >= FIRST_SERIAL)
}

/// A time in the format of `-ts` and `-te`, in UTC: `11/22/26 09:28:00`.
pub fn date(second: u64) -> String {
    let time = i64::try_from(second)
        .ok()
        .and_then(|second| jiff::Timestamp::from_second(second).ok())
        .unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%m/%d/%y %H:%M:%S").to_string()
}
