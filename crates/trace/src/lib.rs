//! The engine `seccomp`: audits one command and its descendants without privileges.
//!
//! A seccomp filter stops the syscalls that rules can match. The supervisor, which is this process, reads what
//! rules and records need from each stopped task and resumes it. There are two backends, [`Backend`]:
//!
//! - `Ptrace`: the filter returns `SECCOMP_RET_TRACE`, and the supervisor traces the tasks. A task stops a
//!   second time at syscall exit when the result is needed.
//! - `Notify`: the filter returns `SECCOMP_RET_USER_NOTIF`. It costs a third of the other backend and needs no
//!   tracer, but the result is never known.
//!
//! This is no security boundary: names are read from user memory, and a hostile program can change them before
//! the kernel reads them.
//!
//! | module | does |
//! | --- | --- |
//! | `backend` | selects the backend for a plan |
//! | `filter` | compiles a plan to a seccomp filter |
//! | `launch` | starts the command under the filter |
//! | `supervise` | handles stops: `tracer` by ptrace, `notify` by notification |
//! | `recorder` | evaluates rules for a stopped syscall and makes its event: `object`, `path_items`, `exec`, `sockaddr` |
//! | `task` | reads identity and memory of tasks: `ids`, `memory` |
//! | `ptrace` | ptrace requests and wait statuses that nix does not cover |

mod backend;
mod filter;
mod launch;
mod ptrace;
mod recorder;
mod supervise;
mod task;

pub use backend::{Backend, ResultCapture};
pub use launch::{CommandSpec, RunError, TracedCommand, exit_by_signal};
pub use recorder::{Observer, RunStats};
pub use supervise::{CommandStatus, RunSummary};
