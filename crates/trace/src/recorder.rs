//! One stopped call to an event, or to none: facts, rules, records.

mod exec;
mod object;
mod path_items;
mod sockaddr;

use std::collections::HashMap;
use std::time::Duration;

use audit::event::{Argv, Event, Inode, Timestamp, reported_exit, succeeded};
use audit::ids::{Arch, Serial, Syscall};
use audit::plan::eval::{EventFacts, ObjectFacts};
use audit::plan::objects::{self, ObjectArg, ObjectEffect, ObjectRef};
use audit::plan::sockaddr::{self as plan_sockaddr, SyscallSockaddr};
use audit::plan::verdict::Verdict;
use audit::plan::{Facts, Operand, Plan, SyscallId, SyscallPlan, hook};
use audit::table;
use nix::errno::Errno;
use nix::sys::stat::stat;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getegid, geteuid};

use crate::backend::{ResultCapture, call_asks_for_result};
use crate::task::memory::Memory;
use crate::task::{Execs, Found, Tasks};
use exec::{Arguments, Interpreter};
use object::{Paths, Seen};
use path_items::Ended;

/// Takes the events, one by one, and the remarks.
pub trait Observer {
    /// A call that a rule keeps.
    fn event(&mut self, event: &Event<'_>);
    /// Something that a person at the terminal should know.
    fn remark(&mut self, text: &str);
}

/// What was seen, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Calls that stopped.
    pub stopped: u64,
    /// Events that rules kept.
    pub matched: u64,
    /// Calls whose task could not be looked at: whether a rule would keep them is not known.
    pub lost: u64,
    /// Events that lack something.
    pub incomplete: u64,
}

/// What is asked of a call each time, worked out once.
#[derive(Clone, Copy, Debug)]
struct Traits {
    name: &'static str,
    objects: &'static [ObjectArg],
    /// The supervisor waits for its end.
    waits: bool,
    starts: bool,
    /// The socket address that it may have.
    address: Option<SyscallSockaddr>,
    groups: bool,
    paths: Paths,
}

/// Makes events of stopped calls.
pub(crate) struct Recorder<'a, O> {
    plan: &'a Plan,
    traits: HashMap<SyscallId, Traits>,
    observer: &'a mut O,
    pub(crate) tasks: Tasks,
    serial: Serial,
    execs: Execs,
    pub(crate) counts: RunStats,
    told_of_set_uid: bool,
}

/// A call that has stopped and will be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) tid: Pid,
    pub(crate) call: SyscallId,
    pub(crate) args: [u64; 6],
}

/// A call under way, with what was read before it.
#[derive(Debug)]
pub(crate) struct Begun {
    stop: Stop,
    /// Its end is to be waited for.
    pub(crate) waits: bool,
    time: Timestamp,
    objects: Vec<Seen>,
    cwd: Option<Vec<u8>>,
    open_how_flags: u64,
    arguments: Option<Arguments>,
    address: Option<Vec<u8>>,
    unreadable: bool,
}

impl Begun {
    /// The same call, whose thread has got another number.
    pub(crate) fn by(mut self, tid: Pid) -> Self {
        self.stop.tid = tid;
        self
    }
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this result; `stack` is the stack pointer then.
    Returned { exit: i64, stack: u64, arch: Arch },
    /// Nobody will know: the call is only about to be made, or never returns.
    Unknown,
    /// The task has ended inside it.
    Gone,
}

impl<'a, O: Observer> Recorder<'a, O> {
    pub(crate) fn new(plan: &'a Plan, results: ResultCapture, observer: &'a mut O) -> Self {
        let traits = plan
            .syscalls
            .iter()
            .map(|(call, rules)| (*call, Traits::of(*call, rules, results)))
            .collect();
        Self {
            plan,
            traits,
            observer,
            tasks: Tasks::default(),
            serial: Serial::FIRST,
            execs: Execs::Attempted,
            counts: RunStats::default(),
            told_of_set_uid: false,
        }
    }

    /// From now on execs are told to [`Tasks::forget_image`].
    pub(crate) const fn execs_are_told(&mut self) {
        self.execs = Execs::Told;
    }

    /// Tells once why a program that would have got rights by being started does not get them.
    pub(crate) fn will_run(&mut self, program: Option<Inode>) {
        const SET_UID: u32 = 0o4000;
        const SET_GID: u32 = 0o2010;
        let gives = program.is_some_and(|Inode { mode, uid, gid, .. }| {
            (mode & SET_UID != 0 && uid != geteuid().as_raw())
                || (mode & SET_GID == SET_GID && gid != getegid().as_raw())
        });
        if gives && !std::mem::replace(&mut self.told_of_set_uid, true) {
            self.remark(
                "a program that is set-uid or set-gid runs without the rights of its owner: the filter \
                 has needed no-new-privs, since tollgate itself has no rights",
            );
        }
    }

    /// The process runs another program from now on.
    pub(crate) fn exec_completed(&mut self, pid: Pid) {
        self.tasks.forget_image(pid);
        let program = stat(format!("/proc/{pid}/exe").as_str());
        self.will_run(program.ok().map(object::inode));
    }

