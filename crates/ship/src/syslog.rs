//! Syslog messages, with the number of their bytes before each.
//!
//! ```text
//! 214 <86>1 2026-10-02T00:13:22.500Z web1 tollgate - SYSCALL [audit@32473 boot="9e2c..." serial="2147483653" n="1" of="5"] type=SYSCALL msg=audit(...
//! ```
//!
//! Each record of an event is a message, as `audisp-syslog` sends it; `n` and `of` tell whether the event is whole. Gaps
//! and heartbeats are JSON. The facility is `authpriv`, since command lines may have secrets.
//!
//! # Source
//! RFC 5424, section 6; RFC 6587, section 3.4.1 and RFC 5425, section 4.3 (octet counting).

use std::fmt;
use std::io::Write as _;

use audit::record::decode::header;

use crate::frame::{Frame, Record, Time};
use crate::sink::Encode;

/// Facility `authpriv` (10) and severity `informational` (6).
const PRIORITY: u8 = 10 * 8 + 6;
/// Severity `warning` (4), for gaps.
const GAP_PRIORITY: u8 = 10 * 8 + 4;
/// Id of structured data; 32473 is the enterprise number for examples (RFC 5612), since the project has none.
const ID: &str = "audit@32473";
/// Longest type of a message.
const MAX_TYPE: usize = 32;

/// The encoder.
#[derive(Debug, Default)]
pub(crate) struct Syslog {
    /// The last second and its text.
    second: Option<(u64, String)>,
    /// A message that is being made.
    message: Vec<u8>,
}

impl Encode for Syslog {
    fn encode(&mut self, frame: &Frame<'_>, to: &mut Vec<u8>) -> anyhow::Result<()> {
        match frame.record {
            Record::Event(event) => {
                let lines = || {
                    event
                        .text()
                        .split(|&byte| byte == b'\n')
                        .filter(|line| !line.is_empty())
                };
                let count = lines().count();
                let time = Time::of(event.time());
                for (number, line) in (1..).zip(lines()) {
                    let kind = header(line).map_or(&b"-"[..], |record| record.kind);
                    let data = format_args!(
                        " serial=\"{}\" n=\"{number}\" of=\"{count}\"",
                        event.serial().0
                    );
                    self.message(frame, PRIORITY, time, kind, data, line, to);
                }
            }
            Record::Gap(gap) => {
                let text = serde_json::to_vec(gap)?;
                let data = format_args!(" serial=\"{}\"", gap.before);
                self.message(frame, GAP_PRIORITY, gap.time, b"GAP", data, &text, to);
            }
            Record::Heartbeat(heartbeat) => {
                let text = serde_json::to_vec(heartbeat)?;
                let none = format_args!("");
                self.message(
                    frame,
                    PRIORITY,
                    heartbeat.time,
                    b"HEARTBEAT",
                    none,
                    &text,
                    to,
                );
            }
        }
        Ok(())
    }
}

impl Syslog {
    /// Appends a message.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a message, in order"
    )]
    fn message(
        &mut self,
        frame: &Frame<'_>,
        priority: u8,
        time: Time,
        kind: &[u8],
        data: fmt::Arguments<'_>,
        text: &[u8],
        to: &mut Vec<u8>,
    ) {
        self.message.clear();
        let (host, boot) = (frame.host, frame.boot);
        let host = if host.is_empty() { "-" } else { host };
        let millis = time.ms % 1000;
        let second = match &self.second {
            Some((second, text)) if *second == time.ms / 1000 => text,
            _ => &self.second.insert((time.ms / 1000, date(time.ms / 1000))).1,
        };
        let is_plain = kind.iter().all(u8::is_ascii_graphic) && kind.len() <= MAX_TYPE;
        let kind = if is_plain { kind } else { b"-" };
        let message = &mut self.message;
        // Writing to memory cannot fail.
        let _written = write!(
            message,
            "<{priority}>1 {second}.{millis:03}Z {host} tollgate - "
        );
        message.extend_from_slice(kind);
        let _written = write!(message, " [{ID} boot=\"{boot}\"{data}] ");
        message.extend_from_slice(text);
        let _written = write!(to, "{} ", message.len());
        to.extend_from_slice(message);
    }
}

/// Date and time of a second, without its end.
fn date(second: u64) -> String {
    let time = i64::try_from(second).ok();
    let time = time.and_then(|second| jiff::Timestamp::from_second(second).ok());
    let time = time.unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;

    use super::*;
    use crate::frame::{Gap, Reason};

    fn encoded(record: Record<'_>) -> String {
        let frame = Frame {
            host: "web1",
            boot: "b-1",
            record,
        };
        let mut bytes = Vec::new();
        Syslog::default().encode(&frame, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn records_are_messages_with_their_number() {
        let mut assembler = EventAssembler::default();
        for line in [
            "type=CWD msg=audit(1790900002.050:42): cwd=\"/\"",
            "type=PATH msg=audit(1790900002.050:42): item=0",
        ] {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        assembler.end_all();
        let event = assembler.next_ended().unwrap();
        assert_eq!(
            encoded(Record::Event(&event)),
            "147 <86>1 2026-10-02T00:13:22.050Z web1 tollgate - CWD [audit@32473 boot=\"b-1\" serial=\"42\" n=\"1\" of=\"2\"] \
             type=CWD msg=audit(1790900002.050:42): cwd=\"/\"\
             148 <86>1 2026-10-02T00:13:22.050Z web1 tollgate - PATH [audit@32473 boot=\"b-1\" serial=\"42\" n=\"2\" of=\"2\"] \
             type=PATH msg=audit(1790900002.050:42): item=0"
        );
    }

    #[test]
    fn gaps_are_warnings_in_json() {
        let gap = Gap {
            reason: Reason::Rotated,
            time: Time {
                ms: 1_790_900_002_050,
            },
            after: 3,
            before: 9,
            missing: Some(5),
        };
        let text = encoded(Record::Gap(&gap));
        assert!(
            text.ends_with(
                "<84>1 2026-10-02T00:13:22.050Z web1 tollgate - GAP [audit@32473 boot=\"b-1\" serial=\"9\"] \
                 {\"reason\":\"rotated\",\"time\":\"1790900002.050\",\"after\":3,\"before\":9,\"missing\":5}"
            ),
            "{text}"
        );
    }
}
