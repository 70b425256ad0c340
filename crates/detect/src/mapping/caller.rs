//! Who makes syscalls: the fields behind the process id in the records of syscalls.

use audit::record::decode::{Field, Record};
use bstr::ByteSlice as _;
use logs::event_values::decoded;

use super::record::{self, decimal};
use super::whole::IMAGE;
use crate::sigma::fields::to_text;
use crate::sigma::gate::{Passed, SyscallGate};
use crate::sigma::{Engine, Source};

/// Who made a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) euid: u32,
    /// Path of the program.
    pub(super) image: Option<Box<str>>,
    /// Whether the path lets events of each log source through.
    image_passes: [bool; Source::ALL.len()],
    /// What these fields let through.
    pub(super) passed: Passed,
}

impl Caller {
    /// Decodes the fields behind the process id, and those that `auditd` added.
    pub(super) fn of<'a>(
        record: &Record<'a>,
        fields: impl Iterator<Item = Field<'a>>,
        engine: &dyn Engine,
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
        if let Some(image) = &caller.image {
            caller.image_passes = Source::ALL.map(|source| {
                let search = engine.event_gate(source).search;
                search.is_some_and(|search| search.has(IMAGE, image.as_bytes()))
            });
        }
        caller
    }

    /// Whether the path of the program lets an event of a log source through.
    pub(super) fn image_passes(&self, source: Source) -> bool {
        let mut passes = Source::ALL.iter().zip(self.image_passes);
        passes.any(|(of, passes)| *of == source && passes)
    }
}
