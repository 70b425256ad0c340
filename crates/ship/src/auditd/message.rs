//! Messages of records and gaps, without newline: what `auditd` writes to its log.
//!
//! ```text
//! node=web1 type=CWD msg=audit(1790900002.500:2147483653): cwd="/"
//! ```
//!
//! A gap is a record `DAEMON_ERR` in the form in which the daemon tells losses, of the last serial that is missing, so that
//! it is an event of its own.
//!
//! # Source
//! audit-userspace 3.0.9: `audisp/plugins/remote/audisp-remote.c`, `src/auditd-listen.c`.

use std::io::{self, Write as _};

use bstr::ByteSlice as _;

use crate::frame::Gap;
use crate::managed_frame::{HEADER_BYTES, MAX_BODY_BYTES};

/// Longest message that all versions store whole. `auditd` reads header and body into a buffer of `MAX_BODY_BYTES`, and 4.2
/// overwrites the last byte of a message that fills it; a longer one is cut, and acknowledged, by all.
pub(super) const MAX_MESSAGE_BYTES: usize = MAX_BODY_BYTES - HEADER_BYTES - 1;
/// Byte between the fields of a record and their interpretations, in an enriched log.
const INTERPRETATIONS: u8 = 0x1d;

/// What a message has of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// Without its end.
    Cut,
    /// Nothing: it is not sent.
    Left,
}

/// Makes the message of a line of the log, with the node if the line names none.
///
/// The end of an event has no message, because `auditd` acknowledges none if it passes records on to plugins; nor has a
/// rotation of the log, because such an `auditd` then rotates its own. A line that is too
/// long loses its interpretations and, if that is not enough, the fields that do not fit; one with a zero byte, which ends
/// the text for `auditd`, what follows it.
pub(super) fn record(host: &str, line: &[u8], to: &mut Vec<u8>) -> Extent {
    to.clear();
    let unnamed = match line.strip_prefix(b"node=") {
        Some(rest) => rest.split_once_str(" ").map_or(line, |(_, rest)| rest),
        None => {
            node(host, to);
            line
        }
    };
    if [&b"type=EOE "[..], b"type=DAEMON_ROTATE "]
        .iter()
        .any(|kind| unnamed.starts_with(kind))
    {
        return Extent::Left;
    }
    to.extend_from_slice(line);
    let whole = to.len();
    if let Some(zero) = to.find_byte(0) {
        to.truncate(zero);
    }
    if to.len() > MAX_MESSAGE_BYTES
        && let Some(end) = to.find_byte(INTERPRETATIONS)
    {
        to.truncate(end);
    }
    if to.len() > MAX_MESSAGE_BYTES {
        // The blank after the last field that fits may be the first byte that does not.
        let fits = to.get(..=MAX_MESSAGE_BYTES).unwrap_or_default();
        let end = fits.rfind_byte(b' ').unwrap_or(MAX_MESSAGE_BYTES);
        to.truncate(end);
    }
    match to.len() == whole {
        true => Extent::Whole,
        false => Extent::Cut,
    }
}

/// Makes the message of a gap.
///
/// # Errors
/// None is known.
pub(super) fn gap(host: &str, gap: &Gap, to: &mut Vec<u8>) -> io::Result<()> {
    to.clear();
    node(host, to);
    let (sec, milli) = (gap.time.ms / 1000, gap.time.ms % 1000);
    let serial = gap.before.wrapping_sub(1);
    write!(
        to,
        "type=DAEMON_ERR msg=audit({sec}.{milli:03}:{serial}): op=lost-events"
    )?;
    if let Some(missing) = gap.missing {
        write!(to, " lost={missing}")?;
    }
    write!(
        to,
        " reason=\"{}\" after={} before={} res=failed",
        gap.reason.name(),
        gap.after,
        gap.before
    )
}

fn node(host: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(b"node=");
    to.extend_from_slice(host.as_bytes());
    to.push(b' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Reason, Time};

    const LINE: &str = "type=CWD msg=audit(1700000000.000:7): cwd=\"/\"";

    #[track_caller]
    fn check(line: &str, expected: &str, extent: Extent) {
        let mut message = b"before".to_vec();
        assert_eq!(record("web1", line.as_bytes(), &mut message), extent);
        if extent != Extent::Left {
            assert_eq!(message.as_bstr(), expected);
        }
    }

    #[test]
    fn records_have_a_node() {
        check(LINE, &format!("node=web1 {LINE}"), Extent::Whole);
        let named = format!("node=db {LINE}");
        check(&named, &named, Extent::Whole);
        let enriched = format!("{LINE}\u{1d}UID=\"root\"");
        check(&enriched, &format!("node=web1 {enriched}"), Extent::Whole);
    }

    #[test]
    fn ends_of_events_are_left_out() {
        let end = "type=EOE msg=audit(1700000000.000:7): ";
        check(end, "", Extent::Left);
        check(&format!("node=db {end}"), "", Extent::Left);
    }

    #[test]
    fn rotations_are_left_out() {
        let rotation = "type=DAEMON_ROTATE msg=audit(1700000000.000:7): op=rotate-logs auid=0";
        check(rotation, "", Extent::Left);
        check(&format!("node=db {rotation}"), "", Extent::Left);
    }

    #[test]
    fn long_records_lose_interpretations_and_then_fields() {
        let fill = |bytes: usize| {
            let start = format!("node=w {LINE} a=");
            format!("{start}{}", "x".repeat(bytes - start.len()))
        };
        let longest = fill(MAX_MESSAGE_BYTES);
        check(&longest, &longest, Extent::Whole);
        check(&format!("{longest} b=1"), &longest, Extent::Cut);
        check(
            &format!("{longest}\u{1d}UID=\"root\""),
            &longest,
            Extent::Cut,
        );
        let more = format!("{longest} b=1\u{1d}UID=\"root\"");
        check(&more, &longest, Extent::Cut);
        let longer = fill(MAX_MESSAGE_BYTES + 1);
        check(&longer, &format!("node=w {LINE}"), Extent::Cut);
        check(
            &format!("{LINE} a=1\0b"),
            &format!("node=web1 {LINE} a=1"),
            Extent::Cut,
        );
        // No blank at all.
        let mut message = Vec::new();
        let extent = record("w", &vec![b'x'; 2 * MAX_BODY_BYTES], &mut message);
        assert_eq!((extent, message.len()), (Extent::Cut, "node=w".len()));
    }

    #[test]
    fn gaps_are_losses_of_the_last_serial_that_is_missing() {
        let mut found = Gap {
            reason: Reason::Rotated,
            time: Time {
                ms: 1_790_000_009_100,
            },
            after: 2_147_483_653,
            before: 2_147_483_754,
            missing: Some(100),
        };
        let mut message = b"before".to_vec();
        gap("web1", &found, &mut message).unwrap();
        let head = "node=web1 type=DAEMON_ERR msg=audit(1790000009.100:2147483753): op=lost-events";
        let tail = "reason=\"rotated\" after=2147483653 before=2147483754 res=failed";
        assert_eq!(message.as_bstr(), &format!("{head} lost=100 {tail}"));
        found.missing = None;
        gap("web1", &found, &mut message).unwrap();
        assert_eq!(message.as_bstr(), &format!("{head} {tail}"));
    }
}
