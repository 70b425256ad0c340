//! Rule changes under load.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use bstr::ByteSlice as _;
use nix::sys::signal::Signal;

use super::daemon::{Account, Daemon};
use super::event;
use super::harness::wait_for;
use super::raw_syscalls;
use super::step::{CWD, step};
use super::test_dir::TestDir;

/// BPF objects of a daemon: lines of its fdinfo files that name a program, a map or a link.
pub(crate) fn held(pid: u32) -> usize {
    let mut held = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // A descriptor may have been closed since.
        let info = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        let names = ["prog_id:", "map_id:", "link_id:"];
        let is_held = |line: &&str| names.iter().any(|name| line.starts_with(name));
        held += info.lines().filter(is_held).count();
    }
    held
}

/// Different rules that all record opens in a test directory; the last two need other hooks.
pub(crate) fn lists(test_dir: &TestDir) -> [String; 5] {
    let (id, work) = (test_dir.id, test_dir.work.display());
    [
        format!("-a always,exit -F arch=b64 -S open,openat -F uid={id} -k plain\n"),
        format!("-a always,exit -F arch=b64 -S open,openat -F dir={work} -F uid={id} -k below\n"),
        format!("-a always,exit -F arch=b64 -S open,openat -F dir=/tmp -F uid={id} -k above\n"),
        format!(
            "-a always,exit -F arch=b64 -S rmdir,close -F uid=77 -k other\n\
             -a always,exit -F arch=b64 -S open,openat,accept -F uid={id} -k more\n"
        ),
        format!(
            "-a always,exit -F arch=b32 -S open -F uid={id} -k narrow\n\
             -a always,exit -F arch=b64 -S open,openat -F uid={id} -k both\n"
        ),
    ]
}

