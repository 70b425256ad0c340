//! The running engine: the active plan, the attached programs and the ring.

mod attach_plan;
mod avc;
pub(crate) mod check;
mod clock;
mod counters;
mod detach;
mod follow;
mod guard;
mod handover;
mod heartbeat;
mod identity;
mod limits;
mod preemption;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use audit::ids::Serial;
use audit::plan::Plan;
use libbpf_rs::{MapCore as _, num_possible_cpus};
use nix::unistd::{SysconfVar, sysconf};

use crate::abi::{LOST, WireCounts};
use crate::attach::async_detach::AsyncDetach;
use crate::attach::heartbeat::Heartbeat;
use crate::attach::{self, AttachedLink, Links};
use crate::compile::fast_path::FastPath;
use crate::compile::watch_hash::HashKey;
use crate::compile::watches::Watches;
use crate::compile::{self, CompiledPlan};
use crate::engine_kind::EngineKind;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::handover::inherited_programs::InheritedProgram;
use crate::handover::pins::PinDirectory;
use crate::hooks::attach_point::{AttachPointFinder, AttachPoints, AttachedHooks};
use crate::hooks::hook::Hook;
use crate::hooks::hook_selection::HookSelection;
use crate::hooks::kernel_probe::{self, KernelProbe};
use crate::hooks::program;
use crate::load::btrfs_types;
use crate::load::globals::Globals;
use crate::load::maps::{self, HookCoverage, MapCapacity, Slots, WatchKeys};
use crate::load::{GuardForm, ObjectSlots, Objects, states};
use crate::options::EngineOptions;
use crate::preemption::PreemptionFacts;
use crate::ring::checkpoint::{Checkpoint, CommitToken, FixedSettings, Position};
use crate::ring::clock::ClockReading;
use crate::ring::{Ring, RingReader};
use crate::skeleton::types;
use crate::stats::owner_losses::OwnerLosses;
use crate::stats::{EngineStats, MappedArray, RuleDrops};
use crate::sys::kernel_symbols;
use crate::sys::kprobes::Kprobes;
use crate::sys::mapped_memory::{Access, MappedMemory};
use crate::sys::rcu;

pub use detach::PendingDetach;

/// A running engine.
pub struct Engine<'s> {
    links: Links,
    detacher: AsyncDetach,
    /// Recursion misses of stub copies that are detached.
    detached_misses: u64,
    heartbeat: Option<Heartbeat>,
    /// The program that sends the syscalls of LSM records.
    avc: Option<AttachedLink>,
    /// Guard programs that are not pinned by a previous daemon.
    guard_links: Vec<AttachedLink>,
    kind: EngineKind,
    counters: MappedArray<WireCounts>,
    rule_drops: RuleDrops,
    owner_losses: OwnerLosses,
    /// Counters when this daemon took over; subtracted from what it reports.
    baseline: EngineStats,
    /// Counters of the engine before this one, whose events are in the same log.
    followed: EngineStats,
    globals: Globals,
    /// The memory that `globals` points into.
    _bss: MappedMemory,
    ring: Ring,
    checkpoint: Arc<Checkpoint>,
    pins: Option<PinDirectory>,
    inherited: Vec<InheritedProgram>,
    objects: Objects<'s>,
    capacity: MapCapacity,
    hash: HashKey,
    /// Hook selection of the active plan.
    selection: HookSelection,
    fast_path: FastPath,
    epoch: Epoch,
    /// Keys of the watch maps, by half.
    watch_keys: [WatchKeys; 2],
    attached: AttachedHooks,
    last_reading: Cell<Option<ClockReading>>,
    name_only_watches: RefCell<Vec<String>>,
    preemption: PreemptionFacts,
    kprobes: Kprobes,
    allow_loss: bool,
}

/// Memory of this machine; 0 if unknown.
fn memory_bytes() -> u64 {
    let value = |variable| sysconf(variable).ok().flatten().unwrap_or_default();
    let bytes = value(SysconfVar::_PHYS_PAGES).saturating_mul(value(SysconfVar::PAGE_SIZE));
    u64::try_from(bytes).unwrap_or_default()
}

impl fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

impl<'s> Engine<'s> {
    /// Loads the programs, writes the plan and attaches the programs.
    ///
    /// The calling process is exempt from auditing from then on. On failure nothing stays attached.
    ///
    /// # Errors
    /// [`EngineError`] names the program, map or hook, and the requirement that is not met.
    pub fn start(
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        kind: EngineKind,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let (engine, attach_points) = Self::prepare(slots, probe, plan, kind, options)?;
        engine.attach_all(attach_points)
    }

    fn attach_all(mut self, attach_points: AttachPoints) -> Result<Self, EngineError> {
        self.start_heartbeat()?;
        self.links = self.attach(&attach_points)?;
        self.attached = attach_points.attached;
        Ok(self)
    }

