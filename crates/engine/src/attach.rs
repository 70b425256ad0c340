//! From the set of wanted hooks to links. Dropping a link detaches it.

use std::io;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};

use audit::plan::Call;
use audit::plan::hook::{Hook, tracepoint_name};
use libbpf_rs::{Link, ProgramMut, libbpf_sys};

use crate::load::EngineError;
use crate::load::skel::TracepointProgs;
use crate::tracefs::Tracefs;

/// What was attached, for people and for `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The hooks.
    pub hooks: Vec<Hook>,
    /// Calls that the rules name and this kernel does not have: nothing to miss.
    pub absent: Vec<&'static str>,
}

/// Attaches every wanted hook.
pub(crate) fn attach(
    programs: &TracepointProgs<'_>,
    hooks: impl IntoIterator<Item = Hook>,
) -> Result<(Vec<Link>, Attached), EngineError> {
    let mut links = Vec::new();
    let mut attached = Attached::default();
    let mut tracefs = None;
    for hook in hooks {
        let (program, place) = match hook {
            Hook::Exit(call) => (&programs.sys_exit_one, Place::Syscall("exit", call)),
            Hook::Enter(call) => (&programs.sys_enter_one, Place::Syscall("enter", call)),
            Hook::Last(call) => (&programs.sys_enter_last, Place::Syscall("enter", call)),
            Hook::RawExit => (&programs.sys_exit_any, Place::Raw("sys_exit")),
            Hook::RawEnter => (&programs.sys_enter_any, Place::Raw("sys_enter")),
            Hook::ExecPrepare => (&programs.exec_prepare, Place::Raw("sched_prepare_exec")),
            Hook::ExecCommit => (&programs.exec_commit, Place::Raw("sched_process_exec")),
            Hook::TaskExit => (&programs.task_exit, Place::Raw("sched_process_exit")),
        };
        match place {
            Place::Raw(name) => {
                let link = program
                    .attach_raw_tracepoint(name)
                    .map_err(|error| refused(program, &hook, error))?;
                links.push(link);
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
                    links.push(attach_event(program, &hook, id)?);
                    attached.hooks.push(hook);
                } else if !attached.absent.contains(&name) {
                    attached.absent.push(name);
                }
            }
        }
    }
    Ok((links, attached))
}

/// Kinds of tracepoint.
enum Place {
    /// By name, for all calls or for none.
    Raw(&'static str),
    /// Of one side of one call.
    Syscall(&'static str, Call),
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
    match i32::try_from(fd) {
        // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
