//! Events as JSON, one object on a line.
//!
//! ```text
//! {"time":"1700000000.007","serial":2147483649,"arch":"c000003e","syscall":"openat","number":257,
//!  "success":true,"exit":3,"a0":"ffffff9c",...,"task":{"pid":4322,...},"key":["identity"],
//!  "cwd":"/home","path":[{"name":"/etc/shadow","nametype":"NORMAL","inode":9,...}],...}
//! ```
//!
//! Fields have the names and bases of records, and are omitted where a record omits them. Strings chosen by a task
//! are JSON strings if they are UTF-8, else `{"hex":"..."}`.

mod context;
mod ecs;
mod event_fields;
pub(crate) mod log;
mod ocsf;
pub(crate) mod records;
#[cfg(test)]
mod samples;

use std::fmt::Write as _;

use audit::event::{Event, Inode, NameSource, NameType, PathItem, Task, reported_exit, succeeded};
use audit::ids::{Dev, Syscall};
use audit::table;
use bstr::ByteSlice as _;
use logs::json::text;
use serde_json::{Map, Value, json};

use crate::config::JsonSchema;

pub(crate) use context::JsonRecords;

impl JsonSchema {
    /// Converts an object of [`records::object`] to an event of this schema.
    pub(crate) fn event(self, object: Map<String, Value>) -> Value {
        match self {
            Self::Records => Value::Object(object),
            Self::Ecs => ecs::event(object),
            Self::Ocsf => ocsf::event(object),
        }
    }
}

