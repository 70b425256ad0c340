//! Converts the records of an event to a JSON object.
//!
//! Records of a syscall event become the members of the daemon's JSON log; any other record becomes an object in
//! `records`. The additions of auditd's enriched format are in `names`, by the field that they explain.

mod value;

use std::borrow::Cow;

use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::{DecodeError, Field, Record};
use audit::record::execve;
use audit::table;
use bstr::ByteSlice as _;
use serde_json::Value;

pub use value::{JsonObject, JsonValue};

/// Type of the record with which the daemon passes the context of an event to its JSON log. It is in no log.
pub const CONTEXT_KIND: &[u8] = b"UNKNOWN[1499]";

/// Capabilities of a file, omitted if there are none.
const CAPABILITIES: [&str; 5] = ["cap_fp", "cap_fi", "cap_fe", "cap_fver", "cap_frootid"];

/// Converts an event. Invalid parts are reported to `wrong` and omitted.
pub fn object<'a>(event: &'a EventRecords, mut wrong: impl FnMut(DecodeError)) -> JsonObject<'a> {
    let mut object = JsonObject::default();
    let mut paths = Vec::new();
    let mut others = Vec::new();
    let records: Vec<Record<'a>> = event.records().collect();
    for record in &records {
        if record.kind == CONTEXT_KIND {
            continue;
        }
        let fields = record.fields().map(|field| member(field?, value, record));
        let fields = fields.filter_map(|member| member.map_err(&mut wrong).ok());
        let mut fields: JsonObject<'a> = fields.collect();
        match record.kind.as_bytes() {
            b"SYSCALL" | b"URINGOP" => syscall(fields, &mut object),
            b"CWD" | b"PROCTITLE" | b"SOCKADDR" => object.append(fields),
            b"PATH" => {
                fields.remove("item");
                if CAPABILITIES.iter().all(|name| is_zero(fields.get(name))) {
                    CAPABILITIES.iter().for_each(|name| fields.remove(name));
                }
                names(record, &mut fields);
                paths.push(JsonValue::Object(fields));
                continue;
            }
            b"EXECVE" | b"EOE" => continue,
            kind => {
                if fields.get("type").is_none() {
                    fields.put("type", kind);
                }
                names(record, &mut fields);
                others.push(JsonValue::Object(fields));
                continue;
            }
        }
        names(record, &mut object);
    }
    arguments(&records, &mut object, wrong);
    for (name, list) in [("path", paths), ("records", others)] {
        if !list.is_empty() {
            object.put(name, JsonValue::List(list));
        }
    }
    // At last: a record of another host may have fields of these names.
    let time = event.time();
    object.put("time", format!("{}.{:03}", time.sec, time.milli));
    object.put("serial", i64::from(event.serial().0));
    if let Some(node) = event.node() {
        object.put("node", node.as_bytes());
    }
    object
}

/// Members of a SYSCALL or URINGOP record.
fn syscall<'a>(fields: JsonObject<'a>, object: &mut JsonObject<'a>) {
    let (mut task, mut call) = (JsonObject::default(), JsonObject::default());
    let arch = fields.get("arch").and_then(JsonValue::as_str);
    let arch = arch.and_then(|arch| u32::from_str_radix(arch, 16).ok());
    let mut others = Vec::new();
    for (name, value) in fields.into_members() {
        match &*name {
            "items" => {}
            "syscall" => {
                let number = value.as_str().and_then(|number| number.parse().ok());
                if let Some((arch, number)) = arch.zip(number)
                    && let Some(name) = table::syscall_name(Arch(arch), Syscall(number))
                {
                    call.put("syscall", name.as_bytes());
                }
                let number = number.map(|number| JsonValue::Number(number.into()));
                call.put("number", number.unwrap_or(value));
            }
            "success" => call.put("success", JsonValue::Bool(value.is_text("yes"))),
            "tty" if value.is_text("(none)") => task.put("tty", &b""[..]),
            known if is_of_task(known.as_bytes()) => task.put(name, value),
            _ => others.push((name, value)),
        }
    }
    call.put("task", JsonValue::Object(task));
    object.append(others.into_iter().collect());
    object.append(call);
}

/// Arguments of a started program.
fn arguments<'a>(
    records: &[Record<'a>],
    object: &mut JsonObject<'a>,
    mut wrong: impl FnMut(DecodeError),
) {
    match execve::arguments(records) {
        Ok(found) if found.args.is_empty() && found.argc == 0 => {}
        Ok(found) => {
            object.put("argc", i64::from(found.argc));
            let args = found.args.into_iter();
            let args = args.map(|arg| JsonValue::Text(Cow::Owned(arg.into())));
            object.put("argv", JsonValue::List(args.collect()));
        }
        Err(error) => wrong(error),
    }
}

/// Names of numbers from the enriched format.
fn names<'a>(record: &Record<'a>, object: &mut JsonObject<'a>) {
    let names = record.enrichment().flatten().map(|field| {
        let name = field.name.to_str_lossy().to_ascii_lowercase();
        (Cow::Owned(name), unquoted(field.value).into())
    });
    let names: JsonObject<'a> = names.collect();
    if !names.is_empty() {
        object.put("names", JsonValue::Object(names));
    }
}

