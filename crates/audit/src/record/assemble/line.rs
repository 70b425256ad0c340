//! A line of an event: where its parts are in the text of the event.

use std::ops::Range;

use bstr::{BStr, ByteSlice as _};

use crate::event::Timestamp;
use crate::ids::Serial;
use crate::record::decode::{ENRICHMENT, Header, Record};

/// A line, whose header was parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The line without its newline.
    pub(super) range: Range<usize>,
    /// Start of the record type.
    pub(super) kind: usize,
    /// Start of the stamp.
    pub(super) stamp: usize,
    /// End of the header.
    pub(super) body: usize,
}

impl Line {
    /// The line at `start` of a text that begins with a header.
    pub(super) fn of(header: &Header<'_>, range: Range<usize>) -> Self {
        let start = range.start;
        Self {
            kind: start + header.kind_start(),
            stamp: start + header.stamp,
            body: start + header.end,
            range,
        }
    }

    /// The record in the line. Only a text that is enriched has records that are.
    pub(super) fn record<'a>(
        &self,
        text: &'a [u8],
        is_enriched: bool,
        time: Timestamp,
        serial: Serial,
    ) -> Option<Record<'a>> {
        const NODE: &[u8] = b"node=";
        let node_end = self.kind.checked_sub(b" type=".len());
        let node = node_end.and_then(|end| text.get(self.range.start + NODE.len()..end));
        let kind = self.kind..self.stamp.checked_sub(b" msg=audit(".len())?;
        let header = Header {
            node: node.map(BStr::new),
            kind: text.get(kind)?.as_bstr(),
            time,
            serial,
            stamp: self.stamp - self.range.start,
            end: self.body - self.range.start,
        };
        let body = text.get(self.body..self.range.end)?;
        let enrichment = is_enriched.then(|| body.find_byte(ENRICHMENT)).flatten();
        Some(header.record_with(body, enrichment))
    }
}
