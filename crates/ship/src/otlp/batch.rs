//! What is sent by one request: records, in the order in which they were put, with the resource that each comes from.

use std::io;
use std::ops::Range;

use super::attributes::Attributes;
use super::protobuf::{bytes, field_len, head};
use crate::record_buffer::RecordBuffer;

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
#[derive(Debug)]
pub(super) struct Batch {
    /// Records as fields of `ScopeLogs`, with the number of the resource that each comes from.
    records: RecordBuffer<usize>,
    /// Encoded resources of the records.
    resources: Vec<Vec<u8>>,
    /// Host and boot of the last resource.
    last: Option<(String, String)>,
}

impl Batch {
    pub(super) const fn new() -> Self {
        Self {
            records: RecordBuffer::new(),
            resources: Vec::new(),
            last: None,
        }
    }

    /// Adds an encoded record of a boot of a host.
    pub(super) fn push(&mut self, host: &str, boot: &str, is_event: bool, record: &[u8]) {
        let is_same =
            |(last_host, last_boot): &(String, String)| last_host == host && last_boot == boot;
        if !self.last.as_ref().is_some_and(is_same) {
            self.last = Some((host.to_owned(), boot.to_owned()));
            self.resources.push(resource(host, boot));
        }
        bytes(LOG_RECORDS, record, self.records.bytes_mut());
        self.records.end_record(is_event, self.resources.len() - 1);
    }

    pub(super) const fn records(&self) -> &RecordBuffer<usize> {
        &self.records
    }

    /// Writes the request that sends some records.
    ///
    /// # Errors
    /// As of the writer.
    pub(super) fn write(&self, records: Range<usize>, to: &mut impl io::Write) -> io::Result<()> {
        let mut from = records.start;
        let marks = self.records.marks(&records);
        for group in marks.chunk_by(|one, other| one.about == other.about) {
            let end = from + group.len();
            let resource = group
                .first()
                .and_then(|mark| self.resources.get(mark.about));
            let resource = resource.map(Vec::as_slice).unwrap_or_default();
            let records = self.records.bytes_of(&(from..end));
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
        self.records.clear();
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
