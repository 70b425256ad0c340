//! Enriches lines: appends the names of numeric ids on the host that wrote them.
//!
//! ```text
//! type=SYSCALL msg=audit(...): arch=c000003e syscall=257 ... uid=33 ...\x1dARCH=x86_64 SYSCALL=openat UID="www-data"
//! ```
//!
//! The enrichment begins with the byte 0x1d. It repeats each field that holds a user, a group, an arch, a
//! syscall or a socket address, in record order, with the name in capitals. It ends before the first field
//! that does not fit.
//!
//! # Source
//! `format_enrich` in `src/auditd-event.c`, `parse_up_record` in `auparse/ellist.c` and
//! `auparse/interpret.c`, audit-userspace 3.0.9. Three differences are intended: control characters in socket
//! paths are encoded as hex, a syscall has its name at any position in the record, and fields are dropped
//! rather than truncated.

mod address;

use bstr::ByteSlice as _;

use super::quote;
use crate::ids::{Arch, NativeArch, Syscall};
use crate::table;

/// Byte that ends the kernel's text.
const SEPARATOR: u8 = 0x1d;

/// Looks up users and groups of this host.
pub trait AccountLookup {
    /// Name of a user.
    fn user(&mut self, uid: u32) -> Option<&[u8]>;
    /// Name of a group.
    fn group(&mut self, gid: u32) -> Option<&[u8]>;
}

/// Kind of a field that is enriched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    User,
    Group,
    Arch,
    Syscall,
    Address,
}

/// Appends `line`, which has no newline, and an enrichment of at most `limit_bytes` bytes.
pub fn line(line: &[u8], limit_bytes: usize, accounts: &mut impl AccountLookup, out: &mut Vec<u8>) {
    out.extend_from_slice(line);
    let record_type = record_type(line);
    // These types have no such field and are half of all records.
    if matches!(record_type, b"PROCTITLE" | b"CWD" | b"EXECVE" | b"EOE") {
        return;
    }
    let mut enrichment = Enrichment {
        end: out.len().saturating_add(limit_bytes),
        out,
        has_fields: false,
        full: false,
    };
    let mut arch = None;
    for (name, value) in fields(line) {
        if enrichment.full {
            return;
        }
        let Some(kind) = kind(name, record_type) else {
            continue;
        };
        let value = trim_punctuation(value);
        match kind {
            FieldKind::User => enrichment.account(name, value, |id| accounts.user(id)),
            FieldKind::Group => enrichment.account(name, value, |id| accounts.group(id)),
            FieldKind::Arch => {
                arch = hex_number(value).map(Arch);
                enrichment.plain(name, |out| arch_name(arch, value, out));
            }
            FieldKind::Syscall => {
                enrichment.plain(name, |out| syscall_name(arch, value, line, out));
            }
            FieldKind::Address => enrichment.plain(name, |out| address::interpret(value, out)),
        }
    }
}

/// Name of the record type.
fn record_type(line: &[u8]) -> &[u8] {
    let line = match line.strip_prefix(b"node=") {
        Some(rest) => rest.split_once_str(b" ").map_or(rest, |(_, rest)| rest),
        None => line,
    };
    let line = line.strip_prefix(b"type=").unwrap_or_default();
    line.split_once_str(b" ").map_or(line, |(name, _)| name)
}

/// Iterates over `name=value` words. Skips the stamp and enters the quoted text of programs.
fn fields(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|&byte| byte == b' ').filter_map(|word| {
        let at = word.find_byte(b'=')?;
        let (name, value) = word.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        let (name, value) = match (name, value.split_first()) {
            (b"msg", Some((b'\'', text))) => {
                let at = text.find_byte(b'=')?;
                (text.get(..at)?, text.get(at + 1..)?)
            }
            _ => (name, value),
        };
        let name = name.strip_prefix(b"(").unwrap_or(name);
        (!value.is_empty()).then_some((name, value))
    })
}

/// Returns the kind of a field, if it is enriched.
///
/// # Source
/// `auparse/typetab.h` and `auparse_interp_adjust_type`, audit-userspace 3.0.9.
fn kind(name: &[u8], record_type: &[u8]) -> Option<FieldKind> {
    Some(match name {
        b"auid" | b"uid" | b"euid" | b"suid" | b"fsuid" | b"ouid" | b"oauid" | b"old-auid"
        | b"iuid" | b"inode_uid" | b"sauid" | b"obj_uid" => FieldKind::User,
        b"gid" | b"egid" | b"sgid" | b"fsgid" | b"ogid" | b"igid" | b"inode_gid" | b"obj_gid"
        | b"new_gid" => FieldKind::Group,
        b"id" => match record_type {
            b"ADD_GROUP" | b"GRP_MGMT" | b"DEL_GROUP" => FieldKind::Group,
            _ => FieldKind::User,
        },
        b"arch" => FieldKind::Arch,
        b"syscall" => FieldKind::Syscall,
        b"saddr" => match record_type {
            b"AVC" | b"NETFILTER_PKT" => return None,
            _ => FieldKind::Address,
        },
        _ => return None,
    })
}

