//! What the record of a syscall, or of an operation of `io_uring`, tells before anything else of an event is decoded.

use std::sync::LazyLock;

use audit::ids::{Arch, Syscall};
use audit::record::decode::{Field, Record};
use audit::record::interpret;
use audit::table;
use bstr::{ByteSlice as _, Finder};

use super::caller::Caller;
use super::memo::Memo;
use super::record::{self, decimal, hex};
use crate::sigma::fields::{SYSCALL_NAME, Value};
use crate::sigma::gate::{Passed, SyscallGate};
use crate::sigma::{Engine, Source};

/// Flags of an open that creates or writes a file.
///
/// # Source
/// `O_ACCMODE`, `O_CREAT` and `O_TRUNC` in `include/uapi/asm-generic/fcntl.h`, Linux 6.12.
pub(super) const WRITES: u64 = 0o3 | 0o100 | 0o1000;

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Head<'a> {
    /// Name of the syscall or of the operation.
    pub(super) call: &'static str,
    pub(super) is_uring_op: bool,
    pub(super) pid: u32,
    pub(super) ppid: u32,
    pub(super) exit: i64,
    /// The log source that the call may feed.
    pub(super) source: Option<Source>,
    /// Flags in the arguments of an open.
    pub(super) open_flags: Option<u64>,
    /// Its first arguments, which are in hex; empty if they are not recorded.
    args: [&'a [u8]; 3],
    /// Who made it.
    pub(super) caller: &'a Caller,
}

/// Name and result of a call, which the first fields of a record tell.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    /// Name of the syscall or of the operation; `None` if it is not known.
    name: Option<&'static str>,
    is_uring_op: bool,
    success: bool,
    exit: i64,
    /// The log source that it may feed, if an open is not to read.
    source: Option<Source>,
    /// Number of the argument with the flags of an open.
    flags_argument: Option<usize>,
    /// What these fields let through.
    passed: Passed,
    /// Whether a field between these and those of the caller may let something through.
    others_decide: bool,
}

/// Longest text of the fields of a call: numbers of 64 bits, and names.
const MAX_CALL_LEN: usize = 128;
/// Fields between those of the call and those of the caller, the arguments only in records of syscalls.
const OTHERS: [&str; 7] = ["a0", "a1", "a2", "a3", "items", "ppid", "pid"];

impl Call {
    /// Decodes fields.
    fn of<'a>(
        record: &Record<'a>,
        fields: impl Iterator<Item = Field<'a>>,
        gate: &SyscallGate<'_>,
    ) -> Self {
        let mut call = Self {
            others_decide: OTHERS
                .iter()
                .any(|name| gate.wants(name.as_bytes()).is_some()),
            ..Self::default()
        };
        let (mut arch, mut number, mut op) = (None, None, None);
        record::pass_type(record, gate, &mut call.passed);
        for field in fields {
            let value = field.value;
            record::pass_field(record, &field, gate, &mut call.passed);
            match field.name.as_bytes() {
                b"arch" => arch = hex(value),
                b"syscall" => number = decimal(value),
                b"uring_op" => op = decimal(value),
                b"success" => call.success = value == "yes",
                b"exit" => call.exit = decimal(value).unwrap_or(0),
                _ => {}
            }
        }
        call.is_uring_op = op.is_some();
        let name = match op {
            Some(op) => table::uring_op_name(op),
            None => arch
                .zip(number)
                .and_then(|(arch, number)| table::syscall_name(Arch(arch), Syscall(number))),
        };
        if let Some(name) = name {
            call.name = Some(name);
            call.source = source(name, call.success, call.exit);
            // Arguments of operations are not recorded.
            call.flags_argument = match name {
                "open" if !call.is_uring_op => Some(1),
                "openat" | "open_by_handle_at" if !call.is_uring_op => Some(2),
                _ => None,
            };
            if let Some(wanted) = gate.wants(SYSCALL_NAME.as_bytes()) {
                gate.pass(wanted, &Value::Text(name.into()), &mut call.passed);
            }
        }
        call
    }
}

/// Calls and their callers in the last events.
#[derive(Debug, Default)]
pub(super) struct Memos {
    calls: Memo<Call>,
    callers: Memo<Caller>,
}

