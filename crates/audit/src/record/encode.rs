//! Encodes events as lines, in the kernel's order of records and fields.
//!
//! This is the log path: it appends to a buffer that the caller reuses, and allocates only to grow that
//! buffer.
//!
//! A string that does not fit in its line is written as `"<too_long>"`, as the kernel does for paths that it
//! cannot store. Strings are never truncated, because a truncated path names another file. Names of up to
//! `PATH_MAX` bytes always fit in PATH and CWD. In SYSCALL, `exe` is replaced if it needs hex and is longer than
//! about 4,000 bytes, to make room for the key.

use super::aux_records::{self, AuxPosition};
use super::call_result::CallResult;
use super::digits::{decimal, decimal3, lower_hex, lower_hex2, octal};
use super::{MAX_LINE_BYTES, execve, quote};
use crate::event::{
    Event, Inode, NameType, PathItem, SecurityLabel, Task, Timestamp, UringEnter, reported_exit,
    succeeded,
};
use crate::ids::{Dev, MsgType, Serial};
use crate::table;

/// Appends the records of an event as log lines, without EOE, which only plugins receive.
///
/// # Source
/// `audit_log_exit` in `kernel/auditsc.c`, Linux 6.12.
pub fn event(event: &Event<'_>, out: &mut Vec<u8>) {
    out.reserve(size_hint(event));
    let stamp = match event.uring_op {
        Some(op) => uringop_record(op, event, out),
        None => syscall(event, out),
    };
    aux_records::records(&event.aux_records, AuxPosition::AfterSyscall, stamp, out);
    if let Some(argv) = &event.argv {
        execve::records(argv, stamp, out);
    }
    aux_records::records(&event.aux_records, AuxPosition::Special, stamp, out);
    aux_records::records(&event.aux_records, AuxPosition::AfterSpecial, stamp, out);
    aux_records::records(&event.aux_records, AuxPosition::BeforeSockaddr, stamp, out);
    if let Some(address) = event.sockaddr {
        let line = LineWriter::begin(b"type=SOCKADDR msg=", stamp, out);
        line.out.extend_from_slice(b"saddr=");
        quote::hex(address, line.out);
        line.end();
    }
    aux_records::records(&event.aux_records, AuxPosition::AfterSockaddr, stamp, out);
    if let Some(cwd) = event.cwd {
        let mut line = LineWriter::begin(b"type=CWD msg=", stamp, out);
        line.untrusted(b"cwd=", cwd, 0);
        line.end();
    }
    for (number, item) in event.items.iter().enumerate() {
        path(number, item, stamp, out);
    }
    let mut line = LineWriter::begin(b"type=PROCTITLE msg=", stamp, out);
    line.untrusted(b"proctitle=", trim_proctitle(event.proctitle), 0);
    line.end();
}

/// Appends a single-record event with the given text. The text is truncated to the maximum line length.
pub fn message(kind: MsgType, time: Timestamp, serial: Serial, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    record_prefix(kind, out);
    Stamp::write(time, serial, out);
    let room = (MAX_LINE_BYTES - 1).saturating_sub(out.len() - start);
    out.extend(body.iter().take(room).map(|&byte| match byte {
        b'\n' | 0 => b'?',
        byte => byte,
    }));
    out.push(b'\n');
}

/// Appends a record from the kernel, whose text includes the stamp. The text is truncated to the maximum line
/// length, and a space at its end is removed. Control characters, which could start another line or an
/// enrichment, become spaces.
///
/// # Source
/// `format_raw` in `src/auditd-event.c`, audit-userspace 3.0.9, for newlines and the space at the end.
pub fn kernel_record(kind: MsgType, text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    record_prefix(kind, out);
    let room = (MAX_LINE_BYTES - 1).saturating_sub(out.len() - start);
    let text = text.get(..room).unwrap_or(text);
    let text = text.strip_suffix(b" ").unwrap_or(text);
    out.extend(text.iter().map(|&byte| match byte {
        byte if byte.is_ascii_control() => b' ',
        byte => byte,
    }));
    out.push(b'\n');
}

/// Writes the text before the stamp.
fn record_prefix(kind: MsgType, out: &mut Vec<u8>) {
    out.extend_from_slice(b"type=");
    match table::msg_type_name(kind) {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => {
            out.extend_from_slice(b"UNKNOWN[");
            decimal(kind.0, out);
            out.push(b']');
        }
    }
    out.extend_from_slice(b" msg=");
}

