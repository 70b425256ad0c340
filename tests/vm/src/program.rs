//! Programs that make exactly the syscalls of a test.
//!
//! A C library chooses the syscall behind a function, and a test machine has no 32-bit C library. `program.c`
//! is a freestanding interpreter of a table of syscalls; `build.rs` compiles it for each [`Entry`]. This
//! module appends the table and the data that it points to, and extends the one segment of the ELF file.
//!
//! The table has words of 64 bits: the header `rounds`, `once`, `steps`, `counts` (address, or 0), `watches`;
//! then the steps, each with `kind`, `number`, `saved` (address, or 0), `watched` (address, or 0) and the kind
//! and value of six arguments. `steps` counts those of the first task; those of other tasks follow.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::machine::PROGRAMS;
pub(crate) use entry::Entry;

/// Address of the program, as in `program.ld`.
const BASE: u64 = 0x40_0000;

/// Size of [`Arg::Buffer`]; a `struct new_utsname` has 390 bytes.
const BUFFER_BYTES: usize = 512;

const HEADER_WORDS: usize = 5;
const STEP_WORDS: usize = 16;
const WORD_BYTES: usize = 8;
const MAX_ARGS: usize = 6;

const STEP_CALL: u64 = 0;
const STEP_STORE: u64 = 1;
const STEP_TASK: u64 = 2;

/// Bytes of a thread's stack.
const STACK_BYTES: usize = 4096;

const ARG_NUMBER: u64 = 0;
const ARG_RESULT: u64 = 1;
const ARG_WORD: u64 = 2;
const ARG_ARGV: u64 = 3;

/// An argument of a syscall.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    /// A number.
    Number(i64),
    /// Address of a string.
    Text(&'static str),
    /// Address of a null-terminated array of strings.
    Texts(&'static [&'static str]),
    /// Address of writable bytes.
    Bytes(Vec<u8>),
    /// Address of writable bytes that all uses of this name share; the first use defines them.
    Shared(&'static str, Vec<u8>),
    /// Address of an array of words, 8 bytes wide for [`Entry::Syscall`], else 4. [`Arg::Result`],
    /// [`Arg::Saved`] and [`Arg::Argument`] are 0 in it.
    Words(Vec<Self>),
    /// The result of the previous syscall.
    Result,
    /// The result of the syscall that was saved under this name.
    Saved(&'static str),
    /// An element of the program's own `argv`.
    Argument(u8),
    /// Address of [`BUFFER_BYTES`] writable bytes.
    Buffer,
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Arg {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&'static str> for Arg {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

/// A program: syscalls in order, in rounds.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    entry: Entry,
    rounds: u32,
    counts: bool,
    /// Number of leading steps that only the first round makes.
    once: usize,
    steps: Vec<TableStep>,
    /// Steps of the other tasks.
    tasks: Vec<Vec<TableStep>>,
}

/// The kind of another task of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A thread. Only programs of [`Entry::Syscall`] can start one.
    Thread,
    /// A child process.
    Child,
}

impl Task {
    /// Flags of `clone`: a thread shares everything but its stack, a child nothing.
    const fn flags(self) -> u64 {
        match self {
            // VM, FS, FILES, SIGHAND, THREAD, SYSVSEM
            Self::Thread => 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000,
            Self::Child => 17, // SIGCHLD
        }
    }
}

/// A step of a program.
#[derive(Clone, Debug)]
enum TableStep {
    Call(TableCall),
    /// Writes a word to memory.
    Store {
        base: Option<&'static str>,
        at: u64,
        word: u64,
    },
    /// Starts a task that runs the steps of this number.
    Task {
        kind: Task,
        steps: usize,
        saved: Option<&'static str>,
    },
}

/// A syscall.
#[derive(Clone, Debug)]
struct TableCall {
    number: u32,
    args: Vec<Arg>,
    /// Name of the result.
    saved: Option<&'static str>,
    /// Address of a word that another process may change during the syscall.
    watched: Option<u64>,
}

/// A vector of arguments of different types.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { vec![$($crate::program::Arg::from($arg)),*] };
}
pub(crate) use args;

impl Program {
    /// A program that exits with status 0.
    pub(crate) const fn new(entry: Entry) -> Self {
        Self {
            entry,
            rounds: 1,
            counts: false,
            once: 0,
            steps: Vec::new(),
            tasks: Vec::new(),
        }
    }

