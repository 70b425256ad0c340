//! Plan to seccomp filter: one classic BPF program that stops the calls which some rule may keep.
//!
//! The numbers of each ABI are searched by comparison only. The kernel runs a new filter once over every
//! number, and where the answer is "allow" whatever the arguments are it sets a bit, so that such calls
//! do not run the filter at all (`seccomp_is_const_allow()` in `kernel/seccomp.c`, since v5.11). It gives
//! up at instructions that it does not know: shifts, which a bitmap of our own would need, are among them.
//!
//! What the first four arguments decide is decided here, rule by rule in the order of the plan. A test
//! that only the supervisor can make is taken to hold for a rule that records and to fail for one that
//! suppresses: the filter stops too much rather than too little.

use std::collections::BTreeMap;

use audit::ids::Arch;
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
/// The kernel takes no longer program: `BPF_MAXINSNS`.
const MOST_INSTRUCTIONS: usize = 4096;

/// What a call comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    /// It goes on.
    Pass,
    /// It stops.
    Stop,
    /// Its arguments decide.
    Ask(Vec<sock_filter>),
}

/// The filter of a plan. `also` are calls that stop although no rule names them.
pub(crate) fn compile(plan: &Plan, carrier: Backend, also: &[SyscallId]) -> Vec<sock_filter> {
    let exact = program(plan, carrier, also, true);
    if exact.len() <= MOST_INSTRUCTIONS {
        return exact;
    }
    // Without the arguments a plan of every call of both ABIs takes a few instructions for each.
    program(plan, carrier, also, false)
}

fn program(plan: &Plan, carrier: Backend, also: &[SyscallId], exact: bool) -> Vec<sock_filter> {
    let stop = match carrier {
        Backend::Trace => SECCOMP_RET_TRACE,
        Backend::Notify => SECCOMP_RET_USER_NOTIF,
    };
    let abi = |arch| {
        let mut bodies: BTreeMap<u32, Body> = plan
            .syscalls
            .iter()
            .filter(|(call, _)| call.arch == arch)
            .map(|(call, rules)| {
                let body = if exact {
                    body(*call, &rules.slots, stop)
                } else {
                    Body::Stop
                };
                (call.syscall.0, body)
            })
            .collect();
        for call in also.iter().filter(|call| call.arch == arch) {
            bodies.insert(call.syscall.0, Body::Stop);
        }
        search(&intervals(bodies), stop)
    };
    let (wide, narrow) = (abi(Arch::X86_64), abi(Arch::I386));
    let mut code = vec![load(ARCH)];
    code.extend(unless(BPF_JEQ, Arch::X86_64.0, len(&wide) + 1));
    code.push(load(NUMBER));
    code.extend(wide);
    code.extend(unless(BPF_JEQ, Arch::I386.0, len(&narrow) + 1));
    code.push(load(NUMBER));
    code.extend(narrow);
    code.push(give(SECCOMP_RET_ALLOW));
    code
}

/// First numbers of the stretches that share a body; the first stretch starts at 0, the last one has no
/// end.
fn intervals(bodies: BTreeMap<u32, Body>) -> Vec<(u32, Body)> {
    let mut found = vec![(0, Body::Pass)];
    let mut put = |number: u32, body: Body| match found.last_mut() {
        Some((_, last)) if *last == body => {}
        Some((start, last)) if *start == number => *last = body,
        _ => found.push((number, body)),
    };
    let mut next = 0;
    for (number, body) in bodies {
        if number != next {
            put(next, Body::Pass);
        }
        put(number, body);
        next = number.saturating_add(1);
    }
    put(next, Body::Pass);
    found
}

/// Finds the stretch of the number in A; every way ends with a return.
fn search(stretches: &[(u32, Body)], stop: u32) -> Vec<sock_filter> {
    let (left, right) = stretches.split_at(stretches.len() / 2);
    match (left, right) {
        (_, []) => vec![give(SECCOMP_RET_ALLOW)],
        ([], [(_, Body::Pass), ..]) => vec![give(SECCOMP_RET_ALLOW)],
        ([], [(_, Body::Stop), ..]) => vec![give(stop)],
        ([], [(_, Body::Ask(code)), ..]) => code.clone(),
        (_, [(start, _), ..]) => {
            let below = search(left, stop);
            // From `start` on, the jump over the lower half is taken.
            let mut code = vec![jump(BPF_JGE, *start, 0, 1), skip(len(&below))];
            code.extend(below);
            code.extend(search(right, stop));
            code
        }
    }
}