/// A function that makes the value of a field.
type Convert<'a> = fn(&Record<'a>, &Field<'a>) -> Result<JsonValue<'a>, DecodeError>;

fn member<'a>(
    field: Field<'a>,
    convert: Convert<'a>,
    record: &Record<'a>,
) -> Result<(Cow<'a, str>, JsonValue<'a>), DecodeError> {
    Ok((field.name.to_str_lossy(), convert(record, &field)?))
}

fn value<'a>(record: &Record<'a>, field: &Field<'a>) -> Result<JsonValue<'a>, DecodeError> {
    let bytes: &'a [u8] = field.value.as_bytes();
    if !bytes.starts_with(b"'") {
        return plain_value(record, field);
    }
    let fields = record.nested_fields(field);
    let fields = fields.map(|field| member(field?, plain_value, record));
    let fields: JsonObject<'a> = fields.collect::<Result<_, _>>()?;
    Ok(if fields.is_empty() {
        bytes.trim_with(|byte| byte == '\'').into()
    } else {
        JsonValue::Object(fields)
    })
}

/// A value without fields in it: quotes within quotes are text.
fn plain_value<'a>(record: &Record<'a>, field: &Field<'a>) -> Result<JsonValue<'a>, DecodeError> {
    let bytes: &'a [u8] = field.value.as_bytes();
    if is_number(field.name) {
        let number = bytes.to_str().ok().and_then(|text| text.parse().ok());
        return Ok(number.map_or_else(|| bytes.into(), JsonValue::Number));
    }
    let decoded = record.text(field)?;
    Ok(match (field.name.as_bytes(), decoded) {
        (b"key", Some(keys)) => {
            let keys = keys.split(|&byte| byte == 1);
            JsonValue::List(
                keys.map(|key| JsonValue::Text(Cow::Owned(key.to_owned())))
                    .collect(),
            )
        }
        (_, None) => JsonValue::Null,
        (_, Some(Cow::Borrowed(bytes))) => unquoted(bytes).into(),
        (_, Some(Cow::Owned(bytes))) => JsonValue::Text(Cow::Owned(bytes)),
    })
}

/// Whether a field has decimal values. Such a match compares no more bytes than it needs.
const fn is_number(name: &[u8]) -> bool {
    matches!(
        name,
        b"argc"
            | b"auid"
            | b"cap_frootid"
            | b"code"
            | b"egid"
            | b"entries"
            | b"euid"
            | b"exit"
            | b"family"
            | b"fd"
            | b"fd0"
            | b"fd1"
            | b"format"
            | b"frootid"
            | b"fsgid"
            | b"fsuid"
            | b"gid"
            | b"id"
            | b"igid"
            | b"inode"
            | b"iuid"
            | b"mqdes"
            | b"nargs"
            | b"new-auid"
            | b"new-ses"
            | b"oauid"
            | b"ogid"
            | b"old-auid"
            | b"old-ses"
            | b"opid"
            | b"oses"
            | b"ouid"
            | b"pid"
            | b"ppid"
            | b"qbytes"
            | b"saddr_fam"
            | b"ses"
            | b"sgid"
            | b"sig"
            | b"suid"
            | b"uid"
            | b"uring_op"
    )
}

/// Whether a field of a SYSCALL record describes the task.
const fn is_of_task(name: &[u8]) -> bool {
    matches!(
        name,
        b"auid"
            | b"comm"
            | b"egid"
            | b"euid"
            | b"exe"
            | b"fsgid"
            | b"fsuid"
            | b"gid"
            | b"pid"
            | b"ppid"
            | b"ses"
            | b"sgid"
            | b"subj"
            | b"suid"
            | b"tty"
            | b"uid"
    )
}

fn is_zero(value: Option<&JsonValue<'_>>) -> bool {
    value.is_none_or(|value| value.is_text("0") || matches!(value, JsonValue::Number(0)))
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
    JsonValue::from(bytes).into()
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;

    use serde_json::json;

    use super::*;

    fn converted(lines: &str) -> (Value, Vec<String>) {
        let mut assembler = EventAssembler::default();
        let (mut objects, mut errors) = (Vec::new(), Vec::new());
        let mut keep = |event: &EventRecords| {
            let object = object(event, |error| errors.push(error.to_string()));
            let written = serde_json::to_string(&object).unwrap();
            let value = Value::Object(object.into());
            assert_eq!(written, value.to_string());
            objects.push(value);
        };
        for line in lines.lines() {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        assembler.end_all();
        assembler.drain_ended(&mut keep);
        let [object] = objects.try_into().unwrap();
        (object, errors)
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

    /// Whoever writes a record chooses neither the event that it is of, nor the call.
    #[test]
    fn fields_do_not_replace_what_the_event_has() {
        let (object, errors) = converted(
            "node=h type=SYSCALL msg=audit(1.042:7): number=5 arch=c000003e syscall=59 success=yes pid=1 pid=2\n\
             node=h type=CWD msg=audit(1.042:7): time=2 serial=8 node=x cwd=\"/\" cwd=\"/b\"\n",
        );
        assert_eq!(errors, [""; 0]);
        let expected = json!({
            "time": "1.042", "serial": 7, "node": "h", "arch": "c000003e", "syscall": "execve", "number": 59,
            "success": true, "cwd": "/b", "task": { "pid": 2 },
        });
        assert_eq!(object, expected);
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
