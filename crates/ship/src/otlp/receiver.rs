//! The side of a collector: what a request has, and what is answered.
//!
//! Requests are not trusted. Nothing of them is copied: records are read one after another, and messages have no depth but
//! that of OTLP, so whatever comes costs no memory and the time of its bytes.
//!
//! # Source
//! OTLP specification 1.5, "OTLP/HTTP"; `logs_service.proto` and `logs.proto`, opentelemetry-proto 1.5.

use super::attributes::{KEY, TEXT, VALUE};
use super::batch::{
    BOOT, HOST, LOG_RECORDS, RESOURCE, RESOURCE_ATTRIBUTES, RESOURCE_LOGS, SCOPE_LOGS,
};
use super::protobuf::{bytes, integer, last, messages};
use super::record::{BODY, EVENT_NAME};

/// Field of `ExportLogsServiceResponse`.
pub(super) const PARTIAL_SUCCESS: u32 = 1;
/// Fields of `ExportLogsPartialSuccess`.
const REJECTED: u32 = 1;
const ERROR: u32 = 2;
/// Field of `Status`.
pub(super) const MESSAGE: u32 = 2;

/// A log record, as far as it is read. It has what the request has: a text may be none of UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogRecord<'a> {
    /// `host.name` of its resource.
    pub(crate) host: Option<&'a [u8]>,
    /// `host.boot.id` of its resource.
    pub(crate) boot: &'a [u8],
    /// Name of the kind of event.
    pub(crate) name: &'a [u8],
    /// Its body, if that is a text.
    pub(crate) body: Option<&'a [u8]>,
}

/// Takes the log records of a request, in order.
///
/// # Errors
/// The request is cut, or none. Records before that were taken.
pub(crate) fn read_records<'a>(
    request: &'a [u8],
    mut take: impl FnMut(LogRecord<'a>),
) -> anyhow::Result<()> {
    for logs in messages(request, RESOURCE_LOGS) {
        let logs = logs?;
        let mut source = LogRecord::default();
        for resource in messages(logs, RESOURCE) {
            read_resource(resource?, &mut source)?;
        }
        for scope in messages(logs, SCOPE_LOGS) {
            for record in messages(scope?, LOG_RECORDS) {
                take(read_record(record?, source)?);
            }
        }
    }
    Ok(())
}

