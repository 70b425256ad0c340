//! Random Sigma rules and random events: an event that a rule matches is recorded by the audit rules that are made for
//! it. Sigma's engine and the reference evaluator of audit rules decide, neither of which knows of needs.

use logs::accounts::Accounts;

use super::made_events::Log;
use super::*;
use crate::explain::demand::Kind;
use crate::mapping::{Mapping, ProcessTable};

/// Numbers that look random, and are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const RECORD_TESTS: &[&str] = &[
    "type: SYSCALL",
    "type: PATH",
    "type: EXECVE",
    "type: [SYSCALL, PATH]",
    "type: SOCKADDR",
    "type: OBJ_PID",
    "type: CWD",
    "SYSCALL: openat",
    "SYSCALL: [execve, mknod]",
    "SYSCALL|startswith: re",
    "syscall: '87'",
    "success: 'yes'",
    "success: 'no'",
    "exe: /bin/a",
    "exe|endswith: /b",
    "exe: [/bin/a, /bin/b]",
    "comm: b",
    "euid: 0",
    "uid: [0, 33]",
    "auid: 1000",
    "AUID: root",
    "a0: '4'",
    "a0: [ffffff9c, '0']",
    "a1: -e",
    "a2|contains: '4'",
    "a5: x",
    "name: /etc/x",
    "name: [/etc/x, /etc/d/y]",
    "name|startswith: /etc/d/",
    "name: '/tmp/*'",
    "name|endswith: y",
    "nametype: CREATE",
    "nametype: [NORMAL, PARENT]",
    "cwd: /",
    "name: null",
    "exit: '0'",
];

const FILE_TESTS: &[&str] = &[
    "TargetFilename: /etc/x",
    "TargetFilename|startswith: /etc/d/",
    "TargetFilename: ['/tmp/*', /etc/x]",
    "TargetFilename|endswith: y",
    "TargetFilename|contains: /tmp",
    "Image: /bin/a",
    "User: root",
];

const NETWORK_TESTS: &[&str] = &[
    "Initiated: 'true'",
    "Initiated: 'false'",
    "DestinationPort: 80",
    "SourcePort: [22, 80]",
    "DestinationIp: 10.1.1.1",
    "Image|endswith: a",
];

const PROCESS_TESTS: &[&str] = &[
    "Image: /bin/a",
    "CommandLine|contains: -e",
    "User: root",
    "ParentImage: null",
    "CurrentDirectory: /",
];

const CONDITIONS: &[&str] = &[
    "a",
    "a and b",
    "a or b",
    "a and not b",
    "a and (b or c)",
    "1 of *",
    "all of *",
    "1 of a* and c",
    "not a and b",
];

fn random_rule(random: &mut Random) -> String {
    let (source, tests) = match random.below(8) {
        0 => ("category: process_creation", PROCESS_TESTS),
        1 => ("category: file_event", FILE_TESTS),
        2 => ("category: network_connection", NETWORK_TESTS),
        _ => ("service: auditd", RECORD_TESTS),
    };
    let mut text = format!("title: T\nlogsource:\n    {source}\ndetection:\n");
    for name in ["a", "b", "c"] {
        text.extend(["    ", name, ":\n"]);
        let mut fields: Vec<&str> = Vec::new();
        let is_list = random.below(4) == 0;
        for _ in 0..=random.below(3) {
            let test = random.pick(tests);
            let field = test.split(['|', ':']).next().unwrap();
            if !fields.contains(&field) {
                fields.push(field);
                text.extend(["        ", if is_list { "- " } else { "" }, test, "\n"]);
            }
        }
    }
    text + &format!("    condition: {}\n", random.pick(CONDITIONS))
}

/// The process of an event.
struct Process {
    exe: &'static str,
    comm: &'static str,
    uid: &'static str,
    euid: &'static str,
    auid: &'static str,
}

impl Process {
    fn random(random: &mut Random) -> Self {
        Self {
            exe: random.pick(&["/bin/a", "/bin/b", "/usr/bin/c"]),
            comm: random.pick(&["a", "b"]),
            uid: random.pick(&["0", "33", "1000"]),
            euid: random.pick(&["0", "33", "1000"]),
            auid: random.pick(&["1000", "4294967295"]),
        }
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("exe", self.exe),
            ("comm", self.comm),
            ("uid", self.uid),
            ("euid", self.euid),
            ("auid", self.auid),
        ]
    }

    /// The execution of its program, before it can have changed its ids.
    fn execution(&self) -> Log {
        let mut log = Log::default();
        log.execution(&self.fields(), &["x"]);
        log
    }
}

