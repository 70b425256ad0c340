//! Tests of the mapping: which Sigma events an event becomes.

use std::cell::RefCell;

use audit::record::assemble::EventAssembler;

use super::*;
use crate::sigma::fields::{Fields, Interest};
use crate::sigma::gate::{Gate, SyscallGate};
use crate::sigma::need::Need;
use crate::sigma::rsigma::Rsigma;
use crate::sigma::{Mistake, Rule};

/// Notes each event that it gets.
#[derive(Debug, Default)]
struct Recorder(RefCell<Vec<String>>);

impl Engine for Recorder {
    fn add(&mut self, _document: &str) -> Result<(), Mistake> {
        unreachable!()
    }

    fn add_filter(&mut self, _document: &str) -> Result<(), Mistake> {
        unreachable!()
    }

    fn want(&mut self, _rule: usize, _fields: Vec<String>) {}

    fn filter_mistakes(&self) -> Vec<(usize, Mistake)> {
        Vec::new()
    }

    fn rules(&self) -> &[Rule] {
        &[]
    }

    fn needs(&self) -> &[Need] {
        &[]
    }

    fn has_rules(&self, _source: Source) -> bool {
        true
    }

    fn record_fields(&self, _kind: &[u8]) -> Option<Interest<'_>> {
        Some(self.shared_fields())
    }

    fn event_fields(&self, _source: Source) -> Interest<'_> {
        self.shared_fields()
    }

    fn shared_fields(&self) -> Interest<'_> {
        Interest {
            names: [None; 3],
            all: true,
        }
    }

    fn version(&self) -> u64 {
        0
    }

    fn record_gate(&self, _kind: &[u8]) -> Gate<'_> {
        Gate::OPEN
    }

    fn event_gate(&self, _source: Source) -> Gate<'_> {
        Gate::OPEN
    }

    fn syscall_gate(&self, _kind: &[u8]) -> SyscallGate<'_> {
        SyscallGate::OPEN
    }

    fn find(&self, source: Source, event: &Fields<'_>, _found: &mut Vec<Match>) {
        let mut line = source.name().to_owned();
        for (name, value) in event.iter() {
            line.extend([format!(" {name}={}", value.as_texts().join("|"))]);
        }
        self.0.borrow_mut().push(line);
    }
}

fn events(text: &str) -> Vec<EventRecords> {
    let mut assembler = EventAssembler::default();
    let stamp = |line: &str| {
        line.split_once("msg=")
            .unwrap()
            .1
            .split_once(' ')
            .unwrap()
            .0
            .to_owned()
    };
    let mut last: Option<String> = None;
    for line in text.lines() {
        let stamp = stamp(line);
        if let Some(last) = last.replace(stamp.clone()).filter(|last| *last != stamp) {
            let end = format!("type=EOE msg={last} ");
            assembler.take(end.as_bytes(), 0).unwrap();
        }
        assembler.take(line.as_bytes(), 0).unwrap();
    }
    assembler.end_all();
    std::iter::from_fn(|| assembler.next_ended()).collect()
}

fn mapping() -> Mapping {
    let accounts = Accounts::parse(b"root:x:0:0::/:\nwww-data:x:33:33::/:\n", b"");
    Mapping::new(accounts, ProcessTable::default())
}

/// The Sigma events of a log, without those of records.
fn whole(mapping: &mut Mapping, text: &str) -> Vec<String> {
    let engine = Recorder::default();
    for event in events(text) {
        mapping.find(&engine, &event, &mut Vec::new());
    }
    let mut seen = engine.0.into_inner();
    seen.retain(|line| !line.starts_with("auditd"));
    seen
}

fn syscall(serial: u32, number: u32, more: &str) -> String {
    format!(
        "type=SYSCALL msg=audit(1700000000.000:{serial}): arch=c000003e syscall={number} {more} auid=1000 uid=1000 \
         gid=0 euid=33 tty=pts0 ses=1 comm=\"c\" exe=\"/usr/bin/{serial}\" key=610162\n"
    )
}

