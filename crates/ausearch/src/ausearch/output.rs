//! Prints events as they were logged, with a line for the time, or with the meaning of values.

use bstr::ByteSlice as _;

use crate::accounts::Translations;
use crate::ctext::{self, low_32, low_i32};
use crate::escape::Escape;
use crate::event::{Event, Record, SEPARATOR};
use crate::interpret::{Field, FieldType, Interpreter, KEY_SEPARATOR, Machine, of_field};
use crate::local_time::Clock;
use crate::record_type as ty;

/// Appends the records as they were logged.
pub(crate) fn raw(event: &Event, out: &mut Vec<u8>) {
    for record in event.records() {
        out.extend_from_slice(record.text);
        // The stock tool puts the separator behind every record of such an event.
        if event.is_enriched {
            out.push(SEPARATOR);
        }
        out.extend_from_slice(record.names.unwrap_or_default());
        out.push(b'\n');
    }
}

/// Appends the records after a line with the time, the last one first.
pub(crate) fn with_time(event: &Event, escape: Escape, clock: &Clock, out: &mut Vec<u8>) {
    out.extend_from_slice(b"----\ntime->");
    out.extend_from_slice(clock.ctime(event.id.seconds.cast_signed()).as_bytes());
    for record in printed(event) {
        if is_daemon(record.kind) {
            out.extend_from_slice(record.text);
        } else {
            escape.push(record.text, out);
        }
        out.push(b'\n');
    }
}

/// Whether a record is one of the audit daemon's own.
fn is_daemon(kind: i32) -> bool {
    (ty::DAEMON_START..ty::SYSCALL).contains(&kind)
}

/// The records that are printed: of the daemon's events, the last.
fn printed(event: &Event) -> impl Iterator<Item = Record<'_>> {
    let last = event.records().next_back();
    let count = if last.is_some_and(|record| is_daemon(record.kind)) {
        1
    } else {
        usize::MAX
    };
    event.records().rev().take(count)
}

/// Prints events with the meaning of values.
pub(crate) struct Interpreted<'a> {
    pub(crate) interpreter: &'a mut Interpreter,
    pub(crate) clock: &'a Clock,
    /// The first two arguments of the last syscall.
    pub(crate) arguments: [u64; 2],
    pub(crate) messages: &'a mut Vec<u8>,
}

/// What is known within a record.
#[derive(Clone, Copy, Default)]
struct Context {
    machine: Machine,
    syscall: Option<i32>,
}

