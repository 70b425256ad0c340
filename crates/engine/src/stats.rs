//! Counters of the programs, read through a mapping. `bpf(2)` is avoided because the kernel skips programs that
//! hit while it runs on the same CPU (`bpf_prog_active`).

pub(crate) mod owner_losses;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::ops::{AddAssign, Sub};
use std::os::fd::{AsFd, AsRawFd as _};

use libbpf_rs::libbpf_sys;
use zerocopy::FromBytes;

use crate::abi::{self, LOST, TRUNC, WireCounts};
use crate::epoch::Epoch;
use crate::sys::mapped_memory::{Access, MappedMemory};

/// Counters of the programs since they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Events that a rule records.
    pub matched: u64,
    /// Matched events that were written to the ring. `matched` is `delivered` plus the losses
    /// [`LossReason::RingFull`] and [`LossReason::Denied`].
    pub delivered: u64,
    /// Lost events, by [`LossReason`].
    pub lost: [u64; LOST + 1],
    /// Delivered events with a missing part, by [`Truncation`].
    pub truncated: [u64; TRUNC],
}

impl EngineStats {
    /// Lost events, for all reasons.
    #[must_use]
    pub fn total_lost(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// Counters of two engines, one after the other.
impl AddAssign for EngineStats {
    fn add_assign(&mut self, other: Self) {
        self.matched += other.matched;
        self.delivered += other.delivered;
        let lost = self.lost.iter_mut().zip(other.lost);
        let truncated = self.truncated.iter_mut().zip(other.truncated);
        for (count, other) in lost.chain(truncated) {
            *count += other;
        }
    }
}

/// Counters since an earlier reading.
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

/// Run count and time of a program; the kernel counts while `kernel.bpf_stats_enabled` is 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRuns {
    /// Name of the program, or the hook of a stub copy.
    pub hook: String,
    /// Number of runs.
    pub runs: u64,
    /// Total time of all runs.
    ///
    /// # Units
    /// Nanoseconds.
    pub time_ns: u64,
}

/// Why an event was lost; index into [`EngineStats::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The reader was too slow and the ring was full.
    RingFull,
    /// There was no memory for the state of the syscall: its user has too many in progress.
    NoSlot,
    /// The tail call of a stub failed.
    TailCall,
    /// The ring was full, and the syscall was denied, or failed with EPERM.
    Denied,
    /// The kernel skipped a program because it, or another one, was running on that CPU (recursion miss).
    Skipped,
}

impl LossReason {
    /// All reasons, in index order.
    pub const ALL: [Self; LOST + 1] = [
        Self::RingFull,
        Self::NoSlot,
        Self::TailCall,
        Self::Denied,
        Self::Skipped,
    ];

    /// The reason, as shown in summaries and statistics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RingFull => "ring full",
            Self::NoSlot => "no state slot",
            Self::TailCall => "stub without its program",
            Self::Denied => "denied while the ring was full",
            Self::Skipped => "program skipped by the kernel",
        }
    }
}

/// Which part of an event is missing; index into [`EngineStats::truncated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// A name in user memory could not be read.
    Name,
    /// The arguments of a program were too long, or could not be read.
    Argv,
    /// A path was too long.
    Path,
    /// There was no memory to save the state of the syscall at its entry.
    EnterState,
    /// An object matched more watches, or is below more directories, than are compared.
    Watches,
    /// More state than a slot takes, or no slot: the event has not all objects.
    SyscallState,
    /// The verdict of the task list could not be stored with the task; its syscalls are evaluated one by one.
    TaskMark,
    /// An LSM record has no SYSCALL record, because the ring was full.
    Avc,
    /// The file behind the descriptor that an open returned has another name: a thread may have replaced it.
    Descriptor,
    /// The end of the syscall was seen when its result was gone.
    Result,
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
        Self::Descriptor,
        Self::Result,
    ];

    /// The part, as shown in summaries and statistics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name not readable",
            Self::Argv => "arguments truncated",
            Self::Path => "path truncated",
            Self::EnterState => "entry not saved",
            Self::Watches => "too deep for watches",
            Self::SyscallState => "too much for the hooks inside the kernel",
            Self::TaskMark => "new task not marked",
            Self::Avc => "refusal without its call",
            Self::Descriptor => "descriptor of another name",
            Self::Result => "result not seen",
        }
    }
}

