//! Inputs of tests in several crates.
//!
//! | module | has |
//! | --- | --- |
//! | `fuzz` | mutations of a corpus of bytes, and the corpora in `tests/fuzz` |
//! | `host` | a host without users, for the parser of rules |
//! | `rules` | random rules and events |

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "only tests use this crate"
)]

pub mod fuzz;
pub mod host;
pub mod rules;
