//! Locking with `-e 2`: the lock note for later daemons, and the guard programs that stop root's tools from
//! changing BPF objects and logs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore as _, MapInfo, ProgramInput};

use super::Engine;
use crate::attach::{self, AttachedLink};
use crate::error::EngineError;
use crate::handover::lock_note::{CLAIM_PIN, read_lock_note};
use crate::handover::pins::{LOCK_NOTE_PIN, PLAN_PREFIX, PinDirectory};
use crate::handover::plan_snapshot::PlanSnapshot;
use crate::hooks::kernel_probe::KernelProbe;
use crate::hooks::program::Program;
use crate::load::ObjectSlots;
use crate::load::globals::{GUARD_FILES, GUARD_SLOTS};
use crate::skeleton::types;
use crate::sys::map_element;

/// Prefix of the pins of guard links.
const GUARD_PREFIX: &str = "guard-";
/// Maximum length of a compared name: `GUARD_WORDS` of `bpf/guard/guarded.bpf.h` times 8, minus one.
const MAX_NAME_BYTES: usize = 63;

impl<'s> Engine<'s> {
    /// Pins the lock note, which [`read_lock_note`] returns to later daemons. Does nothing when nothing is
    /// pinned.
    ///
    /// # Errors
    /// [`EngineError::Pin`].
    pub fn write_lock_note(&self, text: &[u8]) -> Result<(), EngineError> {
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        let current = read_lock_note(pins.path()).ok().flatten();
        if current.is_some_and(|current| current == text) {
            return Ok(());
        }
        let note = PlanSnapshot {
            names: Vec::new(),
            text: text.to_vec(),
        };
        note.to_map()
            .and_then(|map| pins.replace(LOCK_NOTE_PIN, map))
            .map_err(EngineError::pin("the lock note"))
    }

    /// Denies every other process changes to the pins, their maps, this process's executable, and `files`,
    /// including all files of their directories whose names start with theirs.
    ///
    /// With pins the guard lasts until reboot, and [`PinDirectory::claim_guard`] hands it to a later daemon.
    /// Without pins it ends with this process. Returns files that another process has open for writing: that process
    /// can still change them.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel has neither LSM programs nor programs on functions that it does not skip, or
    /// when a directory does not exist. Then nothing is guarded that was not guarded before.
    pub fn install_guard(
        &mut self,
        slots: &mut ObjectSlots<'s>,
        probe: &KernelProbe,
        files: &[PathBuf],
    ) -> Result<Vec<PathBuf>, EngineError> {
        let form = self.guard_form(probe)?;
        let setup = [&Program::GuardInit, &Program::GuardClaim];
        let programs = probe.guards.iter().chain(setup);
        self.objects
            .load_more(slots, &programs.copied().collect(), form)?;
        let mut guarded = Vec::new();
        if let Some(pins) = &self.pins {
            guarded.push(GuardedPath::directory(pins.path())?);
        }
        for file in files {
            guarded.push(GuardedPath::file_prefix(file)?);
        }
        self.set_guarded_paths(&guarded)?;
        self.update_guarded_maps()?;
        let mut pinned = Vec::new();
        let attached = self.attach_guards(&probe.guards, &mut pinned);
        if let (Err(_), Some(pins)) = (&attached, &self.pins) {
            // The error of the attachment is the one to report.
            let _results: Vec<_> = pinned.iter().map(|name| pins.remove(name)).collect();
        }
        self.guard_links.extend(attached?);
        self.guard_inodes(files)
    }

    /// Guards files that exist whatever their names are: they can have hard links. Returns files that another process
    /// has open for writing.
    fn guard_inodes(&self, prefixes: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
        let mut found = Vec::new();
        for prefix in prefixes {
            let failed = |source| EngineError::Guard {
                directory: prefix.clone(),
                source,
            };
            found.extend(files_with_prefix(prefix).map_err(failed)?);
        }
        let program = self.program(Program::GuardInit)?;
        let mut open = Vec::new();
        for files in found.chunks(GUARD_FILES) {
            let mut wire = [types::guard_file::default(); GUARD_FILES];
            for (to, (_, file)) in wire.iter_mut().zip(files) {
                to.fd = u32::try_from(file.as_raw_fd() + 1).unwrap_or_default();
            }
            self.globals.set_guard_files(&wire);
            let result = program.test_run(ProgramInput::default());
            result.map_err(|error| EngineError::system("guard files")(io::Error::other(error)))?;
            for (guarded, (path, file)) in self.globals.guard_files().iter().zip(files) {
                let own = own_writers(file).map_err(EngineError::system("list open files"))?;
                if guarded.writers > own {
                    open.push(path.clone());
                }
            }
        }
        Ok(open)
    }

