//! Text for plugins: the lines of the log, plus an EOE record after each syscall event.
//!
//! ```text
//! string   type=SYSCALL msg=audit(...): ...\n ... type=EOE msg=audit(...): \n
//! binary   u32 version, u32 16, u32 type, u32 size, and size bytes, in the machine's own order
//! ```
//!
//! Version 0 has the kernel's text from `audit(` on, for lines without additions; version 1 has the whole line.
//!
//! # Source
//! `struct audit_dispatcher_header` in `lib/libaudit.h` and `distribute_event` in `src/auditd.c`,
//! audit-userspace 3.0.9.

use audit::table;
use bstr::ByteSlice as _;

const EOE: u32 = 1320;
const HEADER_BYTES: u32 = 16;

/// Whether lines have only the kernel's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// Only the kernel's text.
    Raw,
    /// With a node or a tail.
    Formatted,
}

/// Text for plugins, shared by all of them.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Lines including EOE records.
    text: Vec<u8>,
    lines: LineFormat,
    /// Number of events.
    pub(crate) events: u64,
}

impl Chunk {
    /// Copies the lines of whole events.
    pub(crate) fn new(log: &[u8], lines: LineFormat, events: u64) -> Self {
        let mut text = Vec::with_capacity(log.len() + log.len() / 8);
        // The current event if it is a syscall event: all others have a single record.
        let mut last: Option<(&[u8], &[u8])> = None;
        for line in log.lines_with_terminator() {
            let Some((node, stamp)) = stamp(line) else {
                continue;
            };
            if let Some((node, ended)) = last.take_if(|(_, ended)| *ended != stamp) {
                end(node, ended, lines, &mut text);
            }
            if is_call(line.get(node.len()..).unwrap_or_default()) {
                last = Some((node, stamp));
            }
            text.extend_from_slice(line);
        }
        if let Some((node, ended)) = last {
            end(node, ended, lines, &mut text);
        }
        Self {
            text,
            lines,
            events,
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Lines in `string` format.
    pub(crate) fn string(&self) -> &[u8] {
        &self.text
    }

    /// Records in `binary` format, each with a header.
    pub(crate) fn binary(&self, out: &mut Vec<u8>) {
        for line in self.text.lines() {
            let name = line
                .find(b"type=")
                .and_then(|at| line.get(at + 5..)?.split(|&byte| byte == b' ').next())
                .unwrap_or_default();
            let number = type_number(name).unwrap_or_default();
            let (version, payload): (u32, &[u8]) = match self.lines {
                LineFormat::Raw => {
                    let at = line.find(b"audit(").unwrap_or_default();
                    (0, line.get(at..).unwrap_or(line))
                }
                LineFormat::Formatted => (1, line),
            };
            let size = u32::try_from(payload.len()).unwrap_or_default();
            for word in [version, HEADER_BYTES, number, size] {
                out.extend_from_slice(&word.to_ne_bytes());
            }
            out.extend_from_slice(payload);
        }
    }
}

/// Splits a line into its node with the space, and its stamp from `audit(` to `)`.
fn stamp(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let node = if line.starts_with(b"node=") {
        line.get(..=line.find_byte(b' ')?)?
    } else {
        b""
    };
    let from = line.find(b"audit(")?;
    let rest = line.get(from..)?;
    Some((node, rest.get(..=rest.find_byte(b')')?)?))
}

/// Whether a record starts a syscall or `io_uring` event.
///
/// # Source
/// `audit_log_exit` and `audit_log_uring` in `kernel/auditsc.c`, Linux 6.12, the only ones that write EOE.
fn is_call(line: &[u8]) -> bool {
    line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=URINGOP ")
}

/// Appends the EOE record; `auditd` trims it if it formats lines.
fn end(node: &[u8], stamp: &[u8], lines: LineFormat, out: &mut Vec<u8>) {
    out.extend_from_slice(node);
    out.extend_from_slice(b"type=EOE msg=");
    out.extend_from_slice(stamp);
    out.extend_from_slice(match lines {
        LineFormat::Raw => b": \n",
        LineFormat::Formatted => b":\n",
    });
}

fn type_number(name: &[u8]) -> Option<u32> {
    if name == b"EOE" {
        return Some(EOE);
    }
    if let Some(number) = name.strip_prefix(b"UNKNOWN[") {
        return number.strip_suffix(b"]")?.to_str().ok()?.parse().ok();
    }
    table::msg_type_number(name).map(|number| number.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"type=SYSCALL msg=audit(1.000:7): x=1\ntype=CWD msg=audit(1.000:7): y\n\
                         type=SYSCALL msg=audit(1.000:8): z\n";

    #[test]
    fn each_syscall_event_ends_with_eoe() {
        let chunk = Chunk::new(LOG, LineFormat::Raw, 2);
        assert_eq!(
            chunk.string().as_bstr(),
            "type=SYSCALL msg=audit(1.000:7): x=1\ntype=CWD msg=audit(1.000:7): y\n\
             type=EOE msg=audit(1.000:7): \ntype=SYSCALL msg=audit(1.000:8): z\n\
             type=EOE msg=audit(1.000:8): \n"
        );
        let chunk = Chunk::new(
            b"node=a type=URINGOP msg=audit(1.000:9): x\nnode=a type=USER msg=audit(1.000:10): y\n",
            LineFormat::Formatted,
            2,
        );
        let expected = "node=a type=URINGOP msg=audit(1.000:9): x\n\
                        node=a type=EOE msg=audit(1.000:9):\n\
                        node=a type=USER msg=audit(1.000:10): y\n";
        assert_eq!(chunk.string().as_bstr(), expected);
    }

    #[test]
    fn records_have_headers_that_count_them() {
        for (lines, version, first) in [
            (LineFormat::Raw, 0, &b"audit(1.000:7): x=1"[..]),
            (
                LineFormat::Formatted,
                1,
                b"type=SYSCALL msg=audit(1.000:7): x=1",
            ),
        ] {
            let mut bytes = Vec::new();
            Chunk::new(LOG, lines, 2).binary(&mut bytes);
            let mut rest = bytes.as_slice();
            let mut records = Vec::new();
            while let Some((header, tail)) = rest.split_first_chunk::<16>() {
                let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
                assert_eq!((word(0), word(4)), (version, 16));
                let (payload, next) = tail.split_at(usize::try_from(word(12)).unwrap());
                records.push((word(8), payload));
                rest = next;
            }
            let types: Vec<u32> = records.iter().map(|(number, _)| *number).collect();
            assert_eq!(types, [1300, 1307, 1320, 1300, 1320]);
            assert_eq!(records[0].1.as_bstr(), first.as_bstr());
        }
    }
}
