//! Code shared by the end-to-end tests (`crates/tollgate/tests`) and the tests on other kernels (`tests/vm`).
//!
//! Functions return errors: a panic in the first process of a test machine ends the machine. The end-to-end tests
//! unwrap.

#![forbid(unsafe_code)]

pub mod answers;
pub mod archive;
pub mod compare;
pub mod daemon;
pub mod event;
pub mod permitted;
pub mod piped;
pub mod wait;
