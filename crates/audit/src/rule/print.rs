//! From a rule to the text that gives it back.

use bstr::BString;

use super::field::{self, Kind};
use super::{Action, Field, FieldTest, List, Rule, SyscallMask, Value, lex, perm};
use crate::ids::{Arch, MsgType, Syscall};
use crate::table;

/// A rule as text, in the order of `auditctl -l`: action and list, arch, syscalls, conditions,
/// keys. `native` is what `b64` means, and what syscalls are named by when the rule has no arch.
///
/// Reading the text gives the rule again. A rule that `-w` can say is printed as a watch, which
/// is read as a `dir` or as a `path` by what is on disk then.
#[must_use]
pub fn print(rule: &Rule, native: Arch) -> BString {
    let mut out = Vec::new();
    if !watch(rule, &mut out) {
        full(rule, native, &mut out);
    }
    out.into()
}

/// Prints `-w PATH -p PERMS -k KEY`, when that says it all.
fn watch(rule: &Rule, out: &mut Vec<u8>) -> bool {
    let [
        FieldTest {
            field: Field::Path | Field::Dir,
            value: Value::Text(path),
            ..
        },
        second,
    ] = rule.fields.as_slice()
    else {
        return false;
    };
    let FieldTest {
        field: Field::Perm,
        value: Value::Number(bits),
        ..
    } = *second
    else {
        return false;
    };
    // `-w` strips trailing slashes, which a `dir` condition keeps, and refuses what no file system
    // can hold.
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let is_plain = path.as_slice() == b"/"
        || (path.starts_with(b"/")
            && !path.ends_with(b"/")
            && path.len() < 4096
            && name.len() <= 255);
    let is_watch = is_plain
        && rule.list == List::Exit
        && rule.action == Action::Always
        && rule.syscalls.is_all();
    if !is_watch {
        return false;
    }
    out.extend(b"-w ");
    lex::escape(path, out);
    out.extend(b" -p ");
    push_perms(bits, out);
    for key in &rule.keys {
        out.extend(b" -k ");
        lex::escape(key, out);
    }
    true
}

fn full(rule: &Rule, native: Arch, out: &mut Vec<u8>) {
    out.extend(b"-a ");
    out.extend(match rule.action {
        Action::Always => &b"always,"[..],
        Action::Never => b"never,",
    });
    out.extend(field::list_name(rule.list).as_bytes());

    // Syscalls go after the last arch, which says what their names mean.
    let last_arch = rule
        .fields
        .iter()
        .rposition(|test| test.field == Field::Arch);
    let (before, after) = rule.fields.split_at(last_arch.map_or(0, |index| index + 1));
    for test in before {
        condition(test, native, out);
    }
    if matches!(rule.list, List::Exit | List::IoUring) {
        let arch = match before.last() {
            Some(FieldTest {
                value: Value::Number(number),
                ..
            }) => Arch(*number),
            _ => native,
        };
        syscalls(&rule.syscalls, rule.list, arch, out);
    }
    for test in after {
        condition(test, native, out);
    }
    for key in &rule.keys {
        out.extend(b" -F key=");
        lex::escape(key, out);
    }
}

fn syscalls(mask: &SyscallMask, list: List, arch: Arch, out: &mut Vec<u8>) {
    out.extend(b" -S ");
    if mask.is_all() {
        out.extend(b"all");
        return;
    }
    let mut separator = &b""[..];
    for number in (0..SyscallMask::LIMIT).filter(|&number| mask.contains(number)) {
        out.extend(separator);
        let name = match list {
            List::IoUring => table::uring_op_name(number),
            _ => table::syscall_name(arch, Syscall(number)),
        };
        push_name_or_number(name, number, out);
        separator = b",";
    }
}

fn condition(test: &FieldTest, native: Arch, out: &mut Vec<u8>) {
    let is_pair = matches!(test.value, Value::Field(_));
    out.extend(if is_pair { b" -C " } else { b" -F " });
    out.extend(field::name(test.field).as_bytes());
    out.extend(field::operator(test.op).as_bytes());
    match &test.value {
        Value::Field(other) => out.extend(field::name(*other).as_bytes()),
        Value::Text(text) => lex::escape(text, out),
        Value::Number(number) => push_number(test.field, *number, native, out),
    }
}

fn push_number(field: Field, number: u32, native: Arch, out: &mut Vec<u8>) {
    let kind = field::spec(field).map_or(Kind::Unsigned, |spec| spec.kind);
    match kind {
        Kind::Arch => push_arch(Arch(number), native, out),
        Kind::Perm => push_perms(number, out),
        Kind::MsgType => {
            let name = u16::try_from(number)
                .ok()
                .map(MsgType)
                .and_then(table::msg_type_name);
            push_name_or_number(name, number, out);
        }
        Kind::FileType => push_name_or_number(table::file_type_name(number), number, out),
        Kind::FsType => push_name_or_number(table::fs_type_name(number), number, out),
        Kind::Exit => {
            let value = number.cast_signed();
            let name = value.checked_neg().and_then(table::errno_name);
            match name {
                Some(name) => {
                    out.push(b'-');
                    out.extend(name.as_bytes());
                }
                None => out.extend(value.to_string().as_bytes()),
            }
        }
        Kind::Argument => out.extend(format!("{number:#X}").replace("0X", "0x").as_bytes()),
        // The kinds whose values may carry a minus are listed with it.
        Kind::User | Kind::Session => {
            out.extend(number.cast_signed().to_string().as_bytes());
        }
        _ => out.extend(number.to_string().as_bytes()),
    }
}

fn push_arch(arch: Arch, native: Arch, out: &mut Vec<u8>) {
    if arch == native {
        out.extend(b"b64");
    } else if table::arch_32(native) == Some(arch) {
        out.extend(b"b32");
    } else {
        out.extend(format!("{arch:#x}").as_bytes());
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
        None => out.extend(number.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests;
