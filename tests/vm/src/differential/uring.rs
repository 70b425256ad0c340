//! Operations through `io_uring`: by the submitter, by its workers, by the polling thread, and by the submitter at
//! the end of another syscall after which an operation is ready.
//!
//! One operation runs at a time and its completion is awaited: both auditors see the same order. All entries of the
//! queue are the first one, because the index array is all zeros; those of a chain are the first two in turn.
//!
//! # Source
//! `struct io_uring_sqe` in `include/uapi/linux/io_uring.h`, `struct io_rings` in
//! `include/linux/io_uring_types.h`, Linux 6.1 and 6.12.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use audit::table;
use bstr::ByteSlice as _;

use super::steps::{self, ProgramStep, Run, RunAs, Store, numbers, step};
use crate::machine::PROGRAMS;
use crate::program::{Arg, Entry, Program};

/// Names of the mappings of the queues and of the entries, whose addresses the kernel chooses.
const RINGS: &str = "rings";
const ENTRY: &str = "entries";
/// Address of the memory that entries point to.
const DATA: &str = "data";
const DATA_AT: u64 = 0x1020_0000;
/// Addresses of two names and a structure.
const OLD: u64 = 0;
const NEW: u64 = 0x400;
const HOW: u64 = 0x800;

/// Codes of operations.
pub(crate) mod op {
    pub(crate) const NOP: u64 = 0;
    pub(crate) const POLL_ADD: u64 = 6;
    pub(crate) const CONNECT: u64 = 16;
    pub(crate) const FALLOCATE: u64 = 17;
    pub(crate) const OPENAT: u64 = 18;
    pub(crate) const CLOSE: u64 = 19;
    pub(crate) const OPENAT2: u64 = 28;
    pub(crate) const SHUTDOWN: u64 = 34;
    pub(crate) const RENAMEAT: u64 = 35;
    pub(crate) const UNLINKAT: u64 = 36;
    pub(crate) const MKDIRAT: u64 = 37;
    pub(crate) const SYMLINKAT: u64 = 38;
    pub(crate) const LINKAT: u64 = 39;
    pub(crate) const FSETXATTR: u64 = 41;
    pub(crate) const SETXATTR: u64 = 42;
    pub(crate) const GETXATTR: u64 = 44;
}

/// `AT_FDCWD`, in 32 bits.
pub(crate) const CWD: u64 = 0xffff_ff9c;
const O_CREAT_RDWR: u64 = 0o102;
const AT_REMOVEDIR: u64 = 0x200;
const SETUP_SQPOLL: u32 = 1 << 1;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
/// Milliseconds after which the polling thread sleeps.
const PATIENCE: u32 = 1;
/// Flags of an entry, at their position in its first word.
const LINKED: u64 = 1 << 10;
const BY_WORKER: u64 = 1 << 12;
const ENTRY_BYTES: u64 = 64;
const POLLIN: u64 = 1;
const IN_OPEN: i32 = 0x20;
/// Descriptors after that of the queues.
const SOCKET: u64 = 4;
const EVENTS: u64 = 5;
const NOTES: u64 = 6;
const ENTER_GETEVENTS: i32 = 1;
const ENTER_SQ_WAKEUP: i32 = 2;

/// Offsets in the queues of the fields that a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Tail of the submission queue.
    pub(crate) submitted: u64,
    /// Head of the completion queue.
    reaped: u64,
    /// The index array of entries.
    list: u64,
}

