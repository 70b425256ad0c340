//! Programs that make exactly the system calls that a test wants, written byte by byte.
//!
//! A C library chooses which call a function becomes, and a test machine has no 32-bit one. These
//! programs have no library: one segment with code and strings, loaded at a fixed address below
//! 4 GiB, which both entries of the kernel can reach.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Where the file is mapped.
const BASE: u64 = 0x40_0000;

/// Size of [`Arg::Buffer`]; a `struct stat` has 144.
const BUFFER_BYTES: u32 = 256;

/// `mov %rsp, %r13`: the buffer starts where the stack now ends.
const BUFFER_IS_HERE: [u8; 3] = [0x49, 0x89, 0xe5];

/// Reads the low half of the time stamp counter to `%eax`.
const RDTSC: [u8; 2] = [0x0f, 0x31];

/// How a program asks the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A 64-bit program and `syscall`.
    Syscall,
    /// A 64-bit program and `int $0x80`: calls of the 32-bit table.
    Interrupt,
    /// A 32-bit program.
    Narrow,
}

/// An argument of a call.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    /// A number.
    Number(i64),
    /// Address of a string.
    Text(&'static str),
    /// Address of a list of strings.
    Texts(&'static [&'static str]),
    /// Address of bytes, which the kernel may write to.
    Bytes(Vec<u8>),
    /// The same, and one address wherever this name is used; the first use says what is there.
    Shared(&'static str, Vec<u8>),
    /// Address of words as wide as the kernel reads them from this entry. Those of results are 0.
    Words(Vec<Self>),
    /// What the call before returned.
    Result,
    /// What the call returned that was given this name.
    Saved(&'static str),
    /// Address of an argument of the program itself, as long as nothing is on its stack above them.
    Argument(u8),
    /// Address of [`BUFFER_BYTES`] that the kernel may write to. Only a program that counts has them.
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

/// Calls to be made in order, over and over again.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    entry: Entry,
    rounds: u32,
    counts: bool,
    /// How many steps are made only once, before the first round.
    once: usize,
    steps: Vec<Step>,
}

/// What a program does.
#[derive(Clone, Debug)]
enum Step {
    Call(Call),
    /// Writes a word.
    Store {
        base: Option<&'static str>,
        at: u64,
        word: u64,
    },
}

/// A call to be made.
#[derive(Clone, Debug)]
struct Call {
    number: u32,
    args: Vec<Arg>,
    /// Name of what it returns.
    saved: Option<&'static str>,
    /// Where a word is that somebody else may change during the call.
    watched: Option<u64>,
}

/// A list of arguments of different types.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { vec![$($crate::program::Arg::from($arg)),*] };
}
pub(crate) use args;

impl Program {
    /// A program that only exits, with status 0.
    pub(crate) const fn new(entry: Entry) -> Self {
        Self {
            entry,
            rounds: 1,
            counts: false,
            once: 0,
            steps: Vec::new(),
        }
    }

    /// Adds a call, by its number in the table of the entry.
    pub(crate) fn call(mut self, number: u32, args: Vec<Arg>) -> Self {
        self.steps.push(Step::Call(Call {
            number,
            args,
            saved: None,
            watched: None,
        }));
        self
    }

    /// Keeps what the last call returns, for [`Arg::Saved`].
    pub(crate) fn save(mut self, name: &'static str) -> Self {
        if let Some(Step::Call(call)) = self.steps.last_mut() {
            call.saved = Some(name);
        }
        self
    }

    /// Counts the rounds in which the word at an address is another one after the last call than
    /// before it. The program writes the count to standard output at its end, in 8 bytes. For
    /// [`Entry::Syscall`].
    pub(crate) fn watch(mut self, at: u64) -> Self {
        if let Some(Step::Call(call)) = self.steps.last_mut() {
            call.watched = Some(at);
        }
        self
    }

    /// Adds writing a word to memory that an earlier call has mapped: at an address, or so many bytes
    /// behind the one that is saved under a name. For [`Entry::Syscall`].
    pub(crate) fn store(mut self, base: Option<&'static str>, at: u64, word: u64) -> Self {
        self.steps.push(Step::Store { base, at, word });
        self
    }

