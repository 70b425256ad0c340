//! The processes of which events told: programs and parents.
//!
//! The table is bounded: the process that was told of first goes first. Processes that began before the log are seeded
//! from `/proc`.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use audit::record::assemble::EventRecords;
use audit::record::decode::Record;
use bstr::{BStr, ByteSlice as _};
use logs::event_values::decoded;

use super::record::with_blanks;
use super::whole::Head;

/// Most processes.
const MAX_PROCESSES: usize = 16_384;
/// Most bytes of all texts.
const MAX_BYTES: usize = 16 << 20;
/// Most bytes of a text that is kept.
const MAX_TEXT_BYTES: usize = 4096;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id of the parent.
    pub parent: u32,
    /// Path of the program.
    pub image: Box<str>,
    /// Arguments with blanks between them; at most their first 4,096 bytes.
    pub command_line: Box<str>,
    generation: u64,
}

/// Node, as a hash, and process id.
type Key = (u64, u32);

/// The processes.
#[derive(Debug, Default)]
pub struct ProcessTable {
    processes: HashMap<Key, Process>,
    /// Oldest first; an entry of another generation is void.
    order: VecDeque<(Key, u64)>,
    bytes: usize,
    generation: u64,
    hasher: RandomState,
}

impl ProcessTable {
    /// Adds the processes of `/proc`, or of another directory of its form. Those that cannot be read are left out.
    pub fn seed(&mut self, proc_directory: &Path) {
        let Ok(entries) = fs::read_dir(proc_directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                self.seed_process(proc_directory, pid);
            }
        }
    }

    /// Adds a process of `/proc`, if it can be read.
    pub(super) fn seed_process(&mut self, proc_directory: &Path, pid: u32) {
        let directory = proc_directory.join(pid.to_string());
        if let Some((parent, image, command_line)) = read(&directory) {
            self.insert((self.node(None), pid), parent, image, command_line);
        }
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
    pub(super) fn update(&mut self, event: &EventRecords, records: &[Record<'_>], head: &Head<'_>) {
        let key = (self.node(event.node()), head.pid);
        let is_exec = matches!(head.call, "execve" | "execveat") && head.success;
        if is_exec || !self.processes.contains_key(&key) {
            let text = |kind: &str, name: &str| {
                let record = records.iter().find(|record| record.kind == kind)?;
                decoded(record, &record.field(name)?)
            };
            let Some(image) = text("SYSCALL", "exe").or_else(|| text("URINGOP", "exe")) else {
                return;
            };
            let arguments = match is_exec {
                true => arguments(records),
                false => None,
            };
            let command_line =
                arguments.or_else(|| Some(with_blanks(&text("PROCTITLE", "proctitle")?)));
            let image = image.to_str_lossy().into_owned();
            self.insert(key, head.ppid, image, command_line.unwrap_or_default());
        }
        if matches!(head.call, "clone" | "clone3" | "fork" | "vfork")
            && let Ok(child) = u32::try_from(head.exit)
            && child != 0
            && let Some(process) = self.processes.get(&key)
        {
            let (image, command_line) =
                (process.image.to_string(), process.command_line.to_string());
            self.insert((key.0, child), head.pid, image, command_line);
        }
    }

    fn node(&self, node: Option<&BStr>) -> u64 {
        node.map_or(0, |node| self.hasher.hash_one(node))
    }

    fn insert(&mut self, key: Key, parent: u32, image: String, command_line: String) {
        self.generation += 1;
        let process = Process {
            parent,
            image: cut(image),
            command_line: cut(command_line),
            generation: self.generation,
        };
        self.bytes += process.len();
        self.order.push_back((key, self.generation));
        if let Some(old) = self.processes.insert(key, process) {
            self.bytes -= old.len();
        }
        while self.processes.len() > MAX_PROCESSES
            || self.bytes > MAX_BYTES
            || self.order.len() > 2 * MAX_PROCESSES
        {
            let Some((key, generation)) = self.order.pop_front() else {
                break;
            };
            let current = self.processes.get(&key);
            if current.is_some_and(|process| process.generation == generation)
                && let Some(old) = self.processes.remove(&key)
            {
                self.bytes -= old.len();
            }
        }
    }
}

impl Process {
    fn len(&self) -> usize {
        self.image.len() + self.command_line.len()
    }
}

/// The arguments of a program from its EXECVE records.
fn arguments(records: &[Record<'_>]) -> Option<String> {
    let found = audit::record::execve::readable(records);
    let args = found.args.iter().map(|arg| arg.to_str_lossy());
    let line = args.collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// The first bytes of a text.
fn cut(mut text: String) -> Box<str> {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.into_boxed_str()
}

/// Parent, program and arguments of a process in `/proc`.
///
/// # Source
/// `proc_pid_stat(5)`, `proc_pid_exe(5)` and `proc_pid_cmdline(5)`.
fn read(directory: &Path) -> Option<(u32, String, String)> {
    let stat = fs::read(directory.join("stat")).ok()?;
    // The name in parentheses can have parentheses and blanks.
    let (_, after) = stat.rsplit_once_str(")")?;
    let parent = after.fields().nth(1)?.to_str().ok()?.parse().ok()?;
    let command_line = fs::read(directory.join("cmdline")).ok()?;
    let image = match fs::read_link(directory.join("exe")) {
        Ok(image) => image.as_os_str().as_bytes().to_str_lossy().into_owned(),
        // Only the owner of a process may read the link.
        Err(_) => {
            let first = command_line.split(|&byte| byte == 0).next()?;
            first
                .starts_with(b"/")
                .then(|| first.to_str_lossy().into_owned())?
        }
    };
    Some((parent, image, with_blanks(&command_line)))
}
