//! What `-e 2` locks: a note for daemons that come after this one, and programs that keep root's own tools from
//! what audits.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore as _, MapFlags, MapInfo, ProgramInput};

use super::Engine;
use crate::attach::{self, AttachedLink};
use crate::error::EngineError;
use crate::handover::lock_note::{CLAIM_PIN, read_lock_note};
use crate::handover::pins::{LOCK_NOTE_PIN, PLAN_PREFIX, PinDirectory};
use crate::handover::plan_snapshot::PlanSnapshot;
use crate::hooks::kernel_probe::KernelProbe;
use crate::hooks::program::Program;
use crate::load::ObjectSlots;
use crate::load::globals::GUARD_SLOTS;
use crate::skeleton::types;

/// What names of links begin with that hold a program of the guard.
const GUARD_PREFIX: &str = "guard-";
/// How much of a file's name is compared: `GUARD_WORDS` of `bpf/guard/guarded.bpf.h`, without the last byte.
const MAX_NAME_BYTES: usize = 63;

impl<'s> Engine<'s> {
    /// Notes what is locked, where things are pinned: see [`read_lock_note`]. Without pins there is nobody to note it
    /// for.
    ///
    /// # Errors
    /// [`EngineError::Pin`].
    pub fn write_lock_note(&self, text: &[u8]) -> Result<(), EngineError> {
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        let says = read_lock_note(pins.path()).ok().flatten();
        if says.is_some_and(|says| says == text) {
            return Ok(());
        }
        let note = PlanSnapshot {
            names: Vec::new(),
            text: text.to_vec(),
        };
        note.to_map()
            .and_then(|map| pins.replace(LOCK_NOTE_PIN, map))
            .map_err(|source| EngineError::Pin {
                what: "a note about what is locked".to_owned(),
                source,
            })
    }

    /// Keeps others than this process from changing what audits: what is pinned and its maps, the program that
    /// it runs, and these files with all in their directories whose names go on after theirs. Pinned like
    /// everything else, it ends when the machine does, and [`PinDirectory::claim`] tells it of a process that comes after
    /// this one; otherwise with this process.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel has no programs on functions, or a directory is not there. Nothing is
    /// guarded then that was not before.
    pub fn install_guard(
        &mut self,
        places: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        files: &[PathBuf],
    ) -> Result<(), EngineError> {
        let tell = [&Program::GuardInit, &Program::GuardClaim];
        let programs = probe.guards.iter().chain(tell);
        self.objects
            .load_more(places, &programs.copied().collect())?;
        let mut guarded = Vec::new();
        if let Some(pins) = &self.pins {
            guarded.push(GuardedPath::directory(pins.path())?);
        }
        for file in files {
            guarded.push(GuardedPath::file_prefix(file)?);
        }
        self.set_guarded_paths(&guarded)?;
        self.update_guarded_maps()?;
        let mut named = Vec::new();
        let attached = self.attach_guards(&probe.guards, &mut named);
        if let (Err(_), Some(pins)) = (&attached, &self.pins) {
            // What has kept one from its place is what is to be told.
            let _removed: Vec<_> = named.iter().map(|name| pins.remove(name)).collect();
        }
        self.guard_links.extend(attached?);
        Ok(())
    }

    /// Attaches the programs that were not attached by a daemon before this one; notes the names that they get.
    fn attach_guards(
        &self,
        wanted: &[Program],
        named: &mut Vec<String>,
    ) -> Result<Vec<AttachedLink>, EngineError> {
        let pin = |pins: &PinDirectory, name: &str, fd: &dyn AsFd| {
            pins.pin(name, fd).map_err(|source| EngineError::Pin {
                what: name.to_owned(),
                source,
            })
        };
        if let Some(pins) = self.pins.as_ref().filter(|pins| !pins.contains(CLAIM_PIN)) {
            pin(pins, CLAIM_PIN, self.program(Program::GuardClaim)?)?;
            named.push(CLAIM_PIN.to_owned());
        }
        let mut guards = Vec::new();
        for &program in wanted {
            let name = format!("{GUARD_PREFIX}{}", program.name());
            if self.pins.as_ref().is_some_and(|pins| pins.contains(&name)) {
                continue;
            }
            let link = attach::attach_raw_tracepoint(self.program(program)?, None);
            let link = link.map_err(|source| EngineError::Attach {
                program: program.name().to_owned(),
                hook: "the function of the kernel that asks security modules".to_owned(),
                source: source.into(),
            })?;
            if let Some(pins) = &self.pins {
                pin(pins, &name, &link.link)?;
                named.push(name);
            }
            guards.push(link);
        }
        Ok(guards)
    }

    /// Has these guarded from now on, beside what was guarded before.
    fn set_guarded_paths(&self, guarded: &[GuardedPath]) -> Result<(), EngineError> {
        let mut words = self.globals.guarded();
        let mut free = words.iter_mut().filter(|word| word.ino == 0);
        for guarded in guarded {
            let word = free.next().ok_or_else(|| EngineError::Guard {
                directory: guarded.path.clone(),
                source: io::Error::other(format!("{GUARD_SLOTS} places are guarded already")),
            })?;
            *word = guarded.words();
        }
        self.globals.set_guarded(&words);
        let program = self.program(Program::GuardInit)?;
        let ran = program.test_run(ProgramInput::default());
        ran.map_err(|error| EngineError::System {
            what: "what is to be guarded",
            source: io::Error::other(error),
        })?;
        // The program has looked which these are: some were guarded before.
        let mut words = self.globals.guarded();
        remove_duplicates(&mut words);
        self.globals.set_guarded(&words);
        Ok(())
    }