fn body(call: SyscallId, slots: &[Slot], stop: u32) -> Body {
    let mut code = Vec::new();
    for slot in slots {
        let (known, unknown): (Vec<&Test>, Vec<&Test>) = slot
            .tests
            .iter()
            .partition(|test| argument(call, test).is_some());
        let verdict = match slot.action {
            Action::Always => stop,
            Action::Never if unknown.is_empty() => SECCOMP_RET_ALLOW,
            Action::Never => continue,
        };
        let mut rule = vec![give(verdict)];
        for (place, test) in known
            .iter()
            .rev()
            .filter_map(|test| Some((argument(call, test)?, *test)))
        {
            let mut asked = ask(place, test, len(&rule));
            asked.extend(rule);
            rule = asked;
        }
        code.extend(rule);
        if known.is_empty() {
            return if code.len() == 1 && verdict == stop {
                Body::Stop
            } else {
                Body::Ask(code)
            };
        }
    }
    code.push(give(SECCOMP_RET_ALLOW));
    if code.len() == 1 {
        Body::Pass
    } else {
        Body::Ask(code)
    }
}

/// The argument that decides a test by itself.
fn argument(call: SyscallId, test: &Test) -> Option<u32> {
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

/// Goes on when the test holds, and else jumps over what follows, `beyond` instructions.
fn ask(argument: u32, test: &Test, beyond: u32) -> Vec<sock_filter> {
    // Both ABIs are little-endian: the low half, which is all that is compared, comes first.
    let mut code = vec![load(ARGUMENTS + 8 * argument)];
    if test.operand == Operand::OpenPerm {
        code.push(mask(3));
        let wanted: Vec<u32> = (0..4)
            .filter(|&mode| compare(test.op, perm::access_mode(mode), test.value))
            .collect();
        let mut left = u8::try_from(wanted.len()).unwrap_or(0);
        for mode in wanted {
            // From a mode that is wanted, over the other modes and over the jump away.
            code.push(jump(BPF_JEQ, mode, left, 0));
            left -= 1;
        }
        code.push(skip(beyond));
        return code;
    }
    let value = test.value;
    match test.op {
        Op::Equal => code.extend(unless(BPF_JEQ, value, beyond)),
        Op::NotEqual => code.extend(when(BPF_JEQ, value, beyond)),
        Op::Greater => code.extend(unless(BPF_JGT, value, beyond)),
        Op::GreaterOrEqual => code.extend(unless(BPF_JGE, value, beyond)),
        Op::Less => code.extend(when(BPF_JGE, value, beyond)),
        Op::LessOrEqual => code.extend(when(BPF_JGT, value, beyond)),
        Op::BitMask => code.extend(unless(BPF_JSET, value, beyond)),
        Op::BitTest => {
            code.push(mask(value));
            code.extend(unless(BPF_JEQ, value, beyond));
        }
    }
    code
}

/// Jumps over the next `beyond` instructions unless the comparison holds.
fn unless(comparison: u32, value: u32, beyond: u32) -> [sock_filter; 2] {
    [jump(comparison, value, 1, 0), skip(beyond)]
}

/// Jumps over the next `beyond` instructions when the comparison holds.
fn when(comparison: u32, value: u32, beyond: u32) -> [sock_filter; 2] {
    [jump(comparison, value, 0, 1), skip(beyond)]
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

fn give(verdict: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, verdict, 0, 0)
}

fn mask(bits: u32) -> sock_filter {
    instruction(BPF_ALU | BPF_AND | BPF_K, bits, 0, 0)
}

fn skip(instructions: u32) -> sock_filter {
    instruction(BPF_JMP | BPF_JA, instructions, 0, 0)
}

fn jump(comparison: u32, value: u32, over_if: u8, over_else: u8) -> sock_filter {
    instruction(BPF_JMP | BPF_K | comparison, value, over_if, over_else)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    // All codes of classic BPF fit.
    let code = u16::try_from(code).unwrap_or(u16::MAX);
    sock_filter { code, jt, jf, k }
}

fn len(code: &[sock_filter]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

/// The calls of both ABIs that go by this name.
pub(crate) fn calls_named(name: &str) -> Vec<SyscallId> {
    [Arch::X86_64, Arch::I386]
        .into_iter()
        .filter_map(|arch| {
            let syscall = table::syscall_number(arch, name.as_bytes())?;
            Some(SyscallId { arch, syscall })
        })
        .collect()
}

#[cfg(test)]
mod tests;
