//! Starts the first process of a command under the filter.
//!
//! Parent and child share the descriptor table (`CLONE_FILES`) until the exec, so the parent has the listener of
//! the child's filter at once: no message by syscalls that the filter may already stop, and no permission for
//! `pidfd_getfd(2)`. A shared page reports the progress of the child.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, Ordering};

use audit::ids::NativeArch;
use audit::plan::Plan;
use audit::table;
use libc::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
    SECCOMP_SET_MODE_FILTER, c_ulong, sock_filter, sock_fprog,
};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::utsname::uname;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid, pipe2};

use crate::backend::Backend;
use crate::filter;
use crate::ptrace::{ResumeMode, StopEvent, resume, wait};
use crate::task::memory::Memory;

/// Why a command cannot be started or supervised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The process cannot be created.
    #[error("cannot start the command")]
    Start(#[source] io::Error),
    /// The kernel rejected the filter.
    #[error("cannot install the seccomp filter")]
    Filter(#[source] Errno),
    /// The supervisor is not permitted to trace its child.
    #[error("cannot trace the command")]
    Trace(#[source] Errno),
    /// The supervisor is not permitted to read the memory of its child.
    #[error("cannot read the memory of the command")]
    Read(#[source] Errno),
    /// Waiting for stops failed.
    #[error("cannot wait for the command")]
    Wait(#[source] Errno),
    /// The filter has no syscall numbers for this machine: it would let every call pass unrecorded.
    #[error(
        "this `tollgate run` is built for {}, and this machine is {machine}: nothing would be recorded",
        table::arch_name(NativeArch::BUILD.b64()).unwrap_or("another machine")
    )]
    Arch {
        /// Name of the machine, as `uname -m` prints it.
        machine: String,
    },
}

/// A command to start.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Path of the program.
    pub program: CString,
    /// Arguments, `argv[0]` first.
    pub args: Vec<CString>,
    /// Signal mask of the command.
    pub signal_mask: SigSet,
}

/// A command whose first process is about to exec under its filter.
#[derive(Debug)]
pub struct TracedCommand {
    pub(crate) child: Pid,
    pub(crate) backend: Backend,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) shared: SharedPage,
    /// A stop of the child that was reported before the supervision started.
    pub(crate) early_stop: Option<StopEvent>,
}

/// Progress of the child, in memory shared with it.
#[derive(Debug)]
pub(crate) struct SharedPage(NonNull<SharedState>);

#[repr(C)]
struct SharedState {
    /// [`PENDING`], the descriptor of the listener, or an error as [`encode_errno`] encodes it.
    listener: AtomicI32,
    /// Errno of the exec; 0 while there is none.
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
        // SAFETY: without an address the kernel chooses a free range, so no existing mapping is replaced.
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
        // SAFETY: the page is mapped while `self` lives, starts zeroed, and is accessed only atomically.
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
        // SAFETY: `new` created this mapping, and references into it borrow `self`.
        let _kept = unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<SharedState>()) };
    }
}

/// Refuses a machine whose syscalls the filter of a plan does not know: an emulator for programs of another machine
/// runs this program too.
fn check_machine(machine: &[u8], plan: &Plan) -> Result<(), RunError> {
    let known = table::arch_by_name(machine).and_then(NativeArch::with_abi);
    if known == Some(plan.native) {
        return Ok(());
    }
    Err(RunError::Arch {
        machine: String::from_utf8_lossy(machine).into_owned(),
    })
}