    /// Keeps others from all maps that are there now, and from no other: those of notes come and go.
    pub(super) fn update_guarded_maps(&self) -> Result<(), EngineError> {
        let failed = |source| EngineError::Map {
            map: "tlg_guard_maps",
            source,
        };
        let number =
            |map: &dyn AsFd| MapInfo::new(map.as_fd()).map(|about| about.info.id.to_ne_bytes());
        let mut wanted = BTreeSet::new();
        for (_, map) in self.objects.maps() {
            wanted.insert(number(&map).map_err(failed)?);
        }
        wanted.insert(number(&*self.checkpoint).map_err(failed)?);
        if let Some(pins) = &self.pins {
            let pinned = |source| EngineError::Pin {
                what: "notes".to_owned(),
                source,
            };
            let notes = pins.names(PLAN_PREFIX).map_err(pinned)?;
            let notes = notes.iter().map(|epoch| format!("{PLAN_PREFIX}{epoch}"));
            for name in notes.chain(
                pins.contains(LOCK_NOTE_PIN)
                    .then(|| LOCK_NOTE_PIN.to_owned()),
            ) {
                let note = pins.get(&name).map_err(pinned)?;
                wanted.insert(number(&note).map_err(failed)?);
            }
        }
        let guarded = &self.objects.first().maps.tlg_guard_maps;
        let known: Vec<Vec<u8>> = guarded.keys().collect();
        for gone in known.iter().filter(|key| !wanted.contains(key.as_slice())) {
            guarded.delete(gone).map_err(failed)?;
        }
        for number in &wanted {
            let yes = 1_u32.to_ne_bytes();
            guarded
                .update(number, &yes, MapFlags::ANY)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Whether others are kept from what audits.
    pub(super) fn is_guarded(&self) -> bool {
        !self.guard_links.is_empty() || self.pins.as_ref().is_some_and(is_guarded)
    }
}

/// Whether a guard is pinned.
fn is_guarded(pins: &PinDirectory) -> bool {
    pins.names(GUARD_PREFIX)
        .is_ok_and(|names| !names.is_empty())
}

/// Empties places that an earlier one says already.
fn remove_duplicates(places: &mut [types::guard_dir]) {
    let mut known = Vec::new();
    for place in places {
        let says = (place.ino, place.dev, place.name, place.mask);
        if known.contains(&says) {
            *place = types::guard_dir::default();
        } else {
            known.push(says);
        }
    }
}

/// A directory that is open, and how names in it begin that are guarded.
struct GuardedPath {
    path: PathBuf,
    directory: File,
    name: Vec<u8>,
}

impl GuardedPath {
    /// All names.
    fn directory(directory: &Path) -> Result<Self, EngineError> {
        Self::open(directory, Vec::new())
    }

    /// The name of a file, and all that go on after it.
    fn file_prefix(file: &Path) -> Result<Self, EngineError> {
        let name = file.file_name().map(OsStr::as_bytes).unwrap_or_default();
        let above = file.parent().filter(|above| !above.as_os_str().is_empty());
        let name = name.iter().copied().take(MAX_NAME_BYTES).collect();
        Self::open(above.unwrap_or_else(|| Path::new(".")), name)
    }

    fn open(path: &Path, name: Vec<u8>) -> Result<Self, EngineError> {
        let directory = File::open(path).map_err(|source| EngineError::Guard {
            directory: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            name,
        })
    }

    /// As the programs compare it.
    fn words(&self) -> types::guard_dir {
        let mut words = types::guard_dir {
            fd: u32::try_from(self.directory.as_raw_fd() + 1).unwrap_or_default(),
            ..types::guard_dir::default()
        };
        let places = words.name.iter_mut().zip(&mut words.mask);
        for ((name, mask), chunk) in places.zip(self.name.chunks(8)) {
            let (mut bytes, mut compared) = ([0; 8], [0; 8]);
            for ((byte, compared), from) in bytes.iter_mut().zip(&mut compared).zip(chunk) {
                (*byte, *compared) = (*from, u8::MAX);
            }
            (*name, *mask) = (u64::from_ne_bytes(bytes), u64::from_ne_bytes(compared));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_prefix_is_encoded_with_mask() {
        let place = tempfile::tempdir().unwrap();
        let words = |name: &str| {
            GuardedPath::file_prefix(&place.path().join(name))
                .unwrap()
                .words()
        };
        let short = words("audit.log");
        assert_eq!(
            short.name[..2],
            [u64::from_le_bytes(*b"audit.lo"), u64::from(b'g')]
        );
        assert_eq!(short.mask[..3], [u64::MAX, 0xff, 0]);
        assert_eq!(words(&"x".repeat(200)).mask[7], u64::MAX >> 8);
        let all = GuardedPath::directory(place.path()).unwrap().words();
        assert_eq!(all.mask, [0; 8]);
        assert_ne!(all.fd, 0);
        let missing = GuardedPath::file_prefix(&place.path().join("missing/audit.log"));
        assert!(missing.is_err());
    }

    #[test]
    fn duplicate_guarded_paths_are_removed() {
        let place = |ino, word| types::guard_dir {
            ino,
            mask: [word; 8],
            ..types::guard_dir::default()
        };
        let mut places = [
            place(1, 0),
            place(2, 7),
            place(1, 0),
            place(1, 7),
            place(0, 0),
        ];
        remove_duplicates(&mut places);
        assert_eq!(places.map(|place| place.ino), [1, 2, 0, 1, 0]);
    }
}