impl Layout {
    /// Queries the kernel with a program in this directory.
    ///
    /// # Errors
    /// If the kernel lacks `io_uring`.
    pub(crate) fn ask(directory: &Path) -> anyhow::Result<Self> {
        let parameters = || Arg::Shared("parameters", vec![0; 120]);
        let path = directory.join("layout");
        Program::new(Entry::Syscall)
            .call(425, vec![8.into(), parameters()]) // io_uring_setup
            .call(1, vec![1.into(), parameters(), 120.into()]) // write
            .write(&path)
            .context("cannot write a program")?;
        let output = Command::new(&path).output().context("cannot start it")?;
        let (words, _) = output.stdout.as_chunks();
        let word = |at: usize| {
            let word = words.get(at).copied().map(u32::from_ne_bytes);
            word.map(u64::from).context("no parameters of io_uring")
        };
        Ok(Self {
            submitted: word(11)?,
            reaped: word(20)?,
            list: word(16)?,
        })
    }

    /// Writes head and tail, as a whole: they may share a word.
    fn counts(self, submitted: u64, reaped: u64) -> Vec<Store> {
        let place = |at, word| Store {
            base: RINGS,
            at,
            word,
        };
        if self.reaped == self.submitted + 4 {
            vec![place(self.submitted, submitted | (reaped << 32))]
        } else {
            vec![place(self.reaped, reaped), place(self.submitted, submitted)]
        }
    }
}

/// The task that runs operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// The submitting task, which does not wait.
    Submitter,
    /// A worker of that task.
    Pool,
    /// The polling thread. It sleeps after a millisecond without work; each submission wakes it.
    Poller,
    /// The submitting task, at the end of another syscall: a chain starts with a poll for an effect of that syscall.
    Chain,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    code: u64,
    fd: u64,
    /// Words 2 to 4: second address, address, length and flags.
    words: [u64; 3],
    /// The word where operations on extended attributes have the address of a path.
    path: u64,
    data: Vec<Store>,
}

impl Operation {
    /// The kernel's name, in lower case.
    pub(crate) fn name(&self) -> &'static str {
        let number = u32::try_from(self.code).unwrap_or(u32::MAX);
        table::uring_op_name(number).unwrap_or("operation")
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        let bytes: Vec<u8> = self
            .data
            .iter()
            .flat_map(|store| store.word.to_le_bytes())
            .collect();
        let texts: Vec<&[u8]> = bytes
            .split(|byte| *byte == 0)
            .filter(|text| !text.is_empty())
            .collect();
        let texts = bstr::join(", ", texts);
        let [_, _, last] = self.words;
        write!(f, "{name}({}; {last:#o})", texts.as_bstr())
    }
}

/// Words in a mapping from an offset.
fn words(base: &'static str, at: u64, words: impl IntoIterator<Item = u64>) -> Vec<Store> {
    let places = (at..).step_by(8).zip(words);
    places.map(|(at, word)| Store { base, at, word }).collect()
}

/// Bytes that entries point to.
fn bytes(at: u64, bytes: &[u8]) -> Vec<Store> {
    let mut padded = bytes.to_vec();
    padded.resize((bytes.len() + 1).next_multiple_of(8), 0);
    let (words, _) = padded.as_chunks();
    self::words(DATA, at, words.iter().map(|word| u64::from_le_bytes(*word)))
}

pub(crate) fn operation(code: u64, name: &str, length: u64, flags: u64) -> Operation {
    Operation {
        code,
        fd: CWD,
        words: [0, DATA_AT + OLD, length | (flags << 32)],
        path: 0,
        data: bytes(OLD, name.as_bytes()),
    }
}

pub(crate) fn with_two_names(code: u64, old: &str, new: &str, length: u64) -> Operation {
    let mut data = bytes(OLD, old.as_bytes());
    data.extend(bytes(NEW, new.as_bytes()));
    Operation {
        code,
        fd: CWD,
        words: [DATA_AT + NEW, DATA_AT + OLD, length],
        path: 0,
        data,
    }
}

pub(crate) fn openat2(name: &str, flags: u64) -> Operation {
    let mut data = bytes(OLD, name.as_bytes());
    data.extend(words(DATA, HOW, [flags, 0, 0]));
    Operation {
        code: op::OPENAT2,
        fd: CWD,
        words: [DATA_AT + HOW, DATA_AT + OLD, 24],
        path: 0,
        data,
    }
}

