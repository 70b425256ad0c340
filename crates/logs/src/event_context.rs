//! The record with which the daemon passes what no record has: to its JSON log and to viewers. No log has it.

use audit::record::assemble::EventRecords;
use bstr::ByteSlice as _;

use crate::json::CONTEXT_KIND;

/// Field with the numbers of the objects whose names were read from the memory of the task.
pub const USER_NAMES: &[u8] = b"user_names";

/// Numbers of the objects whose names were read from the memory of the task.
pub fn user_names(event: &EventRecords) -> Vec<usize> {
    let mut records = event.records();
    let Some(record) = records.find(|record| record.kind == CONTEXT_KIND) else {
        return Vec::new();
    };
    let mut fields = record.fields().map_while(Result::ok);
    let field = fields.find(|field| field.name == USER_NAMES);
    field.map_or_else(Vec::new, |field| numbers(field.value).collect())
}

/// Numbers of a list with commas; anything else is left out.
pub fn numbers(list: &[u8]) -> impl Iterator<Item = usize> {
    let numbers = list.split_str(",");
    numbers.filter_map(|number| number.to_str().ok()?.parse().ok())
}
