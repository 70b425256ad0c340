//! Makes events of stopped syscalls: reads facts, evaluates rules, fills events.

mod exec;
mod object;
mod path_items;
mod sockaddr;

use std::collections::HashMap;
use std::time::Duration;

use audit::event::{Argv, Event, Timestamp, reported_exit, succeeded};
use audit::ids::{Arch, NativeArch, Serial, Syscall};
use audit::plan::eval::{EventFacts, ObjectFacts};
use audit::plan::objects::{self as plan_objects, ObjectArg, ObjectEffect, ObjectRef};
use audit::plan::sockaddr::{self as plan_sockaddr, SyscallSockaddr};
use audit::plan::verdict::Verdict;
use audit::plan::{Facts, Operand, Plan, SyscallId, SyscallPlan};
use audit::table;
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::backend::{ResultCapture, syscall_tests_result};
use crate::task::memory::Memory;
use crate::task::{ExecTracking, TaskView, Tasks};
use exec::{ExecArgs, Interpreter};
use object::{NamedObject, PathLookup};
use path_items::ItemBuilder;

/// Receives events and warnings.
pub trait Observer {
    /// A rule records this event.
    fn on_event(&mut self, event: &Event<'_>);
    /// A warning for the user.
    fn on_warning(&mut self, text: &str);
}

/// Counters of a supervised command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Stopped syscalls that a rule names.
    pub stopped: u64,
    /// Recorded events.
    pub matched: u64,
    /// Syscalls whose task could not be read, so that the rules could not be evaluated.
    pub lost: u64,
    /// Recorded events with a missing part.
    pub incomplete: u64,
}

/// Properties of a syscall of the plan.
#[derive(Clone, Copy, Debug)]
struct TracedSyscall {
    name: &'static str,
    objects: &'static [ObjectArg],
    /// The supervisor waits for its exit.
    wants_result: bool,
    is_exec: bool,
    /// Location of its socket address.
    address: Option<SyscallSockaddr>,
    groups: bool,
    paths: PathLookup,
}

/// Makes events of stopped syscalls.
pub(crate) struct Recorder<'a, O> {
    plan: &'a Plan,
    traits: HashMap<SyscallId, TracedSyscall>,
    observer: &'a mut O,
    pub(crate) tasks: Tasks,
    serial: Serial,
    execs: ExecTracking,
    pub(crate) stats: RunStats,
    warned_setuid: bool,
}

/// A syscall stopped at entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyscallEntry {
    pub(crate) tid: Pid,
    pub(crate) call: SyscallId,
    pub(crate) args: [u64; 6],
}

/// A syscall in progress, with the facts read at entry.
#[derive(Debug)]
pub(crate) struct PendingSyscall {
    stop: SyscallEntry,
    /// The supervisor waits for its exit.
    pub(crate) wants_result: bool,
    time: Timestamp,
    objects: Vec<NamedObject>,
    cwd: Option<Vec<u8>>,
    open_how_flags: u64,
    arguments: Option<ExecArgs>,
    address: Option<Vec<u8>>,
    unreadable: bool,
}

impl PendingSyscall {
    /// The same syscall, after an exec changed its thread id.
    pub(crate) fn with_tid(mut self, tid: Pid) -> Self {
        self.stop.tid = tid;
        self
    }
}

/// How a syscall ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyscallResult {
    /// It returned this result; `stack` is the stack pointer at exit.
    Returned { exit: i64, stack: u64, arch: Arch },
    /// The result is not known: the syscall is about to start, or never returns.
    Unknown,
    /// The task ended in it.
    TaskGone,
}

impl<'a, O: Observer> Recorder<'a, O> {
    pub(crate) fn new(plan: &'a Plan, results: ResultCapture, observer: &'a mut O) -> Self {
        let traits = plan
            .syscalls
            .iter()
            .map(|(call, rules)| (*call, TracedSyscall::of(*call, rules, results)))
            .collect();
        Self {
            plan,
            traits,
            observer,
            tasks: Tasks::default(),
            serial: Serial::FIRST,
            execs: ExecTracking::Attempted,
            stats: RunStats::default(),
            warned_setuid: false,
        }
    }

    /// Architecture of the plan.
    pub(crate) const fn native(&self) -> NativeArch {
        self.plan.native
    }

    /// Announces that the caller reports completed execs, by [`Self::exec_completed`].
    pub(crate) const fn track_execs(&mut self) {
        self.execs = ExecTracking::Completed;
    }

    /// Warns the user.
    pub(crate) fn warn(&mut self, text: &str) {
        self.observer.on_warning(text);
    }

