//! Compiles a plan to a seccomp filter: one classic BPF program that stops the syscalls that rules can match.
//!
//! The filter searches syscall numbers by comparison only. The kernel emulates a new filter for every syscall
//! number and sets a bit for each that is always allowed, so that these syscalls skip the filter
//! (`seccomp_is_const_allow()` in `kernel/seccomp.c`, since v5.11). The emulation gives up at other
//! instructions, such as the shifts that a bitmap in the filter would need.
//!
//! Tests of the first four arguments are made in the filter, rule by rule in the order of the plan. A test that
//! only the supervisor can make counts as true for an `always` rule and as false for a `never` rule: the filter
//! stops too many syscalls rather than too few.

use std::collections::BTreeMap;

use audit::ids::NativeArch;
use audit::plan::eval::compare;
use audit::plan::perm::{self, OpenFlags, PermClass};
use audit::plan::{Operand, Plan, Slot, SyscallId, Test};
use audit::rule::{Action, Field, Op};
use audit::table;
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD,
    BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF, sock_filter,
};

use crate::backend::Backend;

/// Offsets in `struct seccomp_data` of `include/uapi/linux/seccomp.h`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Maximum length of a program: `BPF_MAXINSNS`.
const MAX_INSTRUCTIONS: usize = 4096;

/// What the filter does with a syscall.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FilterAction {
    /// Allows it.
    Allow,
    /// Stops it.
    Stop,
    /// Tests its arguments.
    Check(Vec<sock_filter>),
}

/// Compiles the filter of a plan. `also` are syscalls to stop that no rule names.
pub(crate) fn compile(plan: &Plan, backend: Backend, also: &[SyscallId]) -> Vec<sock_filter> {
    let exact = program(plan, backend, also, true);
    if exact.len() <= MAX_INSTRUCTIONS {
        return exact;
    }
    // Without tests of arguments even all syscalls of both ABIs fit.
    program(plan, backend, also, false)
}

fn program(plan: &Plan, backend: Backend, also: &[SyscallId], exact: bool) -> Vec<sock_filter> {
    let stop = match backend {
        Backend::Ptrace => SECCOMP_RET_TRACE,
        Backend::Notify => SECCOMP_RET_USER_NOTIF,
    };
    let abi = |arch| {
        let mut verdicts: BTreeMap<u32, FilterAction> = plan
            .syscalls
            .iter()
            .filter(|(call, _)| call.arch == arch)
            .map(|(call, rules)| {
                let verdict_for = if exact {
                    verdict_for(*call, &rules.slots, stop)
                } else {
                    FilterAction::Stop
                };
                (call.syscall.0, verdict_for)
            })
            .collect();
        for call in also.iter().filter(|call| call.arch == arch) {
            verdicts.insert(call.syscall.0, FilterAction::Stop);
        }
        search_code(&ranges(verdicts), stop)
    };
    let (wide, narrow) = (abi(plan.native.b64()), abi(plan.native.b32()));
    let mut code = vec![load(ARCH)];
    code.extend(jump_unless(BPF_JEQ, plan.native.b64().0, len(&wide) + 1));
    code.push(load(NUMBER));
    code.extend(wide);
    code.extend(jump_unless(BPF_JEQ, plan.native.b32().0, len(&narrow) + 1));
    code.push(load(NUMBER));
    code.extend(narrow);
    code.push(ret(SECCOMP_RET_ALLOW));
    code
}

/// Ranges of syscall numbers with the same verdict, by first number. The first range starts at 0, the last one
/// is unbounded.
fn ranges(verdicts: BTreeMap<u32, FilterAction>) -> Vec<(u32, FilterAction)> {
    let mut found = vec![(0, FilterAction::Allow)];
    let mut put = |number: u32, verdict_for: FilterAction| match found.last_mut() {
        Some((_, last)) if *last == verdict_for => {}
        Some((start, last)) if *start == number => *last = verdict_for,
        _ => found.push((number, verdict_for)),
    };
    let mut next = 0;
    for (number, verdict_for) in verdicts {
        if number != next {
            put(next, FilterAction::Allow);
        }
        put(number, verdict_for);
        next = number.saturating_add(1);
    }
    put(next, FilterAction::Allow);
    found
}

/// Code that finds the range of the syscall number in register A; every path ends with a return.
fn search_code(ranges: &[(u32, FilterAction)], stop: u32) -> Vec<sock_filter> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    match (left, right) {
        (_, []) => vec![ret(SECCOMP_RET_ALLOW)],
        ([], [(_, FilterAction::Allow), ..]) => vec![ret(SECCOMP_RET_ALLOW)],
        ([], [(_, FilterAction::Stop), ..]) => vec![ret(stop)],
        ([], [(_, FilterAction::Check(code)), ..]) => code.clone(),
        (_, [(start, _), ..]) => {
            let below = search_code(left, stop);
            // Numbers from `start` on jump over the lower half.
            let mut code = vec![jump(BPF_JGE, *start, 0, 1), jump_over(len(&below))];
            code.extend(below);
            code.extend(search_code(right, stop));
            code
        }
    }
}

