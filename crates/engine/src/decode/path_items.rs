//! PATH items of an event: its objects, with the name types and in the order of the kernel's audit.

use audit::event::{Inode, NameSource, NameType, PathItem, parent_name};
use audit::ids::Dev;
use smallvec::SmallVec;

use crate::abi::{self, WireEvent, WireInode, WireObject};

/// One object of a sample.
#[derive(Clone, Copy)]
pub(crate) struct DecodedObject<'a> {
    pub(crate) wire: &'a WireObject,
    pub(crate) name: Option<&'a [u8]>,
    /// Path of the object.
    pub(crate) path: Option<&'a [u8]>,
}

/// Data of an event that its PATH items depend on.
pub(crate) struct ItemContext<'a> {
    pub(crate) head: &'a WireEvent,
    pub(crate) cwd: &'a [u8],
    pub(crate) argv: &'a [u8],
    pub(crate) returned: bool,
}

impl<'a> ItemContext<'a> {
    /// The PATH items in the kernel's order: parents first, created objects last; of two names the parent of
    /// the new one before the parent of the old one.
    ///
    /// # Source
    /// Order of `getname()` calls and of `__audit_inode_child()`, Linux 6.12.
    pub(crate) fn items(&self, objects: &[DecodedObject<'a>]) -> SmallVec<[PathItem<'a>; 5]> {
        let mut items = SmallVec::new();
        if objects.iter().any(is_from_internal_hook) {
            items.extend(
                objects
                    .iter()
                    .filter_map(|object| self.internal_hook_item(object, objects)),
            );
            return items;
        }
        let enoent = self.returned && self.head.exit.cast_signed() == -2;
        let succeeded = self.head.success != 0;
        let in_progress = self.head.flags & abi::EVENT_STAMPED != 0;
        for object in objects
            .iter()
            .rev()
            .filter(|object| makes_or_removes(object))
        {
            items.extend(self.parent_item(object));
        }
        for object in objects.iter().filter(|object| !makes_or_removes(object)) {
            self.append_used_items(object, &mut items);
        }
        for object in objects
            .iter()
            .filter(|object| object.wire.effect == abi::EFFECT_DELETE)
        {
            if succeeded || in_progress || (self.returned && !enoent && objects.len() == 1) {
                items.extend(item(object, NameType::Delete, None));
            }
        }
        for object in objects
            .iter()
            .filter(|object| object.wire.effect == abi::EFFECT_CREATE)
        {
            if succeeded || in_progress {
                items.extend(item(object, NameType::Create, None));
            }
        }
        items
    }

    /// The item of an object that an internal hook recorded as an item.
    fn internal_hook_item(
        &self,
        object: &DecodedObject<'a>,
        objects: &[DecodedObject<'a>],
    ) -> Option<PathItem<'a>> {
        let wire = object.wire;
        if is_excluded(object) {
            return excluded_item(object);
        }
        let by = usize::from(wire.named_by).checked_sub(1);
        let named = by.and_then(|by| objects.get(by)).unwrap_or(object);
        let (name, nametype) = match wire.effect {
            abi::NAMETYPE_NORMAL => (named.name, NameType::Normal),
            abi::NAMETYPE_PARENT => (
                named.name.map(|name| parent_name(name, self.cwd)),
                NameType::Parent,
            ),
            abi::NAMETYPE_DELETE => (named.name, NameType::Delete),
            abi::NAMETYPE_CREATE => (named.name, NameType::Create),
            _ => (named.name, NameType::Unknown),
        };
        Some(PathItem {
            name,
            source: source(named),
            inode: (wire.flags & abi::OBJECT_INODE != 0).then(|| inode(&wire.inode)),
            nametype,
            path: object.path,
        })
    }

    /// The parent item of an object that the syscall creates or deletes.
    fn parent_item(&self, object: &DecodedObject<'a>) -> Option<PathItem<'a>> {
        let name = object.name?;
        let known = object.wire.flags & abi::OBJECT_PARENT != 0;
        Some(PathItem {
            name: Some(parent_name(name, self.cwd)),
            source: source(object),
            inode: known.then(|| inode(&object.wire.parent)),
            nametype: NameType::Parent,
            path: object.path.map(parent_path),
        })
    }

    fn append_used_items(
        &self,
        object: &DecodedObject<'a>,
        items: &mut SmallVec<[PathItem<'a>; 5]>,
    ) {
        let wire = object.wire;
        if is_excluded(object) {
            items.extend(excluded_item(object));
            return;
        }
        // The file behind a descriptor that may have been replaced is not claimed to be the one that was opened.
        let known =
            wire.flags & abi::OBJECT_INODE != 0 && self.head.flags & abi::EVENT_DESCRIPTOR == 0;
        let facts = known.then(|| inode(&wire.inode));
        let nameless = |facts| PathItem {
            name: None,
            source: NameSource::Kernel,
            inode: Some(facts),
            nametype: NameType::Normal,
            path: object.path,
        };
        let succeeded = self.head.success != 0;
        match wire.lookup {
            abi::lookup::FD => items.extend(facts.map(nameless)),
            abi::lookup::AT_OR_CWD | abi::lookup::AT_OR_NULL if object.name.is_none() => {
                items.extend(facts.map(nameless));
            }
            abi::lookup::TEXT => items.extend(item(object, NameType::Unknown, None)),
            abi::lookup::EXEC | abi::lookup::EXEC_AT if succeeded => {
                let named = DecodedObject {
                    name: object.name.map(|name| self.exec_name(name)),
                    ..*object
                };
                if self.head.flags & abi::EVENT_SCRIPT == 0 {
                    items.extend(item(&named, NameType::Normal, facts));
                } else {
                    // The first argument is the interpreter as written in the script.
                    let interpreter = self.argv.split(|&byte| byte == 0).next();
                    items.extend(item(&named, NameType::Normal, None));
                    items.extend(interpreter.map(|name| PathItem {
                        name: Some(name),
                        source: NameSource::Kernel,
                        inode: facts,
                        nametype: NameType::Normal,
                        path: object.path,
                    }));
                }
            }
            _ if wire.flags & abi::OBJECT_CREATED != 0 => {
                items.extend(self.parent_item(object));
                items.extend(item(object, NameType::Create, facts));
            }
            _ if succeeded => items.extend(item(object, NameType::Normal, facts)),
            _ => items.extend(item(object, NameType::Unknown, facts)),
        }
    }

    /// The name that was passed to `execveat`. For a name relative to a descriptor the kernel uses a path below
    /// `/dev/fd`.
    fn exec_name(&self, name: &'a [u8]) -> &'a [u8] {
        let fd = self.head.args[0].cast_signed();
        if self.head.flags & abi::EVENT_STARTED == 0 || fd < 0 {
            return name;
        }
        let Some(rest) = name.strip_prefix(b"/dev/fd/") else {
            return name;
        };
        match rest.strip_prefix(itoa::Buffer::new().format(fd).as_bytes()) {
            Some([]) => &[],
            Some([b'/', relative @ ..]) => relative,
            _ => name,
        }
    }
}

/// Whether the object is on a file system that the filesystem list excludes.
fn is_excluded(object: &DecodedObject<'_>) -> bool {
    object.wire.flags & abi::OBJECT_FS_EXCLUDED != 0
}

/// The item of an excluded object: only its name, if the syscall named it.
fn excluded_item<'a>(object: &DecodedObject<'a>) -> Option<PathItem<'a>> {
    item(object, NameType::Unknown, None)
}

fn is_from_internal_hook(object: &DecodedObject<'_>) -> bool {
    object.wire.lookup == abi::lookup::HOOKED
}

fn makes_or_removes(object: &DecodedObject<'_>) -> bool {
    object.wire.effect != abi::EFFECT_USE
}

fn source(object: &DecodedObject<'_>) -> NameSource {
    if object.wire.flags & abi::OBJECT_KERNEL != 0 {
        NameSource::Kernel
    } else {
        NameSource::User
    }
}

fn item<'a>(
    object: &DecodedObject<'a>,
    nametype: NameType,
    inode: Option<Inode>,
) -> Option<PathItem<'a>> {
    Some(PathItem {
        name: Some(object.name?),
        source: source(object),
        inode,
        nametype,
        path: inode.and(object.path),
    })
}

/// Path of the parent directory.
fn parent_path(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        None | Some(0) => b"/",
        Some(slash) => path.get(..slash).unwrap_or_default(),
    }
}

fn inode(wire: &WireInode) -> Inode {
    Inode {
        ino: wire.ino,
        dev: Dev(wire.dev),
        mode: wire.mode,
        uid: wire.uid,
        gid: wire.gid,
        rdev: Dev(wire.rdev),
    }
}
