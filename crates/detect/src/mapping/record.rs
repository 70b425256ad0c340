//! A record as an event of `service: auditd`.
//!
//! # Source
//! The rules of `SigmaHQ` in `rules/linux/auditd`: fields have the names of records, values are decoded, and the
//! arguments of a program are `a0`, `a1` and so on of `type: EXECVE`.

use std::borrow::Cow;
use std::ops::ControlFlow;

use audit::ids::{Arch, Syscall};
use audit::record::decode::{Field, Record};
use audit::record::execve;
use audit::table;
use bstr::ByteSlice as _;
use logs::event_values::decoded;

use crate::sigma::fields::{Fields, SYSCALL_NAME, Value, to_text};
use crate::sigma::gate::{Gate, Passed, SyscallGate};
use crate::sigma::requirement::TYPE;
use crate::sigma::search::Search;

/// Arguments with a field of their own. Rules name at most eight; all others are one field together.
const MOST_ARGUMENTS: usize = 256;

/// Fields of a record that are wanted, with those of the event's syscall as context.
pub(super) fn fields<'a>(
    record: &Record<'a>,
    context: Option<&'a Fields<'a>>,
    wants: impl Fn(&[u8]) -> bool,
) -> Fields<'a> {
    let mut fields = Fields::within(context);
    fields.add(TYPE, kind(record));
    add_values(record, wants, &mut fields);
    fields
}

/// Whether a gate lets a record through.
pub(super) fn passes(record: &Record<'_>, gate: &Gate<'_>) -> bool {
    let passes = |search: &Search| {
        if search.any().is_some() && search.is_in(TYPE, &kind(record)) {
            return true;
        }
        let fields = record.fields_up_to(search.last_name(record.untrimmed()));
        let wants = |name: &[u8]| search.wants(name);
        let is_in = |name: &str, value| match search.is_in(name, &value) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        values(record, fields, wants, is_in).is_break()
    };
    gate.is_open
        || record.kind == "EXECVE" && has_joined_arguments(record)
        || gate.searches.into_iter().flatten().any(passes)
}

/// Lets the type of a syscall's record through, which texts without a field may name.
pub(super) fn pass_type(record: &Record<'_>, gate: &SyscallGate<'_>, passed: &mut Passed) {
    if gate.wants(TYPE.as_bytes()) {
        gate.pass(TYPE, &kind(record), passed);
    }
}

fn kind<'a>(record: &Record<'a>) -> Value<'a> {
    Value::Text(to_text(Cow::Borrowed(record.kind)))
}

/// What a gate lets through of an event, but for the name of the syscall that is not written: adds the value of a field
/// in the record of the syscall.
pub(super) fn pass_field(
    record: &Record<'_>,
    field: &Field<'_>,
    gate: &SyscallGate<'_>,
    passed: &mut Passed,
) {
    if field.name == "msg" {
        *passed = SyscallGate::OPEN.open();
    } else if let Some(name) = wanted(field, |name| gate.wants(name))
        && let Some(value) = value(record, field)
    {
        gate.pass(name, &value, passed);
    }
}

/// As [`pass_field`], for the fields that `auditd` added.
pub(super) fn pass_enrichment(record: &Record<'_>, gate: &SyscallGate<'_>, passed: &mut Passed) {
    let wants = |name: &[u8]| gate.wants(name);
    for (name, value) in enriched_values(record, wants) {
        gate.pass(name, &value, passed);
    }
}

/// Whether [`arguments`] has values that no field of the record has.
fn has_joined_arguments(record: &Record<'_>) -> bool {
    let body = record.body();
    body.contains_str("_len=") || body.contains_str(format!(" a{MOST_ARGUMENTS}="))
}

/// Adds the wanted fields of a record.
fn add_values<'a>(record: &Record<'a>, wants: impl Fn(&[u8]) -> bool, fields: &mut Fields<'a>) {
    let _to_the_end = values(record, record.valid_fields(), wants, |name, value| {
        fields.add(name, value);
        ControlFlow::Continue(())
    });
}

