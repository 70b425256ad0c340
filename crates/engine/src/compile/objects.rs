//! How the objects of a call are found among its arguments, as the kernel side has it.

use audit::plan::Call;
use audit::plan::hook;
use audit::plan::shape::{self, Effect, Place};

use crate::abi::{self, WireShape};

/// The objects of a call.
pub(crate) fn wire_shapes(call: Call) -> [WireShape; abi::OBJECTS] {
    let objects = shape::objects(call.arch, call.syscall);
    let mut shapes = [WireShape::default(); abi::OBJECTS];
    let exec = hook::starts(call);
    for (shape, object) in shapes.iter_mut().zip(objects) {
        let (lookup, dir, arg) = match object.place {
            Place::Path(arg) if exec => (abi::LOOKUP_EXEC, 0, arg),
            Place::At(dir, arg) if exec => (abi::LOOKUP_EXEC_AT, dir, arg),
            Place::Path(arg) => (abi::LOOKUP_PATH, 0, arg),
            Place::At(dir, arg) => (abi::LOOKUP_AT, dir, arg),
            Place::Fd(arg) => (abi::LOOKUP_FD, 0, arg),
            Place::Opened { dir: None, path } => (abi::LOOKUP_OPENED, 0, path),
            Place::Opened {
                dir: Some(dir),
                path,
            } => (abi::LOOKUP_OPENED_AT, dir, path),
            Place::Text(arg) => (abi::LOOKUP_TEXT, 0, arg),
        };
        let effect = match object.effect {
            Effect::Use => abi::EFFECT_USE,
            Effect::Create => abi::EFFECT_CREATE,
            Effect::Delete => abi::EFFECT_DELETE,
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
