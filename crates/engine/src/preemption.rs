//! The preemption mode of the kernel, and the programs that the kernel skips because of it.
//!
//! A preempted program keeps its recursion counter above zero. Until it ends, the kernel skips the same program
//! for other tasks on that CPU. Programs that are not skipped overwrite the per-CPU scratch memory in which the
//! preempted one builds its event.

mod mode;

use std::fmt::{self, Display};

use crate::engine_kind::EngineKind;

/// Preemption mode of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// BPF programs are not preempted: `preempt=none`, `preempt=voluntary`, or a kernel without `PREEMPT_RCU`.
    Off,
    /// `preempt=full`.
    Full,
    /// `preempt=lazy`, v6.13.
    Lazy,
    /// The kernel is built with preemption; the mode cannot be read.
    Unknown,
}

/// Properties of the running kernel that, with the mode, decide which programs it skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreemptionFacts {
    /// Major and minor version.
    pub(crate) release: (u32, u32),
    /// `CONFIG_PREEMPT_RCU`: without it, `rcu_read_lock()`, under which programs run, disables preemption.
    pub(crate) has_preempt_rcu: bool,
    /// Whether `uname -v` contains `PREEMPT`.
    pub(crate) is_preemptible_build: bool,
    /// Whether it contains `PREEMPT_RT`.
    pub(crate) is_realtime: bool,
}

/// A risk that the kernel skips programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipRisk {
    /// Preemption mode of the kernel.
    pub preemption: Preemption,
    /// The programs.
    pub programs: SkippablePrograms,
}

/// Programs that the kernel can skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippablePrograms {
    /// Those on functions, while a task is preempted inside.
    Functions,
    /// Those on tracepoints, while a task is preempted inside.
    Tracepoints,
    /// Those on tracepoints of tasks and `io_uring`, while a task is preempted inside.
    OrdinaryTracepoints,
    /// Those on tracepoints of single syscalls, while a task is preempted inside an update of a map by `bpf(2)`.
    SyscallTracepoints,
}

/// Which tracepoints have programs, besides the raw tracepoints of all syscalls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TracepointKinds {
    /// Tracepoints that are not of syscalls.
    pub(crate) ordinary: bool,
    /// Tracepoints of single syscalls.
    pub(crate) single_syscall: bool,
}

impl Preemption {
    /// Reads a value of the kernel's `preempt_dynamic_mode`, or -1 if it has no such variable.
    ///
    /// # Source
    /// `kernel/sched/core.c`: 0 none, 1 voluntary, 2 full, 3 lazy (v6.13).
    pub(crate) const fn from_mode(mode: i32, facts: PreemptionFacts) -> Self {
        match mode {
            _ if !facts.has_preempt_rcu => Self::Off,
            0 | 1 => Self::Off,
            2 => Self::Full,
            3 => Self::Lazy,
            _ if !facts.is_preemptible_build => Self::Off,
            _ => Self::Unknown,
        }
    }
}

impl Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "preempt=none or voluntary",
            Self::Full => "preempt=full",
            Self::Lazy => "preempt=lazy",
            Self::Unknown => "the kernel does not show how",
        })
    }
}

impl Display for SkipRisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            preemption,
            programs,
        } = self;
        write!(
            f,
            "the kernel preempts itself ({preemption}) and can skip {programs}"
        )
    }
}

impl Display for SkippablePrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Functions => "programs on its functions",
            Self::Tracepoints => "programs on tracepoints",
            Self::OrdinaryTracepoints => "programs on tracepoints of tasks and io_uring",
            Self::SyscallTracepoints => "programs on tracepoints of single syscalls",
        })
    }
}

/// Returns the programs of an engine that the kernel can skip, if there are any.
///
/// # Source
/// fentry and fexit: the `active` counter of a program in `kernel/bpf/trampoline.c`, since v5.12.
/// Tracepoints: `a46023d5616e` makes them preemptible in v7.0, except syscall tracepoints, which follow in
/// v7.2; measured with Debian's kernels.
pub(crate) fn skip_risk(
    kind: EngineKind,
    preemption: Preemption,
    facts: PreemptionFacts,
    tracepoints: TracepointKinds,
) -> Option<SkipRisk> {
    let programs = match kind {
        _ if preemption == Preemption::Off => return None,
        EngineKind::Lsm => return None,
        EngineKind::Fentry => SkippablePrograms::Functions,
        EngineKind::Tracepoint if facts.release >= (7, 2) => SkippablePrograms::Tracepoints,
        EngineKind::Tracepoint if facts.release >= (7, 0) && tracepoints.ordinary => {
            SkippablePrograms::OrdinaryTracepoints
        }
        EngineKind::Tracepoint if tracepoints.single_syscall => {
            SkippablePrograms::SyscallTracepoints
        }
        EngineKind::Tracepoint => return None,
    };
    Some(SkipRisk {
        preemption,
        programs,
    })
}