pub(crate) fn no_event_is_lost_or_duplicated() {
    const REPLACED: usize = 300;
    const OPENS: u32 = 25;
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let lists = lists(&test_dir);
    let daemon = Daemon::start(&test_dir, &lists[0]);
    let attached = raw_syscalls::attached(daemon.pid());
    let settled = |daemon: &Daemon| {
        wait_for("only the first hooks to be attached", || {
            (raw_syscalls::attached(daemon.pid()) == attached).then(|| held(daemon.pid()))
        })
    };
    for list in lists.iter().rev() {
        assert!(daemon.replace(list));
    }
    let held_before = settled(&daemon);

    let (made, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    test_dir.workload().burst(&file, OPENS);
                    made.fetch_add(OPENS, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=REPLACED {
            // Attaching and detaching hooks takes most of the time.
            let list = match round % 30 {
                10 => 3,
                20 => 4,
                _ => round % 3,
            };
            assert!(daemon.replace(&lists[list]));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(settled(&daemon), held_before, "what it holds of BPF");
    let Account {
        summary, code, log, ..
    } = daemon.end(Signal::SIGTERM);
    assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
    assert_eq!(summary.matched, summary.written);

    let log = fs::read(log).unwrap();
    let made = usize::try_from(made.into_inner()).unwrap();
    event::expect_opens(&log, &file, made);
    for key in ["plain", "below", "above", "more", "both"] {
        let key = format!(" key=\"{key}\"\n");
        assert_ne!(log.find_iter(&key).count(), 0, "events with{key}");
    }
    assert_eq!(log.find_iter(" key=\"other\"\n").count(), 0);
    event::expect_dense(&log);
}

/// Each of two halves of a map has the tests of a plan. Tests about one object, and tables of watches, have indexes of
/// other tests, which must be of the same half.
pub(crate) fn rules_about_objects_hold_in_each_half() {
    let test_dir = TestDir::new();
    let (id, work) = (test_dir.id, test_dir.work.display());
    let file = test_dir.file("file", "");
    let opens = "-a always,exit -F arch=b64 -S openat";
    let path = file.display();
    let below = ["a", "b", "c", "d", "e"]
        .map(|place| format!("{opens} -F dir={work}/{place} -F uid={id} -k {place}\n"));
    let table = below.concat() + &format!("{opens} -F path={path} -F uid={id} -k table\n");
    let one_object = format!("{opens} -F path={path} -F obj_uid!=12345 -F uid={id} -k object\n");
    let daemon = Daemon::start(&test_dir, &table);
    let mut expected = Vec::new();
    for (rules, key) in [
        (&table, "table"),
        (&one_object, "object"),
        (&table, "table"),
        (&table, "table"),
        (&one_object, "object"),
        (&one_object, "object"),
    ] {
        assert!(daemon.replace(rules));
        test_dir
            .workload()
            .run(&[step!("openat", CWD, file.as_os_str(), 0)]);
        expected.push(Some(key.into()));
    }
    let stopped = daemon.stop();
    let keys: Vec<_> = stopped.events.iter().map(event::Event::key).collect();
    assert_eq!(keys, expected);
}

pub(crate) fn hooks_follow_the_rules() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let rule = |calls: &str| format!("-a always,exit -F arch=b64 -S {calls} -F uid={id} -k now\n");
    let daemon = Daemon::start(&test_dir, &rule("rmdir,mkdir"));
    for (rules, expected) in [
        (
            rule("mkdir,unlink"),
            vec!["sys_exit_mkdir", "sys_exit_unlink"],
        ),
        (rule("rmdir"), vec!["sys_exit_rmdir"]),
        (
            format!(
                "{}-a always,exit -F arch=b32 -S mkdir -F uid={id} -k now\n",
                rule("rmdir")
            ),
            vec!["sys_exit", "sys_exit_rmdir"],
        ),
        (rule("mkdir"), vec!["sys_exit_mkdir"]),
    ] {
        assert!(daemon.replace(&rules));
        wait_for("the hooks of the rules in force, and no other", || {
            (raw_syscalls::attached(daemon.pid()) == expected).then_some(())
        });
    }
    test_dir
        .workload()
        .run(&[step!("rmdir", "missing"), step!("mkdir", "made", 0o755)]);
    let stopped = daemon.stop();
    assert_eq!(stopped.events.len(), 1, "only mkdir is named");
}

pub(crate) fn invalid_rules_keep_the_old_ones() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let old = format!("-a always,exit -F arch=b64 -S rmdir -F uid={id} -k old\n");
    // More rule tests than the map holds.
    let fields: String = (0..60).map(|value| format!(" -F a1!={value}")).collect();
    let too_many: String = (0..1200)
        .map(|number| format!("-a always,exit -F arch=b64 -S rmdir -F a0={number}{fields}\n"))
        .collect();
    let daemon = Daemon::start(&test_dir, &old);
    let attached = raw_syscalls::attached(daemon.pid());
    for (number, (rules, why)) in [
        (
            "-a always,exit -F arch=b64 -S nosuch -k bad\n",
            "unknown-syscall",
        ),
        ("", "record nothing"),
        (too_many.as_str(), "restart the daemon to raise it"),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(!daemon.replace(rules), "{why}");
        assert!(daemon.has_printed(why), "{why}");
        test_dir.workload().run(&[
            step!("rmdir", "missing"),
            step!("openat", CWD, "missing", 0),
        ]);
        wait_for("an event of the old rules", || {
            (daemon.events().len() == number + 1).then_some(())
        });
        assert_eq!(raw_syscalls::attached(daemon.pid()), attached);
    }
    assert!(daemon.replace(&old.replace("old", "new")));
    test_dir.workload().run(&[step!("rmdir", "missing")]);
    let stopped = daemon.stop();
    let keys: Vec<_> = stopped.events.iter().map(event::Event::key).collect();
    let expected = ["old", "old", "old", "new"].map(|key| Some(key.into()));
    assert_eq!(keys, expected);
}

pub(crate) fn reload_applies_settings_in_rule_files() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let rule = |key: &str| format!("-a always,exit -F arch=b64 -S rmdir -F uid={id} -k {key}\n");
    let settings = test_dir.own.join("tollgate.toml");
    let set = |text: &str| fs::write(&settings, text).unwrap();
    let daemon = Daemon::start_with_settings(&test_dir, &rule("first"), "");
    // A rule about results cannot deny, and this engine cannot deny at all.
    let late = "-a always,exit -F arch=b64 -S mkdir -F exit=0 -k late\n";
    let rules = format!("{}{late}", rule("second"));
    for (settings, why) in [
        ("[on_loss]\ndeny = [\"late\"]\n", "cannot be denied"),
        (
            "partial = true\n[on_loss]\ndeny = [\"late\"]\n",
            "need the engine fentry",
        ),
    ] {
        set(settings);
        assert!(!daemon.replace(&rules), "{why}");
        assert!(daemon.has_printed(why), "{why}");
    }
    set("partial = true\n");
    assert!(daemon.replace(&rules));
    set("rules = 7\n");
    assert!(!daemon.replace(&rule("wrong")));
    let told = "need a restart of the daemon";
    assert!(!daemon.has_printed(told));
    test_dir.workload().run(&[step!("rmdir", "missing")]);
    set("delay_ms = 500\n");
    assert!(daemon.replace(&rule("last")));
    assert!(daemon.has_printed(told));
    test_dir.workload().run(&[step!("rmdir", "missing")]);
    let stopped = daemon.stop();
    let keys: Vec<_> = stopped.events.iter().map(event::Event::key).collect();
    assert_eq!(keys, ["second", "last"].map(|key| Some(key.into())));
}

