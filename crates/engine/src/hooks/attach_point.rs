//! From hooks to spots: one program at one place in the kernel. What two sets of rules both need is the same
//! spot, and stays attached when one takes the place of the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use audit::plan::Call;
use audit::plan::function::{candidates, shared_with};
use audit::plan::hook::{Hook, tracepoint_name};
use audit::table;
use nix::errno::Errno;

use crate::error::EngineError;
use crate::hooks::kernel_functions::{Function, Functions, Kind, Side};
use crate::hooks::kernel_probe::Probe;
use crate::hooks::program::Program;
use crate::sys::tracefs::Tracefs;

/// What was attached, for people and for `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The hooks.
    pub hooks: Vec<Hook>,
    /// Calls that the rules name and this kernel does not have: nothing to miss.
    pub absent: Vec<&'static str>,
}

/// A program and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) program: Program,
    pub(crate) place: Place,
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Where it says itself.
    Own,
    /// As a copy on this function.
    Function(Function, Side),
    /// On the raw tracepoint of this name.
    Raw(&'static str),
    /// On the tracepoint of this number.
    Event(u64),
}

/// Raw tracepoints that programs are on.
const RAW: [&str; 6] = [
    "sys_exit",
    "sys_enter",
    "sched_prepare_exec",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
];

/// As names of pins have it, in which there are no dots.
impl Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.program.name())?;
        match self.place {
            Place::Own => write!(f, "own"),
            Place::Raw(name) => write!(f, "raw-{name}"),
            Place::Event(id) => write!(f, "event-{id}"),
            Place::Function(Function { id, kind }, side) => {
                write!(f, "{}-{}-{id}", kind.name(), side.name())
            }
        }
    }
}

impl Spot {
    /// The spot of such a name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let mut words = name.split('-');
        let program = Program::of_name(words.next()?)?;
        let place = match words.next()? {
            "own" => Place::Own,
            "raw" => {
                let name = words.next()?;
                Place::Raw(RAW.iter().copied().find(|raw| *raw == name)?)
            }
            "event" => Place::Event(words.next()?.parse().ok()?),
            kind => {
                let kind = Kind::of_name(kind)?;
                let side = Side::of_name(words.next()?)?;
                let id = words.next()?.parse().ok()?;
                Place::Function(Function { id, kind }, side)
            }
        };
        words.next().is_none().then_some(Self { program, place })
    }
}

/// What is to be attached.
#[derive(Debug, Default)]
pub(crate) struct Spots {
    /// Each with the first of its hooks, for messages: calls of the two ABIs share some functions.
    pub(crate) hooks: BTreeMap<Spot, Hook>,
    pub(crate) attached: Attached,
}

impl Spots {
    /// Finds the spots of hooks.
    ///
    /// # Errors
    /// When tracefs cannot be read, or the kernel has no functions for calls.
    pub(crate) fn find(hooks: &BTreeSet<Hook>, finder: &Finder<'_>) -> Result<Self, EngineError> {
        let mut spots = Self::default();
        for &hook in hooks {
            for spot in finder.of(hook)? {
                spots.hooks.entry(spot).or_insert(hook);
                if spots.attached.hooks.last() != Some(&hook) {
                    spots.attached.hooks.push(hook);
                }
            }
            if spots.attached.hooks.last() != Some(&hook)
                && let Some(name) = absent(hook)
                && !spots.attached.absent.contains(&name)
            {
                spots.attached.absent.push(name);
            }
        }
        Ok(spots)
    }

    /// The programs that must be loaded for them, but for those that are in their places.
    pub(crate) fn programs(&self, is_attached: impl Fn(&Spot) -> bool) -> BTreeSet<Program> {
        let new = self.hooks.keys().filter(|spot| !is_attached(spot));
        let stubs = new.map(|spot| spot.program);
        stubs
            .flat_map(|stub| [Some(stub), stub.body()])
            .flatten()
            .collect()
    }
}

/// The call that a kernel does not have which has no place for its hook.
fn absent(hook: Hook) -> Option<&'static str> {
    match hook {
        Hook::Enter(call) | Hook::Last(call) | Hook::Exit(call) => {
            Some(tracepoint_name(call).unwrap_or_default())
        }
        Hook::FunctionEnter(call) | Hook::FunctionLast(call) | Hook::FunctionExit(call) => {
            Some(table::syscall_name(call.arch, call.syscall).unwrap_or("?"))
        }
        _ => None,
    }
}

/// Finds the places that this kernel has.
pub(crate) struct Finder<'k> {
    functions: Option<&'k Functions>,
    tracefs: Result<&'k Tracefs, Errno>,
}

impl<'k> Finder<'k> {
    pub(crate) fn new(probe: &'k Probe) -> Self {
        Self {
            functions: probe.functions.as_ref(),
            tracefs: probe.tracefs.as_ref().map_err(|&errno| errno),
        }
    }

