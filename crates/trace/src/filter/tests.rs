//! Tests that interpret filters and compare them with the plan.

use std::fmt::Write as _;

use audit::event::Task;
use audit::ids::{Arch, Auid, Syscall};
use audit::plan::eval::EventFacts;
use audit::plan::rule_list::RuleList;
use audit::plan::verdict::Verdict;
use audit::rule::parse_file;
use inputs::host::TestHost;
use proptest::prelude::*;

use super::*;

fn plan(rules: &str) -> Plan {
    let (lines, findings) = parse_file(rules.as_bytes(), &TestHost);
    assert!(findings.is_empty(), "{rules}: {findings:?}");
    let mut list = RuleList::default();
    list.load(0, lines);
    Plan::compile(list.into_rules(), &[Arch::X86_64, Arch::I386])
}

/// Interprets a filter and returns its result.
#[track_caller]
fn run(code: &[sock_filter], arch: u32, number: u32, args: [u64; 4]) -> u32 {
    assert!(code.len() <= MAX_INSTRUCTIONS);
    let mut a = 0;
    let mut at = 0;
    loop {
        let sock_filter {
            code: kind,
            jt,
            jf,
            k,
        } = code[at];
        at += 1;
        let kind = u32::from(kind);
        let over = |holds: bool| usize::from(if holds { jt } else { jf });
        if kind == BPF_LD | BPF_W | BPF_ABS {
            a = match k {
                NUMBER => number,
                ARCH => arch,
                _ => {
                    let index = usize::try_from((k - ARGUMENTS) / 8).unwrap();
                    u32::try_from(args[index] & 0xffff_ffff).unwrap()
                }
            };
        } else if kind == BPF_RET | BPF_K {
            return k;
        } else if kind == BPF_ALU | BPF_AND | BPF_K {
            a &= k;
        } else if kind == BPF_JMP | BPF_JA {
            at += usize::try_from(k).unwrap();
        } else if kind == BPF_JMP | BPF_K | BPF_JEQ {
            at += over(a == k);
        } else if kind == BPF_JMP | BPF_K | BPF_JGE {
            at += over(a >= k);
        } else if kind == BPF_JMP | BPF_K | BPF_JGT {
            at += over(a > k);
        } else if kind == BPF_JMP | BPF_K | BPF_JSET {
            at += over(a & k != 0);
        } else {
            panic!("instruction {kind:#x} is not one of ours");
        }
    }
}

fn stops(rules: &str, arch: Arch, name: &str, args: [u64; 4]) -> bool {
    let code = compile(&plan(rules), Backend::Ptrace, &[]);
    let number = table::syscall_number(arch, name.as_bytes()).unwrap();
    match run(&code, arch.0, number.0, args) {
        SECCOMP_RET_TRACE => true,
        SECCOMP_RET_ALLOW => false,
        other => panic!("{other:#x}"),
    }
}

const B64: Arch = Arch::X86_64;
const B32: Arch = Arch::I386;

#[test]
fn only_named_syscalls_stop() {
    let rules =
        "-a always,exit -F arch=b64 -S openat,rename -k k\n-a always,exit -F arch=b32 -S open";
    for (arch, name, stop) in [
        (B64, "openat", true),
        (B64, "rename", true),
        (B64, "open", false),
        (B64, "getpid", false),
        (B32, "open", true),
        (B32, "openat", false),
        (B32, "rename", false),
    ] {
        assert_eq!(stops(rules, arch, name, [0; 4]), stop, "{name}");
    }
}

#[test]
fn other_arch_and_unknown_numbers_are_allowed() {
    let code = compile(
        &plan("-a always,exit -F arch=b64 -S all"),
        Backend::Notify,
        &[],
    );
    for (arch, number) in [
        (Arch::AARCH64.0, 1),
        (B64.0, 0x4000_0001),
        (B64.0, u32::MAX),
        (B32.0, 5),
    ] {
        assert_eq!(run(&code, arch, number, [0; 4]), SECCOMP_RET_ALLOW);
    }
    assert_eq!(run(&code, B64.0, 1, [0; 4]), SECCOMP_RET_USER_NOTIF);
}

