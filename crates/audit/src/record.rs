//! Records: the text of events, byte for byte as the kernel's audit writes it.
//!
//! A record is one line, and all records of an event share its stamp:
//!
//! ```text
//! [node=NAME ]type=TYPE msg=audit(SEC.MMM:SERIAL): BODY[\x1dENRICHMENT]\n
//! ```
//!
//! [`encode`] writes the line from `type=` to the newline; a node name and an enrichment are the
//! business of the sink that wants them. [`decode`] reads any such line back, [`assemble`]
//! puts the lines of an event together, [`quote`] is the rule
//! for strings that a task could choose, and [`interpret`] turns numbers into what people read.

pub mod assemble;
mod aux_records;
pub mod decode;
mod digits;
pub mod encode;
pub mod enrich;
pub mod execve;
pub mod interpret;
pub mod quote;

/// Longest line, newline included, that the readers of audit logs take whole.
///
/// # Source
/// `MAX_AUDIT_MESSAGE_LENGTH` in audit-userspace 3.0.9 is 8970; `ausearch` reads a line into that
/// many bytes with `fgets`, which keeps one of them for the NUL.
pub const MAX_LINE_BYTES: usize = 8969;
