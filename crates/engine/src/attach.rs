//! Attaching programs. Closing the last descriptor of a link that is not pinned detaches its program, which
//! takes the kernel about 100 ms.
//!
//! Links are created with `bpf(2)` directly: libbpf destroys its links when they are dropped, even pinned
//! ones.

pub(crate) mod async_detach;
pub(crate) mod heartbeat;
pub(crate) mod kprobe;
mod stub_copy;

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr;

use audit::ids::{NativeArch, Syscall};
use audit::table;
use libbpf_rs::{ProgramMut, libbpf_sys};

use crate::error::EngineError;
use crate::handover::pins::{COPY_PREFIX, LINK_PREFIX, PinDirectory};
use crate::hooks::attach_point::{AttachPoint, AttachTarget};
use crate::hooks::hook::Hook;
use crate::stats::{self, ProgramRuns};
use crate::sys::descriptor::{fd_from_libbpf, fd_from_syscall};
use crate::sys::kprobes::Kprobes;
use kprobe::FunctionNames;

/// The link of an attached program. Dropping it detaches the program, unless the link is pinned.
pub(crate) struct AttachedLink {
    pub(crate) link: OwnedFd,
    /// The perf event of a tracepoint. The link holds it too; `bpftool perf` finds it by this descriptor.
    #[expect(dead_code, reason = "visible to bpftool perf while open")]
    event: Option<OwnedFd>,
    /// The attached program, if it is a copy of a stub.
    pub(crate) copy: Option<StubCopy>,
}

/// A copy of a stub, attached to one function.
pub(crate) struct StubCopy {
    /// The program. The kernel counts recursion misses in it.
    pub(crate) program: OwnedFd,
    /// The hook, for statistics.
    pub(crate) hook: String,
}

impl AttachedLink {
    /// How often the kernel skipped the stub copy because it was already running on that CPU; 0 for other
    /// programs, which [`crate::load::Objects::recursion_misses`] counts.
    pub(crate) fn recursion_misses(&self) -> u64 {
        let copy = self.copy.as_ref();
        copy.map_or(0, |copy| stats::recursion_misses(&copy.program))
    }

    /// Run count and time of a stub copy.
    pub(crate) fn runs(&self) -> Option<ProgramRuns> {
        let copy = self.copy.as_ref()?;
        stats::runs(&copy.hook, &copy.program)
    }

    /// Pins the link, and the program of a stub copy, under the name of the attach point.
    ///
    /// # Errors
    /// As [`PinDirectory::pin`].
    pub(crate) fn pin(&self, pins: &PinDirectory, attach_point: AttachPoint) -> io::Result<()> {
        if let Some(copy) = &self.copy {
            pins.pin(&format!("{COPY_PREFIX}{attach_point}"), &copy.program)?;
        }
        pins.pin(&format!("{LINK_PREFIX}{attach_point}"), &self.link)
    }

    /// Opens the pins of an attach point.
    ///
    /// # Errors
    /// As [`PinDirectory::get`].
    pub(crate) fn open(pins: &PinDirectory, attach_point: AttachPoint) -> io::Result<Self> {
        let copy = match attach_point.target {
            AttachTarget::Function(..) => Some(StubCopy {
                program: pins.get(&format!("{COPY_PREFIX}{attach_point}"))?,
                hook: attach_point.to_string(),
            }),
            _ => None,
        };
        let link = pins.get(&format!("{LINK_PREFIX}{attach_point}"))?;
        Ok(Self {
            link,
            event: None,
            copy,
        })
    }

    /// Removes the pins of an attach point.
    ///
    /// # Errors
    /// As [`PinDirectory::remove`].
    pub(crate) fn unpin(pins: &PinDirectory, attach_point: AttachPoint) -> io::Result<()> {
        pins.remove(&format!("{LINK_PREFIX}{attach_point}"))?;
        pins.remove(&format!("{COPY_PREFIX}{attach_point}"))
    }
}

/// Links by attach point.
pub(crate) type Links = BTreeMap<AttachPoint, AttachedLink>;

/// How often the kernel skipped stub copies.
pub(crate) fn recursion_misses(links: &Links) -> u64 {
    links.values().map(AttachedLink::recursion_misses).sum()
}

