//! Rule fields: the events that they select, and the rule that decides among several.

use std::fmt::Write as _;

use bstr::BString;

use super::daemon::{Daemon, Stopped};
use super::event::with_key;
use super::step::{CWD, WorkloadStep, step};
use super::test_dir::TestDir;
use super::workload::{Identity, Workload};

/// Key and name of the last object of each event, in order.
fn chosen(stopped: &Stopped) -> Vec<(BString, BString)> {
    let name = |event: &super::event::Event| {
        let path = event.paths().pop().unwrap();
        let at = path.iter().position(|&byte| byte == b' ').unwrap();
        BString::from(&path[at + 1..])
    };
    stopped
        .events
        .iter()
        .map(|event| (event.key().unwrap_or_default(), name(event)))
        .collect()
}

#[track_caller]
fn check(stopped: &Stopped, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(key, name)| (BString::from(*key), BString::from(*name)))
        .collect();
    assert_eq!(chosen(stopped), expected);
}

fn open(name: &str) -> WorkloadStep {
    step!("openat", CWD, name, 0)
}

pub(crate) fn ids_select_tasks() {
    let test_dir = TestDir::new();
    let (one, other) = (test_dir.id, test_dir.id + 200_000);
    let parent = std::process::id();
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S openat -F uid={one} -F a2=0 -F gid!={one} -k gid\n\
             -a always,exit -F arch=b64 -S openat -F uid>={other} -F uid<={other} -F a2=0 -k other\n\
             -a always,exit -F arch=b64 -S chmod -F uid={one} -F ppid={parent} -k parent\n\
             -a always,exit -F arch=b64 -S chmod -F uid={other} -F ppid!={parent} -k nobody\n\
             -a always,exit -F arch=b64 -S rmdir -F euid={one} -F auid=unset -F pid>1 -k unset\n"
        ),
    );
    let mixed = Workload {
        identity: Identity {
            gid: other,
            ..Identity::is(one)
        },
        ..test_dir.workload()
    };
    for (workload, name) in [
        (test_dir.workload(), "same"),
        (mixed, "mixed"),
        (Workload::new(other, &test_dir.work), "other"),
    ] {
        workload.run(&[
            open(name),
            step!("chmod", name, 0o600),
            step!("rmdir", name),
        ]);
    }
    let stopped = daemon.stop();
    let unset = std::fs::read_to_string("/proc/self/loginuid").unwrap() == "4294967295";
    let mut expected = vec![
        ("parent", "same"),
        ("unset", test_dir.work.to_str().unwrap()),
        ("gid", "mixed"),
        ("parent", "mixed"),
        ("unset", test_dir.work.to_str().unwrap()),
        ("other", "other"),
    ];
    expected.retain(|(key, _)| unset || *key != "unset");
    check(&stopped, &expected);
}

pub(crate) fn outcome_selects_events() {
    let test_dir = TestDir::new();
    test_dir.file("there", "");
    let id = test_dir.id;
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S openat -F uid={id} -F exit=-EACCES -k denied\n\
             -a always,exit -F arch=b64 -S openat -F uid={id} -F success=1 -F a2=0 -k found\n\
             -a always,exit -F arch=b64 -S openat -F uid={id} -F success=0 -F exit!=-ENOENT -k rest\n\
             -a always,exit -F arch=b64 -S truncate -F uid={id} -F exit>=0 -k done\n"
        ),
    );
    test_dir.workload().run(&[
        open("/etc/shadow"),
        open("there"),
        open("missing"),
        open("there/below"),
        step!("truncate", "there", 1),
        step!("truncate", "missing", 1),
    ]);
    check(
        &daemon.stop(),
        &[
            ("denied", "/etc/shadow"),
            ("found", "there"),
            ("rest", "there/below"),
            ("done", "there"),
            // The kernel compares unsigned numbers: every exit is at least 0.
            ("done", "missing"),
        ],
    );
}

pub(crate) fn arguments_select_events() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S mkdir -F uid={id} -F a1=0751 -k exact\n\
             -a always,exit -F arch=b64 -S mkdir -F uid={id} -F a1&0xc00 -k bits\n\
             -a always,exit -F arch=b64 -S mkdir -F uid={id} -F a1&=0711 -k all\n\
             -a always,exit -F arch=b64 -S mkdirat -F uid={id} -F a0=0xffffff9c -F a2>0700 -k at\n"
        ),
    );
    test_dir.workload().run(&[
        step!("mkdir", "a", 0o751),
        step!("mkdir", "b", 0o4000),
        step!("mkdir", "c", 0o755),
        step!("mkdir", "d", 0o700),
        step!("mkdirat", CWD, "e", 0o701),
        step!("mkdirat", CWD, "f", 0o700),
    ]);
    check(
        &daemon.stop(),
        &[("exact", "a"), ("bits", "b"), ("all", "c"), ("at", "e")],
    );
}

pub(crate) fn ids_are_compared_with_each_other() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S rmdir -F uid={id} -C uid!=euid -k raised\n\
             -a always,exit -F arch=b64 -S rmdir -F uid={id} -C uid=suid -k same\n"
        ),
    );
    let raised = Identity {
        uids: [id, id + 1, id + 1],
        ..Identity::is(id)
    };
    let half = Identity {
        uids: [id, id, id + 1],
        ..Identity::is(id)
    };
    let rmdir = [step!("rmdir", "/etc/missing")];
    for identity in [raised, half, Identity::is(id)] {
        Workload {
            identity,
            ..test_dir.workload()
        }
        .run(&rmdir);
    }
    check(&daemon.stop(), &[("raised", "/etc/"), ("same", "/etc/")]);
}

