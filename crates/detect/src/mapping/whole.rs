//! A whole event as an event of `process_creation`, `file_event` or `network_connection`.
//!
//! # Source
//! Sigma specification 2.0.0, "Sigma Taxonomy": the fields of these categories are those of Sysmon.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use audit::record::decode::Record;
use audit::record::execve;
use audit::record::interpret::AccountNames as _;
use bstr::{ByteSlice as _, Finder};
use logs::accounts::Accounts;
use logs::event_values::{decoded, resolved};
use smallvec::SmallVec;

use super::Process;
use super::head::{Head, WRITES};
use super::record::{hex, unquoted, with_blanks};
use crate::sigma::fields::{Fields, Interest, to_text};

/// Bytes of the address of a host, at most.
///
/// # Source
/// `struct sockaddr_in6`.
const HOST_BYTES: usize = 28;

/// Name of a user: from the enriched part of the record, else of this machine, else the number.
pub(super) fn user(records: &[Record<'_>], uid: u32, accounts: &Accounts) -> String {
    let syscall = records.iter().find(super::is_call);
    let enriched = syscall.and_then(|record| {
        let mut fields = record.enrichment().map_while(Result::ok);
        let field = fields.find(|field| field.name == "EUID")?;
        Some(unquoted(field.value).to_str_lossy().into_owned())
    });
    enriched.unwrap_or_else(|| match accounts.user(uid) {
        Some(name) => name.to_owned(),
        None => uid.to_string(),
    })
}

/// Path of the program: records of operations of `io_uring` have none, but that of the surrounding syscall does, and
/// what the process executed is known for a worker.
pub(super) fn image<'a>(
    head: &Head<'a>,
    records: &[Record<'a>],
    process: Option<&'a Process>,
) -> Option<Cow<'a, str>> {
    let own = head.caller.image.as_deref().map(Cow::Borrowed);
    own.or_else(|| value(records, "SYSCALL", "exe").map(to_text))
        .or_else(|| Some(Cow::Borrowed(&*process?.image)))
}

/// The fields of an event that rules look at.
struct WantedFields<'a, 'e> {
    interest: Interest<'e>,
    fields: Fields<'a>,
}

impl<'a, 'e> WantedFields<'a, 'e> {
    /// Those that all log sources have.
    fn of(
        head: &Head<'a>,
        image: Option<Cow<'a, str>>,
        user: impl FnOnce() -> String,
        interest: Interest<'e>,
    ) -> Self {
        let mut wanted = Self {
            interest,
            fields: Fields::default(),
        };
        wanted.add("Image", || image);
        wanted.add("User", || Some(user().into()));
        wanted.add("LogonId", || Some(head.caller.uid.to_string().into()));
        wanted.add("ProcessId", || Some(head.pid.to_string().into()));
        wanted
    }

    /// Adds a field that the event may have.
    fn add(&mut self, name: &'static str, value: impl FnOnce() -> Option<Cow<'a, str>>) {
        if self.interest.contains(name.as_bytes())
            && let Some(value) = value()
        {
            self.fields.text(name, value);
        }
    }
}

/// A program that was executed.
pub(super) fn process<'a>(
    head: &Head<'a>,
    records: &[Record<'a>],
    command_line: &'a CommandLine<'_>,
    user: impl FnOnce() -> String,
    parent: Option<&'a Process>,
    interest: Interest<'_>,
) -> Fields<'a> {
    let image = head.caller.image.as_deref().map(Cow::Borrowed);
    let mut wanted = WantedFields::of(head, image, user, interest);
    wanted.add("CommandLine", || Some(command_line.get().into()));
    wanted.add("CurrentDirectory", || {
        value(records, "CWD", "cwd").map(to_text)
    });
    wanted.add("ParentProcessId", || Some(head.ppid.to_string().into()));
    wanted.add("ParentImage", || Some((&*parent?.image).into()));
    wanted.add("ParentCommandLine", || {
        Some((&*parent?.command_line).into())
    });
    wanted.fields
}

/// The arguments of an executed program, else the beginning of them that PROCTITLE has. They are joined once.
#[derive(Debug)]
pub(super) struct CommandLine<'e> {
    records: &'e [Record<'e>],
    text: OnceCell<String>,
}

impl<'e> CommandLine<'e> {
    pub(super) const fn new(records: &'e [Record<'e>]) -> Self {
        Self {
            records,
            text: OnceCell::new(),
        }
    }

    pub(super) fn get(&self) -> &str {
        self.text.get_or_init(|| {
            let found = execve::readable(self.records);
            if found.args.is_empty() {
                return proctitle(self.records);
            }
            let len = found.args.iter().map(|arg| arg.len() + 1).sum();
            let mut text = String::with_capacity(len);
            for (number, arg) in found.args.iter().enumerate() {
                if number > 0 {
                    text.push(' ');
                }
                text.push_str(&arg.to_str_lossy());
            }
            text
        })
    }
}

