//! Loading programs: those that the first plan needs, and later those that other plans need in addition.
//!
//! libbpf loads an object only once. For more programs the object is opened again, with the maps of the first
//! one, and only the missing programs are loaded.

pub(crate) mod btrfs_types;
pub(crate) mod globals;
pub(crate) mod maps;
mod refusal;
pub(crate) mod states;
mod tail_call;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::slice;

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{ErrorKind, MapCore as _, MapMut, OpenObject, ProgramMut};

use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::internal_hook::InternalHookSet;
use crate::hooks::program::{self, Program};
use crate::skeleton::{OpenSyscallSkel, SyscallSkel, SyscallSkelBuilder};
use crate::stats::{self, ProgramRuns};
use crate::sys::libbpf_log;

/// Maximum number of objects that the engines of a process can load; more than there are programs.
const MAX_OBJECTS: usize = 256;

/// Memory for libbpf's objects; outlives the engines.
pub struct ObjectStorage(Box<[MaybeUninit<OpenObject>]>);

impl Default for ObjectStorage {
    fn default() -> Self {
        Self(Box::new_uninit_slice(MAX_OBJECTS))
    }
}

impl ObjectStorage {
    /// The slots, all free.
    pub fn slots(&mut self) -> ObjectSlots<'_> {
        ObjectSlots(self.0.iter_mut())
    }
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStorage").finish_non_exhaustive()
    }
}

/// Free slots of an [`ObjectStorage`].
pub struct ObjectSlots<'s>(slice::IterMut<'s, MaybeUninit<OpenObject>>);

impl fmt::Debug for ObjectSlots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectSlots").field(&self.0.len()).finish()
    }
}

/// What guard programs are loaded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardForm {
    /// Programs on the functions that call the LSM hooks.
    OnFunctions,
    /// LSM programs, for kernels that can skip programs on functions.
    Lsm,
}

/// An object, and those of its programs that are loaded.
struct LoadedObject<'s> {
    skel: SyscallSkel<'s>,
    programs: BTreeSet<Program>,
}

/// All loaded objects.
pub(crate) struct Objects<'s> {
    kind: EngineKind,
    hooks: InternalHookSet,
    /// The object that created the maps, or the first one that reuses pinned ones.
    first: LoadedObject<'s>,
    more: Vec<LoadedObject<'s>>,
}

