//! Generates programs: random syscalls, and scenes of several steps that belong together.

use audit::table;

use super::forms::{Descriptor, FILES, Form, Kind, OPEN, OTHERS};
use super::program::{
    CHILDREN, HuntProgram, HuntStep, ID_COUNT, IDS, LAST_NUMBER, Submit, TaskKind,
};
use crate::differential::steps::{CWD, ProgramStep, numbers, step};
use crate::differential::uring::{self, Operation, op};
use crate::lists::random::Random;
use crate::program::{Arg, Entry};

/// Names of files; `@` stands for the program's directory.
const NAMES: &[&str] = &[
    "file",
    "kept",
    "twin",
    "other",
    "secret",
    "link",
    "dangling",
    "way/below",
    "sub",
    "sub/below",
    "full",
    "full/file",
    "theirs",
    "theirs/file",
    "missing",
    "missing/x",
    "new",
    "new",
    "new2",
    "dir",
    "dir/",
    "dir/x",
    ".",
    "sub/..",
    "./file",
    "sub//below",
    "sub/../kept",
    "way",
    "@/file",
    "@/sub/below",
    "@/new",
    "@",
    "file/x",
    "",
];

/// Names of the system, which programs only read.
const SYSTEM: &[&str] = &[
    "/etc/passwd",
    "/proc/self/status",
    "/proc/version",
    "/dev/null",
    "/",
    "/missing",
];

const ADDRESSES: &[&str] = &["bound", "file", "sub/bound", "\0abstract", "missing/x"];

/// Names under which results are saved.
const FILE_SLOTS: [&str; 2] = ["fd1", "fd2"];
const SOCKET_SLOTS: [&str; 2] = ["socket1", "socket2"];
/// The number of the program's process.
pub(super) const OWN: &str = "own";

/// A program that makes the favorite calls more often than others.
pub(super) fn program(random: &mut Random, favorites: &[&str], may_be_root: bool) -> HuntProgram {
    const WIDE: Entry = Entry::Syscall;
    let entry = random.pick(&[WIDE, WIDE, WIDE, WIDE, Entry::Int80, Entry::I386]);
    let mut writer = Writer {
        is_privileged: random.once_in(4) && may_be_root,
        may_be_root,
        favorites: favorite_forms(favorites, entry),
        random,
        entry,
        tasks: Vec::new(),
        steps: Vec::new(),
    };
    let count = 6 + writer.random.below(14);
    for _ in 0..count {
        writer.one(0);
    }
    if writer.random.once_in(2) {
        writer.scene();
        let count = writer.random.below(6);
        for _ in 0..count {
            writer.one(0);
        }
    }
    if writer.random.once_in(4) {
        let argv = Arg::Texts(&["end", "of it"]);
        writer.call(0, step!("execve", "end", argv, 0));
    }
    HuntProgram {
        entry,
        is_privileged: writer.is_privileged,
        tasks: writer.tasks,
        steps: writer.steps,
    }
}

/// The forms of these syscalls that the entry has.
fn favorite_forms(favorites: &[&str], entry: Entry) -> Vec<Form> {
    let forms = FILES.iter().chain(OTHERS).copied();
    forms
        .filter(|form| favorites.contains(&form.name) && has(entry, *form))
        .collect()
}

/// Whether the table of an entry has the syscall.
fn has(entry: Entry, form: Form) -> bool {
    table::syscall_number(entry.arch(), form.name.as_bytes()).is_some()
}

struct Writer<'a> {
    random: &'a mut Random,
    entry: Entry,
    favorites: Vec<Form>,
    is_privileged: bool,
    may_be_root: bool,
    tasks: Vec<TaskKind>,
    steps: Vec<(usize, HuntStep)>,
}