pub(crate) fn supplementary_groups_count() {
    let test_dir = TestDir::new();
    let (id, group) = (test_dir.id, test_dir.id + 300_000);
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S openat -F uid={id} -F gid={group} -k member\n\
             -a always,exit -F arch=b64 -S openat -F uid={id} -F a2=0 -F egid!={group} -k stranger\n\
             -a always,exit -F arch=b64 -S chmod -F uid={id} -F fsgid={group} -k never\n"
        ),
    );
    let groups = |groups: &[u32]| Workload {
        identity: Identity {
            groups: groups.to_vec(),
            ..Identity::is(id)
        },
        ..test_dir.workload()
    };
    let steps = |name| [open(name), step!("chmod", name, 0o600)];
    groups(&[1, 5, group, group + 1]).run(&steps("in"));
    groups(&[1, 5, group + 1]).run(&steps("out"));
    check(&daemon.stop(), &[("member", "in"), ("stranger", "out")]);
}

pub(crate) fn exe_selects_events() {
    let test_dir = TestDir::new();
    let program = test_dir.program("touch", "/usr/bin/touch");
    let (path, id) = (program.display(), test_dir.id);
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S openat -F uid={id} -F a2&0x40 -F exe={path} -k this\n\
             -a always,exit -F arch=b64 -S openat -F uid={id} -F a2&0x40 -F exe!={path} -k others\n"
        ),
    );
    let workload = test_dir.workload();
    workload.program(&[program.to_str().unwrap(), "one"]);
    workload.program(&["touch", "two"]);
    check(&daemon.stop(), &[("this", "one"), ("others", "two")]);
}

pub(crate) fn perm_selects_opens() {
    let test_dir = TestDir::new();
    test_dir.file("file", "");
    let (work, id) = (test_dir.work.display(), test_dir.id);
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -F dir={work} -F uid={id} -F perm=w -k write\n\
             -a always,exit -F arch=b64 -F dir={work} -F uid={id} -F perm=r -k read\n\
             -a always,exit -F arch=b64 -F dir={work} -F uid={id} -F perm=a -k attribute\n"
        ),
    );
    let done = test_dir.workload().run(&[
        open("file"),
        step!("openat", CWD, "file", libc::O_WRONLY),
        step!("openat", CWD, "file", libc::O_RDWR),
        // O_CREAT and O_TRUNC are not access modes: the kernel treats these opens as reads.
        step!("openat", CWD, "new", libc::O_CREAT, 0o600),
        step!("open", "file", libc::O_TRUNC),
        step!("chmod", "file", 0o644),
        step!("truncate", "file", 0),
        step!("stat", "file", 0),
        step!("unlink", "new"),
    ]);
    assert_eq!(done.made.len(), 9);
    check(
        &daemon.stop(),
        &[
            ("read", "file"),
            ("write", "file"),
            ("write", "file"),
            ("read", "new"),
            ("read", "file"),
            ("attribute", "file"),
            ("write", "file"),
            ("write", "new"),
        ],
    );
}

pub(crate) fn the_first_match_decides() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a never,exit -F arch=b64 -S rmdir -F uid={id} -F a1=7\n\
             -a always,exit -F arch=b64 -S rmdir,chmod -F uid={id} -F a1=8 -k first\n\
             -a always,exit -F arch=b64 -S rmdir,chmod -F uid={id} -F a1>=7 -k second\n\
             -A always,exit -F arch=b64 -S chmod -F uid={id} -F a1=9 -k inserted\n\
             -a always,exit -F arch=b64 -S chmod -F uid={id} -F a1=9 -F success=0 -k late\n"
        ),
    );
    test_dir.workload().run(&[
        step!("rmdir", "/etc/missing", 7),
        step!("rmdir", "/etc/missing", 8),
        step!("rmdir", "/etc/missing", 9),
        step!("chmod", "a", 7),
        step!("chmod", "b", 8),
        step!("chmod", "c", 9),
        step!("chmod", "d", 6),
    ]);
    check(
        &daemon.stop(),
        &[
            ("first", "/etc/"),
            ("second", "/etc/"),
            ("second", "a"),
            ("first", "b"),
            ("inserted", "c"),
        ],
    );
}

pub(crate) fn several_keys_are_all_found() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k one -k two\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    test_dir.workload().run(&[step!("rmdir", "/etc/missing")]);
    let stopped = daemon.stop();
    check(&stopped, &[("one\u{1}two", "/etc/")]);
    for key in ["one", "two"] {
        assert_eq!(with_key(&stopped.log, key), stopped.events, "{key}");
    }
}

pub(crate) fn sixty_fields_are_one_rule() {
    let test_dir = TestDir::new();
    let mut rule = format!("-a always,exit -F arch=b64 -S chmod -F uid={}", test_dir.id);
    for mode in 1..=58 {
        write!(rule, " -F a1!={mode}").unwrap();
    }
    rule.push_str(" -k sixty\n");
    let daemon = Daemon::start(&test_dir, &rule);
    test_dir.workload().run(&[
        step!("chmod", "first", 1),
        step!("chmod", "last", 58),
        step!("chmod", "none", 59),
    ]);
    check(&daemon.stop(), &[("sixty", "none")]);
}
