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
use super::usual::{UsualArguments, UsualPath};
use crate::sigma::Source;
use crate::sigma::fields::{Fields, Interest, to_text};
use crate::sigma::gate::Gate;
use crate::sigma::search::FieldSearch;

/// Field with the path of the program.
pub(super) const IMAGE: &str = "Image";

/// Bytes of the address of a host, at most.
///
/// # Source
/// `struct sockaddr_in6`.
const HOST_BYTES: usize = 28;

/// Name of a user: from the enriched part of the record, else of this machine, else the number.
fn user<'a>(records: &[Record<'a>], uid: u32, accounts: &'a Accounts) -> Cow<'a, str> {
    let syscall = records.iter().find(super::is_call);
    let enriched = syscall.and_then(|record| {
        let mut fields = record.enrichment().map_while(Result::ok);
        let value: &'a [u8] = fields.find(|field| field.name == "EUID")?.value;
        Some(unquoted(value).to_str_lossy())
    });
    enriched.unwrap_or_else(|| match accounts.user(uid) {
        Some(name) => name.into(),
        None => uid.to_string().into(),
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

/// What the fields that all log sources have are made of.
#[derive(Clone, Copy)]
pub(super) struct CallerFields<'a> {
    pub(super) head: &'a Head<'a>,
    pub(super) records: &'a [Record<'a>],
    pub(super) accounts: &'a Accounts,
}

/// The fields of an event, each of which is made when it is asked: most events end at the gate.
pub(super) struct WholeFields<'a> {
    caller: CallerFields<'a>,
    image: Option<&'a str>,
    own: OwnFields<'a>,
}

/// What the fields of one log source are made of.
#[derive(Clone, Copy)]
enum OwnFields<'a> {
    Process {
        command_line: &'a CommandLine<'a>,
        parent: Option<&'a Process>,
    },
    File {
        name: &'a str,
    },
    Network {
        is_initiated: bool,
        address: IpAddr,
        port: u16,
    },
}

impl<'a> WholeFields<'a> {
    /// A program that was executed.
    pub(super) fn process(
        caller: CallerFields<'a>,
        command_line: &'a CommandLine<'a>,
        parent: Option<&'a Process>,
    ) -> Self {
        let own = OwnFields::Process {
            command_line,
            parent,
        };
        Self {
            caller,
            image: caller.head.caller.image.as_deref(),
            own,
        }
    }

    /// A file that was created or written.
    pub(super) const fn file(
        caller: CallerFields<'a>,
        image: Option<&'a str>,
        name: &'a str,
    ) -> Self {
        let own = OwnFields::File { name };
        Self { caller, image, own }
    }

    /// A connection to or from a host; `None` if the address is none of a host.
    pub(super) fn connection(caller: CallerFields<'a>, image: Option<&'a str>) -> Option<Self> {
        let is_initiated = caller.head.is_initiated()?;
        let mut records = caller.records.iter();
        let record = records.find(|record| record.kind == "SOCKADDR")?;
        let (address, port) = host(&address(record.field("saddr")?.value)?)?;
        let own = OwnFields::Network {
            is_initiated,
            address,
            port,
        };
        Some(Self { caller, image, own })
    }

    /// Whether a gate lets the event through.
    pub(super) fn pass(&self, gate: &Gate<'_>, source: Source) -> bool {
        let Some(search) = gate.search else {
            return gate.is_open;
        };
        let is_in = |texts: &FieldSearch, name: &str| match name {
            IMAGE if self.caller.head.caller.image.is_some() => {
                self.caller.head.caller.image_passes(source)
            }
            _ => {
                let value = self.get(name);
                value.is_some_and(|value| texts.is_in(value.as_bytes()))
            }
        };
        let mut names = source.fields().unwrap_or_default().iter();
        let is_in_any = |any: &FieldSearch| names.any(|name| is_in(any, name));
        search.fields().any(|texts| is_in(texts, texts.name()))
            || search.any().is_some_and(is_in_any)
    }