impl Writer<'_> {
    fn call(&mut self, task: usize, step: ProgramStep) {
        self.steps.push((task, HuntStep::Call(step)));
    }

    /// Adds a random syscall.
    fn one(&mut self, task: usize) {
        let form = self.form();
        let step = self.step(form);
        self.call(task, step);
    }

    /// Chooses a syscall that the entry has.
    fn form(&mut self) -> Form {
        if !self.favorites.is_empty() && self.random.once_in(2) {
            return self.random.pick(&self.favorites);
        }
        let forms = if self.random.once_in(3) {
            OTHERS
        } else {
            FILES
        };
        loop {
            let form = self.random.pick(forms);
            if has(self.entry, form) {
                return form;
            }
        }
    }

    /// Adds a task, and so many random syscalls.
    fn task(&mut self, kind: TaskKind, count: usize) -> usize {
        self.tasks.push(kind);
        let task = self.tasks.len();
        for _ in 0..count {
            self.one(task);
        }
        task
    }

    /// Adds steps that belong together. Only 64-bit programs can start threads, and the numbers in the scenes are those
    /// of their table.
    fn scene(&mut self) {
        let is_wide = self.entry == Entry::Syscall;
        match self.random.below(9) {
            0 | 1 => {
                let count = 3 + self.random.below(4);
                self.task(TaskKind::Child, count);
            }
            2 if is_wide => self.threads(),
            3 if is_wide => self.operations(),
            4 if is_wide => self.filter(),
            5 if is_wide => self.traced(),
            6 if !self.is_privileged => self.user_namespace(),
            // The program that a host runs for core dumps is not that of the test.
            7 if self.may_be_root => self.dumps(),
            8 if self.is_privileged => self.same_number(),
            _ => self.blocked(),
        }
    }

    /// Threads that use the same names and descriptors.
    fn threads(&mut self) {
        for _ in 0..=self.random.below(2) {
            let count = 4 + self.random.below(6);
            self.task(TaskKind::Thread, count);
        }
    }

    fn operations(&mut self) {
        for _ in 0..2 + self.random.below(5) {
            let operation = self.operation();
            let submit = self.random.pick(&[Submit::Submitter, Submit::Worker]);
            self.steps.push((0, HuntStep::Operation(operation, submit)));
        }
    }

    fn operation(&mut self) -> Operation {
        let names: Vec<&str> = NAMES
            .iter()
            .copied()
            .filter(|it| !it.starts_with('@'))
            .collect();
        let name = self.random.pick(&names);
        let other = self.random.pick(&names);
        let flags = self.random.pick(OPEN).cast_unsigned();
        let mode = if flags & 0o100 == 0 { 0 } else { 0o600 };
        match self.random.below(10) {
            0..=2 => uring::operation(op::OPENAT, name, mode, flags),
            3 => uring::openat2(name, self.random.pick(&[0, 1, 2])),
            4 => uring::operation(op::MKDIRAT, name, 0o755, 0),
            5 => uring::operation(op::UNLINKAT, name, 0, self.random.pick(&[0, 0x200])),
            6 => uring::with_two_names(op::RENAMEAT, name, other, uring::CWD),
            7 => uring::with_two_names(op::LINKAT, name, other, uring::CWD),
            8 => uring::with_two_names(op::SYMLINKAT, name, other, 0),
            _ => uring::of_descriptor(op::CLOSE, 99, 0, 0),
        }
    }

    /// A seccomp filter that answers some calls in place of the kernel.
    fn filter(&mut self) {
        const LOAD: u16 = 0x20;
        const JUMP_IF_EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        const ALLOW: u32 = 0x7fff_0000;
        const ERRNO: u32 = 0x0005_0000;
        let name = self
            .random
            .pick(&["openat", "mkdir", "unlink", "chmod", "rename"]);
        let number = table::syscall_number(self.entry.arch(), name.as_bytes());
        let answer = ERRNO | self.random.pick(&[0, 1, 13]);
        let instruction = |code: u16, [yes, no]: [u8; 2], value: u32| {
            let [low, high] = code.to_le_bytes();
            let [a, b, c, d] = value.to_le_bytes();
            [low, high, yes, no, a, b, c, d]
        };
        let code = [
            instruction(LOAD, [0, 0], 0),
            instruction(JUMP_IF_EQUAL, [0, 1], number.map_or(0, |number| number.0)),
            instruction(RETURN, [0, 0], answer),
            instruction(RETURN, [0, 0], ALLOW),
        ];
        let filter = Arg::Words(vec![4.into(), Arg::Bytes(code.concat())]);
        self.call(0, step!("prctl", 38, 1, 0, 0, 0));
        self.call(0, step!("seccomp", 1, 0, filter));
        for _ in 0..4 {
            let same = FILES.iter().copied().filter(|form| form.name == name);
            let form = self.random.pick(&same.collect::<Vec<_>>());
            let step = self.step(form);
            self.call(0, step);
        }
    }

    /// A child that is stopped at a syscall, whose number or answer its parent replaces.
    fn traced(&mut self) {
        const SYSCALL: i32 = 24;
        const SYSEMU: i32 = 31;
        const POKEUSER: i32 = 6;
        const CONT: i32 = 7;
        const ORIG_RAX: i32 = 15 * 8;
        const SIGSTOP: i32 = 19;
        let task = self.task(TaskKind::Traced, 0);
        let child = || Arg::Saved(CHILDREN[task]);
        self.call(task, step!("ptrace", 0, 0, 0, 0));
        self.call(task, step!("getpid"));
        self.call(task, step!("kill", Arg::Result, SIGSTOP));
        for _ in 0..2 + self.random.below(3) {
            self.one(task);
        }
        let wait = || step!("wait4", child(), 0, 0x4000_0000, 0);
        self.call(0, wait());
        for _ in 0..=self.random.below(3) {
            let request = self.random.pick(&[SYSCALL, SYSCALL, SYSEMU]);
            self.call(0, step!("ptrace", request, child(), 0, 0));
            self.call(0, wait());
            if self.random.once_in(2) {
                // getpid, mkdir, a number that no call has, none
                let number = self.random.pick(&[39, 83, 9999, -1]);
                self.call(0, step!("ptrace", POKEUSER, child(), ORIG_RAX, number));
            }
        }
        self.call(0, step!("ptrace", CONT, child(), 0, 0));
        self.call(0, step!("kill", child(), 9));
        self.call(0, wait());
    }

    /// Bind mounts in a user namespace.
    fn user_namespace(&mut self) {
        let (user, mount, bind) = (0x1000_0000, 0x2_0000, 0x1000);
        self.call(0, step!("unshare", user | mount));
        for _ in 0..=self.random.below(2) {
            let (from, to) = self.random.pick(&[
                ("kept", "file"),
                ("sub", "full"),
                ("other", "secret"),
                (".", "sub"),
            ]);
            self.call(0, step!("mount", from, to, 0, bind, 0));
            self.one(0);
            self.one(0);
        }
        if self.random.once_in(2) {
            self.call(0, step!("chroot", "sub"));
            self.one(0);
        }
    }

    /// A child that dumps core.
    fn dumps(&mut self) {
        let unlimited = numbers([u64::MAX; 2].map(u64::to_ne_bytes));
        self.call(0, step!("prlimit64", 0, 4, unlimited, 0));
        let count = self.random.below(3);
        let task = self.task(TaskKind::Child, count);
        let signal = self.random.pick(&[6, 11]);
        self.call(task, step!("getpid"));
        self.call(task, step!("kill", Arg::Result, signal));
    }

    /// Children with the same number.
    fn same_number(&mut self) {
        for _ in 0..2 {
            self.call(0, step!("open", "/proc/sys/kernel/ns_last_pid", 1));
            self.call(0, step!("write", Arg::Result, LAST_NUMBER, 5));
            let count = 1 + self.random.below(3);
            self.task(TaskKind::Child, count);
        }
    }

    /// A child that a signal ends in the middle of a call.
    fn blocked(&mut self) {
        let task = self.task(TaskKind::Traced, 1);
        let child = || Arg::Saved(CHILDREN[task]);
        self.call(task, step!("pause"));
        self.one(0);
        self.call(0, step!("kill", child(), 9));
        self.call(0, step!("wait4", child(), 0, 0, 0));
    }

    fn step(&mut self, form: Form) -> ProgramStep {
        let args = form.args.iter().map(|kind| self.arg(*kind)).collect();
        ProgramStep {
            name: form.name,
            args,
            saved: form.returns.map(|kind| self.slot(kind)),
            stores: Vec::new(),
        }
    }

    fn slot(&mut self, kind: Descriptor) -> &'static str {
        match kind {
            Descriptor::File => self.random.pick(&FILE_SLOTS),
            Descriptor::Socket => self.random.pick(&SOCKET_SLOTS),
        }
    }

    fn arg(&mut self, kind: Kind) -> Arg {
        match kind {
            Kind::At => match self.random.below(8) {
                0 => (-1).into(),
                1 | 2 => Arg::Saved(self.slot(Descriptor::File)),
                _ => CWD.into(),
            },
            Kind::Name => Arg::Text(self.random.pick(NAMES)),
            Kind::AnyName if self.random.once_in(3) => Arg::Text(self.random.pick(SYSTEM)),
            Kind::AnyName => Arg::Text(self.random.pick(NAMES)),
            Kind::Fd(_) if self.random.once_in(12) => (-1).into(),
            Kind::Fd(kind) => Arg::Saved(self.slot(kind)),
            Kind::Number(numbers) => self.random.pick(numbers).into(),
            Kind::Text(texts) => Arg::Text(self.random.pick(texts)),
            Kind::Buffer => Arg::Buffer,
            Kind::OwnPid => Arg::Saved(OWN),
            Kind::How => {
                let flags = self.random.pick(OPEN).cast_unsigned();
                let mode = if flags & 0o100 == 0 { 0 } else { 0o600 };
                let resolve = self.random.pick(&[0, 0, 4, 8]);
                numbers([flags, mode, resolve].map(u64::to_ne_bytes))
            }
            Kind::Address => self.address(),
            Kind::Message => {
                let mut words = vec![self.address(), 16.into()];
                words.resize(7, 0.into());
                Arg::Words(words)
            }
            Kind::Short => Arg::Words(vec![0.into(), 1_000_000.into()]),
            Kind::Id => match self.random.below(4) {
                0 => (-1).into(),
                1 => 0.into(),
                _ => {
                    let id = i64::try_from(self.random.below(ID_COUNT)).unwrap_or(0);
                    (IDS + id).into()
                }
            },
        }
    }

    /// A `struct sockaddr_un`, or a `struct sockaddr_in`.
    fn address(&mut self) -> Arg {
        let mut bytes: Vec<u8>;
        if self.random.once_in(4) {
            bytes = 2_u16.to_ne_bytes().to_vec();
            bytes.extend([0, 9, 127, 0, 0, 1]);
        } else {
            bytes = 1_u16.to_ne_bytes().to_vec();
            bytes.extend(self.random.pick(ADDRESSES).bytes());
        }
        bytes.resize(110, 0);
        Arg::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_determines_the_program() {
        let text = |number| program(&mut Random::of(7, number), &[], true).to_string();
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }

    #[test]
    fn tables_of_syscalls_have_every_form() {
        let known = |form: &&Form| {
            let number = |entry: Entry| table::syscall_number(entry.arch(), form.name.as_bytes());
            number(Entry::Syscall)
                .or_else(|| number(Entry::I386))
                .is_some()
        };
        let unknown: Vec<&str> = FILES
            .iter()
            .chain(OTHERS)
            .filter(|form| !known(form))
            .map(|form| form.name)
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(FILES.len() + OTHERS.len() > 150);
    }
}
