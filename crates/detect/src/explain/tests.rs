//! Tests of what rules need, and that audit rules which are made record it.

mod made_events;
mod random_rules;

use std::fs;
use std::path::Path;

use audit::ids::Dialect;
use audit::record::assemble::{EventAssembler, EventRecords};
use audit::rule::{Rule, auditctl, print};
use logs::rule_decision::deciding_rule;
use logs::syscall_event::SyscallEvent;

use super::*;
use crate::sigma::placeholder::Placeholders;

/// Sigma rules of a text.
fn sigma(text: &str) -> RuleFiles {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("rules.yml"), text).unwrap();
    let rules = RuleFiles::load(&[place.path().to_owned()], &Placeholders::default());
    assert_eq!(rules.problems, []);
    rules
}

fn rule(title: &str, source: &str, detection: &str) -> String {
    let detection = detection.replace("; ", "\n        ");
    let source = match source {
        "auditd" => "service: auditd".to_owned(),
        category => format!("category: {category}"),
    };
    format!(
        "title: {title}\nlogsource:\n    product: linux\n    {source}\ndetection:\n    a:\n        {detection}\n    condition: a\n---\n"
    )
}

/// The audit rules that are made for Sigma rules.
fn made(sigma: &RuleFiles, with_excessive: bool) -> String {
    Report::new(sigma, None, with_excessive).rule_file()
}

/// Rules of a file, in the order of the kernel.
#[track_caller]
fn parsed(text: &str) -> Vec<Rule> {
    let (lines, findings) = parse_file(text.as_bytes(), &Accounts::default());
    assert_eq!(findings, [], "{text}");
    let mut list = RuleList::default();
    assert_eq!(list.load(0, lines), [], "{text}");
    list.into_rules()
        .into_iter()
        .map(|entry| entry.rule)
        .collect()
}

fn compared(text: &str) -> RuleSource {
    RuleSource::of_texts(
        "x".to_owned(),
        vec![("x.rules".to_owned(), text.as_bytes().to_vec())],
    )
}

/// Status and reasons of the first Sigma rule with these audit rules.
fn status(sigma: &RuleFiles, audit_rules: &str) -> (Status, Vec<String>) {
    let source = compared(audit_rules);
    assert_eq!(source.errors, [""; 0]);
    let report = Report::new(sigma, Some(&source), false);
    let coverage = report.explained[0].coverage.clone().unwrap();
    (coverage.status, coverage.reasons.into_iter().collect())
}

/// The events of a log.
fn events(text: &str) -> Vec<EventRecords> {
    let mut assembler = EventAssembler::default();
    for line in text.lines() {
        assembler.take(line.as_bytes(), 0).unwrap();
    }
    assembler.end_all();
    std::iter::from_fn(|| assembler.next_ended()).collect()
}

/// The rule that records an event; `None` if none does.
fn recording<'r>(rules: &'r [Rule], event: &EventRecords) -> Option<&'r Rule> {
    let syscall = SyscallEvent::of(event)?;
    let rule = rules.get(deciding_rule(rules, &syscall.event(), event)?)?;
    (rule.action == audit::rule::Action::Always).then_some(rule)
}