fn verdict_for(call: SyscallId, slots: &[Slot], stop: u32) -> FilterAction {
    let mut code = Vec::new();
    for slot in slots {
        let (known, unknown): (Vec<&Test>, Vec<&Test>) = slot
            .tests
            .iter()
            .partition(|test| argument_index(call, test).is_some());
        let verdict = match slot.action {
            Action::Always => stop,
            Action::Never if unknown.is_empty() => SECCOMP_RET_ALLOW,
            Action::Never => continue,
        };
        let mut rule = vec![ret(verdict)];
        for (place, test) in known
            .iter()
            .rev()
            .filter_map(|test| Some((argument_index(call, test)?, *test)))
        {
            let mut asked = test_code(place, test, len(&rule));
            asked.extend(rule);
            rule = asked;
        }
        code.extend(rule);
        if known.is_empty() {
            return if code.len() == 1 && verdict == stop {
                FilterAction::Stop
            } else {
                FilterAction::Check(code)
            };
        }
    }
    code.push(ret(SECCOMP_RET_ALLOW));
    if code.len() == 1 {
        FilterAction::Allow
    } else {
        FilterAction::Check(code)
    }
}

/// Index of the argument that a test depends on, if it depends on nothing else.
fn argument_index(call: SyscallId, test: &Test) -> Option<u32> {
    match test.operand {
        Operand::Field(Field::A0) => Some(0),
        Operand::Field(Field::A1) => Some(1),
        Operand::Field(Field::A2) => Some(2),
        Operand::Field(Field::A3) => Some(3),
        Operand::OpenPerm => match perm::class(call.arch, call.syscall) {
            PermClass::Open(OpenFlags::Argument(index)) => u32::try_from(index).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Code of a test: continues when it holds, otherwise jumps over the next `skip` instructions.
fn test_code(argument_index: u32, test: &Test, skip: u32) -> Vec<sock_filter> {
    // Only the low half of an argument is compared; both ABIs are little-endian, so it comes first.
    let mut code = vec![load(ARGUMENTS + 8 * argument_index)];
    if test.operand == Operand::OpenPerm {
        code.push(mask(3));
        let wanted: Vec<u32> = (0..4)
            .filter(|&mode| compare(test.op, perm::access_mode(mode), test.value))
            .collect();
        let mut left = u8::try_from(wanted.len()).unwrap_or(0);
        for mode in wanted {
            // A wanted mode jumps over the remaining comparisons and over the final jump.
            code.push(jump(BPF_JEQ, mode, left, 0));
            left -= 1;
        }
        code.push(jump_over(skip));
        return code;
    }
    let value = test.value;
    match test.op {
        Op::Equal => code.extend(jump_unless(BPF_JEQ, value, skip)),
        Op::NotEqual => code.extend(jump_if(BPF_JEQ, value, skip)),
        Op::Greater => code.extend(jump_unless(BPF_JGT, value, skip)),
        Op::GreaterOrEqual => code.extend(jump_unless(BPF_JGE, value, skip)),
        Op::Less => code.extend(jump_if(BPF_JGE, value, skip)),
        Op::LessOrEqual => code.extend(jump_if(BPF_JGT, value, skip)),
        Op::BitMask => code.extend(jump_unless(BPF_JSET, value, skip)),
        Op::BitTest => {
            code.push(mask(value));
            code.extend(jump_unless(BPF_JEQ, value, skip));
        }
    }
    code
}

/// Jumps over the next `skip` instructions unless the comparison holds.
fn jump_unless(comparison: u32, value: u32, skip: u32) -> [sock_filter; 2] {
    [jump(comparison, value, 1, 0), jump_over(skip)]
}

/// Jumps over the next `skip` instructions when the comparison holds.
fn jump_if(comparison: u32, value: u32, skip: u32) -> [sock_filter; 2] {
    [jump(comparison, value, 0, 1), jump_over(skip)]
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

fn ret(verdict: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, verdict, 0, 0)
}

fn mask(bits: u32) -> sock_filter {
    instruction(BPF_ALU | BPF_AND | BPF_K, bits, 0, 0)
}

fn jump_over(instructions: u32) -> sock_filter {
    instruction(BPF_JMP | BPF_JA, instructions, 0, 0)
}

fn jump(comparison: u32, value: u32, over_if: u8, over_else: u8) -> sock_filter {
    instruction(BPF_JMP | BPF_K | comparison, value, over_if, over_else)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    // All opcodes of classic BPF fit.
    let code = u16::try_from(code).unwrap_or(u16::MAX);
    sock_filter { code, jt, jf, k }
}

fn len(code: &[sock_filter]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

/// The syscalls of this name in both ABIs of an architecture.
pub(crate) fn syscalls_named(name: &str, native: NativeArch) -> Vec<SyscallId> {
    native
        .abis()
        .into_iter()
        .filter_map(|arch| {
            let syscall = table::syscall_number(arch, name.as_bytes())?;
            Some(SyscallId { arch, syscall })
        })
        .collect()
}

#[cfg(test)]
mod tests;
