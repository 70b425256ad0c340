//! Rules: the language of `auditctl(8)`, from text to types.
//!
//! [`parse_file`] and [`parse_line`] turn bytes into [`Command`]s and [`Diagnostic`]s; they never
//! stop at the first mistake. [`auditctl`] reads the same text as the tool of that name does, with
//! its words, and stops where it stops. What the commands mean together is the business of
//! [`crate::plan`].

pub mod auditctl;
pub mod augenrules;
pub mod diagnostic;
pub mod diagnostic_codes;
pub(crate) mod field;
mod field_pairs;
mod kernel_check;
mod lexer;
mod names;
mod parse;
mod print;
#[cfg(test)]
pub(crate) mod test_host;

use bstr::BString;

use crate::ids::{Arch, Dialect};

pub use diagnostic::{Diagnostic, Severity};
pub use kernel_check::check_kernel_accepts;
pub use parse::{parse_file, parse_line};
pub use print::{listing, print};

/// What the parser must ask the machine that the rules are for.
pub trait RuleHost {
    /// Number of the user called `name`.
    fn uid(&self, name: &[u8]) -> Option<u32>;
    /// Number of the group called `name`.
    fn gid(&self, name: &[u8]) -> Option<u32>;
    /// Whether `path` is a directory now, following links; `-w` becomes a `dir` rule when it is.
    fn is_directory(&self, path: &[u8]) -> bool;
    /// What `b64` means here; [`Arch::X86_64`] on the machines tollgate audits today.
    fn native(&self) -> Arch;
}

/// One line of a rule file that asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// Line number in the file, from 1.
    pub number: u32,
    /// Where the line is in the file.
    ///
    /// # Units
    /// Bytes; the end is exclusive and leaves the newline out.
    pub span: std::ops::Range<usize>,
    /// What it asks for.
    pub command: Command,
}

/// What one line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `-a`, `-A` or `-w`.
    Add {
        /// The rule.
        rule: Rule,
        /// Where it goes in its list.
        insertion: Insertion,
    },
    /// `-d` or `-W`: remove the equal rule.
    Delete(Rule),
    /// `-D`, with `-k KEY`: only rules whose key contains it.
    DeleteAll(Option<BString>),
    /// `-b`: how many records may wait.
    Backlog(u32),
    /// `--backlog_wait_time`, in jiffies.
    BacklogWait(u32),
    /// `-e`: 0 disabled, 1 enabled, 2 enabled and immutable.
    Enabled(u8),
    /// `-f`: 0 silent, 1 printk, 2 panic.
    Failure(u8),
    /// `-r`: messages per second, 0 for no limit.
    Rate(u32),
    /// `-i`: errors do not stop loading and are forgiven.
    IgnoreErrors,
    /// `-c`: errors do not stop loading and are reported at the end.
    ContinueOnErrors,
    /// `--loginuid-immutable`.
    LoginuidImmutable,
}

/// Where a rule goes in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// At the end: `-a`.
    Append,
    /// At the front: `-A`.
    Prepend,
}

/// One rule: all fields must hold for it to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// When it is evaluated.
    pub list: List,
    /// What a match decides.
    pub action: Action,
    /// Syscalls it is for.
    pub syscalls: SyscallMask,
    /// Conditions, in the order given.
    pub fields: Vec<FieldTest>,
    /// Labels, in the order given. Logged joined by 0x01.
    pub keys: Vec<BString>,
}

/// Filter lists, with their numbers in the kernel ABI.
///
/// # Source
/// `AUDIT_FILTER_*` in `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum List {
    /// Messages that user space sends.
    User = 0,
    /// A new task.
    Task = 1,
    /// End of a syscall.
    Exit = 4,
    /// Any record.
    Exclude = 5,
    /// Collection of a name on some file system.
    Filesystem = 6,
    /// End of an `io_uring` operation.
    IoUring = 7,
}

/// What a matching rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// No record.
    Never = 0,
    /// A record.
    Always = 2,
}

/// Set of syscall numbers below 2048.
///
/// # Source
/// `AUDIT_BITMASK_SIZE` in `include/uapi/linux/audit.h`, Linux 6.12. The top 16 bits are classes.
#[derive(Clone, PartialEq, Eq)]
pub struct SyscallMask(Box<[u32; 64]>);

impl SyscallMask {
    /// First number that no rule can name.
    pub const LIMIT: u32 = 2048;

