//! Who makes syscalls: the fields behind the process id in the records of syscalls.

use audit::record::decode::{Field, Record};
use bstr::ByteSlice as _;
use logs::event_values::decoded;

use super::record::{self, decimal};
use crate::sigma::fields::to_text;
use crate::sigma::gate::{Passed, SyscallGate};

/// Who made a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) euid: u32,
    /// Path of the program.
    pub(super) image: Option<Box<str>>,
    /// What these fields let through.
    pub(super) passed: Passed,
}

impl Caller {
    /// Decodes the fields behind the process id, and those that `auditd` added.
    pub(super) fn of<'a>(
        record: &Record<'a>,
        fields: impl Iterator<Item = Field<'a>>,
        gate: &SyscallGate<'_>,
    ) -> Self {
        let mut caller = Self::default();
        for field in fields {
            match field.name.as_bytes() {
                b"uid" => caller.uid = decimal(field.value).unwrap_or(0),
                b"euid" => caller.euid = decimal(field.value).unwrap_or(0),
                b"exe" => caller.image = decoded(record, &field).map(|exe| to_text(exe).into()),
                _ => {}
            }
            record::pass_field(record, &field, gate, &mut caller.passed);
        }
        record::pass_enrichment(record, gate, &mut caller.passed);
        caller
    }
}