    /// Attaches the guard programs that no previous daemon has pinned. Adds the names of new pins to `pinned`.
    fn attach_guards(
        &self,
        wanted: &[Program],
        pinned: &mut Vec<String>,
    ) -> Result<Vec<AttachedLink>, EngineError> {
        let pin = |pins: &PinDirectory, name: &str, fd: &dyn AsFd| {
            pins.pin(name, fd).map_err(EngineError::pin(name))
        };
        if let Some(pins) = self.pins.as_ref().filter(|pins| !pins.contains(CLAIM_PIN)) {
            pin(pins, CLAIM_PIN, self.program(Program::GuardClaim)?)?;
            pinned.push(CLAIM_PIN.to_owned());
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
                hook: "its LSM hook".to_owned(),
                source: source.into(),
            })?;
            if let Some(pins) = &self.pins {
                pin(pins, &name, &link.link)?;
                pinned.push(name);
            }
            guards.push(link);
        }
        Ok(guards)
    }

    /// Guards these paths, in addition to those already guarded.
    fn set_guarded_paths(&self, paths: &[GuardedPath]) -> Result<(), EngineError> {
        let mut dirs = self.globals.guarded();
        let mut free = dirs.iter_mut().filter(|dir| dir.ino == 0);
        for guarded in paths {
            let dir = free.next().ok_or_else(|| EngineError::Guard {
                directory: guarded.path.clone(),
                source: io::Error::other(format!("{GUARD_SLOTS} directories are guarded already")),
            })?;
            *dir = guarded.to_wire();
        }
        self.globals.set_guarded(&dirs);
        let program = self.program(Program::GuardInit)?;
        let result = program.test_run(ProgramInput::default());
        result.map_err(|error| {
            EngineError::system("resolve the guarded directories")(io::Error::other(error))
        })?;
        // The program has set the inodes, so duplicates of already guarded paths show now.
        let mut dirs = self.globals.guarded();
        remove_duplicates(&mut dirs);
        self.globals.set_guarded(&dirs);
        Ok(())
    }

    /// Sets the guarded maps to all current maps; maps of plan snapshots come and go.
    pub(super) fn update_guarded_maps(&self) -> Result<(), EngineError> {
        let failed = |source| EngineError::Map {
            map: "tlg_guard_maps",
            source,
        };
        let id = |map: &dyn AsFd| MapInfo::new(map.as_fd()).map(|map| map.info.id.to_ne_bytes());
        let mut wanted = BTreeSet::new();
        for (_, map) in self.objects.maps() {
            wanted.insert(id(&map).map_err(failed)?);
        }
        wanted.insert(id(&*self.checkpoint).map_err(failed)?);
        if let Some(pins) = &self.pins {
            let snapshots = pins.names(PLAN_PREFIX);
            let snapshots = snapshots.map_err(EngineError::pin("plan snapshots"))?;
            let snapshots = snapshots
                .iter()
                .map(|epoch| format!("{PLAN_PREFIX}{epoch}"));
            let lock_note = pins
                .contains(LOCK_NOTE_PIN)
                .then(|| LOCK_NOTE_PIN.to_owned());
            for name in snapshots.chain(lock_note) {
                let map = pins.get(&name).map_err(EngineError::pin(name))?;
                wanted.insert(id(&map).map_err(failed)?);
            }
        }
        let guarded = &self.objects.first().maps.tlg_guard_maps;
        let known: Vec<Vec<u8>> = guarded.keys().collect();
        for stale in known.iter().filter(|key| !wanted.contains(key.as_slice())) {
            guarded.delete(stale).map_err(failed)?;
        }
        for id in &wanted {
            let present = 1_u32.to_ne_bytes();
            map_element::write(guarded, id, &present).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether the guard is attached, by this daemon or by a previous one.
    pub(super) fn is_guarded(&self) -> bool {
        !self.guard_links.is_empty() || self.pins.as_ref().is_some_and(is_guarded)
    }
}

/// Whether a guard link is pinned.
fn is_guarded(pins: &PinDirectory) -> bool {
    pins.names(GUARD_PREFIX)
        .is_ok_and(|names| !names.is_empty())
}

/// The regular files of a directory whose names start with the name of `prefix`, open without access.
fn files_with_prefix(prefix: &Path) -> io::Result<Vec<(PathBuf, File)>> {
    let name = prefix.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let above = prefix
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    let mut files = Vec::new();
    for entry in fs::read_dir(above.unwrap_or_else(|| Path::new(".")))? {
        let entry = entry?;
        if !entry.file_type()?.is_file() || !entry.file_name().as_bytes().starts_with(name) {
            continue;
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH);
        files.push((entry.path(), options.open(entry.path())?));
    }
    Ok(files)
}

/// How often this process has a file open for writing.
fn own_writers(file: &File) -> io::Result<u32> {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let wanted = identity(file.metadata()?);
    let mut writers = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // The descriptor of the directory itself is gone, and others may be.
        let (Ok(found), Ok(link)) = (fs::metadata(entry.path()), entry.metadata()) else {
            continue;
        };
        // The link has the access of the descriptor.
        if identity(found) == wanted && link.permissions().mode() & 0o200 != 0 {
            writers += 1;
        }
    }
    Ok(writers)
}

