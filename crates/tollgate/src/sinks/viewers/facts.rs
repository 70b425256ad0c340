//! What filters compare, read from the records of an event.

use std::borrow::Cow;

use audit::record::decode::{self, Field, Record};
use bstr::ByteSlice as _;

use super::filter::EventResult;

/// Facts of an event; none if the records lack them.
#[derive(Debug, Default)]
pub(super) struct EventFacts<'a> {
    /// Keys, joined by 0x01.
    pub(super) key: Option<Cow<'a, [u8]>>,
    pub(super) exe: Option<Cow<'a, [u8]>>,
    pub(super) comm: Option<Cow<'a, [u8]>>,
    /// The login, real and effective user.
    pub(super) users: [Option<u32>; 3],
    pub(super) result: Option<EventResult>,
}

impl<'a> EventFacts<'a> {
    /// Reads the record of the syscall, or else the first record.
    pub(super) fn read(event: &'a [u8]) -> Self {
        let is_syscall =
            |line: &&[u8]| line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=URINGOP ");
        let line = event.lines().find(is_syscall);
        let line = line.or_else(|| event.lines().next()).unwrap_or_default();
        let mut facts = Self::default();
        let Ok(record) = decode::line(line) else {
            return facts;
        };
        for field in record.fields().map_while(Result::ok) {
            facts.add(&record, &field);
            if field.value.starts_with(b"'") {
                for field in record.nested_fields(&field).map_while(Result::ok) {
                    facts.add(&record, &field);
                }
            }
        }
        facts
    }

    fn add(&mut self, record: &Record<'a>, field: &Field<'a>) {
        let text = || record.text(field).ok().flatten();
        let number = || field.value.to_str().ok()?.parse().ok();
        let [login, real, effective] = &mut self.users;
        match field.name.as_bytes() {
            b"key" => self.key = text(),
            b"exe" => self.exe = text(),
            b"comm" => self.comm = text(),
            b"auid" => *login = number(),
            b"uid" => *real = number(),
            b"euid" => *effective = number(),
            b"success" | b"res" => {
                self.result = match field.value.as_bytes() {
                    b"yes" | b"success" | b"1" => Some(EventResult::Success),
                    b"no" | b"failed" | b"0" => Some(EventResult::Failure),
                    _ => None,
                }
            }
            _ => {}
        }
    }
}
