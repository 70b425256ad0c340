//! The control socket and the commands that use it, with a running daemon.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use bstr::ByteSlice as _;
use nix::sys::signal::Signal;

use super::daemon::{Account, CommandOutput, Daemon, program};
use super::event::events;
use super::step::{WorkloadStep, step};
use super::test_dir::TestDir;

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Sends a request that must succeed without output.
#[track_caller]
fn must(daemon: &Daemon, line: &str) -> String {
    let CommandOutput {
        code,
        stdout: out,
        stderr: said,
    } = daemon.auditctl(&words(line));
    assert_eq!((code, said.as_str()), (Some(0), ""), "{line}: {out}");
    out
}

/// Sends a request that must fail with this status and text.
#[track_caller]
fn refused(daemon: &Daemon, line: &str, status: i32, text: &str) {
    let CommandOutput {
        code, stderr: said, ..
    } = daemon.auditctl(&words(line));
    assert_eq!(code, Some(status), "{line}: {said}");
    assert!(said.contains(text), "{line}: {said}");
}

fn rmdir() -> WorkloadStep {
    step!("rmdir", "/etc/missing")
}

fn mkdir() -> WorkloadStep {
    step!("mkdir", "/etc", 0o700)
}

/// Keys of all events in the log, after a flush.
#[track_caller]
fn keys(daemon: &Daemon) -> Vec<String> {
    // When a message is answered, it is in the log, after all earlier events.
    must(daemon, "-m end");
    let text = fs::read(&daemon.log).unwrap();
    assert!(text.contains_str("text=end "), "{}", text.as_bstr());
    let keys = events(&text)
        .iter()
        .filter(|event| event.all("SYSCALL").count() == 1)
        .filter_map(|event| event.key().map(|key| key.to_string()))
        .collect();
    fs::OpenOptions::new()
        .write(true)
        .open(&daemon.log)
        .unwrap()
        .set_len(0)
        .unwrap();
    keys
}

/// Ends a daemon whose log was truncated.
#[track_caller]
fn end(daemon: Daemon) {
    let Account { summary, code, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!((summary.lost, code), (0, Some(0)));
    assert_eq!(summary.matched, summary.written);
}

pub(crate) fn rules_are_added_and_deleted() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, "");
    let workload = test_dir.workload();
    assert_eq!(must(&daemon, "-l"), "No rules\n");
    workload.run(&[rmdir()]);
    let rule = format!("-F arch=b64 -S rmdir -F uid={} -k rmdir", test_dir.id);
    must(&daemon, &format!("-a always,exit {rule}"));
    // No wait: the rule is in force when the request is answered.
    workload.run(&[rmdir(), mkdir()]);
    assert_eq!(keys(&daemon), ["rmdir"]);
    refused(
        &daemon,
        &format!("-a always,exit {rule}"),
        255,
        "(Rule exists)",
    );

    let front = format!("-F arch=b64 -S rmdir,mkdir -F uid={} -k front", test_dir.id);
    must(&daemon, &format!("-A always,exit {front}"));
    workload.run(&[rmdir(), mkdir()]);
    assert_eq!(keys(&daemon), ["front", "front"]);
    let listing = must(&daemon, "-l");
    let [first, second] = listing.lines().collect::<Vec<_>>()[..] else {
        panic!("{listing}");
    };
    assert!(first.ends_with(" -F key=front"), "{listing}");
    assert!(second.ends_with(" -F key=rmdir"), "{listing}");
    assert_eq!(must(&daemon, "-l -k mdi"), format!("{second}\n"));

    assert!(must(&daemon, "-e 0").starts_with("enabled 0\n"));
    workload.run(&[rmdir()]);
    assert!(must(&daemon, "-e 1").starts_with("enabled 1\n"));
    workload.run(&[mkdir()]);
    assert_eq!(keys(&daemon), ["front"]);

    must(&daemon, &format!("-d always,exit {front}"));
    workload.run(&[rmdir(), mkdir()]);
    assert_eq!(keys(&daemon), ["rmdir"]);
    refused(
        &daemon,
        &format!("-d always,exit {front}"),
        255,
        "(No such file or directory)",
    );
    assert_eq!(must(&daemon, "-D -k rmdir"), "No rules\n");
    workload.run(&[rmdir()]);
    assert_eq!(keys(&daemon), [""; 0]);
    end(daemon);
}

