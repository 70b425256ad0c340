//! Events in the Elastic Common Schema.
//!
//! Members without a field in the schema are below `tollgate`, as [`super::records`] writes them.
//!
//! # Source
//! <https://github.com/elastic/ecs>, version 9.4.0; `tests/schemas/ecs-9.4.0.csv` has its fields.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::event_fields::{self, Activity, activity, id, item, named, text};

const VERSION: &str = "9.4.0";
/// Members that have a field in the schema.
const TAKEN: [&str; 7] = ["time", "serial", "node", "argc", "argv", "cwd", "proctitle"];

/// Converts an object to an event.
pub(crate) fn event(mut object: Map<String, Value>) -> Value {
    let activity = activity(&object);
    let mut event = Map::new();
    if let Some((seconds, milliseconds)) = event_fields::time(&object) {
        put(&mut event, "@timestamp", json!(date(seconds, milliseconds)));
    }
    put(&mut event, "ecs", json!({ "version": VERSION }));
    put(&mut event, "event", about(&object, activity));
    if let Some(node) = object.get("node").and_then(text) {
        put(&mut event, "host", json!({ "name": node }));
    }
    if let Some(keys) = object.get("key").and_then(Value::as_array) {
        let keys: Vec<String> = keys.iter().filter_map(text).collect();
        if let Some(first) = keys.first() {
            put(&mut event, "rule", json!({ "name": first }));
        }
        put(&mut event, "tags", json!(keys));
    }
    if object.contains_key("task") {
        put(&mut event, "process", process(&object));
        put(&mut event, "user", user(object.get("task")));
    }
    if let Some(file) = item(&object).and_then(|item| file(&object, item)) {
        put(&mut event, "file", file);
    }
    for name in TAKEN {
        object.remove(name);
    }
    put(&mut event, "tollgate", Value::Object(object));
    Value::Object(event)
}

fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    object.insert(name.to_owned(), value);
}

fn about(object: &Map<String, Value>, activity: Activity) -> Value {
    let (category, types): (&str, &[&str]) = match activity {
        Activity::Launch => ("process", &["start"]),
        Activity::Terminate => ("process", &["end"]),
        Activity::SetUser => ("process", &["change"]),
        Activity::Create => ("file", &["creation"]),
        Activity::Delete => ("file", &["deletion"]),
        Activity::Update | Activity::Rename | Activity::SetAttributes | Activity::SetSecurity => {
            ("file", &["change"])
        }
        Activity::Open => ("file", &["access"]),
        Activity::Mount | Activity::Unmount => ("host", &["change"]),
        Activity::Connect => ("network", &["connection", "start"]),
        Activity::Configure => ("configuration", &["change"]),
        Activity::Invoke => ("process", &["info"]),
        Activity::OtherRecord => category_of_record(event_fields::record_kind(object)),
    };
    let action = object
        .get("syscall")
        .and_then(Value::as_str)
        .or_else(|| event_fields::record_kind(object))
        .map(str::to_lowercase);
    let outcome = match object.get("success").and_then(Value::as_bool) {
        Some(true) => "success",
        Some(false) => "failure",
        None => "unknown",
    };
    let mut about = Map::new();
    put(&mut about, "kind", json!("event"));
    put(&mut about, "module", json!("tollgate"));
    put(&mut about, "dataset", json!("tollgate.audit"));
    put(&mut about, "category", json!([category]));
    put(&mut about, "type", json!(types));
    put(&mut about, "outcome", json!(outcome));
    if let Some(action) = action {
        put(&mut about, "action", json!(action));
    }
    if let Some(serial) = object.get("serial") {
        put(&mut about, "sequence", serial.clone());
    }
    Value::Object(about)
}

