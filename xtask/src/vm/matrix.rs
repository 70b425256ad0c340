//! The kernels that tollgate is tested on: `make test` boots some for each commit, `cargo xtask kernels` and
//! `cargo xtask vm --kernel all` all of them.

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
    /// The filter of those that `make test` runs; `None` if it does not boot the kernel.
    pub(super) each_commit: Option<&'static str>,
}

/// All tests.
const ALL: &str = "";

/// The sessions of each engine that have most of its code, and what is lost when tasks contend for a CPU.
const SOME: &str = "^tracepoint|raw|fentry|fentry_both_abis|clock|differential|reload|handover|json|names|names_tracepoint|other_mounts_tracepoint|run|traced_tracepoint|contention|contention_deny|preemption";

/// The same without modules, which Debian's archive does not keep of an older kernel.
const WITHOUT_MODULES: &str =
    "^fentry|fentry_both_abis|differential|reload|handover|json|contention|contention_deny";

/// What only the engine `lsm` does, its records beside the kernel's, and what it loses when tasks contend for a CPU.
const OF_LSM: &str =
    "^differential|contention|late|retried|traced|traced_result|operation_at_entry";

/// The matrix.
pub(super) const MATRIX: [Entry; 11] = [
    entry("5.10", "", SOME),
    entry("6.1", "fentry,tracepoint", ALL).each_commit(ALL),
    entry("6.12", "fentry,tracepoint", ALL).each_commit(ALL),
    entry("6.12-full", "tracepoint", SOME),
    entry("6.12-rt", "tracepoint", SOME),
    entry("6.18", "tracepoint", SOME),
    entry("7.0", "lsm", WITHOUT_MODULES),
    entry("newest", "lsm", ALL).each_commit(OF_LSM),
    entry("newest-rt", "lsm", ALL),
    entry("6.12-arm64", "fentry,tracepoint", ALL),
    entry("newest-arm64", "fentry,tracepoint", ALL),
];

const fn entry(kernel: &'static str, engines: &'static str, filter: &'static str) -> Entry {
    Entry {
        kernel,
        engines,
        filter,
        each_commit: None,
    }
}

impl Entry {
    const fn each_commit(mut self, filter: &'static str) -> Self {
        self.each_commit = Some(filter);
        self
    }
}

/// The entry of a kernel, if the matrix has it.
pub(super) fn find(kernel: &str) -> Option<&'static Entry> {
    MATRIX.iter().find(|entry| entry.kernel == kernel)
}

/// Names of the kernels that `make test` boots.
pub(super) fn of_each_commit() -> impl Iterator<Item = &'static str> {
    let entries = MATRIX.iter();
    entries
        .filter(|entry| entry.each_commit.is_some())
        .map(|it| it.kernel)
}

/// Names of the kernels on which `make test` runs all tests and so counts instructions, with commas.
pub(super) fn counted() -> String {
    let has_all = |entry: &&Entry| entry.each_commit == Some(ALL);
    let names: Vec<&str> = MATRIX.iter().filter(has_all).map(|it| it.kernel).collect();
    names.join(",")
}

/// Kernel options that tell a machine which engines start on a kernel of the matrix; empty for other kernels.
/// `tests/vm/src/suite.rs` reads them.
pub(super) fn options(kernel: &str) -> String {
    find(kernel).map_or_else(String::new, |entry| format!("vm.engines={}", entry.engines))
}
