//! Converts the records of an event to a JSON object.
//!
//! Records of a syscall event become the members of the daemon's JSON log; any other record becomes an object in
//! `records`. The additions of auditd's enriched format are in `names`, by the field that they explain.

use std::borrow::Cow;
use std::fmt::Write as _;

use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::{DecodeError, Field, Record};
use audit::record::execve;
use audit::table;
use bstr::ByteSlice as _;
use serde_json::{Map, Value, json};

/// Type of the record with which the daemon passes the context of an event to its JSON log. It is in no log.
pub const CONTEXT_KIND: &[u8] = b"UNKNOWN[1499]";

/// Fields with decimal values.
const NUMBERS: [&str; 42] = [
    "pid",
    "ppid",
    "auid",
    "uid",
    "gid",
    "euid",
    "suid",
    "fsuid",
    "egid",
    "sgid",
    "fsgid",
    "ses",
    "exit",
    "argc",
    "inode",
    "ouid",
    "ogid",
    "fd",
    "fd0",
    "fd1",
    "opid",
    "oauid",
    "oses",
    "old-auid",
    "old-ses",
    "iuid",
    "igid",
    "qbytes",
    "mqdes",
    "sig",
    "nargs",
    "uring_op",
    "code",
    "new-auid",
    "new-ses",
    "id",
    "entries",
    "family",
    "saddr_fam",
    "format",
    "cap_frootid",
    "frootid",
];

/// Fields of a SYSCALL record that describe the task.
const TASK: [&str; 16] = [
    "ppid", "pid", "auid", "uid", "gid", "euid", "suid", "fsuid", "egid", "sgid", "fsgid", "ses",
    "tty", "comm", "exe", "subj",
];

/// Capabilities of a file, omitted if there are none.
const CAPABILITIES: [&str; 5] = ["cap_fp", "cap_fi", "cap_fe", "cap_fver", "cap_frootid"];

/// Converts an event. Invalid parts are reported to `wrong` and omitted.
pub fn object(event: &EventRecords, mut wrong: impl FnMut(DecodeError)) -> Map<String, Value> {
    let mut object = Map::new();
    let mut paths = Vec::new();
    let mut others = Vec::new();
    let records: Vec<_> = event.records().collect();
    for record in &records {
        if object.is_empty() {
            let time = record.time;
            put(
                &mut object,
                "time",
                json!(format!("{}.{:03}", time.sec, time.milli)),
            );
            put(&mut object, "serial", json!(record.serial.0));
            if let Some(node) = record.node {
                put(&mut object, "node", text(node));
            }
        }
        if record.kind == CONTEXT_KIND {
            continue;
        }
        let mut fields = Map::new();
        for field in record.fields() {
            match field.and_then(|field| Ok((field, value(record, &field)?))) {
                Ok((field, value)) => put(&mut fields, &field.name.to_str_lossy(), value),
                Err(error) => wrong(error),
            }
        }
        match record.kind.as_bytes() {
            b"SYSCALL" | b"URINGOP" => syscall(fields, &mut object),
            b"CWD" | b"PROCTITLE" | b"SOCKADDR" => object.append(&mut fields),
            b"PATH" => {
                fields.remove("item");
                if CAPABILITIES.iter().all(|name| is_zero(fields.get(*name))) {
                    CAPABILITIES
                        .iter()
                        .for_each(|name| drop(fields.remove(*name)));
                }
                names(record, &mut fields);
                paths.push(Value::Object(fields));
                continue;
            }
            b"EXECVE" | b"EOE" => continue,
            _ => {
                let mut other = Map::new();
                put(&mut other, "type", text(record.kind));
                other.append(&mut fields);
                names(record, &mut other);
                others.push(Value::Object(other));
                continue;
            }
        }
        names(record, &mut object);
    }
    arguments(&records, &mut object, wrong);
    for (name, list) in [("path", paths), ("records", others)] {
        if !list.is_empty() {
            put(&mut object, name, Value::Array(list));
        }
    }
    object
}

fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    object.insert(name.to_owned(), value);
}

