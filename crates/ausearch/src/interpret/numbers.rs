//! Values that are one number each.

use std::io;

use audit::ids::Dialect;
use audit::table;

use super::names::{self, find};
use crate::ctext::{self, low_32, low_i32};

/// A number in a base; `None` if it does not fit.
pub(super) fn read(value: &[u8], base: u32) -> Option<u64> {
    let number = ctext::unsigned(value, base);
    (!number.overflow).then_some(number.value)
}

/// What a number that does not fit becomes.
pub(super) fn conversion_error(value: &[u8]) -> Vec<u8> {
    wrapped("conversion error", value)
}

/// `text(value)`.
pub(super) fn wrapped(text: &str, value: &[u8]) -> Vec<u8> {
    [text.as_bytes(), b"(", value, b")"].concat()
}

/// `0xVALUE`.
pub(super) fn hex(value: &[u8]) -> Vec<u8> {
    [b"0x", value].concat()
}

/// The name of a number in `base`, or what `unknown` makes of the value and its number.
pub(super) fn named(
    value: &[u8],
    base: u32,
    table: &[(i64, &'static str)],
    unknown: impl FnOnce(&[u8], i32) -> Vec<u8>,
) -> Vec<u8> {
    let Some(number) = read(value, base) else {
        return conversion_error(value);
    };
    let number = low_i32(number);
    match find(table, i64::from(number)) {
        Some(name) => name.into(),
        None => unknown(value, number),
    }
}

/// As [`named`], with the value in hex in parentheses after `unknown`.
pub(super) fn named_hex(value: &[u8], table: &[(i64, &'static str)], unknown: &str) -> Vec<u8> {
    named(value, 16, table, |value, _| wrapped(unknown, &hex(value)))
}

pub(super) fn exit(value: &[u8]) -> Vec<u8> {
    let (number, read) = ctext::signed(value, 10);
    if read.overflow {
        return conversion_error(value);
    }
    if number >= 0 {
        return value.to_vec();
    }
    let errno = low_i32(number.wrapping_neg().cast_unsigned());
    let name = table::errno_name(errno).unwrap_or("(null)");
    format!("{name}({})", error_text(errno)).into_bytes()
}

/// The C library's text of an I/O error.
pub(crate) fn message(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => error_text(number),
        None => error.to_string(),
    }
}

/// The C library's text of an error.
fn error_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    let end = text.rfind(" (os error ").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}

pub(super) fn errno(value: &[u8]) -> Vec<u8> {
    let Some(number) = read(value, 10) else {
        return conversion_error(value);
    };
    table::errno_name(low_i32(number))
        .unwrap_or("UNKNOWN")
        .into()
}

pub(super) fn promiscuous(value: &[u8]) -> Vec<u8> {
    let (number, read) = ctext::signed(value, 10);
    if read.overflow {
        return conversion_error(value);
    }
    let is_off = low_32(number.cast_unsigned()) == 0;
    if is_off {
        b"no".to_vec()
    } else {
        b"yes".to_vec()
    }
}

pub(super) fn capability(value: &[u8], base: u32) -> Vec<u8> {
    named(value, base, names::CAPABILITIES, |value, _| {
        unknown_in_base("unknown-capability", value, base)
    })
}

pub(super) fn signal(value: &[u8], base: u32) -> Vec<u8> {
    let Some(number) = read(value, base) else {
        return conversion_error(value);
    };
    let number = low_i32(number);
    match find(names::SIGNALS, i64::from(number)).filter(|_| number < 32) {
        Some(name) => name.into(),
        None => unknown_in_base("unknown-signal", value, base),
    }
}

fn unknown_in_base(text: &str, value: &[u8], base: u32) -> Vec<u8> {
    if base == 16 {
        wrapped(text, &hex(value))
    } else {
        wrapped(text, value)
    }
}

/// A result: a number, or a word that stays.
pub(super) fn success(value: &[u8]) -> Vec<u8> {
    word_or(value, |number| match number {
        0 => "no",
        1 => "yes",
        _ => "unset",
    })
}

pub(super) fn fanotify(value: &[u8]) -> Vec<u8> {
    word_or(value, |number| match number {
        1 => "allow",
        2 => "deny",
        _ => "unknown",
    })
}

fn word_or(value: &[u8], name: impl FnOnce(i32) -> &'static str) -> Vec<u8> {
    if !value.first().is_some_and(u8::is_ascii_digit) {
        return value.to_vec();
    }
    match read(value, 10) {
        Some(number) => name(low_i32(number)).into(),
        None => conversion_error(value),
    }
}

pub(super) fn trust(value: &[u8]) -> Vec<u8> {
    let name: &[u8] = match value {
        b"0" => b"no",
        b"1" => b"yes",
        _ => b"unknown",
    };
    name.to_vec()
}

pub(super) fn session(value: &[u8]) -> Vec<u8> {
    if value == b"4294967295" {
        b"unset".to_vec()
    } else {
        value.to_vec()
    }
}

/// A filter list of rules.
pub(super) fn filter_list(value: &[u8]) -> Vec<u8> {
    named(value, 10, names::FILTER_LISTS, |value, _| {
        wrapped("unknown-list", value)
    })
}

pub(super) fn netfilter_protocol(value: &[u8]) -> Vec<u8> {
    named(value, 10, names::NETFILTER_PROTOCOLS, |value, _| {
        wrapped("unknown-netfilter-protocol", value)
    })
}

pub(super) fn icmp_type(value: &[u8]) -> Vec<u8> {
    named(value, 10, names::ICMP_TYPES, |value, _| {
        wrapped("unknown-icmp-type", value)
    })
}

pub(super) fn net_action(value: &[u8]) -> Vec<u8> {
    named(value, 16, names::NETFILTER_ACTIONS, |value, _| {
        wrapped("unknown-action", value)
    })
}

/// A netfilter hook; ARP has its own.
pub(super) fn hook(value: &[u8], family: Option<&[u8]>) -> Vec<u8> {
    const ARP: i32 = 3;
    let family = family.and_then(|family| read(family, 10)).map(low_i32);
    let table = if family == Some(ARP) {
        names::ARP_HOOKS
    } else {
        names::INET_HOOKS
    };
    named(value, 16, table, |value, _| wrapped("unknown-hook", value))
}

pub(super) fn ethernet_protocol(value: &[u8]) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let name: &[u8] = match low_32(number) {
        0x0800 => b"IP",
        0x0806 => b"ARP",
        _ => b"UNKNOWN",
    };
    name.to_vec()
}

pub(super) fn netlink_group(value: &[u8]) -> Vec<u8> {
    match read(value, 16) {
        Some(1) => b"audit-netlink-multicast".to_vec(),
        Some(_) => b"audit-none".to_vec(),
        None => conversion_error(value),
    }
}

pub(super) fn seccomp(value: &[u8]) -> Vec<u8> {
    /// The bits that are the program's own.
    const DATA: u32 = 0xffff;
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let action = low_32(number) & !DATA;
    match find(names::SECCOMP_ACTIONS, i64::from(action)) {
        Some(name) => name.into(),
        None => wrapped("unknown-seccomp-code", value),
    }
}

pub(super) fn personality(value: &[u8]) -> Vec<u8> {
    const MASK: u64 = 0xff;
    const ADDR_NO_RANDOMIZE: u64 = 0x0004_0000;
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let kind = i64::from(low_32(number & MASK));
    let Some(name) = find(names::PERSONALITIES, kind) else {
        return wrapped("unknown-personality", &hex(value));
    };
    if number & ADDR_NO_RANDOMIZE == 0 {
        name.into()
    } else {
        format!("{name}|~ADDR_NO_RANDOMIZE").into_bytes()
    }
}

pub(super) fn ioctl(value: &[u8]) -> Vec<u8> {
    named(value, 16, names::IOCTL_REQUESTS, |_, number| {
        format!("0x{number:x}").into_bytes()
    })
}

/// Number of a syscall called `name` on the arch of `--arch`, or of this host.
pub(crate) fn syscall_number(arch: audit::ids::Arch, name: &[u8]) -> Option<i32> {
    let number = table::syscall_number_in(arch, name, Dialect::V4)?;
    i32::try_from(number.0).ok()
}