pub(crate) fn rule_file_is_loaded_atomically() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, "");
    let file = test_dir.own.join("new.rules");
    let load = |text: &str| {
        fs::write(&file, text).unwrap();
        daemon.auditctl(&["-R", file.to_str().unwrap()])
    };
    let rule = |call: &str, key: &str| {
        let id = test_dir.id;
        format!("-a always,exit -F arch=b64 -S {call} -F uid={id} -k {key}\n")
    };
    let (first, second) = (rule("rmdir", "first"), rule("mkdir", "second"));
    let loaded = load(&format!("## rules\n-D\n-b 8192\n{first}{second}"));
    assert_eq!((loaded.code, loaded.stderr.as_str()), (Some(0), ""));
    assert!(
        loaded.stdout.starts_with("No rules\nenabled 1\n"),
        "{}",
        loaded.stdout
    );
    assert!(
        loaded.stdout.contains("backlog_limit 8192\n"),
        "{}",
        loaded.stdout
    );
    test_dir.workload().run(&[rmdir(), mkdir()]);
    assert_eq!(keys(&daemon), ["first", "second"]);
    let listing = must(&daemon, "-l");

    for (broken, line) in [("-z\n", 4), (first.as_str(), 4), ("-w x -p w\n", 4)] {
        let refused = load(&format!("-D\n{second}{first}{broken}"));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let message = format!("There was an error in line {line} of {}", file.display());
        assert!(refused.stderr.contains(&message), "{refused:?}");
        assert!(
            refused.stderr.contains("No line of the file took effect"),
            "{refused:?}"
        );
        assert_eq!(must(&daemon, "-l"), listing);
    }
    for (option, status) in [("-i", 0), ("-c", 1)] {
        let loaded = load(&format!("-D\n{option}\n{first}-z\n{first}{second}"));
        assert_eq!(loaded.code, Some(status), "{loaded:?}");
        assert!(loaded.stderr.contains("in line 4"), "{loaded:?}");
        assert!(loaded.stderr.contains("in line 5"), "{loaded:?}");
        assert_eq!(must(&daemon, "-l"), listing);
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/first.rules");
    let loaded = daemon.auditctl(&["-R", example.to_str().unwrap()]);
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    assert!(must(&daemon, "-l").lines().count() > 3);
    let missing = daemon.auditctl(&["-R", "/nowhere/rules"]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing
            .stderr
            .contains("audit rules file /nowhere/rules doesn't exist")
    );
    must(&daemon, "-D");
    end(daemon);
}

pub(crate) fn lock_outlives_the_daemon() {
    let test_dir = TestDir::new();
    let rule = format!("-a always,exit -F arch=b64 -S rmdir -F uid={}", test_dir.id);
    let daemon = Daemon::start(&test_dir, &format!("{rule} -k locked\n"));
    assert!(must(&daemon, "-e 2").starts_with("enabled 2\n"));
    let check = |daemon: &Daemon| {
        refused(daemon, "-a never,task", 1, "immutable mode");
        refused(daemon, "-D", 255, "(Operation not permitted)");
        refused(daemon, "-e 1", 255, "(Operation not permitted)");
        refused(daemon, "-R /dev/null", 1, "immutable mode");
        assert!(must(daemon, "-s -i").starts_with("enabled enabled+immutable\n"));
        assert!(must(daemon, "-l").ends_with(" -F key=locked\n"));
    };
    check(&daemon);
    end(daemon);
    // Other rules in the file have no effect.
    let daemon = Daemon::start(&test_dir, &format!("{rule} -k other\n"));
    check(&daemon);
    daemon.signal(Signal::SIGHUP);
    check(&daemon);
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(keys(&daemon), ["locked"]);
    let said = daemon.end(Signal::SIGTERM).output;
    // Depends on whether the kernel supports programs on functions.
    let kept = [
        "are protected from root's tools",
        "root's tools can still change programs",
    ];
    let is_told = |line: &String| kept.iter().any(|words| line.contains(words));
    assert!(said.iter().any(is_told), "{said:?}");
}

pub(crate) fn only_root_may_connect() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, "");
    let copy = test_dir.program("tollgate", program().to_str().unwrap());
    let asked = CommandOutput::of(
        Command::new(copy)
            .args(["auditctl", "--control"])
            .arg(&daemon.control)
            .arg("-l")
            .uid(test_dir.id)
            .gid(test_dir.id),
    );
    assert_eq!(asked.code, Some(4), "{asked:?}");
    assert_eq!(asked.stderr, "You must be root to run this program.\n");
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&daemon.control), 0o600);
    assert_eq!(mode(daemon.control.parent().unwrap()), 0o700);
    let gone = daemon.control.clone();
    end(daemon);
    let asked = CommandOutput::of(
        Command::new(program())
            .args(["auditctl", "--control"])
            .arg(gone)
            .arg("-l"),
    );
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(
        asked.stderr.contains("no tollgate daemon listens"),
        "{asked:?}"
    );
}

