//! The kernel's own audit over netlink: status, features, rules and records.
//!
//! | module | does |
//! | --- | --- |
//! | `socket` | reads and changes settings and rules |
//! | `state` | tells whether the kernel's audit slows syscalls down |
//! | `feature` | reads and locks `loginuid_immutable` |
//! | `records` | receives the records that the kernel sends |
//! | `protocol` | netlink headers, requests and acknowledgements |

#![forbid(unsafe_code)]

mod feature;
mod protocol;
mod records;
mod socket;
mod state;

pub use feature::LoginuidImmutable;
pub use records::{KernelRecord, RecordError, RecordStream};
pub use socket::{AuditSettings, AuditSocket, AuditStatus};
pub use state::AuditSummary;