/// Appends the EOE record, which ends an event for plugins. It is not written to the log.
pub fn end_of_event(time: Timestamp, serial: Serial, out: &mut Vec<u8>) {
    out.extend_from_slice(b"type=EOE msg=");
    Stamp::write(time, serial, out);
    out.push(b'\n');
}

/// Position of the event's `audit(SEC.MMM:SERIAL): ` in the buffer. Every record copies it.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    start: usize,
    end: usize,
}

impl Stamp {
    pub(super) fn write(time: Timestamp, serial: Serial, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(b"audit(");
        decimal(time.sec, out);
        out.push(b'.');
        decimal3(time.milli, out);
        out.push(b':');
        decimal(serial.0, out);
        out.extend_from_slice(b"): ");
        Self {
            start,
            end: out.len(),
        }
    }
}

/// Writes one record.
pub(super) struct LineWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> LineWriter<'a> {
    /// Starts a record. `record_prefix` is the text before the stamp.
    pub(super) fn begin(record_prefix: &[u8], stamp: Stamp, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(record_prefix);
        out.extend_from_within(stamp.start..stamp.end);
        Self { out, start }
    }

    #[inline]
    pub(super) fn decimal(&mut self, label: &[u8], value: impl itoa::Integer) {
        self.out.extend_from_slice(label);
        decimal(value, self.out);
    }

    pub(super) fn end(self) {
        self.out.push(b'\n');
    }

    #[inline]
    pub(super) fn hex(&mut self, label: &[u8], value: u64) {
        self.out.extend_from_slice(label);
        lower_hex(value, self.out);
    }

    #[inline]
    pub(super) fn octal(&mut self, label: &[u8], value: u64) {
        self.out.extend_from_slice(label);
        octal(value, self.out);
    }

    /// Writes a security label unquoted, as the kernel does, or `?` if it is too long or not printable.
    pub(super) fn label(&mut self, field: &[u8], label: Option<SecurityLabel<'_>>) {
        let Some(SecurityLabel { name, mode }) = label else {
            return;
        };
        self.out.extend_from_slice(field);
        if name.len() > MAX_LABEL_BYTES || name.iter().any(|byte| !matches!(byte, b' '..=b'~')) {
            self.out.push(b'?');
            return;
        }
        self.out.extend_from_slice(name);
        if let Some(mode) = mode {
            self.out.extend_from_slice(b" (");
            self.out.extend_from_slice(mode.as_bytes());
            self.out.push(b')');
        }
    }

    #[inline]
    fn device(&mut self, label: &[u8], dev: Dev) {
        self.out.extend_from_slice(label);
        lower_hex2(dev.major(), self.out);
        self.out.push(b':');
        lower_hex2(dev.minor(), self.out);
    }

    /// Writes an untrusted string, or `"<too_long>"` if fewer than `tail` bytes would remain before the newline.
    pub(super) fn untrusted(&mut self, label: &[u8], bytes: &[u8], tail: usize) {
        self.out.extend_from_slice(label);
        let used = self.out.len() - self.start + tail + 1;
        let fits = used + bytes.len() * 2 <= MAX_LINE_BYTES
            || used + quote::encoded_len(bytes) <= MAX_LINE_BYTES;
        quote::untrusted(if fits { bytes } else { TOO_LONG }, self.out);
    }
}

const MAX_LABEL_BYTES: usize = 512;

/// Maximum size of a label in a record, with its field name and mode.
const MAX_LABEL_FIELD_BYTES: usize = MAX_LABEL_BYTES + 32;

/// Stands for a path that is too long.
///
/// # Source
/// `audit_log_d_path` in `kernel/audit.c`, Linux 6.12.
pub const TOO_LONG: &[u8] = b"<too_long>";

/// Size of a `"<too_long>"` field in a SYSCALL record.
const TOO_LONG_FIELD_BYTES: usize = b" exe=\"<too_long>\"".len();

/// Fields after `nametype=`. The event model has no file capabilities of objects. The kernel prints the same text
/// for a file without capabilities and for a failed lookup.
const NO_FILE_CAPS: &[u8] = b" cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n";

