//! Events: the records with one stamp, in the order in which they were read.

use bstr::ByteSlice as _;
use logs::stamp::Stamp;

/// Byte between the kernel's text and the names that the daemon added.
pub(crate) const SEPARATOR: u8 = 0x1d;

/// What the stamp of a record says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EventId {
    /// Seconds since 1970.
    pub(crate) seconds: u64,
    /// Milliseconds, less than 1000.
    pub(crate) millis: u32,
    pub(crate) serial: u64,
    pub(crate) node: Option<Vec<u8>>,
}

impl EventId {
    pub(crate) fn of(stamp: &Stamp<'_>) -> Self {
        Self {
            seconds: stamp.seconds,
            millis: stamp.millis,
            serial: stamp.serial,
            node: stamp.node.map(<[u8]>::to_vec),
        }
    }

    /// Whether a record with a stamp is of this event.
    pub(crate) fn is_of(&self, stamp: &Stamp<'_>) -> bool {
        (self.serial, self.seconds, self.millis) == (stamp.serial, stamp.seconds, stamp.millis)
            && self.node.as_deref() == stamp.node
    }
}

/// A record: parts of the event's text.
#[derive(Clone, Copy, Debug)]
struct RecordRange {
    kind: i32,
    start: usize,
    /// End of the kernel's text.
    end: usize,
    /// The names that the daemon added, after the separator.
    names: Option<(usize, usize)>,
    /// Whether a newline ended the line.
    has_newline: bool,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'e> {
    /// Number of the type; -1 if it has none.
    pub(crate) kind: i32,
    /// The kernel's text.
    pub(crate) text: &'e [u8],
    /// The names that the daemon added.
    pub(crate) names: Option<&'e [u8]>,
    /// Whether a newline ended the line.
    pub(crate) has_newline: bool,
}

/// Records with one stamp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    /// Type of the first record.
    pub(crate) kind: i32,
    /// Whether a record has names that the daemon added.
    pub(crate) is_enriched: bool,
    text: Vec<u8>,
    ranges: Vec<RecordRange>,
}

impl Event {
    /// An event without records, which uses the memory of `old`.
    pub(crate) fn reuse(mut old: Self, id: EventId, kind: i32) -> Self {
        old.text.clear();
        old.ranges.clear();
        Self {
            id,
            kind,
            is_enriched: false,
            text: old.text,
            ranges: old.ranges,
        }
    }

    /// Appends a line. Its newline is not kept.
    pub(crate) fn push(&mut self, kind: i32, line: &[u8]) {
        let has_newline = line.last() == Some(&b'\n');
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let start = self.text.len();
        self.text.extend_from_slice(line);
        let names = line
            .find_byte(SEPARATOR)
            .map(|at| (start + at + 1, self.text.len()));
        self.is_enriched |= names.is_some();
        self.ranges.push(RecordRange {
            kind,
            start,
            end: names.map_or(self.text.len(), |(names, _)| names - 1),
            names,
            has_newline,
        });
    }

    pub(crate) fn records(
        &self,
    ) -> impl DoubleEndedIterator<Item = Record<'_>> + ExactSizeIterator {
        self.ranges.iter().map(|range| Record {
            kind: range.kind,
            text: self.text.get(range.start..range.end).unwrap_or_default(),
            names: range
                .names
                .and_then(|(start, end)| self.text.get(start..end)),
            has_newline: range.has_newline,
        })
    }

    /// Bytes of the records.
    pub(crate) fn size(&self) -> usize {
        self.text.len()
    }

    /// Bytes of memory that the event keeps for records.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.text.capacity() + self.ranges.capacity() * size_of::<RecordRange>()
    }

    /// Whether a record has a type.
    pub(crate) fn has(&self, kind: i32) -> bool {
        self.ranges.iter().any(|range| range.kind == kind)
    }

    /// Whether a record has one of some types.
    pub(crate) fn has_any(&self, kinds: &std::ops::RangeInclusive<i32>) -> bool {
        self.ranges.iter().any(|range| kinds.contains(&range.kind))
    }

    /// Types of the records.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = i32> + '_ {
        self.ranges.iter().map(|range| range.kind)
    }
}