    /// No syscall.
    #[must_use]
    pub fn none() -> Self {
        Self(Box::new([0; 64]))
    }

    /// Every syscall: `-S all`, or no `-S` at all.
    #[must_use]
    pub fn all() -> Self {
        Self(Box::new([u32::MAX; 64]))
    }

    /// Adds a number. Numbers from [`Self::LIMIT`] on are left out.
    pub fn insert(&mut self, number: u32) {
        if let Some(word) = usize::try_from(number / 32)
            .ok()
            .and_then(|i| self.0.get_mut(i))
        {
            *word |= 1 << (number % 32);
        }
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: u32) {
        if let Some(word) = usize::try_from(number / 32)
            .ok()
            .and_then(|i| self.0.get_mut(i))
        {
            *word &= !(1 << (number % 32));
        }
    }

    /// Whether a number is in the set.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        usize::try_from(number / 32)
            .ok()
            .and_then(|i| self.0.get(i))
            .is_some_and(|word| word & (1 << (number % 32)) != 0)
    }

    /// Whether every number is in the set; the last word, which holds classes, does not count.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.iter().take(63).all(|&word| word == u32::MAX)
    }

    /// Numbers in the set, ascending, classes left out.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::LIMIT - 32).filter(|&number| self.contains(number))
    }
}

impl std::fmt::Debug for SyscallMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        f.debug_set().entries(self.iter()).finish()
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTest {
    /// Fact that is looked at.
    pub field: Field,
    /// How it is compared.
    pub op: Op,
    /// With what.
    pub value: Value,
}

/// Right-hand side of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, as the kernel keeps it: 32 bits, compared unsigned.
    Number(u32),
    /// A string: paths and labels.
    Text(BString),
    /// Another fact of the same event: `-C`.
    Field(Field),
}

/// Operators, with their bits in the kernel ABI.
///
/// # Source
/// `AUDIT_EQUAL` and friends in `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Op {
    /// `=`
    Equal = 0x4000_0000,
    /// `!=`
    NotEqual = 0x3000_0000,
    /// `>`
    Greater = 0x2000_0000,
    /// `>=`
    GreaterOrEqual = 0x6000_0000,
    /// `<`
    Less = 0x1000_0000,
    /// `<=`
    LessOrEqual = 0x5000_0000,
    /// `&`: any of the bits.
    BitMask = 0x0800_0000,
    /// `&=`: all of the bits.
    BitTest = 0x4800_0000,
}

/// Fields, with their numbers in the kernel ABI.
///
/// # Source
/// `include/uapi/linux/audit.h`, Linux 6.12. Keys and `-C` pairs are not fields here: see
/// [`Rule::keys`] and [`Value::Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
#[expect(
    missing_docs,
    reason = "each is the field of the same name in auditctl(8)"
)]
pub enum Field {
    Pid = 0,
    Uid = 1,
    Euid = 2,
    Suid = 3,
    Fsuid = 4,
    Gid = 5,
    Egid = 6,
    Sgid = 7,
    Fsgid = 8,
    Auid = 9,
    Pers = 10,
    Arch = 11,
    MsgType = 12,
    SubjUser = 13,
    SubjRole = 14,
    SubjType = 15,
    SubjSen = 16,
    SubjClr = 17,
    Ppid = 18,
    ObjUser = 19,
    ObjRole = 20,
    ObjType = 21,
    ObjLevLow = 22,
    ObjLevHigh = 23,
    SessionId = 25,
    FsType = 26,
    DevMajor = 100,
    DevMinor = 101,
    Inode = 102,
    Exit = 103,
    Success = 104,
    Path = 105,
    Perm = 106,
    Dir = 107,
    FileType = 108,
    ObjUid = 109,
    ObjGid = 110,
    Exe = 112,
    SaddrFam = 113,
    A0 = 200,
    A1 = 201,
    A2 = 202,
    A3 = 203,
}

/// Bits of the `perm` field.
///
/// # Source
/// `AUDIT_PERM_*` in `include/uapi/linux/audit.h`, Linux 6.12.
pub mod perm {
    /// `x`
    pub const EXEC: u32 = 1;
    /// `w`
    pub const WRITE: u32 = 2;
    /// `r`
    pub const READ: u32 = 4;
    /// `a`
    pub const ATTR: u32 = 8;
}