impl<'s> Objects<'s> {
    /// Loads the first programs and creates the maps. `prepare` sets map sizes and constants.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel rejects a program or a map.
    pub(crate) fn load(
        slots: &mut ObjectSlots<'s>,
        kind: EngineKind,
        hooks: InternalHookSet,
        programs: BTreeSet<Program>,
        prepare: impl FnOnce(&mut OpenSyscallSkel<'s>) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let first = LoadedObject::load(slots, kind, hooks, programs, |open| {
            if let Some(rodata) = open.maps.rodata_data.as_mut() {
                rodata.tlg_forms = hooks.form_bits();
            }
            prepare(open)
        })?;
        let objects = Self {
            kind,
            hooks,
            first,
            more: Vec::new(),
        };
        objects.set_tail_calls(&objects.first.programs)?;
        Ok(objects)
    }

    /// Loads programs with existing maps, which `map` opens by name. Tail-call maps keep their targets.
    ///
    /// # Errors
    /// [`EngineError`] when a map is missing or the kernel rejects a program.
    pub(crate) fn reuse_maps(
        slots: &mut ObjectSlots<'s>,
        kind: EngineKind,
        hooks: InternalHookSet,
        programs: BTreeSet<Program>,
        map: impl Fn(&str) -> io::Result<OwnedFd>,
    ) -> Result<Self, EngineError> {
        let first = LoadedObject::load(slots, kind, hooks, programs, |open| {
            for mut open_map in open.open_object_mut().maps_mut() {
                let name = open_map.name().to_string_lossy().into_owned();
                let existing = map(&name).map_err(EngineError::pin(format!("map `{name}`")))?;
                open_map
                    .reuse_fd(existing.as_fd())
                    .map_err(EngineError::Open)?;
            }
            Ok(())
        })?;
        Ok(Self {
            kind,
            hooks,
            first,
            more: Vec::new(),
        })
    }

    /// Names and descriptors of all maps.
    pub(crate) fn maps(&self) -> Vec<(String, OwnedFd)> {
        let maps = self.first.skel.object().maps();
        maps.filter_map(|map| {
            let fd = map.as_fd().try_clone_to_owned().ok()?;
            Some((map.name().to_string_lossy().into_owned(), fd))
        })
        .collect()
    }

    /// Loads those of the `wanted` programs that are not loaded yet.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel rejects one; then none of them is loaded.
    pub(crate) fn load_more(
        &mut self,
        slots: &mut ObjectSlots<'s>,
        wanted: &BTreeSet<Program>,
        guards: GuardForm,
    ) -> Result<(), EngineError> {
        let missing = |program: &&Program| self.find(**program).is_none();
        let missing: BTreeSet<Program> = wanted.iter().filter(missing).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let first = self.first.skel.object();
        let loaded = LoadedObject::load(slots, self.kind, self.hooks, missing.clone(), |open| {
            for mut map in open.open_object_mut().maps_mut() {
                let name = map.name().to_owned();
                let existing = first.maps().find(|other| other.name() == name);
                let Some(existing) = existing else { continue };
                map.reuse_fd(existing.as_fd()).map_err(EngineError::Open)?;
            }
            match guards {
                GuardForm::OnFunctions => Ok(()),
                GuardForm::Lsm => {
                    program::make_guards_lsm(&mut open.progs, &missing).map_err(EngineError::Open)
                }
            }
        })?;
        self.more.push(loaded);
        self.set_tail_calls(&missing)
    }

    /// Sets the tail-call maps to the loaded targets.
    fn set_tail_calls(&self, loaded: &BTreeSet<Program>) -> Result<(), EngineError> {
        for &program in loaded {
            if let Some((name, map)) = self.tail_call_map(program)
                && let Some(target) = self.find(program)
            {
                tail_call::set_target(map, target)
                    .map_err(|source| EngineError::Map { map: name, source })?;
            }
        }
        Ok(())
    }

    /// Name and map of the tail call to `target`.
    fn tail_call_map(&self, target: Program) -> Option<(&'static str, &MapMut<'s>)> {
        let maps = &self.first.skel.maps;
        Some(match target {
            Program::SysExitFn => ("tlg_tail_exit", &maps.tlg_tail_exit),
            Program::SysExitFn0 => ("tlg_tail_exit0", &maps.tlg_tail_exit0),
            Program::NoreturnFn => ("tlg_tail_noret", &maps.tlg_tail_noret),
            Program::NoreturnFn0 => ("tlg_tail_noret0", &maps.tlg_tail_noret0),
            Program::UringEnter => ("tlg_tail_uring_enter", &maps.tlg_tail_uring_enter),
            Program::UringExit => ("tlg_tail_uring", &maps.tlg_tail_uring),
            _ => return None,
        })
    }

    /// Ids of the programs in the tail-call maps.
    pub(crate) fn tail_call_targets(&self) -> Vec<u32> {
        let jumps = Program::all().filter_map(|target| self.tail_call_map(target));
        jumps
            .filter_map(|(_, map)| tail_call::target_id(map))
            .collect()
    }

    /// The first object, which has all maps.
    pub(crate) const fn first(&self) -> &SyscallSkel<'s> {
        &self.first.skel
    }

    /// A loaded program.
    pub(crate) fn find(&self, program: Program) -> Option<&ProgramMut<'s>> {
        let mut loaded = self.loaded();
        loaded.find_map(|(kind, found)| (kind == program).then_some(found))
    }

    /// How often the kernel skipped loaded programs that may not be skipped.
    pub(crate) fn recursion_misses(&self) -> u64 {
        let counted = self.loaded().filter(|(kind, _)| !kind.may_be_skipped());
        counted
            .map(|(_, program)| stats::recursion_misses(program))
            .sum()
    }

    /// Run counts and times of the loaded programs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = ProgramRuns> {
        let runs =
            |program: &ProgramMut<'s>| stats::runs(&program.name().to_string_lossy(), program);
        self.programs().filter_map(runs)
    }

    /// All loaded programs.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &ProgramMut<'s>> {
        self.loaded().map(|(_, program)| program)
    }

    fn loaded(&self) -> impl Iterator<Item = (Program, &ProgramMut<'s>)> {
        let all = [&self.first].into_iter().chain(&self.more);
        all.flat_map(|loaded| {
            let programs = loaded.programs.iter();
            programs.map(|program| (*program, program.of(&loaded.skel.progs)))
        })
    }
}

impl<'s> LoadedObject<'s> {
    fn load(
        slots: &mut ObjectSlots<'s>,
        kind: EngineKind,
        hooks: InternalHookSet,
        programs: BTreeSet<Program>,
        prepare: impl FnOnce(&mut OpenSyscallSkel<'s>) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let slot = slots
            .0
            .next()
            .ok_or(EngineError::NoObjectSlot { limit: MAX_OBJECTS })?;
        let mut open = SyscallSkelBuilder::default()
            .open(slot)
            .map_err(EngineError::Open)?;
        program::select(&mut open.progs, &programs, hooks, kind).map_err(EngineError::Open)?;
        prepare(&mut open)?;
        let on_functions = programs.iter().any(|program| program.needs_functions(kind));
        let kind = if on_functions {
            EngineKind::Fentry
        } else {
            kind
        };
        let (loaded, libbpf_log) = libbpf_log::capture(|| open.load());
        let skel = loaded.map_err(|source| {
            let kernel = kernel_release();
            let is_denied = source.kind() == ErrorKind::PermissionDenied;
            EngineError::Load {
                kind,
                reason: refusal::reason(kind, &kernel, is_denied, &libbpf_log),
                kernel,
                libbpf_log,
                source,
            }
        })?;
        Ok(Self { skel, programs })
    }
}

fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod slots_test;
