//! Prints rules as `auditctl -l` does.
//!
//! The output cannot always be parsed again: values are not escaped, file types are numbers, and archs are only
//! `b64` or `b32`.

use bstr::BString;

use super::field::{self, ValueKind};
use super::{Action, Dialect, Field, FieldTest, List, Op, Rule, SyscallMask, Value, perm};
use crate::ids::{Arch, MsgType, Syscall};
use crate::table;

/// Prints a rule as `auditctl -l` does, without the newline: action and list, arch, syscalls, conditions, keys.
/// `native` is the arch for syscall names if the rule has none.
///
/// # Source
/// `print_rule()` in `src/auditctl-listing.c` of audit-userspace 3.0.9 and 4.2.1.
#[must_use]
pub fn print(rule: &Rule, native: Arch, dialect: Dialect) -> BString {
    let mut out = Vec::new();
    if is_like_a_watch(rule) {
        watch(rule, &mut out);
    } else {
        full(rule, native, dialect, &mut out);
    }
    out.into()
}

/// Prints rules as `auditctl -l` does, one per line. A rule without arch is printed with the syscall names of
/// the arch of the previous rule that had one, as in `auditctl`.
///
/// # Source
/// `_audit_elf` in `src/auditctl-listing.c` of audit-userspace 3.0.9; observed in the end-to-end test `stock`.
#[must_use]
pub fn listing<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    native: Arch,
    dialect: Dialect,
) -> Vec<u8> {
    let (mut out, mut arch) = (Vec::new(), native);
    for rule in rules {
        out.extend_from_slice(&print(rule, arch, dialect));
        out.push(b'\n');
        let stated = rule.fields.iter().filter(|test| test.field == Field::Arch);
        if let Some(&Value::Number(number)) = stated.map(|test| &test.value).next_back() {
            arch = Arch(number);
        }
    }
    out
}

/// Whether `auditctl` lists the rule as a watch. It checks neither the action nor the operators.
///
/// # Source
/// `is_watch()` in `src/auditctl-listing.c` of audit-userspace 3.0.9 and 4.2.1.
fn is_like_a_watch(rule: &Rule) -> bool {
    let is_watched = |test: &FieldTest| {
        matches!(test.field, Field::Perm | Field::Path | Field::Dir)
            && !matches!(test.value, Value::Field(_))
    };
    let for_syscalls = matches!(rule.list, List::Exit | List::IoUring);
    rule.fields.iter().all(is_watched)
        && rule.fields.iter().any(|test| test.field == Field::Perm)
        && (!for_syscalls || rule.syscalls.is_all())
}

/// First `io_uring` operation that `auditctl` does not list: it was built for a kernel without it.
const URING_LIST_END: u32 = 37;

/// Prints `-w PATH -p PERMS -k KEY`, in the order of the fields.
fn watch(rule: &Rule, out: &mut Vec<u8>) {
    for test in &rule.fields {
        match &test.value {
            Value::Text(path) => {
                out.extend(b"-w ");
                out.extend_from_slice(path);
            }
            Value::Number(bits) => {
                out.extend(b" -p ");
                push_perms(*bits, out);
            }
            Value::Field(_) => {}
        }
    }
    push_keys(rule, b" -k ", out);
}

fn full(rule: &Rule, native: Arch, dialect: Dialect, out: &mut Vec<u8>) {
    out.extend(b"-a ");
    out.extend(match rule.action {
        Action::Always => &b"always,"[..],
        Action::Never => b"never,",
    });
    out.extend(rule.list.name().as_bytes());
    let mut arch = native;
    for test in &rule.fields {
        if let (Field::Arch, &Value::Number(number)) = (test.field, &test.value) {
            condition(test, dialect, out);
            arch = Arch(number);
        }
    }
    if matches!(rule.list, List::Exit | List::IoUring) {
        syscalls(rule, arch, dialect, out);
    }
    for test in &rule.fields {
        if test.field != Field::Arch {
            condition(test, dialect, out);
        }
    }
    push_keys(rule, b" -F key=", out);
}