/// Whether the kernel skips programs on tracepoints of single syscalls in this mode, but not those on the raw
/// tracepoints of all syscalls. The former are perf events, which it skips on a CPU where a task is preempted inside
/// an update of a BPF map by `bpf(2)`: also without `CONFIG_PREEMPT_RCU`, if it is built with preemption.
///
/// # Source
/// `bpf_prog_active` in `trace_call_bpf()`, `kernel/trace/bpf_trace.c`, v6.12; measured by
/// `tests/vm/src/contention.rs`. [`skip_risk`] has the source for v7.2.
pub(crate) fn skips_single_syscalls(preemption: Preemption, facts: PreemptionFacts) -> bool {
    let is_preempted = if facts.has_preempt_rcu {
        preemption != Preemption::Off
    } else {
        facts.is_preemptible_build
    };
    is_preempted && facts.release < (7, 2)
}

/// [`skips_single_syscalls`] in the present mode, which a program reads where it decides.
pub(crate) fn skips_single_syscalls_now(facts: PreemptionFacts) -> bool {
    if !facts.has_preempt_rcu {
        return skips_single_syscalls(Preemption::Off, facts);
    }
    mode::read()
        .is_some_and(|mode| skips_single_syscalls(Preemption::from_mode(mode, facts), facts))
}

/// Whether programs on tracepoints are skipped in some preemption mode. `all_raw`: none are on tracepoints of single
/// syscalls.
pub(crate) const fn has_skippable_tracepoints(facts: PreemptionFacts, all_raw: bool) -> bool {
    facts.has_preempt_rcu && (facts.release.0 >= 7 || !all_raw)
}

/// Returns the major and minor version in a release such as `7.2.13+deb14-cloud-amd64`; the newest if it
/// has none.
pub(crate) fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => (u32::MAX, u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: PreemptionFacts = PreemptionFacts {
        release: (7, 2),
        has_preempt_rcu: true,
        is_preemptible_build: true,
        is_realtime: false,
    };

    #[test]
    fn the_mode_is_read_and_an_unknown_one_is_not_trusted() {
        let modes = [-1, 0, 1, 2, 3, 4].map(|mode| Preemption::from_mode(mode, FACTS));
        use Preemption::{Full, Lazy, Off, Unknown};
        assert_eq!(modes, [Unknown, Off, Off, Full, Lazy, Unknown]);
        let without = |facts| [-1, 2, 3].map(|mode| Preemption::from_mode(mode, facts));
        let facts = PreemptionFacts {
            is_preemptible_build: false,
            ..FACTS
        };
        assert_eq!(without(facts), [Off, Full, Lazy]);
        let facts = PreemptionFacts {
            has_preempt_rcu: false,
            ..FACTS
        };
        assert_eq!(without(facts), [Off; 3]);
    }

    #[test]
    fn no_engine_is_safe_where_its_programs_can_be_skipped() {
        use EngineKind::{Fentry, Lsm, Tracepoint};
        use Preemption::{Full, Lazy, Off, Unknown};
        let is_safe = |kind, preemption, release, tracepoints| {
            let facts = PreemptionFacts { release, ..FACTS };
            skip_risk(kind, preemption, facts, tracepoints).is_none()
        };
        let raw = TracepointKinds::default();
        let ordinary = TracepointKinds {
            ordinary: true,
            ..raw
        };
        let single = TracepointKinds {
            single_syscall: true,
            ..raw
        };
        for release in [(5, 17), (6, 1), (6, 12), (6, 18), (7, 0), (7, 2), (8, 0)] {
            let facts = PreemptionFacts { release, ..FACTS };
            assert!(is_safe(Fentry, Off, release, raw));
            assert!(is_safe(Tracepoint, Off, release, ordinary));
            assert!(is_safe(Tracepoint, Off, release, single));
            assert!(!skips_single_syscalls(Off, facts));
            let built = |is_preemptible_build| PreemptionFacts {
                has_preempt_rcu: false,
                is_preemptible_build,
                ..facts
            };
            assert!(!skips_single_syscalls(Off, built(false)));
            assert_eq!(skips_single_syscalls(Off, built(true)), release < (7, 2));
            for preemption in [Full, Lazy, Unknown] {
                assert!(!is_safe(Fentry, preemption, release, raw));
                assert!(is_safe(Lsm, preemption, release, ordinary));
                let safe = is_safe(Tracepoint, preemption, release, raw);
                assert_eq!(safe, release < (7, 2), "{release:?}");
                // The engine takes the raw tracepoints where that makes it safe.
                assert_eq!(skips_single_syscalls(preemption, facts), safe);
                assert!(!is_safe(Tracepoint, preemption, release, single));
                let safe = is_safe(Tracepoint, preemption, release, ordinary);
                assert_eq!(safe, release < (7, 0), "{release:?}");
            }
        }
    }

    #[test]
    fn releases_are_parsed() {
        for (release, parsed) in [
            ("7.2.13+deb14-cloud-amd64", (7, 2)),
            ("6.18.44-fc-v595", (6, 18)),
            ("7.0-rc1", (7, 0)),
            ("next", (u32::MAX, u32::MAX)),
        ] {
            assert_eq!(parse_release(release), parsed);
        }
    }
}
