//! Prints events as a table or as sentences.

use bstr::ByteSlice as _;

use super::options::Columns;
use crate::event::Event;
use crate::interpret::{FieldType, Interpreter};
use crate::local_time::{self, Clock};
use crate::normalize::{self, FieldPosition, ObjectKind, Sentence, Walk};
use crate::record_type as ty;

/// Prints events as sentences.
pub(crate) struct Sentences<'a> {
    pub(crate) interpreter: &'a mut Interpreter,
    pub(crate) clock: &'a Clock,
    pub(crate) columns: Columns,
    pub(crate) messages: &'a mut Vec<u8>,
    pub(crate) debug: bool,
}

/// The meaning of a field, or nothing.
fn text_at(
    walk: &mut Walk,
    place: Option<FieldPosition>,
    interpreter: &mut Interpreter,
) -> Option<Vec<u8>> {
    walk.go_to(place).then(|| walk.text(interpreter))
}

/// Who: the system, if nobody is known.
fn subject(text: Vec<u8>) -> Vec<u8> {
    if text == b"unset" {
        b"system".to_vec()
    } else {
        text
    }
}

impl Sentences<'_> {
    /// The line above the table.
    pub(crate) fn header(columns: Columns) -> String {
        let column = |is_shown: bool, name: &'static str| if is_shown { name } else { "" };
        format!(
            "NODE,EVENT,DATE,TIME,{}SERIAL_NUM,EVENT_KIND,SESSION,SUBJ_PRIME,SUBJ_SEC,SUBJ_KIND,{}ACTION,RESULT,\
             OBJ_PRIME,OBJ_SEC,{}{}OBJ_KIND,HOW{}\n",
            column(
                columns.time,
                "YEAR,MONTH,DAY,WEEKDAY,HOUR,MILLI,GMT_OFFSET,"
            ),
            column(columns.labels, "SUBJ_LABEL,"),
            column(columns.object2, "OBJ2,"),
            column(columns.labels, "OBJ_LABEL,"),
            column(columns.keys, ",KEY"),
        )
    }

    /// Appends the rows of an event.
    pub(crate) fn rows(&mut self, event: &Event, out: &mut Vec<u8>) {
        for mut walk in normalize::events(event.records()) {
            self.row(event, &mut walk, out);
        }
    }

    fn row(&mut self, event: &Event, walk: &mut Walk, out: &mut Vec<u8>) {
        let columns = self.columns;
        walk.first_record();
        let kind = walk.kind();
        let mut cell = |text: &[u8]| {
            out.extend_from_slice(text);
            out.push(b',');
        };
        let node = event.id.node.is_some().then(|| walk.text(self.interpreter));
        cell(&node.unwrap_or_default());
        cell(ty::name(kind).unwrap_or_default().as_bytes());
        let (sentence, understood) = normalize::normalize(walk, self.interpreter, columns.labels);
        if let Some(at) = self.clock.at(event.id.seconds.cast_signed()) {
            cell(local_time::date(&at).as_bytes());
            cell(local_time::time(&at).as_bytes());
            if columns.time {
                cell(local_time::parts(&at, event.id.millis).as_bytes());
            }
        }
        cell(event.id.serial.to_string().as_bytes());
        if !understood {
            let name = ty::name(kind).unwrap_or("(null)");
            self.messages
                .extend_from_slice(format!("error normalizing {name}\n").as_bytes());
            let labels = if columns.labels { ",," } else { "" };
            let keys = if columns.keys { "," } else { "" };
            out.extend_from_slice(format!(",,,,,,,,,{labels}{keys}\n").as_bytes());
            return;
        }
        cell(sentence.kind.unwrap_or("unknown").as_bytes());
        cell(&text_at(walk, sentence.session, self.interpreter).unwrap_or_default());
        cell(
            &text_at(walk, sentence.subject, self.interpreter)
                .map(subject)
                .unwrap_or_default(),
        );
        cell(&text_at(walk, sentence.subject2, self.interpreter).unwrap_or_default());
        cell(sentence.subject_kind.unwrap_or_default().as_bytes());
        if columns.labels {
            cell(&label(
                walk,
                &sentence.subject_attributes,
                b"subj",
                self.interpreter,
            ));
        }
        cell(sentence.action.as_deref().unwrap_or(b"did-unknown"));
        cell(match succeeded(walk, &sentence, self.interpreter) {
            Some(true) => b"success",
            Some(false) => b"failed",
            None => b"",
        });
        let object = walk
            .go_to(sentence.object)
            .then(|| match walk.field_type() {
                FieldType::EscapedFile => walk.path(self.interpreter),
                _ if is_setting(walk, &sentence) => walk.name().unwrap_or_default().to_vec(),
                _ => walk.text(self.interpreter),
            });
        cell(&object.unwrap_or_default());
        cell(&text_at(walk, sentence.object_secondary, self.interpreter).unwrap_or_default());
        if columns.object2 {
            cell(&self.path_at(walk, sentence.object2).unwrap_or_default());
        }
        if columns.labels {
            cell(&label(
                walk,
                &sentence.object_attributes,
                b"obj",
                self.interpreter,
            ));
        }
        cell(sentence.object_kind.name().as_bytes());
        out.extend_from_slice(sentence.how.as_deref().unwrap_or_default());
        if columns.keys {
            out.push(b',');
            out.extend_from_slice(
                &text_at(walk, sentence.key, self.interpreter).unwrap_or_default(),
            );
        }
        out.push(b'\n');
    }

    fn path_at(&mut self, walk: &mut Walk, place: Option<FieldPosition>) -> Option<Vec<u8>> {
        walk.go_to(place).then(|| match walk.field_type() {
            FieldType::EscapedFile => walk.path(self.interpreter),
            _ => walk.text(self.interpreter),
        })
    }

    /// Appends the sentences of an event.
    pub(crate) fn sentences(&mut self, event: &Event, out: &mut Vec<u8>) {
        for mut walk in normalize::events(event.records()) {
            self.sentence(event, &mut walk, out);
        }
    }

    fn sentence(&mut self, event: &Event, walk: &mut Walk, out: &mut Vec<u8>) {
        let time = self.clock.format(event.id.seconds.cast_signed(), |at| {
            format!("{} {}", local_time::time(at), local_time::date(at))
        });
        walk.first_record();
        let kind = walk.kind();
        let (sentence, _) = normalize::normalize(walk, self.interpreter, false);
        if event.id.node.is_some() {
            out.extend_from_slice(b"On ");
            out.extend_from_slice(&walk.text(self.interpreter));
            out.extend_from_slice(format!(" at {time} ").as_bytes());
        } else {
            out.extend_from_slice(format!("At {time} ").as_bytes());
        }
        let mut auid = None;
        if let Some(text) = text_at(walk, sentence.subject, self.interpreter) {
            auid = Some(walk.number());
            out.extend_from_slice(&subject(text));
        }
        if walk.go_to(sentence.subject2) {
            let uid = walk.number();
            if auid.is_some_and(|auid| uid != auid && auid != -2) && uid != -1 {
                out.extend_from_slice(b", acting as ");
                out.extend_from_slice(&walk.text(self.interpreter));
                out.push(b',');
            }
        }
        out.extend_from_slice(match succeeded(walk, &sentence, self.interpreter) {
            Some(true) => b" successfully ".as_slice(),
            Some(false) => b" unsuccessfully ",
            None => b" ",
        });
        if self.debug && sentence.action.is_none() {
            out.extend_from_slice(format!("error on type:{kind}\n").as_bytes());
        }
        let action = sentence.action.as_deref().unwrap_or(b"did-unknown");
        out.extend_from_slice(action);
        out.push(b' ');
        if walk.go_to(sentence.object) {
            out.extend_from_slice(&self.object(walk, &sentence, kind));
            out.push(b' ');
        }
        if let Some(object) = self.path_at(walk, sentence.object2) {
            out.extend_from_slice(b"to ");
            out.extend_from_slice(&object);
            out.push(b' ');
        }
        self.processes(walk, &sentence, out);
        if let Some(how) = &sentence.how
            && sentence
                .action
                .as_ref()
                .is_some_and(|action| action.first() != Some(&b'e'))
        {
            out.extend_from_slice(b"using ");
            out.extend_from_slice(how);
        }
        out.push(b'\n');
    }

    fn object(&mut self, walk: &mut Walk, sentence: &Sentence, kind: i32) -> Vec<u8> {
        let is_violation = sentence
            .action
            .as_ref()
            .is_some_and(|action| action.contains_str("violated"));
        match walk.field_type() {
            FieldType::EscapedFile => walk.path(self.interpreter),
            FieldType::SockAddr => {
                let address = walk.text(self.interpreter);
                let part = part_of(&address, "laddr=").or_else(|| part_of(&address, "fam="));
                part.unwrap_or(address)
            }
            _ if kind == ty::CONFIG_CHANGE => {
                if is_setting_action(sentence) {
                    walk.name().unwrap_or_default().to_vec()
                } else {
                    walk.text(self.interpreter)
                }
            }
            _ if is_violation => b"accessing ".to_vec(),
            _ => walk.text(self.interpreter),
        }
    }

    /// Appends the processes that a signal reached, three at most.
    fn processes(&mut self, walk: &mut Walk, sentence: &Sentence, out: &mut Vec<u8>) {
        const MOST: usize = 3;
        let is_process = matches!(
            sentence.object_kind,
            ObjectKind::Process | ObjectKind::ProcessGroup
        );
        let attributes = &sentence.object_attributes;
        if !is_process || !walk.go_to(attributes.first().copied()) {
            return;
        }
        out.push(b'(');
        let mut shown = Vec::new();
        for place in attributes.iter().take(MOST) {
            if walk.go_to(Some(*place)) && walk.name() == Some(b"opid") {
                shown.push(walk.text(self.interpreter));
            }
        }
        out.extend_from_slice(&shown.join(&b","[..]));
        let rest: &[u8] = if attributes.len() >= MOST {
            b",...) "
        } else {
            b") "
        };
        out.extend_from_slice(rest);
    }
}

