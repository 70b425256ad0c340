//! The daemon: reads rules, writes records, until it is stopped.
//!
//! [`start`] has the order of start and stop, [`event_loop`] the main thread's loop, [`confinement`] the privileges
//! that it drops, [`systemd`] the notifications to the service manager. [`pipeline_handle`] is the main thread's
//! access to the running pipeline, [`log_controller`] its access to the log, [`kernel_audit`] the kernel's own audit
//! while the daemon runs. [`last_good`] keeps the rules for a start at which the files have errors.

mod confinement;
mod event_loop;
mod kernel_audit;
pub(crate) mod last_good;
mod log_controller;
mod pipeline_handle;
mod start;
mod systemd;

pub(crate) use kernel_audit::repair as repair_kernel_audit;
pub(crate) use log_controller::LogSource;
pub(crate) use start::fallback::RefusedFile;
pub(crate) use start::{ControlSocket, DaemonConfig, RuleSource, run};
