//! An alert: a rule that matched an event, and what there is to know about it.

pub(crate) mod ecs;
pub(crate) mod ocsf;
pub(crate) mod text;

use audit::event::Timestamp;
use audit::record::assemble::EventRecords;
use audit::record::interpret::AccountNames as _;
use bstr::{BString, ByteSlice as _};
use logs::event_values::decoded;

use crate::mapping::Mapping;
use crate::sigma::correlation::Correlated;
use crate::sigma::{Level, Match, Rule};

/// Most processes above the one of the event.
const MAX_ANCESTORS: usize = 16;
/// Most characters of a text of the event.
const MAX_TEXT: usize = 4096;

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alert {
    /// Name that is the same whenever the rule matches this event: `RULE:SECONDS.MILLISECONDS:SERIAL`, and `:NODE`.
    pub(crate) id: String,
    /// What is told about it.
    pub(crate) kind: Kind,
    /// Time of the event.
    pub(crate) time: Timestamp,
    /// Serial of the event.
    pub(crate) serial: u32,
    /// Node of the event.
    pub(crate) node: Option<String>,
    /// The rule.
    pub(crate) rule: Rule,
    /// The process.
    pub(crate) subject: Subject,
    /// Programs above the process, nearest first.
    pub(crate) ancestors: Vec<Ancestor>,
    /// Fields that matched, with their values.
    pub(crate) fields: Vec<(String, String)>,
    /// What a correlation rule matched; the other members are those of the last event.
    pub(crate) correlated: Option<Correlated>,
}

/// What is told about an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is new.
    New,
    /// As many more events of the same rule and entity came after it.
    Repeated(u64),
    /// As many alerts were left out by the rate limit.
    LeftOut(u64),
}

impl Kind {
    /// Number of events.
    pub(crate) const fn count(self) -> u64 {
        match self {
            Self::New => 1,
            Self::Repeated(count) | Self::LeftOut(count) => count,
        }
    }
}

/// Who did it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) pid: Option<u32>,
    pub(crate) ppid: Option<u32>,
    /// Effective uid, and its name.
    pub(crate) user: Option<(u32, String)>,
    /// Login uid, and its name; `None` if it is unset.
    pub(crate) login: Option<(u32, String)>,
    pub(crate) image: String,
    pub(crate) command_line: String,
    pub(crate) directory: String,
}

/// A program above the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ancestor {
    pub(crate) pid: u32,
    pub(crate) image: String,
    pub(crate) command_line: String,
}