fn read_resource<'a>(resource: &'a [u8], to: &mut LogRecord<'a>) -> anyhow::Result<()> {
    for attribute in messages(resource, RESOURCE_ATTRIBUTES) {
        let attribute = attribute?;
        match last(attribute, KEY)? {
            Some(key) if key == HOST.as_bytes() => to.host = text(attribute, VALUE)?,
            Some(key) if key == BOOT.as_bytes() => {
                to.boot = text(attribute, VALUE)?.unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_record<'a>(record: &'a [u8], source: LogRecord<'a>) -> anyhow::Result<LogRecord<'a>> {
    Ok(LogRecord {
        name: last(record, EVENT_NAME)?.unwrap_or_default(),
        body: text(record, BODY)?,
        ..source
    })
}

/// The text of the `AnyValue` that a field has.
fn text(message: &[u8], number: u32) -> anyhow::Result<Option<&[u8]>> {
    match last(message, number)? {
        Some(value) => last(value, TEXT),
        None => Ok(None),
    }
}

/// The answer that so many records were rejected for ever.
pub(crate) fn partial_success(records: u64, message: &str) -> Vec<u8> {
    let (mut partial, mut answer) = (Vec::new(), Vec::new());
    integer(REJECTED, records, &mut partial);
    bytes(ERROR, message.as_bytes(), &mut partial);
    bytes(PARTIAL_SUCCESS, &partial, &mut answer);
    answer
}

/// The answer of an error.
pub(crate) fn status(message: &str) -> Vec<u8> {
    let mut status = Vec::new();
    bytes(MESSAGE, message.as_bytes(), &mut status);
    status
}

#[cfg(test)]
pub(crate) mod tests {
    use inputs::fuzz::fuzz;

    use super::super::attributes::{Attributes, text_value};
    use super::super::batch::Batch;
    use super::super::protobuf::fixed64;
    use super::super::record;
    use super::*;
    use crate::frame::{Counts, Frame, Heartbeat, Record, Time};

    /// A request with events of a host and boot that have these bodies.
    pub(crate) fn request_of(host: &str, boot: &str, bodies: &[&str]) -> Vec<u8> {
        let mut batch = Batch::new();
        for body in bodies {
            let mut record = Vec::new();
            bytes(EVENT_NAME, record::EVENT.as_bytes(), &mut record);
            text_value(BODY, body, &mut record);
            batch.push(host, boot, true, &record);
        }
        let mut request = Vec::new();
        batch.write(0..bodies.len(), &mut request).unwrap();
        request
    }

    fn records(request: &[u8]) -> (Vec<LogRecord<'_>>, bool) {
        let mut found = Vec::new();
        let is_whole = read_records(request, |record| found.push(record)).is_ok();
        (found, is_whole)
    }

    /// Heartbeats of two boots, as the shipper sends them.
    fn request() -> Vec<u8> {
        let mut batch = Batch::new();
        for (boot, events) in [("b-1", 1), ("b-1", 2), ("b-2", 3)] {
            let heartbeat = Heartbeat {
                time: Time { ms: 1 },
                serial: Some(7),
                kernel_serial: None,
                counts: Counts {
                    events,
                    ..Counts::default()
                },
                version: "1",
            };
            let frame = Frame {
                host: "web1",
                boot,
                record: Record::Heartbeat(&heartbeat),
            };
            let mut bytes = Vec::new();
            record::append(&frame, Time { ms: 2 }, &mut bytes).unwrap();
            batch.push("web1", boot, false, &bytes);
        }
        let mut request = Vec::new();
        batch.write(0..3, &mut request).unwrap();
        request
    }

    #[test]
    fn records_are_read_as_they_were_sent() {
        let request = request();
        let (found, is_whole) = records(&request);
        assert!(is_whole);
        let boots: Vec<&[u8]> = found.iter().map(|record| record.boot).collect();
        assert_eq!(boots, [b"b-1", b"b-1", b"b-2"]);
        for (record, events) in found.iter().zip(1..) {
            assert_eq!(record.host, Some(&b"web1"[..]));
            assert_eq!(record.name, record::HEARTBEAT.as_bytes());
            let body: serde_json::Value = serde_json::from_slice(record.body.unwrap()).unwrap();
            assert_eq!(body["events"], events);
        }
    }

    #[test]
    fn resources_may_follow_their_records_and_bodies_be_no_text() {
        let (mut record, mut scope, mut resource, mut logs, mut request) = Default::default();
        fixed64(1, 7, &mut record);
        // An integer.
        bytes(BODY, &[0x18, 7], &mut record);
        bytes(LOG_RECORDS, &record, &mut scope);
        Attributes {
            number: RESOURCE_ATTRIBUTES,
            to: &mut resource,
        }
        .text("host.name", "a");
        bytes(SCOPE_LOGS, &scope, &mut logs);
        bytes(RESOURCE, &resource, &mut logs);
        bytes(RESOURCE_LOGS, &logs, &mut request);
        let expected = LogRecord {
            host: Some(b"a"),
            ..LogRecord::default()
        };
        assert_eq!(records(&request), (vec![expected], true));
        assert_eq!(records(b""), (Vec::new(), true));
    }

    /// A request that is cut at any byte is an error, or has the first of its records.
    #[test]
    fn cut_requests_have_no_other_records() {
        let whole = request();
        let (all, _) = records(&whole);
        for end in 0..whole.len() {
            let (found, is_whole) = records(&whole[..end]);
            assert!(found.len() < all.len() && all.starts_with(&found), "{end}");
            // The resources of both boots are of one length each, and end a message.
            assert!(!is_whole || [0, 2].contains(&found.len()), "{end}");
        }
    }

    /// Records are within the bytes of a peer, whatever these are.
    #[test]
    fn fuzz_ship_otlp_requests() {
        fuzz(
            "fuzz_ship_otlp_requests",
            &[request(), partial_success(3, "no"), status("no")],
            &["\n", "\u{12}", "*", "host.name"],
            2000,
            |input| {
                let (found, _) = records(input);
                for record in found {
                    let texts = record.host.into_iter().chain(record.body);
                    let len: usize = texts.map(<[u8]>::len).sum();
                    assert!(len + record.name.len() <= input.len() * 2);
                }
            },
        );
    }
}