    /// An exec is tried, which some rule names or none: see [`Self::will_run`].
    pub(crate) fn will_exec(&mut self, stop: Stop) {
        let Stop { tid, call, args } = stop;
        let traits = Traits::of(call, &SyscallPlan::default(), ResultCapture::Unneeded);
        let named = object::named(traits.objects, traits.name, &args, Memory(tid));
        let mut program = None;
        if let (Ok(mut named), Ok(thread)) = (named, self.tasks.thread(tid, now(), self.execs))
            && let Some(seen) = named.first_mut()
        {
            seen.before(thread, Paths::Unneeded, false);
            program = seen.inode;
        }
        self.tasks.will_exec(tid, now());
        self.will_run(program);
    }

    /// Says something to the person at the terminal.
    pub(crate) fn remark(&mut self, text: &str) {
        self.observer.remark(text);
    }

    /// Reads what is to be read before the call; `None` when no rule names it.
    pub(crate) fn begin(&mut self, stop: Stop) -> Option<Begun> {
        let Stop { tid, call, args } = stop;
        let traits = *self.traits.get(&call)?;
        self.counts.stopped += 1;
        let memory = Memory(tid);
        let named = object::named(traits.objects, traits.name, &args, memory);
        let unreadable = matches!(named, Err(Errno::EPERM));
        let mut begun = Begun {
            stop,
            waits: traits.waits,
            time: now(),
            objects: named.unwrap_or_default(),
            cwd: None,
            open_how_flags: 0,
            arguments: None,
            address: None,
            unreadable,
        };
        if let Some(address) = traits.address {
            let (arch, args) = (call.arch, args);
            begun.address = sockaddr::Call {
                address,
                arch,
                args,
                memory,
            }
            .given();
            let named = begun.address.as_deref().and_then(sockaddr::file_name);
            let effect = if traits.name == "bind" {
                ObjectEffect::Create
            } else {
                ObjectEffect::Use
            };
            begun
                .objects
                .extend(named.map(|name| object::socket(name, effect)));
        }
        if traits.name == "openat2" {
            begun.open_how_flags = memory.word(args[2]).unwrap_or(0);
        }
        if traits.starts && !traits.waits {
            let array = if traits.name == "execve" {
                args[1]
            } else {
                args[2]
            };
            begun.arguments = exec::given(memory, array, call.arch);
        }
        let creates = creates(traits.name, &args, begun.open_how_flags);
        // Of a call that its task may not survive, this is all that will be known of the task.
        let thread = if traits.waits {
            self.tasks.thread(tid, begun.time, self.execs)
        } else {
            let looked = self.tasks.look(tid, begun.time, traits.groups);
            looked.map(|found| found.thread)
        };
        if let Ok(thread) = thread {
            for seen in &mut begun.objects {
                seen.may_create = creates && matches!(seen.object.place, ObjectRef::Opened { .. });
                seen.before(thread, traits.paths, traits.waits);
                seen.may_create &= seen.inode.is_none();
            }
            if !begun.objects.is_empty() {
                begun.cwd = thread.link("cwd");
            }
        }
        Some(begun)
    }

    /// Asks the rules about a call, lets its task go on, and hands over the event that the rules keep.
    /// `go` is called once, when nothing more is read of the task; it tells whether the task was there
    /// until then. A task that was killed before has not made the call: the kernel's audit begins after
    /// the filter, and records nothing either.
    pub(crate) fn end(&mut self, begun: Begun, end: End, go: impl FnOnce() -> bool) {
        let Stop { tid, call, .. } = begun.stop;
        let Some(&traits) = self.traits.get(&call) else {
            let _present = go();
            return;
        };
        let looked = match end {
            End::Unknown | End::Gone => self.tasks.last(tid),
            End::Returned { .. } => self.tasks.look(tid, begun.time, traits.groups).ok(),
        };
        let Some(found) = looked else {
            self.counts.lost += u64::from(go());
            return;
        };
        let known = Known::of(begun, end, &found, &traits);
        let observed_objects = known.observed();
        let task = found.who.task(found.image);
        let observed = EventFacts {
            arch: call.arch,
            syscall: call.syscall,
            exit: known.exit,
            args: known.args,
            open_how_flags: known.begun.open_how_flags,
            task,
            groups: &found.who.groups,
            personality: found.image.personality,
            label: None,
            socket_family: known.begun.address.as_deref().and_then(sockaddr::family),
            mark: None,
            objects: &observed_objects,
        };
        let verdict = self.plan.evaluate(&observed);
        if !go() {
            return;
        }
        let Verdict::Record(rule) = verdict else {
            return;
        };
        self.counts.matched += 1;
        self.counts.incomplete += u64::from(known.begun.unreadable);
        let key = self.plan.rules.get(usize::from(rule.0));
        let cwd = known.begun.cwd.as_deref();
        let items = Ended {
            objects: &known.begun.objects,
            cwd: cwd.unwrap_or_default(),
            exit: known.exit,
            interpreters: &known.interpreters,
        }
        .items();
        let event = Event {
            time: known.begun.time,
            serial: self.serial,
            arch: call.arch,
            syscall: call.syscall,
            uring_op: None,
            personality: found.image.personality,
            exit: known.exit,
            args: known.args,
            task,
            key: key
                .and_then(|rule| rule.key.as_ref())
                .map(|key| key.as_slice()),
            argv: known.begun.arguments.as_ref().map(|arguments| Argv {
                argc: arguments.count,
                bytes: &arguments.bytes,
            }),
            sockaddr: known.begun.address.as_deref(),
            aux_records: [].into_iter().collect(),
            cwd: if items.is_empty() { None } else { cwd },
            items,
            proctitle: found.image.title(),
            task_context: None,
        };
        self.observer.event(&event);
        self.serial = self.serial.next();
    }
}