    /// Adds the start of a task that runs the steps of `program`, which starts no others, and exits. Its number is
    /// saved under this name.
    pub(crate) fn start(mut self, kind: Task, program: Self, saved: Option<&'static str>) -> Self {
        let steps = self.tasks.len();
        self.steps.push(TableStep::Task { kind, steps, saved });
        self.tasks.push(program.steps);
        self
    }

    /// Adds a syscall by its number in the entry's table.
    pub(crate) fn call(mut self, number: u32, args: Vec<Arg>) -> Self {
        self.steps.push(TableStep::Call(TableCall {
            number,
            args,
            saved: None,
            watched: None,
        }));
        self
    }

    /// Saves the result of the last syscall for [`Arg::Saved`].
    pub(crate) fn save(mut self, name: &'static str) -> Self {
        if let Some(TableStep::Call(call)) = self.steps.last_mut() {
            call.saved = Some(name);
        }
        self
    }

    /// Counts how often the last syscall ends with another word at an address than it began with. The program
    /// writes the count to standard output at its end, in 8 bytes.
    pub(crate) fn watch(mut self, at: u64) -> Self {
        if let Some(TableStep::Call(call)) = self.steps.last_mut() {
            call.watched = Some(at);
        }
        self
    }

    /// Adds a write of a word to memory that an earlier syscall has mapped: at address `at`, or at that offset
    /// from the result saved as `base`.
    pub(crate) fn store(mut self, base: Option<&'static str>, at: u64, word: u64) -> Self {
        self.steps.push(TableStep::Store { base, at, word });
        self
    }

    /// Runs the steps added so far once, and those added later in so many rounds.
    pub(crate) fn then_rounds(mut self, rounds: u32) -> Self {
        self.once = self.steps.len();
        self.rounds(rounds)
    }

    /// Sets the number of rounds.
    pub(crate) const fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Reads the time stamp counter before and after each syscall. At its end the program writes the sum of the
    /// differences in each round to standard output, in words of 64 bits, and exits with status 1 if the last
    /// syscall of any round failed.
    pub(crate) const fn counting(mut self) -> Self {
        self.counts = true;
        self
    }

    /// Writes the program to a file that anyone may run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.elf())?;
        fs::set_permissions(path, Permissions::from_mode(0o755))
    }

    /// Writes the program to [`PROGRAMS`] under this name; returns its path.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn install(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = Path::new(PROGRAMS).join(name);
        self.write(&path).context("cannot write a program")?;
        Ok(path)
    }

    /// The ELF file.
    fn elf(&self) -> Vec<u8> {
        let mut file = self.entry.interpreter();
        let counts = [&self.steps].into_iter().chain(&self.tasks).map(Vec::len);
        let starts: Vec<usize> = counts
            .scan(0, |end, count| {
                let start = *end;
                *end += count;
                Some(start)
            })
            .collect();
        let all = || [&self.steps].into_iter().chain(&self.tasks).flatten();
        let words = HEADER_WORDS + STEP_WORDS * all().count();
        let mut data = Data {
            bytes: Vec::new(),
            address: BASE + size(file.len() + WORD_BYTES * words),
            word_bytes: if self.entry == Entry::Syscall { 8 } else { 4 },
            names: BTreeMap::new(),
            tasks: starts
                .iter()
                .skip(1)
                .copied()
                .zip(self.tasks.iter().map(Vec::len))
                .collect(),
        };
        let mut steps = Vec::new();
        for step in all() {
            data.step(step, &mut steps);
        }
        data.align();
        let end = data.end();
        let watches = self.steps.iter().any(TableStep::is_watched);
        let table = [
            self.rounds.into(),
            size(self.once),
            size(self.steps.len()),
            if self.counts { end } else { 0 },
            watches.into(),
        ];
        let table = table.into_iter().chain(steps);
        file.extend(table.flat_map(u64::to_le_bytes));
        file.extend(data.bytes);
        let counts = if self.counts {
            size(WORD_BYTES) * u64::from(self.rounds)
        } else {
            0
        };
        self.entry.set_segment_size(&mut file, counts);
        file
    }
}

impl TableStep {
    const fn is_watched(&self) -> bool {
        matches!(self, Self::Call(call) if call.watched.is_some())
    }
}

