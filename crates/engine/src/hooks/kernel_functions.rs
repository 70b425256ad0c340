//! Programs on the kernel's own functions: one small copy of a stub for each function.
//!
//! A program on a function is bound to it when it is loaded, so libbpf, which loads each program of an
//! object once, cannot put one on many functions. The stub that it has loaded, with maps and kernel
//! types resolved, is taken back as instructions and loaded again for each function.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use libbpf_rs::btf::types::{Func, FuncProto};
use libbpf_rs::btf::{Btf, ReferencesType as _, TypeId};
use libbpf_rs::{AsRawLibbpf as _, MapCore as _, MapFlags, MapMut, ProgramMut, libbpf_sys};

use crate::descriptor::from_libbpf;

/// A function of the kernel that does the work of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// In the kernel's type information, which stays as it is until the machine starts again.
    pub(crate) id: u32,
    /// Its type, and with it the stub that fits.
    pub(crate) kind: Kind,
}

/// The types of functions that stubs are for; see `bpf/syscall.bpf.c` and `bpf/uring.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// As `__x64_sys_close`.
    Call,
    /// As `__do_sys_getpid`.
    Bare,
    /// As `io_openat2`: a function of an operation of `io_uring`.
    Uring,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Call, Self::Bare, Self::Uring];

    /// As names of pins have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Bare => "bare",
            Self::Uring => "uring",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The kernel's functions for calls and operations, by name.
///
/// Looking one name up in the kernel's types walks through all of them, and a 32-bit call has some hundred
/// names that it may go by: so the types are walked once.
#[derive(Debug)]
pub(crate) struct Functions {
    by_name: HashMap<OsString, Function>,
}

impl Functions {
    /// Reads the kernel's types, and shows each function's name on the way; nothing when it has not the
    /// functions that the stubs are made for.
    pub(crate) fn read(kernel: &Btf<'_>, mut seen: impl FnMut(&OsStr)) -> Option<Self> {
        let example = |name| kernel.type_by_name(name).and_then(proto);
        let call = example("__x64_sys_close");
        let bare = example("__do_sys_getpid");
        let uring = example("io_openat2");
        let mut by_name: HashMap<OsString, Option<Function>> = HashMap::new();
        for function in kernel.type_by_kind::<Func<'_>>() {
            let Some(name) = function.name() else {
                continue;
            };
            seen(name);
            let id = u32::from(function.type_id());
            let proto = proto(function);
            let is = |example: Option<TypeId>| example.is_some() && proto == example;
            let kind = if is(call) {
                Some(Kind::Call)
            } else if is(bare) {
                Some(Kind::Bare)
            } else if is(uring) {
                Some(Kind::Uring)
            } else {
                None
            };
            // The first of a name counts, as for the kernel, whatever it takes.
            by_name
                .entry(name.to_owned())
                .or_insert_with(|| kind.map(|kind| Function { id, kind }));
        }
        call.and(bare)?;
        let found = by_name.into_iter();
        let by_name = found.filter_map(|(name, function)| Some((name, function?)));
        Some(Self {
            by_name: by_name.collect(),
        })
    }

    /// Looks a function up by name; `None` when this kernel has none, or one of that name that does not
    /// take the registers: the inner part of a call, which the compiler may have taken apart.
    pub(crate) fn find(&self, name: &str) -> Option<Function> {
        self.by_name.get(OsStr::new(name)).copied()
    }
}

/// The type of a function.
fn proto(function: Func<'_>) -> Option<TypeId> {
    let proto: FuncProto<'_> = function.referenced_type().try_into().ok()?;
    Some(proto.type_id())
}

/// Which end of a function a program runs at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// Before its first instruction.
    Enter,
    /// After it has returned.
    Exit,
}

impl Side {
    /// As names of pins have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let both = [Self::Enter, Self::Exit];
        both.into_iter().find(|side| side.name() == name)
    }

    const fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Enter => libbpf_sys::BPF_TRACE_FENTRY,
            Self::Exit => libbpf_sys::BPF_TRACE_FEXIT,
        }
    }
}

/// A copy of a stub on its function. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The copy: the kernel counts on it what it skips.
    pub(crate) program: OwnedFd,
    pub(crate) link: OwnedFd,
}

/// Puts a copy of `stub` on a function.
pub(crate) fn attach(stub: &ProgramMut<'_>, function: Function, side: Side) -> io::Result<Placed> {
    let program = load_copy(stub, function, side)?;
    // SAFETY: only numbers are passed; a null pointer means no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, side.attach_type(), std::ptr::null())
    };
    Ok(Placed {
        program,
        link: from_libbpf(link)?,
    })
}

fn load_copy(stub: &ProgramMut<'_>, function: Function, side: Side) -> io::Result<OwnedFd> {
    let stub_object = stub.as_libbpf_object().as_ptr();
    // SAFETY: the program belongs to a loaded object that outlives this call.
    let instructions = unsafe { libbpf_sys::bpf_program__insns(stub_object) };
    // SAFETY: as above.
    let count = unsafe { libbpf_sys::bpf_program__insn_cnt(stub_object) };
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: side.attach_type(),
        attach_btf_id: function.id,
        ..Default::default()
    };
    let name = CString::new(stub.name().as_encoded_bytes()).map_err(io::Error::other)?;
    let license: &CStr = c"GPL";
    // SAFETY: the instructions are `count` long and, like the strings and options, outlive the call.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            name.as_ptr(),
            license.as_ptr(),
            instructions,
            count,
            (&raw const options).cast_mut(),
        )
    };
    from_libbpf(program)
}

/// The kernel's number of what the stubs jump to.
pub(crate) fn body(jump: &MapMut<'_>) -> Option<u32> {
    let found = jump.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    found.try_into().ok().map(u32::from_ne_bytes)
}

/// Makes `body` what the stubs jump to.
pub(crate) fn set_body(jump: &MapMut<'_>, body: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let fd = body.as_fd().as_raw_fd();
    jump.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}
