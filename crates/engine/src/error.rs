//! Why an engine could not start, or take another plan.

use std::io;
use std::path::PathBuf;

use audit::plan::hook::EngineKind;

use crate::preemption::SkipRisk;

/// Why an engine could not start, or take another plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The kernel has no type information.
    #[error("the kernel's type information cannot be read; tollgate needs CONFIG_DEBUG_INFO_BTF")]
    Btf(#[source] libbpf_rs::Error),
    /// The object is not what this program was built with.
    #[error("cannot open the BPF object")]
    Open(#[source] libbpf_rs::Error),
    /// So many objects were loaded that there is no room for another.
    #[error("programs were loaded {most} times; restart the daemon to load more")]
    NoObjectSlot {
        /// How often they can be.
        most: usize,
    },
    /// The kernel refused a program or a map.
    #[error(
        "kernel {kernel} refuses the programs of engine {} ({libbpf_log}); it takes {}, root (CAP_BPF, CAP_PERFMON) and no lockdown",
        kind.name(), needs(*kind)
    )]
    Load {
        /// The engine.
        kind: EngineKind,
        /// Release of the running kernel.
        kernel: String,
        /// What libbpf said about the refusal.
        libbpf_log: String,
        /// The error number.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel refused contents of a map.
    #[error("cannot put the plan into map `{map}`")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// The error number.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A plan is larger than the running engine can take.
    #[error(
        "the rules need {needed} {what}, and this daemon has room for {capacity}; restart it to make more"
    )]
    Capacity {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        needed: usize,
        /// How much there is room for.
        capacity: u32,
    },
    /// The tracepoints could not be looked up.
    #[error(
        "cannot look up tracepoints: tracefs cannot be read; it needs CAP_SYS_ADMIN and CONFIG_FTRACE_SYSCALLS"
    )]
    Tracefs(#[source] io::Error),
    /// The kernel refused a perf event.
    #[error("cannot open tracepoint `{hook}`; it needs CAP_PERFMON")]
    PerfEvent {
        /// Name of the tracepoint.
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
        /// What it was to be attached to.
        hook: String,
        /// The error number.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel's functions for syscalls are not of the types that are known.
    #[error("the kernel has no `__x64_sys_close` and `__do_sys_getpid` in its type information")]
    NoSyscallFunctions,
    /// Hooking so many functions takes the kernel minutes to undo.
    #[error(
        "the rules name {calls} calls; taking programs off so many functions would take minutes, at most {most} are hooked"
    )]
    TooManySyscalls {
        /// Calls of the plan.
        calls: usize,
        /// Most that are hooked.
        most: usize,
    },
    /// Calls can only be denied by programs on functions.
    #[error("rules of `[on_loss] deny` need the engine fentry: no other can refuse a call")]
    DenyNeedsFentry,
    /// The kernel does not ask where a call would have to be denied.
    #[error(
        "a rule of `[on_loss] deny` needs the function `{function}`, which this kernel does not have"
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
    /// Programs on functions would never run.
    #[error(
        "the kernel does not run programs on its functions; `sysctl kernel.ftrace_enabled=1` makes it run them"
    )]
    HooksDisabled,
    /// Something cannot be pinned, or what was pinned cannot be found.
    #[error("cannot pin, or find pinned, {what}")]
    Pin {
        /// What.
        what: String,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// A directory that is to be guarded cannot be looked at.
    #[error("cannot guard what is in `{}`", directory.display())]
    Guard {
        /// The directory.
        directory: PathBuf,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// The kernel's inode of a watched path cannot be read.
    #[error("cannot watch `{}`", path.display())]
    Watch {
        /// The path.
        path: PathBuf,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// The machine did not answer something that it always answers.
    #[error("cannot learn {what}")]
    System {
        /// What was asked.
        what: &'static str,
        /// The answer.
        #[source]
        source: io::Error,
    },
}

/// Where an engine cannot be skipped.
const fn safe_kernels(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Fentry => "it needs preempt=none or voluntary",
        EngineKind::Tracepoint => {
            "it needs preempt=none or voluntary, or a kernel before 7.0; `allow_loss` starts it all the same"
        }
    }
}

/// What the kernel must allow for an engine.
const fn needs(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Fentry => "programs on kernel functions (fentry and fexit, v5.5)",
        EngineKind::Tracepoint => "programs on tracepoints and raw tracepoints",
    }
}
