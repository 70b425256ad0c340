//! The objects among the arguments of a syscall, encoded as `struct wire_shape`.

use audit::plan::SyscallId;
use audit::plan::objects::{self, ObjectEffect, ObjectRef};

use crate::abi::{self, WireShape};
use crate::hooks::hook::{EmptyStatName, KernelFeatures};

/// The objects of a syscall on a kernel.
pub(crate) fn wire_shapes(
    syscall_id: SyscallId,
    kernel: KernelFeatures,
) -> [WireShape; abi::OBJECTS] {
    let objects = objects::objects(syscall_id.arch, syscall_id.syscall);
    let mut shapes = [WireShape::default(); abi::OBJECTS];
    let exec = syscall_id.is_exec();
    let is_stat = matches!(
        syscall_id.name(),
        Some("newfstatat" | "fstatat64" | "statx")
    );
    // Since Linux 6.13: `getname_maybe_null()` in `fs/namei.c`.
    let may_be_null = matches!(
        syscall_id.name(),
        Some(
            "setxattrat"
                | "getxattrat"
                | "listxattrat"
                | "removexattrat"
                | "file_getattr"
                | "file_setattr"
        )
    );
    let at = match kernel.empty_stat_name {
        _ if may_be_null => abi::lookup::AT_OR_NULL,
        EmptyStatName::NotOfDescriptor if is_stat => abi::lookup::AT_NAMED,
        EmptyStatName::Nameless if is_stat => abi::lookup::AT_OR_CWD,
        _ => abi::lookup::AT,
    };
    for (shape, object) in shapes.iter_mut().zip(objects) {
        let (lookup, dir, arg) = match object.place {
            ObjectRef::Path(arg) if exec => (abi::lookup::EXEC, 0, arg),
            ObjectRef::At(dir, arg) if exec => (abi::lookup::EXEC_AT, dir, arg),
            ObjectRef::Path(arg) if syscall_id.name() == Some("chdir") => {
                (abi::lookup::CWD, 0, arg)
            }
            ObjectRef::Path(arg) => (abi::lookup::PATH, 0, arg),
            ObjectRef::At(dir, arg) => (at, dir, arg),
            ObjectRef::Fd(arg) => (abi::lookup::FD, 0, arg),
            ObjectRef::Opened { dir: None, path } => (abi::lookup::OPENED, 0, path),
            ObjectRef::Opened {
                dir: Some(dir),
                path,
            } => (abi::lookup::OPENED_AT, dir, path),
            ObjectRef::Returned => (abi::lookup::RETURNED, 0, 0),
            ObjectRef::Text(arg) => (abi::lookup::TEXT, 0, arg),
        };
        let effect = match object.effect {
            ObjectEffect::Use => abi::EFFECT_USE,
            ObjectEffect::Create => abi::EFFECT_CREATE,
            ObjectEffect::Delete => abi::EFFECT_DELETE,
        };
        *shape = WireShape {
            lookup,
            dir,
            arg,
            effect,
        };
    }
    shapes
}
