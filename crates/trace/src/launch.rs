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
use crate::ptrace::{Change, Request, resume, wait};
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
}

/// What to start.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Path of the program.
    pub program: CString,
    /// Its arguments, its own name first.
    pub args: Vec<CString>,
    /// Signals that are blocked when it starts.
    pub blocked: SigSet,
}

/// A command whose first process is about to exec under its filter.
#[derive(Debug)]
pub struct TracedCommand {
    pub(crate) child: Pid,
    pub(crate) carrier: Backend,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) page: Page,
    /// A stop of the child that was met before its calls were followed.
    pub(crate) early: Option<Change>,
}

/// How far the child has come; shared with it.
#[derive(Debug)]
pub(crate) struct Page(NonNull<Words>);

#[repr(C)]
struct Words {
    /// Descriptor of the listener, [`NOT_YET`], or below that the error with which the filter was refused.
    listener: AtomicI32,
    /// Error of the exec; 0 while there is none.
    exec: AtomicI32,
}

const NOT_YET: i32 = -1;

impl Page {
    fn new() -> io::Result<Self> {
        let len = size_of::<Words>();
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping of the kernel's choice overlaps nothing of ours.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(at.cast::<Words>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = Self(words);
        page.words().listener.store(NOT_YET, Ordering::Release);
        Ok(page)
    }

    fn words(&self) -> &Words {
        // SAFETY: the page is mapped as long as `self` lives, zeroed, and only ever used as atomics.
        unsafe { self.0.as_ref() }
    }

    /// The error with which the exec failed.
    pub(crate) fn exec_error(&self) -> Option<Errno> {
        match self.words().exec.load(Ordering::Acquire) {
            0 => None,
            errno => Some(Errno::from_raw(errno)),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and nobody has a reference into it any more.
        let _kept = unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Words>()) };
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
    pub fn start(&self, plan: &Plan, carrier: Backend) -> Result<TracedCommand, RunError> {
        let also = match carrier {
            // Not allowed, and somebody should be told why.
            Backend::Trace => filter::calls_named("ptrace"),
            // Whoever becomes another program must be looked at anew.
            Backend::Notify => ["execve", "execveat"].map(filter::calls_named).concat(),
        };
        let code = filter::compile(plan, carrier, &also);
        let args = pointers(&self.args);
        let prepared = Prepared {
            program: &self.program,
            args: &args,
            code: &code,
            carrier,
            blocked: self.blocked,
            parent: getpid(),
        };
        let page = Page::new().map_err(RunError::Start)?;
        let (wait, go) =
            pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| RunError::Start(errno.into()))?;
        let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
        // SAFETY: the caller has one thread, so that no lock is held by another; the child has a copy of
        // this memory and makes system calls only, until it execs or exits.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        let child = match Errno::result(child) {
            Ok(0) => prepared.become_program(page.words(), wait.as_raw_fd()),
            Ok(pid) => Pid::from_raw(i32::try_from(pid).unwrap_or(-1)),
            Err(errno) => return Err(RunError::Start(errno.into())),
        };
        let mut started = TracedCommand {
            child,
            carrier,
            listener: None,
            page,
            early: None,
        };
        let begun = started.begin(&go);
        if begun.is_err() && started.early.is_none() {
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
        if self.carrier == Backend::Trace {
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
        let own = u64::try_from(self.page.0.addr().get()).unwrap_or(0);
        Memory(self.child)
            .read(own, &mut [0; 1])
            .map_err(RunError::Read)?;
        nix::unistd::write(go, b"g").map_err(|errno| RunError::Start(errno.into()))?;
        let told = self.hear()?;
        if told < NOT_YET {
            return Err(RunError::Filter(Errno::from_raw(-told - 1)));
        }
        if self.carrier == Backend::Notify {
            // SAFETY: the kernel made this descriptor for the filter in the table that both share, and
            // the child, which ends or execs, does not close it here.
            let listener = unsafe { OwnedFd::from_raw_fd(told) };
            set_sync_wake_up(&listener);
            self.listener = Some(listener);
        }
        Ok(())
    }

    /// What the child tells of its filter. It needs a few microseconds, and makes no call that could be
    /// waited for instead.
    fn hear(&mut self) -> Result<i32, RunError> {
        loop {
            // In this order: what has changed may be what the child did after it told.
            let change = match self.early {
                None => wait(Some(self.child), libc::__WALL | libc::WNOHANG)
                    .ok()
                    .flatten(),
                Some(_) => None,
            };
            match change {
                // Also a signal that it ignores stops a tracee.
                Some((pid, Change::Signal(signal))) => _ = resume(pid, Request::Cont, signal),
                Some((pid, Change::GroupStopped(_))) => _ = resume(pid, Request::Listen, 0),
                Some((_, change)) => self.early = Some(change),
                None => {}
            }
            match self.page.words().listener.load(Ordering::Acquire) {
                NOT_YET => {}
                told => return Ok(told),
            }
            if let Some(Change::Exited(_) | Change::Killed(_)) = self.early {
                return Err(RunError::Start(io::ErrorKind::UnexpectedEof.into()));
            }
            std::thread::yield_now();
        }
    }
}