    /// The spots of a hook; none when this kernel has not what it is on.
    fn of(&self, hook: Hook) -> Result<Vec<Spot>, EngineError> {
        let raw = |program, name| {
            Ok(vec![Spot {
                program,
                place: Place::Raw(name),
            }])
        };
        let own = |program| {
            let place = Place::Own;
            vec![Spot { program, place }]
        };
        match hook {
            Hook::RawExit => raw(Program::SysExitRaw, "sys_exit"),
            Hook::RawEnter => raw(Program::SysEnterRaw, "sys_enter"),
            Hook::ExecPrepare => raw(Program::ExecPrepare, "sched_prepare_exec"),
            Hook::ExecCommit => raw(Program::ExecCommit, "sched_process_exec"),
            Hook::TaskExit => raw(Program::TaskExit, "sched_process_exit"),
            Hook::Exit(call) => self.event(Program::SysExitTp, "exit", call),
            Hook::Enter(call) => self.event(Program::SysEnterTp, "enter", call),
            Hook::Last(call) => self.event(Program::SysEnterNoret, "enter", call),
            Hook::FunctionExit(call) => self.call(call, Side::Exit, |kind| {
                match (kind, tracepoint_name(call)) {
                    (Kind::Bare, _) => Program::StubSysExit0,
                    (_, Some("openat")) => Program::StubOpenat,
                    (_, Some("open")) => Program::StubOpen,
                    _ => Program::StubSysExit,
                }
            }),
            Hook::FunctionEnter(call) => self.call(call, Side::Enter, |_kind| Program::SysEnterFn),
            Hook::FunctionLast(call) => self.call(call, Side::Enter, |kind| match kind {
                Kind::Bare => Program::StubNoreturn0,
                _ => Program::StubNoreturn,
            }),
            Hook::UringEnter(name) => self.operation(Program::UringEnter, Side::Enter, name),
            Hook::UringExit(name) => self.operation(Program::StubUringExit, Side::Exit, name),
            Hook::UringComplete => raw(Program::UringComplete, "io_uring_complete"),
            Hook::Inner(inner) => Ok(own(Program::of_inner(inner))),
            Hook::Fork => Ok(own(Program::TaskFork)),
        }
    }

    /// A tracepoint of the `syscalls` system.
    fn event(&self, program: Program, side: &str, call: Call) -> Result<Vec<Spot>, EngineError> {
        let tracefs = self
            .tracefs
            .map_err(|errno| EngineError::Tracefs(errno.into()))?;
        let name = tracepoint_name(call).unwrap_or_default();
        let event = tracefs
            .syscall_event(&format!("sys_{side}_{name}"))
            .map_err(EngineError::Tracefs)?;
        let place = event.map(Place::Event);
        Ok(place
            .map(|place| Spot { program, place })
            .into_iter()
            .collect())
    }

    /// The functions that do the work of a call.
    fn call(
        &self,
        call: Call,
        side: Side,
        stub: impl Fn(Kind) -> Program,
    ) -> Result<Vec<Spot>, EngineError> {
        let kernel = self.functions.ok_or(EngineError::NoFunctions)?;
        let names = candidates(call);
        let mut found: Vec<Function> = names
            .iter()
            .filter(|name| {
                let shared = shared_with(name).and_then(|shared| kernel.find(&shared));
                shared.is_none()
            })
            .filter_map(|name| kernel.find(name))
            .collect();
        if tracepoint_name(call).is_some() {
            found.truncate(1);
        }
        let spot = |function: Function| Spot {
            program: stub(function.kind),
            place: Place::Function(function, side),
        };
        Ok(found.into_iter().map(spot).collect())
    }

    /// The function of an operation of `io_uring`.
    fn operation(
        &self,
        program: Program,
        side: Side,
        name: &str,
    ) -> Result<Vec<Spot>, EngineError> {
        let kernel = self.functions.ok_or(EngineError::NoFunctions)?;
        let found = kernel
            .find(name)
            .filter(|function| function.kind == Kind::Uring);
        let spot = |function| Spot {
            program,
            place: Place::Function(function, side),
        };
        Ok(found.map(spot).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_spot_back() {
        let function = |kind, side| Place::Function(Function { id: 4711, kind }, side);
        for place in [
            Place::Own,
            Place::Event(823),
            function(Kind::Call, Side::Enter),
            function(Kind::Bare, Side::Exit),
            function(Kind::Uring, Side::Exit),
        ]
        .into_iter()
        .chain(RAW.map(Place::Raw))
        {
            let spot = Spot {
                program: Program::StubSysExit,
                place,
            };
            let name = spot.to_string();
            assert!(!name.contains('.'), "{name}: the kernel takes no dots");
            assert_eq!(Spot::of_name(&name), Some(spot), "{name}");
        }
        for wrong in [
            "",
            "stub",
            "stub_sys_exit",
            "stub_sys_exit-raw-other",
            "heartbeat-own-1",
        ] {
            assert_eq!(Spot::of_name(wrong), None, "{wrong}");
        }
    }
}