/// Members of a SYSCALL or URINGOP record.
fn syscall(fields: Map<String, Value>, object: &mut Map<String, Value>) {
    let mut task = Map::new();
    let arch = fields
        .get("arch")
        .and_then(Value::as_str)
        .and_then(|arch| u32::from_str_radix(arch, 16).ok());
    for (name, value) in fields {
        match name.as_str() {
            "items" => {}
            "syscall" => {
                let number = value.as_str().and_then(|number| number.parse().ok());
                if let Some((arch, number)) = arch.zip(number)
                    && let Some(name) = table::syscall_name(Arch(arch), Syscall(number))
                {
                    put(object, "syscall", json!(name));
                }
                put(
                    object,
                    "number",
                    number.map_or(value, |number| json!(number)),
                );
            }
            "success" => put(object, "success", json!(value == "yes")),
            "tty" if value == "(none)" => put(&mut task, "tty", json!("")),
            known if TASK.contains(&known) => put(&mut task, known, value),
            other => put(object, other, value),
        }
    }
    put(object, "task", Value::Object(task));
}

/// Arguments of a started program.
fn arguments(
    records: &[Record<'_>],
    object: &mut Map<String, Value>,
    mut wrong: impl FnMut(DecodeError),
) {
    match execve::arguments(records) {
        Ok(found) if found.args.is_empty() && found.argc == 0 => {}
        Ok(found) => {
            put(object, "argc", json!(found.argc));
            put(
                object,
                "argv",
                found.args.iter().map(|arg| text(arg)).collect(),
            );
        }
        Err(error) => wrong(error),
    }
}

/// Names of numbers from the enriched format.
fn names(record: &Record<'_>, object: &mut Map<String, Value>) {
    let mut names = Map::new();
    for field in record.enrichment().flatten() {
        let name = field.name.to_str_lossy().to_ascii_lowercase();
        put(&mut names, &name, text(unquoted(field.value)));
    }
    if !names.is_empty() {
        put(object, "names", Value::Object(names));
    }
}

fn value(record: &Record<'_>, field: &Field<'_>) -> Result<Value, DecodeError> {
    if field.value.starts_with(b"'") {
        let mut nested_fields = Map::new();
        for field in record.nested_fields(field) {
            let field = field?;
            put(
                &mut nested_fields,
                &field.name.to_str_lossy(),
                plain_value(record, &field)?,
            );
        }
        return Ok(if nested_fields.is_empty() {
            text(field.value.trim_with(|byte| byte == '\''))
        } else {
            Value::Object(nested_fields)
        });
    }
    plain_value(record, field)
}

/// A value without fields in it: quotes within quotes are text.
fn plain_value(record: &Record<'_>, field: &Field<'_>) -> Result<Value, DecodeError> {
    let name = field.name.to_str_lossy();
    if NUMBERS.contains(&&*name) {
        let number = field.value.to_str().ok().and_then(|text| text.parse().ok());
        let number = number.map(|number: i64| json!(number));
        return Ok(number.unwrap_or_else(|| text(field.value)));
    }
    let decoded = record.text(field)?;
    Ok(match (&*name, decoded) {
        ("key", Some(keys)) => keys.split(|&byte| byte == 1).map(text).collect(),
        (_, None) => Value::Null,
        (_, Some(Cow::Borrowed(bytes))) => text(unquoted(bytes)),
        (_, Some(Cow::Owned(bytes))) => text(&bytes),
    })
}

fn is_zero(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value == "0" || value == 0)
}

fn unquoted(bytes: &[u8]) -> &[u8] {
    bytes
        .strip_prefix(b"\"")
        .and_then(|bytes| bytes.strip_suffix(b"\""))
        .unwrap_or(bytes)
}

