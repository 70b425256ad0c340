//! Metrics for Prometheus, over HTTP on a Unix socket or on loopback.
//!
//! ```text
//! client --> Server: bounds, request line --> the program's function --> MetricsText --> client
//! ```
//!
//! Why no HTTP crate is used is in `docs/decisions/0007-metrics-server.md`.

#![forbid(unsafe_code)]

mod address;
mod connection;
mod server;
mod text;

pub use address::MetricsAddress;
pub use server::Server;
pub use text::{MetricOf, MetricsText, Samples, labels, number, seconds};