/// One about the extended attribute `trusted.a` of a file, which is 5 bytes long.
pub(crate) fn xattr(code: u64, path: &str, fd: u64) -> Operation {
    let mut data = bytes(OLD, b"trusted.a");
    data.extend(bytes(NEW, b"value"));
    data.extend(bytes(HOW, path.as_bytes()));
    Operation {
        code,
        fd,
        words: [DATA_AT + NEW, DATA_AT + OLD, 5],
        path: DATA_AT + HOW,
        data,
    }
}

/// An operation with only a descriptor.
pub(crate) fn of_descriptor(code: u64, fd: u64, address: u64, length: u64) -> Operation {
    Operation {
        code,
        fd,
        words: [0, address, length],
        path: 0,
        data: Vec::new(),
    }
}

fn operations() -> Vec<Operation> {
    let missing_socket = Operation {
        code: op::CONNECT,
        fd: SOCKET,
        words: [110, DATA_AT + OLD, 0],
        path: 0,
        data: bytes(OLD, b"\x01\0/tmp/w/nosocket"),
    };
    vec![
        operation(op::OPENAT, "file", 0, 0),
        operation(op::OPENAT, "/tmp/w/new1", 0o600, O_CREAT_RDWR),
        operation(op::OPENAT, "sub/new2", 0o600, O_CREAT_RDWR),
        operation(op::OPENAT, "file", 0, O_CREAT_RDWR),
        operation(op::OPENAT, "link", 0, 0),
        operation(op::OPENAT, "missing", 0, 0),
        operation(op::OPENAT, "missing/file", 0, 0),
        operation(op::OPENAT, "sub", 0, 1),
        openat2("/tmp/w/file", 0),
        openat2("missing", 0),
        operation(op::MKDIRAT, "d1", 0o755, 0),
        operation(op::MKDIRAT, "/tmp/w/d2", 0o755, 0),
        operation(op::MKDIRAT, "d1", 0o755, 0),
        with_two_names(op::SYMLINKAT, "target", "s1", 0),
        with_two_names(op::LINKAT, "file", "l1", CWD),
        with_two_names(op::LINKAT, "file", "l1", CWD),
        with_two_names(op::RENAMEAT, "l1", "sub/l2", CWD),
        with_two_names(op::RENAMEAT, "missing", "l3", CWD),
        operation(op::UNLINKAT, "sub/l2", 0, 0),
        operation(op::UNLINKAT, "missing", 0, 0),
        operation(op::UNLINKAT, "d1", 0, AT_REMOVEDIR),
        operation(op::UNLINKAT, "full", 0, AT_REMOVEDIR),
        missing_socket,
        xattr(op::SETXATTR, "file", 0),
        xattr(op::GETXATTR, "/tmp/w/file", 0),
        of_descriptor(op::NOP, 0, 0, 0),
        of_descriptor(op::FALLOCATE, SOCKET, 4096, 0),
        of_descriptor(op::SHUTDOWN, SOCKET, 0, 2),
        of_descriptor(op::CLOSE, SOCKET, 0, 0),
    ]
}

/// Operations on the files in a list's directory.
pub(crate) fn on_files() -> Vec<Operation> {
    vec![
        operation(op::OPENAT, "file", 0, 0),
        operation(op::OPENAT, "ring.new", 0o600, O_CREAT_RDWR),
        operation(op::OPENAT, "missing", 0, 0),
        operation(op::OPENAT, "secret", 0, 0),
        openat2("kept", 0),
        openat2("missing", 0),
        operation(op::MKDIRAT, "ring.dir", 0o755, 0),
        operation(op::MKDIRAT, "theirs/dir", 0o755, 0),
        with_two_names(op::SYMLINKAT, "target", "ring.link", 0),
        with_two_names(op::LINKAT, "ring.new", "ring.too", CWD),
        with_two_names(op::RENAMEAT, "ring.too", "sub/ring", CWD),
        of_descriptor(op::NOP, 0, 0, 0),
        of_descriptor(op::CLOSE, 99, 0, 0),
        operation(op::UNLINKAT, "sub/ring", 0, 0),
        operation(op::UNLINKAT, "ring.link", 0, 0),
        operation(op::UNLINKAT, "ring.new", 0, 0),
        operation(op::UNLINKAT, "missing", 0, 0),
        operation(op::UNLINKAT, "ring.dir", 0, AT_REMOVEDIR),
    ]
}

