//! Hooks: the points in the kernel where the programs of a plan are attached, and which of them this kernel has.

pub(crate) mod attach_point;
pub(crate) mod denial;
pub(crate) mod explain;
pub(crate) mod hook;
pub(crate) mod hook_report;
pub(crate) mod hook_selection;
pub(crate) mod internal_hook;
pub(crate) mod kernel_functions;
pub(crate) mod kernel_probe;
pub(crate) mod program;
pub(crate) mod prototype;
pub(crate) mod syscall_functions;
pub(crate) mod syscall_hooks;
mod syscall_kinds;
pub(crate) mod syscall_set;
pub(crate) mod uring_functions;
