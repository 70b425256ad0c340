//! The command's first process: made, put under the filter, and started.
//!
//! The child shares the table of descriptors with its parent until it execs. So the listener that the
//! kernel makes for the child's filter is the parent's at once: nothing has to be sent by calls that the
//! filter may already stop, and no right to take descriptors from another process is needed. What else the
//! two tell each other goes through a shared page.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, Ordering};

use audit::plan::Plan;
use libc::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
    SECCOMP_SET_MODE_FILTER, c_ulong, sock_filter, sock_fprog,
};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid, pipe2};

use crate::backend::Backend;
use crate::filter;
use crate::ptrace::{ResumeMode, StopEvent, resume, wait};
use crate::task::memory::Memory;

/// Why a command cannot be audited here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No process could be made for it.
    #[error("cannot start the command")]
    Start(#[source] io::Error),
    /// The kernel did not take the filter.
    #[error("cannot install the seccomp filter")]
    Filter(#[source] Errno),
    /// The supervisor may not trace its own child.
    #[error("cannot trace the command")]
    Trace(#[source] Errno),
    /// The memory of its own child may not be read.
    #[error("cannot read the memory of the command")]
    Read(#[source] Errno),
    /// Waiting for stops failed.
    #[error("cannot wait for the command")]
    Wait(#[source] Errno),
    /// The filter has no syscall numbers for this machine: it would let every call pass unrecorded.
    #[error(
        "`tollgate run` supports only x86_64, and this machine is {arch}: nothing would be recorded"
    )]
    Arch {
        /// Name of the machine's arch.
        arch: String,
    },
}

/// What to start.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Path of the program.
    pub program: CString,
    /// Its arguments, its own name first.
    pub args: Vec<CString>,
    /// Signals that are blocked when it starts.
    pub signal_mask: SigSet,
}

/// A command whose first process is about to exec under its filter.
#[derive(Debug)]
pub struct TracedCommand {
    pub(crate) child: Pid,
    pub(crate) backend: Backend,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) shared: SharedPage,
    /// A stop of the child that was met before its calls were followed.
    pub(crate) early_stop: Option<StopEvent>,
}

/// How far the child has come; shared with it.
#[derive(Debug)]
pub(crate) struct SharedPage(NonNull<SharedState>);

#[repr(C)]
struct SharedState {
    /// Descriptor of the listener, [`PENDING`], or below that the error with which the filter was refused.
    listener: AtomicI32,
    /// Error of the exec; 0 while there is none.
    exec: AtomicI32,
}

const PENDING: i32 = -1;

impl SharedPage {
    fn new() -> io::Result<Self> {
        let len = size_of::<SharedState>();
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping of the kernel's choice overlaps nothing of ours.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let state = NonNull::new(at.cast::<SharedState>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let shared = Self(state);
        shared.state().listener.store(PENDING, Ordering::Release);
        Ok(shared)
    }

    fn state(&self) -> &SharedState {
        // SAFETY: the page is mapped as long as `self` lives, zeroed, and only ever used as atomics.
        unsafe { self.0.as_ref() }
    }

    /// The error with which the exec failed.
    pub(crate) fn exec_error(&self) -> Option<Errno> {
        match self.state().exec.load(Ordering::Acquire) {
            0 => None,
            errno => Some(Errno::from_raw(errno)),
        }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and nobody has a reference into it any more.
        let _kept = unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<SharedState>()) };
    }
}

/// Refuses an arch whose calls [`filter::compile`] does not know.
fn check_arch(arch: &str) -> Result<(), RunError> {
    match arch {
        "x86_64" => Ok(()),
        _ => Err(RunError::Arch {
            arch: arch.to_owned(),
        }),
    }
}