#[cfg(target_arch = "x86_64")]
#[test]
fn audit_rules_are_merged_and_name_what_they_feed() {
    let text = [
        rule("Shell", "process_creation", "Image|endswith: /sh"),
        rule("Netcat", "auditd", "type: EXECVE; a0: nc"),
        rule("Split", "auditd", "type: SYSCALL; comm: split"),
        rule("Web", "auditd", "type: SYSCALL; SYSCALL: execve; euid: 33"),
        rule(
            "Cron",
            "file_event",
            "TargetFilename|startswith: /etc/cron.d/",
        ),
        rule("Cron Job", "file_event", "TargetFilename: /etc/cron.d/x"),
        rule(
            "Calls",
            "auditd",
            "type: SYSCALL; SYSCALL: [mknod, sysinfo]",
        ),
        rule(
            "Info",
            "auditd",
            "type: PATH; name: [/usr/lib/issue, '/usr/lib/*release']",
        ),
        rule("Preload", "auditd", "type: PATH; name: /lib/x.so"),
        rule("Out", "network_connection", "Initiated: 'true'; Image: /x"),
        rule(
            "Keyed",
            "auditd",
            "type: SYSCALL; SYSCALL: sysinfo; key: info",
        ),
        rule("Stop", "auditd", "type: SERVICE_STOP; unit: firewalld"),
        rule("Hidden", "auditd", "type: PATH; name|contains: /."),
        rule("Any", "auditd", "op: x"),
    ]
    .concat();
    let expected = "\
## Audit rules for Sigma rules, made by `tollgate detect explain --audit-rules`.

## auditctl goes on if a directory does not exist on this machine.
-i

# Calls
# Keyed
-a always,exit -F arch=b64 -S sysinfo -F key=info
-a always,exit -F arch=b32 -S sysinfo -F key=info

# Web
-a always,exit -F arch=b64 -S execve -F euid=33 -F key=sigma-exec
-a always,exit -F arch=b32 -S execve -F euid=33 -F key=sigma-exec

# Shell
# Netcat
# Split
-a always,exit -F arch=b64 -S execve,execveat -F success=1 -F key=sigma-exec
-a always,exit -F arch=b32 -S execve,execveat -F success=1 -F key=sigma-exec

# Cron
# Cron Job
-a always,exit -F arch=b64 -S creat,link,linkat,mknodat,openat2,rename,renameat,renameat2,symlink,symlinkat,truncate -F dir=/etc/cron.d -F success=1 -F key=sigma-file
-a always,exit -F arch=b32 -S creat,link,linkat,mknodat,openat2,rename,renameat,renameat2,symlink,symlinkat,truncate,truncate64 -F dir=/etc/cron.d -F success=1 -F key=sigma-file
-a always,exit -F arch=b64 -S open -F dir=/etc/cron.d -F success=1 -F a1&0x243 -F key=sigma-file
-a always,exit -F arch=b32 -S open -F dir=/etc/cron.d -F success=1 -F a1&0x243 -F key=sigma-file
-a always,exit -F arch=b64 -S open_by_handle_at,openat -F dir=/etc/cron.d -F success=1 -F a2&0x243 -F key=sigma-file
-a always,exit -F arch=b32 -S open_by_handle_at,openat -F dir=/etc/cron.d -F success=1 -F a2&0x243 -F key=sigma-file

# Preload
-a always,exit -F arch=b64 -F path=/lib/x.so -F perm=rwxa -F key=sigma-access
-a always,exit -F arch=b32 -F path=/lib/x.so -F perm=rwxa -F key=sigma-access

# Info
-a always,exit -F arch=b64 -F dir=/usr/lib -F perm=rwxa -F key=sigma-access
-a always,exit -F arch=b32 -F dir=/usr/lib -F perm=rwxa -F key=sigma-access

# Out
-a always,exit -F arch=b64 -S connect -F saddr_fam=10 -F key=sigma-net
-a always,exit -F arch=b32 -S connect -F saddr_fam=10 -F key=sigma-net
-a always,exit -F arch=b32 -S socketcall -F saddr_fam=10 -F a0=0x3 -F key=sigma-net
-a always,exit -F arch=b64 -S connect -F saddr_fam=2 -F key=sigma-net
-a always,exit -F arch=b32 -S connect -F saddr_fam=2 -F key=sigma-net
-a always,exit -F arch=b32 -S socketcall -F saddr_fam=2 -F a0=0x3 -F key=sigma-net

# Cron
# Cron Job
# Calls
-a always,exit -F arch=b64 -S mknod -F key=sigma-call
-a always,exit -F arch=b32 -S mknod -F key=sigma-call

## Not fed by these rules, or only partly:
# Hidden: it needs records of every access to any file, for which --excessive makes an audit rule
# Any: it names neither a record type nor a field that tells which records it needs
";
    let sigma = sigma(&text);
    assert_eq!(made(&sigma, false), expected);
    let excessive = made(&sigma, true);
    assert!(excessive.contains("\n-a always,exit -F arch=b64 -F perm=rwxa -F key=sigma-access\n"));
    assert!(!excessive.contains("path=/lib/x.so"), "{excessive}");
}

