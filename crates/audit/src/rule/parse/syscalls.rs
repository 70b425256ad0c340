//! Parses `-S`: names, numbers and `all`.

use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;
use super::super::{Dialect, List, SyscallMask};
use super::number;
use crate::ids::{Arch, NativeArch};
use crate::table;

/// First number whose bit in the mask is a class of syscalls.
///
/// # Source
/// `AUDIT_SYSCALL_CLASSES` in `include/uapi/linux/audit.h`, Linux 6.12.
const FIRST_CLASS: u32 = SyscallMask::LIMIT - 16;

/// Table for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Syscalls of the arch that the rule states.
    Stated(Arch, Dialect),
    /// Syscalls of the host's arch, because the rule states none.
    Native(Arch, Dialect),
    /// `io_uring` operations.
    Uring,
}

/// Adds the syscalls of one `-S` to `mask`.
pub(super) fn read(word: &Word, names: Names, mask: &mut SyscallMask, findings: &mut Findings<'_>) {
    let mut start = 0;
    for piece in word.text.split(|&byte| byte == b',') {
        let part = word.part(start..start + piece.len());
        start += piece.len() + 1;
        match piece {
            b"" => {}
            b"all" => insert_all(names, mask),
            [b'0'..=b'9', ..] => read_number(&part, names, mask, findings),
            _ => {
                if let Some(number) = by_name(&part, names, findings) {
                    mask.insert(number);
                }
            }
        }
    }
    if word.text.iter().all(|&byte| byte == b',') {
        if word.text.is_empty() {
            findings.auditctl_fails(&[b"Syscall name unknown: "]);
        }
        findings.error(
            "unknown-syscall",
            &word.span,
            "`-S` names no syscall",
            "write names, numbers or `all`, with commas between them",
        );
    }
    if let Names::Native(native, dialect) = names {
        warn_if_32_bit_numbers_differ(word, native, dialect, mask, findings);
    }
}

/// Adds `all`. For `io_uring` these are the operations that have a name.
fn insert_all(names: Names, mask: &mut SyscallMask) {
    if names == Names::Uring {
        table::uring_op_names()
            .filter_map(|name| table::uring_op_number(name.as_bytes()))
            .for_each(|number| mask.insert(number));
    } else {
        *mask = SyscallMask::all();
    }
}

/// Warns if the names have other numbers for 32-bit programs, which a rule without arch matches by number.
/// `auditctl` compares the mask of the 32-bit numbers with the whole mask so far.
///
/// # Source
/// `check_rule_mismatch()` in `src/auditctl.c` of audit-userspace 4.2.
fn warn_if_32_bit_numbers_differ(
    word: &Word,
    native: Arch,
    dialect: Dialect,
    mask: &SyscallMask,
    findings: &mut Findings<'_>,
) {
    let Some(arch_32) = table::arch_32(native) else {
        return;
    };
    let number = |arch, piece: &[u8]| {
        table::syscall_number_in(arch, piece, dialect).map(|syscall| syscall.0)
    };
    let mut start = 0;
    let mut differing = None;
    let mut mask_32 = SyscallMask::none();
    for piece in word.text.split(|&byte| byte == b',') {
        let span = word.part(start..start + piece.len()).span;
        start += piece.len() + 1;
        if piece == b"all" {
            mask_32 = SyscallMask::all();
            continue;
        }
        let (wide, other) = (number(native, piece), number(arch_32, piece));
        let by_number = || number::scan(piece).and_then(number::ParsedNumber::low_bits);
        if let Some(bit) = other.or_else(by_number) {
            mask_32.insert(bit);
        }
        if wide != other && wide.is_some() {
            differing.get_or_insert((piece, span));
        }
    }
    if mask_32 != *mask {
        let place = findings.mismatch_location();
        findings.transcript.warns(&[
            b"WARNING - 32/64 bit syscall mismatch",
            place.as_bytes(),
            b", you should specify an arch",
        ]);
    }
    let Some((name, span)) = differing else {
        return;
    };
    findings.warning(
        "arch-missing",
        &span,
        format!(
            "`{}` has another number for 32-bit programs",
            escape_text(name)
        ),
        "the rule has no arch, so 32-bit programs match it by number: add `-F arch=b64` before \
         `-S`, and a second rule with `arch=b32`",
    );
}

/// Reports a list that does not accept syscalls.
pub(super) fn check_list(list: List, word: &Word, findings: &mut Findings<'_>) {
    match list {
        List::Exit | List::IoUring => return,
        List::Exclude => {
            findings.auditctl_fails(&[b"Error: syscall auditing cannot be put on exclude list"]);
        }
        List::Task | List::User | List::Filesystem => findings.auditctl_fails(&[
            b"Error: syscall auditing being added to ",
            list.name().as_bytes(),
            b" list",
        ]),
    }
    findings.error(
        "syscall-on-list",
        &word.span,
        format!("the {} list does not accept syscalls", list.name()),
        "remove `-S`, or use the exit list",
    );
}

fn by_name(part: &Word, names: Names, findings: &mut Findings<'_>) -> Option<u32> {
    let (arch, dialect) = match names {
        Names::Stated(arch, dialect) | Names::Native(arch, dialect) => (arch, dialect),
        Names::Uring => {
            let number = table::uring_op_number(&part.text);
            if number.is_none() {
                findings.auditctl_fails(&[b"io_uring op unknown: ", &part.text]);
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
    let number = table::syscall_number_in(arch, &part.text, dialect).map(|syscall| syscall.0);
    if number.is_none() {
        findings.auditctl_fails(&[b"Syscall name unknown: ", &part.text]);
        let machine = table::arch_name(arch).unwrap_or("unknown");
        let native = NativeArch::with_abi(arch).unwrap_or(NativeArch::X86_64);
        let other = if arch == native.b32() {
            native.b64()
        } else {
            native.b32()
        };
        let otherwise = if table::syscall_number(other, &part.text).is_some() {
            format!(
                "{} has it, {machine} does not",
                table::arch_name(other).unwrap_or("another")
            )
        } else {
            format!("{machine} has no such syscall; a number is also accepted")
        };
        let what = format!("{machine} syscall");
        let known = table::syscall_names(arch);
        if table::syscall_number(other, &part.text).is_some() {
            // A name of the other arch is not a typing error.
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

fn read_number(part: &Word, names: Names, mask: &mut SyscallMask, findings: &mut Findings<'_>) {
    let Some(number) = number::unsigned("-S", part, number::OversizeNumber::Refuse, findings)
    else {
        return;
    };
    if number >= SyscallMask::LIMIT {
        let refusal: &[u8] = match names {
            Names::Uring => b"io_uring op unknown: ",
            Names::Stated(..) | Names::Native(..) => b"Syscall name unknown: ",
        };
        findings.auditctl_fails(&[refusal, &part.text]);
        findings.error(
            "unknown-syscall",
            &part.span,
            format!("{number} is not a syscall"),
            format!("rules can name syscalls below {FIRST_CLASS}"),
        );
        return;
    }
    if number >= FIRST_CLASS {
        findings.warning(
            "syscall-class",
            &part.span,
            format!("{number} is a class of syscalls, not a syscall"),
            "the rule covers all syscalls of the class: name the syscalls, or use `perm`",
        );
    }
    mask.insert(number);
}
