//! The engine `seccomp`: the calls of one command and of all that it starts, without any privilege.
//!
//! A filter that the command cannot take off stops the calls that rules may keep; this process looks at
//! each stopped call, reads what the rules and the records need, and lets it go on. There are two ways to
//! stop, [`Backend`]:
//!
//! - `Trace`: the filter answers `SECCOMP_RET_TRACE`, the supervisor is the tasks' tracer, and a call whose
//!   result is wanted stops a second time when it ends;
//! - `Notify`: the filter answers `SECCOMP_RET_USER_NOTIF`. It costs a third of the other way, needs no
//!   tracer, and never knows the result.
//!
//! It observes programs that do not hide: names are read from their memory, and a hostile program could
//! change them between that reading and the kernel's. It is no security boundary.
//!
//! | module | does |
//! | --- | --- |
//! | `filter` | plan to filter |
//! | `launch` | starts the command under it |
//! | `trace`, `notify` | take the stops |
//! | `recorder` | one stopped call to an event, or to none |
//! | `task`, `ids`, `memory` | who makes it; what lies in its memory |
//! | `object`, `items` | what it names, and the PATH items of that |
//! | `exec`, `socket` | programs and addresses that it is given |
//! | `ptrace` | requests to tracees that no library offers whole |

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