impl Alert {
    /// The alert of a match; the mapping has learned from the event.
    pub(crate) fn new(
        event: &EventRecords,
        rule: &Rule,
        matched: Match,
        mapping: &Mapping,
    ) -> Self {
        let (time, serial) = (event.time(), event.serial().0);
        let node = event.node().map(|node| cut(&node.to_str_lossy()));
        let mut id = format!("{}:{}.{:03}:{serial}", rule.id, time.sec, time.milli);
        if let Some(node) = &node {
            id.extend([":", node]);
        }
        let subject = Subject::of(event, mapping);
        let table = mapping.processes();
        let ancestors = subject.ppid.into_iter().flat_map(|parent| {
            let ancestors = table.ancestors(event.node(), parent, MAX_ANCESTORS);
            ancestors.map(|(pid, process)| Ancestor {
                pid,
                image: process.image.to_string(),
                command_line: process.command_line.to_string(),
            })
        });
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in matched.fields {
            let field = (name, cut(&value));
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        Self {
            id,
            kind: Kind::New,
            time,
            serial,
            node,
            rule: rule.clone(),
            ancestors: ancestors.collect(),
            subject,
            fields,
            correlated: None,
        }
    }

    /// The alert of a correlation rule that matched with an event.
    pub(crate) fn correlated(
        event: &EventRecords,
        rule: &Rule,
        correlated: Correlated,
        mapping: &Mapping,
    ) -> Self {
        let matched = Match {
            rule: correlated.rule,
            fields: vec![correlated.measure.clone()],
            contexts: Vec::new(),
        };
        Self {
            correlated: Some(correlated),
            ..Self::new(event, rule, matched, mapping)
        }
    }

    /// What is told about alerts that the rate limit left out: the last of them, and the numbers by rule.
    pub(crate) fn left_out(last: &Self, total: u64, by_rule: Vec<(String, u64)>) -> Self {
        let fields = by_rule.into_iter();
        Self {
            id: format!("rate-limit:{}", last.id),
            kind: Kind::LeftOut(total),
            rule: Rule {
                id: "tollgate-rate-limit".to_owned(),
                name: None,
                title: "Alerts left out by the rate limit".to_owned(),
                author: None,
                level: last.rule.level,
                tags: Vec::new(),
                source: None,
                absent_fields: Vec::new(),
            },
            subject: Subject::default(),
            ancestors: Vec::new(),
            correlated: None,
            fields: fields
                .map(|(rule, count)| (rule, count.to_string()))
                .collect(),
            ..last.clone()
        }
    }

    /// The alert with texts of so many bytes at most, but for the program of the process.
    pub(crate) fn shortened(mut self, most: usize) -> Self {
        let begin = |text: &mut String| text.truncate(text.floor_char_boundary(most));
        begin(&mut self.subject.command_line);
        begin(&mut self.subject.directory);
        for Ancestor {
            image,
            command_line,
            ..
        } in &mut self.ancestors
        {
            begin(command_line);
            // The end of a path tells more.
            let before = image.ceil_char_boundary(image.len().saturating_sub(most));
            image.drain(..before);
        }
        self.fields.iter_mut().for_each(|(_, value)| begin(value));
        self
    }

    /// Bytes of the texts of the event.
    pub(crate) fn text_bytes(&self) -> usize {
        let subject = &self.subject;
        let own = [&subject.image, &subject.command_line, &subject.directory];
        let ancestors = self.ancestors.iter();
        let ancestors =
            ancestors.map(|ancestor| ancestor.image.len() + ancestor.command_line.len());
        let fields = self.fields.iter().map(|(_, value)| value.len());
        let correlated = self.correlated.as_ref().map_or(0, Correlated::text_bytes);
        own.into_iter().map(String::len).sum::<usize>()
            + ancestors.sum::<usize>()
            + fields.sum::<usize>()
            + correlated
    }

    /// Milliseconds since the epoch.
    pub(crate) fn time_ms(&self) -> i64 {
        let seconds = i64::try_from(self.time.sec).unwrap_or(i64::MAX / 1000);
        seconds
            .saturating_mul(1000)
            .saturating_add(self.time.milli.into())
    }

    /// Time as RFC 3339 writes it.
    pub(crate) fn time_text(&self) -> String {
        match jiff::Timestamp::from_millisecond(self.time_ms()) {
            Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            Err(_) => format!("@{}.{:03}", self.time.sec, self.time.milli),
        }
    }

    /// Techniques of ATT&CK, such as `T1059.004`.
    pub(crate) fn techniques(&self) -> impl Iterator<Item = String> {
        let tags = self.rule.tags.iter();
        let names = tags.filter_map(|tag| tag.strip_prefix("attack.t"));
        let is_number = |name: &&str| name.starts_with(|digit: char| digit.is_ascii_digit());
        names.filter(is_number).map(|name| format!("T{name}"))
    }

    /// One line about the alert.
    pub(crate) fn message(&self) -> String {
        let title = &self.rule.title;
        match self.kind {
            Kind::New => title.clone(),
            Kind::Repeated(count) => format!("{title}: {count} more events"),
            Kind::LeftOut(count) => format!("{title}: {count}"),
        }
    }

    /// Number of the level from 1 to 5, as OCSF and severities count.
    pub(crate) const fn severity(&self) -> u8 {
        match self.rule.level {
            Level::Informational => 1,
            Level::Low => 2,
            Level::Medium => 3,
            Level::High => 4,
            Level::Critical => 5,
        }
    }
}

impl Subject {
    fn of(event: &EventRecords, mapping: &Mapping) -> Self {
        let field = |name: &str| -> Option<BString> {
            event.records().find_map(|record| {
                let own = record.field(name);
                let found = own.or_else(|| {
                    let msg = record.field("msg")?;
                    let mut nested = record.nested_fields(&msg).map_while(Result::ok);
                    nested.find(|field| field.name == name)
                })?;
                Some(decoded(&record, &found)?.into_owned().into())
            })
        };
        let number = |name: &str| field(name)?.to_str().ok()?.parse::<u32>().ok();
        let text = |name: &str| field(name).map_or_else(String::new, |text| shown(&text));
        let named = |uid: u32| {
            let name = mapping.accounts().user(uid);
            (uid, name.map_or_else(|| uid.to_string(), str::to_owned))
        };
        let pid = number("pid");
        let process = pid.and_then(|pid| mapping.processes().get(event.node(), pid));
        let command_line = match process {
            Some(process) => process.command_line.to_string(),
            None => text("proctitle").replace('\0', " "),
        };
        Self {
            pid,
            ppid: number("ppid"),
            user: number("euid").or_else(|| number("uid")).map(named),
            login: number("auid").filter(|auid| *auid != u32::MAX).map(named),
            image: text("exe"),
            command_line: cut(&command_line),
            directory: text("cwd"),
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = bytes.trim_with(|character| character == '"').to_str_lossy();
    cut(&text)
}

/// The first characters of a text.
fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}