    /// Reads facts at syscall entry. `None` when no rule names the syscall.
    pub(crate) fn begin(&mut self, stop: SyscallEntry) -> Option<PendingSyscall> {
        let SyscallEntry { tid, call, args } = stop;
        let traits = *self.traits.get(&call)?;
        self.stats.stopped += 1;
        let memory = Memory(tid);
        let named = object::named_objects(traits.objects, traits.name, &args, memory);
        let unreadable = matches!(named, Err(Errno::EPERM));
        let mut pending = PendingSyscall {
            stop,
            wants_result: traits.wants_result,
            time: coarse_time(),
            objects: named.unwrap_or_default(),
            cwd: None,
            open_how_flags: 0,
            arguments: None,
            address: None,
            unreadable,
        };
        if let Some(address) = traits.address {
            let (arch, args) = (call.arch, args);
            pending.address = sockaddr::SockaddrArgs {
                address,
                arch,
                args,
                memory,
            }
            .read_given();
            let named = pending.address.as_deref().and_then(sockaddr::file_name);
            let effect = if traits.name == "bind" {
                ObjectEffect::Create
            } else {
                ObjectEffect::Use
            };
            pending
                .objects
                .extend(named.map(|name| object::socket(name, effect)));
        }
        if traits.name == "openat2" {
            pending.open_how_flags = memory.word(args[2]).unwrap_or(0);
        }
        if traits.is_exec && !traits.wants_result {
            let array = if traits.name == "execve" {
                args[1]
            } else {
                args[2]
            };
            pending.arguments = exec::args_from_caller(memory, array, call.arch);
        }
        let creates = creates(traits.name, &args, pending.open_how_flags);
        // If the exit is not awaited, this is the only reading of the task.
        let thread = if traits.wants_result {
            self.tasks.thread(tid, pending.time, self.execs)
        } else {
            let looked = self.tasks.lookup(tid, pending.time, traits.groups);
            looked.map(|found| found.thread)
        };
        if let Ok(thread) = thread {
            for object in &mut pending.objects {
                object.may_create =
                    creates && matches!(object.object.place, ObjectRef::Opened { .. });
                object.look_up_before(thread, traits.paths, traits.wants_result);
                object.may_create &= object.inode.is_none();
            }
            if !pending.objects.is_empty() {
                pending.cwd = thread.link("cwd");
            }
        }
        Some(pending)
    }

    /// Evaluates the rules for a syscall, resumes its task, and passes the event to the observer if a rule
    /// records it. Calls `resume_task` once, after the last reading of the task; it returns whether the task
    /// still existed. A task that was killed before has not made the syscall. The kernel's audit records nothing
    /// then either, because it starts after the filter.
    pub(crate) fn end(
        &mut self,
        pending: PendingSyscall,
        end: SyscallResult,
        resume_task: impl FnOnce() -> bool,
    ) {
        let SyscallEntry { tid, call, .. } = pending.stop;
        let Some(&traits) = self.traits.get(&call) else {
            let _present = resume_task();
            return;
        };
        let looked = match end {
            SyscallResult::Unknown | SyscallResult::TaskGone => self.tasks.last_seen(tid),
            SyscallResult::Returned { .. } => {
                self.tasks.lookup(tid, pending.time, traits.groups).ok()
            }
        };
        let Some(found) = looked else {
            self.stats.lost += u64::from(resume_task());
            return;
        };
        let known = CompletedSyscall::of(pending, end, &found, &traits);
        let observed_objects = known.observed();
        let task = found.identity.task(found.image);
        let observed = EventFacts {
            arch: call.arch,
            syscall: call.syscall,
            exit: known.exit,
            args: known.args,
            open_how_flags: known.pending.open_how_flags,
            task,
            groups: &found.identity.groups,
            personality: found.image.personality,
            label: None,
            socket_family: known.pending.address.as_deref().and_then(sockaddr::family),
            task_state: None,
            uring_enter: None,
            objects: &observed_objects,
        };
        let verdict = self.plan.evaluate(&observed);
        if !resume_task() {
            return;
        }
        let Verdict::Record(rule) = verdict else {
            return;
        };
        self.stats.matched += 1;
        self.stats.incomplete += u64::from(known.pending.unreadable);
        let key = self.plan.rules.get(usize::from(rule.0));
        let cwd = known.pending.cwd.as_deref();
        let items = ItemBuilder {
            objects: &known.pending.objects,
            cwd: cwd.unwrap_or_default(),
            exit: known.exit,
            interpreters: &known.interpreters,
        }
        .items();
        let event = Event {
            time: known.pending.time,
            serial: self.serial,
            arch: call.arch,
            syscall: call.syscall,
            uring_op: None,
            uring_enter: None,
            personality: found.image.personality,
            exit: known.exit,
            unproven: false,
            args: known.args,
            task,
            key: key
                .and_then(|rule| rule.key.as_ref())
                .map(|key| key.as_slice()),
            argv: known.pending.arguments.as_ref().map(|arguments| Argv {
                argc: arguments.count,
                bytes: &arguments.bytes,
            }),
            sockaddr: known.pending.address.as_deref(),
            aux_records: [].into_iter().collect(),
            cwd: if items.is_empty() { None } else { cwd },
            items,
            proctitle: found.image.proctitle(),
            task_context: None,
        };
        self.observer.on_event(&event);
        self.serial = self.serial.next();
    }
}

/// The facts of a syscall at its end.
struct CompletedSyscall {
    pending: PendingSyscall,
    exit: Option<i64>,
    args: [u64; 4],
    interpreters: Vec<Interpreter>,
}