/// All that is known of a call when it has ended.
struct Known {
    begun: Begun,
    exit: Option<i64>,
    args: [u64; 4],
    interpreters: Vec<Interpreter>,
}

impl Known {
    fn of(begun: Begun, end: End, found: &Found<'_>, traits: &Traits) -> Self {
        let Stop { call, args, tid } = begun.stop;
        let [a0, a1, a2, a3, ..] = args;
        let mut known = Self {
            exit: None,
            args: [a0, a1, a2, a3],
            interpreters: Vec::new(),
            begun,
        };
        let End::Returned { exit, stack, arch } = end else {
            return known;
        };
        let exit = reported_exit(exit);
        known.exit = Some(exit);
        let begun = &mut known.begun;
        let moves = begun
            .objects
            .iter()
            .any(|seen| seen.object.effect == ObjectEffect::Delete);
        for seen in &mut begun.objects {
            match (seen.object.place, seen.object.effect) {
                (ObjectRef::Opened { .. }, _) => seen.opened(found.thread, exit, traits.paths),
                (_, ObjectEffect::Create) if succeeded(exit) && !moves => seen.made(found.thread),
                _ => {}
            }
        }
        if let (Some(address), None) = (traits.address, &begun.address) {
            let (arch, memory) = (call.arch, Memory(tid));
            begun.address = sockaddr::Call {
                address,
                arch,
                args,
                memory,
            }
            .done(exit);
        }
        // Of what is no socket, the kernel has not looked at the address.
        if [Errno::EBADF, Errno::ENOTSOCK]
            .iter()
            .any(|&error| exit == -i64::from(error as i32))
        {
            begun.address = None;
        }
        if traits.starts && succeeded(exit) {
            begun.arguments = exec::started(found.thread, stack, arch);
            begun.unreadable |= begun.arguments.is_none();
            if let (Some(named), Some(arguments)) = (begun.objects.first(), &begun.arguments) {
                known.interpreters = exec::interpreters(found.thread, named, arguments);
            }
        }
        known
    }

    /// Objects that rules may ask about: those that have an item.
    fn observed(&self) -> Vec<ObjectFacts<'_>> {
        let mut all = Vec::new();
        for seen in &self.begun.objects {
            if seen.object.effect != ObjectEffect::Use || seen.may_create {
                all.push(ObjectFacts {
                    path: &seen.parent_path,
                    name: None,
                    inode: seen.parent,
                    label: None,
                });
            }
            if !matches!(seen.object.place, ObjectRef::Text(_)) {
                all.push(ObjectFacts {
                    path: &seen.path,
                    name: seen.name.as_deref(),
                    inode: seen.inode,
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

impl Traits {
    fn of(call: SyscallId, rules: &SyscallPlan, results: ResultCapture) -> Self {
        let name = table::syscall_name(call.arch, call.syscall).unwrap_or_default();
        Self {
            name,
            objects: objects::objects(call.arch, call.syscall),
            waits: hook::returns(call)
                && (results == ResultCapture::Wanted || call_asks_for_result(rules)),
            starts: hook::starts(call),
            address: plan_sockaddr::of(call.arch, call.syscall),
            groups: rules.facts.contains(Facts::GROUPS),
            paths: paths(rules),
        }
    }
}

fn paths(rules: &SyscallPlan) -> Paths {
    let mut tests = rules.slots.iter().flat_map(|slot| &slot.tests);
    if tests.any(|test| matches!(test.operand, Operand::Path | Operand::Dir)) {
        Paths::Wanted
    } else {
        Paths::Unneeded
    }
}

/// Whether an open makes what is not there.
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

/// The clock that the kernel's audit uses.
pub(crate) fn now() -> Timestamp {
    let now = clock_gettime(ClockId::CLOCK_REALTIME_COARSE).map_or(Duration::ZERO, Duration::from);
    Timestamp {
        sec: now.as_secs(),
        milli: u16::try_from(now.subsec_millis()).unwrap_or(0),
    }
}

/// The call as the kernel tells it: machine and number.
pub(crate) const fn call(arch: u32, number: u32) -> SyscallId {
    SyscallId {
        arch: Arch(arch),
        syscall: Syscall(number),
    }
}
