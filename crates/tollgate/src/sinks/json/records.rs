//! Converts the records of an event to a JSON object, with the context that the daemon adds for its JSON log.

use audit::record::assemble::EventRecords;
use audit::record::decode::DecodeError;
use logs::json;
use serde_json::{Map, Value};

use super::context;

/// Converts an event. Invalid parts are reported to `wrong` and omitted.
pub(crate) fn object(event: &EventRecords, wrong: impl FnMut(DecodeError)) -> Map<String, Value> {
    let mut object = json::object(event, wrong).into();
    let mut records = event.records();
    if let Some(record) = records.find(|record| record.kind == json::CONTEXT_KIND) {
        context::put(&record, &mut object);
    }
    object
}