/// The queue of a program, with or without a polling thread, and its operations so far.
#[derive(Debug)]
pub(crate) struct Queue {
    layout: Layout,
    polled: bool,
    given: u64,
}

impl Queue {
    pub(crate) const fn new(layout: Layout, polled: bool) -> Self {
        Self {
            layout,
            polled,
            given: 0,
        }
    }

    /// Steps that set it up.
    pub(crate) fn made(&self) -> Vec<ProgramStep> {
        self.made_with(if self.polled { SETUP_SQPOLL } else { 0 })
    }

    fn made_with(&self, flags: u32) -> Vec<ProgramStep> {
        let (read_write, shared, own) = (3, 1, 0x32);
        let ring = || Arg::Saved("ring");
        let data = Arg::Number(DATA_AT.cast_signed());
        let (queues, entries) = (0, 0x1000_0000);
        let mut parameters = vec![0; 30];
        // The fourth word is the thread's CPU.
        (parameters[2], parameters[4]) = (flags, PATIENCE);
        let parameters = numbers(parameters.into_iter().map(u32::to_ne_bytes));
        vec![
            step!("io_uring_setup", 8, parameters).save("ring"),
            step!("mmap", 0, 4096, read_write, shared, ring(), queues).save(RINGS),
            step!("mmap", 0, 512, read_write, shared, ring(), entries).save(ENTRY),
            step!("mmap", data, 4096, read_write, own, -1, 0).save(DATA),
        ]
    }

    /// Submits an operation, with or without a worker, and waits for it.
    pub(crate) fn give(&mut self, operation: Operation, by_worker: bool) -> ProgramStep {
        let flags = if by_worker { BY_WORKER } else { 0 };
        let mut data = entry(0, operation, flags);
        data.extend(self.layout.counts(self.given + 1, self.given));
        self.given += 1;
        let wakes = if self.polled { ENTER_SQ_WAKEUP } else { 0 };
        let flags = ENTER_GETEVENTS | wakes;
        step!("io_uring_enter", Arg::Saved("ring"), 1, 1, flags, 0, 0).storing(data)
    }

    /// Steps that set up chains of two.
    pub(crate) fn chains(&self) -> Vec<ProgramStep> {
        let pairs = words(RINGS, self.layout.list, [1 << 32; 4]);
        vec![
            step!("eventfd2", 0, 0),
            step!("inotify_init1", 0),
            step!("inotify_add_watch", NOTES.cast_signed(), "other", IN_OPEN).storing(pairs),
        ]
    }

    /// Submits an operation that runs when a syscall has made a descriptor readable, and waits for it.
    pub(crate) fn give_chain(
        &mut self,
        operation: Operation,
        fd: u64,
        call: ProgramStep,
    ) -> [ProgramStep; 3] {
        let mut wait = of_descriptor(op::POLL_ADD, fd, 0, 0);
        wait.words[2] = POLLIN << 32;
        let mut data = entry(0, wait, LINKED);
        data.extend(entry(ENTRY_BYTES, operation, 0));
        data.extend(self.layout.counts(self.given + 2, self.given));
        self.given += 2;
        let enter = |submit: i32, complete: i32, flags: i32| {
            let ring = Arg::Saved("ring");
            step!("io_uring_enter", ring, submit, complete, flags, 0, 0)
        };
        let submit = enter(2, 0, 0).storing(data);
        [submit, call, enter(0, 2, ENTER_GETEVENTS)]
    }
}

