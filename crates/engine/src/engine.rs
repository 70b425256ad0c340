//! The engine: a plan in force, the programs attached for it, and the ring of events.

mod avc;
mod clock;
mod detach;
mod guard;
mod handover;
mod limits;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use audit::ids::Serial;
use audit::plan::Plan;
use audit::plan::hook::{EngineKind, Sides};
use libbpf_rs::{MapCore as _, num_possible_cpus};

use crate::abi::{LOST, WireCounts};
use crate::attach::async_detach::Reaper;
use crate::attach::heartbeat::Heartbeat;
use crate::attach::{self, Held, Links};
use crate::compile::fast_path::Hints;
use crate::compile::watches::{self, Watches};
use crate::compile::{self, Lowered};
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::inherited_programs::Inherited;
use crate::handover::pins::Pins;
use crate::hooks::attach_point::{Attached, Finder, Spots};
use crate::hooks::kernel_probe::{self, Probe};
use crate::hooks::program::Program;
use crate::load::globals::Data;
use crate::load::maps::{self, Room, Sees, Written};
use crate::load::{Objects, Places};
use crate::options::Options;
use crate::ring::checkpoint::{Fixed, Ledger, Mark, Receipt};
use crate::ring::{Events, Ring};
use crate::skeleton::types;
use crate::stats::{self, Mapped, Runs, Stats, Unsent};
use crate::sys::mapped_memory::{Access, Memory};

pub use detach::Detaching;

/// A running engine.
pub struct Engine<'s> {
    links: Links,
    reaper: Reaper,
    /// What the stubs that are gone were skipped.
    skipped_stubs: u64,
    heartbeat: Option<Heartbeat>,
    /// What sends the calls of security modules' records.
    avc: Option<Held>,
    /// What keeps others from what audits.
    guards: Vec<Held>,
    kind: EngineKind,
    counters: Mapped<WireCounts>,
    unsent: Unsent,
    /// What was counted for daemons before this one.
    before: Stats,
    data: Data,
    /// Where that is.
    _bss: Memory,
    ring: Ring,
    ledger: Arc<Ledger>,
    pins: Option<Pins>,
    inherited: Vec<Inherited>,
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
    moment: Cell<Option<crate::ring::clock::Moment>>,
}

