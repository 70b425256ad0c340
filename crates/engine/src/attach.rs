//! From the set of wanted hooks to programs and links. Dropping a link detaches it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{IntoRawFd as _, OwnedFd};

use audit::plan::Call;
use audit::plan::function::{candidates, shared_with};
use audit::plan::hook::{Hook, tracepoint_name};
use audit::plan::inner::Inner;
use audit::table;
use libbpf_rs::{Link, OpenProgramMut, ProgramMut, libbpf_sys};

use crate::descriptor::owned;
use crate::function::{self, Function, Functions, Kind, Placed, Side};
use crate::load::EngineError;
use crate::load::skel::{OpenSyscallProgs, SyscallProgs};
use crate::lower::Lowered;
use crate::stats;
use crate::tracefs::Tracefs;

/// What was attached, for people and for `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The hooks.
    pub hooks: Vec<Hook>,
    /// Calls that the rules name and this kernel does not have: nothing to miss.
    pub absent: Vec<&'static str>,
}

/// What holds programs in place; dropping it takes them away.
#[derive(Default)]
pub(crate) struct Links {
    programs: Vec<Link>,
    functions: Vec<Placed>,
}

impl Links {
    /// How often the kernel did not run a stub because another run of it was under way on that CPU.
    pub(crate) fn skipped(&self) -> u64 {
        let stubs = self.functions.iter();
        stubs.map(|placed| stats::skipped(&placed.program)).sum()
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links")
            .field("programs", &self.programs.len())
            .field("functions", &self.functions.len())
            .finish()
    }
}

/// Only programs that a hook needs are loaded: what is not attached need not pass the verifier.
pub(crate) fn choose(programs: &mut OpenSyscallProgs<'_>, hooks: &BTreeSet<Hook>) {
    let wants = |wanted: fn(&Hook) -> bool| hooks.iter().any(wanted);
    // The bodies of the stubs come together: a plan rarely needs one kind only, and the jump tables
    // want them all.
    let functions = wants(|hook| {
        matches!(
            hook,
            Hook::FunctionExit(_) | Hook::FunctionLast(_) | Hook::FunctionEnter(_)
        )
    });
    let uring = wants(|hook| matches!(hook, Hook::UringExit(_)));
    for (program, wanted) in [
        (
            &mut programs.sys_exit_one,
            wants(|hook| matches!(hook, Hook::Exit(_))),
        ),
        (
            &mut programs.sys_enter_one,
            wants(|hook| matches!(hook, Hook::Enter(_))),
        ),
        (
            &mut programs.sys_enter_last,
            wants(|hook| matches!(hook, Hook::Last(_))),
        ),
        (&mut programs.sys_exit_any, hooks.contains(&Hook::RawExit)),
        (&mut programs.sys_enter_any, hooks.contains(&Hook::RawEnter)),
        (
            &mut programs.exec_prepare,
            hooks.contains(&Hook::ExecPrepare),
        ),
        (&mut programs.exec_commit, hooks.contains(&Hook::ExecCommit)),
        (&mut programs.task_exit, hooks.contains(&Hook::TaskExit)),
        (&mut programs.stub_call_end, functions),
        (&mut programs.stub_bare_end, functions),
        (&mut programs.stub_openat_end, functions),
        (&mut programs.stub_open_end, functions),
        (&mut programs.stub_call_last, functions),
        (&mut programs.stub_bare_last, functions),
        (&mut programs.stub_call_enter, functions),
        (&mut programs.call_end, functions),
        (&mut programs.bare_end, functions),
        (&mut programs.call_last, functions),
        (&mut programs.bare_last, functions),
        (&mut programs.beat, functions),
        (&mut programs.stub_uring_enter, uring),
        (&mut programs.stub_uring_end, uring),
        (&mut programs.uring_end, uring),
    ] {
        program.set_autoload(wanted);
    }
    for &inner in Inner::ALL {
        open_inner(programs, inner).set_autoload(hooks.contains(&Hook::Inner(inner)));
    }
}

/// The program of each hook inside the kernel, before and after it is loaded.
macro_rules! inner_programs {
    ($($inner:ident => $program:ident,)+) => {
        fn open_inner<'p, 'o>(
            programs: &'p mut OpenSyscallProgs<'o>,
            inner: Inner,
        ) -> &'p mut OpenProgramMut<'o> {
            match inner {
                $(Inner::$inner => &mut programs.$program,)+
            }
        }

        /// The program of a hook inside the kernel.
        pub(crate) fn inner_program<'p, 'o>(
            programs: &'p SyscallProgs<'o>,
            inner: Inner,
        ) -> &'p ProgramMut<'o> {
            match inner {
                $(Inner::$inner => &programs.$program,)+
            }
        }
    };
}

