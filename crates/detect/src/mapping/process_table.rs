//! The processes of which events told: programs and parents.
//!
//! The table is bounded: the process of which nothing was told for the longest time goes first, and processes that live
//! go last, so that a user who executes many programs hides no other parent. Processes that began before the log are
//! seeded from `/proc`.
//!
//! Users choose the arguments of their processes, also the first one, which is no evidence of a program.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::hash::BuildHasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use audit::record::assemble::EventRecords;
use audit::record::decode::Record;
use bstr::{BStr, ByteSlice as _};
use foldhash::fast::RandomState;

use super::head::Head;
use super::record::with_blanks;
use super::whole::{self, CommandLine};
use crate::sigma::Source;

/// Most processes.
const MAX_PROCESSES: usize = 16_384;
/// Most bytes of all texts.
const MAX_BYTES: usize = 16 << 20;
/// Most bytes of a text that is kept.
const MAX_TEXT_BYTES: usize = 4096;
/// Most living processes that are passed over when one must go.
const MAX_PASSED: usize = 64;
/// Most processes above one of which the program is looked up.
const MAX_FORKS: usize = 16;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id of the parent.
    pub parent: u32,
    /// Path of the program.
    pub image: Box<str>,
    /// Arguments with blanks between them; at most their first 4,096 bytes.
    pub command_line: Box<str>,
    /// Hash of the path, which most events are compared with.
    image_hash: u64,
    /// The event that told of the program.
    told: Stamp,
    generation: u64,
}

/// Time and serial of an event, which have an order in each process.
type Stamp = (u64, u16, u32);

/// Node, as a hash, and process id.
type Key = (u64, u32);

/// The processes.
#[derive(Debug, Default)]
pub struct ProcessTable {
    processes: HashMap<Key, Process, RandomState>,
    /// Oldest first; an entry of another generation is void.
    order: VecDeque<(Key, u64)>,
    bytes: usize,
    generation: u64,
    hasher: RandomState,
    /// `/proc` of the node without a name, or a directory of its form.
    proc_directory: Option<PathBuf>,
    /// When this process began: those that began later executed nothing of which no event tells.
    began: Option<u64>,
}

impl ProcessTable {
    /// Adds the processes of `/proc`, or of another directory of its form. Those that cannot be read are left out.
    pub fn seed(&mut self, proc_directory: &Path) {
        self.began = Stat::read(&proc_directory.join("self")).map(|stat| stat.began);
        let Ok(entries) = fs::read_dir(proc_directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                self.seed_process(&entry.path(), pid);
            }
        }
    }

    /// Reads what lives, and processes that are looked up, in `/proc`, or in another directory of its form.
    pub(super) fn look_up_in(&mut self, proc_directory: &Path) {
        self.proc_directory = Some(proc_directory.to_owned());
    }

    /// Adds a process that lives now, if its program is known: from `/proc`, or because it was forked by a known process
    /// and has executed nothing since.
    pub(super) fn look_up(&mut self, pid: u32) {
        let Some(directory) = &self.proc_directory else {
            return;
        };
        if let Some((parent, forker)) = self.forker(directory, pid) {
            let (image, command_line) = (forker.image.to_string(), forker.command_line.to_string());
            self.insert(
                (self.node(None), pid),
                parent,
                &image,
                &command_line,
                Stamp::default(),
            );
        } else {
            self.seed_process(&directory.join(pid.to_string()), pid);
        }
    }

    fn seed_process(&mut self, directory: &Path, pid: u32) {
        if let Some((parent, image, command_line)) = read(directory) {
            self.insert(
                (self.node(None), pid),
                parent,
                &image,
                &command_line,
                Stamp::default(),
            );
        }
    }

    /// The parent of a process that lives, and the next known process above it, of which it is a fork.
    fn forker(&self, proc_directory: &Path, pid: u32) -> Option<(u32, &Process)> {
        let read = |pid: u32| {
            let stat = Stat::read(&proc_directory.join(pid.to_string()))?;
            (stat.began > self.began?).then_some(stat.parent)
        };
        let parent = read(pid)?;
        let mut above = parent;
        for _ in 0..MAX_FORKS {
            if let Some(process) = self.get(None, above) {
                return (!process.adopts()).then_some((parent, process));
            }
            above = read(above)?;
        }
        None
    }

    /// A process of a node.
    #[must_use]
    pub fn get(&self, node: Option<&BStr>, pid: u32) -> Option<&Process> {
        self.processes.get(&(self.node(node), pid))
    }

    /// Processes from the parent of a process upwards, at most `most`.
    pub fn ancestors(
        &self,
        node: Option<&BStr>,
        parent: u32,
        most: usize,
    ) -> impl Iterator<Item = (u32, &Process)> {
        let node = self.node(node);
        let get = move |pid: u32| Some((pid, self.processes.get(&(node, pid))?));
        std::iter::successors(get(parent), move |(pid, process)| {
            get(process.parent).filter(|(parent, _)| parent != pid)
        })
        .take(most)
    }

    /// Learns from an event after it was evaluated.
    pub(super) fn update(
        &mut self,
        event: &EventRecords,
        records: &[Record<'_>],
        head: &Head<'_>,
        command_line: &CommandLine<'_>,
    ) {
        let key = (self.node(event.node()), head.pid);
        let is_exec = head.source == Some(Source::Process);
        let Some(image) = &head.caller.image else {
            return;
        };
        let known = self.processes.get(&key);
        let time = event.time();
        let stamp = (time.sec, time.milli, event.serial().0);
        // Another program in a process that executed none: its number is used again.
        let is_news = |known: &Process| {
            known.told < stamp && known.image_hash != self.hasher.hash_one(program(image))
        };
        if is_exec || known.is_none_or(is_news) {
            let command_line = match is_exec {
                true => Cow::Borrowed(command_line.get()),
                false => Cow::Owned(whole::proctitle(records)),
            };
            self.insert(key, head.ppid, image, &command_line, stamp);
            self.touch((key.0, head.ppid));
        }
        // The number is that of the caller's pid namespace, and the child may have executed a program before this call
        // returns: what is known of a process is better.
        if matches!(head.call, "clone" | "clone3" | "fork" | "vfork")
            && let Ok(child) = u32::try_from(head.exit)
            && child != 0
            && !self.processes.contains_key(&(key.0, child))
            && let Some(process) = self.processes.get(&key)
        {
            let (image, command_line) =
                (process.image.to_string(), process.command_line.to_string());
            self.insert((key.0, child), head.pid, &image, &command_line, stamp);
        }
    }

    fn node(&self, node: Option<&BStr>) -> u64 {
        node.map_or(0, |node| self.hasher.hash_one(node))
    }

    fn insert(&mut self, key: Key, parent: u32, image: &str, command_line: &str, told: Stamp) {
        self.generation += 1;
        let image = program(image);
        let process = Process {
            parent,
            image: image.into(),
            image_hash: self.hasher.hash_one(image),
            command_line: cut(command_line).into(),
            told,
            generation: self.generation,
        };
        self.bytes += process.len();
        self.order.push_back((key, self.generation));
        if let Some(old) = self.processes.insert(key, process) {
            self.bytes -= old.len();
        }
        let mut passed = 0;
        while self.processes.len() > MAX_PROCESSES
            || self.bytes > MAX_BYTES
            || self.order.len() > 2 * MAX_PROCESSES
        {
            let Some((key, generation)) = self.order.pop_front() else {
                break;
            };
            let current = self.processes.get(&key);
            if current.is_none_or(|process| process.generation != generation) {
                continue;
            }
            if passed < MAX_PASSED && self.lives(key) {
                passed += 1;
                self.touch(key);
            } else if let Some(old) = self.processes.remove(&key) {
                self.bytes -= old.len();
            }
        }
    }

    /// Has a process go last.
    fn touch(&mut self, key: Key) {
        if let Some(process) = self.processes.get_mut(&key) {
            self.generation += 1;
            process.generation = self.generation;
            self.order.push_back((key, self.generation));
        }
    }

    /// Whether a process of this machine lives.
    fn lives(&self, (node, pid): Key) -> bool {
        let directory = self.proc_directory.as_ref().filter(|_| node == 0);
        directory.is_some_and(|directory| directory.join(pid.to_string()).exists())
    }
}

