//! Steps of a workload: syscalls in order, as words on its command line.
//!
//! A step is its ABI and name, a word for each argument, and [`END`]. The first byte of an argument's word is its
//! kind.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use audit::ids::Arch;

use super::raw_syscalls::Arena;

/// `AT_FDCWD`: names are relative to the working directory.
pub(crate) const CWD: i32 = libc::AT_FDCWD;

/// Ends a step.
const END: &str = ";";

/// A syscall.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadStep {
    pub(crate) arch: Arch,
    pub(crate) name: String,
    pub(crate) args: Vec<Arg>,
}

/// An argument of a syscall.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    /// A number.
    Number(i64),
    /// Address of a string.
    Text(Vec<u8>),
    /// Address of an array of strings.
    Texts(Vec<Vec<u8>>),
    /// The result of an earlier step: a descriptor.
    Result(usize),
    /// Address of an array of 64-bit numbers, such as a `struct open_how`.
    Words(Vec<u64>),
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

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<&[u8]> for Arg {
    fn from(text: &[u8]) -> Self {
        Self::Text(text.into())
    }
}

impl From<&OsStr> for Arg {
    fn from(text: &OsStr) -> Self {
        Self::Text(text.as_bytes().into())
    }
}

/// A 64-bit syscall: its name, then its arguments.
macro_rules! step {
    ($name:expr $(, $arg:expr)* $(,)?) => {
        $crate::e2e::step::WorkloadStep {
            arch: audit::ids::Arch::X86_64,
            name: $name.to_string(),
            args: vec![$($crate::e2e::step::Arg::from($arg)),*],
        }
    };
}
pub(crate) use step;

impl WorkloadStep {
    /// The same syscall through the 32-bit entry.
    pub(crate) fn in_32_bits(self) -> Self {
        Self {
            arch: Arch::I386,
            ..self
        }
    }

    /// The words for the command line.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let abi = if self.arch == Arch::I386 { "32" } else { "64" };
        let mut words = vec![abi.into(), self.name.as_str().into()];
        for arg in &self.args {
            words.extend(arg.words());
        }
        words.push(END.into());
        words
    }

    /// Parses the steps in `words`.
    pub(crate) fn read_all(words: &[OsString]) -> Vec<Self> {
        let mut words = words.iter().map(OsString::as_os_str);
        let mut steps = Vec::new();
        while let Some(abi) = words.next() {
            let arch = if abi == "32" {
                Arch::I386
            } else {
                Arch::X86_64
            };
            let name = words.next().unwrap().to_str().unwrap().to_owned();
            let mut args = Vec::new();
            while let Some(word) = words.next().filter(|word| *word != END) {
                args.push(Arg::read(word.as_bytes(), &mut words));
            }
            steps.push(Self { arch, name, args });
        }
        steps
    }
}

impl Arg {
    fn words(&self) -> Vec<OsString> {
        let word = |kind: &str, text: &[u8]| OsString::from_vec([kind.as_bytes(), text].concat());
        match self {
            Self::Number(number) => vec![format!("i{number}").into()],
            Self::Text(text) => vec![word("s", text)],
            Self::Texts(texts) => {
                let mut words = vec![format!("v{}", texts.len()).into()];
                words.extend(texts.iter().map(|text| word("", text)));
                words
            }
            Self::Result(step) => vec![format!("r{step}").into()],
            Self::Words(numbers) => {
                let text: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                vec![format!("w{}", text.join(",")).into()]
            }
        }
    }

    fn read<'a>(word: &[u8], more: &mut impl Iterator<Item = &'a OsStr>) -> Self {
        let (kind, rest) = word.split_first().unwrap();
        let text = || str::from_utf8(rest).unwrap();
        match kind {
            b'i' => Self::Number(text().parse().unwrap()),
            b's' => Self::Text(rest.into()),
            b'v' => {
                let count: usize = text().parse().unwrap();
                Self::Texts(
                    more.take(count)
                        .map(|text| text.as_bytes().into())
                        .collect(),
                )
            }
            b'r' => Self::Result(text().parse().unwrap()),
            b'w' => Self::Words(
                text()
                    .split(',')
                    .map(|word| word.parse().unwrap())
                    .collect(),
            ),
            _ => panic!("no argument starts with {kind:#x}"),
        }
    }

    /// The value for a syscall of this ABI.
    pub(crate) fn value(&self, arch: Arch, arena: &mut Arena, results: &[i64]) -> u64 {
        match self {
            Self::Number(number) => number.cast_unsigned(),
            Self::Text(text) => arena.keep_text(text),
            Self::Texts(texts) => {
                let mut array = Vec::new();
                for text in texts {
                    let at = arena.keep_text(text).to_ne_bytes();
                    array.extend_from_slice(&at[..pointer_bytes(arch)]);
                }
                array.extend_from_slice(&[0; 8]);
                arena.keep(&array)
            }
            Self::Result(step) => results[*step].cast_unsigned(),
            Self::Words(words) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                arena.keep(&bytes)
            }
        }
    }
}

/// Size of an address, in little-endian order.
fn pointer_bytes(arch: Arch) -> usize {
    if arch == Arch::I386 { 4 } else { 8 }
}