    /// Loads the programs and writes the plan.
    fn prepare(
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        kind: EngineKind,
        options: EngineOptions,
    ) -> Result<(Self, AttachPoints), EngineError> {
        let mut kernel = probe.features(kind);
        kernel.uring &= options.uring;
        let selection = HookSelection::new(plan, kind, kernel);
        if kind == EngineKind::Lsm {
            probe.check_task_work()?;
        }
        limits::check(plan, selection)?;
        let compiled = compile::compile(plan, selection);
        let attach_points = AttachPoints::find(&compiled.hooks, &AttachPointFinder::new(probe))?;
        let cpus = num_possible_cpus().map_err(|error| {
            EngineError::system("read the number of CPUs")(io::Error::other(error))
        })?;
        let hash = HashKey::random().map_err(EngineError::system("read a random key"))?;
        let mut watches = Watches::by_name(&plan.watches, hash);
        let capacity = MapCapacity::for_first_plan(&compiled, plan.watches.len(), &watches);
        let coverage = HookCoverage::of(kind);

        let state_slots = Slots::for_memory(memory_bytes());

        let mut programs = attach_points.programs(|_attach_point| false);
        programs.extend(program::of_daemon(kind));
        let objects = Objects::load(slots, kind, kernel.internal_hooks, programs, |open| {
            maps::set_sizes(open, capacity, coverage, cpus, options, state_slots)?;
            if let Some(rodata) = open.maps.rodata_data.as_mut() {
                rodata.tlg_ring_half = u64::from(options.ring_bytes) / 2;
                kernel_symbols::fill!(rodata.tlg_symbols, kernel_symbols::addresses());
                rodata.tlg_seed = hash.seed;
                rodata.tlg_multiplier = hash.multiplier;
                if let Some(offsets) = btrfs_types::subvolume_offsets() {
                    rodata.tlg_btrfs_root_at = offsets.root;
                    rodata.tlg_btrfs_dev_at = offsets.dev;
                }
                rodata.tlg_apparmor = kernel_probe::apparmor_enabled().into();
                rodata.tlg_hooked = (coverage != HookCoverage::SyscallsOnly).into();
                rodata.tlg_kprobes = (coverage == HookCoverage::TaskWork).into();
                rodata.tlg_late_work = kernel.late_work.into();
                rodata.tlg_context = options.context.into();
                if coverage != HookCoverage::SyscallsOnly {
                    rodata.tlg_slots = state_slots.all;
                    rodata.tlg_slots_per_user = state_slots.per_user;
                }
            }
            Ok(())
        })?;
        let fixed = FixedSettings {
            seed: hash.seed,
            kind: kind.number(),
            raw_enter: selection.raw_enter.into(),
            raw_exit: selection.raw_exit.into(),
            skips_single_syscalls: kernel.skips_single_syscalls.into(),
            context: options.context.into(),
            tests: capacity.tests,
            inodes: capacity.inodes,
            names: capacity.names,
        };
        let first = Position {
            serial: Serial::FIRST.0.into(),
            ..Position::default()
        };
        let checkpoint = Checkpoint::new(fixed, first, objects.first().maps.tlg_ring.as_fd())
            .map_err(EngineError::system("create the checkpoint"))?;
        let checkpoint = Arc::new(checkpoint);
        let mut engine = Self::from_objects(objects, kind, selection, checkpoint, probe, options)?;
        engine.globals.clear_previous_epoch();
        engine.learn_root()?;
        engine.learn_inodes(&mut watches, plan)?;
        engine.fast_path = FastPath::of(&compiled, options.ring_bytes);
        engine.globals.set_fast_path(&engine.fast_path);
        engine.write(engine.epoch, &compiled, &watches)?;
        engine.read_clock()?; // runs `daemon_register`, which exempts this process from auditing
        engine.check_preemption(attach_points.hooks.keys())?;
        Ok((engine, attach_points))
    }