    /// Makes what has been added so far only once.
    pub(crate) fn then_rounds(mut self, rounds: u32) -> Self {
        self.once = self.steps.len();
        self.rounds(rounds)
    }

    /// Makes all calls so many times.
    pub(crate) const fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Reads the time stamp counter before and after the calls of each round. Writes the differences
    /// to standard output when all rounds are over, in words of 64 bits, the last round's first. Ends
    /// with status 1 when the last call of any round has failed. For programs with
    /// [`Entry::Syscall`].
    pub(crate) const fn counting(mut self) -> Self {
        self.counts = true;
        self
    }

    /// Writes the program to a file that anyone may run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.bytes())?;
        fs::set_permissions(path, Permissions::from_mode(0o755))
    }

    fn bytes(&self) -> Vec<u8> {
        let header = if self.entry == Entry::Narrow { 84 } else { 120 };
        let start = BASE + header;
        // Addresses have a fixed width: the first pass tells where the strings will be.
        let (code, _) = self.code(start);
        let (code, strings) = self.code(start + len(&code));
        let size = header + len(&code) + len(&strings);
        let mut file = self.header(start, size);
        file.extend(code);
        file.extend(strings);
        file
    }

    /// The code, and the strings it points to when they are mapped at `at`.
    fn code(&self, at: u64) -> (Vec<u8>, Vec<u8>) {
        let mut strings = Strings {
            bytes: Vec::new(),
            at,
            word_bytes: if self.entry == Entry::Syscall { 8 } else { 4 },
            places: BTreeMap::new(),
        };
        let wide = self.entry != Entry::Narrow;
        let mut code = Vec::new();
        if wide {
            code.extend([0x41, 0xbc]); // mov $rounds, %r12d
            code.extend(self.rounds.to_le_bytes());
        }
        if self.counts {
            // The stack keeps the buffer, and the counts below it.
            code.extend([0x48, 0x81, 0xec]); // sub $BUFFER_BYTES, %rsp
            code.extend(BUFFER_BYTES.to_le_bytes());
            code.extend(BUFFER_IS_HERE);
            code.extend([0x31, 0xed]); // xor %ebp, %ebp
        }
        let watches = self.steps.iter().any(Step::is_watched);
        if watches {
            code.extend([0x31, 0xed]); // xor %ebp, %ebp
        }
        let (once, each) = self.steps.split_at(self.once.min(self.steps.len()));
        for step in once {
            self.step(&mut code, &mut strings, step);
        }
        let again = code.len();
        if self.counts {
            code.extend(RDTSC);
            code.extend([0x89, 0xc3, 0x31, 0xc0]); // mov %eax, %ebx; xor %eax, %eax
        }
        for step in each {
            self.step(&mut code, &mut strings, step);
        }
        if self.counts {
            code.extend([0x09, 0xc5]); // or %eax, %ebp: keeps the sign of a failure
            code.extend(RDTSC);
            code.extend([0x29, 0xd8, 0x50]); // sub %ebx, %eax; push %rax
        }
        if wide {
            code.extend([0x41, 0xff, 0xcc, 0x0f, 0x85]); // dec %r12d; jnz again
            let back = i32::try_from(code.len() + 4 - again).unwrap_or(0);
            code.extend((-back).to_le_bytes());
        }
        if self.counts {
            code.extend(BUFFER_IS_HERE);
            let (write, size) = (1, 8 * i64::from(self.rounds));
            let args = [1.into(), Arg::Buffer, size.into()];
            self.one(&mut code, &mut strings, write, &args);
        }
        if watches {
            code.push(0x55); // push %rbp
            code.extend(BUFFER_IS_HERE);
            self.one(
                &mut code,
                &mut strings,
                1,
                &[1.into(), Arg::Buffer, 8.into()],
            );
        }
        let exit = if self.entry == Entry::Syscall { 60 } else { 1 };
        if self.counts {
            code.extend([0xc1, 0xed, 31, 0x89, 0xef]); // shr $31, %ebp; mov %ebp, %edi
            self.one(&mut code, &mut strings, exit, &[]);
        } else {
            self.one(&mut code, &mut strings, exit, &[Arg::Number(0)]);
        }
        (code, strings.bytes)
    }

    fn step(&self, code: &mut Vec<u8>, strings: &mut Strings, step: &Step) {
        match step {
            Step::Store { base, at, word } => {
                code.extend([0x48, 0xb9]); // mov $at, %rcx
                code.extend(at.to_le_bytes());
                if let Some(name) = base {
                    let base = strings.place(name, &[0; 8]);
                    code.extend([0x48, 0xb8]); // mov $base, %rax
                    code.extend(base.to_le_bytes());
                    code.extend([0x48, 0x03, 0x08]); // add (%rax), %rcx
                }
                code.extend([0x48, 0xb8]); // mov $word, %rax
                code.extend(word.to_le_bytes());
                code.extend([0x48, 0x89, 0x01]); // mov %rax, (%rcx)
            }
            Step::Call(call) => {
                let look = |code: &mut Vec<u8>, then: &[u8]| {
                    if let Some(at) = call.watched {
                        code.extend([0x48, 0xb9]); // mov $at, %rcx
                        code.extend(at.to_le_bytes());
                        code.extend(then);
                    }
                };
                look(code, &[0x48, 0x8b, 0x19]); // mov (%rcx), %rbx
                self.one(code, strings, call.number, &call.args);
                // cmp %rbx, (%rcx); setne %cl; movzbl %cl, %ecx; add %ecx, %ebp
                let compare = [0x48, 0x39, 0x19, 0x0f, 0x95, 0xc1, 0x0f, 0xb6, 0xc9];
                look(code, &[&compare[..], &[0x01, 0xcd]].concat());
                if let Some(name) = call.saved {
                    self.save_result(code, strings, name);
                }
            }
        }
    }

    fn save_result(&self, code: &mut Vec<u8>, strings: &mut Strings, name: &'static str) {
        let wide = self.entry != Entry::Narrow;
        let at = strings.place(name, &[0; 8]).to_le_bytes();
        code.extend(wide.then_some(0x48));
        code.push(0xa3); // mov %rax, place
        code.extend(at.iter().take(if wide { 8 } else { 4 }));
    }

    fn one(&self, code: &mut Vec<u8>, strings: &mut Strings, number: u32, args: &[Arg]) {
        // Numbers of the registers that carry arguments, in the processor's own counting.
        let registers: [u8; 6] = match self.entry {
            Entry::Syscall => [7, 6, 2, 10, 8, 9],
            Entry::Interrupt | Entry::Narrow => [3, 1, 2, 6, 7, 5],
        };
        for (&register, arg) in registers.iter().zip(args) {
            let (high, low) = (register >> 3, register & 7);
            let value = match arg {
                Arg::Saved(name) => {
                    let at = strings.place(name, &[0; 8]).to_le_bytes();
                    code.extend((self.entry != Entry::Narrow).then_some(0x48 | high));
                    code.push(0xb8 | low); // mov $place, register
                    code.extend(
                        at.iter()
                            .take(if self.entry == Entry::Narrow { 4 } else { 8 }),
                    );
                    code.extend((self.entry != Entry::Narrow).then_some(0x48 | (high * 5)));
                    code.extend([0x8b, 0x40 | (low << 3) | low, 0]); // mov 0(register), register
                    continue;
                }
                Arg::Argument(number) => {
                    code.extend([0x48 | (high << 2), 0x8b, 0x44 | (low << 3), 0x24]);
                    code.push(8 * (number + 1)); // mov 8 * (number + 1)(%rsp), register
                    continue;
                }
                Arg::Result => {
                    code.extend((self.entry != Entry::Narrow).then_some(0x48 | high));
                    code.extend([0x89, 0xc0 | low]); // mov %rax, register
                    continue;
                }
                Arg::Buffer => {
                    code.extend([0x4c | high, 0x89, 0xe8 | low]); // mov %r13, register
                    continue;
                }
                pointer => strings.value(pointer),
            };
            if self.entry == Entry::Narrow {
                code.push(0xb8 | low); // mov $value, register
                code.extend(value.to_le_bytes().iter().take(4));
            } else {
                code.extend([0x48 | high, 0xb8 | low]);
                code.extend(value.to_le_bytes());
            }
        }
        code.push(0xb8); // mov $number, %eax
        code.extend(number.to_le_bytes());
        code.extend(match self.entry {
            Entry::Syscall => [0x0f, 0x05],
            Entry::Interrupt | Entry::Narrow => [0xcd, 0x80],
        });
    }

    /// ELF header and the one program header.
    fn header(&self, start: u64, size: u64) -> Vec<u8> {
        let narrow = self.entry == Entry::Narrow;
        let mut header = b"\x7fELF".to_vec();
        header.extend([if narrow { 1 } else { 2 }, 1, 1]);
        header.resize(16, 0);
        let half = |header: &mut Vec<u8>, value: u16| header.extend(value.to_le_bytes());
        let word = |header: &mut Vec<u8>, value: u32| header.extend(value.to_le_bytes());
        let address = |header: &mut Vec<u8>, value: u64| {
            let bytes = value.to_le_bytes();
            header.extend(bytes.iter().take(if narrow { 4 } else { 8 }));
        };
        half(&mut header, 2); // an executable
        half(&mut header, if narrow { 3 } else { 62 }); // i386, x86_64
        word(&mut header, 1);
        address(&mut header, start);
        address(&mut header, if narrow { 52 } else { 64 }); // program headers
        address(&mut header, 0); // no sections
        word(&mut header, 0);
        let sizes = if narrow { [52, 32] } else { [64, 56] };
        for value in [sizes[0], sizes[1], 1, 0, 0, 0] {
            half(&mut header, value);
        }

        let (load, read_write_execute) = (1, 7);
        word(&mut header, load);
        if !narrow {
            word(&mut header, read_write_execute);
        }
        for value in [0, BASE, BASE, size, size] {
            address(&mut header, value);
        }
        if narrow {
            word(&mut header, read_write_execute);
        }
        address(&mut header, 0x1000);
        header
    }
}

