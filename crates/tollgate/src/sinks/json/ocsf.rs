//! Events in the Open Cybersecurity Schema Framework.
//!
//! | class | events |
//! | --- | --- |
//! | Process Activity, 1007 | program starts, task ends, user changes |
//! | File System Activity, 1001 | syscalls on a file |
//! | Kernel Activity, 1003 | all other syscalls |
//! | Base Event, 0 | records of programs or of the kernel |
//!
//! Members without an attribute in the class are below `unmapped`, as [`super::records`] writes them.
//!
//! # Source
//! <https://github.com/ocsf/ocsf-schema>, version 1.2.0; `tests/schemas/ocsf-1.2.0.json` has its attributes.

use serde_json::{Map, Value, json};

use super::event_fields::{self, Activity, activity, id, item, named, text};

const VERSION: &str = "1.2.0";
/// System Activity.
const SYSTEM: u64 = 1;
const INFORMATIONAL: u64 = 1;
/// An activity that the class does not list.
const OTHER: u64 = 99;
/// Members that have an attribute.
const TAKEN: [&str; 4] = ["time", "serial", "node", "success"];

/// A class with one of its activities.
struct Kind {
    category: u64,
    class: u64,
    activity: u64,
}

impl Kind {
    const fn of_process(activity: u64) -> Self {
        Self::of_system(7, activity)
    }

    const fn of_file(activity: u64) -> Self {
        Self::of_system(1, activity)
    }

    const fn of_system(class: u64, activity: u64) -> Self {
        Self {
            category: SYSTEM,
            class: SYSTEM * 1000 + class,
            activity,
        }
    }

    /// The class's name of an activity; file activities need a file.
    const fn of(activity: Activity, has_file: bool) -> Self {
        let file = match activity {
            Activity::Launch => return Self::of_process(1),
            Activity::Terminate => return Self::of_process(2),
            Activity::SetUser => return Self::of_process(5),
            Activity::OtherRecord => {
                return Self {
                    category: 0,
                    class: 0,
                    activity: OTHER,
                };
            }
            Activity::Create => 1,
            Activity::Update => 3,
            Activity::Delete => 4,
            Activity::Rename => 5,
            Activity::SetAttributes => 6,
            Activity::SetSecurity => 7,
            Activity::Mount => 12,
            Activity::Unmount => 13,
            Activity::Open => 14,
            Activity::Connect | Activity::Configure | Activity::Invoke => 0,
        };
        if file == 0 || !has_file {
            Self::of_system(3, 4)
        } else {
            Self::of_file(file)
        }
    }
}

/// Converts an object to an event.
pub(crate) fn event(mut object: Map<String, Value>) -> Value {
    let file = item(&object).and_then(|item| file(&object, item));
    let kind = Kind::of(activity(&object), file.is_some());
    let mut event = Map::new();
    let mut put = |name: &str, value: Value| event.insert(name.to_owned(), value);
    let (seconds, milliseconds) = event_fields::time(&object).unwrap_or_default();
    put("time", json!(seconds * 1000 + milliseconds));
    put("category_uid", json!(kind.category));
    put("class_uid", json!(kind.class));
    put("activity_id", json!(kind.activity));
    put("type_uid", json!(kind.class * 100 + kind.activity));
    put("severity_id", json!(INFORMATIONAL));
    let status = match object.get("success").and_then(Value::as_bool) {
        None => 0,
        Some(true) => 1,
        Some(false) => 2,
    };
    put("status_id", json!(status));
    if let Some(exit) = object.get("exit") {
        put("status_code", json!(exit.to_string()));
    }
    let action = object.get("syscall").and_then(Value::as_str);
    let action = action
        .or_else(|| event_fields::record_kind(&object))
        .unwrap_or("?");
    put("message", json!(action));
    put("metadata", metadata(&object, action));
    if kind.class != 0 {
        put("device", device(&object));
        put("actor", actor(&object));
        match kind.class % 1000 {
            7 => drop(put("process", process(&object))),
            1 => drop(put("file", file.unwrap_or_default())),
            _ => drop(put("kernel", json!({ "name": action, "type_id": 2 }))),
        }
    }
    for name in TAKEN {
        object.remove(name);
    }
    put("unmapped", Value::Object(object));
    Value::Object(event)
}

