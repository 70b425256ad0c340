//! `-S`: names, numbers and `all`, into a mask.

use super::super::diag::{Findings, shown};
use super::super::lex::Word;
use super::super::{List, SyscallMask};
use super::number;
use crate::ids::{Arch, Syscall};
use crate::table;

/// First number whose bit in the mask stands for a class of syscalls.
///
/// # Source
/// `AUDIT_SYSCALL_CLASSES` in `include/uapi/linux/audit.h`, Linux 6.12.
const CLASSES: u32 = SyscallMask::LIMIT - 16;

/// Where names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Syscalls of an arch that the rule states.
    Stated(Arch),
    /// Syscalls of this machine's arch: the rule states none.
    Native(Arch),
    /// An arch without a table here; only numbers mean something.
    Foreign,
    /// `io_uring` operations.
    Uring,
}

/// Adds what one `-S` names to `mask`. Returns whether a name was met that has no table.
pub(super) fn read(
    word: &Word,
    names: Names,
    mask: &mut SyscallMask,
    findings: &mut Findings<'_>,
) -> bool {
    let mut nameless = false;
    let mut mismatch = None;
    let mut start = 0;
    for piece in word.text.split(|&byte| byte == b',') {
        let part = word.part(start..start + piece.len());
        start += piece.len() + 1;
        match piece {
            b"" => {}
            b"all" => *mask = SyscallMask::all(),
            [b'0'..=b'9', ..] => read_number(&part, mask, findings),
            _ if names == Names::Foreign => nameless = true,
            _ => match by_name(&part, names, findings) {
                Some(number) => {
                    mask.insert(number);
                    if let Names::Native(native) = names
                        && table::arch_32(native).is_some_and(|narrow| {
                            table::syscall_number(narrow, piece) != Some(Syscall(number))
                        })
                    {
                        mismatch.get_or_insert(part);
                    }
                }
                None => continue,
            },
        }
    }
    if word.text.iter().all(|&byte| byte == b',') {
        findings.error(
            "unknown-syscall",
            &word.span,
            "`-S` names no syscall",
            "write names, numbers or `all`, with commas between them",
        );
    }
    if let Some(part) = mismatch {
        findings.warning(
            "arch-missing",
            &part.span,
            format!(
                "`{}` has another number for 32-bit programs",
                shown(&part.text)
            ),
            "the rule names no arch, so that 32-bit programs match it by number: put \
             `-F arch=b64` before `-S`, and a second rule with `arch=b32`",
        );
    }
    nameless
}

/// Says that a list takes no syscalls, if so.
pub(super) fn check_list(list: List, word: &Word, findings: &mut Findings<'_>) {
    if matches!(list, List::Exit | List::IoUring) {
        return;
    }
    findings.error(
        "syscall-on-list",
        &word.span,
        format!(
            "the {} list takes no syscalls",
            super::super::field::list_name(list)
        ),
        "leave `-S` out, or use the exit list",
    );
}

fn by_name(part: &Word, names: Names, findings: &mut Findings<'_>) -> Option<u32> {
    let (number, arch) = match names {
        Names::Stated(arch) | Names::Native(arch) => (
            table::syscall_number(arch, &part.text).map(|syscall| syscall.0),
            arch,
        ),
        Names::Foreign => (None, Arch(0)),
        Names::Uring => {
            let number = table::uring_op_number(&part.text);
            if number.is_none() {
                findings.unknown(
                    "unknown-syscall",
                    "io_uring operation",
                    part,
                    table::uring_op_names(),
                    "the kernel audits only some operations: not read, write, send or recv",
                );
            }
            return number;
        }
    };
    if number.is_none() {
        let machine = table::arch_name(arch).unwrap_or("unknown");
        let other = if arch == Arch::I386 {
            Arch::X86_64
        } else {
            Arch::I386
        };
        let otherwise = if table::syscall_number(other, &part.text).is_some() {
            format!(
                "{} has it, {machine} has not",
                table::arch_name(other).unwrap_or("another")
            )
        } else {
            format!("{machine} has no such syscall: a number is fine too")
        };
        let what = format!("{machine} syscall");
        let known = table::syscall_names(arch);
        if table::syscall_number(other, &part.text).is_some() {
            // A name that the other arch has is no slip of the fingers.
            findings.unknown(
                "unknown-syscall",
                &what,
                part,
                std::iter::empty(),
                &otherwise,
            );
        } else {
            findings.unknown("unknown-syscall", &what, part, known, &otherwise);
        }
    }
    number
}

fn read_number(part: &Word, mask: &mut SyscallMask, findings: &mut Findings<'_>) {
    let Some(number) = number::unsigned("-S", part, number::Wide::Refuse, findings) else {
        return;
    };
    if number >= SyscallMask::LIMIT {
        findings.error(
            "unknown-syscall",
            &part.span,
            format!("{number} is not a syscall"),
            format!("rules can name syscalls below {CLASSES}"),
        );
    } else if number >= CLASSES {
        findings.error(
            "syscall-class",
            &part.span,
            format!("{number} is a class of syscalls, not a syscall"),
            "the kernel keeps the top of the mask for itself: name the syscalls, or use `perm`",
        );
    } else {
        mask.insert(number);
    }
}
