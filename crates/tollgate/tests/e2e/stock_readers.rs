//! Stock readers give the same answers for tollgate's log and the kernel's log of one run, except for the
//! differences in `tests/differential/known.toml`.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use bstr::{BString, ByteSlice as _};
use nix::sys::signal::Signal;
use support::answers::{self, Logs, Outcome};
use support::event::FIRST_SERIAL;

use super::daemon::Daemon;
use super::differential::expect_permitted;
use super::event::{Event, events};
use super::harness::{needs_auparse, wait_for};
use super::kernel_audit::{KernelAudit, Lock, auditctl};
use super::scenario;
use super::test_dir::TestDir;

/// Settings that `auditd` requires.
const CONF: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\n";
/// Offset of the group of login tasks from the ids of the workloads.
const LOGIN: u32 = 800_000;
/// The unset login uid.
const UNSET: u32 = u32::MAX;

const SESSION: &str = include_str!("../../../../tests/differential/session.txt");
const REFUSED: &str = include_str!("../../../../tests/differential/refused.txt");
const AUPARSE_DUMP: &str = include_str!("../../../../tests/differential/auparse_dump.c");
const SEND_LOGIN: &str = include_str!("../../../../tests/differential/send_login.c");

/// Both running auditors.
struct Run<'a> {
    test_dir: &'a TestDir,
    kernel: KernelAudit,
    daemon: Daemon,
}

impl Run<'_> {
    /// Writes a message and waits until it is in both logs.
    #[track_caller]
    fn mark(&self, text: &str) {
        auditctl(&["-m", text]);
        wait_for(text, || {
            let in_log = |log: &[u8]| log.contains_str(text);
            let ours = fs::read(&self.daemon.log).unwrap();
            (in_log(&ours) && in_log(&self.kernel.text())).then_some(())
        });
    }

    /// The messages of a login.
    #[track_caller]
    fn login(&self, send_login: &Path, auid: u32, text: &str) {
        let file = self.test_dir.own.join("messages");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(send_login);
        command.args([(self.test_dir.id + LOGIN).to_string(), auid.to_string()]);
        let said = command.stdin(File::open(file).unwrap()).status();
        assert!(said.unwrap().success());
    }
}

pub(crate) fn stock_readers_agree_on_both_logs() {
    needs_auparse();
    let lock = Lock::take();
    let test_dir = TestDir::new();
    let auparse_dump = test_dir.compiled("auparse_dump", AUPARSE_DUMP, &["-lauparse"]);
    let send_login = test_dir.compiled("send_login", SEND_LOGIN, &[]);
    scenario::prepare(&test_dir);
    // The message of a task with an audit context comes with records of its syscall; no task has a context where
    // the kernel's audit is used for messages only.
    let spared = format!("-a never,task -F gid={}\n", test_dir.id + LOGIN);
    let rules = spared + &scenario::rules(&test_dir);
    let kernel = KernelAudit::start(&lock, &test_dir, &rules);
    let log = test_dir.own.join("audit.log");
    let daemon = Daemon::start_with_messages(&test_dir, &rules, &log, CONF, "multicast");
    let run = Run {
        test_dir: &test_dir,
        kernel,
        daemon,
    };
    let marks = ["begin", "end"].map(|word| format!("{word}-{}", test_dir.id));
    run.mark(&marks[0]);
    run.login(&send_login, UNSET, REFUSED);
    run.login(&send_login, 33, SESSION);
    run.mark(&format!("middle-{}", test_dir.id));
    let middle = next_second();
    scenario::run(&test_dir);
    // A message precedes events of the same clock tick that are not yet in the log.
    run.daemon.flush();
    run.mark(&marks[1]);

    let Run { kernel, daemon, .. } = run;
    let theirs_text = kernel.text();
    let mut theirs = kernel.stop();
    theirs.retain(|event| scenario::holds(&test_dir, event));
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!((stopped.code, stopped.summary.lost), (Some(0), 0));
    drop(lock);
    let ours_text = fs::read(&stopped.log).unwrap();
    let mut ours = stopped.events.clone();
    ours.retain(|event| event.serial >= FIRST_SERIAL && event.records[0].kind == "SYSCALL");
    let comparison = expect_permitted("daemon", &theirs, &ours);
    let logs = Logs {
        kernel: &theirs_text,
        tollgate: &ours_text,
        marks: [&marks[0], &marks[1]],
        events: &comparison.both,
    };
    let values = values(&test_dir, &theirs, &theirs_text, middle);
    let directory = test_dir.own.join("answers");
    let Outcome {
        same,
        permitted,
        wrong,
    } = answers::compare(&directory, &auparse_dump, "tracepoint", &logs, &values).unwrap();
    assert!(
        wrong.is_empty(),
        "of {} answers, {} are wrong:\n{}",
        same + permitted + wrong.len(),
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(relayed(&ours_text, &marks), relayed(&theirs_text, &marks));
}

/// Waits for the start of a second without events.
fn next_second() -> u64 {
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let before = now();
    wait_for("the next second", || {
        Some(now()).filter(|&now| now > before)
    })
}

/// Values of the words in braces in the questions.
fn values(
    test_dir: &TestDir,
    theirs: &[Event],
    log: &[u8],
    middle: u64,
) -> Vec<(&'static str, String)> {
    let work = test_dir.work.display();
    let started = theirs.iter().find(|event| event.all("EXECVE").count() != 0);
    let started = started.unwrap();
    let login = events(log).into_iter().find(|event| {
        let records = &event.records;
        records[0].kind == "LOGIN" && records[0].value("auid") == "33"
    });
    vec![
        ("key", "calls".into()),
        ("other", "tree".into()),
        ("uid", test_dir.id.to_string()),
        ("gid", test_dir.id.to_string()),
        ("pid", started.syscall("pid").into()),
        ("ppid", started.syscall("ppid").into()),
        ("file", format!("{work}/tree/secret")),
        ("word", "secret".into()),
        ("exe", format!("{work}/program")),
        ("comm", "program".into()),
        ("session", login.unwrap().records[0].value("ses").into()),
        ("middle", answers::date(middle)),
    ]
}

/// The kernel's log between two messages.
pub(crate) fn relayed(log: &[u8], marks: &[String; 2]) -> Vec<BString> {
    let of_kernel = |line: &&[u8]| !answers::is_of_tollgate(line).unwrap();
    let lines: Vec<&[u8]> = log.lines().filter(of_kernel).collect();
    let [first, last] = [&marks[0], &marks[1]].map(|mark| {
        let at = lines.iter().position(|line| line.contains_str(mark));
        at.unwrap()
    });
    lines[first..=last]
        .iter()
        .map(|&line| line.into())
        .collect()
}
