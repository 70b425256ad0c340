//! Reads a syscall event back from its records.
//!
//! Auxiliary records, security labels and the origin of names are not read: see [`OwnedEvent::mark_user_name`] for the
//! latter.

use std::borrow::Cow;

use bstr::ByteSlice as _;

use super::assemble::EventRecords;
use super::decode::{Field, Record};
use super::execve;
use crate::event::{Argv, Event, Inode, NameSource, NameType, PathItem, Task, Timestamp};
use crate::ids::{Arch, Auid, Dev, Serial, Syscall};

/// A syscall event that owns its strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedEvent {
    arch: u32,
    syscall: Option<u32>,
    uring_op: Option<u8>,
    personality: u32,
    exit: Option<i64>,
    unproven: bool,
    args: [u64; 4],
    /// Numbers of the task, by the names of their fields.
    task: TaskNumbers,
    tty: Vec<u8>,
    comm: Vec<u8>,
    exe: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    /// Number of arguments, and the arguments, each with a NUL.
    argv: Option<(u32, Vec<u8>)>,
    sockaddr: Option<Vec<u8>>,
    cwd: Option<Vec<u8>>,
    items: Vec<OwnedItem>,
    proctitle: Vec<u8>,
    time: (u64, u16),
    serial: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TaskNumbers {
    ppid: u32,
    pid: u32,
    auid: u32,
    uid: u32,
    gid: u32,
    euid: u32,
    suid: u32,
    fsuid: u32,
    egid: u32,
    sgid: u32,
    fsgid: u32,
    ses: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedItem {
    name: Option<Vec<u8>>,
    source: NameSource,
    inode: Option<Inode>,
    nametype: NameType,
}

impl OwnedEvent {
    /// Reads an event. `None` if it has neither a SYSCALL nor a URINGOP record. Fields and records that are malformed
    /// are left out.
    #[must_use]
    pub fn read(event: &EventRecords) -> Option<Self> {
        let records: Vec<Record<'_>> = event.records().collect();
        let first = records
            .iter()
            .find(|record| record.kind == "SYSCALL" || record.kind == "URINGOP")?;
        let mut owned = Self {
            time: (first.time.sec, first.time.milli),
            serial: first.serial.0,
            task: TaskNumbers {
                auid: Auid::UNSET.0,
                ses: u32::MAX,
                ..TaskNumbers::default()
            },
            ..Self::default()
        };
        for record in &records {
            for field in record.fields().map_while(Result::ok) {
                match record.kind.as_bytes() {
                    b"SYSCALL" | b"URINGOP" => owned.syscall_field(record, &field),
                    b"CWD" if field.name == "cwd" => owned.cwd = text(record, &field),
                    b"PROCTITLE" if field.name == "proctitle" => {
                        owned.proctitle = text(record, &field).unwrap_or_default();
                    }
                    b"SOCKADDR" if field.name == "saddr" => owned.sockaddr = hex(field.value),
                    _ => {}
                }
            }
            if record.kind == "PATH" {
                owned.items.push(OwnedItem::read(record));
            }
        }
        if let Ok(found) = execve::arguments(&records)
            && records.iter().any(|record| record.kind == "EXECVE")
        {
            let bytes = found
                .args
                .iter()
                .flat_map(|arg| arg.iter().copied().chain([0]));
            owned.argv = Some((found.argc, bytes.collect()));
        }
        Some(owned)
    }

    /// Marks the name of an object as read from the task's memory. Records do not tell.
    pub fn mark_user_name(&mut self, item: usize) {
        if let Some(item) = self.items.get_mut(item) {
            item.source = NameSource::User;
        }
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        let task = &self.task;
        Event {
            time: Timestamp {
                sec: self.time.0,
                milli: self.time.1,
            },
            serial: Serial(self.serial),
            arch: Arch(self.arch),
            syscall: self.syscall.map_or(Syscall::NONE, Syscall),
            uring_op: self.uring_op,
            personality: self.personality,
            exit: self.exit,
            unproven: self.unproven,
            args: self.args,
            task: Task {
                ppid: task.ppid,
                pid: task.pid,
                auid: Auid(task.auid),
                uid: task.uid,
                gid: task.gid,
                euid: task.euid,
                suid: task.suid,
                fsuid: task.fsuid,
                egid: task.egid,
                sgid: task.sgid,
                fsgid: task.fsgid,
                ses: task.ses,
                tty: &self.tty,
                comm: &self.comm,
                exe: self.exe.as_deref(),
                subj: None,
            },
            key: self.key.as_deref(),
            argv: self
                .argv
                .as_ref()
                .map(|&(argc, ref bytes)| Argv { argc, bytes }),
            sockaddr: self.sockaddr.as_deref(),
            aux_records: [].into_iter().collect(),
            cwd: self.cwd.as_deref(),
            items: self.items.iter().map(OwnedItem::item).collect(),
            proctitle: &self.proctitle,
            task_context: None,
        }
    }

    fn syscall_field(&mut self, record: &Record<'_>, field: &Field<'_>) {
        let value: &[u8] = field.value;
        let number = || decimal::<u32>(value).unwrap_or_default();
        let task = &mut self.task;
        match field.name.as_bytes() {
            b"arch" => self.arch = hex_number(value).unwrap_or_default(),
            b"syscall" => self.syscall = decimal::<i32>(value).map(i32::cast_unsigned),
            b"uring_op" => self.uring_op = decimal(value),
            b"per" => self.personality = hex_number(value).unwrap_or_default(),
            b"exit" => self.exit = decimal(value),
            b"executed" => self.unproven = value == b"?",
            [b'a', digit @ b'0'..=b'3'] => {
                let arg = self.args.get_mut(usize::from(digit - b'0'));
                if let (Some(arg), Some(number)) = (arg, hex_number(value)) {
                    *arg = number;
                }
            }
            b"ppid" => task.ppid = number(),
            b"pid" => task.pid = number(),
            b"auid" => task.auid = number(),
            b"uid" => task.uid = number(),
            b"gid" => task.gid = number(),
            b"euid" => task.euid = number(),
            b"suid" => task.suid = number(),
            b"fsuid" => task.fsuid = number(),
            b"egid" => task.egid = number(),
            b"sgid" => task.sgid = number(),
            b"fsgid" => task.fsgid = number(),
            b"ses" => task.ses = number(),
            b"tty" if value != b"(none)" => self.tty = value.to_vec(),
            b"comm" => self.comm = text(record, field).unwrap_or_default(),
            b"exe" => self.exe = text(record, field),
            b"key" => self.key = text(record, field),
            _ => {}
        }
    }
}

impl OwnedItem {
    fn read(record: &Record<'_>) -> Self {
        let mut item = Self {
            name: None,
            source: NameSource::Kernel,
            inode: None,
            nametype: NameType::Unknown,
        };
        let mut inode = Inode {
            ino: 0,
            dev: Dev(0),
            mode: 0,
            uid: 0,
            gid: 0,
            rdev: Dev(0),
        };
        for field in record.fields().map_while(Result::ok) {
            let value: &[u8] = field.value;
            match field.name.as_bytes() {
                b"name" => item.name = text(record, &field),
                b"inode" => {
                    inode.ino = decimal(value).unwrap_or_default();
                    item.inode = Some(inode);
                }
                b"dev" => inode.dev = device(value),
                b"mode" => inode.mode = radix(value, 8).unwrap_or_default(),
                b"ouid" => inode.uid = decimal(value).unwrap_or_default(),
                b"ogid" => inode.gid = decimal(value).unwrap_or_default(),
                b"rdev" => inode.rdev = device(value),
                b"nametype" => {
                    item.nametype = match value {
                        b"NORMAL" => NameType::Normal,
                        b"PARENT" => NameType::Parent,
                        b"DELETE" => NameType::Delete,
                        b"CREATE" => NameType::Create,
                        _ => NameType::Unknown,
                    }
                }
                _ => {}
            }
        }
        item.inode = item.inode.map(|_| inode);
        item
    }

    fn item(&self) -> PathItem<'_> {
        PathItem {
            name: self.name.as_deref(),
            source: self.source,
            inode: self.inode,
            nametype: self.nametype,
            path: None,
        }
    }
}

/// A string that a task chose; `None` if there is none, or if it is malformed.
fn text(record: &Record<'_>, field: &Field<'_>) -> Option<Vec<u8>> {
    record.text(field).ok().flatten().map(Cow::into_owned)
}

fn decimal<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    value.to_str().ok()?.parse().ok()
}

fn radix(value: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(value.to_str().ok()?, radix).ok()
}

fn hex_number<N: TryFrom<u64>>(value: &[u8]) -> Option<N> {
    let number = u64::from_str_radix(value.to_str().ok()?, 16).ok()?;
    number.try_into().ok()
}

/// A device number such as `fd:01`.
fn device(value: &[u8]) -> Dev {
    let parts = value.split_once_str(b":");
    let numbers = parts.and_then(|(major, minor)| Some((radix(major, 16)?, radix(minor, 16)?)));
    numbers.map_or(Dev(0), |(major, minor)| Dev(major << 20 | minor & 0xf_ffff))
}

/// Bytes in hex, without quotes.
fn hex(value: &[u8]) -> Option<Vec<u8>> {
    let pairs = value.chunks(2);
    pairs.map(hex_number::<u8>).collect()
}
