//! What `-e 2` locks: a note for daemons that come after this one, and programs that keep root's own tools from
//! what audits.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore as _, MapFlags, MapInfo, ProgramInput, libbpf_sys};

use super::Engine;
use crate::attach;
use crate::data::PLACES;
use crate::descriptor::from_libbpf;
use crate::error::EngineError;
use crate::load::Places;
use crate::load::skel::types;
use crate::note::Note;
use crate::pins::{Pins, c_path};
use crate::program::Program;
use crate::survive::PLAN;

/// Name of the note.
const LOCKED: &str = "locked";
/// What names of links begin with that hold a program of the guard.
const GUARD: &str = "guard-";
/// How much of a file's name is compared: `GUARD_WORDS` of `bpf/guard.bpf.h`, without the last byte.
const NAME_BYTES: usize = 63;

impl<'s> Engine<'s> {
    /// Notes what is locked, where things are pinned: see [`locked_in`]. Without pins there is nobody to note it
    /// for.
    ///
    /// # Errors
    /// [`EngineError::Pinned`].
    pub fn lock(&self, text: &[u8]) -> Result<(), EngineError> {
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        let note = Note {
            names: Vec::new(),
            text: text.to_vec(),
        };
        note.to_map()
            .and_then(|map| pins.keep(LOCKED, map))
            .map_err(|source| EngineError::Pinned {
                what: "a note about what is locked".to_owned(),
                source,
            })
    }

    /// Keeps others than this program from changing what audits: what is pinned and its maps, and these files
    /// with all in their directories whose names go on after theirs. Pinned like everything else, it ends when
    /// the machine does; otherwise with this process.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel has no programs on functions, or a directory is not there. Nothing is
    /// guarded then that was not before.
    pub fn guard(&mut self, places: &mut Places<'s>, files: &[PathBuf]) -> Result<(), EngineError> {
        let programs = Program::GUARDS.iter().chain([&Program::GuardBegin]);
        self.objects
            .load_more(places, &programs.copied().collect())?;
        let pins = self.pins.clone();
        let mut guarded = Vec::new();
        if let Some(pins) = &pins {
            guarded.push(Guarded::all_of(pins.path())?);
        }
        for file in files {
            guarded.push(Guarded::like(file)?);
        }
        self.guard_these(&guarded)?;
        self.guard_maps()?;
        for &program in Program::GUARDS {
            let name = format!("{GUARD}{}", program.name());
            if pins.as_ref().is_some_and(|pins| pins.has(&name)) {
                continue; // since a daemon before this one
            }
            let held = attach::place(self.program(program)?, None);
            let held = held.map_err(|source| EngineError::Attach {
                program: program.name().to_owned(),
                hook: "the function of the kernel that asks security modules".to_owned(),
                source: source.into(),
            })?;
            if let Some(pins) = &pins {
                pins.keep(&name, &held.link)
                    .map_err(|source| EngineError::Pinned { what: name, source })?;
            }
            self.guards.push(held);
        }
        Ok(())
    }

    /// Says which directories and names are guarded from now on.
    fn guard_these(&self, guarded: &[Guarded]) -> Result<(), EngineError> {
        let mut words = [types::guarded::default(); PLACES];
        for (word, guarded) in words.iter_mut().zip(guarded) {
            *word = guarded.words();
        }
        self.data.guard(&words);
        let program = self.program(Program::GuardBegin)?;
        let ran = program.test_run(ProgramInput::default());
        ran.map(drop).map_err(|error| EngineError::Machine {
            what: "what is to be guarded",
            source: io::Error::other(error),
        })
    }

    /// Keeps others from all maps that are there now, if anything is guarded.
    pub(super) fn guard_maps(&self) -> Result<(), EngineError> {
        let own = &self.objects.first().maps;
        let put = |map: &dyn AsFd| {
            let number = MapInfo::new(map.as_fd()).map(|about| about.info.id);
            number
                .and_then(|number| {
                    let (key, value) = (number.to_ne_bytes(), 1_u32.to_ne_bytes());
                    own.tlg_guarded_maps.update(&key, &value, MapFlags::ANY)
                })
                .map_err(|source| EngineError::Map {
                    map: "tlg_guarded_maps",
                    source,
                })
        };
        for (_, map) in self.objects.maps() {
            put(&map)?;
        }
        put(&*self.ledger)?;
        let Some(pins) = &self.pins else {
            return Ok(());
        };
        let pinned = |source| EngineError::Pinned {
            what: "notes".to_owned(),
            source,
        };
        let notes = pins.names(PLAN).map_err(pinned)?;
        let notes = notes.iter().map(|epoch| format!("{PLAN}{epoch}"));
        for name in notes.chain(pins.has(LOCKED).then(|| LOCKED.to_owned())) {
            put(&pins.find(&name).map_err(pinned)?)?;
        }
        Ok(())
    }

    /// Whether others are kept from what audits.
    pub(super) fn is_guarded(&self) -> bool {
        !self.guards.is_empty() || self.pins.as_ref().is_some_and(is_guarded)
    }
}

/// What [`Engine::lock`] has noted in this directory of pins since the machine started.
///
/// # Errors
/// When it cannot be read: of kind `PermissionDenied` where it is guarded, and this is another program than the
/// one that has locked it.
pub fn locked_in(directory: &Path) -> io::Result<Option<Vec<u8>>> {
    let path = c_path(&directory.join(LOCKED))?;
    // SAFETY: the path is a string that outlives the call.
    let answer = unsafe { libbpf_sys::bpf_obj_get(path.as_c_str().as_ptr()) };
    match from_libbpf(answer) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(Note::of_map(found?)?.text)),
    }
}

/// Whether a guard is pinned.
fn is_guarded(pins: &Pins) -> bool {
    pins.names(GUARD).is_ok_and(|names| !names.is_empty())
}

/// A directory that is open, and how names in it begin that are guarded.
struct Guarded {
    directory: File,
    name: Vec<u8>,
}

impl Guarded {
    /// All names.
    fn all_of(directory: &Path) -> Result<Self, EngineError> {
        Ok(Self {
            directory: open(directory)?,
            name: Vec::new(),
        })
    }

    /// The name of a file, and all that go on after it.
    fn like(file: &Path) -> Result<Self, EngineError> {
        let name = file.file_name().map(OsStr::as_bytes).unwrap_or_default();
        let above = file.parent().filter(|above| !above.as_os_str().is_empty());
        Ok(Self {
            directory: open(above.unwrap_or_else(|| Path::new(".")))?,
            name: name.iter().copied().take(NAME_BYTES).collect(),
        })
    }

    /// As the programs compare it.
    fn words(&self) -> types::guarded {
        let mut words = types::guarded {
            fd: u32::try_from(self.directory.as_raw_fd() + 1).unwrap_or_default(),
            ..types::guarded::default()
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

fn open(directory: &Path) -> Result<File, EngineError> {
    File::open(directory).map_err(|source| EngineError::Unguarded {
        directory: directory.to_owned(),
        source,
    })
}