/// Clears entries that repeat an earlier one.
fn remove_duplicates(dirs: &mut [types::guard_dir]) {
    let mut known = Vec::new();
    for dir in dirs {
        let key = (dir.ino, dir.dev, dir.name, dir.mask);
        if known.contains(&key) {
            *dir = types::guard_dir::default();
        } else {
            known.push(key);
        }
    }
}

/// A guarded directory, opened, and the prefix of the guarded names in it.
struct GuardedPath {
    path: PathBuf,
    directory: File,
    name: Vec<u8>,
}

impl GuardedPath {
    /// All files of a directory.
    fn directory(directory: &Path) -> Result<Self, EngineError> {
        Self::open(directory, Vec::new())
    }

    /// A file, and all files of its directory whose names start with its name.
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

    /// The entry for the guard programs; `guard_init()` sets the inode from the descriptor.
    fn to_wire(&self) -> types::guard_dir {
        let mut dir = types::guard_dir {
            fd: u32::try_from(self.directory.as_raw_fd() + 1).unwrap_or_default(),
            ..types::guard_dir::default()
        };
        let words = dir.name.iter_mut().zip(&mut dir.mask);
        for ((name, mask), chunk) in words.zip(self.name.chunks(8)) {
            let (mut bytes, mut compared) = ([0; 8], [0; 8]);
            for ((byte, compared), from) in bytes.iter_mut().zip(&mut compared).zip(chunk) {
                (*byte, *compared) = (*from, u8::MAX);
            }
            (*name, *mask) = (u64::from_ne_bytes(bytes), u64::from_ne_bytes(compared));
        }
        dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_prefix_is_encoded_with_mask() {
        let directory = tempfile::tempdir().unwrap();
        let encoded = |name: &str| {
            GuardedPath::file_prefix(&directory.path().join(name))
                .unwrap()
                .to_wire()
        };
        let short = encoded("audit.log");
        assert_eq!(
            short.name[..2],
            [u64::from_le_bytes(*b"audit.lo"), u64::from(b'g')]
        );
        assert_eq!(short.mask[..3], [u64::MAX, 0xff, 0]);
        assert_eq!(encoded(&"x".repeat(200)).mask[7], u64::MAX >> 8);
        let all = GuardedPath::directory(directory.path()).unwrap().to_wire();
        assert_eq!(all.mask, [0; 8]);
        assert_ne!(all.fd, 0);
        let missing = GuardedPath::file_prefix(&directory.path().join("missing/audit.log"));
        assert!(missing.is_err());
    }

    #[test]
    fn files_are_found_and_own_writers_counted() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        for name in ["audit.log", "audit.log.1", "other"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let _writer = OpenOptions::new().append(true).open(&log).unwrap();
        let _reader = File::open(&log).unwrap();
        let mut found = files_with_prefix(&log).unwrap();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let writers = |(path, file): &(PathBuf, File)| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, own_writers(file).unwrap())
        };
        let found: Vec<_> = found.iter().map(writers).collect();
        assert_eq!(
            found,
            [("audit.log".to_owned(), 1), ("audit.log.1".to_owned(), 0)]
        );
    }

    #[test]
    fn duplicate_guarded_paths_are_removed() {
        let dir = |ino, word| types::guard_dir {
            ino,
            mask: [word; 8],
            ..types::guard_dir::default()
        };
        let mut dirs = [dir(1, 0), dir(2, 7), dir(1, 0), dir(1, 7), dir(0, 0)];
        remove_duplicates(&mut dirs);
        assert_eq!(dirs.map(|dir| dir.ino), [1, 2, 0, 1, 0]);
    }
}
