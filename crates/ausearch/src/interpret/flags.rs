//! Values that are sets of bits.

use audit::table;

use super::names::{self, find};
use super::numbers::{conversion_error, hex, read};
use crate::ctext::low_32;

/// Names of the bits that are set, with `|` between them.
fn joined(bits: u64, table: &[(i64, &'static str)]) -> String {
    let names: Vec<&str> = table
        .iter()
        .filter(|&&(bit, _)| bits & bit.cast_unsigned() != 0)
        .map(|&(_, name)| name)
        .collect();
    names.join("|")
}

/// As [`joined`]; the value in hex if no bit has a name.
fn bits(value: &[u8], table: &[(i64, &'static str)]) -> Vec<u8> {
    bits_after(value, 16, table, |_| None)
}

/// As [`bits`], after the name that `first` has for the number.
fn bits_after(
    value: &[u8],
    base: u32,
    table: &[(i64, &'static str)],
    first: impl FnOnce(u64) -> Option<&'static str>,
) -> Vec<u8> {
    let Some(number) = read(value, base) else {
        return conversion_error(value);
    };
    let rest = joined(number, table);
    match (first(number), rest.as_str()) {
        (None, "") => hex(value),
        (None, _) => rest.into_bytes(),
        (Some(first), "") => first.into(),
        (Some(first), _) => format!("{first}|{rest}").into_bytes(),
    }
}

pub(super) fn open(value: &[u8], base: u32) -> Vec<u8> {
    bits_after(value, base, names::OPEN_FLAGS, |flags| {
        (flags & 3 == 0).then_some("O_RDONLY")
    })
}

pub(super) fn xattr_at(value: &[u8]) -> Vec<u8> {
    // The number is an `unsigned int`.
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let text = joined(u64::from(low_32(number)), names::XATTR_AT_FLAGS);
    if text.is_empty() {
        hex(value)
    } else {
        text.into_bytes()
    }
}

pub(super) fn clone(value: &[u8]) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let flags = low_32(number);
    let mut text = joined(u64::from(flags), names::CLONE_FLAGS);
    let signal = flags & 0xff;
    if (1..32).contains(&signal)
        && let Some(name) = find(names::SIGNALS, i64::from(signal))
    {
        if !text.is_empty() {
            text.push('|');
        }
        text.push_str(name);
    }
    if text.is_empty() {
        return format!("0x{flags:x}").into_bytes();
    }
    text.into_bytes()
}

/// Protection of memory; `PROT_SEM` is one of `mmap` only.
pub(super) fn protection(value: &[u8], is_mmap: bool) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    if number & 7 == 0 {
        return b"PROT_NONE".to_vec();
    }
    let count = if is_mmap { 4 } else { 3 };
    joined(number, names::PROTECTIONS.get(..count).unwrap_or_default()).into_bytes()
}

pub(super) fn mmap(value: &[u8]) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let number = u64::from(low_32(number));
    let rest = joined(number, names::MMAP_FLAGS);
    match (number & 0xf == 0, rest.as_str()) {
        (true, "") => b"MAP_FILE".to_vec(),
        (true, _) => format!("MAP_FILE|{rest}").into_bytes(),
        (false, "") => hex(value),
        (false, _) => rest.into_bytes(),
    }
}

pub(super) fn mount(value: &[u8]) -> Vec<u8> {
    bits_32(value, names::MOUNT_FLAGS)
}

pub(super) fn umount(value: &[u8]) -> Vec<u8> {
    bits_32(value, names::UMOUNT_FLAGS)
}

pub(super) fn receive(value: &[u8]) -> Vec<u8> {
    bits_32(value, names::MESSAGE_FLAGS)
}

/// As [`bits`], of a number of 32 bits.
fn bits_32(value: &[u8], table: &[(i64, &'static str)]) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let text = joined(u64::from(low_32(number)), table);
    if text.is_empty() {
        hex(value)
    } else {
        text.into_bytes()
    }
}

pub(super) fn access_mode(value: &[u8]) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    if number & 0xf == 0 {
        return b"F_OK".to_vec();
    }
    bits(value, names::ACCESS_MODES.get(..3).unwrap_or_default())
}

pub(super) fn access_flags(value: &[u8]) -> Vec<u8> {
    bits(value, names::ACCESS_FLAGS)
}

pub(super) fn resolve(value: &[u8]) -> Vec<u8> {
    bits(value, names::OPENAT2_RESOLVE)
}

/// Flags and mode of a shared memory segment.
pub(super) fn shared_memory(value: &[u8]) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let flags = u64::from(low_32(number));
    let commands = joined(flags & 0o3000, names::IPC_COMMANDS);
    let modes = joined(flags & 0o14_000, names::SHM_MODES);
    let permissions = String::from_utf8_lossy(&short(low_32(flags & 0o777))).into_owned();
    let parts: Vec<String> = [commands, modes, permissions]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("|").into_bytes()
}

/// Permissions of a watch. None means all.
pub(super) fn perm(value: &[u8]) -> Vec<u8> {
    let (number, read) = crate::ctext::signed(value, 10);
    if read.overflow {
        return conversion_error(value);
    }
    let number = match low_32(number.cast_unsigned()) {
        0 => 0xf,
        number => number,
    };
    let names: Vec<&str> = [(4, "read"), (2, "write"), (1, "exec"), (8, "attr")]
        .into_iter()
        .filter(|&(bit, _)| number & bit != 0)
        .map(|(_, name)| name)
        .collect();
    names.join(",").into_bytes()
}

/// File type and permissions.
pub(super) fn mode(value: &[u8], base: u32) -> Vec<u8> {
    const FORMAT: u32 = 0o170_000;
    let Some(number) = read(value, base) else {
        return conversion_error(value);
    };
    let mode = low_32(number);
    let format = mode & FORMAT;
    let name = table::file_type_names()
        .find(|name| table::file_type_number(name.as_bytes()) == Some(format));
    let mut text = match name {
        Some(name) => name.to_owned(),
        None => format!("{:03o}", format >> 12),
    };
    for (bit, name) in [(0o4000, ",suid"), (0o2000, ",sgid"), (0o1000, ",sticky")] {
        if mode & bit != 0 {
            text.push_str(name);
        }
    }
    format!("{text},{:03o}", mode & 0o777).into_bytes()
}

/// Permissions without a file type.
pub(super) fn mode_short(value: &[u8], base: u32) -> Vec<u8> {
    match read(value, base) {
        Some(number) => short(low_32(number)),
        None => conversion_error(value),
    }
}

fn short(mode: u32) -> Vec<u8> {
    let special: Vec<&str> = [(0o4000, "suid"), (0o2000, "sgid"), (0o1000, "sticky")]
        .into_iter()
        .filter(|&(bit, _)| mode & bit != 0)
        .map(|(_, name)| name)
        .collect();
    let permissions = mode & 0o777;
    if special.is_empty() {
        format!("0{permissions:03o}").into_bytes()
    } else {
        format!("{},0{permissions:03o}", special.join(",")).into_bytes()
    }
}

/// A set of capabilities.
pub(super) fn capabilities(value: &[u8]) -> Vec<u8> {
    const LAST: u32 = 40;
    let Some(set) = read(value, 16) else {
        return conversion_error(value);
    };
    let held: Vec<&str> = (0..=LAST)
        .filter(|bit| set >> bit & 1 == 1)
        .map(|bit| find(names::CAPABILITIES, i64::from(bit)).unwrap_or_default())
        .collect();
    if held.is_empty() {
        b"none".to_vec()
    } else {
        held.join(",").into_bytes()
    }
}
