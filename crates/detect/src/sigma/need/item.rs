//! What one test of a rule says about the events that satisfy it.

use std::collections::BTreeSet;

use audit::ids::{NativeArch, Syscall};
use audit::plan::SyscallId;
use audit::rule::Field;
use audit::table;
use rsigma_parser::value::StringPart;
use rsigma_parser::{DetectionItem, Modifier, SigmaValue};

use super::{Place, Way};
use crate::sigma::Source;
use crate::sigma::requirement::{TYPE, types_of};

/// The events that satisfy a test; `None` if there are none.
pub(super) fn ways(item: &DetectionItem, source: Source) -> Option<Way> {
    let Some(name) = item.field.name.as_deref() else {
        return Some(Way::default());
    };
    let is_positive = is_positive(item);
    if let Some(known) = source.fields() {
        let absent = (is_positive && !known.contains(&name)).then(|| name.to_owned());
        return Some(Way {
            absent,
            ..of_whole(item, name, is_positive)
        });
    }
    match is_positive {
        true => of_record(item, name),
        // The field may be missing.
        false => Some(Way {
            tests_other: true,
            ..Way::default()
        }),
    }
}

/// A test of an event that is compared as a whole.
fn of_whole(item: &DetectionItem, name: &str, is_positive: bool) -> Way {
    let mut way = Way::default();
    match name {
        "TargetFilename" if is_positive => way.places = Some(places(item)),
        "DestinationIp" | "DestinationPort" if is_positive => way.is_initiated = Some(true),
        "SourceIp" | "SourcePort" if is_positive => way.is_initiated = Some(false),
        "Initiated" => {
            let values = exact(item).unwrap_or_default();
            let is = |wanted: &str| {
                values
                    .iter()
                    .all(|value| value.eq_ignore_ascii_case(wanted))
            };
            way.is_initiated = match values.is_empty() {
                true => None,
                false if is("true") => Some(true),
                false if is("false") => Some(false),
                false => None,
            };
        }
        _ => {}
    }
    way
}

/// A test of a record that has the field.
fn of_record(item: &DetectionItem, name: &str) -> Option<Way> {
    let mut way = Way::default();
    let values = exact(item);
    match name {
        TYPE => way.types = types_of(item),
        "name" => {
            way.places = Some(places(item));
            way.types = types(&["KERN_MODULE", "PATH"]);
        }
        "nametype" => {
            way.creates = values.is_some_and(|values| {
                values
                    .iter()
                    .all(|value| value.eq_ignore_ascii_case("create"))
            });
            way.types = types(&["PATH"]);
        }
        "inode" | "dev" => way.types = types(&["PATH"]),
        "cwd" => way.types = types(&["CWD"]),
        "proctitle" => way.types = types(&["PROCTITLE"]),
        "saddr" => way.types = types(&["SOCKADDR"]),
        "argc" => way.types = types(&["EXECVE"]),
        "SYSCALL" | "syscall" => match values {
            Some(values) => {
                let syscalls: BTreeSet<SyscallId> = values
                    .iter()
                    .flat_map(|value| syscalls(name, value))
                    .collect();
                if syscalls.is_empty() {
                    return None;
                }
                way.syscalls = Some(syscalls);
            }
            None => way.tests_other = true,
        },
        "success" => match values.unwrap_or_default().as_slice() {
            [value] if value.eq_ignore_ascii_case("yes") => way.success = Some(true),
            [value] if value.eq_ignore_ascii_case("no") => way.success = Some(false),
            _ => way.tests_other = true,
        },
        "key" => way.keys = Some(values.unwrap_or_default().into_iter().collect()),
        "exe" => {
            way.tests_process = true;
            let is_path = |path: &String| matches!(Place::at(path), Place::Path(_));
            way.programs = values
                .filter(|values| values.iter().all(is_path))
                .map(|values| values.into_iter().collect());
        }
        "comm" | "tty" | "ses" | "arch" | "ARCH" => way.tests_process = true,
        _ => return Some(of_other(item, name, values.as_ref())),
    }
    Some(way)
}

