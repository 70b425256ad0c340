//! Fields of an event's object for other schemas: [`super::ecs`] and [`super::ocsf`].

use bstr::ByteSlice as _;
use serde_json::{Map, Value};

/// Activity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Started a program.
    Launch,
    /// Ended.
    Terminate,
    /// Changed its user or group.
    SetUser,
    /// Created a file.
    Create,
    /// Changed the contents of a file.
    Update,
    /// Removed a file.
    Delete,
    /// Renamed a file.
    Rename,
    /// Changed mode, owner or times of a file.
    SetAttributes,
    /// Changed extended attributes of a file, such as labels and access lists.
    SetSecurity,
    /// Opened a file, or used its name in another way.
    Open,
    /// Mounted a file system.
    Mount,
    /// Unmounted a file system.
    Unmount,
    /// Communicated with another socket.
    Connect,
    /// Changed the system: clock, host name or kernel.
    Configure,
    /// Any other syscall.
    Invoke,
    /// No syscall: a record of a program or of the kernel.
    OtherRecord,
}

/// Activity of the event.
pub(super) fn activity(object: &Map<String, Value>) -> Activity {
    let Some(call) = object.get("syscall").and_then(Value::as_str) else {
        return if object.contains_key("number") {
            Activity::Invoke
        } else {
            Activity::OtherRecord
        };
    };
    match call {
        "execve" | "execveat" => Activity::Launch,
        "exit" | "exit_group" => Activity::Terminate,
        "setuid" | "setgid" | "setreuid" | "setregid" | "setresuid" | "setresgid" | "setfsuid"
        | "setfsgid" | "setgroups" => Activity::SetUser,
        "truncate" | "ftruncate" | "write" | "pwrite64" | "writev" | "fallocate" => {
            Activity::Update
        }
        "rename" | "renameat" | "renameat2" => Activity::Rename,
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown" | "lchown"
        | "fchownat" | "utime" | "utimes" | "futimesat" | "utimensat" => Activity::SetAttributes,
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" | "removexattr" | "lremovexattr"
        | "fremovexattr" | "removexattrat" => Activity::SetSecurity,
        "mount" | "move_mount" => Activity::Mount,
        "umount" | "umount2" => Activity::Unmount,
        "connect" | "accept" | "accept4" | "sendto" | "sendmsg" => Activity::Connect,
        "adjtimex" | "settimeofday" | "clock_settime" | "clock_adjtime" | "sethostname"
        | "setdomainname" => Activity::Configure,
        _ => match item(object).and_then(|item| item.get("nametype")?.as_str()) {
            Some("CREATE") => Activity::Create,
            Some("DELETE") => Activity::Delete,
            Some(_) => Activity::Open,
            None => Activity::Invoke,
        },
    }
}

/// The object of a syscall: the one that it created or removed, else the first that is no parent directory.
pub(super) fn item(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let items = || {
        let paths = object.get("path").and_then(Value::as_array);
        paths.into_iter().flatten().filter_map(Value::as_object)
    };
    let is = |item: &&Map<String, Value>, wanted: &[&str]| {
        let nametype = item.get("nametype").and_then(Value::as_str);
        nametype.is_some_and(|nametype| wanted.contains(&nametype))
    };
    items()
        .find(|item| is(item, &["CREATE"]))
        .or_else(|| items().find(|item| is(item, &["DELETE"])))
        .or_else(|| items().find(|item| !is(item, &["PARENT"])))
}

/// Path of an object: as the kernel found it, else its name, relative to the working directory if needed.
pub(super) fn path(object: &Map<String, Value>, item: &Map<String, Value>) -> Option<String> {
    if let Some(path) = item.get("path") {
        return text(path);
    }
    let name = text(item.get("name")?)?;
    if name.starts_with('/') {
        return Some(name);
    }
    let cwd = text(object.get("cwd")?)?;
    let name = name.strip_prefix("./").unwrap_or(&name);
    Some(format!("{}/{name}", cwd.trim_end_matches('/')))
}

/// The last component of a path.
pub(super) fn name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or("/")
}

/// A string; bytes that are not UTF-8 are replaced.
pub(super) fn text(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let hex = value.get("hex")?.as_str()?;
    let (pairs, _) = hex.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes: Vec<u8> = pairs
        .iter()
        .filter_map(|&[high, low]| u8::try_from(digit(high)? * 16 + digit(low)?).ok())
        .collect();
    Some(bytes.to_str_lossy().into_owned())
}

/// Recorded arguments of a program.
pub(super) fn argv(object: &Map<String, Value>) -> Vec<String> {
    let args = object.get("argv").and_then(Value::as_array);
    args.into_iter().flatten().filter_map(text).collect()
}

/// Seconds since 1970, and milliseconds.
pub(super) fn time(object: &Map<String, Value>) -> Option<(u64, u64)> {
    let (seconds, milliseconds) = object.get("time")?.as_str()?.split_once('.')?;
    Some((seconds.parse().ok()?, milliseconds.parse().ok()?))
}

/// Type of the first record of an event without a syscall.
pub(super) fn record_kind(object: &Map<String, Value>) -> Option<&str> {
    object.get("records")?.get(0)?.get("type")?.as_str()
}

/// A numeric ID, unless it is unset.
pub(super) fn id(task: Option<&Value>, name: &str) -> Option<u64> {
    let id = task?.get(name)?.as_u64()?;
    (id != u64::from(u32::MAX)).then_some(id)
}

/// The name of an ID when the log was written.
pub(super) fn named(task: Option<&Value>, name: &str) -> Option<String> {
    text(task?.get("names")?.get(name)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else {
            panic!("{value}");
        };
        object
    }

    #[test]
    fn activity_follows_created_and_removed_objects() {
        let call = |call: &str, nametypes: &[&str]| {
            let items: Vec<Value> = nametypes
                .iter()
                .map(|nametype| json!({"name": "x", "nametype": nametype}))
                .collect();
            activity(&object(json!({"syscall": call, "path": items})))
        };
        assert_eq!(call("openat", &["PARENT", "CREATE"]), Activity::Create);
        assert_eq!(call("openat", &["NORMAL"]), Activity::Open);
        assert_eq!(call("unlink", &["PARENT", "DELETE"]), Activity::Delete);
        assert_eq!(
            call("rename", &["PARENT", "DELETE", "CREATE"]),
            Activity::Rename
        );
        assert_eq!(call("getpid", &[]), Activity::Invoke);
        assert_eq!(activity(&object(json!({"number": 999}))), Activity::Invoke);
        assert_eq!(
            activity(&object(json!({"records": []}))),
            Activity::OtherRecord
        );
    }

    #[test]
    fn relative_names_become_full_paths() {
        let of = |name: Value, cwd: &str| {
            let item = object(json!({ "name": name }));
            path(&object(json!({ "cwd": cwd })), &item)
        };
        assert_eq!(of(json!("/a"), "/b").unwrap(), "/a");
        assert_eq!(of(json!("./a"), "/").unwrap(), "/a");
        assert_eq!(of(json!("a"), "/b").unwrap(), "/b/a");
        assert_eq!(of(json!({"hex": "61FF"}), "/").unwrap(), "/a\u{fffd}");
        assert_eq!(of(Value::Null, "/"), None);
        assert_eq!((name("/a/b"), name("/"), name("/a/")), ("b", "/", "a"));
    }
}
