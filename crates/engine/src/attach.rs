//! Programs in their places. Dropping a link detaches it, which takes the kernel some 100 ms each.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{IntoRawFd as _, OwnedFd};

use audit::plan::hook::Hook;
use libbpf_rs::{Link, ProgramMut, libbpf_sys};

use crate::descriptor::owned;
use crate::error::EngineError;
use crate::function::{self, Placed};
use crate::spot::{Place, Spot};
use crate::stats::{self, Runs};

/// What was attached, for people and for `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The hooks.
    pub hooks: Vec<Hook>,
    /// Calls that the rules name and this kernel does not have: nothing to miss.
    pub absent: Vec<&'static str>,
}

/// What holds a program in its place; dropping it takes it away.
pub(crate) enum Held {
    /// The program itself.
    Program(#[expect(dead_code, reason = "kept for what dropping it does")] Link),
    /// A copy of a stub, and what it is for.
    Copy(Placed, Hook),
}

impl Held {
    /// How often the kernel did not run a copy because another run of it was under way on that CPU.
    pub(crate) fn skipped(&self) -> u64 {
        match self {
            Self::Program(_) => 0, // counted with the program
            Self::Copy(placed, _) => stats::skipped(&placed.program),
        }
    }

    /// What the kernel has counted of a copy.
    pub(crate) fn runs(&self) -> Option<Runs> {
        match self {
            Self::Program(_) => None, // counted with the program
            Self::Copy(placed, hook) => stats::runs(hook, &placed.program),
        }
    }
}

/// Programs in their places.
pub(crate) type Links = BTreeMap<Spot, Held>;

/// How often the kernel skipped copies of stubs.
pub(crate) fn skipped(links: &Links) -> u64 {
    links.values().map(Held::skipped).sum()
}

/// Puts a program in its place; the hook is for messages.
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    spot: Spot,
    hook: Hook,
) -> Result<Held, EngineError> {
    let held = match spot.place {
        Place::Own => program.attach_trace().map(Held::Program),
        Place::Raw(name) => program.attach_raw_tracepoint(name).map(Held::Program),
        Place::Event(id) => {
            let event = open_event(id).map_err(|source| EngineError::Event {
                hook: hook.to_string(),
                source,
            })?;
            let fd = event.into_raw_fd(); // the link closes it
            program.attach_perf_event(fd).map(Held::Program)
        }
        Place::Function(function, side) => function::attach(program, function, side)
            .map(|placed| Held::Copy(placed, hook))
            .map_err(libbpf_rs::Error::from),
    };
    held.map_err(|source| EngineError::Attach {
        program: program.name().to_string_lossy().into_owned(),
        hook: hook.to_string(),
        source,
    })
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
