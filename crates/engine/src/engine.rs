//! The engine: a plan in force, the programs attached for it, and the ring of events.

mod avc;
mod clock;
mod detach;
mod guard;
mod handover;
mod heartbeat;
mod limits;
mod preemption;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use audit::ids::Serial;
use audit::plan::Plan;
use audit::plan::hook::{EngineKind, HookSelection};
use libbpf_rs::{MapCore as _, num_possible_cpus};

use crate::abi::{LOST, WireCounts};
use crate::attach::async_detach::AsyncDetach;
use crate::attach::heartbeat::Heartbeat;
use crate::attach::{self, AttachedLink, Links};
use crate::compile::fast_path::FastPath;
use crate::compile::watch_hash::HashKey;
use crate::compile::watches::{self, Watches};
use crate::compile::{self, CompiledPlan};
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::inherited_programs::InheritedProgram;
use crate::handover::pins::PinDirectory;
use crate::hooks::attach_point::{AttachPointFinder, AttachPoints, AttachedHooks};
use crate::hooks::kernel_probe::{self, KernelProbe};
use crate::hooks::program::Program;
use crate::load::globals::Globals;
use crate::load::maps::{self, HookCoverage, MapCapacity, WatchKeys};
use crate::load::{ObjectSlots, Objects};
use crate::options::EngineOptions;
use crate::preemption::PreemptionFacts;
use crate::ring::checkpoint::{Checkpoint, CommitToken, FixedSettings, Position};
use crate::ring::{Ring, RingReader};
use crate::skeleton::types;
use crate::stats::{self, EngineStats, MappedArray, ProgramRuns, RuleDrops};
use crate::sys::mapped_memory::{Access, MappedMemory};
use crate::sys::rcu;

pub use detach::PendingDetach;

