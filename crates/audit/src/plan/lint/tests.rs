//! Each finding, on rules that cause it and on similar rules that do not.

use super::super::rule_list::RuleList;
use super::*;
use crate::rule::test_host::TestHost;
use crate::rule::{diagnostic_codes, parse_file};

/// Line and code of all findings, without those that nearly every short list has.
#[track_caller]
fn found(text: &str) -> Vec<(u32, &'static str)> {
    let (lines, _) = parse_file(text.as_bytes(), &TestHost);
    assert_eq!(lines.len(), text.lines().count(), "{text}");
    let mut list = RuleList::default();
    assert_eq!(list.load(0, lines), []);
    let found: Vec<_> = lint(list.rules(), Arch::X86_64)
        .into_iter()
        .map(|finding| {
            assert!(
                diagnostic_codes::explain(finding.code).is_some(),
                "{}",
                finding.code
            );
            assert!(!finding.message.ends_with('.') && !finding.advice.is_empty());
            (list.rules()[finding.rule].line, finding.code)
        })
        .collect();
    found
        .into_iter()
        .filter(|(_, code)| !matches!(*code, "no-key" | "no-io-uring" | "one-arch"))
        .collect()
}

#[track_caller]
fn has(text: &str, code: &str) -> bool {
    let (lines, _) = parse_file(text.as_bytes(), &TestHost);
    let mut list = RuleList::default();
    list.load(0, lines);
    lint(list.rules(), Arch::X86_64)
        .iter()
        .any(|finding| finding.code == code)
}

#[test]
fn conditions_that_exclude_each_other_are_reported() {
    let message = |conditions: &str| {
        let text = format!("-a always,exit -F arch=b64 -S acct {conditions} -k x");
        let (lines, _) = parse_file(text.as_bytes(), &TestHost);
        let mut list = RuleList::default();
        list.load(0, lines);
        let found = lint(list.rules(), Arch::X86_64);
        let found = found
            .into_iter()
            .find(|finding| finding.code == "matches-nothing");
        found.map(|finding| finding.message)
    };
    for (conditions, expected) in [
        (
            "-F auid>1000 -F auid<1000",
            "`auid>1000` and `auid<1000` cannot both hold",
        ),
        (
            "-F auid>=1000 -F pid=1 -F auid<1000",
            "`auid>=1000` and `auid<1000` cannot both hold",
        ),
        (
            "-F uid=0 -F uid!=0",
            "`uid=0` and `uid!=0` cannot both hold",
        ),
        ("-F a0=1 -F a0=2", "`a0=1` and `a0=2` cannot both hold"),
        (
            "-F auid=unset -F auid!=unset",
            "`auid=unset` and `auid!=unset` cannot both hold",
        ),
        (
            "-F ppid>5 -F ppid<6",
            "`ppid>5` and `ppid<6` cannot both hold",
        ),
    ] {
        assert_eq!(message(conditions).as_deref(), Some(expected));
    }
    for conditions in [
        "-F auid>=1000 -F auid!=unset",
        "-F ppid>5 -F ppid<7",
        "-F ppid>=5 -F ppid<=5",
        "-F uid!=0 -F uid!=1",
        // Fields with several values, and bits.
        "-F gid=1 -F gid=2",
        "-F a0&1 -F a0=2",
    ] {
        assert_eq!(message(conditions), None, "{conditions}");
    }
}

#[test]
fn unmatchable_rules_are_reported() {
    for line in [
        "-a always,exit -F arch=b64 -S stat -F a0=1 -F a0=2",
        "-a always,exit -F arch=b64 -S getpid -F path=/etc/passwd",
        "-a never,exit -F arch=b64 -S exit_group -F success=1",
        "-a always,exit -F arch=b64 -S socket -F saddr_fam=2",
        "-a always,exit -F arch=b64 -F arch=b32 -S open,openat2",
    ] {
        assert_eq!(found(line), [(1, "matches-nothing")], "{line}");
    }
    for line in [
        "-a always,exit -F arch=b64 -S stat -F a0=1",
        "-a never,exit -F arch=b64 -S read",
        // Rules for another arch.
        "-a always,exit -F arch=aarch64 -S openat,openat2",
        "-a always,exit -F arch=b64 -S connect -F saddr_fam=2",
        // They may match on another arch.
        "-a always,exit -F arch=b64 -S connect -F subj_type=init_t",
    ] {
        assert!(!has(line, "matches-nothing"), "{line}");
    }
    assert!(has(
        "-a always,exit -F arch=b64 -S connect -F obj_type!=init_t",
        "label-condition"
    ));
}

