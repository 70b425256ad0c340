//! Counters of the kernel side, read through a mapping: a bpf(2) call here could make a program be
//! skipped that runs on this CPU at that moment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::marker::PhantomData;
use std::ops::Sub;
use std::os::fd::{AsFd, AsRawFd as _};

use libbpf_rs::libbpf_sys;
use zerocopy::FromBytes;

use crate::abi::{self, LOST, TRUNC, WireCounts};
use crate::epoch::Epoch;
use crate::sys::mapped_memory::{Access, MappedMemory};

/// What the kernel side has counted since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Events that a rule chose to record.
    pub matched: u64,
    /// Of them, those put into the ring. `matched` is `delivered` plus those of `lost` for which the ring
    /// was full, denied or not.
    pub delivered: u64,
    /// Events lost, by reason; see [`LossReason`].
    pub lost: [u64; LOST + 1],
    /// Parts of delivered events that could not be read; see [`Truncation`].
    pub truncated: [u64; TRUNC],
}

impl EngineStats {
    /// Events lost, for whatever reason.
    #[must_use]
    pub fn total_lost(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// What was counted since: each count is at least what it was.
impl Sub for EngineStats {
    type Output = Self;

    fn sub(mut self, before: Self) -> Self {
        self.matched = self.matched.saturating_sub(before.matched);
        self.delivered = self.delivered.saturating_sub(before.delivered);
        let lost = self.lost.iter_mut().zip(before.lost);
        let truncated = self.truncated.iter_mut().zip(before.truncated);
        for (count, before) in lost.chain(truncated) {
            *count = count.saturating_sub(before);
        }
        self
    }
}

/// How often a program has run, and for how long, as the kernel counts while `kernel.bpf_stats_enabled` is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRuns {
    /// The program; of a copy that is on one function, its hook.
    pub hook: String,
    /// How often.
    pub runs: u64,
    /// # Units
    /// Nanoseconds, in all.
    pub time_ns: u64,
}

/// Why an event was lost: index into [`EngineStats::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The reader was too slow and the ring was full.
    RingFull,
    /// The CPU has no area to build events in.
    Scratch,
    /// A stub did not find the program that does its work.
    TailCall,
    /// The ring was full, and the call was denied for that, or failed as if it were: it was not done.
    Denied,
    /// The kernel did not run a program because another one was running on that CPU.
    Skipped,
}

impl LossReason {
    /// All reasons, in index order.
    pub const ALL: [Self; LOST + 1] = [
        Self::RingFull,
        Self::Scratch,
        Self::TailCall,
        Self::Denied,
        Self::Skipped,
    ];

    /// The reason, for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RingFull => "ring full",
            Self::Scratch => "no area to build events in",
            Self::TailCall => "stub without its program",
            Self::Denied => "denied while the ring was full",
            Self::Skipped => "program skipped by the kernel",
        }
    }
}

/// What part of an event is missing: index into [`EngineStats::truncated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// A name in user memory could not be read.
    Name,
    /// Arguments of a program were too long, or could not be read.
    Argv,
    /// A path was too long.
    Path,
    /// What a call's entry remembered was gone at its end.
    EnterState,
    /// An object was below more directories, or hit more watches, than are compared.
    Watches,
    /// What hooks inside the kernel saw did not fit, or too many calls were under way: names come from
    /// user memory.
    SyscallState,
    /// What the task list decided about a new task could not be kept: its calls are decided one by one.
    TaskMark,
    /// A record of a security module stands without its call: the ring had no room for it.
    Avc,
}

impl Truncation {
    /// All parts, in index order.
    pub const ALL: [Self; TRUNC] = [
        Self::Name,
        Self::Argv,
        Self::Path,
        Self::EnterState,
        Self::Watches,
        Self::SyscallState,
        Self::TaskMark,
        Self::Avc,
    ];

    /// The part, for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name not readable",
            Self::Argv => "arguments truncated",
            Self::Path => "path truncated",
            Self::EnterState => "entry forgotten",
            Self::Watches => "too deep for watches",
            Self::SyscallState => "too much for the hooks inside the kernel",
            Self::TaskMark => "new task not marked",
            Self::Avc => "refusal without its call",
        }
    }
}

/// Values of an array that the kernel side counts in, mapped.
#[derive(Debug)]
pub(crate) struct MappedArray<T> {
    memory: MappedMemory,
    len: usize,
    _values: PhantomData<T>,
}

