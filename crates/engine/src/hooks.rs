//! Hooks: where in the kernel the programs of a plan are attached, and which of them this kernel has.

pub(crate) mod attach_point;
pub(crate) mod kernel_functions;
pub(crate) mod kernel_probe;
pub(crate) mod program;
