//! A whole event as an event of `process_creation`, `file_event` or `network_connection`.
//!
//! # Source
//! Sigma specification 2.0.0, "Sigma Taxonomy": the fields of these categories are those of Sysmon.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use audit::event::{Event, NameType, PathItem};
use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::Record;
use audit::record::interpret::{self, AccountNames as _};
use audit::table;
use bstr::ByteSlice as _;
use logs::accounts::Accounts;
use logs::event_values::resolved;

use super::Process;
use super::record::{decimal, with_blanks};
use crate::sigma::Source;
use crate::sigma::fields::{Fields, to_text};

/// Flags of an open that creates or writes a file.
///
/// # Source
/// `O_ACCMODE`, `O_CREAT` and `O_TRUNC` in `include/uapi/asm-generic/fcntl.h`, Linux 6.12.
const WRITES: u64 = 0o3 | 0o100 | 0o1000;

/// What decides about an event before it is decoded as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    /// Name of the syscall or of the operation of `io_uring`.
    pub(super) call: &'static str,
    pub(super) pid: u32,
    pub(super) ppid: u32,
    pub(super) success: bool,
    pub(super) exit: i64,
    /// First three arguments, in hex.
    args: [&'a [u8]; 3],
}

impl<'a> Head<'a> {
    /// What a SYSCALL or URINGOP record tells; `None` if it names no known call or no process.
    pub(super) fn of(record: &Record<'a>) -> Option<Self> {
        let (mut arch, mut number, mut op) = (None, None, None);
        let (mut pid, mut ppid, mut success, mut exit) = (None, 0, false, 0);
        let mut args: [&[u8]; 3] = [b""; 3];
        for field in record.valid_fields() {
            let value: &'a [u8] = field.value;
            match field.name.as_bytes() {
                b"arch" => arch = u32::from_str_radix(value.to_str().ok()?, 16).ok(),
                b"syscall" => number = decimal(value),
                b"uring_op" => op = decimal(value),
                b"success" => success = value == b"yes",
                b"exit" => exit = decimal(value).unwrap_or(0),
                [b'a', digit @ b'0'..=b'2'] => {
                    if let Some(arg) = args.get_mut(usize::from(digit - b'0')) {
                        *arg = value;
                    }
                }
                b"ppid" => ppid = decimal(value).unwrap_or(0),
                b"pid" => {
                    pid = decimal(value);
                    // What follows is not needed.
                    break;
                }
                _ => {}
            }
        }
        let call = match op {
            Some(op) => table::uring_op_name(op),
            None => table::syscall_name(Arch(arch?), Syscall(number?)),
        };
        Some(Self {
            call: call?,
            pid: pid?,
            ppid,
            success,
            exit,
            args,
        })
    }

    /// The log source that the call may feed.
    pub(super) fn source(&self) -> Option<Source> {
        const EINPROGRESS: i64 = -115;
        match self.call {
            "execve" | "execveat" if self.success => Some(Source::Process),
            // A connection is made in the background.
            "connect" if self.success || self.exit == EINPROGRESS => Some(Source::Network),
            "accept" | "accept4" if self.success => Some(Source::Network),
            "socketcall" if self.success || self.exit == EINPROGRESS => Some(Source::Network),
            // Most opens are to read.
            "open" if self.opens_to_read(1) => None,
            "openat" | "open_by_handle_at" if self.opens_to_read(2) => None,
            "open" | "openat" | "openat2" | "open_by_handle_at" | "creat" | "rename"
            | "renameat" | "renameat2" | "link" | "linkat" | "symlink" | "symlinkat" | "mknod"
            | "mknodat" | "truncate" | "truncate64"
                if self.success =>
            {
                Some(Source::File)
            }
            _ => None,
        }
    }

    /// Whether the flags in an argument say that a file is opened to be read; false in doubt.
    fn opens_to_read(&self, argument: usize) -> bool {
        let flags = self
            .args
            .get(argument)
            .and_then(|flags| flags.to_str().ok());
        let flags = flags.and_then(|flags| u64::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & WRITES == 0)
    }

    /// Whether a connection was made to another host; `None` if the call makes none.
    ///
    /// # Source
    /// `SYS_CONNECT`, `SYS_ACCEPT` and `SYS_ACCEPT4` in `include/uapi/linux/net.h`, Linux 6.12.
    fn is_initiated(&self) -> Option<bool> {
        let [a0, ..] = self.args;
        match (self.call, a0) {
            ("connect", _) | ("socketcall", b"3") => Some(true),
            ("accept" | "accept4", _) | ("socketcall", b"5" | b"12") => Some(false),
            _ => None,
        }
    }
}

/// Name of a user: from the enriched part of the record, else of this machine, else the number.
pub(super) fn user(event: &EventRecords, uid: u32, accounts: &Accounts) -> String {
    let mut records = event.records();
    let syscall = records.find(super::is_syscall);
    let enriched = syscall.and_then(|record| {
        let mut fields = record.enrichment().map_while(Result::ok);
        let field = fields.find(|field| field.name == "EUID")?;
        let name = field.value.trim_with(|character| character == '"');
        Some(name.to_str_lossy().into_owned())
    });
    enriched.unwrap_or_else(|| match accounts.user(uid) {
        Some(name) => name.to_owned(),
        None => uid.to_string(),
    })
}