fn record(serial: u32, text: &str) -> String {
    let (kind, fields) = text.split_once(' ').unwrap();
    format!("type={kind} msg=audit(1700000000.000:{serial}): {fields}\n")
}

#[test]
fn records_have_their_fields_decoded() {
    let text = syscall(1, 59, "success=yes exit=0 a0=1 a1=2 items=1 ppid=1 pid=7")
        + &record(1, "EXECVE argc=3 a0=\"sh\" a1_len=8 a1[0]=2D63 a1[1]=2061")
        + &record(1, "EXECVE a2=\"x\"")
        + &record(1, "PATH item=0 name=2F612062 inode=5 nametype=NORMAL")
        + &record(1, "PROCTITLE proctitle=7368002D63")
        + &record(
            2,
            "SERVICE_STOP pid=1 uid=0 msg='unit=ufw comm=\"systemd\" res=success'",
        );
    let engine = Recorder::default();
    for event in events(&text) {
        mapping().find(&engine, &event, &mut Vec::new());
    }
    let seen = engine.0.into_inner();
    assert_eq!(
        seen[..4],
        [
            "auditd type=SYSCALL arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=2 items=1 ppid=1 pid=7 auid=1000 \
             uid=1000 gid=0 euid=33 tty=pts0 ses=1 comm=c exe=/usr/bin/1 key=a|b SYSCALL=execve",
            "auditd type=EXECVE argc=3 a0=sh a1=-c a a2=x",
            "auditd type=PATH item=0 name=/a b inode=5 nametype=NORMAL",
            "auditd type=PROCTITLE proctitle=sh -c",
        ]
    );
    assert!(seen[4].starts_with("process_creation "));
    assert_eq!(
        seen[5],
        "auditd type=SERVICE_STOP pid=1 uid=0 unit=ufw comm=systemd res=success"
    );
}

#[test]
fn enriched_names_are_fields() {
    let line = "type=SYSCALL msg=audit(1.000:1): arch=c000003e syscall=2 success=no pid=1 exe=\"/x\"\x1dSYSCALL=open EUID=\"web\"";
    let engine = Recorder::default();
    mapping().find(&engine, &events(line)[0], &mut Vec::new());
    let seen = engine.0.into_inner();
    assert!(
        seen[0].ends_with("exe=/x SYSCALL=open EUID=web"),
        "{seen:?}"
    );
}

#[test]
fn executed_program_has_its_parent() {
    let mut mapping = mapping();
    let of_shell = |text: String| {
        text.replace("/usr/bin/2", "/usr/bin/1")
            .replace("/usr/bin/3", "/usr/bin/1")
    };
    let seen = whole(
        &mut mapping,
        &(syscall(1, 59, "success=yes exit=0 a0=0 ppid=1 pid=7")
            + &record(1, "EXECVE argc=2 a0=\"sh\" a1=\"-i\"")
            + &record(1, "CWD cwd=\"/root\"")
            // The shell forks, which a rule records, and its child executes a program.
            + &of_shell(syscall(2, 56, "success=yes exit=8 a0=0 ppid=1 pid=7"))
            + &of_shell(syscall(3, 59, "success=no exit=-2 a0=0 ppid=7 pid=8"))
            + &syscall(4, 322, "success=yes exit=0 a0=0 ppid=7 pid=8")
            + &record(4, "PROCTITLE proctitle=6964002D75")
            + &syscall(5, 59, "success=yes exit=0 a0=0 ppid=8 pid=9")
            + &record(5, "EXECVE argc=1 a0=\"x\"")),
    );
    let common = "User=www-data LogonId=1000 ProcessId";
    assert_eq!(
        seen,
        [
            format!(
                "process_creation Image=/usr/bin/1 {common}=7 CommandLine=sh -i CurrentDirectory=/root ParentProcessId=1"
            ),
            format!(
                "process_creation Image=/usr/bin/4 {common}=8 CommandLine=id -u ParentProcessId=7 ParentImage=/usr/bin/1 ParentCommandLine=sh -i"
            ),
            format!(
                "process_creation Image=/usr/bin/5 {common}=9 CommandLine=x ParentProcessId=8 ParentImage=/usr/bin/4 ParentCommandLine=id -u"
            ),
        ]
    );
    let names: Vec<_> = mapping
        .processes()
        .ancestors(None, 9, 9)
        .map(|(pid, _)| pid)
        .collect();
    assert_eq!(names, [9, 8, 7]);
}

