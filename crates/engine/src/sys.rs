//! Wrappers of system calls: descriptors, leases, mappings, mounts, signals, priorities, security modules.

pub(crate) mod descriptor;
pub(crate) mod fd_passing;
pub(crate) mod kernel_hold;
pub(crate) mod kernel_symbols;
pub(crate) mod kprobes;
pub(crate) mod lease;
pub(crate) mod libbpf_log;
pub(crate) mod map_element;
pub(crate) mod mapped_memory;
pub(crate) mod priority;
pub(crate) mod rcu;
pub(crate) mod security_modules;
pub(crate) mod signal_mask;
pub(crate) mod tracefs;