/// Whether an event succeeded, if it says so.
fn succeeded(walk: &mut Walk, sentence: &Sentence, interpreter: &mut Interpreter) -> Option<bool> {
    let text = text_at(walk, sentence.result, interpreter)?;
    let is_allowed = walk.field_type() == FieldType::Seccomp && text == b"allow";
    Some(text == b"yes" || text.starts_with(b"suc") || is_allowed)
}

/// Whether an action sets what its field is called, and not what the field says.
fn is_setting_action(sentence: &Sentence) -> bool {
    matches!(
        sentence.action.as_deref(),
        Some(b"set" | b"seccomp-logging")
    )
}

fn is_setting(walk: &Walk, sentence: &Sentence) -> bool {
    walk.kind() == ty::CONFIG_CHANGE && is_setting_action(sentence)
}

/// The label among some attributes.
fn label(
    walk: &mut Walk,
    attributes: &[FieldPosition],
    name: &[u8],
    interpreter: &mut Interpreter,
) -> Vec<u8> {
    for place in attributes {
        if !walk.go_to(Some(*place)) {
            return Vec::new();
        }
        if walk.name() == Some(name) {
            return walk.text(interpreter);
        }
    }
    Vec::new()
}

/// The word behind `name` in an address.
fn part_of(address: &[u8], name: &str) -> Option<Vec<u8>> {
    let start = address.find(name)? + name.len();
    let rest = address.get(start..)?;
    let end = rest.find_byte(b' ')?;
    rest.get(..end).map(<[u8]>::to_vec)
}
