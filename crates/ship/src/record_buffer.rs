//! Encoded records that wait to be sent together, in the order in which they were put.

use std::ops::Range;

/// Records, with what each is about.
#[derive(Debug)]
pub(crate) struct RecordBuffer<T> {
    bytes: Vec<u8>,
    marks: Vec<Mark<T>>,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark<T> {
    /// Where its bytes end.
    end: usize,
    is_event: bool,
    pub(crate) about: T,
}

impl<T> RecordBuffer<T> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Where the next record is appended; [`RecordBuffer::end_record`] ends it.
    pub(crate) const fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the record that was appended.
    pub(crate) fn end_record(&mut self, is_event: bool, about: T) {
        self.marks.push(Mark {
            end: self.bytes.len(),
            is_event,
            about,
        });
    }

    /// Number of records.
    pub(crate) const fn len(&self) -> usize {
        self.marks.len()
    }

    /// Bytes of some records.
    pub(crate) fn bytes_of(&self, records: &Range<usize>) -> &[u8] {
        let bytes = self.end_of(records.start)..self.end_of(records.end);
        self.bytes.get(bytes).unwrap_or_default()
    }

    /// What some records are about, in order.
    pub(crate) fn marks(&self, records: &Range<usize>) -> &[Mark<T>] {
        self.marks.get(records.clone()).unwrap_or_default()
    }

    /// Whether an event is among some records.
    pub(crate) fn has_events(&self, records: &Range<usize>) -> bool {
        self.marks(records).iter().any(|mark| mark.is_event)
    }

    /// Forgets the records, and keeps the memory for others.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.marks.clear();
    }

    /// Where the records before this one end.
    fn end_of(&self, record: usize) -> usize {
        let last = record.checked_sub(1).and_then(|last| self.marks.get(last));
        last.map_or(0, |mark| mark.end)
    }
}
