//! Decisions of each list, and the conditions that it ignores.

use super::*;
use crate::ids::NativeArch;
use crate::plan::SyscallId;
use crate::rule::test_host::TestHost;
use crate::rule::{Command, parse_line};

#[track_caller]
fn rules(lines: &[&str]) -> Vec<Rule> {
    let rule = |line: &&str| match parse_line(line.as_bytes(), &TestHost) {
        (Some(Command::Add { rule, .. }), _) => rule,
        other => panic!("{line}: {other:?}"),
    };
    lines.iter().map(rule).collect()
}

/// User 1000 in groups 100 and 200, who runs `/bin/cat`.
fn sender() -> Actor<'static> {
    Actor {
        task: Task {
            ppid: 10,
            pid: 11,
            auid: Auid(1000),
            uid: 1000,
            gid: 100,
            euid: 0,
            suid: 0,
            fsuid: 0,
            egid: 100,
            sgid: 100,
            fsgid: 100,
            ses: 2,
            tty: b"pts0",
            comm: b"cat",
            exe: Some(b"/bin/cat"),
            subj: None,
        },
        label: SelinuxLabel::parse(b"u:r:t:s0"),
    }
}

#[track_caller]
fn is_kept(list: List, lines: &[&str]) -> bool {
    record_kept(&rules(lines), list, MsgType::CWD, &sender())
}

#[test]
fn exclude_list_drops_every_match() {
    for (lines, expected) in [
        (&[][..], true),
        (&["-a always,exclude -F msgtype=CWD"], false),
        (&["-a never,exclude -F msgtype=CWD"], false),
        (&["-a always,exclude -F msgtype=PATH"], true),
        (
            &["-a always,exclude -F msgtype>=1300 -F msgtype<=1310"],
            false,
        ),
        (&["-a always,exclude -F msgtype=CWD -F auid=unset"], true),
        (&["-a always,exclude -F msgtype=CWD -F auid!=unset"], false),
        (&["-a always,exclude -F exe=/bin/cat"], false),
        (&["-a always,exclude -F exe!=/bin/cat"], true),
        (&["-a always,exclude -F subj_type=t"], false),
        (&["-a always,exclude -F pid=11 -F uid=1000"], false),
        (&["-a always,exclude -F gid=100"], false),
        // Supplementary groups are not compared.
        (&["-a always,exclude -F gid=200"], true),
        // Without conditions nothing matches.
        (&["-a always,exclude"], true),
        // A rule of the user list.
        (&["-a never,user -F msgtype=CWD"], true),
    ] {
        assert_eq!(is_kept(List::Exclude, lines), expected, "{lines:?}");
    }
}

#[test]
fn unsupported_condition_ends_the_list() {
    let drop = "-a always,exclude -F msgtype=CWD";
    assert!(is_kept(
        List::Exclude,
        &["-a always,exclude -F sessionid=2", drop]
    ));
    assert!(!is_kept(
        List::Exclude,
        &[drop, "-a always,exclude -F sessionid=2"]
    ));
    // It is not reached if an earlier condition fails.
    assert!(!is_kept(
        List::Exclude,
        &["-a always,exclude -F pid=1 -F sessionid=2", drop]
    ));
    // A key is such a condition.
    assert!(is_kept(
        List::Exclude,
        &["-a always,exclude -F exe=/bin/cat -k x", drop]
    ));
    assert!(!is_kept(
        List::Exclude,
        &["-a always,exclude -F exe=/bin/sh -k x", drop]
    ));
}

#[test]
fn user_list_drops_on_never_and_keeps_on_always() {
    for (lines, expected) in [
        (&["-a never,user -F uid=1000"][..], false),
        (&["-a always,user -F uid=1000"], true),
        (
            &["-a always,user -F uid=1000", "-a never,user -F pid=11"],
            true,
        ),
        (
            &["-a never,user -F uid=0", "-a never,user -F pid=11"],
            false,
        ),
        (&["-a never,user -F auid=unset"], true),
    ] {
        assert_eq!(is_kept(List::User, lines), expected, "{lines:?}");
    }
}

#[test]
fn one_matching_condition_skips_a_file_system() {
    const TRACEFS: u32 = 0x7472_6163;
    for (lines, expected) in [
        (&[][..], true),
        (&["-a never,filesystem -F fstype=tracefs"], false),
        (&["-a never,filesystem -F fstype!=tracefs"], true),
        (&["-a always,filesystem -F fstype=tracefs"], true),
        (
            &[
                "-a always,filesystem -F fstype=tracefs",
                "-a never,filesystem -F fstype=tracefs",
            ],
            false,
        ),
        (
            &["-a never,filesystem -F fstype=debugfs -F fstype=tracefs"],
            false,
        ),
        (&["-a never,filesystem"], true),
    ] {
        assert_eq!(
            path_collected(&rules(lines), TRACEFS),
            expected,
            "{lines:?}"
        );
    }
}

#[test]
fn task_list_verdict_lasts_for_the_task() {
    use TaskVerdict::{Always, ByCall, Never};
    for (lines, expected) in [
        (&[][..], ByCall),
        (&["-a never,task"], Never),
        (&["-a always,task"], Always),
        (&["-a always,task -F uid=1000", "-a never,task"], Always),
        (&["-a never,task -F uid=0"], ByCall),
        (&["-a never,task -F auid!=unset"], Never),
        (&["-a never,task -F gid=200"], Never),
        (&["-a never,task -F pers=8"], Never),
        (&["-a never,task -F subj_type=t"], Never),
        // The task is in no syscall, and its program is unknown.
        (&["-a never,task -F a0>=0"], ByCall),
        (&["-a never,task -F arch=b64"], ByCall),
        (&["-a never,task -F arch!=b64"], ByCall),
        (&["-a never,task -F obj_uid>=0"], ByCall),
        (&["-a never,task -F exe=/bin/cat"], ByCall),
        (&["-a never,task -F exe!=/bin/cat"], Never),
        (&["-a never,exit"], ByCall),
    ] {
        let verdict = task_verdict(&rules(lines), &sender(), &[100, 200], 8);
        assert_eq!(verdict, expected, "{lines:?}");
    }
}

#[test]
fn operation_is_matched_like_a_syscall() {
    let rules = rules(&[
        "-a always,exit -F arch=b64 -S openat",
        "-a never,io_uring -S openat -F uid=0",
        "-a always,io_uring -S openat",
    ]);
    let observed = EventFacts::of_task(sender().task, &[], 0);
    let first = |op| first_uring_match(&rules, UringOp::numbered(op).unwrap(), &observed);
    assert_eq!(first(18), Some(2));
    assert_eq!(first(28), None);
}

#[test]
fn exit_rules_follow_uring_rules() {
    let rules = rules(&[
        "-a always,exit -F arch=b64 -S openat,close",
        "-a never,io_uring -S openat -F uid=1000",
        "-a always,io_uring -S openat -F uid=0",
    ]);
    let first = |op, with_syscalls| {
        let operation = UringOp::numbered(op).unwrap();
        let SyscallId { arch, syscall } = operation.syscall_id(NativeArch::X86_64);
        let observed = EventFacts {
            arch,
            syscall,
            ..EventFacts::of_task(sender().task, &[], 0)
        };
        first_operation_match(&rules, operation, &observed, with_syscalls)
    };
    assert_eq!(first(18, true), Some(1), "its own rule comes first");
    assert_eq!(first(19, true), Some(0));
    assert_eq!(first(19, false), None);
    assert_eq!(first(28, true), None);
    assert_eq!(first(22, true), None, "a read is not audited");
}
