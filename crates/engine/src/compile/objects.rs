//! The objects among the arguments of a syscall, encoded as `struct wire_shape`.

use audit::plan::SyscallId;
use audit::plan::objects::{self, ObjectEffect, ObjectRef};

use crate::abi::{self, WireShape};
use crate::hooks::hook::KernelFeatures;

/// The objects of a syscall on a kernel.
pub(crate) fn wire_shapes(
    syscall_id: SyscallId,
    kernel: KernelFeatures,
) -> [WireShape; abi::OBJECTS] {
    let objects = objects::objects(syscall_id.arch, syscall_id.syscall);
    let mut shapes = [WireShape::default(); abi::OBJECTS];
    let exec = syscall_id.is_exec();
    let needs_name = kernel.stat_by_descriptor
        && matches!(
            syscall_id.name(),
            Some("newfstatat" | "fstatat64" | "statx")
        );
    for (shape, object) in shapes.iter_mut().zip(objects) {
        let (lookup, dir, arg) = match object.place {
            ObjectRef::Path(arg) if exec => (abi::LOOKUP_EXEC, 0, arg),
            ObjectRef::At(dir, arg) if exec => (abi::LOOKUP_EXEC_AT, dir, arg),
            ObjectRef::Path(arg) if syscall_id.name() == Some("chdir") => (abi::LOOKUP_CWD, 0, arg),
            ObjectRef::Path(arg) => (abi::LOOKUP_PATH, 0, arg),
            ObjectRef::At(dir, arg) if needs_name => (abi::LOOKUP_AT_NAMED, dir, arg),
            ObjectRef::At(dir, arg) => (abi::LOOKUP_AT, dir, arg),
            ObjectRef::Fd(arg) => (abi::LOOKUP_FD, 0, arg),
            ObjectRef::Opened { dir: None, path } => (abi::LOOKUP_OPENED, 0, path),
            ObjectRef::Opened {
                dir: Some(dir),
                path,
            } => (abi::LOOKUP_OPENED_AT, dir, path),
            ObjectRef::Returned => (abi::LOOKUP_RETURNED, 0, 0),
            ObjectRef::Text(arg) => (abi::LOOKUP_TEXT, 0, arg),
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