impl CommandSpec {
    /// Makes the process that will become the program, under the filter of the plan. It starts when the
    /// calls that it makes are followed.
    ///
    /// Call this while the process has one thread, and follow from the same thread.
    ///
    /// # Errors
    /// What the kernel forbids here.
    pub fn spawn(&self, plan: &Plan, backend: Backend) -> Result<TracedCommand, RunError> {
        check_arch(std::env::consts::ARCH)?;
        let also = match backend {
            // Not allowed, and somebody should be told why.
            Backend::Ptrace => filter::syscalls_named("ptrace"),
            // Whoever becomes another program must be looked at anew.
            Backend::Notify => ["execve", "execveat"].map(filter::syscalls_named).concat(),
        };
        let code = filter::compile(plan, backend, &also);
        let args = to_pointers(&self.args);
        let child_setup = ChildSetup {
            program: &self.program,
            args: &args,
            code: &code,
            backend,
            signal_mask: self.signal_mask,
            parent: getpid(),
        };
        let shared = SharedPage::new().map_err(RunError::Start)?;
        let (wait, go) =
            pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| RunError::Start(errno.into()))?;
        let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
        // SAFETY: the caller has one thread, so that no lock is held by another; the child has a copy of
        // this memory and makes system calls only, until it execs or exits.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        let child = match Errno::result(child) {
            Ok(0) => child_setup.exec_program(shared.state(), wait.as_raw_fd()),
            Ok(pid) => Pid::from_raw(i32::try_from(pid).unwrap_or(-1)),
            Err(errno) => return Err(RunError::Start(errno.into())),
        };
        let mut started = TracedCommand {
            child,
            backend,
            listener: None,
            shared,
            early_stop: None,
        };
        let begun = started.begin(&go);
        if begun.is_err() && started.early_stop.is_none() {
            // It waits for a byte that will not come.
            let _gone = kill(child, Signal::SIGKILL);
            let _status = waitpid(child, Some(WaitPidFlag::__WALL));
        }
        begun.map(|()| started)
    }
}

impl TracedCommand {
    /// The command's first process.
    #[must_use]
    pub const fn child(&self) -> Pid {
        self.child
    }

    fn begin(&mut self, go: &OwnedFd) -> Result<(), RunError> {
        if self.backend == Backend::Ptrace {
            let options = Options::PTRACE_O_TRACESECCOMP
                | Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK
                | Options::PTRACE_O_TRACEEXEC
                | Options::PTRACE_O_EXITKILL;
            ptrace::seize(self.child, options).map_err(RunError::Trace)?;
        }
        // The child's memory is a copy of ours: what lies here lies there.
        let own = u64::try_from(self.shared.0.addr().get()).unwrap_or(0);
        Memory(self.child)
            .read(own, &mut [0; 1])
            .map_err(RunError::Read)?;
        nix::unistd::write(go, b"g").map_err(|errno| RunError::Start(errno.into()))?;
        let filter_status = self.wait_for_filter()?;
        if filter_status < PENDING {
            return Err(RunError::Filter(Errno::from_raw(-filter_status - 1)));
        }
        if self.backend == Backend::Notify {
            // SAFETY: the kernel made this descriptor for the filter in the table that both share, and
            // the child, which ends or execs, does not close it here.
            let listener = unsafe { OwnedFd::from_raw_fd(filter_status) };
            set_sync_wake_up(&listener);
            self.listener = Some(listener);
        }
        Ok(())
    }

    /// What the child tells of its filter. It needs a few microseconds, and makes no call that could be
    /// waited for instead.
    fn wait_for_filter(&mut self) -> Result<i32, RunError> {
        loop {
            // In this order: what has changed may be what the child did after it told.
            let change = match self.early_stop {
                None => wait(Some(self.child), libc::__WALL | libc::WNOHANG)
                    .ok()
                    .flatten(),
                Some(_) => None,
            };
            match change {
                // Also a signal that it ignores stops a tracee.
                Some((pid, StopEvent::Signal(signal))) => _ = resume(pid, ResumeMode::Cont, signal),
                Some((pid, StopEvent::GroupStop(_))) => _ = resume(pid, ResumeMode::Listen, 0),
                Some((_, change)) => self.early_stop = Some(change),
                None => {}
            }
            match self.shared.state().listener.load(Ordering::Acquire) {
                PENDING => {}
                filter_status => return Ok(filter_status),
            }
            if let Some(StopEvent::Exited(_) | StopEvent::Signaled(_)) = self.early_stop {
                return Err(RunError::Start(io::ErrorKind::UnexpectedEof.into()));
            }
            std::thread::yield_now();
        }
    }
}

/// All that the child needs; it may not allocate.
struct ChildSetup<'a> {
    program: &'a CStr,
    args: &'a [*const libc::c_char],
    code: &'a [sock_filter],
    backend: Backend,
    signal_mask: SigSet,
    parent: Pid,
}

