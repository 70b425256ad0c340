//! The syscall of an event, read back from its records.
//!
//! Records do not say all that the engine saw: where names were read, for example. Such members have their default.

use audit::event::{
    Argv, Event, Inode, NameSource, NameType, PathItem, SecurityLabel, Task, Timestamp,
};
use audit::ids::{Arch, Auid, Dev, Serial, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::{Field, Record};
use audit::record::execve;
use bstr::ByteSlice as _;

use crate::event_values::decoded;

/// A syscall with the strings that [`Event`] borrows.
#[derive(Clone, Debug)]
pub struct SyscallEvent {
    time: Timestamp,
    serial: Serial,
    arch: Arch,
    syscall: Syscall,
    uring_op: Option<u8>,
    personality: u32,
    exit: Option<i64>,
    unproven: bool,
    args: [u64; 4],
    ids: Ids,
    tty: Vec<u8>,
    comm: Vec<u8>,
    exe: Option<Vec<u8>>,
    subj: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    argv: Option<(u32, Vec<u8>)>,
    sockaddr: Option<Vec<u8>>,
    cwd: Option<Vec<u8>>,
    items: Vec<Item>,
    proctitle: Vec<u8>,
}

/// Numbers of the task.
#[derive(Clone, Copy, Debug, Default)]
struct Ids {
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

#[derive(Clone, Debug)]
struct Item {
    name: Option<Vec<u8>>,
    source: NameSource,
    inode: Option<Inode>,
    nametype: NameType,
}

impl SyscallEvent {
    /// Reads the syscall of an event; `None` if the event has none.
    #[must_use]
    pub fn of(event: &EventRecords) -> Option<Self> {
        let mut records = event.records();
        let record =
            records.find(|record| matches!(record.kind.as_bytes(), b"SYSCALL" | b"URINGOP"))?;
        let mut syscall = Self {
            time: event.time(),
            serial: event.serial(),
            arch: Arch(0),
            syscall: Syscall::NONE,
            uring_op: None,
            personality: 0,
            exit: None,
            unproven: false,
            args: [0; 4],
            ids: Ids {
                auid: u32::MAX,
                ses: u32::MAX,
                ..Ids::default()
            },
            tty: Vec::new(),
            comm: Vec::new(),
            exe: None,
            subj: None,
            key: None,
            argv: None,
            sockaddr: None,
            cwd: None,
            items: Vec::new(),
            proctitle: Vec::new(),
        };
        for field in record.fields().map_while(Result::ok) {
            syscall.field(&record, &field);
        }
        let mut execve = Vec::new();
        for record in event.records() {
            match record.kind.as_bytes() {
                b"CWD" => syscall.cwd = text(&record, "cwd"),
                b"PATH" => syscall.items.push(Item::of(&record)),
                b"PROCTITLE" => syscall.proctitle = text(&record, "proctitle").unwrap_or_default(),
                b"SOCKADDR" => {
                    syscall.sockaddr = record.field("saddr").and_then(|field| bytes(field.value));
                }
                b"EXECVE" => execve.push(record),
                _ => {}
            }
        }
        let found = execve::readable(&execve);
        if !found.args.is_empty() {
            let mut argv = Vec::new();
            for argument in &found.args {
                argv.extend_from_slice(argument);
                argv.push(0);
            }
            syscall.argv = Some((found.argc, argv));
        }
        Some(syscall)
    }

    /// Marks the name of an object as read from the task's memory. Records do not tell.
    pub fn mark_user_name(&mut self, item: usize) {
        if let Some(item) = self.items.get_mut(item) {
            item.source = NameSource::User;
        }
    }

    fn field(&mut self, record: &Record<'_>, field: &Field<'_>) {
        let value = field.value.as_bytes();
        let ids = &mut self.ids;
        let id = match field.name.as_bytes() {
            b"ppid" => &mut ids.ppid,
            b"pid" => &mut ids.pid,
            b"auid" => &mut ids.auid,
            b"uid" => &mut ids.uid,
            b"gid" => &mut ids.gid,
            b"euid" => &mut ids.euid,
            b"suid" => &mut ids.suid,
            b"fsuid" => &mut ids.fsuid,
            b"egid" => &mut ids.egid,
            b"sgid" => &mut ids.sgid,
            b"fsgid" => &mut ids.fsgid,
            b"ses" => &mut ids.ses,
            _ => return self.other_field(record, field),
        };
        *id = number(value, 10).unwrap_or(*id);
    }

    fn other_field(&mut self, record: &Record<'_>, field: &Field<'_>) {
        let value = field.value.as_bytes();
        let text = || decoded(record, field).map(std::borrow::Cow::into_owned);
        match field.name.as_bytes() {
            b"arch" => self.arch = Arch(number(value, 16).unwrap_or(0)),
            b"syscall" => self.syscall = number(value, 10).map_or(Syscall::NONE, Syscall),
            b"uring_op" => self.uring_op = number(value, 10),
            b"per" => self.personality = number(value, 16).unwrap_or(0),
            b"exit" => self.exit = value.to_str().ok().and_then(|text| text.parse().ok()),
            b"executed" => self.unproven = value == b"?",
            [b'a', digit @ b'0'..=b'3'] => {
                if let Some(arg) = self.args.get_mut(usize::from(digit - b'0')) {
                    *arg = wide(value, 16).unwrap_or(0);
                }
            }
            b"tty" if value != b"(none)" => self.tty = value.to_vec(),
            b"comm" => self.comm = text().unwrap_or_default(),
            b"exe" => self.exe = text(),
            b"subj" => self.subj = Some(value.to_vec()),
            b"key" => self.key = text(),
            _ => {}
        }
    }

    /// The event, as the engine gives it.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        let ids = self.ids;
        Event {
            time: self.time,
            serial: self.serial,
            arch: self.arch,
            syscall: self.syscall,
            uring_op: self.uring_op,
            uring_enter: None,
            personality: self.personality,
            exit: self.exit,
            unproven: self.unproven,
            args: self.args,
            task: Task {
                ppid: ids.ppid,
                pid: ids.pid,
                auid: Auid(ids.auid),
                uid: ids.uid,
                gid: ids.gid,
                euid: ids.euid,
                suid: ids.suid,
                fsuid: ids.fsuid,
                egid: ids.egid,
                sgid: ids.sgid,
                fsgid: ids.fsgid,
                ses: ids.ses,
                tty: &self.tty,
                comm: &self.comm,
                exe: self.exe.as_deref(),
                subj: self
                    .subj
                    .as_deref()
                    .map(|name| SecurityLabel { name, mode: None }),
            },
            key: self.key.as_deref(),
            argv: self
                .argv
                .as_ref()
                .map(|(argc, bytes)| Argv { argc: *argc, bytes }),
            sockaddr: self.sockaddr.as_deref(),
            aux_records: [].into_iter().collect(),
            cwd: self.cwd.as_deref(),
            items: self.items.iter().map(Item::path_item).collect(),
            proctitle: &self.proctitle,
            task_context: None,
        }
    }
}

impl Item {
    fn of(record: &Record<'_>) -> Self {
        let value = |name: &str| record.field(name).map(|field| field.value.as_bytes());
        let decimal = |name: &str| value(name).and_then(|value| number(value, 10));
        let device = |name: &str| value(name).and_then(device).unwrap_or(Dev(0));
        let ino = value("inode").and_then(|value| wide(value, 10));
        let mode = value("mode").and_then(|value| number(value, 8));
        let inode = ino.zip(mode).map(|(ino, mode)| Inode {
            ino,
            dev: device("dev"),
            mode,
            uid: decimal("ouid").unwrap_or(0),
            gid: decimal("ogid").unwrap_or(0),
            rdev: device("rdev"),
        });
        let nametype = match value("nametype") {
            Some(b"NORMAL") => NameType::Normal,
            Some(b"PARENT") => NameType::Parent,
            Some(b"DELETE") => NameType::Delete,
            Some(b"CREATE") => NameType::Create,
            _ => NameType::Unknown,
        };
        Self {
            name: text(record, "name"),
            source: NameSource::Kernel,
            inode,
            nametype,
        }
    }

    fn path_item(&self) -> PathItem<'_> {
        PathItem {
            name: self.name.as_deref(),
            source: self.source,
            inode: self.inode,
            nametype: self.nametype,
            path: None,
        }
    }
}