#[test]
fn open_access_mode_is_tested_in_filter() {
    let writes = "-a always,exit -F arch=b64 -F path=/x -F perm=w";
    for (flags, stop) in [(0, false), (1, true), (2, true), (3, true), (0x241, true)] {
        assert_eq!(stops(writes, B64, "openat", [0, 0, flags, 0]), stop);
        assert_eq!(stops(writes, B64, "open", [0, flags, 0, 0]), stop);
    }
    assert!(
        stops(writes, B64, "openat2", [0; 4]),
        "its flags are in memory"
    );
}

#[test]
fn undecidable_test_stops_always_rule_and_skips_never_rule() {
    let rules = "-a never,exit -F arch=b64 -S chmod -F uid=0\n\
                 -a never,exit -F arch=b64 -S chmod -F a1=0644\n\
                 -a always,exit -F arch=b64 -S chmod -F uid!=0 -F a1<0700";
    for (mode, stop) in [(0o644, false), (0o600, true), (0o755, false)] {
        assert_eq!(stops(rules, B64, "chmod", [0, mode, 0, 0]), stop);
    }
}

#[test]
fn all_syscalls_of_both_abis_fit() {
    let mut rules = String::new();
    for key in 0..200 {
        writeln!(rules, "-a always,exit -S all -F a0={key} -k key{key}").unwrap();
    }
    let code = compile(&plan(&rules), Backend::Ptrace, &[]);
    assert!(code.len() <= MAX_INSTRUCTIONS, "{}", code.len());
    assert_eq!(run(&code, B64.0, 39, [777, 0, 0, 0]), SECCOMP_RET_TRACE);
}

const CALLS: [&str; 5] = ["openat", "open", "chmod", "rename", "close"];

fn a_rule() -> impl Strategy<Value = String> {
    let test = (
        0..4_u32,
        prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">=", "&", "&="]),
        0..8_u32,
    )
        .prop_map(|(arg, op, value)| format!(" -F a{arg}{op}{value}"));
    let other = prop::sample::select(vec![
        "",
        " -F uid=7",
        " -F perm=w",
        " -F perm=r",
        " -F exit=0",
    ]);
    (
        prop::bool::ANY,
        prop::sample::subsequence(CALLS.to_vec(), 1..4),
        prop::collection::vec(test, 0..3),
        other,
    )
        .prop_map(|(always, calls, tests, other)| {
            let action = if always { "always" } else { "never" };
            let (calls, tests) = (calls.join(","), tests.concat());
            format!("-a {action},exit -F arch=b64 -S {calls}{tests}{other}\n")
        })
}

proptest! {
    /// The filter stops every syscall that the plan records; with rules that test only arguments, no other.
    #[test]
    fn filter_stops_every_syscall_the_plan_records(
        rules in prop::collection::vec(a_rule(), 1..6),
        call in prop::sample::select(CALLS.to_vec()),
        args in [0..8_u64, 0..8_u64, 0..8_u64, 0..8_u64],
        uid in 6..9_u32,
    ) {
        let mut rules = rules;
        rules.dedup();
        let text = rules.concat();
        let (lines, _) = parse_file(text.as_bytes(), &TestHost);
        let mut list = RuleList::default();
        list.load(0, lines);
        let plan = Plan::compile(list.into_rules(), &[B64]);
        let Syscall(number) = table::syscall_number(B64, call.as_bytes()).unwrap();
        let stopped = run(&compile(&plan, Backend::Ptrace, &[]), B64.0, number, args) == SECCOMP_RET_TRACE;
        let task = Task {
            ppid: 1, pid: 2, auid: Auid::UNSET, uid, gid: 0, euid: 0, suid: 0, fsuid: 0, egid: 0,
            sgid: 0, fsgid: 0, ses: 0, tty: b"", comm: b"", exe: None,
            subj: None,
        };
        let observed = EventFacts {
            arch: B64, syscall: Syscall(number), exit: Some(0), args, open_how_flags: 0, task,
            groups: &[], personality: 0, label: None, socket_family: None, task_state: None, uring_enter: None, objects: &[],
        };
        let recorded = matches!(plan.evaluate(&observed), Verdict::Record(_));
        prop_assert!(stopped || !recorded, "{text}");
        if !text.contains("uid") && !text.contains("exit=0") {
            prop_assert_eq!(stopped, recorded, "{}", text);
        }
    }
}