impl CompletedSyscall {
    fn of(
        pending: PendingSyscall,
        end: SyscallResult,
        found: &TaskView<'_>,
        traits: &TracedSyscall,
    ) -> Self {
        let SyscallEntry { call, args, tid } = pending.stop;
        let [a0, a1, a2, a3, ..] = args;
        let mut known = Self {
            exit: None,
            args: [a0, a1, a2, a3],
            interpreters: Vec::new(),
            pending,
        };
        let SyscallResult::Returned { exit, stack, arch } = end else {
            return known;
        };
        let exit = reported_exit(exit);
        known.exit = Some(exit);
        let pending = &mut known.pending;
        let moves = pending
            .objects
            .iter()
            .any(|object| object.object.effect == ObjectEffect::Delete);
        let is_opened = |object: &NamedObject| object.object.place != ObjectRef::Returned;
        pending
            .objects
            .retain(|object| is_opened(object) || succeeded(exit));
        for object in &mut pending.objects {
            match (object.object.place, object.object.effect) {
                (ObjectRef::Opened { .. } | ObjectRef::Returned, _) => {
                    object.look_up_opened(found.thread, exit, traits.paths);
                }
                (_, ObjectEffect::Create) if succeeded(exit) && !moves => {
                    object.look_up_created(found.thread);
                }
                _ => {}
            }
        }
        if let (Some(address), None) = (traits.address, &pending.address) {
            let (arch, memory) = (call.arch, Memory(tid));
            pending.address = sockaddr::SockaddrArgs {
                address,
                arch,
                args,
                memory,
            }
            .read_result(exit);
        }
        // If the descriptor is no socket, the kernel has not read the address.
        if [Errno::EBADF, Errno::ENOTSOCK]
            .iter()
            .any(|&error| exit == -i64::from(error as i32))
        {
            pending.address = None;
        }
        if traits.is_exec && succeeded(exit) {
            pending.arguments = exec::args_from_process(found.thread, stack, arch);
            pending.unreadable |= pending.arguments.is_none();
            if let (Some(named), Some(arguments)) = (pending.objects.first(), &pending.arguments) {
                known.interpreters = exec::interpreters(found.thread, named, arguments);
            }
        }
        known
    }

    /// Objects that rules can test: those with a PATH item.
    fn observed(&self) -> Vec<ObjectFacts<'_>> {
        let mut all = Vec::new();
        for object in &self.pending.objects {
            if object.object.effect != ObjectEffect::Use || object.may_create {
                all.push(ObjectFacts {
                    path: &object.parent_path,
                    name: None,
                    inode: object.parent,
                    label: None,
                });
            }
            if !matches!(object.object.place, ObjectRef::Text(_)) {
                all.push(ObjectFacts {
                    path: &object.path,
                    name: object.name.as_deref(),
                    inode: object.inode,
                    label: None,
                });
            }
        }
        all.extend(self.interpreters.iter().map(|interpreter| ObjectFacts {
            path: &interpreter.path,
            name: Some(&interpreter.name),
            inode: interpreter.inode,
            label: None,
        }));
        all
    }
}

impl TracedSyscall {
    fn of(call: SyscallId, rules: &SyscallPlan, results: ResultCapture) -> Self {
        let name = table::syscall_name(call.arch, call.syscall).unwrap_or_default();
        Self {
            name,
            objects: plan_objects::objects(call.arch, call.syscall),
            wants_result: call.returns()
                && (results == ResultCapture::Always || syscall_tests_result(rules)),
            is_exec: call.is_exec(),
            address: plan_sockaddr::of(call.arch, call.syscall),
            groups: rules.facts.contains(Facts::GROUPS),
            paths: paths(rules),
        }
    }
}

fn paths(rules: &SyscallPlan) -> PathLookup {
    let mut tests = rules.slots.iter().flat_map(|slot| &slot.tests);
    if tests.any(|test| matches!(test.operand, Operand::Path | Operand::Dir)) {
        PathLookup::Wanted
    } else {
        PathLookup::Unneeded
    }
}

/// Whether an open creates a missing file.
fn creates(name: &str, args: &[u64; 6], how: u64) -> bool {
    let flags = match name {
        "creat" => return true,
        "open" => args[1],
        "openat" => args[2],
        "openat2" => how,
        _ => return false,
    };
    flags & u64::from(libc::O_CREAT.unsigned_abs()) != 0
}

/// Reads the clock that the kernel's audit uses.
pub(crate) fn coarse_time() -> Timestamp {
    let coarse_time =
        clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map_or(Duration::ZERO, Duration::from);
    Timestamp {
        sec: coarse_time.as_secs(),
        milli: u16::try_from(coarse_time.subsec_millis()).unwrap_or(0),
    }
}

/// A syscall from `AUDIT_ARCH_*` and number.
pub(crate) const fn call(arch: u32, number: u32) -> SyscallId {
    SyscallId {
        arch: Arch(arch),
        syscall: Syscall(number),
    }
}