/// The beginning of the arguments of a process.
pub(super) fn proctitle(records: &[Record<'_>]) -> String {
    value(records, "PROCTITLE", "proctitle").map_or_else(String::new, |title| with_blanks(&title))
}

/// Decoded value of a field in the first record of a type.
fn value<'a>(records: &[Record<'a>], kind: &str, name: &str) -> Option<Cow<'a, [u8]>> {
    let record = records.iter().find(|record| record.kind == kind)?;
    decoded(record, &record.field(name)?)
}

/// Names of the files that a call created, or opened to be written.
pub(super) fn written_files(head: &Head<'_>, records: &[Record<'_>]) -> Vec<String> {
    let writes = opens_to_write(head, records);
    let cwd = OnceCell::new();
    let cwd = || {
        let new = || value(records, "CWD", "cwd").filter(|_| head.starts_at_cwd());
        cwd.get_or_init(new).as_deref()
    };
    let mut names = Vec::new();
    for record in records.iter().filter(|record| record.kind == "PATH") {
        let Some(name) = written_name(record, writes) else {
            continue;
        };
        let cwd = if name.starts_with(b"/") { None } else { cwd() };
        let name = to_text(resolved(&name, cwd)).into_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Name in a PATH record of a file that was created, or of any file if the call writes.
fn written_name<'a>(record: &Record<'a>, writes: bool) -> Option<Cow<'a, [u8]>> {
    const S_IFMT: u32 = 0o170_000;
    const S_IFDIR: u32 = 0o040_000;
    static NAME_TYPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(" nametype="));
    let text = record.untrimmed();
    let start = NAME_TYPE.find(text).map(|at| at + NAME_TYPE.needle().len());
    let name_type = start
        .and_then(|start| text.get(start..))
        .unwrap_or_default();
    let is = |other: &[u8]| {
        let rest = name_type.strip_prefix(other);
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b' ')))
    };
    if is(b"PARENT") || is(b"DELETE") || !writes && !is(b"CREATE") {
        return None;
    }
    let mut name = None;
    for field in record.valid_fields() {
        match field.name.as_bytes() {
            b"name" => name = Some(field),
            b"mode" => {
                let mode = field.value.to_str().ok();
                let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
                if mode.is_some_and(|mode| mode & S_IFMT == S_IFDIR) {
                    return None;
                }
                if name.is_some() {
                    break;
                }
            }
            _ => {}
        }
    }
    decoded(record, &name?)
}

/// Whether a call opens what it names to be written, or truncates it. The field `oflag` of the record OPENAT2 is octal.
fn opens_to_write(head: &Head<'_>, records: &[Record<'_>]) -> bool {
    let flags = match head.call {
        _ if head.is_uring_op => None,
        "openat2" => {
            let record = records.iter().find(|record| record.kind == "OPENAT2");
            let flags = record.and_then(|record| record.field("oflag"));
            flags.and_then(|flags| u64::from_str_radix(flags.value.to_str().ok()?, 8).ok())
        }
        "creat" | "truncate" | "truncate64" => return true,
        _ => head.open_flags,
    };
    flags.is_some_and(|flags| flags & WRITES != 0)
}

/// A file that was created or written.
pub(super) fn file<'a>(
    head: &Head<'a>,
    image: Option<Cow<'a, str>>,
    user: impl FnOnce() -> String,
    name: &'a str,
    interest: Interest<'_>,
) -> Fields<'a> {
    let mut wanted = WantedFields::of(head, image, user, interest);
    wanted.add("TargetFilename", || Some(name.into()));
    wanted.fields
}

/// A connection to or from a host; `None` if the address is none of a host.
pub(super) fn connection<'a>(
    head: &Head<'a>,
    records: &[Record<'a>],
    image: Option<Cow<'a, str>>,
    user: impl FnOnce() -> String,
    interest: Interest<'_>,
) -> Option<Fields<'a>> {
    let is_initiated = head.is_initiated()?;
    let record = records.iter().find(|record| record.kind == "SOCKADDR")?;
    let (address, port) = host(&address(record.field("saddr")?.value)?)?;
    let mut wanted = WantedFields::of(head, image, user, interest);
    let (ip, number) = match is_initiated {
        true => ("DestinationIp", "DestinationPort"),
        false => ("SourceIp", "SourcePort"),
    };
    let initiated = if is_initiated { "true" } else { "false" };
    wanted.add("Initiated", || Some(initiated.into()));
    wanted.add(ip, || Some(address.to_string().into()));
    wanted.add(number, || Some(port.to_string().into()));
    Some(wanted.fields)
}

/// The bytes that the address of a host has of those in hex digits; `None` if there is another digit.
fn address(digits: &[u8]) -> Option<SmallVec<[u8; HOST_BYTES]>> {
    digits.chunks(2).take(HOST_BYTES).map(hex).collect()
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
