//! Rules: parser and printer for the language of `auditctl(8)`.
//!
//! [`parse_file`] and [`parse_line`] turn bytes into [`Command`]s and [`Diagnostic`]s, and report all errors.
//! [`auditctl`] parses the same language as the tool does: with its messages, and up to the first error.
//! [`crate::plan`] compiles the rules.

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

/// Questions about the host that the rules are for.
pub trait RuleHost {
    /// Returns the uid of a user.
    fn uid(&self, name: &[u8]) -> Option<u32>;
    /// Returns the gid of a group.
    fn gid(&self, name: &[u8]) -> Option<u32>;
    /// Whether `path` is a directory, following links. `-w` becomes a `dir` rule for a directory.
    fn is_directory(&self, path: &[u8]) -> bool;
    /// The arch of `b64`: [`crate::ids::NativeArch::b64`].
    fn native(&self) -> Arch;
}

/// A line of a rule file with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// Line number in the file, from 1.
    pub number: u32,
    /// Position of the line in the file.
    ///
    /// # Units
    /// Bytes. The newline is not included.
    pub span: std::ops::Range<usize>,
    /// The command.
    pub command: Command,
}

/// Command of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `-a`, `-A` or `-w`.
    Add {
        /// The rule.
        rule: Rule,
        /// Its position in the list.
        insertion: Insertion,
    },
    /// `-d` or `-W`: remove the equal rule.
    Delete(Rule),
    /// `-D`. With `-k KEY`: only rules whose key contains `KEY`.
    DeleteAll(Option<BString>),
    /// `-b`: backlog limit.
    Backlog(u32),
    /// `--backlog_wait_time`, in jiffies.
    BacklogWait(u32),
    /// `-e`: 0 disabled, 1 enabled, 2 enabled and immutable.
    Enabled(u8),
    /// `-f`: 0 silent, 1 printk, 2 panic.
    Failure(u8),
    /// `-r`: messages per second, 0 for no limit.
    Rate(u32),
    /// `-i`: errors neither stop loading nor change the exit status.
    IgnoreErrors,
    /// `-c`: errors do not stop loading but change the exit status.
    ContinueOnErrors,
    /// `--loginuid-immutable`.
    LoginuidImmutable,
}

/// Position of a new rule in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// At the end: `-a`.
    Append,
    /// At the front: `-A`.
    Prepend,
}

/// A rule. It matches if all of its fields match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Filter list.
    pub list: List,
    /// Action of a match.
    pub action: Action,
    /// Syscalls that it covers.
    pub syscalls: SyscallMask,
    /// Conditions, in the order given.
    pub fields: Vec<FieldTest>,
    /// Keys, in the order given. Records join them with 0x01.
    pub keys: Vec<BString>,
}

/// Filter lists, with their numbers in the kernel ABI.
///
/// # Source
/// `AUDIT_FILTER_*` in `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum List {
    /// Messages from user space.
    User = 0,
    /// Creation of a task.
    Task = 1,
    /// Exit of a syscall.
    Exit = 4,
    /// Any record.
    Exclude = 5,
    /// Collection of a name on a file system.
    Filesystem = 6,
    /// Completion of an `io_uring` operation.
    IoUring = 7,
}

/// Action of a matching rule.
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

    /// Adds a number. Numbers from [`Self::LIMIT`] on are ignored.
    pub fn insert(&mut self, number: u32) {
        if let Some(word) = usize::try_from(number / 32)
            .ok()
            .and_then(|i| self.0.get_mut(i))
        {
            *word |= 1 << (number % 32);
        }
    }

    /// Removes a number.
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

    /// Whether every number is in the set. The last word, which holds classes, is ignored.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.iter().take(63).all(|&word| word == u32::MAX)
    }

    /// Numbers in the set, ascending, without classes.
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
    /// Field to compare.
    pub field: Field,
    /// Operator.
    pub op: Op,
    /// Right-hand side.
    pub value: Value,
}

/// Right-hand side of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number: 32 bits, compared unsigned, as in the kernel.
    Number(u32),
    /// A path or a security label.
    Text(BString),
    /// Another field of the same event (`-C`).
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
