//! Rules for other archs, and the effect of a rule's arch on its syscalls.

use super::*;

#[test]
fn foreign_arch_gets_a_note() {
    let noted = |line: &str| {
        let (command, findings) = parse_line(line.as_bytes(), &TestHost);
        let Some(Command::Add { rule, .. }) = command else {
            panic!("{line}: {findings:?}")
        };
        let found: Vec<_> = findings
            .iter()
            .map(|finding| (finding.severity, finding.code))
            .collect();
        assert_eq!(found, [(Severity::Note, "foreign-arch")], "{line}");
        rule.syscalls.iter().collect::<Vec<_>>()
    };
    for (arch, number) in [
        ("aarch64", 56),
        ("arm", 322),
        ("ppc", 286),
        ("ppc64", 286),
        ("ppc64le", 286),
        ("s390", 288),
        ("s390x", 288),
        ("riscv32", 56),
        ("riscv64", 56),
    ] {
        let line = format!("-a always,exit -F arch={arch} -S openat");
        assert_eq!(noted(&line), [number], "{arch}");
    }
    // Every task on this host matches.
    let other = rule("-a always,exit -F arch!=aarch64 -S openat");
    assert!(other.syscalls.contains(56));
}

#[test]
fn perm_adds_no_syscalls_in_rule_files() {
    assert_eq!(
        numbers("-a always,exit -F arch=b64 -S read -F perm=x -F path=/x"),
        [0]
    );
    for all in [
        "-a always,exit -F arch=b64 -F path=/x -F perm=x",
        "-a always,exit -F path=/x -F perm=x",
        "-a always,exit -F arch=b64 -S all -F path=/x -F perm=x",
        "-w /x -p x",
    ] {
        assert!(rule(all).syscalls.is_all(), "{all}");
    }
}

/// [`TestHost`] on an arm64 machine.
struct Arm64Host;

impl RuleHost for Arm64Host {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        TestHost.uid(name)
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        TestHost.gid(name)
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        TestHost.is_directory(path)
    }

    fn native(&self) -> Arch {
        Arch::AARCH64
    }
}

#[test]
fn arm64_has_examples_of_its_own() {
    let example = include_str!("../../../../../../examples/first-aarch64.rules");
    let (lines, findings) = parse_file(example.as_bytes(), &Arm64Host);
    assert_eq!((lines.len(), findings), (8, Vec::new()));
    // No other machine's example is for arm64: the kernel there lacks calls that it names.
    let example = include_str!("../../../../../../examples/first.rules");
    let (_, findings) = parse_file(example.as_bytes(), &Arm64Host);
    assert!(!findings.is_empty());
}