/// Appends an event as one line.
pub(crate) fn event(event: &Event<'_>, out: &mut Vec<u8>) {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    let time = event.time;
    put("time", json!(format!("{}.{:03}", time.sec, time.milli)));
    put("serial", json!(event.serial.0));
    put("arch", json!(format!("{:x}", event.arch)));
    if let Some(name) = table::syscall_name(event.arch, event.syscall) {
        put("syscall", json!(name));
    }
    if event.syscall != Syscall::NONE {
        put("number", json!(event.syscall.0));
    }
    if let Some(op) = event.uring_op {
        put("uring_op", json!(op));
    }
    if event.personality != 0 {
        put("per", json!(format!("{:x}", event.personality)));
    }
    if let Some(raw) = event.exit {
        let exit = reported_exit(raw);
        put("success", json!(succeeded(exit)));
        put("exit", json!(exit));
    }
    if event.unproven {
        put("executed", json!("?"));
    }
    for (name, arg) in ["a0", "a1", "a2", "a3"].into_iter().zip(event.args) {
        put(name, json!(format!("{arg:x}")));
    }
    put("task", task(&event.task));
    if let Some(key) = event.key {
        put("key", key.split(|&byte| byte == 1).map(text).collect());
    }
    if let Some(argv) = event.argv {
        put("argc", json!(argv.argc));
        put("argv", argv.args().map(text).collect());
    }
    if let Some(address) = event.sockaddr {
        put("saddr", json!(hex(address)));
    }
    if let Some(cwd) = event.cwd {
        put("cwd", text(cwd));
    }
    if !event.items.is_empty() {
        put("path", event.items.iter().map(item).collect());
    }
    put(
        "proctitle",
        text(event.proctitle.trim_end_with(|char| char == '\0')),
    );
    if let Some(background) = &event.task_context {
        context::background(background, &mut object);
    }
    let line = Value::Object(object).to_string();
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

fn task(task: &Task<'_>) -> Value {
    json!({
        "ppid": task.ppid, "pid": task.pid, "auid": task.auid.0, "uid": task.uid, "gid": task.gid,
        "euid": task.euid, "suid": task.suid, "fsuid": task.fsuid, "egid": task.egid,
        "sgid": task.sgid, "fsgid": task.fsgid, "ses": task.ses, "tty": text(task.tty),
        "comm": text(task.comm), "exe": task.exe.map(text),
    })
}

fn item(item: &PathItem<'_>) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("name", item.name.map_or(Value::Null, text));
    let nametype = match item.nametype {
        NameType::Unknown => "UNKNOWN",
        NameType::Normal => "NORMAL",
        NameType::Parent => "PARENT",
        NameType::Delete => "DELETE",
        NameType::Create => "CREATE",
    };
    put("nametype", json!(nametype));
    if let Some(path) = item.path {
        put("path", text(path));
    }
    let source = match item.source {
        NameSource::Kernel => "kernel",
        NameSource::User => "user",
    };
    put("source", json!(source));
    if let Some(Inode {
        ino,
        dev,
        mode,
        uid,
        gid,
        rdev,
    }) = item.inode
    {
        put("inode", json!(ino));
        put("dev", json!(device(dev)));
        put("mode", json!(format!("{mode:#o}").replacen("0o", "0", 1)));
        put("ouid", json!(uid));
        put("ogid", json!(gid));
        put("rdev", json!(device(rdev)));
    }
    Value::Object(object)
}

fn device(dev: Dev) -> String {
    format!("{:02x}:{:02x}", dev.major(), dev.minor())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ok = write!(text, "{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use audit::event::Timestamp;
    use audit::ids::{Arch, Auid, Serial, Syscall};
    use audit::record::assemble::{EventAssembler, EventRecords};
    use audit::record::encode;

    use super::*;

    /// An event with all fields that could deceive a reader.
    fn whole() -> Event<'static> {
        let dev = Dev(0x80_0001);
        let item = PathItem {
            name: Some(b"a\xffb"),
            source: NameSource::User,
            inode: Some(Inode {
                ino: 9,
                dev,
                mode: 0o100_640,
                uid: 0,
                gid: 42,
                rdev: Dev(0),
            }),
            nametype: NameType::Create,
            path: None,
        };
        let task = Task {
            ppid: 1,
            pid: 42,
            auid: Auid(1000),
            uid: 1000,
            gid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            ses: 1,
            tty: b"",
            comm: b"two\nlines",
            exe: None,
            subj: None,
        };
        Event {
            time: Timestamp {
                sec: 1_700_000_000,
                milli: 7,
            },
            serial: Serial(1),
            arch: Arch::X86_64,
            syscall: Syscall(257),
            uring_op: None,
            uring_enter: None,
            personality: 0,
            exit: Some(-512),
            unproven: false,
            args: [u64::MAX, 0, 0, 0],
            task,
            key: Some(b"a\x01b"),
            argv: None,
            sockaddr: Some(b"\x02\x00"),
            aux_records: [].into_iter().collect(),
            cwd: Some(b"/home"),
            items: [item].into_iter().collect(),
            proctitle: b"x\0",
            task_context: None,
        }
    }

    #[test]
    fn event_is_one_line_and_parses_back() {
        let whole = whole();
        let mut out = Vec::new();
        event(&whole, &mut out);
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["syscall"], "openat");
        assert_eq!(
            (&value["exit"], &value["success"]),
            (&json!(-4), &json!(false))
        );
        assert_eq!(value["key"], json!(["a", "b"]));
        assert_eq!(value["task"]["exe"], Value::Null);
        assert_eq!(value["saddr"], "0200");
        assert_eq!(value["path"][0]["name"], json!({"hex": "61FF62"}));
        assert_eq!(value["path"][0]["mode"], "0100640");
        assert_eq!(value["path"][0]["dev"], "08:01");
    }

    #[test]
    fn records_of_an_event_give_the_same_object() {
        let mut direct = Vec::new();
        event(&whole(), &mut direct);
        let mut direct: Value = serde_json::from_slice(&direct).unwrap();
        let mut text = Vec::new();
        encode::event(&whole(), &mut text);
        let mut assembler = EventAssembler::default();
        let mut converted = Vec::new();
        let mut keep = |event: &EventRecords| {
            let object = records::object(event, |error| panic!("{error}"));
            converted.push(Value::Object(object));
        };
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            assembler.take(line, 0).unwrap();
        }
        assembler.end_all();
        assembler.drain_ended(&mut keep);
        let [converted] = converted.try_into().unwrap();
        // Records do not tell where a name was read.
        direct["path"][0].as_object_mut().unwrap().remove("source");
        assert_eq!(converted, direct);
    }
}