/// An operation in the queue.
fn entry(at: u64, operation: Operation, flags: u64) -> Vec<Store> {
    let Operation {
        code,
        fd,
        words: [second, third, fourth],
        path,
        mut data,
    } = operation;
    let first = code | flags | (fd << 32);
    data.extend(words(
        ENTRY,
        at,
        [first, second, third, fourth, 0, 0, path, 0],
    ));
    data
}

/// Runs each operation after a syscall that no rule names, and one after a syscall that rules name.
fn chained(queue: &mut Queue) -> Vec<ProgramStep> {
    let number = || Arg::Bytes(1_u64.to_ne_bytes().to_vec());
    let events = EVENTS.cast_signed();
    let mut steps = queue.chains();
    for operation in operations() {
        let call = step!("write", events, number(), 8);
        steps.extend(queue.give_chain(operation, EVENTS, call));
        steps.push(step!("read", events, number(), 8));
    }
    let open = operation(op::OPENAT, "file", 0, 0);
    let call = step!("openat", steps::CWD, "other", 0);
    steps.extend(queue.give_chain(open, NOTES, call));
    steps
}

/// Steps after which an open of `file` is ready, but runs only when the kernel is asked for completions or cancels
/// pending operations.
///
/// # Errors
/// If the kernel lacks `io_uring`.
pub(super) fn open_that_waits() -> anyhow::Result<Vec<ProgramStep>> {
    let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
    let mut steps = queue.made_with(SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN);
    steps.push(step!("socket", 1, 1, 0));
    steps.extend(queue.chains());
    let one = Arg::Bytes(1_u64.to_ne_bytes().to_vec());
    let call = step!("write", EVENTS.cast_signed(), one, 8);
    let open = operation(op::OPENAT, "file", 0, 0);
    let [submit, call, _] = queue.give_chain(open, EVENTS, call);
    steps.extend([submit, call]);
    Ok(steps)
}

/// Steps that set and read an extended attribute of `file` by operations, and of another file.
///
/// # Errors
/// When the kernel has no `io_uring`.
pub(super) fn xattr_steps() -> anyhow::Result<Vec<ProgramStep>> {
    let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
    let mut steps = queue.made();
    steps.push(step!("openat", steps::CWD, "file", 2));
    let file = SOCKET; // the next descriptor
    for (operation, by_worker) in [
        (xattr(op::SETXATTR, "file", 0), false),
        (xattr(op::SETXATTR, "other", 0), false),
        (xattr(op::FSETXATTR, "", file), false),
        (xattr(op::SETXATTR, "/tmp/w/file", 0), true),
        (xattr(op::GETXATTR, "./file", 0), false),
        (xattr(op::GETXATTR, "other", 0), false),
    ] {
        steps.push(queue.give(operation, by_worker));
    }
    Ok(steps)
}

/// A program that submits all operations to the worker, then makes one syscall.
///
/// # Errors
/// If the kernel lacks `io_uring`.
pub(super) fn runs(worker: Worker) -> anyhow::Result<Vec<Run>> {
    let layout = Layout::ask(Path::new(PROGRAMS))?;
    let mut queue = Queue::new(layout, worker == Worker::Poller);
    let mut steps = queue.made();
    steps.push(step!("socket", 1, 1, 0));
    if worker == Worker::Chain {
        steps.extend(chained(&mut queue));
    } else {
        for operation in operations() {
            steps.push(queue.give(operation, worker == Worker::Pool));
        }
    }
    steps.push(step!("openat", -100, "file", 0));
    if worker == Worker::Poller {
        // The poller is a thread of the program: it outlives the `exit` of the first one.
        steps.push(step!("exit_group", 0));
    }
    Ok(vec![Run {
        user: RunAs::Root,
        entry: Entry::Syscall,
        steps,
    }])
}