fn push_keys(rule: &Rule, option: &[u8], out: &mut Vec<u8>) {
    for key in &rule.keys {
        out.extend_from_slice(option);
        out.extend_from_slice(key);
    }
}

fn syscalls(rule: &Rule, arch: Arch, dialect: Dialect, out: &mut Vec<u8>) {
    if rule.syscalls.is_all() {
        out.extend(b" -S all");
        return;
    }
    let end = match rule.list {
        List::IoUring => URING_LIST_END,
        _ => SyscallMask::LIMIT,
    };
    let mut separator = &b" -S "[..];
    for number in (0..end).filter(|&number| rule.syscalls.contains(number)) {
        out.extend(separator);
        separator = b",";
        let name = match rule.list {
            List::IoUring => table::uring_op_name(number),
            _ => table::listed_syscall_name(arch, Syscall(number), dialect),
        };
        push_name_or_number(name, number, out);
    }
}

fn condition(test: &FieldTest, dialect: Dialect, out: &mut Vec<u8>) {
    let is_pair = matches!(test.value, Value::Field(_));
    out.extend(if is_pair { b" -C " } else { b" -F " });
    out.extend(field::name(test.field).as_bytes());
    // Version 3 prints `=` for paths, regardless of the operator.
    let is_path = matches!(test.field, Field::Path | Field::Dir | Field::Exe);
    let op = if is_path && dialect == Dialect::V3 {
        Op::Equal
    } else {
        test.op
    };
    out.extend(field::operator(op).as_bytes());
    match &test.value {
        Value::Field(other) => out.extend(field::name(*other).as_bytes()),
        Value::Text(text) => out.extend_from_slice(text),
        Value::Number(number) => push_number(test.field, *number, dialect, out),
    }
}

fn push_number(field: Field, number: u32, dialect: Dialect, out: &mut Vec<u8>) {
    match field::spec(field).map(|spec| spec.kind) {
        Some(ValueKind::Arch) => push_arch(Arch(number), out),
        Some(ValueKind::Perm) => push_perms(number, out),
        Some(ValueKind::MsgType) => {
            let name = u16::try_from(number)
                .ok()
                .map(MsgType)
                .and_then(table::msg_type_name);
            push_name_or_number(name, number, out);
        }
        Some(ValueKind::FsType) => {
            push_name_or_number(table::fs_type_name(number, dialect), number, out);
        }
        Some(ValueKind::Exit) => push_exit(number.cast_signed(), out),
        Some(ValueKind::Argument) => {
            out.extend(format!("{number:#X}").replace("0X", "0x").as_bytes());
        }
        Some(ValueKind::Low32) => out.extend(number.to_string().as_bytes()),
        // Includes file types, which are parsed by name and listed by number.
        _ => out.extend(number.cast_signed().to_string().as_bytes()),
    }
}

fn push_exit(value: i32, out: &mut Vec<u8>) {
    match value.checked_neg().and_then(table::errno_name) {
        Some(name) => {
            out.push(b'-');
            out.extend(name.as_bytes());
        }
        None => out.extend(value.to_string().as_bytes()),
    }
}

fn push_arch(arch: Arch, out: &mut Vec<u8>) {
    if table::arch_name(arch).is_none() {
        out.extend(format!("{:#X}", arch.0).replace("0X", "0x").as_bytes());
    } else if arch.is_64_bit() {
        out.extend(b"b64");
    } else {
        out.extend(b"b32");
    }
}

fn push_perms(bits: u32, out: &mut Vec<u8>) {
    for (bit, letter) in [
        (perm::READ, b'r'),
        (perm::WRITE, b'w'),
        (perm::EXEC, b'x'),
        (perm::ATTR, b'a'),
    ] {
        if bits & bit != 0 {
            out.push(letter);
        }
    }
}

fn push_name_or_number(name: Option<&str>, number: u32, out: &mut Vec<u8>) {
    match name {
        Some(name) => out.extend(name.as_bytes()),
        None => out.extend(number.cast_signed().to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests;