impl fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

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
        let mut kernel = probe.kernel;
        kernel.uring &= options.uring;
        let sides = Sides::of(plan, kind, kernel);
        limits::check(plan, sides)?;
        let lowered = compile::lower(plan, sides);
        let spots = Spots::find(&lowered.hooks, &Finder::new(probe))?;
        let machine = |what| move |source: io::Error| EngineError::Machine { what, source };
        let cpus = num_possible_cpus()
            .map_err(|error| machine("the number of CPUs")(io::Error::other(error)))?;
        let seed = watches::random_seed().map_err(machine("a random seed"))?;
        let root = watches::root().map_err(machine("the root directory"))?;
        let watches = Watches::find(&plan.watches, seed);
        let room = Room::for_plan(&lowered, &watches);
        let sees = match kind {
            EngineKind::Fentry => Sees::Inside,
            EngineKind::Tracepoint => Sees::Calls,
        };

        let mut programs = spots.programs(|_spot| false);
        programs.insert(Program::DaemonRegister);
        if kind == EngineKind::Fentry {
            programs.insert(Program::Heartbeat);
        }
        let objects = Objects::load(places, kind, programs, |open| {
            maps::size(open, room, sees, cpus, options)?;
            if let Some(rodata) = open.maps.rodata_data.as_mut() {
                rodata.tlg_seed = seed;
                rodata.tlg_root.ino = root.ino;
                rodata.tlg_root.dev = root.dev;
                rodata.tlg_apparmor = kernel_probe::apparmor().into();
                rodata.tlg_hooked = (sees == Sees::Inside).into();
                rodata.tlg_context = options.context.into();
            }
            Ok(())
        })?;
        let fixed = Fixed {
            seed,
            on_functions: (kind == EngineKind::Fentry).into(),
            raw_enter: sides.raw_enter.into(),
            raw_exit: sides.raw_exit.into(),
            context: options.context.into(),
            tests: room.tests,
            inodes: room.inodes,
            names: room.names,
            ..Fixed::default()
        };
        let first = Mark {
            serial: Serial::FIRST.0.into(),
            ..Mark::default()
        };
        let ledger = Ledger::new(fixed, first, objects.first().maps.tlg_ring.as_fd())
            .map_err(machine("the ledger"))?;
        let mut engine = Self::over(objects, kind, sides, Arc::new(ledger))?;
        engine.data.forget();
        engine.hints = Hints::of(&lowered, options.ring_bytes);
        engine.data.hint(&engine.hints);
        engine.write(engine.epoch, &lowered, &watches)?;
        engine.now()?; // from here on this process is not audited
        engine.listen()?;
        engine.links = engine.attach(&spots)?;
        engine.attached = spots.attached;
        Ok(engine)
    }

    /// An engine over programs that are loaded, with nothing attached.
    fn over(
        objects: Objects<'s>,
        kind: EngineKind,
        sides: Sides,
        ledger: Arc<Ledger>,
    ) -> Result<Self, EngineError> {
        let machine = |what| move |source: io::Error| EngineError::Machine { what, source };
        let maps = &objects.first().maps;
        let bss = Memory::map(&maps.bss, 0, size_of::<types::bss>(), Access::ReadWrite)
            .map_err(machine("its own data"))?;
        let none = || machine("its own data")(io::Error::other("too short"));
        let data = Data::new(bss.at(0).ok_or_else(none)?);
        let waiting = data.waiting().ok_or_else(none)?;
        let ring = maps.tlg_ring.as_fd().try_clone_to_owned();
        let ring = ring
            .and_then(|map| Events::new(map, Arc::clone(&ledger)))
            .map_err(machine("the ring"))?;
        let cpus = usize::try_from(maps.tlg_counts.max_entries()).unwrap_or_default();
        let counters = Mapped::map(&maps.tlg_counts, cpus).map_err(machine("the counters"))?;
        let unsent = Unsent::map(&maps.tlg_rule_drops).map_err(machine("the counters of rules"))?;
        let fixed = ledger.fixed();
        Ok(Self {
            links: Links::default(),
            reaper: Reaper::default(),
            skipped_stubs: 0,
            heartbeat: None,
            avc: None,
            guards: Vec::new(),
            kind,
            counters,
            unsent,
            before: Stats::default(),
            data,
            _bss: bss,
            ring: Ring::new(ring, waiting),
            ledger,
            pins: None,
            inherited: Vec::new(),
            objects,
            room: Room {
                tests: fixed.tests,
                inodes: fixed.inodes,
                names: fixed.names,
            },
            seed: fixed.seed,
            sides,
            hints: data.hints(),
            epoch: Epoch::default(),
            halves: Default::default(),
            attached: Attached::default(),
            moment: Cell::new(None),
        })
    }

    /// Makes sure that programs on functions run, and goes on looking whether they do.
    fn listen(&mut self) -> Result<(), EngineError> {
        if self.kind == EngineKind::Fentry {
            self.check_preemption()?;
            let heartbeat = self.program(Program::Heartbeat)?;
            self.heartbeat = Some(Heartbeat::attach(heartbeat, self.data)?);
            if !self.runs() {
                return Err(EngineError::Blind);
            }
        }
        Ok(())
    }

    /// Puts another plan in force while events flow. A call that both plans name is chosen by one of them:
    /// none is missed and none is seen twice. What both need stays attached; what only the old one needs is
    /// detached in the background.
    ///
    /// Events that are in the ring, and those of calls under way, may be of the plan before. Watched paths
    /// are looked up anew. `text` is what [`crate::Survivors::plans`] gives a daemon after this one.
    ///
    /// # Errors
    /// [`EngineError`], with the old plan in force, whole.
    pub fn replace(
        &mut self,
        places: &mut Places<'s>,
        probe: &Probe,
        plan: &Plan,
        text: &[u8],
    ) -> Result<(), EngineError> {
        let sides = self.sides.next(plan);
        limits::check(plan, sides)?;
        let lowered = compile::lower(plan, sides);
        let spots = Spots::find(&lowered.hooks, &Finder::new(probe))?;
        let watches = Watches::find(&plan.watches, self.seed);
        self.room.check(&lowered, &watches)?;
        self.objects.load_more(
            places,
            &spots.programs(|spot| self.links.contains_key(spot)),
        )?;
        let epoch = self.epoch.next();
        self.pin_plan(epoch, &watches, text)?;
        self.make_room(epoch)?;
        self.write(epoch, &lowered, &watches)?;

        // From here on what spares work spares none that either plan needs.
        let hints = Hints::of(&lowered, self.objects.first().maps.tlg_ring.max_entries());
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
        self.ledger.set_skipped(self.skipped_stubs);
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
                    self.ledger.set_skipped(self.skipped_stubs);
                    Ok(held)
                }
                None => self
                    .program(spot.program)
                    .and_then(|program| attach::attach(program, spot, hook)),
            };
            let held = held.and_then(|held| {
                if let Some(pins) = &self.pins {
                    held.pin(pins, spot).map_err(|source| EngineError::Pinned {
                        what: spot.to_string(),
                        source,
                    })?;
                }
                Ok(held)
            });
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
            _ if !kernel_probe::preemptible_by_build() => return Ok(()),
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
        self.counters.sum() - self.before
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
            let inherited: u64 = self.inherited.iter().map(Inherited::skipped).sum();
            *skipped += self.skipped_stubs + attach::skipped(&self.links) + self.objects.skipped();
            *skipped += inherited;
        }
        stats - self.before
    }

    /// How often each program has run; nothing unless the kernel counts that. Asking is a call for each
    /// program, which is spared then.
    #[must_use]
    pub fn run_counts(&self) -> Vec<Runs> {
        if !kernel_probe::counts_runs() {
            return Vec::new();
        }
        let copies = self.links.values().filter_map(Held::runs);
        let inherited = self.inherited.iter().filter_map(Inherited::runs);
        stats::by_hook(self.objects.runs().chain(copies).chain(inherited))
    }

    /// The ring.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// What says of the events that were read by now when they are written: the next one has this serial,
    /// and so many were told to be lost, by reason, of those that [`Engine::stats`] counts.
    #[must_use]
    pub fn receipt(&self, serial: Serial, mut told: [u64; LOST + 1]) -> Receipt {
        for (told, before) in told.iter_mut().zip(self.before.lost) {
            *told += before;
        }
        self.ring.receipt(serial, told)
    }
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