/// Bytes as text, or as an object with their hex digits.
#[must_use]
pub fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
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
    use audit::record::assemble::EventAssembler;

    use super::*;

    fn converted(lines: &str) -> (Value, Vec<String>) {
        let mut assembler = EventAssembler::default();
        let (mut objects, mut errors) = (Vec::new(), Vec::new());
        let mut keep = |event: &EventRecords| {
            objects.push(object(event, |error| errors.push(error.to_string())));
        };
        for line in lines.lines() {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        assembler.end_all();
        assembler.drain_ended(&mut keep);
        let [object] = objects.try_into().unwrap();
        (Value::Object(object), errors)
    }

    #[test]
    fn quotes_within_quotes_are_text() {
        let mut assembler = EventAssembler::default();
        let deep = "='".repeat(20_000);
        let line = format!(
            "type=USER msg=audit(1.000:1): pid=1 msg='op{deep}x{}'",
            "'".repeat(20_000)
        );
        assembler.take(line.as_bytes(), 0).unwrap();
        assembler.end_all();
        let event = assembler.next_ended().unwrap();
        let object = object(&event, |_error| ());
        assert!(!object.is_empty());
    }

    #[test]
    fn syscall_event_has_the_members_of_the_json_log() {
        let (object, errors) = converted(
            "node=h type=SYSCALL msg=audit(1700000000.042:7): arch=c000003e syscall=59 success=yes exit=0 \
             a0=1 a1=2 a2=3 a3=4 items=1 ppid=1 pid=42 auid=4294967295 uid=0 tty=(none) ses=3 comm=\"a\" \
             exe=\"/bin/a\" subj=unconfined key=610162\x1dARCH=x86_64 SYSCALL=execve AUID=\"unset\" UID=\"root\"\n\
             node=h type=EXECVE msg=audit(1700000000.042:7): argc=2 a0=\"a\" a1=C3A4\n\
             node=h type=CWD msg=audit(1700000000.042:7): cwd=\"/\"\n\
             node=h type=PATH msg=audit(1700000000.042:7): item=0 name=(null) inode=5 dev=08:01 mode=0100755 \
             ouid=0 ogid=0 rdev=00:00 nametype=NORMAL cap_fp=0\x1dOUID=\"root\" OGID=\"root\"\n\
             node=h type=FD_PAIR msg=audit(1700000000.042:7): fd0=3 fd1=4\n\
             node=h type=PROCTITLE msg=audit(1700000000.042:7): proctitle=2E00FF\n",
        );
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            object,
            json!({
                "time": "1700000000.042", "serial": 7, "node": "h",
                "arch": "c000003e", "syscall": "execve", "number": 59, "success": true, "exit": 0,
                "a0": "1", "a1": "2", "a2": "3", "a3": "4",
                "task": {"ppid": 1, "pid": 42, "auid": 4_294_967_295_u32, "uid": 0, "ses": 3,
                         "tty": "", "comm": "a", "exe": "/bin/a", "subj": "unconfined"},
                "key": ["a", "b"],
                "names": {"arch": "x86_64", "syscall": "execve", "auid": "unset", "uid": "root"},
                "argc": 2, "argv": ["a", "ä"],
                "cwd": "/",
                "path": [{"name": null, "inode": 5, "dev": "08:01", "mode": "0100755", "ouid": 0,
                          "ogid": 0, "rdev": "00:00", "nametype": "NORMAL",
                          "names": {"ouid": "root", "ogid": "root"}}],
                "records": [{"type": "FD_PAIR", "fd0": 3, "fd1": 4}],
                "proctitle": {"hex": "2E00FF"},
            })
        );
    }

    #[test]
    fn user_messages_have_nested_fields() {
        let (object, errors) = converted(
            "type=USER_LOGIN msg=audit(1.000:9): pid=7 uid=0 msg='op=login acct=\"ro ot\" addr=10.0.0.1 res=failed'",
        );
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            object["records"],
            json!([{"type": "USER_LOGIN", "pid": 7, "uid": 0,
                    "msg": {"op": "login", "acct": "ro ot", "addr": "10.0.0.1", "res": "failed"}}])
        );
    }

    #[test]
    fn malformed_parts_are_reported_and_omitted() {
        let (object, errors) = converted("type=CWD msg=audit(1.000:9): cwd=zz");
        assert_eq!(errors, ["column 34: malformed value"]);
        assert_eq!(object, json!({"time": "1.000", "serial": 9}));
    }
}
