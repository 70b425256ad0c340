//! The kernel's functions for syscalls and operations of `io_uring`, found in its type information.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use libbpf_rs::btf::types::{Func, FuncProto};
use libbpf_rs::btf::{Btf, ReferencesType as _, TypeId};
use libbpf_rs::libbpf_sys;

/// A function of the kernel that does the work of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// In the kernel's type information, which stays as it is until the machine starts again.
    pub(crate) id: u32,
    /// Its type, and with it the stub that fits.
    pub(crate) kind: FunctionKind,
}

/// The types of functions that stubs are for; see `bpf/hooks/stub.bpf.h` and `bpf/hooks/uring.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FunctionKind {
    /// As `__x64_sys_close`.
    Syscall,
    /// As `__do_sys_getpid`.
    NoArgument,
    /// As `io_openat2`: a function of an operation of `io_uring`.
    Uring,
}

impl FunctionKind {
    const ALL: [Self; 3] = [Self::Syscall, Self::NoArgument, Self::Uring];

    /// As names of pins have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Syscall => "call",
            Self::NoArgument => "bare",
            Self::Uring => "uring",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
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
    pub(crate) fn read(kernel: &Btf<'_>, mut visit: impl FnMut(&OsStr)) -> Option<Self> {
        let example = |name| kernel.type_by_name(name).and_then(proto);
        let call = example("__x64_sys_close");
        let bare = example("__do_sys_getpid");
        let uring = example("io_openat2");
        let mut by_name: HashMap<OsString, Option<Function>> = HashMap::new();
        for function in kernel.type_by_kind::<Func<'_>>() {
            let Some(name) = function.name() else {
                continue;
            };
            visit(name);
            let id = u32::from(function.type_id());
            let proto = proto(function);
            let is = |example: Option<TypeId>| example.is_some() && proto == example;
            let kind = if is(call) {
                Some(FunctionKind::Syscall)
            } else if is(bare) {
                Some(FunctionKind::NoArgument)
            } else if is(uring) {
                Some(FunctionKind::Uring)
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
pub(crate) enum FunctionSide {
    /// Before its first instruction.
    Enter,
    /// After it has returned.
    Exit,
}

impl FunctionSide {
    /// As names of pins have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let both = [Self::Enter, Self::Exit];
        both.into_iter().find(|side| side.name() == name)
    }

    pub(crate) const fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Enter => libbpf_sys::BPF_TRACE_FENTRY,
            Self::Exit => libbpf_sys::BPF_TRACE_FEXIT,
        }
    }
}