/// Removes punctuation after a value.
fn trim_punctuation(mut value: &[u8]) -> &[u8] {
    for end in b":,'" {
        value = value.strip_suffix(&[*end]).unwrap_or(value);
    }
    match value {
        b"(none)" | b"(null)" => value,
        _ => value.strip_suffix(b")").unwrap_or(value),
    }
}

/// Writes the enrichment.
struct Enrichment<'a> {
    /// Maximum length of `out`.
    end: usize,
    out: &'a mut Vec<u8>,
    /// Whether a field was written.
    has_fields: bool,
    /// Whether a field did not fit.
    full: bool,
}

impl Enrichment<'_> {
    /// Adds `NAME="value"`, or the value in hex if it needs encoding.
    fn account<'n>(
        &mut self,
        name: &[u8],
        value: &[u8],
        lookup: impl FnOnce(u32) -> Option<&'n [u8]>,
    ) {
        self.field(name, |out| {
            let Some(id) = decimal(value) else {
                let text = [b"conversion error(", value, b")"].concat();
                return quote::untrusted(&text, out);
            };
            match id {
                u32::MAX => quote::untrusted(b"unset", out),
                0 => quote::untrusted(b"root", out),
                id => match lookup(id) {
                    Some(known) => quote::untrusted(known, out),
                    None => {
                        out.extend_from_slice(b"\"unknown(");
                        super::digits::decimal(id.cast_signed(), out);
                        out.extend_from_slice(b")\"");
                    }
                },
            }
        });
    }

    /// Adds `NAME=value`.
    fn plain(&mut self, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        self.field(name, value);
    }

    fn field(&mut self, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out
            .push(if self.has_fields { b' ' } else { SEPARATOR });
        self.out.extend(name.iter().map(u8::to_ascii_uppercase));
        self.out.push(b'=');
        value(self.out);
        self.full = self.out.len() > self.end;
        if self.full {
            self.out.truncate(start);
        } else {
            self.has_fields = true;
        }
    }
}

/// Parses a number like `strtoul(3)`, truncated to an `int`; `None` on overflow.
fn decimal(value: &[u8]) -> Option<u32> {
    let (negative, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, value.strip_prefix(b"+").unwrap_or(value)),
    };
    let mut number = 0_u64;
    for digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    let number = if negative {
        number.wrapping_neg()
    } else {
        number
    };
    let [a, b, c, d, ..] = number.to_le_bytes();
    Some(u32::from_le_bytes([a, b, c, d]))
}

fn hex_number(value: &[u8]) -> Option<u32> {
    u32::from_str_radix(value.to_str().ok()?, 16).ok()
}

fn arch_name(arch: Option<Arch>, value: &[u8], out: &mut Vec<u8>) {
    match arch.and_then(table::arch_name) {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => {
            out.extend_from_slice(b"unknown-elf-type(");
            out.extend_from_slice(value);
            out.push(b')');
        }
    }
}

fn syscall_name(arch: Option<Arch>, value: &[u8], line: &[u8], out: &mut Vec<u8>) {
    let number = decimal(value).unwrap_or(u32::MAX);
    let Some(name) = table::syscall_name(arch.unwrap_or(NativeArch::BUILD.b64()), Syscall(number))
    else {
        out.extend_from_slice(b"unknown-syscall(");
        super::digits::decimal(number.cast_signed(), out);
        out.push(b')');
        return;
    };
    out.extend_from_slice(name.as_bytes());
    let calls = match name {
        "socketcall" => SOCKET_CALLS,
        "ipc" => IPC_CALLS,
        _ => return,
    };
    let a0 = fields(line)
        .find(|(name, _)| *name == b"a0")
        .and_then(|(_, a0)| hex_number(a0));
    if let Some((_, inner)) = calls.iter().find(|(number, _)| Some(*number) == a0) {
        out.push(b'(');
        out.extend_from_slice(inner.as_bytes());
        out.push(b')');
    }
}

/// Calls of `socketcall`, by its first argument.
///
/// # Source
/// `include/uapi/linux/net.h`, Linux 6.12.
const SOCKET_CALLS: &[(u32, &str)] = &[
    (1, "socket"),
    (2, "bind"),
    (3, "connect"),
    (4, "listen"),
    (5, "accept"),
    (6, "getsockname"),
    (7, "getpeername"),
    (8, "socketpair"),
    (9, "send"),
    (10, "recv"),
    (11, "sendto"),
    (12, "recvfrom"),
    (13, "shutdown"),
    (14, "setsockopt"),
    (15, "getsockopt"),
    (16, "sendmsg"),
    (17, "recvmsg"),
    (18, "accept4"),
    (19, "recvmmsg"),
    (20, "sendmmsg"),
];

/// Calls of `ipc`, by its first argument.
///
/// # Source
/// `include/uapi/linux/ipc.h`, Linux 6.12.
const IPC_CALLS: &[(u32, &str)] = &[
    (1, "semop"),
    (2, "semget"),
    (3, "semctl"),
    (4, "semtimedop"),
    (11, "msgsnd"),
    (12, "msgrcv"),
    (13, "msgget"),
    (14, "msgctl"),
    (21, "shmat"),
    (22, "shmdt"),
    (23, "shmget"),
    (24, "shmctl"),
];

#[cfg(test)]
mod tests;