impl CommandSpec {
    /// Creates the first process under the filter of a plan. Its exec starts the supervision.
    ///
    /// Call this while the process has one thread, and call [`TracedCommand::supervise`] from the same thread.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn spawn(&self, plan: &Plan, backend: Backend) -> Result<TracedCommand, RunError> {
        let machine = uname().map_err(|errno| RunError::Start(errno.into()))?;
        check_machine(machine.machine().as_bytes(), plan)?;
        let also = match backend {
            // It fails for traced tasks; the tracer warns about it.
            Backend::Ptrace => filter::syscalls_named("ptrace", plan.native),
            // An exec invalidates what is known of the process.
            Backend::Notify => ["execve", "execveat"]
                .map(|name| filter::syscalls_named(name, plan.native))
                .concat(),
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
        // SAFETY: the process has one thread, so no other thread holds a lock. The child has a copy of this
        // memory and makes only system calls until it execs or exits.
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
            // The child still waits for the start byte.
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
        // The memory of the child is a copy, so this address is mapped there.
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
            // SAFETY: the kernel opened this descriptor in the shared descriptor table. The child does not close
            // it: its exec or exit only drops its reference to the table.
            let listener = unsafe { OwnedFd::from_raw_fd(filter_status) };
            set_sync_wake_up(&listener);
            self.listener = Some(listener);
        }
        Ok(())
    }

    /// Waits until the child reports the result of installing its filter. Polls, because that takes a few
    /// microseconds and no event could be waited for.
    fn wait_for_filter(&mut self) -> Result<i32, RunError> {
        loop {
            // Check for stops first: a stop seen here may have happened after the report.
            let change = match self.early_stop {
                None => wait(Some(self.child), libc::__WALL | libc::WNOHANG)
                    .ok()
                    .flatten(),
                Some(_) => None,
            };
            match change {
                // Ignored signals stop a tracee too.
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

/// Data for the child, which must not allocate.
struct ChildSetup<'a> {
    program: &'a CStr,
    args: &'a [*const libc::c_char],
    code: &'a [sock_filter],
    backend: Backend,
    signal_mask: SigSet,
    parent: Pid,
}

impl ChildSetup<'_> {
    /// Runs in the child: installs the filter and executes the program.
    fn exec_program(&self, shared: &SharedState, wait: RawFd) -> ! {
        // Without a supervisor, stopped syscalls would fail or block; die with it.
        // SAFETY: this option takes one integer.
        let _set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(9_u32)) };
        if nix::unistd::getppid() != self.parent {
            exit_child(1); // the parent died before the prctl
        }
        let mut byte = [0_u8; 1];
        // SAFETY: the buffer has one byte.
        let _go = unsafe { libc::read(wait, byte.as_mut_ptr().cast(), 1) };
        if self.backend == Backend::Ptrace {
            // PTRACE_O_EXITKILL replaces it, and also applies to descendants.
            // SAFETY: as above.
            let _unset = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(0_u32)) };
        }
        self.reset_signals();
        let filter_status = self.filter();
        shared.listener.store(filter_status, Ordering::Release);
        if filter_status < PENDING {
            exit_child(1);
        }
        // SAFETY: `program` and the strings of `args` are NUL-terminated, and `args` ends with a null pointer.
        // No other thread changes `environ`.
        let _failed = unsafe { libc::execve(self.program.as_ptr(), self.args.as_ptr(), environ) };
        shared.exec.store(Errno::last_raw(), Ordering::Release);
        exit_child(127)
    }

    /// Restores signal actions and mask that the Rust runtime and the supervisor changed.
    fn reset_signals(&self) {
        for signal in [libc::SIGPIPE, libc::SIGTTOU] {
            // SAFETY: SIG_DFL installs no handler.
            let _old = unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let _set = self.signal_mask.thread_set_mask();
    }

    /// Installs the filter. Returns the descriptor of the listener, 0 without one, or an encoded error.
    fn filter(&self) -> i32 {
        let program = sock_fprog {
            len: u16::try_from(self.code.len()).unwrap_or(0),
            filter: self.code.as_ptr().cast_mut(),
        };
        let (one, zero): (c_ulong, c_ulong) = (1, 0);
        // SAFETY: this option takes integers.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) } != 0 {
            return encode_errno(Errno::last_raw());
        }
        let tries: &[c_ulong] = match self.backend {
            Backend::Ptrace => &[0],
            // The second flag is new in v5.19. Without it, a signal interrupts and restarts a stopped syscall.
            Backend::Notify => &[
                SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                SECCOMP_FILTER_FLAG_NEW_LISTENER,
            ],
        };
        let mut filter_status = encode_errno(libc::EINVAL);
        for &flags in tries {
            // SAFETY: `program` and its instructions live until after the call, which copies them.
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

/// An errno as stored in the shared page: below [`PENDING`], which is -1, so EPERM is -2.
const fn encode_errno(errno: i32) -> i32 {
    -(errno + 1)
}

/// Ends the child without running the parent's exit handlers.
fn exit_child(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
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

/// Makes the kernel wake the supervisor on the CPU of the stopped task (v6.6). The two run alternately, and
/// waking an idle CPU costs several times more. Older kernels reject this, which is harmless.
fn set_sync_wake_up(listener: &OwnedFd) {
    const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: c_ulong = 1;
    // SAFETY: this request takes an integer.
    let _result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP,
        )
    };
}

/// Raises the soft limit of descriptors, since each known task takes some. The command is already started and
/// keeps its limit.
pub(crate) fn raise_fd_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // On failure, tasks are looked up more often.
        let _result = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Ends this process by the signal that ended the command. Returns when the signal does not end a process.
pub fn exit_by_signal(signal: Signal) {
    let _core = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: SIG_DFL installs no handler.
    let _old = unsafe { libc::signal(signal as libc::c_int, libc::SIG_DFL) };
    let only: SigSet = [signal].into_iter().collect();
    let _open = only.thread_unblock();
    let _not_ended = raise(signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_refused() {
        let plan = |native: NativeArch| Plan::compile([], &native.abis());
        let (x86, arm64) = (plan(NativeArch::X86_64), plan(NativeArch::Aarch64));
        // The second name of each is that of a task with the personality of a 32-bit machine.
        for (machine, plan) in [
            ("x86_64", &x86),
            ("i686", &x86),
            ("aarch64", &arm64),
            ("armv8l", &arm64),
        ] {
            assert!(check_machine(machine.as_bytes(), plan).is_ok(), "{machine}");
        }
        for (machine, plan) in [("aarch64", &x86), ("x86_64", &arm64), ("vax", &x86)] {
            let error = check_machine(machine.as_bytes(), plan)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(&format!("this machine is {machine}")),
                "{error}"
            );
        }
    }
}