inner_programs! {
    OpenObject => open_object,
    ExecObject => exec_object,
    OpenRefused => open_refused,
    NamesUnlink => names_unlink,
    NamesRmdir => names_rmdir,
    NamesMkdir => names_mkdir,
    NamesMknod => names_mknod,
    NamesSymlink => names_symlink,
    NamesLink => names_link,
    NamesRename => names_rename,
    NamesParent => names_parent,
    NamesDelete => names_delete,
    NamesCreate => names_create,
    NamesMadeDir => names_made_dir,
    NamesMadeNode => names_made_node,
    NamesMadeLink => names_made_link,
    NamesLinked => names_linked,
    NamesRenamed => names_renamed,
    SocketAddress => socket_address,
    SocketAnswer => socket_answer,
    UsedChmod => used_chmod,
    UsedChown => used_chown,
    UsedTruncate => used_truncate,
    UsedUtimes => used_utimes,
    UsedSetxattr => used_setxattr,
    UsedRemovexattr => used_removexattr,
    UsedGetxattr => used_getxattr,
    UsedListxattr => used_listxattr,
    UsedChdir => used_chdir,
    UsedChroot => used_chroot,
    UsedMount => used_mount,
    UsedUmount => used_umount,
    TargetSignal => detail_signal,
    TargetTrace => detail_traced,
    FileCaps => detail_fcaps,
    ProgramCaps => detail_bprm,
    IpcUsed => ipc_used,
    IpcControl => ipc_control,
    IpcMessages => ipc_messages,
    IpcSemaphores => ipc_semaphores,
    IpcMemory => ipc_memory,
    QueueOpen => queue_open,
    QueueSend => queue_send,
    QueueReceive => queue_receive,
    QueueNotify => queue_notify,
    QueueSet => queue_attr,
    ModuleName => module_name,
    ClockAdjusted => clock_adjusted,
    ClockInjected => clock_injected,
    ClockBefore => clock_before,
    ClockSet => clock_set,
}

/// Attaches every wanted hook.
pub(crate) fn attach(
    programs: &SyscallProgs<'_>,
    lowered: Lowered,
) -> Result<(Links, Attached), EngineError> {
    let mut links = Links::default();
    let mut taken = Taken::default();
    let mut attached = Attached::default();
    let mut tracefs = None;
    for hook in lowered.hooks {
        let (program, place) = match hook {
            Hook::Exit(call) => (&programs.sys_exit_one, Place::Syscall("exit", call)),
            Hook::Enter(call) => (&programs.sys_enter_one, Place::Syscall("enter", call)),
            Hook::Last(call) => (&programs.sys_enter_last, Place::Syscall("enter", call)),
            Hook::RawExit => (&programs.sys_exit_any, Place::Raw("sys_exit")),
            Hook::RawEnter => (&programs.sys_enter_any, Place::Raw("sys_enter")),
            Hook::ExecPrepare => (&programs.exec_prepare, Place::Raw("sched_prepare_exec")),
            Hook::ExecCommit => (&programs.exec_commit, Place::Raw("sched_process_exec")),
            Hook::TaskExit => (&programs.task_exit, Place::Raw("sched_process_exit")),
            Hook::FunctionExit(call) => {
                (&programs.stub_call_end, Place::Function(Side::Exit, call))
            }
            Hook::FunctionEnter(call) => (
                &programs.stub_call_enter,
                Place::Function(Side::Enter, call),
            ),
            Hook::FunctionLast(call) => {
                (&programs.stub_call_last, Place::Function(Side::Enter, call))
            }
            Hook::UringEnter(name) => (
                &programs.stub_uring_enter,
                Place::Operation(Side::Enter, name),
            ),
            Hook::UringExit(name) => (&programs.stub_uring_end, Place::Operation(Side::Exit, name)),
            Hook::Inner(inner) => (inner_program(programs, inner), Place::Own),
        };
        match place {
            Place::Operation(side, name) => {
                let found = taken.kernel()?.find(name);
                if let Some(function) = found.filter(|function| function.kind == Kind::Uring) {
                    let link = function::attach(program, function, side)
                        .map_err(|error| refused(program, &hook, error.into()))?;
                    links.functions.push(link);
                    attached.hooks.push(hook);
                }
            }
            Place::Own => {
                let link = program
                    .attach_trace()
                    .map_err(|error| refused(program, &hook, error))?;
                links.programs.push(link);
                attached.hooks.push(hook);
            }
            Place::Raw(name) => {
                let link = program
                    .attach_raw_tracepoint(name)
                    .map_err(|error| refused(program, &hook, error))?;
                links.programs.push(link);
                attached.hooks.push(hook);
            }
            Place::Function(side, call) => {
                let found = taken.functions(call)?;
                if found.is_empty() {
                    let name = table::syscall_name(call.arch, call.syscall).unwrap_or("?");
                    if !attached.absent.contains(&name) {
                        attached.absent.push(name);
                    }
                    continue;
                }
                for function in found {
                    let stub = match (hook, function.kind) {
                        (Hook::FunctionExit(_), Kind::Bare) => &programs.stub_bare_end,
                        (Hook::FunctionLast(_), Kind::Bare) => &programs.stub_bare_last,
                        (Hook::FunctionExit(call), _) if lowered.writing.contains(&call) => {
                            gated(programs, call).unwrap_or(program)
                        }
                        _ => program,
                    };
                    if taken.is_new(function, side) {
                        let link = function::attach(stub, function, side)
                            .map_err(|error| refused(stub, &hook, error.into()))?;
                        links.functions.push(link);
                    }
                }
                attached.hooks.push(hook);
            }
            Place::Syscall(side, call) => {
                let tracefs = match &tracefs {
                    Some(tracefs) => tracefs,
                    None => tracefs.insert(Tracefs::mount().map_err(EngineError::Tracefs)?),
                };
                let name = tracepoint_name(call).unwrap_or_default();
                let event = tracefs
                    .syscall_event(&format!("sys_{side}_{name}"))
                    .map_err(EngineError::Tracefs)?;
                if let Some(id) = event {
                    links.programs.push(attach_event(program, &hook, id)?);
                    attached.hooks.push(hook);
                } else if !attached.absent.contains(&name) {
                    attached.absent.push(name);
                }
            }
        }
    }
    Ok((links, attached))
}

