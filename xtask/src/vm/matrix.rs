//! The kernels that tollgate is tested on: `cargo xtask kernels` and `cargo xtask vm --kernel all` boot them.

/// A kernel of the matrix.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its name, as for `--kernel`.
    pub(super) kernel: &'static str,
    /// The engines that start there, with commas; the first one is that of `--engine auto`. `tollgate doctor` must
    /// say the same.
    pub(super) engines: &'static str,
    /// The filter of its sessions; empty for all machines with all tests.
    pub(super) filter: &'static str,
}

/// All tests.
const ALL: &str = "";

/// The sessions of each engine that have most of its code, and what is lost when tasks contend for a CPU.
const SOME: &str = "^tracepoint|raw|fentry|fentry_both_abis|clock|differential|reload|handover|json|names|names_tracepoint|other_mounts_tracepoint|run|traced_tracepoint|contention|contention_deny|preemption";

/// The matrix.
pub(super) const MATRIX: [Entry; 11] = [
    entry("5.10", "", SOME),
    entry("6.1", "fentry,tracepoint", ALL),
    entry("6.12", "fentry,tracepoint", ALL),
    entry("6.12-full", "tracepoint", SOME),
    entry("6.12-rt", "tracepoint", SOME),
    entry("6.18", "tracepoint", SOME),
    entry("7.0", "lsm", SOME),
    entry("newest", "lsm", ALL),
    entry("newest-rt", "lsm", ALL),
    entry("6.12-arm64", "fentry,tracepoint", ALL),
    entry("newest-arm64", "fentry,tracepoint", ALL),
];

const fn entry(kernel: &'static str, engines: &'static str, filter: &'static str) -> Entry {
    Entry {
        kernel,
        engines,
        filter,
    }
}

/// The filter of a kernel's sessions; `None` if it is not in the matrix.
pub(super) fn filter(kernel: &str) -> Option<&'static str> {
    let entry = MATRIX.iter().find(|entry| entry.kernel == kernel)?;
    Some(entry.filter)
}

/// Kernel options that tell a machine which engines start on a kernel of the matrix; empty for other kernels.
/// `tests/vm/src/suite.rs` reads them.
pub(super) fn options(kernel: &str) -> String {
    let entry = MATRIX.iter().find(|entry| entry.kernel == kernel);
    entry.map_or_else(String::new, |entry| format!("vm.engines={}", entry.engines))
}