fn metadata(object: &Map<String, Value>, action: &str) -> Value {
    let mut metadata = json!({
        "version": VERSION,
        "product": {
            "name": "tollgate",
            "vendor_name": "tollgate",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "log_name": "audit",
        "event_code": action,
    });
    if let (Some(members), Some(serial)) = (metadata.as_object_mut(), object.get("serial")) {
        let time = object.get("time").and_then(Value::as_str);
        let uid = format!("{}:{serial}", time.unwrap_or_default());
        members.insert("uid".to_owned(), json!(uid));
        members.insert("original_time".to_owned(), json!(time));
    }
    let keys = object.get("key").and_then(Value::as_array);
    let keys: Vec<String> = keys.into_iter().flatten().filter_map(text).collect();
    if let Some(members) = metadata.as_object_mut()
        && !keys.is_empty()
    {
        members.insert("labels".to_owned(), json!(keys));
    }
    metadata
}

/// The machine, as far as its log names it.
fn device(object: &Map<String, Value>) -> Value {
    let name = object.get("node").and_then(text);
    json!({ "type_id": 0, "hostname": name.unwrap_or_else(|| "unknown".to_owned()) })
}

fn actor(object: &Map<String, Value>) -> Value {
    let task = object.get("task");
    let mut actor = Map::new();
    actor.insert("process".to_owned(), process(object));
    if let Some(user) = user(task, "auid").or_else(|| user(task, "uid")) {
        actor.insert("user".to_owned(), user);
    }
    if let Some(session) = id(task, "ses") {
        let uid = session.to_string();
        actor.insert("session".to_owned(), json!({ "uid": uid }));
    }
    Value::Object(actor)
}

/// The task: after an exec it is the new program.
fn process(object: &Map<String, Value>) -> Value {
    let task = object.get("task");
    let string = |name: &str| task.and_then(|task| text(task.get(name)?));
    let argv = event_fields::argv(object);
    let line = if argv.is_empty() {
        object.get("proctitle").and_then(text)
    } else {
        Some(argv.join(" "))
    };
    let program = string("exe")
        .map(|exe| json!({ "name": event_fields::name(&exe), "path": exe, "type_id": 1 }));
    let parent = id(task, "ppid").map(|pid| json!({ "pid": pid }));
    let values = [
        ("pid", id(task, "pid").map(Value::from)),
        ("name", string("comm").map(Value::from)),
        ("cmd_line", line.map(Value::from)),
        ("file", program),
        ("parent_process", parent),
        ("user", user(task, "euid")),
    ];
    let values = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(values.collect())
}

fn user(task: Option<&Value>, number: &str) -> Option<Value> {
    let id = id(task, number)?;
    let mut user = json!({ "uid": id.to_string() });
    if let (Some(members), Some(name)) = (user.as_object_mut(), named(task, number)) {
        members.insert("name".to_owned(), json!(name));
    }
    Some(user)
}

/// # Source
/// `type_id` of the object `file`: 0 unknown, 1 regular file, 2 folder, 7 symbolic link, and others.
fn file(object: &Map<String, Value>, item: &Map<String, Value>) -> Option<Value> {
    let path = event_fields::path(object, item)?;
    let mode = item.get("mode").and_then(Value::as_str);
    let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let kind = match mode.map(|mode| mode & 0o170_000) {
        None => 0,
        Some(0o100_000) => 1,
        Some(0o040_000) => 2,
        Some(0o020_000) => 3,
        Some(0o060_000) => 4,
        Some(0o010_000) => 5,
        Some(0o140_000) => 6,
        Some(0o120_000) => 7,
        Some(_) => 99,
    };
    let mut file = json!({ "name": event_fields::name(&path), "path": path, "type_id": kind });
    if let Some(members) = file.as_object_mut() {
        if let Some(inode) = item.get("inode").and_then(Value::as_u64) {
            members.insert("uid".to_owned(), json!(inode.to_string()));
        }
        if let Some(owner) = item.get("ouid").and_then(Value::as_u64) {
            let uid = owner.to_string();
            members.insert("owner".to_owned(), json!({ "uid": uid }));
        }
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    const SCHEMA: &str = include_str!("../../../../../tests/schemas/ocsf-1.2.0.json");

    /// Fails unless an object has the attributes of the schema, of their types, and those that it must have.
    #[track_caller]
    fn check(name: &str, object: &Value, of: &Value, objects: &Value) {
        let attributes = of["attributes"].as_object().unwrap();
        let members = object
            .as_object()
            .unwrap_or_else(|| panic!("{name} is no object"));
        for (attribute, about) in attributes {
            let required = about["required"].as_bool().unwrap_or(false);
            assert!(
                !required || members.contains_key(attribute),
                "{name} lacks {attribute}"
            );
        }
        if let Some(one) = of["at_least_one"].as_array() {
            let has = one
                .iter()
                .any(|attribute| members.contains_key(attribute.as_str().unwrap()));
            assert!(has, "{name} has none of {one:?}");
        }
        for (member, value) in members {
            let name = format!("{name}.{member}");
            let about = attributes
                .get(member)
                .unwrap_or_else(|| panic!("the schema has no {name}"));
            let is_array = about["array"].as_bool().unwrap_or(false);
            assert_eq!(value.is_array(), is_array, "{name}");
            let values = match value {
                Value::Array(values) => values.iter().collect(),
                value => vec![value],
            };
            let kind = about["type"].as_str().unwrap();
            for value in values {
                match kind {
                    "integer_t" | "long_t" => assert!(value.is_u64(), "{name}: {value}"),
                    "string_t" => assert!(value.is_string(), "{name}: {value}"),
                    // Anything may be in it.
                    "object" => assert!(value.is_object(), "{name}: {value}"),
                    object => {
                        let of = &objects[object];
                        assert!(
                            of.is_object(),
                            "{name} is {object}, of which nothing is known"
                        );
                        check(&name, value, of, objects);
                    }
                }
                if let Some(known) = about["enum"].as_array() {
                    assert!(known.contains(value), "{name} cannot be {value}");
                }
            }
        }
    }

    #[test]
    fn every_event_is_one_of_the_schema() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        assert_eq!(schema["version"], VERSION);
        let classes = schema["classes"].as_object().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for object in samples::all() {
            let event = event(object);
            let (name, class) = classes
                .iter()
                .find(|(_, class)| class["uid"] == event["class_uid"])
                .unwrap();
            assert_eq!(event["category_uid"], class["category"]);
            let number = |name: &str| event[name].as_u64().unwrap();
            assert_eq!(
                number("type_uid"),
                number("class_uid") * 100 + number("activity_id")
            );
            check(name, &event, class, &schema["objects"]);
            seen.insert(number("class_uid"));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1001, 1003, 1007]);
    }

    #[test]
    fn exec_event_has_all_fields() {
        let event = event(samples::exec());
        assert_eq!(event["time"], 1_700_000_000_007_u64);
        assert_eq!(event["type_uid"], 100_701);
        assert_eq!(event["process"]["cmd_line"], "cat /etc/shadow");
        assert_eq!(event["process"]["file"]["path"], "/usr/bin/cat");
        assert_eq!(event["actor"]["user"]["uid"], "1000");
        assert_eq!(event["metadata"]["labels"], json!(["exec"]));
        assert_eq!(event["unmapped"]["a0"], "1");
    }
}
