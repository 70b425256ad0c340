//! Errors of starting an engine and of replacing its plan.

use std::io;
use std::path::PathBuf;

use crate::engine_kind::EngineKind;
use crate::native_functions::{CLOSE, GETPID};
use crate::preemption::SkipRisk;

/// Why an engine cannot start, or cannot take another plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The kernel has no BTF.
    #[error("cannot read the kernel's BTF; tollgate needs CONFIG_DEBUG_INFO_BTF")]
    Btf(#[source] libbpf_rs::Error),
    /// libbpf cannot open the embedded BPF object, or cannot reuse a map for it.
    #[error("cannot open the BPF object")]
    Open(#[source] libbpf_rs::Error),
    /// All object slots are in use.
    #[error("BPF programs were loaded {limit} times; restart the daemon to load more")]
    NoObjectSlot {
        /// Number of slots.
        limit: usize,
    },
    /// The kernel rejected a program or a map.
    #[error(
        "kernel {kernel} rejects the programs of engine {}: {reason} ({libbpf_log})",
        kind.name()
    )]
    Load {
        /// The engine.
        kind: EngineKind,
        /// Release of the running kernel.
        kernel: String,
        /// Why, as far as it is known.
        reason: String,
        /// First error and end of the verifier log, from libbpf.
        libbpf_log: String,
        /// The error number.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel rejected an update of a map.
    #[error("cannot write map `{map}`")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// The error number.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A plan does not fit into the maps of the running engine.
    #[error(
        "the rules need {needed} {what}, the limit is {capacity}; restart the daemon to raise it"
    )]
    Capacity {
        /// What exceeds the limit.
        what: &'static str,
        /// Number that the plan needs.
        needed: usize,
        /// Number that the maps hold.
        capacity: u32,
    },
    /// Tracepoint ids cannot be read.
    #[error(
        "cannot read tracepoint ids from tracefs; this needs CAP_SYS_ADMIN and CONFIG_FTRACE_SYSCALLS"
    )]
    Tracefs(#[source] io::Error),
    /// The kernel refused a perf event.
    #[error("cannot open `{hook}` as a perf event; this needs CAP_PERFMON")]
    PerfEvent {
        /// Name of the tracepoint or kprobe.
        hook: String,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The kernel refused an attachment.
    #[error("cannot attach program `{program}` to {hook}")]
    Attach {
        /// Name of the program.
        program: String,
        /// The attach point.
        hook: String,
        /// The error number.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The syscall functions of the kernel are missing or have unknown prototypes.
    #[error("the kernel's BTF has no `{CLOSE}` or no `{GETPID}`")]
    NoSyscallFunctions,
    /// The engine `lsm` on a kernel without what it needs.
    #[error("the engine lsm needs {missing}")]
    NoTaskWork {
        /// What is missing, as a noun phrase.
        missing: &'static str,
    },
    /// `[on_loss] deny` on an engine that cannot deny syscalls.
    #[error(
        "rules of `[on_loss] deny` need the engine fentry or lsm: remove `deny`, or use a kernel on which one of them works"
    )]
    DenyNeedsFunctions,
    /// The kernel lacks the function that a deny program attaches to.
    #[error(
        "a rule of `[on_loss] deny` needs the function `{function}`, which this kernel does not have: remove its key from `deny`"
    )]
    NoDenyFunction {
        /// The function.
        function: &'static str,
    },
    /// The kernel can skip programs of this engine.
    #[error("{risk}: events would be lost; {}", safe_kernels(*kind))]
    Preempts {
        /// The engine.
        kind: EngineKind,
        /// Which programs can be skipped.
        risk: SkipRisk,
    },
    /// The kernel does not run programs on functions.
    #[error(
        "the kernel does not run programs on functions; `sysctl kernel.ftrace_enabled=1` enables them"
    )]
    HooksDisabled,
    /// A BPF object cannot be pinned, or a pinned one cannot be opened.
    #[error("cannot pin or open {what}")]
    Pin {
        /// The object.
        what: String,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// A directory of files to guard cannot be opened.
    #[error("cannot guard files in `{}`", directory.display())]
    Guard {
        /// The directory.
        directory: PathBuf,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The inode of a watched path cannot be read.
    #[error("cannot watch `{}`", path.display())]
    Watch {
        /// The path.
        path: PathBuf,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// A system call or a BPF test run failed that is expected to succeed.
    #[error("cannot {operation}")]
    System {
        /// The operation, as a verb phrase.
        operation: &'static str,
        /// The error number.
        #[source]
        source: io::Error,
    },
}

impl EngineError {
    /// The cause in one sentence for an administrator, without messages of libbpf and the verifier, unless nothing
    /// else is known.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Load { reason, source, .. }
                if source.kind() == libbpf_rs::ErrorKind::PermissionDenied =>
            {
                reason.clone()
            }
            _ => self.to_string(),
        }
    }

    /// Makes a [`Self::System`] error of the failure of an operation, given as a verb phrase.
    pub(crate) fn system(operation: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::System { operation, source }
    }

    /// Makes a [`Self::Pin`] error of the failure to pin or open something.
    pub(crate) fn pin(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Pin { what, source }
    }
}

/// Kernels on which an engine is never skipped.
const fn safe_kernels(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Fentry => {
            "it needs preempt=none or voluntary, which Linux has before 7.0; from 7.0 the engine lsm replaces it; \
             `--engine fentry --allow-loss` starts it all the same"
        }
        EngineKind::Lsm => "it needs Linux 7.0 with the security module `bpf`",
        EngineKind::Tracepoint => {
            "it needs preempt=none or voluntary, or a kernel before 7.0; `--allow-loss` starts it all the same"
        }
    }
}