impl<T: Copy + FromBytes> MappedArray<T> {
    /// Maps an array of `len` values.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub(crate) fn map(array: impl AsFd, len: usize) -> io::Result<Self> {
        Ok(Self {
            memory: MappedMemory::map(array, 0, len * size_of::<T>(), Access::Read)?,
            len,
            _values: PhantomData,
        })
    }

    /// The value at an index, as it is now.
    fn get(&self, at: usize) -> Option<T> {
        let at = self.memory.at::<T>(at * size_of::<T>())?;
        // SAFETY: the value lies in the mapping, which lives as long as self; the kernel side writes whole
        // words, of which any value is good.
        Some(unsafe { at.read_volatile() })
    }
}

impl MappedArray<WireCounts> {
    /// Sums over all CPUs.
    pub(crate) fn sum(&self) -> EngineStats {
        let mut stats = EngineStats::default();
        for counts in (0..self.len).filter_map(|cpu| self.get(cpu)) {
            stats.matched += counts.matched;
            stats.delivered += counts.delivered;
            for (to, from) in stats.lost.iter_mut().zip(counts.lost) {
                *to += from;
            }
            for (to, from) in stats.truncated.iter_mut().zip(counts.truncated) {
                *to += from;
            }
        }
        stats
    }
}

/// Events that the ring had no room for, by rule. The kernel side never counts from zero again, so the
/// counts of a half are those above what they were when its plan was put in force.
#[derive(Debug)]
pub(crate) struct RuleDrops {
    counts: MappedArray<u64>,
    before: [Vec<u64>; 2],
}

impl RuleDrops {
    /// Maps them.
    ///
    /// # Errors
    /// As [`MappedArray::map`].
    pub(crate) fn map(array: impl AsFd) -> io::Result<Self> {
        Ok(Self {
            counts: MappedArray::map(array, 2 << abi::RULE_BITS)?,
            before: Default::default(),
        })
    }

    /// Counts a half from zero, of a plan with so many rules.
    pub(crate) fn reset(&mut self, epoch: Epoch, rules: usize) {
        let now = (0..rules).map(|rule| self.raw(epoch, rule)).collect();
        let [even, odd] = &mut self.before;
        *(if epoch.half() == 0 { even } else { odd }) = now;
    }

    /// Those of one rule.
    pub(crate) fn of(&self, epoch: Epoch, rule: usize) -> u64 {
        let [even, odd] = &self.before;
        let before = if epoch.half() == 0 { even } else { odd };
        let before = before.get(rule).copied().unwrap_or_default();
        self.raw(epoch, rule).saturating_sub(before)
    }

    fn raw(&self, epoch: Epoch, rule: usize) -> u64 {
        let at = rule * 2 + usize::from(epoch.half());
        self.counts.get(at).unwrap_or_default()
    }
}

/// Index of the reason that no program can count itself.
pub(crate) const SKIPPED: usize = LOST;

/// How often the kernel did not run a program because it, or another one, was running on that CPU.
pub(crate) fn recursion_misses(program: &impl AsFd) -> u64 {
    info(program).map_or(0, |info| info.recursion_misses)
}

/// What the kernel has counted of a program; nothing when it has not counted.
pub(crate) fn runs(hook: &dyn ToString, program: &impl AsFd) -> Option<ProgramRuns> {
    let info = info(program).filter(|info| info.run_cnt != 0)?;
    Some(ProgramRuns {
        hook: hook.to_string(),
        runs: info.run_cnt,
        time_ns: info.run_time_ns,
    })
}

/// Adds up what is of the same hook: what daemons before this one have loaded, and what this one has.
pub(crate) fn sum_by_hook(all: impl Iterator<Item = ProgramRuns>) -> Vec<ProgramRuns> {
    let mut sums: BTreeMap<String, ProgramRuns> = BTreeMap::new();
    for runs in all {
        match sums.entry(runs.hook.clone()) {
            Entry::Vacant(new) => drop(new.insert(runs)),
            Entry::Occupied(mut sum) => {
                let sum = sum.get_mut();
                sum.runs += runs.runs;
                sum.time_ns += runs.time_ns;
            }
        }
    }
    sums.into_values().collect()
}

/// The kernel's number of a program.
pub(crate) fn program_id(program: &impl AsFd) -> Option<u32> {
    info(program).map(|info| info.id)
}

/// The kernel's number of the program that a link runs.
pub(crate) fn link_program_id(link: &impl AsFd) -> Option<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: as in `info`.
    let result = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_fd().as_raw_fd(), &raw mut info, &raw mut len)
    };
    (result == 0).then_some(info.prog_id)
}

fn info(program: &impl AsFd) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is writable for `len` bytes, and asks for no arrays: all its pointers are null.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(
            program.as_fd().as_raw_fd(),
            &raw mut info,
            &raw mut len,
        )
    };
    (result == 0).then_some(info)
}