impl<'a> Head<'a> {
    /// What a SYSCALL or URINGOP record tells, and what of its event can match rules for records. The head is `None` if
    /// the record names no known call or no process.
    pub(super) fn of(
        record: &Record<'a>,
        engine: &dyn Engine,
        memos: &'a mut Memos,
    ) -> (Option<Self>, Passed) {
        let gate = engine.syscall_gate(record.kind);
        let (kind, version) = (record.kind.as_bytes(), engine.version());
        let text = record.untrimmed();
        // The arguments are behind the ids in no log but those that people write.
        let others = |start: usize| Some((start, Others::of(text.get(start..)?)?));
        let found = others(call_len(kind, text)).or_else(|| others(ids_start(text)?));
        let Some((start, others)) = found else {
            return (None, SyscallGate::OPEN.open());
        };
        let end = start + others.end;
        let before = text.get(..start).unwrap_or_default();
        let after = text.get(end..).unwrap_or_default();
        let new = || Call::of(record, record.fields_in(0..start), &gate);
        let call = *memos.calls.get(version, [kind, before, b""], new);
        let Some(name) = call.name else {
            return (None, SyscallGate::OPEN.open());
        };
        let mut passed = gate.open();
        passed.add(call.passed);
        if call.others_decide || !others.is_usual {
            for field in record.fields_in(start..end) {
                record::pass_field(record, &field, &gate, &mut passed);
            }
        }
        let new = || Caller::of(record, record.fields_in(end..text.len()), engine, &gate);
        let key = [kind, after, record.enrichment_text()];
        let caller = memos.callers.get(version, key, new);
        passed.add(caller.passed);
        let mut head = Self {
            call: name,
            is_uring_op: call.is_uring_op,
            pid: others.pid,
            ppid: others.ppid,
            exit: call.exit,
            source: call.source,
            open_flags: None,
            args: others.args,
            caller,
        };
        head.open_flags = call.flags_argument.and_then(|number| head.arg(number));
        // Most opens are to read.
        if head.open_flags.is_some_and(|flags| flags & WRITES == 0) {
            head.source = None;
        }
        (Some(head), passed)
    }

    /// One of the first three arguments, if it is recorded.
    fn arg(&self, number: usize) -> Option<u64> {
        hex(self.arg_text(number)?)
    }

    fn arg_text(&self, number: usize) -> Option<&'a [u8]> {
        let text = *self.args.get(number)?;
        (!text.is_empty()).then_some(text)
    }

    /// Whether a relative name is one in the working directory.
    pub(super) fn starts_at_cwd(&self) -> bool {
        let args = [0, 1, 2].map(|number| self.arg(number).unwrap_or(0));
        // Arguments of operations are not recorded.
        !self.is_uring_op && interpret::starts_at_cwd(self.call, args)
    }

    /// Whether a connection was made to another host; `None` if the call makes none.
    ///
    /// # Source
    /// `SYS_CONNECT`, `SYS_ACCEPT` and `SYS_ACCEPT4` in `include/uapi/linux/net.h`, Linux 6.12.
    pub(super) fn is_initiated(&self) -> Option<bool> {
        match (self.call, self.arg_text(0)) {
            ("connect", _) | ("socketcall", Some(b"3")) => Some(true),
            ("accept" | "accept4", _) | ("socketcall", Some(b"5" | b"12")) => Some(false),
            _ => None,
        }
    }
}

/// The log source that a call may feed.
fn source(name: &str, success: bool, exit: i64) -> Option<Source> {
    const EINPROGRESS: i64 = -115;
    match name {
        "execve" | "execveat" if success => Some(Source::Process),
        // A connection is made in the background.
        "connect" | "socketcall" if success || exit == EINPROGRESS => Some(Source::Network),
        "accept" | "accept4" if success => Some(Source::Network),
        "open" | "openat" | "openat2" | "open_by_handle_at" | "creat" | "rename" | "renameat"
        | "renameat2" | "link" | "linkat" | "symlink" | "symlinkat" | "mknod" | "mknodat"
        | "truncate" | "truncate64"
            if success =>
        {
            Some(Source::File)
        }
        _ => None,
    }
}