/// All that the child needs; it may not allocate.
struct Prepared<'a> {
    program: &'a CStr,
    args: &'a [*const libc::c_char],
    code: &'a [sock_filter],
    carrier: Backend,
    blocked: SigSet,
    parent: Pid,
}

impl Prepared<'_> {
    /// The child's whole life until it execs.
    fn become_program(&self, page: &Words, wait: RawFd) -> ! {
        // Whoever kills the supervisor ends the command: its calls would find nobody.
        // SAFETY: this option takes one number.
        let _set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(9_u32)) };
        if nix::unistd::getppid() != self.parent {
            leave(1); // too late to be told
        }
        let mut byte = [0_u8; 1];
        // SAFETY: the buffer is as long as it says.
        let _go = unsafe { libc::read(wait, byte.as_mut_ptr().cast(), 1) };
        if self.carrier == Backend::Trace {
            // PTRACE_O_EXITKILL has taken over, for the children too.
            // SAFETY: as above.
            let _unset = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, c_ulong::from(0_u32)) };
        }
        self.reset_signals();
        let told = self.filter();
        page.listener.store(told, Ordering::Release);
        if told < NOT_YET {
            leave(1);
        }
        // SAFETY: `program` and all of `args` are NUL-terminated and `args` ends with a null pointer;
        // `environ` is the process's own, which no other thread changes.
        let _failed = unsafe { libc::execve(self.program.as_ptr(), self.args.as_ptr(), environ) };
        page.exec.store(Errno::last_raw(), Ordering::Release);
        leave(127)
    }

    /// Undoes what Rust's start and the supervisor have changed.
    fn reset_signals(&self) {
        for signal in [libc::SIGPIPE, libc::SIGTTOU] {
            // SAFETY: the default action runs no code of ours.
            let _old = unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let _set = self.blocked.thread_set_mask();
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
            return below(Errno::last_raw());
        }
        let tries: &[c_ulong] = match self.carrier {
            Backend::Trace => &[0],
            // Without the second flag, since v5.19, a signal makes a stopped call begin anew.
            Backend::Notify => &[
                SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                SECCOMP_FILTER_FLAG_NEW_LISTENER,
            ],
        };
        let mut told = below(libc::EINVAL);
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
            told = below(Errno::last_raw());
            if told != below(libc::EINVAL) {
                break;
            }
        }
        told
    }
}

/// An error as the page holds it; EPERM is 1, which would be [`NOT_YET`].
const fn below(errno: i32) -> i32 {
    -(errno + 1)
}

/// Ends the child without running what its parent has set up for its own end.
fn leave(code: i32) -> ! {
    // SAFETY: it ends the process, whose memory is a copy.
    unsafe { libc::_exit(code) }
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
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
pub(crate) fn want_descriptors() {
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
