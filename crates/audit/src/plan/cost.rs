//! Estimates the cost of each rule from the frequency of its syscalls.

use std::collections::BTreeMap;

use crate::ids::{Arch, Syscall};
use crate::rule::{Action, List, SyscallMask};
use crate::table;

use super::uring::{UringCoverage, UringOp};
use super::{Plan, SyscallId};

/// Cost of a rule, relative to other rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// None: the rule matches nothing, or only suppresses.
    Nothing,
    /// Rare syscalls only.
    Low,
    /// Syscalls that a busy program makes thousands of times per second, such as `openat`.
    Medium,
    /// Very frequent syscalls, such as `read`.
    High,
    /// All or nearly all syscalls.
    Everything,
}

impl Cost {
    /// Name of the cost.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Everything => "everything",
        }
    }
}

/// Syscalls and operations that evaluate a rule, and the cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleScope {
    /// Syscalls that evaluate the rule.
    pub syscalls: BTreeMap<Arch, Vec<Syscall>>,
    /// Operations of `io_uring` that evaluate the rule.
    pub operations: Vec<&'static UringOp>,
    /// ABIs of which at least nine in ten syscalls evaluate the rule.
    pub whole_arches: Vec<Arch>,
    /// Cost of the rule.
    pub cost: Cost,
}

impl RuleScope {
    /// The syscalls of all ABIs.
    pub fn syscall_ids(&self) -> impl Iterator<Item = SyscallId> {
        self.syscalls.iter().flat_map(|(&arch, syscalls)| {
            syscalls
                .iter()
                .map(move |&syscall| SyscallId { arch, syscall })
        })
    }

    /// Whether nothing evaluates the rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.syscalls.is_empty() && self.operations.is_empty()
    }
}

impl Plan {
    /// Scope of each of [`Plan::rules`], in the same order.
    #[must_use]
    pub fn rule_scopes(&self, coverage: UringCoverage) -> Vec<RuleScope> {
        let mut scopes: Vec<RuleScope> = self.rules.iter().map(|_| RuleScope::nothing()).collect();
        for (syscall, planned) in &self.syscalls {
            for slot in &planned.slots {
                if let Some(scope) = scopes.get_mut(usize::from(slot.rule.0)) {
                    let syscalls = scope.syscalls.entry(syscall.arch).or_default();
                    syscalls.push(syscall.syscall);
                }
            }
        }
        for (operation, planned) in self.operations(coverage) {
            for slot in &planned.slots {
                if let Some(scope) = scopes.get_mut(usize::from(slot.rule.0)) {
                    scope.operations.push(operation);
                }
            }
        }
        let arches = self.syscalls.keys().map(|syscall| syscall.arch);
        let known: BTreeMap<Arch, usize> = arches.map(|arch| (arch, syscalls_of(arch))).collect();
        for (scope, planned) in scopes.iter_mut().zip(&self.rules) {
            let is_whole = |(arch, syscalls): &(&Arch, &Vec<Syscall>)| {
                let known = known.get(arch);
                known.is_some_and(|known| syscalls.len() * 10 >= known * 9)
            };
            let whole = scope.syscalls.iter().filter(is_whole);
            scope.whole_arches = whole.map(|(&arch, _)| arch).collect();
            if planned.rule.action == Action::Always {
                scope.cost = scope.cost_of(planned.rule.list, coverage);
            }
        }
        scopes
    }
}

impl RuleScope {
    const fn nothing() -> Self {
        Self {
            syscalls: BTreeMap::new(),
            operations: Vec::new(),
            whole_arches: Vec::new(),
            cost: Cost::Nothing,
        }
    }

    /// Cost of a rule that records.
    fn cost_of(&self, list: List, coverage: UringCoverage) -> Cost {
        let most = if self.is_empty() {
            None
        } else if !self.whole_arches.is_empty() {
            Some(Cost::Everything)
        } else if list == List::IoUring {
            let operations = self.operations.iter();
            operations
                .map(|operation| cost_of_operation(operation, coverage))
                .max()
        } else {
            self.syscall_ids().map(cost_of_syscall).max()
        };
        most.unwrap_or(Cost::Nothing)
    }
}

/// Number of syscalls of an ABI that have a name.
#[must_use]
pub fn syscalls_of(arch: Arch) -> usize {
    (0..SyscallMask::LIMIT)
        .filter(|&number| table::syscall_name(arch, Syscall(number)).is_some())
        .count()
}

/// Estimated frequency of an operation. The operations that kernel audit skips are the most frequent ones.
fn cost_of_operation(operation: &UringOp, coverage: UringCoverage) -> Cost {
    if coverage == UringCoverage::Completions || !operation.is_audited() {
        Cost::High
    } else {
        cost_of_name(operation.syscall.unwrap_or_default())
    }
}

/// Estimated frequency of a syscall, in three steps, on typical servers and desktops.
fn cost_of_syscall(syscall: SyscallId) -> Cost {
    cost_of_name(syscall.name().unwrap_or_default())
}

fn cost_of_name(name: &str) -> Cost {
    match name {
        "read" | "write" | "readv" | "writev" | "pread64" | "pwrite64" | "recvfrom" | "sendto"
        | "recvmsg" | "sendmsg" | "recv" | "send" | "futex" | "futex_time64" | "epoll_wait"
        | "epoll_pwait" | "epoll_pwait2" | "epoll_ctl" | "poll" | "ppoll" | "select"
        | "_newselect" | "pselect6" | "getpid" | "gettid" | "lseek" | "_llseek"
        | "clock_gettime" | "clock_gettime64" | "gettimeofday" | "sched_yield" | "ioctl"
        | "io_uring_enter" | "rt_sigprocmask" => Cost::High,
        "open" | "openat" | "close" | "stat" | "lstat" | "fstat" | "newfstatat" | "stat64"
        | "lstat64" | "fstat64" | "fstatat64" | "statx" | "access" | "faccessat" | "faccessat2"
        | "readlink" | "readlinkat" | "mmap" | "mmap2" | "munmap" | "mprotect" | "madvise"
        | "brk" | "fcntl" | "fcntl64" | "getdents64" | "rt_sigaction" | "connect" | "accept"
        | "accept4" | "nanosleep" | "clock_nanosleep" | "getxattr" | "lgetxattr" | "fgetxattr" => {
            Cost::Medium
        }
        _ => Cost::Low,
    }
}