pub(crate) fn hostile_clients_do_not_disturb_others() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={}\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let mut open = Vec::new();
    for round in 0..2000_usize {
        let mut stream = UnixStream::connect(&daemon.control).unwrap();
        let bytes: &[u8] = match round % 4 {
            0 => b"",
            1 => b"\x00\xff\xfe{{{{\n",
            2 => br#"{"version":1,"request":{"change":{"steps":[{"append":{"list":"exit""#,
            _ => b"{\"version\":99,\"request\":\"rules\"}\n",
        };
        // The daemon may have closed the connection.
        let _gone = stream.write_all(bytes);
        open.push(stream);
        if round % 500 == 0 {
            test_dir.workload().run(&[rmdir()]);
            assert_eq!(must(&daemon, "-l").lines().count(), 1);
        }
        // As many as the file limit allows.
        if open.len() > 500 {
            open.clear();
        }
    }
    for mut stream in open.drain(..).take(4) {
        let mut answer = String::new();
        let _gone = stream.set_nonblocking(true);
        let _gone = stream.read_to_string(&mut answer);
        assert!(
            answer.is_empty() || answer.contains("unanswered"),
            "{answer}"
        );
    }
    assert_eq!(daemon.stop().events.len(), 4);
}

pub(crate) fn messages_and_flushes_reach_the_log() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k k\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    for expected in 1..=10 {
        test_dir.workload().run(&[rmdir()]);
        assert_eq!(daemon.flush(), "\"done\"\n");
        // No wait: all is in the log when the request is answered.
        assert_eq!(daemon.events().len(), expected);
    }
    for expected in 11..=20 {
        test_dir.workload().run(&[rmdir()]);
        let converted = CommandOutput::of(
            Command::new(program())
                .args(["convert", "--control"])
                .args([&daemon.control, &daemon.log]),
        );
        assert_eq!(converted.stdout.lines().count(), expected, "{converted:?}");
    }
    let asked = daemon.auditctl(&["-m", "it's 5 o'clock"]);
    assert_eq!((asked.code, asked.stderr.as_str()), (Some(0), ""));
    refused(&daemon, "-m \u{7}", 255, "Illegal character in audit event");
    let status = CommandOutput::of(
        Command::new(program())
            .args(["status", "--control"])
            .arg(&daemon.control),
    );
    assert!(
        status
            .stdout
            .contains("\nevents      20 matched, 20 delivered, 20 written\n"),
        "{status:?}"
    );
    let stopped = daemon.stop_with(Signal::SIGTERM);
    let log = fs::read_to_string(&stopped.log).unwrap();
    let line = log
        .lines()
        .find(|line| line.starts_with("type=USER "))
        .unwrap();
    assert!(line.contains(" uid=0 auid="), "{line}");
    assert!(line.contains(" msg='text=it's 5 o'clock exe=\"/"), "{line}");
    assert!(line.ends_with(" res=success'"), "{line}");
    assert_eq!(stopped.events.len(), 21);
}

pub(crate) fn rule_is_added_under_load() {
    // A process for every few calls gives a steady load without sleeps.
    const PAIRS: u32 = 10;
    const ADDED: usize = 10;
    const BEFORE: usize = 1000;
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let id = test_dir.id;
    let many: String = (1..BEFORE)
        .map(|number| {
            format!(
                "-a always,exit -F arch=b64 -S open,openat,close -F dir=/etc/missing{number} -F uid={id} -k many\n"
            )
        })
        .collect();
    let burst = format!("-a always,exit -F arch=b64 -S open,openat,close -F uid={id} -k burst\n");
    let daemon = Daemon::start(&test_dir, &(many + &burst));
    let mut took = Vec::new();
    let done = AtomicBool::new(false);
    let bursts = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut bursts = 0;
            while !done.load(Ordering::Relaxed) {
                test_dir.workload().burst(&file, PAIRS);
                bursts += 1;
            }
            bursts
        });
        for number in 0..ADDED {
            let rule = format!("-a always,exit -F arch=b64 -S rmdir -F uid={number} -k n{number}");
            let started = Instant::now();
            must(&daemon, &rule);
            took.push(started.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    took.sort();
    println!(
        "        adding one rule to {BEFORE} under load: median {} ms, longest {} ms; {bursts} bursts",
        took[ADDED / 2].as_millis(),
        took[ADDED - 1].as_millis()
    );
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    let log = fs::read(log).unwrap();
    let name = format!(" name=\"{}\" ", file.display());
    let opens = log.find_iter(&name).count();
    let pairs = usize::try_from(PAIRS).unwrap();
    assert_eq!(opens, bursts * pairs, "opens in the log");
}