fn text(record: &Record<'_>, name: &str) -> Option<Vec<u8>> {
    let field = record.field(name)?;
    decoded(record, &field).map(std::borrow::Cow::into_owned)
}

fn number<T: TryFrom<u64>>(digits: &[u8], radix: u32) -> Option<T> {
    wide(digits, radix)?.try_into().ok()
}

fn wide(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(digits.to_str().ok()?, radix).ok()
}

fn device(text: &[u8]) -> Option<Dev> {
    let (major, minor) = text.split_once_str(":")?;
    let (major, minor): (u32, u32) = (number(major, 16)?, number(minor, 16)?);
    Some(Dev((major & 0xfff) << 20 | minor & 0xf_ffff))
}

/// Bytes of hex digits.
fn bytes(hex: &[u8]) -> Option<Vec<u8>> {
    let pairs = hex.chunks(2).map(|pair| number(pair, 16));
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;
    use audit::record::encode;

    use super::*;

    #[test]
    fn records_of_the_syscall_are_encoded_to_the_same_text() {
        let stamp = "msg=audit(1700000000.042:2147483655): ";
        let text = format!(
            "type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=ffffff9c a2=0 a3=7fff items=2 \
             ppid=1 pid=42 auid=1000 uid=1 gid=2 euid=3 suid=4 fsuid=5 egid=6 sgid=7 fsgid=8 tty=pts0 ses=3 \
             comm=\"a\" exe=2F6120 subj=unconfined key=610162\n\
             type=EXECVE {stamp}argc=2 a0=\"a\" a1=6220\n\
             type=CWD {stamp}cwd=\"/\"\n\
             type=PATH {stamp}item=0 name=\"/tmp/\" inode=5 dev=08:01 mode=040755 ouid=0 ogid=9 rdev=00:00 nametype=PARENT cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n\
             type=PATH {stamp}item=1 name=(null) inode=6 dev=fd:100 mode=0100644 ouid=0 ogid=0 rdev=01:03 nametype=NORMAL cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n\
             type=PROCTITLE {stamp}proctitle=61006220\n"
        );
        let mut assembler = EventAssembler::default();
        for line in text.lines() {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        let event = assembler.next_ended().unwrap();
        let syscall = SyscallEvent::of(&event).unwrap();
        let mut encoded = Vec::new();
        encode::event(&syscall.event(), &mut encoded);
        let eoe = encoded.find("type=EOE").unwrap_or(encoded.len());
        assert_eq!(encoded[..eoe].as_bstr(), text.as_bytes().as_bstr());
    }

    #[test]
    fn names_from_user_memory_are_marked() {
        let mut assembler = EventAssembler::default();
        let stamp = "msg=audit(1.000:1):";
        for line in [
            format!("type=SYSCALL {stamp} syscall=2 items=1 executed=?"),
            format!("type=PATH {stamp} item=0 name=\"/a\" nametype=UNKNOWN"),
            format!("type=PROCTITLE {stamp} proctitle=\"a\""),
        ] {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        let mut event = SyscallEvent::of(&assembler.next_ended().unwrap()).unwrap();
        assert!(event.event().unproven);
        assert_eq!(event.event().items[0].source, NameSource::Kernel);
        event.mark_user_name(0);
        event.mark_user_name(1);
        assert_eq!(event.event().items[0].source, NameSource::User);
    }

    #[test]
    fn other_events_have_no_syscall() {
        let mut assembler = EventAssembler::default();
        let line = b"type=USER_LOGIN msg=audit(1.000:1): pid=1 msg='op=login'";
        assembler.take(line, 0).unwrap();
        assert!(SyscallEvent::of(&assembler.next_ended().unwrap()).is_none());
    }
}
