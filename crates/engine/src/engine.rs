//! The engine: a plan in force, the programs attached for it, and the ring of events.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;

use audit::plan::Plan;
use audit::plan::hook::{EngineKind, Sides};
use libbpf_rs::{ProgramInput, RingBufferBuilder, num_possible_cpus};

use crate::abi::WireCounts;
use crate::attach::{self, Attached, Held, Links};
use crate::clock::{self, Clock, Moment};
use crate::data::Data;
use crate::error::EngineError;
use crate::heartbeat::Heartbeat;
use crate::hints::Hints;
use crate::keys::Epoch;
use crate::load::{Objects, Places};
use crate::lower::{self, Lowered};
use crate::maps::{self, Room, Sees, Written};
use crate::probe::{self, Probe};
use crate::program::Program;
use crate::reap::Reaper;
use crate::ring::Ring;
use crate::spot::{Finder, Spots};
use crate::stats::{self, Mapped, Runs, Stats, Unsent};
use crate::watch::{self, Watches};

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of the ring: what can wait while the reader is away. A power of two.
    pub ring_bytes: u32,
    /// Whether operations of `io_uring` are seen where they can be.
    pub uring: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            uring: true,
        }
    }
}

/// A running engine.
pub struct Engine<'s> {
    links: Links,
    reaper: Reaper,
    /// What the stubs that are gone were skipped.
    skipped_stubs: u64,
    heartbeat: Option<Heartbeat>,
    kind: EngineKind,
    counters: Mapped<WireCounts>,
    unsent: Unsent,
    data: Data,
    waiting: NonNull<u32>,
    objects: Objects<'s>,
    room: Room,
    seed: u64,
    /// How calls are seen by the plan in force.
    sides: Sides,
    hints: Hints,
    epoch: Epoch,
    /// What the halves of the maps hold.
    halves: [Written; 2],
    attached: Attached,
    moment: Cell<Option<Moment>>,
}

impl fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

/// Calls whose functions are hooked at most: the kernel needs some 130 ms to free each again.
const MOST_FUNCTIONS: usize = 250;

impl<'s> Engine<'s> {
    /// Loads the programs, gives them the plan, and attaches them.
    ///
    /// The calling process is not audited from then on. Nothing stays attached when this fails.
    ///
    /// # Errors
    /// [`EngineError`] names the program, map or hook, and what would be needed.
    pub fn start(
        places: &mut Places<'s>,
        probe: &Probe,
        plan: &Plan,
        kind: EngineKind,
        options: Options,
    ) -> Result<Self, EngineError> {
        may_hook(plan, kind)?;
        let mut kernel = probe.kernel;
        kernel.uring &= options.uring;
        let sides = Sides::of(plan, kind, kernel);
        let lowered = lower::lower(plan, sides);
        let spots = Spots::find(&lowered.hooks, &Finder::new(probe))?;
        let machine = |what| move |source: io::Error| EngineError::Machine { what, source };
        let cpus = num_possible_cpus()
            .map_err(|error| machine("the number of CPUs")(io::Error::other(error)))?;
        let seed = watch::random_seed().map_err(machine("a random seed"))?;
        let root = watch::root().map_err(machine("the root directory"))?;
        let watches = Watches::find(&plan.watches, seed);
        let room = Room::for_plan(&lowered, &watches);
        let sees = match kind {
            EngineKind::Fentry => Sees::Inside,
            EngineKind::Tracepoint => Sees::Calls,
        };

        let mut programs = spots.programs();
        programs.insert(Program::DaemonSelf);
        if kind == EngineKind::Fentry {
            programs.insert(Program::Beat);
        }
        let mut objects = Objects::load(places, kind, programs, |open| {
            maps::size(open, room, sees, cpus, options)?;
            if let Some(rodata) = open.maps.rodata_data.as_mut() {
                rodata.tlg_seed = seed;
                rodata.tlg_root.ino = root.ino;
                rodata.tlg_root.dev = root.dev;
                rodata.tlg_apparmor = probe::apparmor().into();
                rodata.tlg_hooked = (sees == Sees::Inside).into();
                rodata.tlg_filesystems = room.has_filesystems().into();
            }
            Ok(())
        })?;
        let none = || machine("its own data")(io::Error::other("no .bss map"));
        let bss = objects.first_mut().maps.bss_data.as_deref_mut();
        let data = Data::new(NonNull::from(bss.ok_or_else(none)?));
        let waiting = data.waiting().ok_or_else(none)?;
        let counts = objects.first().maps.tlg_counts.as_fd();
        let counters = Mapped::map(counts, cpus).map_err(machine("the counters"))?;
        let unsent = objects.first().maps.tlg_unsent.as_fd();
        let unsent = Unsent::map(unsent).map_err(machine("the counters of rules"))?;
        let mut engine = Self {
            links: Links::default(),
            reaper: Reaper::default(),
            skipped_stubs: 0,
            heartbeat: None,
            kind,
            counters,
            unsent,
            data,
            waiting,
            objects,
            room,
            seed,
            sides,
            hints: Hints::of(&lowered),
            epoch: Epoch::default(),
            halves: Default::default(),
            attached: Attached::default(),
            moment: Cell::new(None),
        };
        engine.data.forget();
        engine.data.hint(&engine.hints);
        engine.write(engine.epoch, &lowered, &watches)?;
        engine.now()?; // from here on this process is not audited
        if kind == EngineKind::Fentry {
            engine.check_preemption()?;
            let beat = engine.program(Program::Beat)?;
            engine.heartbeat = Some(Heartbeat::attach(beat, data)?);
            if !engine.runs() {
                return Err(EngineError::Blind);
            }
        }
        engine.links = engine.attach(&spots)?;
        engine.attached = spots.attached;
        Ok(engine)
    }