impl Process {
    fn len(&self) -> usize {
        self.image.len() + self.command_line.len()
    }

    /// Whether it may be the parent of processes that it has not forked, as `init` is.
    ///
    /// # Source
    /// `PR_SET_CHILD_SUBREAPER` in `prctl(2)`.
    fn adopts(&self) -> bool {
        let name = self.image.rsplit('/').next();
        self.parent == 0 || matches!(name, Some("systemd" | "init"))
    }
}

/// The path of a program, which it keeps when its file is replaced while it runs, as by an update.
fn program(image: &str) -> &str {
    cut(image.strip_suffix(" (deleted)").unwrap_or(image))
}

/// The first bytes of a text.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// What the kernel tells everyone about a process.
struct Stat {
    parent: u32,
    /// When it began.
    ///
    /// # Units
    /// Clock ticks since the boot.
    began: u64,
}

impl Stat {
    /// Reads the state of a process in its directory of `/proc`.
    ///
    /// # Source
    /// `proc_pid_stat(5)`.
    fn read(directory: &Path) -> Option<Self> {
        let stat = fs::read(directory.join("stat")).ok()?;
        // The name in parentheses can have parentheses and blanks.
        let (_, after) = stat.rsplit_once_str(")")?;
        let mut fields = after.fields().map(|field| field.to_str().ok());
        let parent = fields.nth(1)??.parse().ok()?;
        let began = fields.nth(17).flatten();
        let began = began.and_then(|began| began.parse().ok());
        Some(Self {
            parent,
            began: began.unwrap_or(0),
        })
    }
}

/// Parent, program and arguments of a process in `/proc`.
///
/// # Source
/// `proc_pid_exe(5)` and `proc_pid_cmdline(5)`.
fn read(directory: &Path) -> Option<(u32, String, String)> {
    let parent = Stat::read(directory)?.parent;
    let command_line = fs::read(directory.join("cmdline")).ok()?;
    let image = match fs::read_link(directory.join("exe")) {
        Ok(image) => image.as_os_str().as_bytes().to_str_lossy().into_owned(),
        // Only the owner of a process may read the link, and nobody after Landlock is on.
        Err(_) if !is_of_root(directory) => return None,
        Err(_) => {
            let first = command_line.split(|&byte| byte == 0).next()?;
            first
                .starts_with(b"/")
                .then(|| first.to_str_lossy().into_owned())?
        }
    };
    Some((parent, image, with_blanks(&command_line)))
}

/// Whether all user ids of a process are those of root.
///
/// # Source
/// `proc_pid_status(5)`: the owner of the directory is root for processes of others too.
fn is_of_root(directory: &Path) -> bool {
    let status = fs::read(directory.join("status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix(b"Uid:"));
    ids.is_some_and(|ids| ids.fields().count() == 4 && ids.fields().all(|id| id == b"0"))
}
