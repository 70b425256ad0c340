//! Alerts in the Open Cybersecurity Schema Framework.
//!
//! # Source
//! OCSF 1.8.0, class Detection Finding (2004) and its objects.

use serde_json::{Map, Value, json};

use super::{Alert, Kind};

/// The Detection Finding of an alert.
pub(crate) fn finding(alert: &Alert) -> Value {
    let (activity, name) = match alert.kind {
        Kind::New | Kind::LeftOut(_) => (1, "Create"),
        Kind::Repeated(_) => (2, "Update"),
    };
    let attacks = alert
        .techniques()
        .map(|technique| match technique.split_once('.') {
            Some((main, _)) => {
                json!({"technique": {"uid": main}, "sub_technique": {"uid": technique}})
            }
            None => json!({"technique": {"uid": technique}}),
        });
    let mut finding_info = json!({
        "uid": alert.id,
        "title": alert.rule.title,
        "created_time": alert.time_ms(),
        "analytic": {"type_id": 1, "type": "Rule", "uid": alert.rule.id, "name": alert.rule.title},
    });
    let attacks: Vec<Value> = attacks.collect();
    if !attacks.is_empty() {
        finding_info["attacks"] = Value::Array(attacks);
    }
    if let Some(correlated) = &alert.correlated {
        let events = correlated.events.iter().map(|event| json!({"uid": event}));
        finding_info["related_events"] = events.collect();
    }
    let severity = match alert.severity() {
        1 => "Informational",
        2 => "Low",
        3 => "Medium",
        4 => "High",
        _ => "Critical",
    };
    let mut unmapped: Map<String, Value> = Map::new();
    let fields = alert.fields.iter();
    let fields = fields.map(|(name, value)| json!({"name": name, "value": value}));
    unmapped.insert("fields".to_owned(), fields.collect());
    unmapped.insert("serial".to_owned(), json!(alert.serial));
    if let Some(correlated) = &alert.correlated {
        unmapped.insert("correlation".to_owned(), correlated.as_json());
    }
    if let Some(author) = &alert.rule.author {
        unmapped.insert("rule_author".to_owned(), json!(author));
    }
    let mut finding = json!({
        "activity_id": activity,
        "activity_name": name,
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": 2004,
        "class_name": "Detection Finding",
        "type_uid": 200_400 + activity,
        "time": alert.time_ms(),
        "severity_id": alert.severity(),
        "severity": severity,
        "status_id": 1,
        "status": "New",
        "is_alert": true,
        "count": alert.kind.count(),
        "message": alert.message(),
        "metadata": {
            "version": "1.8.0",
            "uid": alert.id,
            "product": {
                "name": "tollgate",
                "vendor_name": "tollgate",
                "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "finding_info": finding_info,
        "unmapped": unmapped,
    });
    if alert.subject.pid.is_some() {
        finding["evidences"] = json!([{"process": process(alert)}]);
    }
    if let Some(node) = &alert.node {
        finding["device"] = json!({"type_id": 0, "hostname": node});
    }
    finding
}

fn process(alert: &Alert) -> Value {
    let subject = &alert.subject;
    let mut process = program(&subject.image, &subject.command_line);
    process["pid"] = json!(subject.pid);
    if let Some((uid, name)) = &subject.user {
        process["user"] = json!({"uid": uid.to_string(), "name": name});
    }
    if !subject.directory.is_empty() {
        process["working_directory"] = json!(subject.directory);
    }
    let mut parent = None;
    for ancestor in alert.ancestors.iter().rev() {
        let mut process = program(&ancestor.image, &ancestor.command_line);
        process["pid"] = json!(ancestor.pid);
        if let Some(above) = parent.take() {
            process["parent_process"] = above;
        }
        parent = Some(process);
    }
    match (parent, subject.ppid) {
        (Some(parent), _) => process["parent_process"] = parent,
        (None, Some(ppid)) => process["parent_process"] = json!({"pid": ppid}),
        (None, None) => {}
    }
    process
}

fn program(image: &str, command_line: &str) -> Value {
    let mut process = json!({});
    if !image.is_empty() {
        let name = image.rsplit('/').next().unwrap_or_default();
        process["name"] = json!(name);
        process["file"] = json!({"name": name, "path": image, "type_id": 1});
    }
    if !command_line.is_empty() {
        process["cmd_line"] = json!(command_line);
    }
    process
}
