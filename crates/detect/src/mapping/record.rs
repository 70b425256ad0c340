//! A record as an event of `service: auditd`.
//!
//! # Source
//! The rules of `SigmaHQ` in `rules/linux/auditd`: fields have the names of records, values are decoded, and the
//! arguments of a program are `a0`, `a1` and so on of `type: EXECVE`.

use std::borrow::Cow;

use audit::ids::{Arch, Syscall};
use audit::record::decode::{Field, Record};
use audit::record::execve;
use audit::table;
use bstr::ByteSlice as _;
use logs::event_values::decoded;

use crate::sigma::fields::{Fields, to_text};

/// Arguments with a field of their own. Rules name at most eight; all others are one field together.
const MOST_ARGUMENTS: usize = 256;

/// Fields of a record that are wanted, with those of the event's syscall as context.
pub(super) fn fields<'a>(
    record: &Record<'a>,
    context: Option<&'a Fields<'a>>,
    wants: impl Fn(&str) -> bool,
) -> Fields<'a> {
    let mut fields = Fields::within(context);
    fields.text("type", to_text(Cow::Borrowed(record.kind)));
    let (mut arch, mut number) = (None, None);
    for field in record.valid_fields() {
        match field.name.as_bytes() {
            b"msg" => {
                for nested in record.nested_fields(&field).map_while(Result::ok) {
                    add(record, &nested, &wants, &mut fields);
                }
                continue;
            }
            b"arch" => arch = hex(field.value),
            b"syscall" => number = decimal(field.value),
            _ => {}
        }
        add(record, &field, &wants, &mut fields);
    }
    for field in record.enrichment().map_while(Result::ok) {
        let value: &'a [u8] = field.value;
        let value = value.trim_with(|character| character == '"');
        let name: &'a [u8] = field.name;
        if let Some(name) = name.to_str().ok().filter(|name| wants(name)) {
            fields.text(name, to_text(Cow::Borrowed(value)));
        }
    }
    if wants("SYSCALL")
        && fields.get("SYSCALL").is_none()
        && let Some((arch, number)) = arch.zip(number)
        && let Some(name) = table::syscall_name(Arch(arch), Syscall(number))
    {
        fields.text("SYSCALL", name);
    }
    fields
}

/// Fields of the records with a program's arguments, together.
pub(super) fn arguments<'a>(records: &[Record<'a>], context: Option<&'a Fields<'a>>) -> Fields<'a> {
    let parts = records.iter().filter(|record| record.kind == "EXECVE");
    let found = execve::readable(parts.clone());
    let is_damaged = execve::arguments(parts.clone()).is_err();
    let mut fields = Fields::within(context);
    fields.text("type", "EXECVE");
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
            for field in record.valid_fields() {
                add(record, &field, |_| true, &mut fields);
            }
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

fn add<'a>(
    record: &Record<'a>,
    field: &Field<'a>,
    wants: impl Fn(&str) -> bool,
    fields: &mut Fields<'a>,
) {
    let name: &'a [u8] = field.name;
    let Some(name) = name.to_str().ok().filter(|name| wants(name)) else {
        return;
    };
    let Some(value) = decoded(record, field) else {
        return;
    };
    match name {
        "key" if value.contains(&1) => {
            let keys = value.split(|&byte| byte == 1);
            let keys = keys.map(|key| Cow::Owned(key.to_str_lossy().into_owned()));
            fields.texts(name, keys.collect());
        }
        "proctitle" => fields.text(name, with_blanks(&value)),
        _ => {
            let value = match value {
                Cow::Borrowed(value) => {
                    Cow::Borrowed(value.trim_with(|character| character == '"'))
                }
                owned @ Cow::Owned(_) => owned,
            };
            fields.bytes(name, value);
        }
    }
}

/// Arguments that end with NUL, with blanks between them.
pub(super) fn with_blanks(arguments: &[u8]) -> String {
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments);
    let text = arguments.to_str_lossy();
    text.replace('\0', " ")
}

fn hex(value: &[u8]) -> Option<u32> {
    u32::from_str_radix(value.to_str().ok()?, 16).ok()
}

/// A decimal number.
pub(super) fn decimal<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    value.to_str().ok()?.parse().ok()
}