/// Texts of the `CONFIG_CHANGE` records in the log, once all are there, without the sender's fields.
#[track_caller]
fn changes(daemon: &Daemon) -> Vec<String> {
    daemon.flush();
    let log = fs::read(&daemon.log).unwrap();
    let (auid, ses) = ["loginuid", "sessionid"]
        .map(|file| fs::read_to_string(format!("/proc/self/{file}")).unwrap())
        .into();
    let asked = format!("auid={auid} ses={ses} ");
    let process = format!("pid={} uid=0 ", std::process::id());
    let text = |event: event::Event| {
        let line = event.one("CONFIG_CHANGE").line.to_string();
        let (_, text) = line.split_once("): ").unwrap();
        assert!(text.contains(&asked), "{text}");
        text.replacen(&asked, "", 1).replacen(&process, "", 1)
    };
    event::events(&log)
        .into_iter()
        .filter(|event| event.all("SYSCALL").count() == 0)
        .map(text)
        .collect()
}

pub(crate) fn rule_file_settings_match_auditctl() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let rule = |key: &str| format!("-a always,exit -F arch=b64 -S rmdir -F uid={id} -k {key}\n");
    let daemon = Daemon::start(&test_dir, &format!("-r 2000\n-f 0\n-e 0\n{}", rule("old")));
    assert!(daemon.has_printed("auditing nothing: `-e 0` is in force; 1 rule loaded"));
    let is_set = |daemon: &Daemon, expected: &[&str]| {
        let status = daemon.auditctl(&["-s"]).stdout;
        for line in expected {
            assert!(status.lines().any(|told| told == *line), "{line}: {status}");
        }
    };
    is_set(&daemon, &["enabled 0", "failure 0", "rate_limit 2000"]);

    let new = format!("-D\n-b 111\n-f 1\n{}-e 1\n", rule("new"));
    assert!(daemon.replace(&new));
    let set = [
        "enabled 1",
        "failure 1",
        "rate_limit 2000",
        "backlog_limit 111",
    ];
    is_set(&daemon, &set);
    assert_eq!(
        changes(&daemon),
        [
            "op=set audit_backlog_limit=111 old=64 res=1",
            "op=set audit_failure=1 old=0 res=1",
            "op=remove_rule key=\"old\" list=4 res=1",
            "op=add_rule key=\"new\" list=4 res=1",
            "op=set audit_enabled=1 old=0 res=1",
        ]
    );
    let told = changes(&daemon).len();

    // None of the file's rules.
    let wrong = format!("-r 7\n{}-a always,exit -S nosuch\n", rule("wrong"));
    assert!(!daemon.replace(&wrong));
    is_set(&daemon, &set);
    assert_eq!(changes(&daemon)[told..], ["op=add_rule res=0"]);

    let locked = format!("-r 7000\n{}-e 2\n", rule("locked"));
    assert!(daemon.replace(&locked));
    is_set(&daemon, &["enabled 2", "failure 1", "rate_limit 7000"]);
    assert!(!daemon.replace(&new));
    let last = changes(&daemon).pop();
    assert_eq!(last.as_deref(), Some("op=add_rule audit_enabled=2 res=0"));
    let back = daemon.auditctl(&["-e", "1"]);
    assert_eq!(back.code, Some(255), "{back:?}");
    test_dir.workload().run(&[step!("rmdir", "missing")]);
    let Account { log, .. } = daemon.end(Signal::SIGTERM);
    let events = event::without_changes(&fs::read(log).unwrap());
    let keys: Vec<_> = events.iter().map(event::Event::key).collect();
    assert_eq!(keys, [Some("locked".into())]);
}