    /// The fields that rules look at.
    pub(super) fn wanted(&self, source: Source, interest: Interest<'_>) -> Fields<'a> {
        let mut fields = Fields::default();
        for name in source.fields().unwrap_or_default() {
            if interest.contains(name.as_bytes())
                && let Some(value) = self.get(name)
            {
                fields.text(*name, value);
            }
        }
        fields
    }

    /// Value of a field, if the event has it.
    fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        let CallerFields {
            head,
            records,
            accounts,
        } = self.caller;
        Some(match name {
            IMAGE => self.image?.into(),
            "User" => user(records, head.caller.euid, accounts),
            "LogonId" => head.caller.uid.to_string().into(),
            "ProcessId" => head.pid.to_string().into(),
            _ => self.own.get(name, self.caller)?,
        })
    }
}

impl<'a> OwnFields<'a> {
    /// Value of a field that not all log sources have.
    fn get(&self, name: &str, caller: CallerFields<'a>) -> Option<Cow<'a, str>> {
        let CallerFields { head, records, .. } = caller;
        Some(match (*self, name) {
            (Self::Process { command_line, .. }, "CommandLine") => command_line.get().into(),
            (Self::Process { .. }, "CurrentDirectory") => to_text(value(records, "CWD", "cwd")?),
            (Self::Process { .. }, "ParentProcessId") => head.ppid.to_string().into(),
            (Self::Process { parent, .. }, "ParentImage") => (&*parent?.image).into(),
            (Self::Process { parent, .. }, "ParentCommandLine") => (&*parent?.command_line).into(),
            (Self::File { name }, "TargetFilename") => name.into(),
            (Self::Network { is_initiated, .. }, "Initiated") => match is_initiated {
                true => "true".into(),
                false => "false".into(),
            },
            (
                Self::Network {
                    is_initiated,
                    address,
                    ..
                },
                "DestinationIp" | "SourceIp",
            ) if is_initiated == name.starts_with('D') => address.to_string().into(),
            (
                Self::Network {
                    is_initiated, port, ..
                },
                "DestinationPort" | "SourcePort",
            ) if is_initiated == name.starts_with('D') => port.to_string().into(),
            _ => return None,
        })
    }
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
            usual_command_line(self.records).unwrap_or_else(|| any_command_line(self.records))
        })
    }
}

/// The arguments in the one record that has all of them as they are, with blanks between them.
pub(super) fn usual_command_line(records: &[Record<'_>]) -> Option<String> {
    let mut records = records.iter().filter(|record| record.kind == "EXECVE");
    let (Some(record), None) = (records.next(), records.next()) else {
        return None;
    };
    let args = UsualArguments::of(record.untrimmed())?.args;
    (!args.is_empty()).then(|| String::from_utf8(args.join(&b' ')).ok())?
}

/// The arguments in records of any form, else the beginning of them that PROCTITLE has.
pub(super) fn any_command_line(records: &[Record<'_>]) -> String {
    let found = execve::readable(records);
    if found.args.is_empty() {
        return proctitle(records);
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
pub(super) fn written_name<'a>(record: &Record<'a>, writes: bool) -> Option<Cow<'a, [u8]>> {
    static NAME_TYPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(" nametype="));
    let text = record.untrimmed();
    let usual = UsualPath::of(text);
    let rest = usual.as_ref().map_or(text, |usual| usual.rest);
    let start = NAME_TYPE.find(rest).map(|at| at + NAME_TYPE.needle().len());
    let name_type = start
        .and_then(|start| rest.get(start..))
        .unwrap_or_default();
    let is = |other: &[u8]| {
        let rest = name_type.strip_prefix(other);
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b' ')))
    };
    if is(b"PARENT") || is(b"DELETE") || !writes && !is(b"CREATE") {
        return None;
    }
    let start = text.len() - rest.len();
    let mut name = None;
    for field in record.fields_in(start..text.len()) {
        match field.name.as_bytes() {
            b"name" => name = Some(field),
            b"mode" if is_directory(field.value) => return None,
            b"mode" if name.is_some() || usual.is_some() => break,
            _ => {}
        }
    }
    match name {
        Some(name) => decoded(record, &name),
        None => Some(Cow::Borrowed(usual?.name)),
    }
}

/// Whether a mode, in octal, is that of a directory.
fn is_directory(mode: &[u8]) -> bool {
    const S_IFMT: u32 = 0o170_000;
    const S_IFDIR: u32 = 0o040_000;
    let mode = mode.to_str().ok();
    let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
    mode.is_some_and(|mode| mode & S_IFMT == S_IFDIR)
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
