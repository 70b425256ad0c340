//! Interprets the values of fields for people, as `ausearch --interpret` does.
//!
//! # Source
//! Behaviour of `auparse` 4.2.1; the names are those of the kernel's headers in [`names`].

pub(crate) mod address;
mod arguments;
mod field_type;
mod flags;
pub(crate) mod names;
mod numbers;
mod system;
mod tty;

use audit::ids::{Arch, Dialect, Syscall};
use audit::table;
use bstr::ByteSlice as _;

use crate::accounts::{Accounts, Translations};
use crate::ctext::{self, hex_digit, low_32, until_nul};
use crate::escape::Escape;

pub(crate) use field_type::{FieldType, is_hex, of_field};
pub(crate) use numbers::{message, syscall_number};
pub(crate) use tty::keystrokes;

/// Separator of several keys.
pub(crate) const KEY_SEPARATOR: u8 = 1;

/// Whose syscalls a number means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Nothing is known.
    #[default]
    Unknown,
    /// An arch that the tools know.
    Arch(Arch),
    /// Operations of `io_uring`.
    Uring,
}

impl Machine {
    /// The machine with an arch in the audit system's numbering.
    pub(crate) fn of_arch(arch: u32) -> Self {
        match table::arch_name(Arch(arch)) {
            Some(_) => Self::Arch(Arch(arch)),
            None => Self::Unknown,
        }
    }

    /// Name of a syscall.
    pub(crate) fn syscall_name(self, number: i32) -> Option<&'static str> {
        let number = u32::try_from(number).ok()?;
        match self {
            Self::Unknown => None,
            Self::Arch(arch) => table::listed_syscall_name(arch, Syscall(number), Dialect::V4),
            Self::Uring => table::uring_op_name(number),
        }
    }
}

/// A field and what its value depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'f> {
    pub(crate) name: &'f [u8],
    pub(crate) value: &'f [u8],
    pub(crate) machine: Machine,
    pub(crate) syscall: i32,
    /// The first two arguments of the syscall.
    pub(crate) arguments: [u64; 2],
    /// The working directory, to which names are joined.
    pub(crate) cwd: Option<&'f [u8]>,
    /// The netfilter family of the event, for hooks.
    pub(crate) family: Option<&'f [u8]>,
}

/// Interprets values.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) accounts: Accounts,
    pub(crate) escape: Escape,
    /// The arch of this host.
    pub(crate) host: Machine,
    protocols: system::Protocols,
    /// The last `fan_type`, which says what `fan_info` is.
    fan_type: u8,
}

impl Interpreter {
    pub(crate) fn new(escape: Escape, host: Machine) -> Self {
        Self {
            accounts: Accounts::default(),
            escape,
            host,
            protocols: system::Protocols::default(),
            fan_type: 0,
        }
    }

    /// The value of a field for people.
    pub(crate) fn value(
        &mut self,
        kind: FieldType,
        field: &Field<'_>,
        names: &Translations,
    ) -> Vec<u8> {
        if let Some(name) = names.get(field.name) {
            // What the daemon did not know may be known now.
            if !name.starts_with(b"unknown-") {
                return match kind {
                    FieldType::Uid | FieldType::Gid => decode_text(name),
                    _ => name.to_vec(),
                };
            }
        }
        if kind == FieldType::TtyData {
            // What is too short is no text that could be escaped.
            let typed = keystrokes(field.value);
            return typed.map_or_else(|| b"(null)".to_vec(), |typed| self.escape.text(&typed));
        }
        let text = self.interpret(kind, field);
        self.escaped(kind, &text)
    }

    fn escaped(&self, kind: FieldType, text: &[u8]) -> Vec<u8> {
        if kind != FieldType::EscapedKey || !text.contains(&KEY_SEPARATOR) {
            return self.escape.text(text);
        }
        let keys = text.split(|&byte| byte == KEY_SEPARATOR);
        let escaped: Vec<Vec<u8>> = keys.map(|key| self.escape.text(key)).collect();
        escaped.join(&[KEY_SEPARATOR][..])
    }

