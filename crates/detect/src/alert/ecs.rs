//! Alerts in the Elastic Common Schema.
//!
//! # Source
//! ECS 9.4.0: the field sets event, rule, threat, process, user and host.

use serde_json::{Value, json};

use super::Alert;
use crate::sigma::Source;

/// The document of an alert.
pub(crate) fn document(alert: &Alert) -> Value {
    let (category, kind) = match alert.rule.source {
        Some(Source::Process) => ("process", "start"),
        Some(Source::File) => ("file", "change"),
        Some(Source::Network) => ("network", "connection"),
        Some(Source::Record) | None => ("intrusion_detection", "info"),
    };
    let mut rule = json!({"id": alert.rule.id, "name": alert.rule.title});
    if let Some(author) = &alert.rule.author {
        rule["author"] = json!([author]);
    }
    let fields = alert.fields.iter();
    let fields = fields.map(|(name, value)| json!({"name": name, "value": value}));
    let mut document = json!({
        "@timestamp": alert.time_text(),
        "ecs": {"version": "9.4.0"},
        "message": alert.message(),
        "event": {
            "kind": "alert",
            "category": [category],
            "type": [kind],
            "module": "tollgate",
            "dataset": "tollgate.alert",
            "id": alert.id,
            "sequence": alert.serial,
            "severity": alert.severity(),
        },
        "rule": rule,
        "tags": alert.rule.tags,
        "tollgate": {
            "count": alert.kind.count(),
            "level": alert.rule.level.name(),
            "fields": fields.collect::<Vec<_>>(),
        },
    });
    if let Some(correlated) = &alert.correlated {
        document["tollgate"]["correlation"] = correlated.as_json();
    }
    let techniques: Vec<String> = alert.techniques().collect();
    if !techniques.is_empty() {
        let main = techniques.iter().map(|name| name.split('.').next());
        document["threat"] = json!({
            "framework": "MITRE ATT&CK",
            "technique": {"id": main.collect::<Vec<_>>()},
        });
        let parts: Vec<&String> = techniques
            .iter()
            .filter(|name| name.contains('.'))
            .collect();
        if !parts.is_empty() {
            document["threat"]["technique"]["subtechnique"] = json!({"id": parts});
        }
    }
    let subject = &alert.subject;
    if let Some(pid) = subject.pid {
        let mut process = json!({"pid": pid});
        let texts = [
            ("executable", &subject.image),
            ("command_line", &subject.command_line),
            ("working_directory", &subject.directory),
        ];
        for (name, value) in texts.into_iter().filter(|(_, value)| !value.is_empty()) {
            process[name] = json!(value);
        }
        if let Some(ppid) = subject.ppid {
            process["parent"] = json!({"pid": ppid});
        }
        if let Some(parent) = alert.ancestors.first() {
            process["parent"]["executable"] = json!(parent.image);
            process["parent"]["command_line"] = json!(parent.command_line);
        }
        document["process"] = process;
    }
    if let Some((uid, name)) = &subject.user {
        document["user"] = json!({"id": uid.to_string(), "name": name});
    }
    if let Some(node) = &alert.node {
        document["host"] = json!({"name": node});
    }
    document
}
