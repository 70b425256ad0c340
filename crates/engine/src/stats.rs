//! Counters of the kernel side, read through a mapping: a bpf(2) call here could make a program be
//! skipped that runs on this CPU at that moment.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::NonNull;

use libbpf_rs::libbpf_sys;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::abi::{CUT, LOST, WireCounts};

/// What the kernel side has counted since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that a rule chose to record.
    pub matched: u64,
    /// Of them, those put into the ring. `matched` is `delivered` plus those of `lost` for which the ring
    /// was full.
    pub delivered: u64,
    /// Events lost, by reason; see [`Lost`].
    pub lost: [u64; LOST + 1],
    /// Parts of delivered events that could not be read; see [`Cut`].
    pub cut: [u64; CUT],
}

impl Stats {
    /// Events lost, for whatever reason.
    #[must_use]
    pub fn all_lost(&self) -> u64 {
        self.lost.iter().sum()
    }
}

/// Why an event was lost: index into [`Stats::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The reader was too slow and the ring was full.
    RingFull,
    /// The CPU has no area to build events in.
    Scratch,
    /// A stub did not find the program that does its work.
    Stub,
    /// The kernel did not run a program because another one was running on that CPU.
    Skipped,
}

impl Lost {
    /// All reasons, in index order.
    pub const ALL: [Self; LOST + 1] = [Self::RingFull, Self::Scratch, Self::Stub, Self::Skipped];

    /// The reason, for people.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::RingFull => "ring full",
            Self::Scratch => "no area to build events in",
            Self::Stub => "stub without its program",
            Self::Skipped => "program skipped by the kernel",
        }
    }
}

/// What part of an event is missing: index into [`Stats::cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A name in user memory could not be read.
    Name,
    /// Arguments of a program were too long, or could not be read.
    Argv,
    /// A path was too long.
    Path,
    /// What a call's entry remembered was gone at its end.
    Entry,
    /// An object was below more directories, or hit more watches, than are compared.
    Watches,
    /// What hooks inside the kernel saw did not fit, or too many calls were under way: names come from
    /// user memory.
    Seen,
    /// What the task list decided about a new task could not be kept: its calls are decided one by one.
    Mark,
}

impl Cut {
    /// All parts, in index order.
    pub const ALL: [Self; CUT] = [
        Self::Name,
        Self::Argv,
        Self::Path,
        Self::Entry,
        Self::Watches,
        Self::Seen,
        Self::Mark,
    ];

    /// The part, for people.
    #[must_use]
    pub const fn part(self) -> &'static str {
        match self {
            Self::Name => "name not readable",
            Self::Argv => "arguments cut",
            Self::Path => "path cut",
            Self::Entry => "entry forgotten",
            Self::Watches => "too deep for watches",
            Self::Seen => "too much for the hooks inside the kernel",
            Self::Mark => "new task not marked",
        }
    }
}

/// The counters' mapping.
#[derive(Debug)]
pub(crate) struct Counters {
    base: NonNull<WireCounts>,
    cpus: usize,
    bytes: NonZeroUsize,
}

impl Counters {
    /// Maps the counters of `cpus` CPUs.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub(crate) fn map(counts: impl AsFd, cpus: usize) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(cpus * size_of::<WireCounts>())
            .ok_or_else(|| io::Error::other("this machine has no CPU"))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                counts.as_fd(),
                0,
            )
        }?;
        Ok(Self {
            base: base.cast(),
            cpus,
            bytes,
        })
    }

    /// Sums over all CPUs.
    pub(crate) fn sum(&self) -> Stats {
        let mut stats = Stats::default();
        for cpu in 0..self.cpus {
            // SAFETY: the mapping holds `cpus` counters.
            let at = unsafe { self.base.add(cpu) };
            // SAFETY: the mapping lives as long as self and is aligned to a page; the kernel side
            // writes whole words, of which any value is good.
            let counts = unsafe { at.read_volatile() };
            stats.matched += counts.matched;
            stats.delivered += counts.delivered;
            for (to, from) in stats.lost.iter_mut().zip(counts.lost) {
                *to += from;
            }
            for (to, from) in stats.cut.iter_mut().zip(counts.cut) {
                *to += from;
            }
        }
        stats
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more. A failure leaves it mapped.
        let _unmapped = unsafe { munmap(self.base.cast(), self.bytes.get()) };
    }
}

/// Index of the reason that no program can count itself.
pub(crate) const SKIPPED: usize = LOST;

/// How often the kernel did not run a program because it, or another one, was running on that CPU.
pub(crate) fn skipped(program: &impl AsFd) -> u64 {
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
    if result == 0 {
        info.recursion_misses
    } else {
        0
    }
}
