//! The kernel's functions of syscalls and operations of `io_uring`, found in BTF.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use libbpf_rs::btf::types::{Func, FuncProto};
use libbpf_rs::btf::{Btf, ReferencesType as _, TypeId};
use libbpf_rs::libbpf_sys;

use super::uring_functions::newer_uring_function;
use crate::native_functions;

/// A kernel function that implements a syscall or an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// BTF type id, valid until the next boot.
    pub(crate) id: u32,
    /// Prototype, which selects the stub.
    pub(crate) kind: FunctionKind,
}

/// Prototypes for which stubs exist; see `bpf/hooks/stub.bpf.h` and `bpf/hooks/uring.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FunctionKind {
    /// That of [`native_functions::CLOSE`]: takes the registers.
    Syscall,
    /// That of [`native_functions::GETPID`]: no argument.
    NoArgument,
    /// That of `io_openat2`: an operation of `io_uring`.
    Uring,
}

impl FunctionKind {
    const ALL: [Self; 3] = [Self::Syscall, Self::NoArgument, Self::Uring];

    /// Name in names of pinned links.
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

/// The kernel's functions of syscalls and operations, by name.
///
/// A lookup by name in BTF walks through all types, and a 32-bit syscall has about a hundred candidate names, so
/// the types are walked once.
#[derive(Debug)]
pub(crate) struct Functions {
    by_name: HashMap<OsString, Function>,
}

impl Functions {
    /// Reads the kernel's BTF and calls `visit` with each function and its name; `None` when the functions whose
    /// prototypes the stubs have are missing.
    pub(crate) fn read(kernel: &Btf<'_>, mut visit: impl FnMut(&OsStr, Func<'_>)) -> Option<Self> {
        let example = |name| kernel.type_by_name(name).and_then(proto);
        let call = example(native_functions::CLOSE);
        let bare = example(native_functions::GETPID);
        let uring = example("io_openat2");
        let mut by_name: HashMap<OsString, Option<Function>> = HashMap::new();
        for function in kernel.type_by_kind::<Func<'_>>() {
            let Some(name) = function.name() else {
                continue;
            };
            visit(name, function);
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
            // The kernel resolves a name to the first function that has it, whatever its prototype.
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

    /// Looks up the function of an operation of `io_uring`, which has another name on newer kernels.
    pub(crate) fn find_operation(&self, name: &str) -> Option<Function> {
        let newer = || self.find(newer_uring_function(name)?);
        let found = self.find(name).or_else(newer);
        found.filter(|function| function.kind == FunctionKind::Uring)
    }

    /// Looks up a function by name; `None` when the kernel has none, or one with another prototype: the inner part
    /// of a syscall, which the compiler may have split.
    pub(crate) fn find(&self, name: &str) -> Option<Function> {
        self.by_name.get(OsStr::new(name)).copied()
    }
}

/// Prototype of a function.
fn proto(function: Func<'_>) -> Option<TypeId> {
    let proto: FuncProto<'_> = function.referenced_type().try_into().ok()?;
    Some(proto.type_id())
}

/// When a program on a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FunctionSide {
    /// Before the first instruction.
    Enter,
    /// After the function has returned.
    Exit,
}

impl FunctionSide {
    /// Name in names of pinned links.
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
