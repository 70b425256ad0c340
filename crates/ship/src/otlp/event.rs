//! Attributes of an event: the names of OpenTelemetry's semantic conventions where there is one, and `audit.FIELD` for
//! the other fields of its records.
//!
//! The log is not trusted: a name comes once, as the first record has it, and names, numbers and lengths are bounded.
//! What is left out is in the body.
//!
//! # Source
//! Registry of attributes, OpenTelemetry semantic conventions 1.37.

use std::borrow::Cow;

use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::{Field, Record};
use audit::record::execve;
use audit::table;
use bstr::ByteSlice as _;
use logs::event_values::{resolved, success};

use super::attributes::Attributes;
use crate::socket_address::{Place, SocketAddress};

/// Most attributes of an event.
const MOST: usize = 96;
/// Longest name of a field that becomes an attribute.
const MAX_NAME: usize = 40;
/// Most bytes of a list of texts.
const MAX_LIST_BYTES: usize = 16 << 10;
/// An id that is not set, as records write it.
const UNSET: i64 = 0xffff_ffff;

/// What a field becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Number,
    /// A number that is not set is left out.
    Id,
    /// The same, as the text that the conventions want.
    IdText,
    Success,
}

/// The attributes of an event.
struct EventAttributes<'a, 'b> {
    to: Attributes<'a>,
    /// Names of those that it has.
    names: Vec<Cow<'b, str>>,
    /// Attributes that were left out.
    dropped: u32,
    arch: Option<Arch>,
    /// The call binds a socket: its address is that of this machine.
    is_bind: bool,
    cwd: Option<Cow<'b, [u8]>>,
    paths: Vec<Cow<'b, [u8]>>,
    /// Which of the paths is the object, and how well it is one.
    object: Option<(usize, u8)>,
}

/// Appends the attributes of an event as fields with a number. Returns how many were left out.
pub(super) fn append(event: &EventRecords, number: u32, to: &mut Vec<u8>) -> u32 {
    let to = Attributes { number, to };
    let mut attributes = EventAttributes {
        to,
        names: Vec::with_capacity(32),
        dropped: 0,
        arch: None,
        is_bind: false,
        cwd: None,
        paths: Vec::new(),
        object: None,
    };
    attributes.event(event);
    attributes.dropped
}