/// Writes the record of an `io_uring` operation.
///
/// # Source
/// `audit_log_uring` in `kernel/auditsc.c`, Linux 6.12. `exit` is the result of the completion; the kernel writes
/// the return value of its internal function.
fn uringop_record(op: u8, event: &Event<'_>, out: &mut Vec<u8>) -> Stamp {
    let start = out.len();
    out.extend_from_slice(b"type=URINGOP msg=");
    let stamp = Stamp::write(event.time, event.serial, out);
    let mut line = LineWriter { out, start };
    line.decimal(b"uring_op=", op);
    success_and_exit(event, &mut line);
    line.decimal(b" items=", event.items.len());
    line.decimal(b" ppid=", event.task.ppid);
    line.decimal(b" pid=", event.task.pid);
    ids(&event.task, &mut line);
    line.label(b" subj=", event.task.subj);
    key(event, &mut line);
    line.end();
    if let Some(enter) = event.uring_enter {
        uring_enter_record(&enter, event, stamp, out);
    }
    stamp
}

/// Writes the record of the `io_uring_enter` in which an operation ran, as the kernel does at the end of that call:
/// its result is not known yet. `ausearch` before 4.0 finds events by the key of this record only.
fn uring_enter_record(enter: &UringEnter, event: &Event<'_>, stamp: Stamp, out: &mut Vec<u8>) {
    let mut line = LineWriter::begin(b"type=SYSCALL msg=", stamp, out);
    line.hex(b"arch=", enter.arch.0.into());
    line.decimal(b" syscall=", IO_URING_ENTER);
    personality(event, &mut line);
    args_and_items(enter.args, event, &mut line);
    task(event, &mut line);
    line.end();
}

/// Number of `io_uring_enter` in every ABI.
const IO_URING_ENTER: u32 = 426;

fn personality(event: &Event<'_>, line: &mut LineWriter<'_>) {
    if event.personality != 0 {
        line.hex(b" per=", event.personality.into());
    }
}

fn args_and_items([a0, a1, a2, a3]: [u64; 4], event: &Event<'_>, line: &mut LineWriter<'_>) {
    line.hex(b" a0=", a0);
    line.hex(b" a1=", a1);
    line.hex(b" a2=", a2);
    line.hex(b" a3=", a3);
    line.decimal(b" items=", event.items.len());
}

fn syscall(event: &Event<'_>, out: &mut Vec<u8>) -> Stamp {
    let start = out.len();
    out.extend_from_slice(b"type=SYSCALL msg=");
    let stamp = Stamp::write(event.time, event.serial, out);
    let mut line = LineWriter { out, start };
    line.hex(b"arch=", event.arch.0.into());
    line.decimal(b" syscall=", event.syscall.0.cast_signed());
    personality(event, &mut line);
    let call = CallResult {
        exit: event.exit,
        args: event.args,
    };
    call.append(line.out);
    line.decimal(b" items=", event.items.len());
    task(event, &mut line);
    if event.unproven {
        line.out.extend_from_slice(UNPROVEN);
    }
    line.end();
    stamp
}

/// Field of a syscall that the kernel may not have executed. The kernel's audit records no such syscall.
const UNPROVEN: &[u8] = b" executed=?";

/// Writes the identity of the task, and the key.
///
/// # Source
/// `audit_log_task_info` in `kernel/audit.c`, Linux 6.12.
fn task(event: &Event<'_>, line: &mut LineWriter<'_>) {
    let task = &event.task;
    line.decimal(b" ppid=", task.ppid);
    line.decimal(b" pid=", task.pid);
    line.decimal(b" auid=", task.auid.0);
    ids(task, line);
    line.out.extend_from_slice(b" tty=");
    line.out.extend_from_slice(tty(task.tty));
    line.decimal(b" ses=", task.ses);
    let label = task.subj.map_or(0, |_| MAX_LABEL_FIELD_BYTES);
    let after_comm = 2 * TOO_LONG_FIELD_BYTES + label + UNPROVEN.len();
    line.untrusted(b" comm=", task.comm, after_comm);
    match task.exe {
        Some(exe) => {
            let key = event.key.map_or(0, quote::encoded_len);
            let behind = (b" key=".len() + key).max(TOO_LONG_FIELD_BYTES) + label + UNPROVEN.len();
            line.untrusted(b" exe=", exe, behind);
        }
        None => line.out.extend_from_slice(b" exe=(null)"),
    }
    line.label(b" subj=", task.subj);
    key(event, line);
}

/// Writes `success` and `exit`; nothing for a syscall that did not return.
fn success_and_exit(event: &Event<'_>, line: &mut LineWriter<'_>) {
    if let Some(raw) = event.exit {
        let exit = reported_exit(raw);
        let label: &[u8] = if succeeded(exit) {
            b" success=yes exit="
        } else {
            b" success=no exit="
        };
        line.decimal(label, exit);
    }
}

