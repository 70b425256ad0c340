//! PATH items of a syscall: its objects, with the name types and in the order of the kernel's audit.
//!
//! Unlike the BPF engines, this module knows the objects before the syscall: parent directories, the object that
//! a rename replaces, and whether the object of a failed syscall existed.

use audit::event::{Inode, NameSource, NameType, PathItem, parent_name, succeeded};
use audit::plan::objects::{ObjectEffect, ObjectRef};
use smallvec::SmallVec;

use super::exec::Interpreter;
use super::object::NamedObject;

/// A syscall at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemBuilder<'a> {
    pub(crate) objects: &'a [NamedObject],
    pub(crate) cwd: &'a [u8],
    /// `None` when the result is not known.
    pub(crate) exit: Option<i64>,
    /// Interpreters of an executed program, in the order in which the kernel opened them.
    pub(crate) interpreters: &'a [Interpreter],
}

type Items<'a> = SmallVec<[PathItem<'a>; 5]>;

impl<'a> ItemBuilder<'a> {
    /// The items.
    ///
    /// # Source
    /// Order of `getname()` calls and of `__audit_inode_child()`, Linux 6.12.
    pub(crate) fn items(&self) -> Items<'a> {
        let mut items = SmallVec::new();
        let changes = |object: &&NamedObject| object.object.effect != ObjectEffect::Use;
        for object in self.objects.iter().rev().filter(changes) {
            items.push(self.parent_item(object));
        }
        for object in self.objects.iter().filter(|object| !changes(object)) {
            self.append_used_items(object, &mut items);
        }
        for interpreter in self.interpreters {
            items.push(PathItem {
                name: Some(&interpreter.name),
                source: NameSource::User,
                inode: interpreter.inode,
                nametype: NameType::Normal,
                path: None,
            });
        }
        self.append_changed_items(&mut items);
        items
    }

    fn succeeded_or_unknown(&self) -> bool {
        self.exit.is_none_or(succeeded)
    }

    /// Appends deleted objects, then created ones.
    fn append_changed_items(&self, items: &mut Items<'a>) {
        let removed = |object: &&NamedObject| object.object.effect == ObjectEffect::Delete;
        let made = |object: &&NamedObject| object.object.effect == ObjectEffect::Create;
        let failed_early = self
            .exit
            .is_some_and(|exit| -exit == i64::from(libc::ENOENT));
        for object in self.objects.iter().filter(removed) {
            // Without the result, the syscall can succeed only if the object existed at entry.
            let succeeded_or_unknown = self.exit.is_some() && self.succeeded_or_unknown();
            if succeeded_or_unknown || (!failed_early && object.inode.is_some()) {
                items.push(item(object, NameType::Delete, object.inode));
            }
        }
        let moved = self.objects.iter().find(removed);
        for object in self.objects.iter().filter(made) {
            match moved {
                Some(moved) => {
                    if !self.succeeded_or_unknown() {
                        continue;
                    }
                    if object.inode.is_some() {
                        items.push(item(object, NameType::Delete, object.inode));
                    }
                    items.push(item(object, NameType::Create, moved.inode));
                }
                None if self.exit.is_none() && object.inode.is_some() => {}
                None if self.succeeded_or_unknown() => {
                    items.push(item(object, NameType::Create, object.inode));
                }
                None => {}
            }
        }
    }

    fn parent_item(&self, object: &'a NamedObject) -> PathItem<'a> {
        let name = object.name.as_deref().unwrap_or_default();
        PathItem {
            name: Some(parent_name(name, self.cwd)),
            source: NameSource::User,
            inode: object.parent,
            nametype: NameType::Parent,
            path: None,
        }
    }

    fn append_used_items(&self, object: &'a NamedObject, items: &mut Items<'a>) {
        match object.object.place {
            ObjectRef::Text(_) => items.push(item(object, NameType::Unknown, None)),
            ObjectRef::Fd(_) => items.extend(object.inode.map(|inode| PathItem {
                name: None,
                source: NameSource::Kernel,
                inode: Some(inode),
                nametype: NameType::Normal,
                path: None,
            })),
            _ if object.may_create => {
                items.push(self.parent_item(object));
                if self.succeeded_or_unknown() {
                    items.push(item(object, NameType::Create, object.inode));
                }
            }
            _ if object.inode.is_some() => items.push(item(object, NameType::Normal, object.inode)),
            _ if self.succeeded_or_unknown() && self.exit.is_some() => {
                items.push(item(object, NameType::Normal, None));
            }
            _ => items.push(item(object, NameType::Unknown, None)),
        }
    }
}

fn item(object: &NamedObject, nametype: NameType, inode: Option<Inode>) -> PathItem<'_> {
    PathItem {
        name: object.name.as_deref(),
        source: NameSource::User,
        inode,
        nametype,
        path: None,
    }
}
