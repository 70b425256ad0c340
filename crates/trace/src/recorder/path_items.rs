//! PATH items of a call: its objects in the roles and the order in which the kernel's audit lists them.
//!
//! Unlike the BPF engines, this module knows what was there before the call: directories, what a rename
//! replaces, and whether a failed call had found its object.

use audit::event::{Inode, NameSource, NameType, PathItem, parent_name, succeeded};
use audit::plan::objects::{ObjectEffect, ObjectRef};
use smallvec::SmallVec;

use super::exec::Interpreter;
use super::object::Seen;

/// A call and how it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) objects: &'a [Seen],
    pub(crate) cwd: &'a [u8],
    /// `None` when the result is not known.
    pub(crate) exit: Option<i64>,
    /// Interpreters of a program that was started, in the order in which the kernel opened them.
    pub(crate) interpreters: &'a [Interpreter],
}

type Items<'a> = SmallVec<[PathItem<'a>; 5]>;

impl<'a> Ended<'a> {
    /// The items.
    ///
    /// # Source
    /// Order of `getname()` calls and of `__audit_inode_child()`, Linux 6.12.
    pub(crate) fn items(&self) -> Items<'a> {
        let mut items = SmallVec::new();
        let changes = |seen: &&Seen| seen.object.effect != ObjectEffect::Use;
        for seen in self.objects.iter().rev().filter(changes) {
            items.push(self.parent(seen));
        }
        for seen in self.objects.iter().filter(|seen| !changes(seen)) {
            self.used(seen, &mut items);
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
        self.changed(&mut items);
        items
    }

    fn done(&self) -> bool {
        self.exit.is_none_or(succeeded)
    }

    /// What the call removes, then what it makes.
    fn changed(&self, items: &mut Items<'a>) {
        let removed = |seen: &&Seen| seen.object.effect == ObjectEffect::Delete;
        let made = |seen: &&Seen| seen.object.effect == ObjectEffect::Create;
        let failed_early = self
            .exit
            .is_some_and(|exit| -exit == i64::from(libc::ENOENT));
        for seen in self.objects.iter().filter(removed) {
            // Without the result, what was there before the call tells whether it can succeed.
            let done = self.exit.is_some() && self.done();
            if done || (!failed_early && seen.inode.is_some()) {
                items.push(item(seen, NameType::Delete, seen.inode));
            }
        }
        let moved = self.objects.iter().find(removed);
        for seen in self.objects.iter().filter(made) {
            match moved {
                Some(moved) => {
                    if !self.done() {
                        continue;
                    }
                    if seen.inode.is_some() {
                        items.push(item(seen, NameType::Delete, seen.inode));
                    }
                    items.push(item(seen, NameType::Create, moved.inode));
                }
                None if self.exit.is_none() && seen.inode.is_some() => {}
                None if self.done() => items.push(item(seen, NameType::Create, seen.inode)),
                None => {}
            }
        }
    }

    fn parent(&self, seen: &'a Seen) -> PathItem<'a> {
        let name = seen.name.as_deref().unwrap_or_default();
        PathItem {
            name: Some(parent_name(name, self.cwd)),
            source: NameSource::User,
            inode: seen.parent,
            nametype: NameType::Parent,
            path: None,
        }
    }

    fn used(&self, seen: &'a Seen, items: &mut Items<'a>) {
        match seen.object.place {
            ObjectRef::Text(_) => items.push(item(seen, NameType::Unknown, None)),
            ObjectRef::Fd(_) => items.extend(seen.inode.map(|inode| PathItem {
                name: None,
                source: NameSource::Kernel,
                inode: Some(inode),
                nametype: NameType::Normal,
                path: None,
            })),
            _ if seen.may_create => {
                items.push(self.parent(seen));
                if self.done() {
                    items.push(item(seen, NameType::Create, seen.inode));
                }
            }
            _ if seen.inode.is_some() => items.push(item(seen, NameType::Normal, seen.inode)),
            _ if self.done() && self.exit.is_some() => {
                items.push(item(seen, NameType::Normal, None));
            }
            _ => items.push(item(seen, NameType::Unknown, None)),
        }
    }
}

fn item(seen: &Seen, nametype: NameType, inode: Option<Inode>) -> PathItem<'_> {
    PathItem {
        name: seen.name.as_deref(),
        source: NameSource::User,
        inode,
        nametype,
        path: None,
    }
}
