//! The messages of OTLP that a collector gets, as another implementation of protocol buffers decodes them.
//!
//! # Source
//! `logs_service.proto`, `logs.proto`, `resource.proto` and `common.proto`, opentelemetry-proto 1.5.

use prost::{Message, Oneof};
use serde_json::{Map, Value, json};

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "7")]
    dropped_attributes_count: u32,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    event_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3, 5")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Boolean(bool),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
}

#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

/// An answer that tells of rejected records.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_log_records: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// The records of a request, in order, as objects.
pub(crate) fn records(request: &[u8]) -> Vec<Value> {
    let request = Request::decode(request).unwrap();
    let mut found = Vec::new();
    for logs in request.resource_logs {
        let resource = object(logs.resource.unwrap().attributes);
        for logs in logs.scope_logs {
            let scope = logs.scope.unwrap();
            assert_eq!(
                (scope.name.as_str(), scope.version.as_str()),
                ("tollgate-ship", env!("CARGO_PKG_VERSION"))
            );
            for record in logs.log_records {
                assert!(record.observed_time_unix_nano > 1_700_000_000_000_000_000);
                found.push(json!({
                    "resource": resource,
                    "time": record.time_unix_nano,
                    "severity": [record.severity_number, record.severity_text],
                    "name": record.event_name,
                    "body": record.body.map(value),
                    "dropped": record.dropped_attributes_count,
                    "attributes": object(record.attributes),
                }));
            }
        }
    }
    found
}

/// A body that tells of rejected records.
pub(crate) fn partial_success(records: i64, message: &str) -> Vec<u8> {
    let response = Response {
        partial_success: Some(PartialSuccess {
            rejected_log_records: records,
            error_message: message.to_owned(),
        }),
    };
    response.encode_to_vec()
}

fn object(attributes: Vec<KeyValue>) -> Value {
    let mut object = Map::new();
    for attribute in attributes {
        let former = object.insert(attribute.key, value(attribute.value.unwrap()));
        assert_eq!(former, None);
    }
    Value::Object(object)
}

fn value(any: AnyValue) -> Value {
    match any.value.unwrap() {
        Any::Text(text) => json!(text),
        Any::Boolean(boolean) => json!(boolean),
        Any::Integer(integer) => json!(integer),
        Any::Array(array) => array.values.into_iter().map(value).collect(),
    }
}