    /// Puts another plan in force while events flow. A call that both plans name is chosen by one of them:
    /// none is missed and none is seen twice. What both need stays attached; what only the old one needs is
    /// detached in the background.
    ///
    /// Events that are in the ring, and those of calls under way, may be of the plan before. Watched paths
    /// are looked up anew.
    ///
    /// # Errors
    /// [`EngineError`], with the old plan in force, whole.
    pub fn replace(
        &mut self,
        places: &mut Places<'s>,
        probe: &Probe,
        plan: &Plan,
    ) -> Result<(), EngineError> {
        may_hook(plan, self.kind)?;
        let sides = self.sides.next(plan);
        let lowered = lower::lower(plan, sides);
        let spots = Spots::find(&lowered.hooks, &Finder::new(probe))?;
        let watches = Watches::find(&plan.watches, self.seed);
        self.room.check(&lowered, &watches)?;
        self.objects.load_more(places, &spots.programs())?;
        let epoch = self.epoch.next();
        self.make_room(epoch)?;
        self.write(epoch, &lowered, &watches)?;

        // From here on what spares work spares none that either plan needs.
        let hints = Hints::of(&lowered);
        self.data.hint(&self.hints.or(&hints));
        match self.attach(&spots) {
            Ok(new) => self.links.extend(new),
            Err(error) => {
                self.data.hint(&self.hints);
                return Err(error);
            }
        }
        let jiffies = self.now().map_or(1, |moment| moment.jiffies);
        self.unsent.begin(epoch, plan.rules.len());
        self.data.switch(self.epoch, epoch, jiffies);
        self.epoch = epoch;
        self.sides = sides;
        self.data.hint(&hints);
        self.hints = hints;

        let old = self
            .links
            .extract_if(.., |spot, _| !spots.hooks.contains_key(spot));
        let old: Links = old.collect();
        self.skipped_stubs += attach::skipped(&old);
        self.reaper.take_off(old);
        self.attached = spots.attached;
        Ok(())
    }

    /// Has the half of the next plan used by nobody any more, and empty.
    fn make_room(&mut self, next: Epoch) -> Result<(), EngineError> {
        self.data.forget();
        wait_for_programs().map_err(|source| EngineError::Machine {
            what: "that no program looks at the rules before these",
            source,
        })?;
        let [even, odd] = &mut self.halves;
        let half = if next.half() == 0 { even } else { odd };
        half.clear(self.objects.first())
    }