#[test]
fn shadowed_rule_is_reported() {
    for (text, line) in [
        (
            "-a never,exit -F arch=b64 -S ptrace\n-a always,exit -F arch=b64 -S ptrace -F uid=0",
            2,
        ),
        (
            "-w /etc -p wa\n-a always,exit -F dir=/etc -F perm=w -F uid=0",
            2,
        ),
        (
            "-a always,exit -F arch=b64 -S ptrace -F uid>=1000\n\
             -a always,exit -F arch=b64 -S ptrace -F uid=1001 -k x",
            2,
        ),
        (
            "-a always,exit -F arch=b64 -S ptrace -F auid!=unset\n\
             -a always,exit -F arch=b64 -S ptrace -F auid=5",
            2,
        ),
        ("-a never,task\n-a always,task -F uid=0", 2),
        (
            "-a always,exclude -F msgtype=CWD\n-a always,exclude -F msgtype=CWD -F uid=0",
            2,
        ),
    ] {
        assert_eq!(found(text), [(line, "shadowed")], "{text}");
    }
    for text in [
        "-a always,exit -F arch=b64 -S ptrace -F uid=0\n-a never,exit -F arch=b64 -S ptrace",
        "-a never,exit -F arch=b64 -S ptrace\n-a always,exit -F arch=b64 -S acct",
        "-a never,exit -F arch=b64 -S ptrace\n-a always,exit -F arch=b32 -S ptrace",
        "-a never,user -F uid=0\n-a always,exit -F arch=b64 -S ptrace -F uid=0",
        // A supplementary group may match.
        "-a always,exit -F arch=b64 -S ptrace -F gid!=5\n\
         -a always,exit -F arch=b64 -S ptrace -F gid=6",
        // Unset is the largest number.
        "-a always,exit -F arch=b64 -S ptrace -F auid!=unset\n\
         -a always,exit -F arch=b64 -S ptrace -F auid>=1000",
        "-w /etc -p w\n-a always,exit -F dir=/etc -F perm=wa",
    ] {
        assert!(!has(text, "shadowed"), "{text}");
    }
}

#[test]
fn key_on_exclude_list_is_reported() {
    let keyed = "-a always,exclude -F exe=/bin/ls -k x";
    assert_eq!(found(keyed), [(1, "key-ends-list")]);
    assert!(!has("-a always,exclude -F exe=/bin/ls", "key-ends-list"));
}

#[test]
fn rules_for_one_abi_are_reported() {
    let wide = "-a always,exit -F arch=b64 -S ptrace -k x";
    let narrow = "-a always,exit -F arch=b32 -S ptrace -k x";
    assert!(has(wide, "one-arch"));
    assert!(!has(narrow, "one-arch"));
    assert!(!has(&format!("{wide}\n{narrow}"), "one-arch"));
    assert!(!has(
        &format!("{wide}\n-a always,exit -F arch=b32 -S all"),
        "one-arch"
    ));
    for other in [
        "-a never,exit -F arch=b32 -S ptrace",
        "-a always,exit -F arch=b32 -S ptrace -F uid=0",
        "-w /x -p w",
    ] {
        assert!(has(&format!("{wide}\n{other}"), "one-arch"), "{other}");
    }
}

#[test]
fn missing_newest_syscall_is_reported() {
    let text = "-a always,exit -F arch=b64 -S open,openat";
    assert_eq!(found(text), [(1, "missing-sibling")]);
    let newest = "-a always,exit -F arch=b64 -S openat2";
    assert_eq!(found(&format!("{text}\n{newest}")), []);
    // A rule for the other ABI does not cover it.
    let other = newest.replace("b64", "b32");
    assert_eq!(found(&format!("{text}\n{other}")), [(1, "missing-sibling")]);
}

#[test]
fn expensive_rules_are_reported() {
    assert_eq!(found("-a always,exit -F exit=-EINVAL"), [(1, "expensive")]);
    assert_eq!(
        found("-a always,exit -F arch=b64 -S read"),
        [(1, "expensive")]
    );
    assert_eq!(found("-w /etc/passwd -p wa"), []);
}

#[test]
fn missing_key_and_missing_uring_rule_are_reported() {
    assert!(has("-w /x -p w", "no-key"));
    assert!(!has("-w /x -p w -k x", "no-key"));
    assert!(!has("-a never,exit -F arch=b64 -S read", "no-key"));
    assert!(has("-w /x -p w -k x", "no-io-uring"));
    assert!(!has(
        "-w /x -p w -k x\n-a always,io_uring -S openat -k x",
        "no-io-uring"
    ));
    assert!(!has("-a never,task", "no-io-uring"));
}