/// The data that arguments point to.
struct Data {
    bytes: Vec<u8>,
    /// Address of the first byte.
    address: u64,
    /// Size of a word in [`Arg::Words`].
    word_bytes: usize,
    /// Addresses of named data.
    names: BTreeMap<&'static str, u64>,
    /// First step and number of steps of each other task.
    tasks: Vec<(usize, usize)>,
}

impl Data {
    fn end(&self) -> u64 {
        self.address + size(self.bytes.len())
    }

    fn align(&mut self) {
        while !self.end().is_multiple_of(size(WORD_BYTES)) {
            self.bytes.push(0);
        }
    }

    fn text(&mut self, text: &str) -> u64 {
        let at = self.end();
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        at
    }

    /// Adds bytes at the alignment of any structure.
    fn bytes(&mut self, bytes: &[u8]) -> u64 {
        self.align();
        let at = self.end();
        self.bytes.extend(bytes);
        at
    }

    /// The address of named bytes; the first call defines them.
    fn named(&mut self, name: &'static str, bytes: &[u8]) -> u64 {
        if let Some(&at) = self.names.get(name) {
            return at;
        }
        let at = self.bytes(bytes);
        self.names.insert(name, at);
        at
    }

    fn saved(&mut self, name: &'static str) -> u64 {
        self.named(name, &[0; WORD_BYTES])
    }

    fn words(&mut self, words: &[u64]) -> u64 {
        let width = self.word_bytes;
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.to_le_bytes().into_iter().take(width))
            .collect();
        self.bytes(&bytes)
    }

    /// Adds the table's words of a step.
    fn step(&mut self, step: &TableStep, table: &mut Vec<u64>) {
        let mut args: Vec<(u64, u64)>;
        match step {
            TableStep::Call(call) => {
                args = call.args.iter().map(|arg| self.arg(arg)).collect();
                let saved = call.saved.map_or(0, |name| self.saved(name));
                let number = call.number.into();
                table.extend([STEP_CALL, number, saved, call.watched.unwrap_or(0)]);
            }
            TableStep::Store { base, at, word } => {
                let base = base.map_or((ARG_NUMBER, 0), |name| (ARG_WORD, self.saved(name)));
                args = vec![base, (ARG_NUMBER, *at), (ARG_NUMBER, *word)];
                table.extend([STEP_STORE, 0, 0, 0]);
            }
            TableStep::Task { kind, steps, saved } => {
                let (first, count) = self.tasks.get(*steps).copied().unwrap_or_default();
                // A stack grows downwards.
                let stack = match kind {
                    Task::Thread => self.bytes(&[0; STACK_BYTES]) + size(STACK_BYTES),
                    Task::Child => 0,
                };
                let numbers = [kind.flags(), stack, size(first), size(count)];
                args = numbers.map(|number| (ARG_NUMBER, number)).to_vec();
                let saved = saved.map_or(0, |name| self.saved(name));
                table.extend([STEP_TASK, 0, saved, 0]);
            }
        }
        args.resize(MAX_ARGS, (ARG_NUMBER, 0));
        table.extend(args.into_iter().flat_map(|(kind, value)| [kind, value]));
    }

    /// Kind and value of an argument.
    fn arg(&mut self, arg: &Arg) -> (u64, u64) {
        match arg {
            Arg::Result => (ARG_RESULT, 0),
            Arg::Saved(name) => (ARG_WORD, self.saved(name)),
            Arg::Argument(number) => (ARG_ARGV, (*number).into()),
            constant => (ARG_NUMBER, self.constant(constant)),
        }
    }

    /// The value of an argument that does not depend on the run; else 0.
    fn constant(&mut self, arg: &Arg) -> u64 {
        match arg {
            Arg::Number(number) => number.cast_unsigned(),
            Arg::Text(text) => self.text(text),
            Arg::Texts(texts) => {
                let mut words: Vec<u64> = texts.iter().map(|text| self.text(text)).collect();
                words.push(0);
                self.words(&words)
            }
            Arg::Bytes(bytes) => self.bytes(bytes),
            Arg::Shared(name, bytes) => self.named(name, bytes),
            Arg::Words(args) => {
                let words: Vec<u64> = args.iter().map(|arg| self.constant(arg)).collect();
                self.words(&words)
            }
            Arg::Buffer => self.named("(buffer)", &[0; BUFFER_BYTES]),
            Arg::Result | Arg::Saved(_) | Arg::Argument(_) => 0,
        }
    }
}

fn size(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