/// Writes the ids of a task, in the order of all records.
fn ids(task: &Task<'_>, line: &mut LineWriter<'_>) {
    line.decimal(b" uid=", task.uid);
    line.decimal(b" gid=", task.gid);
    line.decimal(b" euid=", task.euid);
    line.decimal(b" suid=", task.suid);
    line.decimal(b" fsuid=", task.fsuid);
    line.decimal(b" egid=", task.egid);
    line.decimal(b" sgid=", task.sgid);
    line.decimal(b" fsgid=", task.fsgid);
}

fn key(event: &Event<'_>, line: &mut LineWriter<'_>) {
    match event.key {
        Some(key) => line.untrusted(b" key=", key, 0),
        None => line.out.extend_from_slice(b" key=(null)"),
    }
}

/// Returns the text of `tty`, which the kernel prints unquoted. Drivers choose terminal names, not tasks; an
/// implausible name becomes `?`.
fn tty(name: &[u8]) -> &[u8] {
    const MAX_TTY_BYTES: usize = 64;
    if name.is_empty() {
        b"(none)"
    } else if name.len() > MAX_TTY_BYTES || quote::needs_hex(name) {
        b"?"
    } else {
        name
    }
}

/// Writes a PATH record.
///
/// # Source
/// `audit_log_name` and `audit_log_fcaps` in `kernel/auditsc.c`, Linux 6.12.
fn path(number: usize, item: &PathItem<'_>, stamp: Stamp, out: &mut Vec<u8>) {
    /// Upper limit of the bytes after a name: every number at its longest.
    const AFTER_NAME: usize = 256;
    let mut line = LineWriter::begin(b"type=PATH msg=", stamp, out);
    line.decimal(b"item=", number);
    match item.name {
        Some(name) => line.untrusted(b" name=", name, AFTER_NAME),
        None => line.out.extend_from_slice(b" name=(null)"),
    }
    if let Some(inode) = &item.inode {
        inode_fields(inode, &mut line);
    }
    line.out.extend_from_slice(match item.nametype {
        NameType::Unknown => b" nametype=UNKNOWN".as_slice(),
        NameType::Normal => b" nametype=NORMAL",
        NameType::Parent => b" nametype=PARENT",
        NameType::Delete => b" nametype=DELETE",
        NameType::Create => b" nametype=CREATE",
    });
    line.out.extend_from_slice(NO_FILE_CAPS);
}

fn inode_fields(inode: &Inode, line: &mut LineWriter<'_>) {
    line.decimal(b" inode=", inode.ino);
    line.device(b" dev=", inode.dev);
    line.octal(b" mode=", inode.mode.into());
    line.decimal(b" ouid=", inode.uid);
    line.decimal(b" ogid=", inode.gid);
    line.device(b" rdev=", inode.rdev);
}

/// Trims a command line as the kernel does for PROCTITLE.
///
/// # Source
/// `audit_log_proctitle` and `audit_proctitle_rtrim` in `kernel/auditsc.c`, Linux 6.12.
fn trim_proctitle(proctitle: &[u8]) -> &[u8] {
    const MAX_PROCTITLE_AUDIT_LEN: usize = 128;
    let seen = proctitle
        .get(..MAX_PROCTITLE_AUDIT_LEN)
        .unwrap_or(proctitle);
    // The kernel's `isprint` is that of Latin-1.
    let end = seen
        .iter()
        .rposition(|byte| matches!(byte, b' '..=b'~' | 0xa0..));
    end.and_then(|last| seen.get(..=last)).unwrap_or(b"(null)")
}

/// Estimated size of an event, to grow the buffer once.
fn size_hint(event: &Event<'_>) -> usize {
    const SYSCALL_AND_PROCTITLE: usize = 768;
    const EACH_RECORD: usize = 320;
    let strings = event.task.exe.map_or(0, <[u8]>::len)
        + event.key.map_or(0, <[u8]>::len)
        + event.cwd.map_or(0, <[u8]>::len)
        + event
            .items
            .iter()
            .filter_map(|item| item.name)
            .map(<[u8]>::len)
            .sum::<usize>();
    let arguments = event.argv.map_or(0, |argv| argv.bytes.len() * 4);
    let records = event.items.len()
        + event.aux_records.len()
        + usize::from(event.cwd.is_some())
        + 2 * usize::from(event.uring_enter.is_some());
    SYSCALL_AND_PROCTITLE + EACH_RECORD * records + strings * 2 + arguments
}
