//! What is sent by one request: records, in the order in which they were put, with the resource that each comes from.

use std::io;
use std::ops::Range;

use super::attributes::Attributes;
use super::protobuf::{bytes, field_len, head};

/// Field of `ExportLogsServiceRequest`.
pub(super) const RESOURCE_LOGS: u32 = 1;
/// Fields of `ResourceLogs`.
pub(super) const RESOURCE: u32 = 1;
pub(super) const SCOPE_LOGS: u32 = 2;
/// Field of `Resource`.
pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;
/// Fields of `ScopeLogs`.
const SCOPE: u32 = 1;
pub(super) const LOG_RECORDS: u32 = 2;
/// Fields of `InstrumentationScope`.
const NAME: u32 = 1;
const VERSION: u32 = 2;
/// Attributes of a resource: the host, and its boot. `host.boot.id` is the name of the Elastic Common Schema; the
/// conventions have none.
pub(super) const HOST: &str = "host.name";
pub(super) const BOOT: &str = "host.boot.id";

/// Records that are sent together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Records as fields of `ScopeLogs`.
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    /// Encoded resources of the records.
    resources: Vec<Vec<u8>>,
    /// Host and boot of the last resource.
    last: Option<(String, String)>,
}

/// A record.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Where its bytes end.
    end: usize,
    /// Which resource it comes from.
    resource: usize,
    is_event: bool,
}

impl Batch {
    /// Adds an encoded record of a boot of a host.
    pub(super) fn push(&mut self, host: &str, boot: &str, is_event: bool, record: &[u8]) {
        let is_same =
            |(last_host, last_boot): &(String, String)| last_host == host && last_boot == boot;
        if !self.last.as_ref().is_some_and(is_same) {
            self.last = Some((host.to_owned(), boot.to_owned()));
            self.resources.push(resource(host, boot));
        }
        bytes(LOG_RECORDS, record, &mut self.bytes);
        self.marks.push(Mark {
            end: self.bytes.len(),
            resource: self.resources.len() - 1,
            is_event,
        });
    }

    /// Number of records.
    pub(super) const fn len(&self) -> usize {
        self.marks.len()
    }

    /// Bytes of some records.
    pub(super) fn bytes_of(&self, records: &Range<usize>) -> usize {
        self.end_of(records.end) - self.end_of(records.start)
    }

    /// Whether an event is among some records.
    pub(super) fn has_events(&self, records: &Range<usize>) -> bool {
        let marks = self.marks.get(records.clone()).unwrap_or_default();
        marks.iter().any(|mark| mark.is_event)
    }

    /// Where the records before this one end.
    fn end_of(&self, record: usize) -> usize {
        let last = record.checked_sub(1).and_then(|last| self.marks.get(last));
        last.map_or(0, |mark| mark.end)
    }

    /// Writes the request that sends some records.
    ///
    /// # Errors
    /// As of the writer.
    pub(super) fn write(&self, records: Range<usize>, to: &mut impl io::Write) -> io::Result<()> {
        let mut from = records.start;
        let marks = self.marks.get(records).unwrap_or_default();
        for group in marks.chunk_by(|one, other| one.resource == other.resource) {
            let end = from + group.len();
            let resource = group
                .first()
                .and_then(|mark| self.resources.get(mark.resource));
            let resource = resource.map(Vec::as_slice).unwrap_or_default();
            let records = self.end_of(from)..self.end_of(end);
            let records = self.bytes.get(records).unwrap_or_default();
            let scope = scope();
            let mut before = Vec::with_capacity(resource.len() + scope.len() + 64);
            let scope_logs = field_len(scope.len()) + records.len();
            head(
                RESOURCE_LOGS,
                field_len(resource.len()) + field_len(scope_logs),
                &mut before,
            );
            bytes(RESOURCE, resource, &mut before);
            head(SCOPE_LOGS, scope_logs, &mut before);
            bytes(SCOPE, &scope, &mut before);
            to.write_all(&before)?;
            to.write_all(records)?;
            from = end;
        }
        Ok(())
    }

    /// Forgets the records, and keeps the memory for others.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.marks.clear();
        self.resources.clear();
        self.last = None;
    }
}

/// What the records of a boot come from.
fn resource(host: &str, boot: &str) -> Vec<u8> {
    let mut to = Vec::new();
    let mut attributes = Attributes {
        number: RESOURCE_ATTRIBUTES,
        to: &mut to,
    };
    attributes.text("service.name", "tollgate");
    attributes.text(HOST, host);
    if !boot.is_empty() {
        attributes.text(BOOT, boot);
    }
    attributes.text("os.type", "linux");
    to
}

fn scope() -> Vec<u8> {
    let mut to = Vec::new();
    bytes(NAME, b"tollgate-ship", &mut to);
    bytes(VERSION, env!("CARGO_PKG_VERSION").as_bytes(), &mut to);
    to
}