/// The stub for an open that only matters when it is to write; only of the ABI whose registers it reads.
fn gated<'p, 'o>(programs: &'p SyscallProgs<'o>, call: Call) -> Option<&'p ProgramMut<'o>> {
    match tracepoint_name(call)? {
        "openat" => Some(&programs.stub_openat_end),
        "open" => Some(&programs.stub_open_end),
        _ => None,
    }
}

/// Where a program goes.
enum Place {
    /// Where it says itself.
    Own,
    /// On the function of an operation of `io_uring`.
    Operation(Side, &'static str),
    /// By name, for all calls or for none.
    Raw(&'static str),
    /// Of one side of one call.
    Syscall(&'static str, Call),
    /// On the functions of one call.
    Function(Side, Call),
}

/// Ends of functions that have a program already: the two ABIs share some functions.
#[derive(Default)]
struct Taken {
    kernel: Option<Functions>,
    ends: Vec<(Function, Side)>,
}

impl Taken {
    /// The functions that do the work of a call.
    fn functions(&mut self, call: Call) -> Result<Vec<Function>, EngineError> {
        let kernel = self.kernel()?;
        let names = candidates(call);
        let mut found = names
            .iter()
            .filter(|name| {
                let shared = shared_with(name).and_then(|shared| kernel.find(&shared));
                shared.is_none()
            })
            .filter_map(|name| kernel.find(name));
        Ok(if tracepoint_name(call).is_some() {
            found.next().into_iter().collect()
        } else {
            found.collect()
        })
    }

    /// The kernel's functions.
    fn kernel(&mut self) -> Result<&Functions, EngineError> {
        Ok(match &mut self.kernel {
            Some(kernel) => kernel,
            none => none.insert(
                Functions::read()
                    .map_err(EngineError::Btf)?
                    .ok_or(EngineError::NoFunctions)?,
            ),
        })
    }

    /// Whether this end of the function has no program yet; it is taken to have one from now on.
    fn is_new(&mut self, function: Function, side: Side) -> bool {
        let new = !self.ends.contains(&(function, side));
        if new {
            self.ends.push((function, side));
        }
        new
    }
}

fn refused(program: &ProgramMut<'_>, hook: &Hook, source: libbpf_rs::Error) -> EngineError {
    EngineError::Attach {
        program: program.name().to_string_lossy().into_owned(),
        hook: hook.to_string(),
        source,
    }
}

/// Attaches a program to a tracepoint of the `syscalls` system, for all tasks on all CPUs.
fn attach_event(program: &ProgramMut<'_>, hook: &Hook, id: u64) -> Result<Link, EngineError> {
    let event = open_event(id).map_err(|source| EngineError::Event {
        hook: hook.to_string(),
        source,
    })?;
    program
        .attach_perf_event(event.into_raw_fd()) // the link closes it
        .map_err(|error| refused(program, hook, error))
}

/// Opens a tracepoint as a perf event. The CPU says where samples would be taken; a BPF program runs on
/// all of them.
fn open_event(id: u64) -> io::Result<OwnedFd> {
    let mut attr = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_TRACEPOINT,
        size: u32::try_from(size_of::<libbpf_sys::perf_event_attr>()).map_err(io::Error::other)?,
        config: id,
        ..Default::default()
    };
    let (any_task, first_cpu, no_group) = (-1_i32, 0_i32, -1_i32);
    // SAFETY: the attributes are initialised, say their own size, and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw mut attr,
            any_task,
            first_cpu,
            no_group,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    owned(fd)
}
