//! Programs in their places. Closing a link that has no name detaches it, which takes the kernel some 100 ms
//! each.
//!
//! Links are made without libbpf: what it makes of them, it takes apart when it is dropped, pinned or not.

pub(crate) mod async_detach;
pub(crate) mod heartbeat;
mod stub_copy;

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr;

use audit::plan::hook::Hook;
use libbpf_rs::{ProgramMut, libbpf_sys};

use crate::error::EngineError;
use crate::handover::pins::{COPY_PREFIX, LINK_PREFIX, PinDirectory};
use crate::hooks::attach_point::{AttachPoint, AttachTarget};
use crate::stats::{self, ProgramRuns};
use crate::sys::descriptor::{fd_from_libbpf, fd_from_syscall};

/// What holds a program in its place; dropping it takes it away, unless it is pinned.
pub(crate) struct AttachedLink {
    pub(crate) link: OwnedFd,
    /// The tracepoint: the link keeps it, and `bpftool perf` finds it by this.
    #[expect(dead_code, reason = "kept for others to look at")]
    event: Option<OwnedFd>,
    /// Where it is a copy of a stub.
    pub(crate) copy: Option<StubCopy>,
}

/// A copy of a stub.
pub(crate) struct StubCopy {
    /// The kernel counts on it what it skips.
    pub(crate) program: OwnedFd,
    /// What it is for.
    pub(crate) hook: String,
}

impl AttachedLink {
    /// How often the kernel did not run a copy because another run of it was under way on that CPU.
    pub(crate) fn recursion_misses(&self) -> u64 {
        // Others are counted with the program.
        let copy = self.copy.as_ref();
        copy.map_or(0, |copy| stats::recursion_misses(&copy.program))
    }

    /// What the kernel has counted of a copy.
    pub(crate) fn runs(&self) -> Option<ProgramRuns> {
        let copy = self.copy.as_ref()?;
        stats::runs(&copy.hook, &copy.program)
    }

    /// Gives it the names of its attach point.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn pin(&self, pins: &PinDirectory, attach_point: AttachPoint) -> io::Result<()> {
        if let Some(copy) = &self.copy {
            pins.pin(&format!("{COPY_PREFIX}{attach_point}"), &copy.program)?;
        }
        pins.pin(&format!("{LINK_PREFIX}{attach_point}"), &self.link)
    }

    /// What has the names of an attach point.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn find(pins: &PinDirectory, attach_point: AttachPoint) -> io::Result<Self> {
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

    /// Takes the names of an attach point away.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn unpin(pins: &PinDirectory, attach_point: AttachPoint) -> io::Result<()> {
        pins.remove(&format!("{LINK_PREFIX}{attach_point}"))?;
        pins.remove(&format!("{COPY_PREFIX}{attach_point}"))
    }
}

/// Programs in their places.
pub(crate) type Links = BTreeMap<AttachPoint, AttachedLink>;

/// How often the kernel skipped copies of stubs.
pub(crate) fn recursion_misses(links: &Links) -> u64 {
    links.values().map(AttachedLink::recursion_misses).sum()
}

/// Puts a program in its place; the hook is for messages.
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    attach_point: AttachPoint,
    hook: Hook,
) -> Result<AttachedLink, EngineError> {
    let attached = match attach_point.target {
        AttachTarget::Declared => attach_raw_tracepoint(program, None),
        AttachTarget::RawTracepoint(name) => attach_raw_tracepoint(program, Some(name)),
        AttachTarget::Tracepoint(id) => {
            let event = open_tracepoint(id).map_err(|source| EngineError::PerfEvent {
                hook: hook.to_string(),
                source,
            })?;
            attach_perf_event(program, event)
        }
        AttachTarget::Function(function, side) => {
            stub_copy::attach(program, function, side).map(|copy| AttachedLink {
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

/// Puts a program on a raw tracepoint, or where it was loaded for.
pub(crate) fn attach_raw_tracepoint(
    program: &ProgramMut<'_>,
    tracepoint: Option<&str>,
) -> io::Result<AttachedLink> {
    let name = tracepoint.map(CString::new).transpose();
    let name = name.map_err(io::Error::other)?;
    let name: *const c_char = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
    // SAFETY: the name is null, which means where the program was loaded for, or a string that outlives
    // the call.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(name, program.as_fd().as_raw_fd()) };
    Ok(AttachedLink {
        link: fd_from_libbpf(link)?,
        event: None,
        copy: None,
    })
}

/// Puts a program on a perf event, which the link keeps.
fn attach_perf_event(program: &ProgramMut<'_>, event: OwnedFd) -> io::Result<AttachedLink> {
    // SAFETY: only numbers are passed; a null pointer means no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            event.as_raw_fd(),
            libbpf_sys::BPF_PERF_EVENT,
            ptr::null(),
        )
    };
    Ok(AttachedLink {
        link: fd_from_libbpf(link)?,
        event: Some(event),
        copy: None,
    })
}

/// Opens a tracepoint as a perf event. The CPU says where samples would be taken; a BPF program runs on
/// all of them.
fn open_tracepoint(id: u64) -> io::Result<OwnedFd> {
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
    fd_from_syscall(fd)
}