impl Interpreted<'_> {
    /// Appends an event. `loaded` are the names that the first printed record gets instead of its own, and `arguments`
    /// those of the event's syscalls, by record.
    pub(crate) fn event(
        &mut self,
        event: &Event,
        mut loaded: Option<Translations>,
        arguments: &[(usize, [u64; 2])],
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"----\n");
        let count = event.records().len();
        for (behind, record) in printed(event).enumerate() {
            let index = count - 1 - behind;
            if let Some((_, known)) = arguments.iter().find(|(at, _)| *at == index) {
                self.arguments = *known;
            }
            let names = loaded
                .take()
                .unwrap_or_else(|| Translations::new(record.names));
            self.record(event, &record, &names, out);
        }
    }

    fn record(
        &mut self,
        event: &Event,
        record: &Record<'_>,
        names: &Translations,
        out: &mut Vec<u8>,
    ) {
        let text = record.text;
        let start = if event.id.node.is_some() {
            text.find_byte(b' ').map_or(0, |at| at + 1)
        } else {
            0
        };
        let text = text.get(start..).unwrap_or_default();
        let Some((before, stamp)) = text.split_once_str(b"(") else {
            self.messages.extend_from_slice(b"can't find time stamp\n");
            return;
        };
        if let Some(node) = &event.id.node {
            out.extend_from_slice(b"node=");
            out.extend_from_slice(node);
            out.push(b' ');
        }
        match ty::name(record.kind) {
            Some(name) => {
                out.extend_from_slice(b"type=");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b" msg=audit(");
            }
            None => {
                out.extend_from_slice(before);
                out.push(b'(');
            }
        }
        let Some((_, body)) = stamp.split_once_str(b")") else {
            return;
        };
        let time = self.clock.date_time(event.id.seconds.cast_signed());
        let (millis, serial) = (event.id.millis, event.id.serial);
        out.extend_from_slice(format!("{time}.{millis:03}:{serial}) ").as_bytes());
        self.body(body, record.kind, names, out);
        out.push(b'\n');
    }

    fn body(&mut self, body: &[u8], kind: i32, names: &Translations, out: &mut Vec<u8>) {
        let mut context = Context::default();
        let mut rest = Some(body);
        let mut has_field = false;
        let mut has_comma = false;
        while let Some(text) = rest
            && let Some(equals) = text.find_byte(b'=')
        {
            (has_field, has_comma) = (true, false);
            let before = text.get(..equals).unwrap_or_default();
            let behind = text.get(equals + 1..).unwrap_or_default();
            out.extend_from_slice(before);
            out.push(b'=');
            let name = before
                .rsplit(|&byte| byte == b' ')
                .next()
                .unwrap_or_default();
            if name == b"msg" {
                // The message of a program has fields of its own.
                rest = Some(behind);
                continue;
            }
            let name = name.strip_prefix(b"'").unwrap_or(name);
            let split = split_value(kind, name, behind);
            has_comma = split.has_comma;
            rest = split.rest;
            self.field(name, split.value, has_comma, kind, &mut context, names, out);
        }
        match rest {
            Some(text) if !has_field && !text.is_empty() => {
                self.interpreter.escape.push(text, out);
                out.push(b'\n');
            }
            Some(text) if has_comma => {
                self.interpreter.escape.push(text, out);
                out.push(b'\n');
            }
            _ => {}
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what a field's meaning depends on"
    )]
    fn field(
        &mut self,
        name: &[u8],
        value: &[u8],
        has_comma: bool,
        kind: i32,
        context: &mut Context,
        names: &Translations,
        out: &mut Vec<u8>,
    ) {
        let name = name.trim_start_with(|byte| byte == ' ' || byte == '(');
        let value = if name == b"acct" {
            value.strip_suffix(b":").unwrap_or(value)
        } else {
            value
        };
        let field_type = of_field(kind, name, value);
        if let Err(message) = self.syscall_context(kind, name, value, context) {
            out.extend_from_slice(&message);
            return;
        }
        let is_syscall = matches!(kind, ty::SYSCALL | ty::SECCOMP | ty::URINGOP);
        let field = Field {
            name,
            value,
            machine: context.machine,
            syscall: if is_syscall {
                context.syscall.unwrap_or(-1)
            } else {
                0
            },
            arguments: self.arguments,
            cwd: None,
            family: None,
        };
        let text = self.interpreter.value(field_type, &field, names);
        match field_type {
            FieldType::Unclassified => {
                out.extend_from_slice(value);
                out.push(if has_comma { b',' } else { b' ' });
            }
            FieldType::TtyData => out.extend_from_slice(&text),
            _ if name == b"key" => {
                out.extend_from_slice(&text.replace([KEY_SEPARATOR], " key="));
                out.push(b' ');
            }
            _ => {
                out.extend_from_slice(&text);
                out.push(b' ');
            }
        }
    }

    /// Takes the arch and the syscall from the fields of a record about a syscall.
    fn syscall_context(
        &self,
        kind: i32,
        name: &[u8],
        value: &[u8],
        context: &mut Context,
    ) -> Result<(), Vec<u8>> {
        match kind {
            ty::URINGOP => context.machine = Machine::Uring,
            ty::SYSCALL | ty::SECCOMP if context.machine == Machine::Unknown => {
                context.machine = self.interpreter.host;
            }
            ty::SYSCALL | ty::SECCOMP => {}
            _ => return Ok(()),
        }
        if name == b"arch" {
            let number = ctext::unsigned(value, 16);
            if number.overflow {
                return Err([b"arch conversion error(", value, b") "].concat());
            }
            context.machine = Machine::of_arch(low_32(number.value));
        }
        if context.syscall.is_none_or(|number| number < 0)
            && matches!(name, b"syscall" | b"uring_op")
        {
            let number = ctext::unsigned(value, 10);
            if number.overflow {
                return Err([b"syscall conversion error(", value, b") "].concat());
            }
            context.syscall = Some(low_i32(number.value));
        }
        Ok(())
    }
}

/// A value and what follows it.
struct Split<'t> {
    value: &'t [u8],
    rest: Option<&'t [u8]>,
    /// Whether a comma ended it.
    has_comma: bool,
}

/// Splits a value off: at a quote, a comma or a blank.
fn split_value<'t>(kind: i32, name: &[u8], text: &'t [u8]) -> Split<'t> {
    let at = |at: usize, has_comma| Split {
        value: text.get(..at).unwrap_or(text),
        rest: Some(text.get(at + 1..).unwrap_or_default()),
        has_comma,
    };
    let whole = Split {
        value: text,
        rest: None,
        has_comma: false,
    };
    if let [quote @ (b'\'' | b'"'), quoted @ ..] = text {
        return match quoted.find_byte(*quote) {
            Some(end) => at(end + 2, false),
            None => whole,
        };
    }
    let is_label = |value: &[u8]| of_field(kind, name, value) == FieldType::MacLabel;
    match (text.find_byte(b','), text.find_byte(b' ')) {
        // A label may have commas.
        (Some(comma), Some(blank)) if comma < blank => {
            if is_label(text.get(blank..).unwrap_or_default()) {
                at(blank, false)
            } else {
                at(comma, true)
            }
        }
        (Some(_), None) if is_label(text) => whole,
        (Some(comma), None) => at(comma, true),
        (_, Some(blank)) => at(blank, false),
        (None, None) => whole,
    }
}
