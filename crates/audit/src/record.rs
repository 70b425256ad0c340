//! Records: the text of events, byte for byte as kernel audit writes it.
//!
//! A record is one line. All records of an event have the same stamp:
//!
//! ```text
//! [node=NAME ]type=TYPE msg=audit(SEC.MMM:SERIAL): BODY[\x1dENRICHMENT]\n
//! ```
//!
//! [`encode`] writes the line from `type=` to the newline; sinks add the node name and the enrichment.
//! [`template`] writes an event again that is like an earlier one.
//! [`decode`] parses lines, [`assemble`] groups the lines of an event, [`quote`] encodes untrusted strings, and
//! [`interpret`] formats numeric fields for people.

pub mod assemble;
mod aux_records;
pub mod call_result;
pub mod decode;
mod digits;
pub mod encode;
pub mod enrich;
pub mod execve;
pub mod interpret;
pub mod quote;
pub mod stamp;
pub mod template;

/// Maximum length of a line, newline included, that readers of audit logs do not split.
///
/// # Source
/// `MAX_AUDIT_MESSAGE_LENGTH` in audit-userspace 3.0.9 is 8970; `ausearch` reads a line into that
/// many bytes with `fgets`, which keeps one of them for the NUL.
pub const MAX_LINE_BYTES: usize = 8969;