/// A running engine.
pub struct Engine<'s> {
    links: Links,
    detacher: AsyncDetach,
    /// What the stubs that are gone were skipped.
    detached_misses: u64,
    heartbeat: Option<Heartbeat>,
    /// What sends the calls of security modules' records.
    avc: Option<AttachedLink>,
    /// What keeps others from what audits.
    guard_links: Vec<AttachedLink>,
    kind: EngineKind,
    counters: MappedArray<WireCounts>,
    rule_drops: RuleDrops,
    /// What was counted for daemons before this one.
    before: EngineStats,
    globals: Globals,
    /// Where that is.
    _bss: MappedMemory,
    ring: Ring,
    checkpoint: Arc<Checkpoint>,
    pins: Option<PinDirectory>,
    inherited: Vec<InheritedProgram>,
    objects: Objects<'s>,
    capacity: MapCapacity,
    hash: HashKey,
    /// How calls are seen by the plan in force.
    selection: HookSelection,
    fast_path: FastPath,
    epoch: Epoch,
    /// What the keys of the watches in the maps hold.
    watch_keys: [WatchKeys; 2],
    attached: AttachedHooks,
    last_reading: Cell<Option<crate::ring::clock::ClockReading>>,
    preemption: PreemptionFacts,
    allow_loss: bool,
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
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        kind: EngineKind,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let mut kernel = probe.kernel;
        kernel.uring &= options.uring;
        let selection = HookSelection::of(plan, kind, kernel);
        limits::check(plan, selection)?;
        let compiled = compile::compile(plan, selection);
        let attach_points = AttachPoints::find(&compiled.hooks, &AttachPointFinder::new(probe))?;
        let system_error = |what| move |source: io::Error| EngineError::System { what, source };
        let cpus = num_possible_cpus()
            .map_err(|error| system_error("the number of CPUs")(io::Error::other(error)))?;
        let hash = HashKey::random().map_err(system_error("a random seed"))?;
        let root = watches::root_inode().map_err(system_error("the root directory"))?;
        let watches = Watches::resolve(&plan.watches, hash);
        let capacity = MapCapacity::for_first_plan(&compiled, &watches);
        let coverage = match kind {
            EngineKind::Fentry => HookCoverage::InternalHooks,
            EngineKind::Tracepoint => HookCoverage::SyscallsOnly,
        };

        let mut programs = attach_points.programs(|_spot| false);
        programs.insert(Program::DaemonRegister);
        if kind == EngineKind::Fentry {
            programs.insert(Program::Heartbeat);
        }
        let objects = Objects::load(slots, kind, programs, |open| {
            maps::set_sizes(open, capacity, coverage, cpus, options)?;
            if let Some(rodata) = open.maps.rodata_data.as_mut() {
                rodata.tlg_seed = hash.seed;
                rodata.tlg_multiplier = hash.multiplier;
                rodata.tlg_root.ino = root.ino;
                rodata.tlg_root.dev = root.dev;
                rodata.tlg_apparmor = kernel_probe::apparmor_enabled().into();
                rodata.tlg_hooked = (coverage == HookCoverage::InternalHooks).into();
                rodata.tlg_context = options.context.into();
            }
            Ok(())
        })?;
        let fixed = FixedSettings {
            seed: hash.seed,
            on_functions: (kind == EngineKind::Fentry).into(),
            raw_enter: selection.raw_enter.into(),
            raw_exit: selection.raw_exit.into(),
            context: options.context.into(),
            tests: capacity.tests,
            inodes: capacity.inodes,
            names: capacity.names,
            ..FixedSettings::default()
        };
        let first = Position {
            serial: Serial::FIRST.0.into(),
            ..Position::default()
        };
        let checkpoint = Checkpoint::new(fixed, first, objects.first().maps.tlg_ring.as_fd())
            .map_err(system_error("the checkpoint"))?;
        let checkpoint = Arc::new(checkpoint);
        let mut engine = Self::from_objects(objects, kind, selection, checkpoint, probe, options)?;
        engine.globals.clear_previous_epoch();
        engine.fast_path = FastPath::of(&compiled, options.ring_bytes);
        engine.globals.set_fast_path(&engine.fast_path);
        engine.write(engine.epoch, &compiled, &watches)?;
        engine.read_clock()?; // from here on this process is not audited
        engine.check_preemption(attach_points.hooks.keys())?;
        engine.start_heartbeat()?;
        engine.links = engine.attach(&attach_points)?;
        engine.attached = attach_points.attached;
        Ok(engine)
    }

    /// An engine over programs that are loaded, with nothing attached.
    fn from_objects(
        objects: Objects<'s>,
        kind: EngineKind,
        selection: HookSelection,
        checkpoint: Arc<Checkpoint>,
        probe: &KernelProbe,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let system_error = |what| move |source: io::Error| EngineError::System { what, source };
        let maps = &objects.first().maps;
        let bss = MappedMemory::map(&maps.bss, 0, size_of::<types::bss>(), Access::ReadWrite)
            .map_err(system_error("its own globals"))?;
        let none = || system_error("its own globals")(io::Error::other("too short"));
        let globals = Globals::new(bss.at(0).ok_or_else(none)?);
        let waiting = globals.reader_waiting().ok_or_else(none)?;
        let ring = maps.tlg_ring.as_fd().try_clone_to_owned();
        let ring = ring
            .and_then(|map| RingReader::new(map, Arc::clone(&checkpoint)))
            .map_err(system_error("the ring"))?;
        let cpus = usize::try_from(maps.tlg_counts.max_entries()).unwrap_or_default();
        let counters =
            MappedArray::map(&maps.tlg_counts, cpus).map_err(system_error("the counters"))?;
        let rule_drops =
            RuleDrops::map(&maps.tlg_rule_drops).map_err(system_error("the counters of rules"))?;
        let fixed = checkpoint.fixed();
        Ok(Self {
            links: Links::default(),
            detacher: AsyncDetach::default(),
            detached_misses: 0,
            heartbeat: None,
            avc: None,
            guard_links: Vec::new(),
            kind,
            counters,
            rule_drops,
            before: EngineStats::default(),
            globals,
            _bss: bss,
            ring: Ring::new(ring, waiting),
            checkpoint,
            pins: None,
            inherited: Vec::new(),
            objects,
            capacity: MapCapacity {
                tests: fixed.tests,
                inodes: fixed.inodes,
                names: fixed.names,
            },
            hash: HashKey::from_seed(fixed.seed),
            selection,
            fast_path: globals.fast_path(),
            epoch: Epoch::default(),
            watch_keys: Default::default(),
            attached: AttachedHooks::default(),
            last_reading: Cell::new(None),
            preemption: probe.preemption,
            allow_loss: options.allow_loss,
        })
    }

    /// Puts another plan in force while events flow. A call that both plans name is chosen by one of them:
    /// none is missed and none is seen twice. What both need stays attached; what only the old one needs is
    /// detached in the background.
    ///
    /// Events that are in the ring, and those of calls under way, may be of the plan before. Watched paths
    /// are looked up anew. `text` is what [`crate::InheritedState::plans`] gives a daemon after this one.
    ///
    /// # Errors
    /// [`EngineError`], with the old plan in force, whole.
    pub fn replace_plan(
        &mut self,
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        text: &[u8],
    ) -> Result<(), EngineError> {
        let selection = self.selection.next(plan);
        limits::check(plan, selection)?;
        let compiled = compile::compile(plan, selection);
        let attach_points = AttachPoints::find(&compiled.hooks, &AttachPointFinder::new(probe))?;
        self.check_preemption(attach_points.hooks.keys())?;
        let watches = Watches::resolve(&plan.watches, self.hash);
        self.capacity.check(&compiled, &watches)?;
        self.objects.load_more(
            slots,
            &attach_points.programs(|attach_point| self.links.contains_key(attach_point)),
        )?;
        let epoch = self.epoch.next();
        self.pin_plan(epoch, &watches, text)?;
        self.clear_half(epoch)?;
        self.write(epoch, &compiled, &watches)?;

        // From here on what spares work spares none that either plan needs.
        let fast_path = FastPath::of(&compiled, self.objects.first().maps.tlg_ring.max_entries());
        self.globals
            .set_fast_path(&self.fast_path.union(&fast_path));
        match self.attach(&attach_points) {
            Ok(new) => self.links.extend(new),
            Err(error) => {
                self.globals.set_fast_path(&self.fast_path);
                return Err(error);
            }
        }
        let jiffies = self
            .read_clock()
            .map_or(1, |last_reading| last_reading.jiffies);
        self.rule_drops.reset(epoch, plan.rules.len());
        self.globals.switch_epoch(self.epoch, epoch, jiffies);
        self.epoch = epoch;
        self.selection = selection;
        self.globals.set_fast_path(&fast_path);
        self.fast_path = fast_path;

        let old = self.links.extract_if(.., |attach_point, _| {
            !attach_points.hooks.contains_key(attach_point)
        });
        let old: Links = old.collect();
        self.detached_misses += attach::recursion_misses(&old);
        self.checkpoint.set_detached_misses(self.detached_misses);
        self.detacher.detach(old);
        self.attached = attach_points.attached;
        Ok(())
    }

    /// Has the half of the next plan used by nobody any more, and empty.
    fn clear_half(&mut self, next: Epoch) -> Result<(), EngineError> {
        self.globals.clear_previous_epoch();
        rcu::wait_for_programs().map_err(|error| EngineError::System {
            what: "that no program looks at the rules before these",
            source: io::Error::other(error),
        })?;
        let [even, odd] = &mut self.watch_keys;
        let half = if next.half() == 0 { even } else { odd };
        half.clear(self.objects.first())
    }

    /// Writes a plan into its half, which is empty.
    fn write(
        &mut self,
        epoch: Epoch,
        compiled: &CompiledPlan,
        watches: &Watches,
    ) -> Result<(), EngineError> {
        let [even, odd] = &mut self.watch_keys;
        let half = if epoch.half() == 0 { even } else { odd };
        half.write_plan(
            self.objects.first(),
            epoch,
            self.capacity,
            compiled,
            watches,
        )?;
        self.globals.set_watch_prefilter(epoch, &watches.prefilter);
        self.globals
            .set_task_tests(epoch, self.capacity.first_task_test(epoch, compiled));
        self.globals
            .set_excluded_filesystems(epoch, &compiled.filesystems);
        Ok(())
    }

    /// Attaches what is not attached yet; what it has attached before it fails is detached again.
    fn attach(&mut self, attach_points: &AttachPoints) -> Result<Links, EngineError> {
        let mut new = Links::default();
        for (&attach_point, &hook) in &attach_points.hooks {
            if self.links.contains_key(&attach_point) {
                continue;
            }
            let link = match self.detacher.cancel(attach_point) {
                Some(link) => {
                    // They are counted with the link again.
                    self.detached_misses =
                        self.detached_misses.saturating_sub(link.recursion_misses());
                    self.checkpoint.set_detached_misses(self.detached_misses);
                    Ok(link)
                }
                None => self
                    .program(attach_point.program)
                    .and_then(|program| attach::attach(program, attach_point, hook)),
            };
            let link = link.and_then(|link| {
                if let Some(pins) = &self.pins {
                    link.pin(pins, attach_point)
                        .map_err(|source| EngineError::Pin {
                            what: attach_point.to_string(),
                            source,
                        })?;
                }
                Ok(link)
            });
            match link {
                Ok(link) => {
                    new.insert(attach_point, link);
                }
                Err(error) => {
                    self.detacher.detach(new);
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// A program that was loaded because it is wanted.
    fn program(&self, program: Program) -> Result<&libbpf_rs::ProgramMut<'s>, EngineError> {
        let found = self.objects.find(program);
        found.ok_or_else(|| EngineError::System {
            what: "where a program is that was loaded",
            source: io::Error::other(format!("{program:?}")),
        })
    }

    /// Which engine it is.
    #[must_use]
    pub const fn kind(&self) -> EngineKind {
        self.kind
    }

    /// What is attached.
    #[must_use]
    pub const fn attached(&self) -> &AttachedHooks {
        &self.attached
    }

    /// Which plan is in force.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the programs have counted since the start, without what the kernel has skipped: it costs no call.
    #[must_use]
    pub fn program_stats(&self) -> EngineStats {
        self.counters.sum() - self.before
    }

    /// Events that a rule of the plan in force, or of the one before, has chosen and the ring had no room
    /// for.
    #[must_use]
    pub fn rule_drops(&self, epoch: Epoch, rule: usize) -> u64 {
        self.rule_drops.of(epoch, rule)
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.counters.sum();
        if let Some(skipped) = stats.lost.get_mut(stats::SKIPPED) {
            let inherited: u64 = self
                .inherited
                .iter()
                .map(InheritedProgram::recursion_misses)
                .sum();
            *skipped += self.detached_misses
                + attach::recursion_misses(&self.links)
                + self.objects.recursion_misses();
            *skipped += inherited;
        }
        stats - self.before
    }

    /// How often each program has run; nothing unless the kernel counts that. Asking is a call for each
    /// program, which is spared then.
    #[must_use]
    pub fn run_counts(&self) -> Vec<ProgramRuns> {
        if !kernel_probe::bpf_stats_enabled() {
            return Vec::new();
        }
        let copies = self.links.values().filter_map(AttachedLink::runs);
        let inherited = self.inherited.iter().filter_map(InheritedProgram::runs);
        stats::sum_by_hook(self.objects.runs().chain(copies).chain(inherited))
    }

    /// The ring.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// What says of the events that were read by now when they are written: the next one has this serial,
    /// and so many were told to be lost, by reason, of those that [`Engine::stats`] counts.
    #[must_use]
    pub fn commit_token(&self, serial: Serial, mut reported_lost: [u64; LOST + 1]) -> CommitToken {
        for (reported_lost, before) in reported_lost.iter_mut().zip(self.before.lost) {
            *reported_lost += before;
        }
        self.ring.commit_token(serial, reported_lost)
    }
}
