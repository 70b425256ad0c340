//! The kernel's own audit over netlink: status, features, rules and records.
//!
//! | module | does |
//! | --- | --- |
//! | `socket` | reads and changes settings and rules |
//! | `summary` | tells whether the kernel's audit slows down unaudited syscalls |
//! | `feature` | reads and locks the feature `loginuid_immutable` |
//! | `records` | receives the records that the kernel sends |
//! | `protocol` | encodes requests, parses replies and acknowledgements |

#![forbid(unsafe_code)]

mod feature;
mod protocol;
mod records;
mod socket;
mod summary;

pub use feature::LoginuidImmutable;
pub use records::{KernelRecord, RecordError, RecordStream};
pub use socket::{AuditSocket, AuditStatus, KernelAuditSettings};
pub use summary::AuditSummary;