impl<'b> EventAttributes<'_, 'b> {
    fn event(&mut self, event: &'b EventRecords) {
        self.integer("audit.serial", event.serial().0.into());
        if let Some(node) = event.node() {
            self.text("audit.node", &node.to_str_lossy());
        }
        let mut arguments = Vec::new();
        let mut is_first = true;
        for record in event.records() {
            if std::mem::take(&mut is_first) {
                self.text("audit.type", &record.kind.to_str_lossy());
            }
            match record.kind.as_bytes() {
                b"EOE" => {}
                b"EXECVE" => arguments.push(record),
                b"CWD" => {
                    let cwd = value(&record, "cwd");
                    if let Some(cwd) = &cwd {
                        self.text("process.working_directory", &cwd.to_str_lossy());
                    }
                    self.cwd = self.cwd.take().or(cwd);
                }
                b"PATH" => self.path(&record),
                b"PROCTITLE" => {
                    if let Some(title) = value(&record, "proctitle") {
                        self.text("process.title", &title.to_str_lossy().replace('\0', " "));
                    }
                }
                b"SOCKADDR" => self.socket(&record),
                _ => self.record(&record),
            }
        }
        self.arguments(&arguments);
        self.paths();
    }

    /// Fields of a record, and the names of users that `auditd` has added.
    fn record(&mut self, record: &Record<'b>) {
        for field in record.valid_fields() {
            if field.name == "msg" && field.value.starts_with(b"'") {
                let nested = record.nested_fields(&field).map_while(Result::ok);
                nested.for_each(|field| self.field(record, &field));
            } else {
                self.field(record, &field);
            }
        }
        for field in record.enrichment().map_while(Result::ok) {
            let name = match field.name.as_bytes() {
                b"AUID" => "user.name",
                b"UID" => "process.real_user.name",
                b"EUID" => "process.user.name",
                b"SUID" => "process.saved_user.name",
                _ => continue,
            };
            let user = field.value.trim_with(|letter| letter == '"');
            if user != b"unset" {
                self.text(name, &user.to_str_lossy());
            }
        }
    }

    fn field(&mut self, record: &Record<'b>, field: &Field<'b>) {
        let text = || text(record, field);
        match field.name.as_bytes() {
            b"items" => {}
            b"arch" => {
                self.arch = hexadecimal(field.value).map(Arch);
                self.put(Cow::Borrowed("audit.arch"), Form::Text, field, text);
            }
            b"syscall" => self.syscall(field),
            b"key" => {
                if let Some(keys) = text() {
                    let keys: Vec<_> = keys.split(|&byte| byte == 1).collect();
                    let keys: Vec<_> = keys.iter().map(|key| key.to_str_lossy()).collect();
                    self.texts("audit.key", &keys);
                }
            }
            name => match known(name) {
                Some((name, form)) => self.put(Cow::Borrowed(name), form, field, text),
                None => self.named(field, form(name), text),
            },
        }
    }

    /// A field whose attribute has its name.
    fn named(
        &mut self,
        field: &Field<'b>,
        form: Form,
        text: impl FnOnce() -> Option<Cow<'b, [u8]>>,
    ) {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if field.name.len() > MAX_NAME || !field.name.bytes().all(is_plain) {
            self.dropped += 1;
            return;
        }
        let mut name = String::with_capacity("audit.".len() + field.name.len());
        name.push_str("audit.");
        name.push_str(&field.name.to_str_lossy());
        name.make_ascii_lowercase();
        self.put(Cow::Owned(name), form, field, text);
    }

    fn put(
        &mut self,
        name: Cow<'b, str>,
        form: Form,
        field: &Field<'_>,
        text: impl FnOnce() -> Option<Cow<'b, [u8]>>,
    ) {
        let number = || field.value.to_str().ok()?.parse::<i64>().ok();
        match form {
            Form::Text => {
                if let Some(text) = text()
                    && self.add(&name)
                {
                    self.to.text(&name, &text.to_str_lossy());
                    self.names.push(name);
                }
            }
            Form::Number => {
                if let Some(number) = number()
                    && self.add(&name)
                {
                    self.to.integer(&name, number);
                    self.names.push(name);
                }
            }
            Form::Id | Form::IdText => {
                // Some records write an id that is not set as -1.
                let id = number().filter(|id| !matches!(*id, -1 | UNSET));
                if let Some(id) = id
                    && self.add(&name)
                {
                    match form {
                        Form::Id => self.to.integer(&name, id),
                        _ => self.to.text(&name, &field.value.to_str_lossy()),
                    }
                    self.names.push(name);
                }
            }
            Form::Success => {
                if let Some(success) = success(field)
                    && self.add(&name)
                {
                    self.to.boolean(&name, success);
                    self.names.push(name);
                }
            }
        }
    }

    fn syscall(&mut self, field: &Field<'b>) {
        let number = field.value.to_str().ok();
        let number = number.and_then(|number| number.parse().ok());
        let name = self.arch.zip(number);
        let name = name.and_then(|(arch, number)| table::syscall_name(arch, Syscall(number)));
        self.is_bind = name == Some("bind");
        match name {
            Some(name) => self.text("audit.syscall", name),
            None => self.text("audit.syscall", &field.value.to_str_lossy()),
        }
    }

    /// Remembers the name of an object, as recorded.
    fn path(&mut self, record: &Record<'b>) {
        let Some(name) = value(record, "name").filter(|name| !name.is_empty()) else {
            return;
        };
        let kind = record.field("nametype");
        let rank = match kind.map_or(&b""[..], |kind| kind.value.as_bytes()) {
            b"CREATE" => 3,
            b"DELETE" => 2,
            b"PARENT" => 0,
            _ => 1,
        };
        if self.object.is_none_or(|(_, best)| rank > best) {
            self.object = Some((self.paths.len(), rank));
        }
        self.paths.push(name);
    }

    fn paths(&mut self) {
        let object = self.object.and_then(|(at, _)| self.paths.get(at));
        if let Some(name) = object {
            let path = resolved(name, self.cwd.as_deref());
            let path = path.to_str_lossy().into_owned();
            self.text("file.path", &path);
        }
        let paths = std::mem::take(&mut self.paths);
        let paths: Vec<_> = paths.iter().map(|path| path.to_str_lossy()).collect();
        self.texts("audit.paths", &paths);
    }

    fn arguments(&mut self, records: &[Record<'b>]) {
        if records.is_empty() {
            return;
        }
        let found = execve::readable(records);
        let arguments = found.args.iter().map(|argument| argument.to_str_lossy());
        let arguments: Vec<_> = arguments.collect();
        self.integer("process.args_count", found.argc.into());
        self.texts("process.command_args", &arguments);
    }

    fn socket(&mut self, record: &Record<'b>) {
        let hex = record.field("saddr");
        let Some(parsed) = hex.and_then(|hex| SocketAddress::parse(hex.value)) else {
            return;
        };
        let (address, port) = match parsed.place {
            Place::Local { is_abstract, name } if !is_abstract => {
                (name.to_str_lossy().into_owned(), None)
            }
            Place::Host { address, port } => (address.to_string(), Some(port)),
            Place::Local { .. } | Place::Other => return,
        };
        let (name, port_name) = match self.is_bind {
            true => ("network.local.address", "network.local.port"),
            false => ("network.peer.address", "network.peer.port"),
        };
        self.text(name, &address);
        if let Some(port) = port {
            self.integer(port_name, port.into());
        }
    }

    /// Whether an attribute can be added: none has its name, and there is room.
    fn add(&mut self, name: &str) -> bool {
        let is_new = self.names.len() < MOST && !self.names.iter().any(|known| known == name);
        self.dropped += u32::from(!is_new);
        is_new
    }

    fn text(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() && self.add(name) {
            self.to.text(name, value);
            self.names.push(Cow::Borrowed(name));
        }
    }

    fn integer(&mut self, name: &'static str, value: i64) {
        if self.add(name) {
            self.to.integer(name, value);
            self.names.push(Cow::Borrowed(name));
        }
    }

    /// The texts at the start of a list, up to a bound.
    fn texts(&mut self, name: &'static str, values: &[impl AsRef<str>]) {
        let mut left = MAX_LIST_BYTES;
        let fits = |value: &&_| {
            let len = AsRef::<str>::as_ref(*value).len();
            let fits = len <= left;
            left = left.saturating_sub(len + 1);
            fits
        };
        let count = values.iter().take_while(fits).count();
        self.dropped += u32::from(count < values.len());
        let values = values.get(..count).unwrap_or(values);
        if !values.is_empty() && self.add(name) {
            self.to.texts(name, values);
            self.names.push(Cow::Borrowed(name));
        }
    }
}