#[test]
fn written_files_are_file_events() {
    let path = |serial, name: &str, kind: &str, mode: &str| {
        record(
            serial,
            &format!(
                "PATH item=0 name=\"{name}\" inode=1 dev=08:01 mode={mode} ouid=0 ogid=0 rdev=00:00 nametype={kind}"
            ),
        )
    };
    let cwd = |serial| record(serial, "CWD cwd=\"/tmp\"");
    let (file, directory) = ("0100644", "040755");
    let seen = whole(
        &mut mapping(),
        &(syscall(1, 257, "success=yes exit=3 a0=ffffff9c a1=1 a2=241 ppid=1 pid=7")
            + &cwd(1)
            + &path(1, "./", "PARENT", directory)
            + &path(1, "../etc/x", "CREATE", file)
            // To read; to append; relative to another directory; failed.
            + &syscall(2, 257, "success=yes exit=3 a0=ffffff9c a1=1 a2=0 ppid=1 pid=7")
            + &path(2, "/etc/passwd", "NORMAL", file)
            + &syscall(3, 2, "success=yes exit=3 a0=1 a1=401 ppid=1 pid=7")
            + &cwd(3)
            + &path(3, "x", "NORMAL", file)
            + &syscall(4, 257, "success=yes exit=3 a0=5 a1=1 a2=1 ppid=1 pid=7")
            + &cwd(4)
            + &path(4, "y", "NORMAL", file)
            + &syscall(5, 2, "success=no exit=-13 a0=1 a1=401 ppid=1 pid=7")
            + &path(5, "/etc/x", "NORMAL", file)
            // A file that is replaced by another, and a directory.
            + &syscall(6, 82, "success=yes exit=0 a0=1 a1=401 ppid=1 pid=7")
            + &cwd(6)
            + &path(6, "/a", "DELETE", file)
            + &path(6, "b", "CREATE", file)
            + &syscall(7, 82, "success=yes exit=0 a0=1 a1=401 ppid=1 pid=7")
            + &path(7, "/d", "CREATE", directory)
            + &syscall(8, 437, "success=yes exit=3 a0=ffffff9c a1=1 a2=18 ppid=1 pid=7")
            + &record(8, "OPENAT2 oflag=0102 mode=0 resolve=0x0")
            + &path(8, "/z", "NORMAL", file)),
    );
    let names: Vec<&str> = seen
        .iter()
        .map(|line| line.split_once("TargetFilename=").unwrap().1)
        .collect();
    assert_eq!(names, ["/etc/x", "/tmp/x", "y", "/tmp/b", "/z"]);
    assert_eq!(
        seen[0],
        "file_event Image=/usr/bin/1 User=www-data LogonId=1000 ProcessId=7 TargetFilename=/etc/x"
    );
}