    /// Writes a plan into its half, which is empty.
    fn write(
        &mut self,
        epoch: Epoch,
        lowered: &Lowered,
        watches: &Watches,
    ) -> Result<(), EngineError> {
        let [even, odd] = &mut self.halves;
        let half = if epoch.half() == 0 { even } else { odd };
        half.fill(self.objects.first(), epoch, self.room, lowered, watches)?;
        self.data.glance(epoch, &watches.bits);
        self.data.forks(epoch, self.room.forks(epoch, lowered));
        self.data.filesystems(epoch, &lowered.filesystems);
        Ok(())
    }

    /// Attaches what is not attached yet; what it has attached before it fails is detached again.
    fn attach(&mut self, spots: &Spots) -> Result<Links, EngineError> {
        let mut new = Links::default();
        for (&spot, &hook) in &spots.hooks {
            if self.links.contains_key(&spot) {
                continue;
            }
            let held = match self.reaper.take_back(spot) {
                Some(held) => {
                    // They are counted with the link again.
                    self.skipped_stubs = self.skipped_stubs.saturating_sub(held.skipped());
                    Ok(held)
                }
                None => self
                    .program(spot.program)
                    .and_then(|program| attach::attach(program, spot, hook)),
            };
            match held {
                Ok(held) => {
                    new.insert(spot, held);
                }
                Err(error) => {
                    self.reaper.take_off(new);
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// A program that was loaded because it is wanted.
    fn program(&self, program: Program) -> Result<&libbpf_rs::ProgramMut<'s>, EngineError> {
        let found = self.objects.find(program);
        found.ok_or_else(|| EngineError::Machine {
            what: "where a program is that was loaded",
            source: io::Error::other(format!("{program:?}")),
        })
    }

    /// Programs on functions are skipped where one was preempted inside the same program: only kernels
    /// that do not preempt themselves are safe.
    ///
    /// # Source
    /// The `active` count of each program in `kernel/bpf/trampoline.c`, Linux 6.12.
    fn check_preemption(&self) -> Result<(), EngineError> {
        let mode = match self.data.preempt() {
            0 | 1 => return Ok(()),
            2 => "full",
            3 => "lazy",
            _ if !probe::preemptible_by_build() => return Ok(()),
            _ => "it does not say how",
        };
        Err(EngineError::Preempts { mode })
    }

    /// Which engine it is.
    #[must_use]
    pub const fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Whether its programs run at this moment. Those on tracepoints always do; those on functions do
    /// not while `kernel.ftrace_enabled` is 0, and neither the kernel nor a counter tells.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.heartbeat.as_ref().is_none_or(Heartbeat::comes)
    }

    /// What is attached.
    #[must_use]
    pub const fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Which plan is in force.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the programs have counted since the start, without what the kernel has skipped: it costs no call.
    #[must_use]
    pub fn counted(&self) -> Stats {
        self.counters.sum()
    }

    /// Events that a rule of the plan in force, or of the one before, has chosen and the ring had no room
    /// for.
    #[must_use]
    pub fn unsent(&self, epoch: Epoch, rule: usize) -> u64 {
        self.unsent.of(epoch, rule)
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.counters.sum();
        if let Some(skipped) = stats.lost.get_mut(stats::SKIPPED) {
            *skipped += self.skipped_stubs + attach::skipped(&self.links) + self.objects.skipped();
        }
        stats
    }

    /// How often each program has run; nothing unless the kernel counts that. Asking is a call for each
    /// program, which is spared then.
    #[must_use]
    pub fn run_counts(&self) -> Vec<Runs> {
        if !probe::counts_runs() {
            return Vec::new();
        }
        let copies = self.links.values().filter_map(Held::runs);
        self.objects.runs().chain(copies).collect()
    }

    /// A clock for the times of events, correct now; see [`Clock::set`] and [`Engine::now`].
    ///
    /// # Errors
    /// [`EngineError::Machine`] when the kernel's clocks cannot be read.
    pub fn clock(&self) -> Result<Clock, EngineError> {
        let tick = clock::tick().map_err(|errno| EngineError::Machine {
            what: "the length of a tick",
            source: errno.into(),
        })?;
        Ok(Clock::new(self.now()?, tick))
    }

    /// This moment in ticks and on the wall.
    ///
    /// # Errors
    /// [`EngineError::Machine`] when the kernel's clocks cannot be read.
    pub fn now(&self) -> Result<Moment, EngineError> {
        let failed = |source: io::Error| EngineError::Machine {
            what: "the tick count",
            source,
        };
        // Both clocks step together, but not in one instant: a pair is good when the wall clock was
        // the same on both sides of reading the ticks.
        for _ in 0..8 {
            let wall_ns = clock::wall_ns().map_err(|errno| failed(errno.into()))?;
            self.program(Program::DaemonSelf)?
                .test_run(ProgramInput::default())
                .map_err(|error| failed(io::Error::other(error)))?;
            let jiffies = self.data.jiffies();
            let moment = Moment { jiffies, wall_ns };
            self.moment.set(Some(moment));
            if clock::wall_ns().map_err(|errno| failed(errno.into()))? == wall_ns {
                return Ok(moment);
            }
        }
        self.moment
            .get()
            .ok_or_else(|| failed(io::Error::other("the clocks never agree")))
    }

    /// The ring; every event goes to `take`, whose bytes are 8-byte aligned.
    ///
    /// # Errors
    /// [`EngineError::Machine`] when the ring cannot be mapped.
    pub fn ring<'a>(&'a self, mut take: impl FnMut(&[u8]) + 'a) -> Result<Ring<'a>, EngineError> {
        let failed = |error| EngineError::Machine {
            what: "the ring",
            source: io::Error::other(error),
        };
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.objects.first().maps.tlg_ring, move |sample| {
                take(sample);
                0
            })
            .map_err(failed)?;
        Ok(Ring::new(builder.build().map_err(failed)?, self.waiting))
    }

    /// Has no call seen any more, and begins to detach everything. Events already in the ring stay there.
    pub fn detach(&mut self) -> Detaching {
        let silent = self.silence().is_ok();
        let mut links = std::mem::take(&mut self.links);
        self.skipped_stubs += attach::skipped(&links);
        links.extend(self.heartbeat.take().map(Heartbeat::into_link));
        self.reaper.take_off(links);
        let mut detaching = Detaching(std::mem::take(&mut self.reaper));
        if !silent {
            detaching.0.finish();
        }
        detaching
    }

    /// Puts a plan in force that names no call, and waits for the programs that go by another one.
    fn silence(&mut self) -> Result<(), EngineError> {
        let epoch = self.epoch.next();
        self.make_room(epoch)?;
        let plan = Plan::default();
        let nothing = lower::lower(&plan, self.sides.next(&plan));
        self.write(epoch, &nothing, &Watches::default())?;
        self.data.switch(self.epoch, epoch, self.data.jiffies());
        self.epoch = epoch;
        self.make_room(epoch.next())
    }
}

/// Programs that are being detached, which the kernel takes some 100 ms for, each. Dropping it waits.
#[derive(Debug)]
pub struct Detaching(Reaper);

impl Detaching {
    /// Waits until nothing is attached any more.
    pub fn finish(mut self) {
        self.0.finish();
    }
}

/// Looks whether so many calls may be hooked.
fn may_hook(plan: &Plan, kind: EngineKind) -> Result<(), EngineError> {
    if kind == EngineKind::Fentry && plan.calls.len() > MOST_FUNCTIONS {
        return Err(EngineError::TooMany {
            calls: plan.calls.len(),
            most: MOST_FUNCTIONS,
        });
    }
    Ok(())
}

/// Waits until every program that runs now has ended.
///
/// # Source
/// `MEMBARRIER_CMD_GLOBAL` in `membarrier(2)` is `synchronize_rcu()`, and programs run inside of RCU; on one
/// CPU, where it does nothing, no program is under way while this runs.
fn wait_for_programs() -> io::Result<()> {
    // SAFETY: only numbers are passed.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if waited == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