/// Category and types of a record without a syscall.
fn category_of_record(kind: Option<&str>) -> (&'static str, &'static [&'static str]) {
    match kind.unwrap_or_default() {
        "USER_AUTH" | "USER_LOGIN" | "LOGIN" | "USER_ACCT" | "CRED_ACQ" => {
            ("authentication", &["start"])
        }
        "USER_LOGOUT" | "CRED_DISP" => ("authentication", &["end"]),
        "USER_START" => ("session", &["start"]),
        "USER_END" => ("session", &["end"]),
        "ADD_USER" => ("iam", &["user", "creation"]),
        "DEL_USER" => ("iam", &["user", "deletion"]),
        "USER_CHAUTHTOK" | "USER_MGMT" => ("iam", &["user", "change"]),
        "ADD_GROUP" => ("iam", &["group", "creation"]),
        "DEL_GROUP" => ("iam", &["group", "deletion"]),
        "GRP_MGMT" => ("iam", &["group", "change"]),
        "CONFIG_CHANGE" | "DAEMON_CONFIG" => ("configuration", &["change"]),
        _ => ("host", &["info"]),
    }
}

fn process(object: &Map<String, Value>) -> Value {
    let task = object.get("task");
    let mut process = Map::new();
    let string = |name: &str| task.and_then(|task| text(task.get(name)?));
    let argv = event_fields::argv(object);
    let member = |name: &str| object.get(name).and_then(text);
    let values = [
        ("pid", id(task, "pid").map(Value::from)),
        ("name", string("comm").map(Value::from)),
        ("executable", string("exe").map(Value::from)),
        ("title", member("proctitle").map(Value::from)),
        ("working_directory", member("cwd").map(Value::from)),
        ("args_count", object.get("argc").cloned()),
        (
            "command_line",
            (!argv.is_empty()).then(|| json!(argv.join(" "))),
        ),
        ("args", (!argv.is_empty()).then(|| json!(argv))),
        ("parent", id(task, "ppid").map(|pid| json!({ "pid": pid }))),
    ];
    let ids = [
        ("user", "euid"),
        ("real_user", "uid"),
        ("saved_user", "suid"),
        ("group", "egid"),
        ("real_group", "gid"),
        ("saved_group", "sgid"),
    ];
    let ids = ids.map(|(field, name)| {
        let id = id(task, name).map(|id| json!({ "id": id.to_string() }));
        (field, id)
    });
    for (name, value) in values.into_iter().chain(ids) {
        if let Some(value) = value {
            put(&mut process, name, value);
        }
    }
    Value::Object(process)
}

/// User and effective user of a task.
fn user(task: Option<&Value>) -> Value {
    let one = |number: &str| {
        let mut user = Map::new();
        if let Some(id) = id(task, number) {
            put(&mut user, "id", json!(id.to_string()));
        }
        if let Some(name) = named(task, number) {
            put(&mut user, "name", json!(name));
        }
        user
    };
    let mut user = one("uid");
    put(&mut user, "effective", Value::Object(one("euid")));
    Value::Object(user)
}

fn file(object: &Map<String, Value>, item: &Map<String, Value>) -> Option<Value> {
    let path = event_fields::path(object, item)?;
    let mut file = Map::new();
    put(&mut file, "name", json!(event_fields::name(&path)));
    if let Some((directory, _)) = path.rsplit_once('/') {
        let directory = if directory.is_empty() { "/" } else { directory };
        put(&mut file, "directory", json!(directory));
    }
    put(&mut file, "path", json!(path));
    for (field, name) in [("inode", "inode"), ("uid", "ouid"), ("gid", "ogid")] {
        if let Some(number) = item.get(name).and_then(Value::as_u64) {
            put(&mut file, field, json!(number.to_string()));
        }
    }
    let mode = item.get("mode").and_then(Value::as_str);
    if let Some(mode) = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()) {
        put(&mut file, "mode", json!(format!("{:04o}", mode & 0o7777)));
        let kind = match mode & 0o170_000 {
            0o040_000 => "dir",
            0o120_000 => "symlink",
            _ => "file",
        };
        put(&mut file, "type", json!(kind));
    }
    Some(Value::Object(file))
}