/// A mapped array of counters.
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
    /// As `mmap(2)`.
    pub(crate) fn map(array: impl AsFd, len: usize) -> io::Result<Self> {
        Ok(Self {
            memory: MappedMemory::map(array, 0, len * size_of::<T>(), Access::Read)?,
            len,
            _values: PhantomData,
        })
    }

    /// The current value at an index.
    fn get(&self, at: usize) -> Option<T> {
        let at = self.memory.at::<T>(at * size_of::<T>())?;
        // SAFETY: `at` checks bounds and alignment, and `self` owns the mapping. Programs write whole words, and
        // `T: FromBytes` is valid for any bits.
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

/// Events lost because the ring was full, by rule. Programs never reset these counters; the counts of a plan
/// are relative to the values when it was activated.
#[derive(Debug)]
pub(crate) struct RuleDrops {
    counts: MappedArray<u64>,
    /// Values when the plan was activated, by half.
    baseline: [Vec<u64>; 2],
}

impl RuleDrops {
    /// Maps `tlg_rule_drops`.
    ///
    /// # Errors
    /// As [`MappedArray::map`].
    pub(crate) fn map(array: impl AsFd) -> io::Result<Self> {
        Ok(Self {
            counts: MappedArray::map(array, 2 << abi::RULE_BITS)?,
            baseline: Default::default(),
        })
    }

    /// Starts to count from zero for a plan with `rules` rules.
    pub(crate) fn reset(&mut self, epoch: Epoch, rules: usize) {
        let now = (0..rules).map(|rule| self.raw(epoch, rule)).collect();
        let [even, odd] = &mut self.baseline;
        *(if epoch.half() == 0 { even } else { odd }) = now;
    }

    /// Lost events of one rule.
    pub(crate) fn get(&self, epoch: Epoch, rule: usize) -> u64 {
        let [even, odd] = &self.baseline;
        let baseline = if epoch.half() == 0 { even } else { odd };
        let baseline = baseline.get(rule).copied().unwrap_or_default();
        self.raw(epoch, rule).saturating_sub(baseline)
    }

    fn raw(&self, epoch: Epoch, rule: usize) -> u64 {
        let at = rule * 2 + usize::from(epoch.half());
        self.counts.get(at).unwrap_or_default()
    }
}

/// Index of [`LossReason::Skipped`], which the kernel counts, not a program.
pub(crate) const SKIPPED: usize = LOST;

/// Number of instructions that the verifier has processed; `None` before v5.16.
pub(crate) fn verified_instructions(program: &impl AsFd) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix("verified_insns:"))?;
    number.trim().parse().ok()
}

/// How often the kernel skipped a program because it, or another one, was running on that CPU.
///
/// # Source
/// `recursion_misses` of `struct bpf_prog_info`, Linux 5.12.
pub(crate) fn recursion_misses(program: &impl AsFd) -> u64 {
    info(program).map_or(0, |info| info.recursion_misses)
}

/// Run count and time of a program; `None` when the kernel has counted no run.
pub(crate) fn runs(hook: &dyn ToString, program: &impl AsFd) -> Option<ProgramRuns> {
    let info = info(program).filter(|info| info.run_cnt != 0)?;
    Some(ProgramRuns {
        hook: hook.to_string(),
        runs: info.run_cnt,
        time_ns: info.run_time_ns,
    })
}

/// Sums the counts of each hook over the programs of this and of previous daemons.
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

/// Id of a program.
pub(crate) fn program_id(program: &impl AsFd) -> Option<u32> {
    info(program).map(|info| info.id)
}

/// Id of the program of a link.
pub(crate) fn link_program_id(link: &impl AsFd) -> Option<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is writable for `len` bytes. All its pointers are null, so the kernel copies no strings.
    let result = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_fd().as_raw_fd(), &raw mut info, &raw mut len)
    };
    (result == 0).then_some(info.prog_id)
}

fn info(program: &impl AsFd) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is writable for `len` bytes. All its pointers are null, so the kernel copies no arrays.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(
            program.as_fd().as_raw_fd(),
            &raw mut info,
            &raw mut len,
        )
    };
    (result == 0).then_some(info)
}
