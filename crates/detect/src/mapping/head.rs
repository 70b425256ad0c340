//! What the record of a syscall, or of an operation of `io_uring`, tells before anything else of an event is decoded.

use audit::ids::{Arch, Syscall};
use audit::record::decode::Record;
use audit::record::interpret;
use audit::table;
use bstr::ByteSlice as _;

use super::caller::{Caller, Callers};
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
    pub(super) success: bool,
    pub(super) exit: i64,
    /// First three arguments, in hex.
    args: [&'a [u8]; 3],
    /// Who made it.
    pub(super) caller: &'a Caller,
}

impl<'a> Head<'a> {
    /// What a SYSCALL or URINGOP record tells, and what of its event can match rules for records. The head is `None` if
    /// the record names no known call or no process.
    pub(super) fn of(
        record: &Record<'a>,
        engine: &dyn Engine,
        callers: &'a mut Callers,
    ) -> (Option<Self>, Passed) {
        let gate = engine.syscall_gate(record.kind);
        let mut passed = gate.open();
        record::pass_type(record, &gate, &mut passed);
        let (mut arch, mut number, mut op) = (None, None, None);
        let (mut ppid, mut success, mut exit) = (0, false, 0);
        let mut args: [&[u8]; 3] = [b""; 3];
        let mut fields = record.valid_fields();
        let mut pid = None;
        for field in fields.by_ref() {
            let value: &'a [u8] = field.value;
            record::pass_field(record, &field, &gate, &mut passed);
            match field.name.as_bytes() {
                b"arch" => arch = hex(value),
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
                    pid = decimal(value).map(|pid| (pid, field));
                    break;
                }
                _ => {}
            }
        }
        let call = match op {
            Some(op) => table::uring_op_name(op),
            None => arch
                .zip(number)
                .and_then(|(arch, number)| table::syscall_name(Arch(arch), Syscall(number))),
        };
        let Some((call, (pid, last))) = call.zip(pid) else {
            return (None, SyscallGate::OPEN.open());
        };
        if gate.wants(SYSCALL_NAME.as_bytes()) {
            gate.pass(SYSCALL_NAME, &Value::Text(call.into()), &mut passed);
        }
        let new = || Caller::of(record, fields, &gate);
        let caller = callers.get(engine.version(), record, record.after(&last), new);
        passed.add(caller.passed);
        let head = Self {
            call,
            is_uring_op: op.is_some(),
            pid,
            ppid,
            success,
            exit,
            args,
            caller,
        };
        (Some(head), passed)
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
        self.arg(argument).is_some_and(|flags| flags & WRITES == 0)
    }

    /// An argument, if it is recorded.
    pub(super) fn arg(&self, number: usize) -> Option<u64> {
        hex(self.args.get(number)?)
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
        let [a0, ..] = self.args;
        match (self.call, a0) {
            ("connect", _) | ("socketcall", b"3") => Some(true),
            ("accept" | "accept4", _) | ("socketcall", b"5" | b"12") => Some(false),
            _ => None,
        }
    }
}
