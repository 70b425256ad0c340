//! Tests of what rules need.

use super::*;

/// The ways of a rule with these detections and condition, in short.
#[track_caller]
fn ways(source: Source, detection: &str) -> Vec<String> {
    let text = format!("title: t\nlogsource:\n    service: auditd\ndetection:\n{detection}");
    let mut parsed = rsigma_parser::parse_sigma_yaml(&text).unwrap();
    assert_eq!(parsed.errors, [""; 0]);
    let detection = parsed.rules.remove(0).detection;
    Need::of(&detection, source, None)
        .ways
        .iter()
        .map(short)
        .collect()
}

fn short(way: &Way) -> String {
    let mut parts = Vec::new();
    let list = |name: &str, values: Vec<String>| format!("{name}={}", values.join(","));
    if let Some(types) = &way.types {
        parts.push(list("type", types.iter().cloned().collect()));
    }
    if let Some(syscalls) = &way.syscalls {
        let wide = syscalls.iter().filter(|syscall| syscall.arch.is_64_bit());
        parts.push(list(
            "syscall",
            wide.map(|syscall| syscall.label()).collect(),
        ));
    }
    if let Some(places) = &way.places {
        parts.push(list(
            "place",
            places.iter().map(|place| format!("{place:?}")).collect(),
        ));
    }
    for (field, numbers) in &way.numbers {
        parts.push(list(
            field.name(),
            numbers.iter().map(u32::to_string).collect(),
        ));
    }
    if let Some(programs) = &way.programs {
        parts.push(list("exe", programs.iter().cloned().collect()));
    }
    if let Some(keys) = &way.keys {
        parts.push(list("key", keys.iter().cloned().collect()));
    }
    parts.extend(way.success.map(|success| format!("success={success}")));
    parts.extend(way.is_initiated.map(|value| format!("initiated={value}")));
    for (name, is_set) in [
        ("creates", way.creates),
        ("process", way.tests_process),
        ("other", way.tests_other),
    ] {
        parts.extend(is_set.then(|| name.to_owned()));
    }
    parts.extend(way.absent.iter().map(|field| format!("absent={field}")));
    parts.join(" ")
}

#[test]
fn conditions_choose_among_the_ways_of_detections() {
    let named = "    a:\n        type: EXECVE\n        a0: cat\n    b:\n        type: PATH\n        name: /etc/x\n    c:\n        - one\n        - two\n";
    let of = |condition: &str| {
        ways(
            Source::Record,
            &format!("{named}    condition: {condition}\n"),
        )
    };
    let (a, b) = ("type=EXECVE other", "type=PATH place=Path(\"/etc/x\")");
    assert_eq!(of("a"), [a]);
    assert_eq!(of("a or b"), [a, b]);
    assert_eq!(of("1 of a*"), [a]);
    assert_eq!(of("a and c"), [a]);
    assert_eq!(of("b and not a"), [b]);
    assert_eq!(of("not a"), [""]);
    assert_eq!(of("1 of them"), [""]);
    assert_eq!(of("c"), [""]);
    // No record is of two types.
    assert_eq!(of("a and b"), [""; 0]);
    assert_eq!(of("all of them"), [""; 0]);
}

#[test]
fn tests_of_records_restrict_what_audit_rules_can_choose() {
    let of = |test: &str| {
        let tests = test.replace("; ", "\n        ");
        ways(
            Source::Record,
            &format!("    a:\n        {tests}\n    condition: a\n"),
        )
        .join(" | ")
    };
    for (test, way) in [
        ("type: execve", "type=EXECVE"),
        ("type: SYS*", ""),
        ("a1|startswith: --cpu", "type=EXECVE other"),
        ("a1: '40'", "type=EXECVE,SOCKETCALL,SYSCALL a1=64 other"),
        ("a7: '40'", "type=EXECVE other"),
        ("a2|re: '-x'", "type=EXECVE,SOCKETCALL,SYSCALL other"),
        (
            "type: SYSCALL; SYSCALL: [mknod, Sysinfo]; a0: [4, '5']",
            "type=SYSCALL syscall=sysinfo,mknod a0=4,5 other",
        ),
        ("SYSCALL: no_such_call", ""),
        (
            "type: SYSCALL; SYSCALL|startswith: mk",
            "type=SYSCALL other",
        ),
        ("syscall: 59", "syscall=execve"),
        (
            "type: SYSCALL; exe: /usr/bin/kmod; comm: insmod; success: 'yes'",
            "type=SYSCALL exe=/usr/bin/kmod success=true process",
        ),
        ("exe|endswith: /useradd", "process"),
        ("euid: 33; UID: root", "euid=33 other"),
        ("auid: unset", "process"),
        ("key: susp; exe: null", "key=susp other"),
        ("key|contains: susp", "key="),
        (
            "type: PATH; nametype: CREATE; name|startswith: [/usr/lib/systemd/system/, /etc/systemd/]",
            "type=PATH place=Below(\"/etc/systemd\"),Below(\"/usr/lib/systemd/system\") creates",
        ),
        (
            "name: ['/home/*/.profile', /etc/issue]",
            "type=KERN_MODULE,PATH place=Path(\"/etc/issue\"),Below(\"/home\")",
        ),
        (
            "name: [/etc/issue, '*/x']",
            "type=KERN_MODULE,PATH place=Anywhere",
        ),
        (
            "name|contains: /etc/",
            "type=KERN_MODULE,PATH place=Anywhere",
        ),
        ("name: null", "other"),
        ("exit: -13", "other"),
        ("op: add_rule", "other"),
    ] {
        assert_eq!(of(test), way, "{test}");
    }
}

#[test]
fn tests_of_whole_events_restrict_them() {
    let of = |source, test: &str| {
        let tests = test.replace("; ", "\n        ");
        ways(
            source,
            &format!("    a:\n        {tests}\n    condition: a\n"),
        )
        .join(" | ")
    };
    for (source, test, way) in [
        (Source::Process, "Image|endswith: /sh", ""),
        (Source::Process, "Hashes: x", "absent=Hashes"),
        (Source::Process, "Hashes: null", ""),
        (
            Source::File,
            "TargetFilename|startswith: /etc/cron.",
            "place=Below(\"/etc\")",
        ),
        (
            Source::File,
            "TargetFilename|endswith: .sh",
            "place=Anywhere",
        ),
        (Source::File, "TargetFilename: null", ""),
        (Source::Network, "Initiated: 'true'", "initiated=true"),
        (
            Source::Network,
            "Initiated: false; Image: /x",
            "initiated=false",
        ),
        (Source::Network, "Initiated: [true, false]", ""),
        (Source::Network, "DestinationPort: 4444", "initiated=true"),
        (Source::Network, "SourcePort: 22", "initiated=false"),
        (Source::Network, "SourcePort: 22; DestinationPort: 5", ""),
        (
            Source::Network,
            "DestinationHostname: x",
            "absent=DestinationHostname",
        ),
    ] {
        assert_eq!(of(source, test), way, "{test}");
    }
}

#[test]
fn conditions_of_many_ways_are_bounded() {
    let named = |number| {
        format!(
            "    d{number}:\n        - type: PATH\n          name: /a{number}/x\n        - type: EXECVE\n          exe: /b{number}\n"
        )
    };
    let detection: String = (0..40).map(named).collect();
    let condition = (0..40)
        .map(|number| format!("d{number}"))
        .collect::<Vec<_>>()
        .join(" and ");
    let ways = ways(
        Source::Record,
        &format!("{detection}    condition: {condition}\n"),
    );
    assert!((1..=MAX_WAYS).contains(&ways.len()), "{}", ways.len());
}