/// Fields that all log sources have.
fn common<'a>(event: &Event<'a>, user: String) -> Fields<'a> {
    let mut fields = Fields::default();
    if let Some(exe) = event.task.exe {
        fields.bytes("Image", Cow::Borrowed(exe));
    }
    fields.text("User", user);
    fields.text("LogonId", event.task.uid.to_string());
    fields.text("ProcessId", event.task.pid.to_string());
    fields
}

/// A program that was executed.
pub(super) fn process<'a>(
    event: &Event<'a>,
    user: String,
    parent: Option<&'a Process>,
) -> Fields<'a> {
    let mut fields = common(event, user);
    fields.text("CommandLine", command_line(event));
    if let Some(cwd) = event.cwd {
        fields.bytes("CurrentDirectory", Cow::Borrowed(cwd));
    }
    fields.text("ParentProcessId", event.task.ppid.to_string());
    if let Some(parent) = parent {
        fields.text("ParentImage", &*parent.image);
        fields.text("ParentCommandLine", &*parent.command_line);
    }
    fields
}

/// The arguments of an executed program, else the beginning of them that PROCTITLE has.
pub(super) fn command_line(event: &Event<'_>) -> String {
    with_blanks(event.argv.map_or(event.proctitle, |argv| argv.bytes))
}

/// Names of the files that a call created, or opened to be written.
pub(super) fn written_files(event: &Event<'_>, records: &EventRecords) -> Vec<String> {
    let writes = opens_to_write(event, records);
    let cwd = event.cwd.filter(|_| starts_at_cwd(event));
    let mut names = Vec::new();
    for item in event.items.iter().filter(|item| is_written(item, writes)) {
        let Some(name) = item.name else {
            continue;
        };
        let name = to_text(resolved(name, cwd)).into_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a relative name is one in the working directory.
fn starts_at_cwd(event: &Event<'_>) -> bool {
    match event.uring_op {
        // Arguments of operations are not recorded.
        Some(_) => false,
        None => interpret::starts_at_cwd(event),
    }
}

fn is_written(item: &PathItem<'_>, writes: bool) -> bool {
    const S_IFMT: u32 = 0o170_000;
    const S_IFDIR: u32 = 0o040_000;
    let is_directory = item
        .inode
        .is_some_and(|inode| inode.mode & S_IFMT == S_IFDIR);
    !is_directory
        && match item.nametype {
            NameType::Create => true,
            NameType::Normal | NameType::Unknown => writes,
            _ => false,
        }
}

/// Whether a call opens what it names to be written, or truncates it. The field `oflag` of the record OPENAT2 is octal.
fn opens_to_write(event: &Event<'_>, records: &EventRecords) -> bool {
    let [_, a1, a2, _] = event.args;
    let flags = match table::syscall_name(event.arch, event.syscall) {
        Some("open") => a1,
        Some("openat" | "open_by_handle_at") => a2,
        Some("openat2") => {
            let mut records = records.records();
            let record = records.find(|record| record.kind == "OPENAT2");
            let flags = record.and_then(|record| record.field("oflag"));
            let flags = flags.and_then(|flags| flags.value.to_str().ok());
            flags.map_or(0, |flags| u64::from_str_radix(flags, 8).unwrap_or(0))
        }
        Some("creat" | "truncate" | "truncate64") => return true,
        _ => 0,
    };
    flags & WRITES != 0
}

/// A file that was created or written.
pub(super) fn file<'a>(event: &Event<'a>, user: String, name: &str) -> Fields<'a> {
    let mut fields = common(event, user);
    fields.text("TargetFilename", name.to_owned());
    fields
}

/// A connection to or from a host; `None` if the address is none of a host.
pub(super) fn connection<'a>(
    event: &Event<'a>,
    user: String,
    head: &Head<'_>,
) -> Option<Fields<'a>> {
    let is_initiated = head.is_initiated()?;
    let (address, port) = host(event.sockaddr?)?;
    let mut fields = common(event, user);
    let (ip, number) = match is_initiated {
        true => ("DestinationIp", "DestinationPort"),
        false => ("SourceIp", "SourcePort"),
    };
    fields.text("Initiated", if is_initiated { "true" } else { "false" });
    fields.text(ip, address.to_string());
    fields.text(number, port.to_string());
    Some(fields)
}

/// Address and port of a host.
///
/// # Source
/// `struct sockaddr_in` and `sockaddr_in6`; families are in the byte order of x86 and arm.
pub(super) fn host(address: &[u8]) -> Option<(IpAddr, u16)> {
    match address {
        [2, 0, high, low, a, b, c, d, ..] => {
            let address = Ipv4Addr::new(*a, *b, *c, *d);
            Some((address.into(), u16::from_be_bytes([*high, *low])))
        }
        [10, 0, high, low, _, _, _, _, rest @ ..] => {
            let address = Ipv6Addr::from(*rest.first_chunk::<16>()?).to_canonical();
            Some((address, u16::from_be_bytes([*high, *low])))
        }
        _ => None,
    }
}