/// Passes the wanted ones of some fields of a record, and those that `auditd` added, with their values, until `visit`
/// breaks.
fn values<'a>(
    record: &Record<'a>,
    fields: impl Iterator<Item = Field<'a>>,
    wants: impl Fn(&[u8]) -> bool,
    mut visit: impl FnMut(&'a str, Value<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut arch, mut number) = (None, None);
    let mut has_name = false;
    let mut pass = |field: &Field<'a>| match wanted(field, &wants) {
        Some(name) => {
            value(record, field).map_or(ControlFlow::Continue(()), |value| visit(name, value))
        }
        None => ControlFlow::Continue(()),
    };
    for field in fields {
        match field.name.as_bytes() {
            b"msg" => {
                let nested = record.nested_fields(&field).map_while(Result::ok);
                nested.into_iter().try_for_each(|nested| pass(&nested))?;
                continue;
            }
            b"arch" => arch = hex(field.value),
            b"syscall" => number = decimal(field.value),
            _ => {}
        }
        pass(&field)?;
    }
    for (name, value) in enriched_values(record, &wants) {
        has_name |= name == SYSCALL_NAME;
        visit(name, value)?;
    }
    if !has_name
        && wants(SYSCALL_NAME.as_bytes())
        && let Some((arch, number)) = arch.zip(number)
        && let Some(name) = table::syscall_name(Arch(arch), Syscall(number))
    {
        visit(SYSCALL_NAME, Value::Text(name.into()))?;
    }
    ControlFlow::Continue(())
}

/// Fields of the records with a program's arguments, together.
pub(super) fn arguments<'a>(records: &[Record<'a>], context: Option<&'a Fields<'a>>) -> Fields<'a> {
    let parts = records.iter().filter(|record| record.kind == "EXECVE");
    let found = execve::readable(parts.clone());
    let is_damaged = execve::arguments(parts.clone()).is_err();
    let mut fields = Fields::within(context);
    fields.text(TYPE, "EXECVE");
    fields.text("argc", found.argc.to_string());
    let mut args = found
        .args
        .into_iter()
        .map(|arg| to_text(Cow::Owned(arg.into())));
    for (number, arg) in args.by_ref().take(MOST_ARGUMENTS).enumerate() {
        fields.text(argument_name(number), arg);
    }
    let rest: Vec<_> = args.collect();
    if !rest.is_empty() {
        fields.text(argument_name(MOST_ARGUMENTS), rest.join(" "));
    }
    if is_damaged {
        // What follows the damage is compared as it is written.
        for record in parts {
            add_values(record, |_| true, &mut fields);
        }
    }
    fields
}

fn argument_name(number: usize) -> Cow<'static, str> {
    const FIRST: [&str; 10] = ["a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"];
    match FIRST.get(number) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("a{number}")),
    }
}

/// The wanted ones of the fields that `auditd` added.
fn enriched_values<'a>(
    record: &Record<'a>,
    wants: impl Fn(&[u8]) -> bool,
) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    let fields = record.enrichment().map_while(Result::ok);
    fields.filter_map(move |field| {
        let name = wanted(&field, &wants)?;
        let value: &'a [u8] = field.value;
        let value = value.trim_with(|character| character == '"');
        Some((name, Value::Text(to_text(Cow::Borrowed(value)))))
    })
}

/// Name of a field that is wanted.
fn wanted<'a>(field: &Field<'a>, wants: impl Fn(&[u8]) -> bool) -> Option<&'a str> {
    let name: &'a [u8] = field.name;
    wants(name).then(|| name.to_str().ok()).flatten()
}

/// Decoded value of a field, if it has one.
fn value<'a>(record: &Record<'a>, field: &Field<'a>) -> Option<Value<'a>> {
    let value = decoded(record, field)?;
    Some(match field.name.as_bytes() {
        b"key" if value.contains(&1) => {
            let keys = value.split(|&byte| byte == 1);
            let keys = keys.map(|key| Cow::Owned(key.to_str_lossy().into_owned()));
            Value::Texts(keys.collect())
        }
        b"proctitle" => Value::Text(with_blanks(&value).into()),
        _ => Value::Text(to_text(match value {
            Cow::Borrowed(value) => Cow::Borrowed(value.trim_with(|character| character == '"')),
            owned @ Cow::Owned(_) => owned,
        })),
    })
}

/// Arguments that end with NUL, with blanks between them.
pub(super) fn with_blanks(arguments: &[u8]) -> String {
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments);
    let text = arguments.to_str_lossy();
    text.replace('\0', " ")
}

/// A hexadecimal number.
pub(super) fn hex<T: TryFrom<u64>>(value: &[u8]) -> Option<T> {
    const MAX_DIGITS: usize = 16;
    let mut digits = value.iter().map(|&digit| char::from(digit).to_digit(16));
    let number = digits.try_fold(0_u64, |number, digit| Some(number << 4 | u64::from(digit?)));
    let number = number.filter(|_| (1..=MAX_DIGITS).contains(&value.len()));
    number?.try_into().ok()
}

/// A decimal number.
pub(super) fn decimal<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    value.to_str().ok()?.parse().ok()
}