/// A test of an id, of an argument, or of an unknown field.
fn of_other(item: &DetectionItem, name: &str, values: Option<&Vec<String>>) -> Way {
    let mut way = Way::default();
    let numbers = |radix| -> Option<BTreeSet<u32>> {
        let values = values?.iter();
        values
            .map(|value| u32::from_str_radix(value, radix).ok())
            .collect()
    };
    let digits = name.strip_prefix('a').unwrap_or_default();
    if let Ok(argument) = digits.parse::<u16>() {
        way.tests_other = true;
        let can_be_hex = item.values.iter().any(can_be_hex) || !is_about_text(item);
        way.types = match (argument, can_be_hex) {
            (0..=3, true) => types(&["EXECVE", "SOCKETCALL", "SYSCALL"]),
            (4 | 5, true) => types(&["EXECVE", "SOCKETCALL"]),
            _ => types(&["EXECVE"]),
        };
        let field = match argument {
            0 => Field::A0,
            1 => Field::A1,
            2 => Field::A2,
            3 => Field::A3,
            _ => return way,
        };
        way.numbers
            .extend(numbers(16).map(|numbers| (field, numbers)));
        return way;
    }
    let id = match name {
        "uid" => Field::Uid,
        "euid" => Field::Euid,
        "suid" => Field::Suid,
        "fsuid" => Field::Fsuid,
        "gid" => Field::Gid,
        "egid" => Field::Egid,
        "sgid" => Field::Sgid,
        "fsgid" => Field::Fsgid,
        "auid" => Field::Auid,
        "AUID" => {
            way.tests_process = true;
            return way;
        }
        _ => {
            way.tests_other = true;
            return way;
        }
    };
    // The other ids can change after the program was executed.
    match id {
        Field::Auid => way.tests_process = true,
        _ => way.tests_other = true,
    }
    way.numbers.extend(numbers(10).map(|numbers| (id, numbers)));
    way
}

fn types(names: &[&str]) -> Option<BTreeSet<String>> {
    Some(names.iter().map(|&name| name.to_owned()).collect())
}

/// Syscalls of all ABIs that a value of `SYSCALL` or `syscall` is.
fn syscalls(field: &str, value: &str) -> Vec<SyscallId> {
    let of = |arch| {
        let syscall = match field {
            "SYSCALL" => table::syscall_number(arch, value.as_bytes())?,
            _ => Syscall(value.parse().ok()?),
        };
        Some(SyscallId { arch, syscall })
    };
    NativeArch::BUILD
        .abis()
        .into_iter()
        .filter_map(of)
        .collect()
}

/// Whether the argument of a syscall can be a value: it is written in hex.
fn can_be_hex(value: &SigmaValue) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match value {
        SigmaValue::String(text) => text.parts.iter().all(|part| match part {
            StringPart::Plain(text) => is_hex(text),
            StringPart::Special(_) => true,
        }),
        SigmaValue::Integer(number) => *number >= 0,
        _ => true,
    }
}

/// Whether only events that have the field can satisfy the test.
fn is_positive(item: &DetectionItem) -> bool {
    let mut modifiers = item.field.modifiers.iter();
    let is_text = |value: &SigmaValue| match value {
        SigmaValue::String(text) => !text.original.is_empty(),
        SigmaValue::Null => false,
        SigmaValue::Integer(_) | SigmaValue::Float(_) | SigmaValue::Bool(_) => true,
    };
    !item.values.is_empty()
        && item.values.iter().all(is_text)
        && !modifiers.any(|modifier| {
            matches!(
                modifier,
                Modifier::Exists | Modifier::Neq | Modifier::FieldRef
            )
        })
}

/// Whether values are compared as they are written, wildcards included.
fn is_whole(item: &DetectionItem) -> bool {
    let mut modifiers = item.field.modifiers.iter();
    modifiers.all(|modifier| matches!(modifier, Modifier::Cased | Modifier::All))
}

/// Whether the plain text of values is in each field that satisfies the test.
fn is_about_text(item: &DetectionItem) -> bool {
    let mut modifiers = item.field.modifiers.iter();
    modifiers.all(|modifier| {
        matches!(
            modifier,
            Modifier::Cased
                | Modifier::All
                | Modifier::Contains
                | Modifier::StartsWith
                | Modifier::EndsWith
        )
    })
}

/// The values of a field that satisfies the test; `None` if others do too.
fn exact(item: &DetectionItem) -> Option<Vec<String>> {
    let text = |value: &SigmaValue| match value {
        SigmaValue::String(text) => text.as_plain(),
        SigmaValue::Integer(number) => Some(number.to_string()),
        SigmaValue::Bool(value) => Some(value.to_string()),
        SigmaValue::Float(_) | SigmaValue::Null => None,
    };
    let values: Option<Vec<String>> = item.values.iter().map(text).collect();
    values.filter(|values| is_whole(item) && !values.is_empty())
}

/// Where names are that satisfy the test.
fn places(item: &DetectionItem) -> BTreeSet<Place> {
    let is_whole = is_whole(item);
    let mut modifiers = item.field.modifiers.iter();
    let has_start = modifiers.all(|modifier| {
        matches!(
            modifier,
            Modifier::Cased | Modifier::All | Modifier::StartsWith
        )
    });
    let place = |value: &SigmaValue| match value {
        SigmaValue::String(text) if has_start => match (text.parts.as_slice(), is_whole) {
            ([StringPart::Plain(text)], true) => Place::at(text),
            ([StringPart::Plain(text), ..], _) => Place::starting_with(text),
            _ => Place::Anywhere,
        },
        _ => Place::Anywhere,
    };
    let places: BTreeSet<Place> = item.values.iter().map(place).collect();
    match places.contains(&Place::Anywhere) {
        true => BTreeSet::from([Place::Anywhere]),
        false => places,
    }
}