impl ChildSetup<'_> {
    /// The child's whole life until it execs.
    fn exec_program(&self, shared: &SharedState, wait: RawFd) -> ! {
        // Whoever kills the supervisor ends the command: its calls would find nobody.
        // SAFETY: this option takes one number.
        let _set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(9_u32)) };
        if nix::unistd::getppid() != self.parent {
            exit_child(1); // too late to be told
        }
        let mut byte = [0_u8; 1];
        // SAFETY: the buffer is as long as it says.
        let _go = unsafe { libc::read(wait, byte.as_mut_ptr().cast(), 1) };
        if self.backend == Backend::Ptrace {
            // PTRACE_O_EXITKILL has taken over, for the children too.
            // SAFETY: as above.
            let _unset = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(0_u32)) };
        }
        self.reset_signals();
        let filter_status = self.filter();
        shared.listener.store(filter_status, Ordering::Release);
        if filter_status < PENDING {
            exit_child(1);
        }
        // SAFETY: `program` and all of `args` are NUL-terminated and `args` ends with a null pointer;
        // `environ` is the process's own, which no other thread changes.
        let _failed = unsafe { libc::execve(self.program.as_ptr(), self.args.as_ptr(), environ) };
        shared.exec.store(Errno::last_raw(), Ordering::Release);
        exit_child(127)
    }

    /// Undoes what Rust's start and the supervisor have changed.
    fn reset_signals(&self) {
        for signal in [libc::SIGPIPE, libc::SIGTTOU] {
            // SAFETY: the default action runs no code of ours.
            let _old = unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let _set = self.signal_mask.thread_set_mask();
    }

    /// Installs the filter; gives the listener's descriptor, 0 where there is none, or the error.
    fn filter(&self) -> i32 {
        let program = sock_fprog {
            len: u16::try_from(self.code.len()).unwrap_or(0),
            filter: self.code.as_ptr().cast_mut(),
        };
        let (one, zero): (c_ulong, c_ulong) = (1, 0);
        // SAFETY: this option takes numbers.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) } != 0 {
            return encode_errno(Errno::last_raw());
        }
        let tries: &[c_ulong] = match self.backend {
            Backend::Ptrace => &[0],
            // Without the second flag, since v5.19, a signal makes a stopped call begin anew.
            Backend::Notify => &[
                SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                SECCOMP_FILTER_FLAG_NEW_LISTENER,
            ],
        };
        let mut filter_status = encode_errno(libc::EINVAL);
        for &flags in tries {
            // SAFETY: the program outlives the call, which copies it.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_seccomp,
                    libc::c_long::from(SECCOMP_SET_MODE_FILTER),
                    flags,
                    &raw const program,
                )
            };
            if fd >= 0 {
                return i32::try_from(fd).unwrap_or(0);
            }
            filter_status = encode_errno(Errno::last_raw());
            if filter_status != encode_errno(libc::EINVAL) {
                break;
            }
        }
        filter_status
    }
}

/// An error as the page holds it; EPERM is 1, which would be [`PENDING`].
const fn encode_errno(errno: i32) -> i32 {
    -(errno + 1)
}

/// Ends the child without running what its parent has set up for its own end.
fn exit_child(code: i32) -> ! {
    // SAFETY: it ends the process, whose memory is a copy.
    unsafe { libc::_exit(code) }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

fn to_pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([ptr::null()])
        .collect()
}

/// Has the kernel wake the supervisor on the caller's CPU, since v6.6: the two take turns anyway, and
/// waking another, idle CPU costs several times more. Without it everything works as well.
fn set_sync_wake_up(listener: &OwnedFd) {
    const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: c_ulong = 1;
    // SAFETY: this request takes a number.
    let _old_kernel = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP,
        )
    };
}

/// Tasks cost descriptors; the command, which was started before, keeps its own limit.
pub(crate) fn raise_fd_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer, tasks are looked up more often.
        let _fewer = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Ends this process by a signal, as the command ended; returns when the signal does not do that.
pub fn exit_by_signal(signal: Signal) {
    let _core = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: the default action runs no code of ours.
    let _old = unsafe { libc::signal(signal as libc::c_int, libc::SIG_DFL) };
    let only: SigSet = [signal].into_iter().collect();
    let _open = only.thread_unblock();
    let _not_ended = raise(signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_arch_is_refused() {
        assert!(check_arch("x86_64").is_ok());
        let error = check_arch("aarch64").unwrap_err().to_string();
        assert!(error.contains("this machine is aarch64"), "{error}");
    }
}