/// Formats a time as RFC 3339, in UTC. Times after the year 9999 have no such form and become its end.
fn date(seconds: u64, milliseconds: u64) -> String {
    let milliseconds = i64::try_from(milliseconds).unwrap_or(0);
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| seconds.checked_mul(1000)?.checked_add(milliseconds))
        .and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok())
        .unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::samples;
    use super::*;

    const FIELDS: &str = include_str!("../../../../../tests/schemas/ecs-9.4.0.csv");

    #[test]
    fn dates_are_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_700_000_000, "2023-11-14T22:13:20.007Z"),
            (4_107_542_399, "2100-02-28T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
            (u64::MAX, "9999-12-30T22:00:00.999Z"),
        ] {
            assert_eq!(date(seconds, 7), expected);
        }
    }

    /// Fails unless all members are fields of the schema with the right types.
    #[track_caller]
    fn check(name: &str, value: &Value, fields: &BTreeMap<&str, (&str, &str)>) {
        if let Value::Object(members) = value
            && fields.get(name).is_none_or(|(kind, _)| *kind != "object")
        {
            for (member, value) in members {
                check(&format!("{name}.{member}"), value, fields);
            }
            return;
        }
        let (kind, normal) = fields
            .get(name)
            .unwrap_or_else(|| panic!("the schema has no `{name}`"));
        assert_eq!(value.is_array(), *normal == "array", "{name}");
        let values = match value {
            Value::Array(values) => values.iter().collect(),
            value => vec![value],
        };
        for value in values {
            let right = match *kind {
                "long" => value.is_u64(),
                "keyword" | "wildcard" | "match_only_text" | "date" => value.is_string(),
                _ => false,
            };
            assert!(right, "{name} is {kind}, and not {value}");
        }
    }

    #[test]
    fn every_field_is_one_of_the_schema() {
        let lines = || FIELDS.lines().filter(|line| !line.starts_with('#'));
        let fields: BTreeMap<&str, (&str, &str)> = lines()
            .filter_map(|line| {
                let mut words = line.split(',');
                Some((words.next()?, (words.next()?, words.next()?)))
            })
            .collect();
        let types: BTreeMap<&str, Vec<&str>> = lines()
            .filter_map(|line| line.strip_prefix("event.category=")?.split_once(':'))
            .map(|(category, types)| (category, types.split(' ').collect()))
            .collect();
        assert!(fields.len() > 500 && types.len() > 10);
        let mut seen = 0;
        for object in samples::all() {
            let Value::Object(mut event) = event(object) else {
                panic!("no object");
            };
            assert!(event.remove("tollgate").unwrap().is_object());
            let about = &event["event"];
            let category = about["category"][0].as_str().unwrap();
            for kind in about["type"].as_array().unwrap() {
                let kind = kind.as_str().unwrap();
                assert!(types[category].contains(&kind), "{category}: {kind}");
            }
            for (name, value) in &event {
                check(name, value, &fields);
            }
            seen += 1;
        }
        assert!(seen > 10);
    }

    #[test]
    fn exec_event_has_all_fields() {
        let event = event(samples::exec());
        assert_eq!(event["@timestamp"], "2023-11-14T22:13:20.007Z");
        assert_eq!(event["event"]["action"], "execve");
        assert_eq!(event["event"]["outcome"], "success");
        assert_eq!(event["process"]["args"], json!(["cat", "/etc/shadow"]));
        assert_eq!(event["process"]["parent"]["pid"], 1);
        assert_eq!(event["user"]["id"], "1000");
        assert_eq!(event["user"]["effective"]["id"], "0");
        assert_eq!(event["rule"]["name"], "exec");
        assert_eq!(event["file"]["path"], "/usr/bin/cat");
        assert_eq!(event["file"]["mode"], "0755");
        assert_eq!(event["tollgate"]["task"]["auid"], 1000);
    }
}