    fn interpret(&mut self, kind: FieldType, field: &Field<'_>) -> Vec<u8> {
        let value = field.value;
        match kind {
            FieldType::Uid => self.uid(value, 10),
            FieldType::Gid => self.gid(value, 10),
            FieldType::Syscall => self.syscall(field),
            FieldType::Arch => arch(value, field.machine),
            FieldType::Exit => numbers::exit(value),
            FieldType::Escaped | FieldType::EscapedFile => in_directory(value, field.cwd),
            FieldType::EscapedKey => decode_text(value),
            FieldType::Perm => flags::perm(value),
            FieldType::Mode => flags::mode(value, 8),
            FieldType::ModeShort => flags::mode_short(value, 8),
            FieldType::SockAddr => address::interpret(value),
            FieldType::Promiscuous => numbers::promiscuous(value),
            FieldType::Capability => numbers::capability(value, 10),
            FieldType::Success => numbers::success(value),
            FieldType::A0 => self.a0(field),
            FieldType::A1 => self.a1(field),
            FieldType::A2 => self.a2(field),
            FieldType::A3 => arguments::a3(field),
            FieldType::Signal => numbers::signal(value, 10),
            FieldType::List => numbers::filter_list(value),
            FieldType::Session => numbers::session(value),
            FieldType::CapBitmap => flags::capabilities(value),
            FieldType::NfProto => numbers::netfilter_protocol(value),
            FieldType::IcmpType => numbers::icmp_type(value),
            FieldType::Protocol => self.protocol(value),
            FieldType::Personality => numbers::personality(value),
            FieldType::Seccomp => numbers::seccomp(value),
            FieldType::OFlag => flags::open(value, 0),
            FieldType::Mmap => flags::mmap(value),
            FieldType::Proctitle => proctitle(value),
            FieldType::Hook => numbers::hook(value, field.family),
            FieldType::NetAction => numbers::net_action(value),
            FieldType::MacProto => numbers::ethernet_protocol(value),
            FieldType::IoctlReq => numbers::ioctl(value),
            FieldType::Fanotify => numbers::fanotify(value),
            FieldType::NlMcGroup => numbers::netlink_group(value),
            FieldType::Resolve => flags::resolve(value),
            FieldType::Trust => numbers::trust(value),
            FieldType::FanType => self.fan_type(value),
            FieldType::FanInfo => self.fan_info(value),
            FieldType::Errno => numbers::errno(value),
            FieldType::Address
            | FieldType::MacLabel
            | FieldType::TtyData
            | FieldType::Unclassified => value.to_vec(),
        }
    }

    fn uid(&mut self, value: &[u8], base: u32) -> Vec<u8> {
        let Some(uid) = numbers::read(value, base) else {
            return numbers::conversion_error(value);
        };
        self.user_name(low_32(uid))
    }

    /// Name of a user.
    pub(crate) fn user_name(&mut self, uid: u32) -> Vec<u8> {
        match uid {
            u32::MAX => b"unset".to_vec(),
            0 => b"root".to_vec(),
            _ => account(self.accounts.user(uid), uid),
        }
    }

    fn gid(&mut self, value: &[u8], base: u32) -> Vec<u8> {
        let Some(gid) = numbers::read(value, base) else {
            return numbers::conversion_error(value);
        };
        match low_32(gid) {
            u32::MAX => b"unset".to_vec(),
            0 => b"root".to_vec(),
            gid => account(self.accounts.group(gid), gid),
        }
    }

    fn syscall(&self, field: &Field<'_>) -> Vec<u8> {
        let machine = match field.machine {
            Machine::Unknown => self.host,
            known => known,
        };
        let Some(name) = machine.syscall_name(field.syscall) else {
            return format!("unknown-syscall({})", field.syscall).into_bytes();
        };
        let function = multiplexed(name, field.arguments[0]);
        match function {
            Some(function) => format!("{name}({function})").into_bytes(),
            None => name.into(),
        }
    }

    fn protocol(&mut self, value: &[u8]) -> Vec<u8> {
        let Some(number) = numbers::read(value, 10) else {
            return numbers::conversion_error(value);
        };
        match self.protocols.name(ctext::low_i32(number)) {
            Some(name) => name.to_vec(),
            None => b"undefined protocol".to_vec(),
        }
    }

    fn fan_type(&mut self, value: &[u8]) -> Vec<u8> {
        let (kind, name) = match value {
            b"0" => (0, "none"),
            b"1" => (1, "rule_info"),
            _ => (2, "unknown"),
        };
        self.fan_type = kind;
        name.into()
    }

    fn fan_info(&self, value: &[u8]) -> Vec<u8> {
        if self.fan_type != 1 {
            return value.to_vec();
        }
        match numbers::read(value, 16) {
            Some(rule) => rule.to_string().into_bytes(),
            None => numbers::conversion_error(value),
        }
    }
}