#[test]
fn connections_are_network_events() {
    let saddr = |serial, text: &str| record(serial, &format!("SOCKADDR saddr={text}"));
    let v6 = format!("0A000050{}{}01", "0".repeat(8), "0".repeat(30));
    let mapped = format!("0A0001BB{}{}FFFF0A000001", "0".repeat(8), "0".repeat(20));
    let seen = whole(
        &mut mapping(),
        &(syscall(1, 42, "success=no exit=-115 a0=3 ppid=1 pid=7")
            + &saddr(1, "0200115C0102030400000000")
            + &syscall(2, 42, "success=yes exit=0 a0=3 ppid=1 pid=7")
            + &saddr(2, &v6)
            + &syscall(3, 288, "success=yes exit=4 a0=3 ppid=1 pid=7")
            + &saddr(3, &mapped)
            // Refused, and a local socket.
            + &syscall(4, 42, "success=no exit=-111 a0=3 ppid=1 pid=7")
            + &saddr(4, "0200115C0102030400000000")
            + &syscall(5, 42, "success=yes exit=0 a0=3 ppid=1 pid=7")
            + &saddr(5, "01002F72756E00")),
    );
    let of: Vec<&str> = seen
        .iter()
        .map(|line| line.split_once(" Initiated=").unwrap().1)
        .collect();
    assert_eq!(
        of,
        [
            "true DestinationIp=1.2.3.4 DestinationPort=4444",
            "true DestinationIp=::1 DestinationPort=80",
            "false SourceIp=10.0.0.1 SourcePort=443",
        ]
    );
}

#[test]
fn fields_of_the_syscall_are_those_of_its_records_but_for_arguments_and_keywords() {
    let mut engine = Rsigma::default();
    for (id, selection) in [
        (
            "other-record",
            "        type: PATH\n        exe: /usr/bin/1\n        euid: 33\n",
        ),
        ("argument", "        type: PATH\n        a1: 2\n"),
        ("keyword", "        - /usr/bin/1\n"),
    ] {
        let rule = format!(
            "title: {id}\nlogsource:\n    service: auditd\ndetection:\n    a:\n{selection}    condition: a\n"
        );
        engine.add(&rule).unwrap();
    }
    let text = syscall(1, 2, "success=yes exit=3 a0=1 a1=2 ppid=1 pid=7")
        + &record(1, "PATH item=0 name=\"/a\"")
        + &record(1, "PATH item=1 name=\"/b\"");
    let mut found = Vec::new();
    mapping().find(&engine, &events(&text)[0], &mut found);
    let mut rules: Vec<usize> = found.iter().map(|found| found.rule).collect();
    rules.sort_unstable();
    // Each rule once.
    assert_eq!(rules, [0, 2]);
}

/// A task can give a program so many arguments that the event is split in the middle of one.
#[test]
fn arguments_that_are_cut_are_compared_up_to_there() {
    let engine = Recorder::default();
    let text = syscall(1, 59, "success=yes exit=0 a0=0 ppid=1 pid=7")
        + &record(
            1,
            "EXECVE argc=9 a0=\"sh\" a1=\"-c\" a2=\"evil\" a3_len=262000 a3[0]=4142",
        )
        + &record(1, "EXECVE a3[1]=4344");
    let mut mapping = mapping();
    for event in events(&text) {
        mapping.find(&engine, &event, &mut Vec::new());
    }
    let seen = engine.0.into_inner();
    assert!(
        seen[1].starts_with("auditd type=EXECVE argc=9 a0=sh a1=-c a2=evil a3=ABCD"),
        "{}",
        seen[1]
    );
    assert!(
        seen[2].contains(" CommandLine=sh -c evil ABCD"),
        "{}",
        seen[2]
    );
    let process = mapping.processes().get(None, 7).unwrap();
    assert_eq!(&*process.command_line, "sh -c evil ABCD");
}