/// Attribute and form of a field with a name of the conventions, or of a record of each call.
fn known(name: &[u8]) -> Option<(&'static str, Form)> {
    Some(match name {
        b"pid" => ("process.pid", Form::Number),
        b"ppid" => ("process.parent_pid", Form::Number),
        b"auid" => ("user.id", Form::IdText),
        b"uid" => ("process.real_user.id", Form::Id),
        b"euid" => ("process.user.id", Form::Id),
        b"suid" => ("process.saved_user.id", Form::Id),
        b"exe" => ("process.executable.path", Form::Text),
        b"addr" => ("source.address", Form::Text),
        b"success" | b"res" => ("audit.success", Form::Success),
        b"exit" => ("audit.exit", Form::Number),
        b"a0" => ("audit.a0", Form::Text),
        b"a1" => ("audit.a1", Form::Text),
        b"a2" => ("audit.a2", Form::Text),
        b"a3" => ("audit.a3", Form::Text),
        b"gid" => ("audit.gid", Form::Id),
        b"fsuid" => ("audit.fsuid", Form::Id),
        b"egid" => ("audit.egid", Form::Id),
        b"sgid" => ("audit.sgid", Form::Id),
        b"fsgid" => ("audit.fsgid", Form::Id),
        b"ses" => ("audit.ses", Form::Id),
        b"tty" => ("audit.tty", Form::Text),
        b"comm" => ("audit.comm", Form::Text),
        b"subj" => ("audit.subj", Form::Text),
        _ => return None,
    })
}

/// Form of another field.
fn form(name: &[u8]) -> Form {
    match name {
        b"argc" | b"sig" | b"fd" | b"fd0" | b"fd1" | b"uring_op" | b"lost" => Form::Number,
        b"opid" | b"oauid" | b"ouid" | b"oses" | b"old-auid" | b"old-ses" | b"new-auid"
        | b"new-ses" => Form::Id,
        _ => Form::Text,
    }
}

/// Value of a field, without quotes; `None` if it is empty or stands for none.
fn text<'b>(record: &Record<'b>, field: &Field<'b>) -> Option<Cow<'b, [u8]>> {
    let value = match record.text(field).ok()?? {
        Cow::Borrowed(value) => Cow::Borrowed(value.trim_with(|letter| letter == '"')),
        decoded @ Cow::Owned(_) => decoded,
    };
    let is_none = matches!(&*value, b"" | b"?" | b"(none)" | b"(null)");
    (!is_none).then_some(value)
}

fn value<'b>(record: &Record<'b>, name: &str) -> Option<Cow<'b, [u8]>> {
    text(record, &record.field(name)?)
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(digits.to_str().ok()?, 16).ok()
}