/// Attaches a program. `hook` is for messages and statistics.
///
/// # Errors
/// [`EngineError::PerfEvent`], [`EngineError::Attach`], [`EngineError::NoSyscallFunctions`].
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    attach_point: AttachPoint,
    hook: Hook,
    kprobes: Kprobes,
    names: &FunctionNames,
) -> Result<AttachedLink, EngineError> {
    let attached = match attach_point.target {
        AttachTarget::Kprobe(function) => {
            let name = names.find(function)?;
            return kprobe::attach(program, kprobes, &name, function_cookie(hook));
        }
        AttachTarget::Session(function) => {
            kprobe::attach_multi(program, &names.find(function)?, function_cookie(hook))
        }
        AttachTarget::InternalKprobe(function) => kprobe::attach_multi(program, function, 0),
        AttachTarget::Declared => attach_raw_tracepoint(program, None),
        AttachTarget::RawTracepoint(name) => attach_raw_tracepoint(program, Some(name)),
        AttachTarget::Tracepoint(id) => {
            let event = open_tracepoint(id).map_err(|source| EngineError::PerfEvent {
                hook: hook.to_string(),
                source,
            })?;
            attach_perf_event(program, event, 0)
        }
        AttachTarget::Function(function, side) => {
            let cookie = function_cookie(hook);
            stub_copy::attach(program, function, side, cookie).map(|copy| AttachedLink {
                link: copy.link,
                event: None,
                copy: Some(StubCopy {
                    program: copy.program,
                    hook: hook.to_string(),
                }),
            })
        }
    };
    attached.map_err(|source| EngineError::Attach {
        program: program.name().to_string_lossy().into_owned(),
        hook: hook.to_string(),
        source: source.into(),
    })
}

/// Attach cookie of the function of a syscall. A debugger can stop the task inside some and replace its registers: these
/// have their numbers in the low half, in the format of `fn_exit` in `bpf/hooks/stub.bpf.h`. Opens have 1 + the index of
/// the argument with their flags in the high half.
fn function_cookie(hook: Hook) -> u64 {
    let (Hook::FunctionExit(syscall)
    | Hook::FunctionEnter(syscall)
    | Hook::CallEnter(syscall)
    | Hook::CallSession(syscall)) = hook
    else {
        return 0;
    };
    if let Some(arg) = syscall.open_flags_arg() {
        return (1 + u64::from(arg)) << 32;
    }
    if !syscall.is_exec() && !syscall.forks() {
        return 0;
    }
    let name = syscall.name().unwrap_or_default().as_bytes();
    let number = |arch| {
        let Syscall(number) = table::syscall_number(arch, name)?;
        Some(u64::from(number) + 1)
    };
    let [b64, b32] = NativeArch::BUILD.abis().map(number);
    b64.unwrap_or_default() | b32.unwrap_or_default() << 16
}

/// Attaches a program to a raw tracepoint; without a name, to the target it was loaded for.
///
/// # Errors
/// As `BPF_RAW_TRACEPOINT_OPEN` of `bpf(2)`.
pub(crate) fn attach_raw_tracepoint(
    program: &ProgramMut<'_>,
    tracepoint: Option<&str>,
) -> io::Result<AttachedLink> {
    let name = tracepoint.map(CString::new).transpose();
    let name = name.map_err(io::Error::other)?;
    let name: *const c_char = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
    // SAFETY: `name` is null, which selects the target of the program, or a NUL-terminated string that lives
    // until after the call.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(name, program.as_fd().as_raw_fd()) };
    Ok(AttachedLink {
        link: fd_from_libbpf(link)?,
        event: None,
        copy: None,
    })
}

/// Attaches a program to a perf event, which the link holds. The program reads `cookie` by
/// `bpf_get_attach_cookie()`.
fn attach_perf_event(
    program: &ProgramMut<'_>,
    event: OwnedFd,
    cookie: u64,
) -> io::Result<AttachedLink> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: the descriptors are open, and the options live until after the call, which does not write to them.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            event.as_raw_fd(),
            libbpf_sys::BPF_PERF_EVENT,
            &raw const options,
        )
    };
    Ok(AttachedLink {
        link: fd_from_libbpf(link)?,
        event: Some(event),
        copy: None,
    })
}

/// Opens a tracepoint as a perf event.
fn open_tracepoint(id: u64) -> io::Result<OwnedFd> {
    open_perf_event(libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_TRACEPOINT,
        config: id,
        ..Default::default()
    })
}

/// Opens a perf event. `first_cpu` applies to samples only; a BPF program runs on all CPUs.
fn open_perf_event(mut attr: libbpf_sys::perf_event_attr) -> io::Result<OwnedFd> {
    attr.size = u32::try_from(size_of_val(&attr)).map_err(io::Error::other)?;
    let (any_task, first_cpu, no_group) = (-1_i32, 0_i32, -1_i32);
    // SAFETY: `attr` is initialized, contains its own size, and lives until after the call.
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
    fd_from_syscall(fd)
}