impl Step {
    const fn is_watched(&self) -> bool {
        matches!(self, Self::Call(call) if call.watched.is_some())
    }
}

/// What the code points to.
struct Strings {
    bytes: Vec<u8>,
    at: u64,
    word_bytes: usize,
    /// Where what has a name is.
    places: BTreeMap<&'static str, i64>,
}

impl Strings {
    fn here(&self) -> i64 {
        (self.at + len(&self.bytes)).cast_signed()
    }

    fn text(&mut self, text: &str) -> i64 {
        let at = self.here();
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        at
    }

    /// Bytes where a structure of any kind may be.
    fn bytes(&mut self, bytes: &[u8]) -> i64 {
        while !(self.at + len(&self.bytes)).is_multiple_of(8) {
            self.bytes.push(0);
        }
        let at = self.here();
        self.bytes.extend(bytes);
        at
    }

    /// Bytes under a name.
    fn place(&mut self, name: &'static str, bytes: &[u8]) -> i64 {
        if let Some(&at) = self.places.get(name) {
            return at;
        }
        let at = self.bytes(bytes);
        self.places.insert(name, at);
        at
    }

    fn words(&mut self, words: &[i64]) -> i64 {
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.to_le_bytes().into_iter().take(self.word_bytes))
            .collect();
        self.bytes(&bytes)
    }

    /// What is known of an argument before the program runs.
    fn value(&mut self, arg: &Arg) -> i64 {
        match arg {
            Arg::Number(number) => *number,
            Arg::Text(text) => self.text(text),
            Arg::Texts(texts) => {
                let mut words: Vec<i64> = texts.iter().map(|text| self.text(text)).collect();
                words.push(0);
                self.words(&words)
            }
            Arg::Bytes(bytes) => self.bytes(bytes),
            Arg::Shared(name, bytes) => self.place(name, bytes),
            Arg::Words(args) => {
                let words: Vec<i64> = args.iter().map(|arg| self.value(arg)).collect();
                self.words(&words)
            }
            Arg::Result | Arg::Saved(_) | Arg::Argument(_) | Arg::Buffer => 0,
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