/// `__audit_uring_exit` in `kernel/auditsc.c`, Linux 6.12: an operation that runs inside of a syscall has a record in its
/// event. A user who does something harmless first must hide nothing.
#[test]
fn operations_inside_of_a_syscall_hide_neither_each_other_nor_the_syscall() {
    let operation = |number: u32| {
        let ids = "success=yes exit=0 items=0 ppid=1 pid=7 uid=1000 euid=33 key=(null)";
        record(1, &format!("URINGOP uring_op={number} {ids}"))
    };
    // fsync, openat, unlinkat.
    let text = operation(3)
        + &operation(18)
        + &operation(36)
        + &syscall(1, 426, "success=yes exit=3 a0=1 items=1 ppid=1 pid=7")
        + &record(1, "CWD cwd=\"/\"")
        + &record(1, "PATH item=0 name=\"/etc/x\" inode=5 nametype=CREATE");
    let engine = Recorder::default();
    let mut mapping = mapping();
    for event in events(&text) {
        mapping.find(&engine, &event, &mut Vec::new());
    }
    let process = mapping.processes().get(None, 7);
    assert_eq!(process.map(|process| &*process.image), Some("/usr/bin/1"));
    let seen = engine.0.into_inner();
    let begins = seen
        .iter()
        .map(|seen| seen.split(" success").next().unwrap());
    assert_eq!(
        begins.collect::<Vec<_>>(),
        [
            "auditd type=SYSCALL arch=c000003e syscall=426",
            "auditd type=URINGOP uring_op=3",
            "auditd type=URINGOP uring_op=18",
            "auditd type=URINGOP uring_op=36",
            "auditd type=CWD cwd=/",
            "auditd type=PATH item=0 name=/etc/x inode=5 nametype=CREATE",
            "file_event Image=/usr/bin/1 User=www-data LogonId=1000 ProcessId=7 TargetFilename=/etc/x",
        ]
    );
}

/// Records of operations name no program; otherwise `io_uring` would hide it from rules.
#[test]
fn operations_of_io_uring_have_the_program_of_their_process() {
    let connect = |serial: u32, pid: u32| {
        let ids = format!("ppid=1 pid={pid} uid=1000 euid=33 key=(null)");
        record(
            serial,
            &format!("URINGOP uring_op=16 success=yes exit=0 items=0 {ids}"),
        ) + &record(serial, "SOCKADDR saddr=02000050C0000201")
    };
    // One process executes a program, and a worker connects for it; the other connects in a syscall.
    let text = syscall(1, 59, "success=yes exit=0 a0=1 items=1 ppid=1 pid=7")
        + &connect(2, 7)
        + &connect(3, 8)
        + &syscall(3, 426, "a0=1 items=0 ppid=1 pid=8")
        + &connect(4, 9);
    let seen = whole(&mut mapping(), &text);
    let programs = seen.iter().skip(1).map(|seen| {
        let seen = seen.strip_prefix("network_connection ").unwrap();
        seen.split(" LogonId").next().unwrap()
    });
    assert_eq!(
        programs.collect::<Vec<_>>(),
        [
            "Image=/usr/bin/1 User=www-data",
            "Image=/usr/bin/3 User=www-data",
            "User=www-data",
        ]
    );
}

#[test]
fn hostile_events_are_mapped() {
    let long = "2F".repeat(4096);
    let text = syscall(1, 59, "success=yes exit=0 a0=0 ppid=1 pid=7")
        + &record(1, &format!("EXECVE argc=2 a0=FF1B5B324A a1={long}"))
        + &record(1, "CWD cwd=\"/root")
        + &syscall(2, 59, "success=yes exit=0 a0=0 ppid=7 pid=8")
        + &record(2, "EXECVE argc=3 a0=\"x\" a2=\"out of order\"")
        + &record(2, "PROCTITLE proctitle=zz")
        + &syscall(3, 42, "success=yes exit=0 a0=0 ppid=7 pid=8")
        + &record(3, "SOCKADDR saddr=02")
        + &record(4, "SYSCALL arch=x syscall=99999999999 pid=-1 exit=x")
        + &record(5, &format!("EXECVE argc=99999 {}", "a=b ".repeat(9999)));
    let seen = whole(&mut mapping(), &text);
    assert!(
        seen[0].contains("CommandLine=\u{fffd}\u{1b}[2J //"),
        "{}",
        seen[0]
    );
}

pub(crate) mod gates;
mod processes;
mod usual_records;
mod whole_gates;