#[test]
fn audit_rules_of_the_author_are_first_if_their_key_is_tested() {
    let text = "title: K\nlogsource:\n    service: auditd\n    definition: |\n        Required:\n        -w /usr/bin/wget -p x -k susp\n        -w /bin/x -p x -k other\n        -a never,exit -S all -k susp\n        -D\ndetection:\n    a:\n        key: SUSP\n    condition: a\n---\n";
    let rules = sigma(&[text, &rule("Shell", "process_creation", "Image: /x")].concat());
    let made = made(&rules, false);
    let parsed = parsed(&made);
    let first = print(&parsed[0], NativeArch::BUILD.b64(), Dialect::V3);
    assert_eq!(first, "-w /usr/bin/wget -p x -k susp");
    assert!(!made.contains("other") && !made.contains("never"), "{made}");
    assert_eq!(status(&rules, "-w /x -p r -k Susp\n").0, Status::Given);
    assert_eq!(
        status(&rules, "-w /x -p r -k y\n"),
        (
            Status::Missing,
            vec!["no rule has the key `SUSP`".to_owned()]
        )
    );
    let without = sigma(&rule("K", "auditd", "key: susp"));
    let reason = "it needs an audit rule with the key `susp`, and does not tell what that records";
    assert!(
        Report::new(&without, None, true).explained[0]
            .unfed
            .contains(reason)
    );
}

/// The text of the titles and ids of others is in comments only.
#[test]
fn titles_do_not_become_audit_rules() {
    let title = "\"x\\n-D\\u0000 \\\\\"";
    let made = made(&sigma(&rule(title, "process_creation", "Image: /x")), false);
    assert!(made.contains("\n# x -D"), "{made}");
    assert_eq!(parsed(&made).len(), 2);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn audit_rules_are_compared_with_what_is_needed() {
    let of = |source: &str, detection: &str, audit_rules: &str| {
        let (status, reasons) = status(&sigma(&rule("T", source, detection)), audit_rules);
        format!("{}: {}", status.name(), reasons.join("; "))
    };
    let exec = |audit_rules: &str| of("process_creation", "Image|endswith: /sh", audit_rules);
    let both = "-a always,exit -F arch=b64 -S execve,execveat -F key=e\n-a always,exit -F arch=b32 -S execve,execveat\n";
    assert_eq!(exec(both), "given: ");
    assert_eq!(
        exec("-a always,exit -F arch=b64 -S execve\n"),
        "partly: no rule for execveat; 32-bit execve, execveat"
    );
    assert_eq!(
        exec("-a always,exit -F arch=b64 -S execve,execveat -F auid>=1000 -F auid!=-1\n"),
        "partly: line 1: only some of the events; no rule for 32-bit execve, execveat"
    );
    assert_eq!(
        exec(""),
        "missing: no rule for execve, execveat; 32-bit execve, execveat"
    );
    assert_eq!(
        exec(&format!("-a never,exit -F exe=/bin/x\n{both}")),
        "partly: line 1: can suppress events"
    );
    assert_eq!(
        exec(&format!(
            "-a never,exit -F arch=b64 -S execve -F success=0\n{both}"
        )),
        "given: "
    );
    assert_eq!(
        exec(&format!("-a never,task\n{both}")),
        "missing: line 1: no task is recorded"
    );
    assert_eq!(
        exec(&format!("-a never,exclude -F msgtype=EXECVE\n{both}")),
        "missing: a rule of the list exclude drops EXECVE records"
    );
    let file = |audit_rules: &str| of("file_event", "TargetFilename: /etc/cron.d/x", audit_rules);
    let watch = file("-w /etc/cron.d -p wa\n-w /etc/cron.d/y -p w\n");
    // Opens that only create are no writes.
    assert!(
        watch.starts_with(
            "partly: line 1, line 2: only some of the events; no rule for open_by_handle_at"
        ),
        "{watch}"
    );
    let access = |audit_rules: &str| of("auditd", "type: PATH; name: /etc/x", audit_rules);
    assert_eq!(access("-w /etc/x -p rwxa\n"), "given: ");
    assert_eq!(
        access("-a always,exit -F dir=/etc -F perm=rwxa\n"),
        "given: "
    );
    assert!(access("-w /etc/x -p wa\n").starts_with("partly: "));
    assert!(access("-w /etc/y -p wa\n").starts_with("partly: line 1: only some"));
    let sent = |audit_rules: &str| of("auditd", "type: USER_LOGIN; res: failed", audit_rules);
    assert_eq!(sent(""), "sent: ");
    assert_eq!(
        sent("-a always,exclude -F msgtype=USER_LOGIN\n"),
        "missing: a rule of the list exclude drops USER_LOGIN records"
    );
    let key = |audit_rules: &str| {
        of(
            "auditd",
            "type: SYSCALL; SYSCALL: sysinfo; key: k",
            audit_rules,
        )
    };
    assert_eq!(
        key(
            "-a always,exit -F arch=b64 -S sysinfo -k k\n-a always,exit -F arch=b32 -S sysinfo -k k\n"
        ),
        "given: "
    );
    assert_eq!(
        key("-a always,exit -F arch=b64 -S sysinfo\n-a always,exit -F arch=b64 -S sysinfo -k k\n"),
        "missing: line 1: decides first, with another key; no rule for sysinfo; 32-bit sysinfo"
    );
    assert_eq!(
        of("network_connection", "DestinationHostname: x", ""),
        "impossible: no network_connection event has `DestinationHostname`"
    );
}

/// Flags of `open` are in another argument than those of `openat`; `perm=wa` leaves out opens that create and do not write,
/// and handles.
#[cfg(target_arch = "x86_64")]
#[test]
fn written_file_needs_six_audit_rules_of_which_a_syscall_evaluates_one() {
    let sigma = sigma(&rule("Cron", "file_event", "TargetFilename: /etc/cron.d/x"));
    let text = made(&sigma, false);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("-a")).collect();
    assert_eq!(lines.len(), 6, "{text}");
    let plan = compared(&text).plan;
    let evaluated = plan.syscalls.values().map(|planned| planned.slots.len());
    assert!(evaluated.eq(plan.syscalls.keys().map(|_syscall| 1)));
    for left_out in &lines {
        let others = lines.iter().filter(|line| line != &left_out);
        let others: Vec<&str> = others.copied().collect();
        assert_eq!(
            status(&sigma, &others.join("\n")).0,
            Status::Partly,
            "{left_out}"
        );
    }
    let watch = "-a always,exit -F path=/etc/cron.d/x -F perm=wa -F success=1\n";
    assert_eq!(status(&sigma, watch).0, Status::Partly);
}