fn random_event(random: &mut Random, process: &Process) -> Log {
    let mut log = Log::default();
    let mut fields = process.fields();
    let success = random.pick(&["yes", "yes", "no"]);
    fields.push(("success", success));
    fields.push(("exit", if success == "yes" { "0" } else { "-13" }));
    let name = random.pick(&["/etc/x", "/etc/d/y", "/etc/d/z/y", "/tmp/a", "/home/y", "y"]);
    let directory = match name.rsplit_once('/') {
        Some((directory, _)) => format!("{directory}/"),
        None => "/".to_owned(),
    };
    match random.below(10) {
        0 => {
            fields.retain(|(name, _)| !matches!(*name, "success" | "exit"));
            log.execution(
                &fields,
                &["x", random.pick(&["-e", "4", "x"]), "x4", "x", "x", "x"],
            );
            log.path(0, "/bin/a", "NORMAL");
        }
        1 => {
            fields.push(("a0", random.pick(&["4", "0", "40000"])));
            let name = random.pick(&["sysinfo", "personality", "syslog", "getpid", "read"]);
            log.syscall(name, &fields);
        }
        2 => {
            let name = random.pick(&["connect", "accept4", "bind", "sendto"]);
            log.syscall(name, &fields);
            log.address("10.1.1.1", [22, 80, 443][random.below(3)]);
        }
        3 => {
            log.syscall("kill", &fields);
            log.record("OBJ_PID", "opid=5 oauid=0 ouid=0 oses=1 ocomm=\"x\"");
        }
        number @ 4..=6 => {
            let flags = ["0", "1", "2", "40", "41", "241", "200", "80000"][random.below(8)];
            let creates =
                (flags.starts_with('4') || flags.starts_with("24")) && random.below(2) == 0;
            match number {
                4 => fields.push(("a1", flags)),
                _ => fields.extend([("a0", "ffffff9c"), ("a2", flags)]),
            }
            log.syscall(if number == 4 { "open" } else { "openat" }, &fields);
            if creates {
                log.path(0, &directory, "PARENT");
            }
            log.path(1, name, if creates { "CREATE" } else { "NORMAL" });
        }
        7 => {
            let call = random.pick(&["mknod", "mkdir", "symlink", "link", "creat"]);
            log.syscall(call, &fields);
            log.path(0, &directory, "PARENT");
            log.path(1, name, "CREATE");
        }
        8 => {
            log.syscall("rename", &fields);
            log.path(0, "/tmp/", "PARENT");
            log.path(1, &directory, "PARENT");
            log.path(2, "/tmp/a", "DELETE");
            log.path(3, name, "CREATE");
        }
        _ => {
            let (call, kind) = [
                ("unlink", "DELETE"),
                ("truncate", "NORMAL"),
                ("chmod", "NORMAL"),
            ][random.below(3)];
            log.syscall(call, &fields);
            if kind == "DELETE" {
                log.path(0, &directory, "PARENT");
            }
            log.path(1, name, kind);
        }
    }
    log
}

fn matches(sigma: &RuleFiles, events: &[EventRecords]) -> bool {
    let accounts = Accounts::parse(b"root:x:0:0::/:\n", b"");
    let mut mapping = Mapping::new(accounts, ProcessTable::default());
    let mut found = Vec::new();
    for event in events {
        mapping.find(&*sigma.engine, event, &mut found);
    }
    !found.is_empty()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn events_that_random_rules_match_are_recorded() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut recorded, mut by_execution, mut unfed) = (0, 0, 0);
    for _ in 0..120 {
        let text = random_rule(&mut random);
        let sigma = sigma(&text);
        let report = Report::new(&sigma, None, true);
        let audit_rules = parsed(&report.rule_file());
        let explained = &report.explained[0];
        for _ in 0..60 {
            let process = Process::random(&mut random);
            let log = random_event(&mut random, &process);
            let events = log.events();
            if !matches(&sigma, &events) {
                continue;
            }
            if log.recorded(&audit_rules).is_some() {
                recorded += 1;
                continue;
            }
            // A rule about a program is fed by its execution; others tell why they are not fed.
            let is_about_program = explained
                .feeds
                .iter()
                .any(|feed| matches!(feed, Feed::Recorded(demand) if demand.kind == Kind::Exec));
            if is_about_program && process.execution().recorded(&audit_rules).is_some() {
                by_execution += 1;
                continue;
            }
            assert!(
                !explained.unfed.is_empty(),
                "{text}\n{log:?}\n{}",
                report.rule_file()
            );
            unfed += 1;
        }
    }
    eprintln!(
        "{recorded} recorded, {by_execution} by their execution, {unfed} of rules that are not fed"
    );
    assert!(
        recorded > 400 && by_execution > 50,
        "{recorded}, {by_execution}"
    );
}
