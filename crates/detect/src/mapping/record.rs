//! A record as an event of `service: auditd`.
//!
//! # Source
//! The rules of `SigmaHQ` in `rules/linux/auditd`: fields have the names of records, values are decoded, and the
//! arguments of a program are `a0`, `a1` and so on of `type: EXECVE`.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use audit::ids::{Arch, Syscall};
use audit::record::decode::{Field, Record};
use audit::record::execve;
use audit::table;
use bstr::{ByteSlice as _, Finder};
use logs::event_values::decoded;

use super::usual::{UsualArguments, UsualPath};
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
    let Some(search) = gate.search else {
        return gate.is_open;
    };
    if search.any().is_some()
        && let Some(wanted) = search.wants(TYPE.as_bytes())
        && search.is_in(wanted, &kind(record))
    {
        return true;
    }
    usual_passes(record, gate, search).unwrap_or_else(|| any_passes(record, gate, search))
}

/// Whether a gate lets a record of any form through.
pub(super) fn any_passes(record: &Record<'_>, gate: &Gate<'_>, search: &Search) -> bool {
    if record.kind == "EXECVE" && has_joined_arguments(record) {
        return true;
    }
    let mut left = search.bits();
    let mut is_found = false;
    let _early = values(
        record,
        |name| search.wants(name),
        |_, wanted, value| {
            is_found = search.is_in(wanted, &value);
            left &= !wanted.bit();
            match is_found || gate.ends_early && left == 0 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        },
    );
    is_found
}

/// Whether a gate lets a record through that is as the kernel writes it; `None` if it is another one.
pub(super) fn usual_passes(record: &Record<'_>, gate: &Gate<'_>, search: &Search) -> Option<bool> {
    let text = record.untrimmed();
    match record.kind.as_bytes() {
        b"PATH" if gate.ends_early => {
            let names = search.only("name")?;
            Some(names.is_in(UsualPath::of(text)?.name))
        }
        b"EXECVE" if record.enrichment_text().is_empty() => {
            let usual = UsualArguments::of(text)?;
            let mut args = usual.args.iter().enumerate();
            Some(
                usual.args.len() > MOST_ARGUMENTS
                    || search.has("argc", usual.count)
                    || args.any(|(number, arg)| search.has(&argument_name(number), arg)),
            )
        }
        _ => None,
    }
}

/// Lets the type of a syscall's record through, which texts without a field may name.
pub(super) fn pass_type(record: &Record<'_>, gate: &SyscallGate<'_>, passed: &mut Passed) {
    if let Some(wanted) = gate.wants(TYPE.as_bytes()) {
        gate.pass(wanted, &kind(record), passed);
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
    } else if let Some((_, wanted)) = wanted(field, |name| gate.wants(name))
        && let Some(value) = value(record, field)
    {
        gate.pass(wanted, &value, passed);
    }
}

/// As [`pass_field`], for the fields that `auditd` added.
pub(super) fn pass_enrichment(record: &Record<'_>, gate: &SyscallGate<'_>, passed: &mut Passed) {
    let wants = |name: &[u8]| gate.wants(name);
    for (_, wanted, value) in enriched_values(record, wants) {
        gate.pass(wanted, &value, passed);
    }
}

/// Whether [`arguments`] has values that no field of the record has.
fn has_joined_arguments(record: &Record<'_>) -> bool {
    static PARTS: LazyLock<[Finder<'_>; 2]> = LazyLock::new(|| {
        let last = format!(" a{MOST_ARGUMENTS}=");
        [
            Finder::new("_len="),
            Finder::new(last.as_bytes()).into_owned(),
        ]
    });
    let is_in = |part: &Finder<'_>| part.find(record.untrimmed()).is_some();
    PARTS.iter().any(is_in)
}

/// Adds the wanted fields of a record.
fn add_values<'a>(record: &Record<'a>, wants: impl Fn(&[u8]) -> bool, fields: &mut Fields<'a>) {
    let wants = |name: &[u8]| wants(name).then_some(());
    let _to_the_end = values(record, wants, |name, (), value| {
        fields.add(name, value);
        ControlFlow::Continue(())
    });
}

/// Passes the wanted fields of a record, and those that `auditd` added, with what `wants` returns for their names and
/// with their values, until `visit` breaks.
fn values<'a, W>(
    record: &Record<'a>,
    wants: impl Fn(&[u8]) -> Option<W>,
    mut visit: impl FnMut(&'a str, W, Value<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut arch, mut number) = (None, None);
    let mut has_name = false;
    let mut pass = |field: &Field<'a>| match wanted(field, &wants) {
        Some((name, wanted)) => value(record, field).map_or(ControlFlow::Continue(()), |value| {
            visit(name, wanted, value)
        }),
        None => ControlFlow::Continue(()),
    };
    for field in record.valid_fields() {
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
    for (name, wanted, value) in enriched_values(record, &wants) {
        has_name |= name == SYSCALL_NAME;
        visit(name, wanted, value)?;
    }
    if !has_name
        && let Some(wanted) = wants(SYSCALL_NAME.as_bytes())
        && let Some((arch, number)) = arch.zip(number)
        && let Some(name) = table::syscall_name(Arch(arch), Syscall(number))
    {
        visit(SYSCALL_NAME, wanted, Value::Text(name.into()))?;
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
    if let Some(argc) = parts.clone().find_map(|record| record.field("argc")) {
        fields.bytes("argc", Cow::Borrowed(argc.value));
    }
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
fn enriched_values<'a, W>(
    record: &Record<'a>,
    wants: impl Fn(&[u8]) -> Option<W>,
) -> impl Iterator<Item = (&'a str, W, Value<'a>)> {
    let fields = record.enrichment().map_while(Result::ok);
    fields.filter_map(move |field| {
        let (name, wanted) = wanted(&field, &wants)?;
        let value: &'a [u8] = field.value;
        let value = Value::Text(to_text(Cow::Borrowed(unquoted(value))));
        Some((name, wanted, value))
    })
}

/// Name of a field that is wanted, and what `wants` returns for it.
fn wanted<'a, W>(field: &Field<'a>, wants: impl Fn(&[u8]) -> Option<W>) -> Option<(&'a str, W)> {
    let name: &'a [u8] = field.name;
    let wanted = wants(name)?;
    Some((name.to_str().ok()?, wanted))
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
            Cow::Borrowed(value) => Cow::Borrowed(unquoted(value)),
            owned @ Cow::Owned(_) => owned,
        })),
    })
}

/// A value without the double quotes around it.
pub(super) fn unquoted(mut value: &[u8]) -> &[u8] {
    while let [b'"', rest @ ..] | [rest @ .., b'"'] = value {
        value = rest;
    }
    value
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