    /// Creates an engine from loaded objects, with nothing attached.
    fn from_objects(
        objects: Objects<'s>,
        kind: EngineKind,
        selection: HookSelection,
        checkpoint: Arc<Checkpoint>,
        probe: &KernelProbe,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        let maps = &objects.first().maps;
        let bss = MappedMemory::map(&maps.bss, 0, size_of::<types::bss>(), Access::ReadWrite)
            .map_err(EngineError::system("map the globals of the programs"))?;
        let too_short = || {
            EngineError::system("map the globals of the programs")(
                io::ErrorKind::InvalidData.into(),
            )
        };
        let globals = Globals::new(bss.at(0).ok_or_else(too_short)?);
        let waiting = globals.reader_waiting().ok_or_else(too_short)?;
        let owner_losses = globals.owner_losses().ok_or_else(too_short)?;
        let ring = maps.tlg_ring.as_fd().try_clone_to_owned();
        let ring = ring
            .and_then(|map| RingReader::new(map, Arc::clone(&checkpoint)))
            .map_err(EngineError::system("map the ring"))?;
        let cpus = usize::try_from(maps.tlg_counts.max_entries()).unwrap_or_default();
        let counters = MappedArray::map(&maps.tlg_counts, cpus)
            .map_err(EngineError::system("map the counters"))?;
        let rule_drops = RuleDrops::map(&maps.tlg_rule_drops)
            .map_err(EngineError::system("map the rule counters"))?;
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
            owner_losses,
            baseline: EngineStats::default(),
            followed: EngineStats::default(),
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
            name_only_watches: RefCell::default(),
            preemption: probe.preemption,
            kprobes: probe.kprobes,
            allow_loss: options.allow_loss,
        })
    }

    /// Replaces the active plan while programs run. Each syscall that both plans name is evaluated by exactly
    /// one of them. Hooks that both plans need stay attached; hooks that only the old plan needs are detached
    /// in the background.
    ///
    /// Events in the ring, and events of syscalls in progress, may belong to the previous plan. Watched paths
    /// are resolved again. `text` is the plan snapshot that [`crate::InheritedState::plan_snapshots`] returns
    /// to the next daemon.
    ///
    /// # Errors
    /// [`EngineError`]; the old plan stays active and complete.
    pub fn replace_plan(
        &mut self,
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        plan: &Plan,
        text: &[u8],
    ) -> Result<(), EngineError> {
        let finder = AttachPointFinder::new(probe);
        // What is attached now stays so until it is decided which hooks stay.
        let paused = self.detacher.pause();
        let selection = self.selection.for_replacement(
            plan,
            |hook| self.is_attached(hook, &finder),
            &self.fast_path.raw_exit,
        )?;
        limits::check(plan, selection)?;
        let compiled = compile::compile(plan, selection);
        let attach_points = AttachPoints::find(&compiled.hooks, &finder)?;
        self.check_preemption(attach_points.hooks.keys())?;
        let mut watches = Watches::by_name(&plan.watches, self.hash);
        self.learn_inodes(&mut watches, plan)?;
        self.capacity.check(&compiled, &watches)?;
        self.objects.load_more(
            slots,
            &attach_points.programs(|attach_point| self.links.contains_key(attach_point)),
            GuardForm::OnFunctions,
        )?;
        let epoch = self.epoch.next();
        self.pin_plan(epoch, &watches, text)?;
        self.clear_half(epoch)?;
        if self.kind == EngineKind::Fentry && !self.is_attached(Hook::SlotsExit, &finder)? {
            self.globals.reset_slots();
        }
        self.write(epoch, &compiled, &watches)?;

        // Until the switch, the fast paths must skip only what neither plan needs.
        let fast_path = FastPath::of(&compiled, self.objects.first().maps.tlg_ring.max_entries());
        self.globals
            .set_fast_path(&self.fast_path.union(&fast_path));
        let attached = self.attach(&attach_points);
        drop(paused);
        match attached {
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

    /// Waits until no program uses the half of the next plan, and empties it.
    fn clear_half(&mut self, next: Epoch) -> Result<(), EngineError> {
        let _accesses = self.begin_map_accesses();
        if let Some(previous) = self.globals.previous_epoch() {
            states::await_end_of(previous, self.globals, self.objects.first(), &self.ring);
        }
        self.globals.clear_previous_epoch();
        rcu::wait_for_programs()
            .map_err(io::Error::other)
            .map_err(EngineError::system(
                "wait for programs of the previous rules",
            ))?;
        let [even, odd] = &mut self.watch_keys;
        let half = if next.half() == 0 { even } else { odd };
        half.clear(self.objects.first(), next)
    }

    /// Writes a plan into its half, which must be empty.
    fn write(
        &mut self,
        epoch: Epoch,
        compiled: &CompiledPlan,
        watches: &Watches,
    ) -> Result<(), EngineError> {
        let _accesses = self.begin_map_accesses();
        let [even, odd] = &mut self.watch_keys;
        let half = if epoch.half() == 0 { even } else { odd };
        half.write_plan(
            self.objects.first(),
            epoch,
            self.capacity,
            compiled,
            watches,
        )?;
        if !watches.sets.is_empty() {
            self.globals.use_watch_sets();
        }
        self.globals.set_watch_prefilter(epoch, &watches.prefilter);
        self.globals
            .set_task_tests(epoch, self.capacity.first_task_test(epoch, compiled));
        self.globals
            .set_excluded_filesystems(epoch, &compiled.filesystems);
        Ok(())
    }

    /// The kind of engine.
    #[must_use]
    pub const fn kind(&self) -> EngineKind {
        self.kind
    }

    /// The attached hooks.
    #[must_use]
    pub const fn attached(&self) -> &AttachedHooks {
        &self.attached
    }

    /// Epoch of the active plan.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The ring.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// A token that commits all events read so far to the checkpoint. `serial` is the serial of the next
    /// event; `reported_lost` are the losses since the start that the log reports, by reason.
    #[must_use]
    pub fn commit_token(&self, serial: Serial, mut reported_lost: [u64; LOST + 1]) -> CommitToken {
        let before = self.baseline.lost.iter().zip(self.followed.lost);
        for (reported, (baseline, followed)) in reported_lost.iter_mut().zip(before) {
            *reported = reported.saturating_sub(followed) + baseline;
        }
        self.ring.commit_token(serial, reported_lost)
    }
}