/// The call that a multiplexed syscall stands for.
pub(crate) fn multiplexed(syscall: &str, a0: u64) -> Option<&'static str> {
    let calls = match syscall {
        "socketcall" => names::SOCKET_CALLS,
        "ipc" => names::IPC_CALLS,
        _ => return None,
    };
    let number = i32::try_from(a0.cast_signed()).ok()?;
    names::find(calls, i64::from(number))
}

fn account(name: Option<&[u8]>, id: u32) -> Vec<u8> {
    match name {
        Some(name) => name.to_vec(),
        None => format!("unknown({})", id.cast_signed()).into_bytes(),
    }
}

fn arch(value: &[u8], machine: Machine) -> Vec<u8> {
    let machine = match machine {
        Machine::Unknown => match numbers::read(value, 16) {
            Some(arch) => Machine::of_arch(low_32(arch)),
            None => return [b"conversion error(", value, b") "].concat(),
        },
        known => known,
    };
    match machine {
        Machine::Unknown => [b"unknown-elf-type(", value, b")"].concat(),
        Machine::Arch(arch) => table::arch_name(arch).unwrap_or_default().into(),
        Machine::Uring => b"uring".to_vec(),
    }
}

/// Text of an untrusted string; what is neither quoted nor hex is itself.
pub(crate) fn decode_text(value: &[u8]) -> Vec<u8> {
    until_nul(&decode_bytes(value)).to_vec()
}

/// As [`decode_text`], with the NULs and what follows them.
fn decode_bytes(value: &[u8]) -> Vec<u8> {
    if let Some(quoted) = value.strip_prefix(b"\"") {
        return match quoted.find_byte(b'"') {
            Some(end) => quoted.get(..end).unwrap_or_default().to_vec(),
            None => b" ".to_vec(),
        };
    }
    // Two zeros begin the name of an abstract socket.
    let hex = value.strip_prefix(b"00").unwrap_or(value);
    unescape(hex).unwrap_or_else(|| value.to_vec())
}

/// Bytes of the hex digits at the start of a text. A text in parentheses is itself.
pub(crate) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    if text.first() == Some(&b'(') {
        let end = text.find_byte(b')')?;
        return text.get(..=end).map(<[u8]>::to_vec);
    }
    let digits = text
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    if digits < 2 {
        return None;
    }
    let pairs = text.get(..digits)?.chunks(2);
    Some(
        pairs
            .map(|pair| match *pair {
                [high, low] => {
                    (hex_digit(high).unwrap_or_default() << 4) | hex_digit(low).unwrap_or_default()
                }
                _ => 0,
            })
            .collect(),
    )
}

/// A name, joined to the working directory if it is relative, and without `..`.
fn in_directory(value: &[u8], cwd: Option<&[u8]>) -> Vec<u8> {
    let name = decode_text(value);
    let Some(cwd) = cwd else {
        return name;
    };
    let path = if name.first() == Some(&b'/') {
        name
    } else {
        [&decode_text(cwd)[..], b"/", &name].concat()
    };
    if path.contains_str("..") {
        normalized(&path)
    } else {
        path
    }
}

/// A path without `.`, `..` and doubled slashes.
fn normalized(path: &[u8]) -> Vec<u8> {
    const PATH_MAX: usize = 4096;
    if path.first() == Some(&b'.') {
        return path.to_vec();
    }
    let mut normal = Vec::new();
    for name in path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
    {
        match name {
            b"." => {}
            b".." => {
                while normal.last().is_some_and(|&byte| byte != b'/') {
                    normal.pop();
                }
            }
            _ => {
                let slash = usize::from(normal.last() != Some(&b'/'));
                let room = PATH_MAX - normal.len();
                if slash >= room || name.len() >= room - slash {
                    break;
                }
                if slash == 1 {
                    normal.push(b'/');
                }
                normal.extend_from_slice(name);
            }
        }
    }
    normal
}

/// A command line, whose arguments NULs end.
fn proctitle(value: &[u8]) -> Vec<u8> {
    if value.first() == Some(&b'"') {
        return decode_text(value);
    }
    let mut whole = decode_bytes(value);
    let length = value.len() / 2;
    whole.resize(whole.len().max(length), 0);
    let mut title: Vec<u8> = whole
        .iter()
        .enumerate()
        .map(|(at, &byte)| if byte == 0 && at < length { b' ' } else { byte })
        .collect();
    title.truncate(until_nul(&title).len());
    title
}