/// Sigma rules of all kinds, as others write them.
fn fixtures() -> RuleFiles {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain");
    let rules = RuleFiles::load(&[path], &Placeholders::default());
    assert_eq!(rules.problems, []);
    rules
}

/// The rules of `SigmaHQ`, if `TOLLGATE_SIGMAHQ` names a copy of its repository.
fn public_rules() -> Option<RuleFiles> {
    let path = PathBuf::from(std::env::var_os("TOLLGATE_SIGMAHQ")?);
    let directories = [
        "rules/linux",
        "rules-emerging-threats",
        "rules-threat-hunting",
    ];
    let rules = RuleFiles::load(
        &directories.map(|directory| path.join(directory)),
        &Placeholders::default(),
    );
    assert!(rules.places.len() > 200, "{} rules", rules.places.len());
    Some(rules)
}

#[test]
fn audit_rules_that_are_made_give_what_is_needed() {
    for sigma in [Some(fixtures()), public_rules()].into_iter().flatten() {
        for with_excessive in [false, true] {
            let text = made(&sigma, with_excessive);
            assert_eq!(text, made(&sigma, with_excessive));
            let source = compared(&text);
            assert_eq!(source.errors, [""; 0]);
            let report = Report::new(&sigma, Some(&source), with_excessive);
            for (rule, explained) in sigma.engine.rules().iter().zip(&report.explained) {
                let status = explained.coverage.as_ref().unwrap().status;
                let is_fed = matches!(status, Status::Given | Status::Sent);
                assert!(
                    is_fed || !explained.unfed.is_empty(),
                    "{}: {explained:?}",
                    rule.title
                );
            }
        }
    }
}

/// Both versions of `auditctl` read the file as the kernel gets it, without a message.
#[test]
fn stock_auditctl_accepts_the_rule_file() {
    for sigma in [Some(fixtures()), public_rules()].into_iter().flatten() {
        let text = made(&sigma, true);
        for dialect in [Dialect::V3, Dialect::V4] {
            for line in text.lines().filter(|line| line.starts_with("-a")) {
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                let invocation = auditctl::arguments(&words, dialect, &Accounts::default());
                assert_eq!(invocation.messages, [""; 0], "{dialect:?}: {line}");
                assert_eq!(invocation.status, 0, "{dialect:?}: {line}");
            }
        }
    }
}