/// Length of the fields of a record that tell the call and its result: what is behind them differs from event to event.
///
/// # Source
/// `audit_log_exit` and `audit_log_uring` in `kernel/auditsc.c`, Linux 6.12. Logs that people write for tests may lack
/// some fields, or have others there.
fn call_len(kind: &[u8], text: &[u8]) -> usize {
    static ENDS: LazyLock<[Finder<'_>; 2]> = LazyLock::new(|| [" a0=", " items="].map(Finder::new));
    let [arguments, items] = &*ENDS;
    // What a label of a security module has behind that is not looked at.
    let is_before = |end: &usize| *end < MAX_CALL_LEN;
    let other = || {
        items
            .find(text)
            .filter(is_before)
            .or_else(|| ids_start(text))
    };
    let end = match kind {
        b"URINGOP" => other(),
        _ => arguments.find(text).filter(is_before).or_else(other),
    };
    end.unwrap_or(text.len())
}

/// Where the process ids begin.
fn ids_start(text: &[u8]) -> Option<usize> {
    ID_NAMES.iter().filter_map(|name| name.find(text)).min()
}

static ID_NAMES: LazyLock<[Finder<'_>; 2]> = LazyLock::new(|| [" pid=", " ppid="].map(Finder::new));

/// The fields between those of a call and those of its caller.
struct Others<'a> {
    /// The first arguments; empty if they are not recorded.
    args: [&'a [u8]; 3],
    /// 0 if the record does not have it.
    ppid: u32,
    pid: u32,
    /// Where they end in the text.
    end: usize,
    /// They are those that the kernel writes.
    is_usual: bool,
}

impl<'a> Others<'a> {
    /// The fields in a text that begins with them.
    fn of(text: &'a [u8]) -> Option<Self> {
        Self::usual(text).or_else(|| Self::any(text))
    }

    /// The fields as the kernel writes them.
    ///
    /// # Source
    /// `audit_log_exit` and `audit_log_uring` in `kernel/auditsc.c`, and `audit_log_task_info` in `kernel/audit.c`,
    /// Linux 6.12.
    fn usual(text: &'a [u8]) -> Option<Self> {
        let mut args = [&b""[..]; 3];
        let mut rest = text;
        if rest.starts_with(b" a0=") {
            for (name, arg) in [b" a0=", b" a1=", b" a2="].into_iter().zip(&mut args) {
                (*arg, rest) = word(rest.strip_prefix(name)?);
            }
            (_, rest) = word(rest.strip_prefix(b" a3=")?);
        }
        (_, rest) = word(rest.strip_prefix(b" items=")?);
        let (ppid, rest) = leading_number(rest.strip_prefix(b" ppid=")?)?;
        let (pid, rest) = leading_number(rest.strip_prefix(b" pid=")?)?;
        matches!(rest.first(), None | Some(b' ')).then_some(Self {
            args,
            ppid,
            pid,
            end: text.len() - rest.len(),
            is_usual: true,
        })
    }

    /// The fields in a log that people wrote for tests.
    fn any(text: &'a [u8]) -> Option<Self> {
        let [pid_name, ppid_name] = &*ID_NAMES;
        let at = pid_name.find(text)?;
        let (before, rest) = text.split_at_checked(at)?;
        let (pid, rest) = leading_number(rest.get(pid_name.needle().len()..)?)?;
        let ppid = ppid_name.find(before).and_then(|at| {
            let (ppid, _) = leading_number(before.get(at + ppid_name.needle().len()..)?)?;
            Some(ppid)
        });
        let arg = |name: &[u8]| {
            let mut fields = before.split(|&byte| byte == b' ');
            fields.find_map(|field| field.strip_prefix(name))
        };
        matches!(rest.first(), None | Some(b' ')).then(|| Self {
            args: [b"a0=", b"a1=", b"a2="].map(|name| arg(name).unwrap_or_default()),
            ppid: ppid.unwrap_or(0),
            pid,
            end: text.len() - rest.len(),
            is_usual: false,
        })
    }
}

/// The text before the first blank, and what follows.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| byte == b' ');
    text.split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or((text, b""))
}

/// The decimal number that a text begins with, and what follows.
pub(super) fn leading_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let mut number: u32 = 0;
    let mut rest = text;
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        number = number.checked_mul(10)?.checked_add((digit - b'0').into())?;
        rest = after;
    }
    (rest.len() < text.len()).then_some((number, rest))
}
