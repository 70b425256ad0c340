//! `tollgate watch` and the request behind it: viewers of a running daemon.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Group, Pid};
use serde_json::Value;
use support::wait::PATIENCE;

use super::daemon::{CommandOutput, Daemon, program};
use super::harness::wait_for;
use super::step::{WorkloadStep, step};
use super::test_dir::TestDir;

/// A group of every Debian.
const GROUP: &str = "games";

fn rules(test_dir: &TestDir) -> String {
    let id = test_dir.id;
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={id} -k gone\n\
         -a always,exit -F arch=b64 -S mkdir -F uid={id} -k made\n"
    )
}

fn rmdir() -> WorkloadStep {
    step!("rmdir", "/etc/missing")
}

/// Starts `tollgate watch`.
#[track_caller]
fn watch(daemon: &Daemon, arguments: &[&str]) -> Child {
    let mut command = Command::new(program());
    command
        .args(["watch", "--control"])
        .arg(&daemon.control)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until the daemon has this number of viewers.
#[track_caller]
fn wait_for_viewers(daemon: &Daemon, number: u64) {
    wait_for("viewers", || {
        (daemon.status()["viewers"] == number).then_some(())
    });
}

/// What a viewer has printed when it ends by itself.
#[track_caller]
fn printed(viewer: Child) -> String {
    let output = viewer.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

fn objects(lines: &str) -> Vec<Value> {
    let objects = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    objects.collect()
}

pub(crate) fn events_are_shown_and_filtered() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rules(&test_dir));
    let id = test_dir.id.to_string();
    let all = watch(&daemon, &["--json", "--count", "3"]);
    let text = watch(&daemon, &["--key", "made", "--count", "1"]);
    let failed = watch(
        &daemon,
        &[
            "--json", "--result", "failure", "--user", &id, "--count", "2",
        ],
    );
    // Conditions of two kinds, one of which no event meets.
    let mut none = watch(&daemon, &["--key", "gone", "--program", "nobody"]);
    wait_for_viewers(&daemon, 4);
    let steps = [rmdir(), step!("mkdir", "new", 0o700), rmdir()];
    test_dir.workload().run(&steps);

    let text = printed(text);
    let header = text.lines().next().unwrap();
    assert!(header.contains("Z ok       mkdir "), "{text}");
    assert!(header.ends_with("  [made]"), "{text}");
    assert!(text.contains("    made"), "{text}");
    let failed = objects(&printed(failed));
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|event| event["syscall"] == "rmdir"));
    let mut all = objects(&printed(all));
    kill(Pid::from_raw(none.id().cast_signed()), Signal::SIGTERM).unwrap();
    none.wait().unwrap();
    wait_for_viewers(&daemon, 0);

    // The objects are those of the log, with the origin of names besides.
    let stopped = daemon.stop();
    let logged = CommandOutput::of(Command::new(program()).arg("convert").arg(&stopped.log));
    for event in &mut all {
        for path in event["path"].as_array_mut().unwrap() {
            path.as_object_mut().unwrap().remove("source");
        }
    }
    assert_eq!(all, objects(&logged.stdout));
}

/// A connection that watches.
#[track_caller]
fn connect(daemon: &Daemon) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(&daemon.control).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"{\"version\":1,\"request\":{\"watch\":{}}}\n")
        .unwrap();
    let mut stream = BufReader::new(stream);
    assert_eq!(line(&mut stream), "\"watching\"\n");
    stream
}

#[track_caller]
fn line(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

/// One viewer reads nothing, one dies, one is stopped: the log has everything, and a fourth one too.
pub(crate) fn slow_viewers_lose_only_their_own_events() {
    const PAIRS: u32 = 5_000;
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let rules = rules(&test_dir)
        + &format!(
            "-a always,exit -F arch=b64 -S open,openat,close -F uid={} -k burst\n",
            test_dir.id
        );
    let daemon = Daemon::start(&test_dir, &rules);
    let mut slow = connect(&daemon);
    let dead = connect(&daemon);
    let mut stopped = watch(&daemon, &["--json"]);
    let mut other = watch(&daemon, &["--key", "gone", "--json", "--count", "1"]);
    wait_for_viewers(&daemon, 4);
    let pid = Pid::from_raw(stopped.id().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    drop(dead);
    test_dir.workload().burst(&file, PAIRS);
    // On a busy machine all viewers can lack some events: another one follows.
    wait_for("the event of the other viewer", || {
        test_dir.workload().run(&[rmdir()]);
        other.try_wait().unwrap()
    });
    // Before it there may be a notice.
    let shown = objects(&printed(other));
    assert_eq!(shown.last().unwrap()["key"][0], "gone", "{shown:?}");
    kill(pid, Signal::SIGKILL).unwrap();
    stopped.wait().unwrap();
    wait_for_viewers(&daemon, 1);

    // It reads what waits, and is told what it has lost.
    daemon.flush();
    let matched = daemon.status()["counts"]["matched"].as_u64().unwrap();
    assert!(matched > u64::from(PAIRS) * 2);
    let (mut events, mut lost) = (0, 0);
    while events + lost < matched {
        let line = line(&mut slow);
        assert!(
            line.ends_with('\n'),
            "{events} events, {lost} lost of {matched}"
        );
        if line.starts_with('{') {
            let notice: Value = serde_json::from_str(&line).unwrap();
            lost += notice["missed"]["lost"].as_u64().unwrap();
        }
        events += u64::from(line.starts_with("type=EOE "));
    }
    assert_eq!(events + lost, matched);
    assert!(lost > 0);
    let summary = daemon.end(Signal::SIGTERM).summary;
    assert_eq!((summary.lost, summary.written), (0, summary.matched));
    assert_eq!(line(&mut slow), "", "the daemon has ended");
}

/// Viewers of a user with this supplementary group.
fn as_user(program: &Path, test_dir: &TestDir, group: Option<u32>) -> Command {
    let mut command = Command::new("setpriv");
    let id = test_dir.id.to_string();
    command.args(["--reuid", &id, "--regid", &id]);
    match group {
        Some(group) => command.args(["--groups", &group.to_string()]),
        None => command.arg("--clear-groups"),
    };
    command.arg(program);
    command
}

/// Members of the group may watch and see the status, and change nothing; others may not connect.
pub(crate) fn only_root_and_the_group_may_watch() {
    let test_dir = TestDir::new();
    let group = Group::from_name(GROUP).unwrap().unwrap().gid.as_raw();
    // Others can reach the directory of the socket.
    fs::set_permissions(&test_dir.own, Permissions::from_mode(0o711)).unwrap();
    let start = |settings: &str| {
        let settings = format!("{settings}kernel_messages = \"off\"\n");
        Daemon::start_with_settings(&test_dir, &rules(&test_dir), &settings)
    };
    let daemon = start(&format!("watch_group = \"{GROUP}\"\n"));
    let control = daemon.control.clone();
    let directory = control.parent().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(directory), mode(&control)), (0o710, 0o660));

    let copy = test_dir.program("tollgate", program().to_str().unwrap());
    let ask = |command: &str, group: Option<u32>, arguments: &[&str]| {
        let mut tollgate = as_user(&copy, &test_dir, group);
        tollgate.args([command, "--control"]).arg(&control);
        CommandOutput::of(tollgate.args(arguments))
    };
    for command in ["watch", "status"] {
        let refused = ask(command, None, &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("watch_group"), "{refused:?}");
    }
    let status = ask("status", Some(group), &["--json"]);
    assert!(status.stdout.contains("\"by_rule\""), "{status:?}");
    let viewer = as_user(&copy, &test_dir, Some(group))
        .args(["watch", "--json", "--count", "1", "--control"])
        .arg(&control)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_viewers(&daemon, 1);
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(objects(&printed(viewer))[0]["syscall"], "rmdir");
    // auditctl itself refuses without asking the daemon: the request is sent by hand.
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.sendall(b'{\"version\":1,\"request\":'+sys.argv[2].encode()+b'}\\n')\n\
                  print(s.makefile().readline())\n";
    for request in [
        r#""flush""#,
        r#""reload""#,
        r#""trim""#,
        r#"{"message":"x"}"#,
        r#"{"change":{"steps":[{"delete_all":null}],"forgive_from":null}}"#,
    ] {
        let mut python = as_user(Path::new("/usr/bin/python3"), &test_dir, Some(group));
        let python = python.args(["-c", script]).arg(&control).arg(request);
        let answer = CommandOutput::of(python);
        assert!(
            answer.stdout.contains("only root may change anything"),
            "{request}: {answer:?}"
        );
    }
    assert_eq!(daemon.status()["rules"], 2);

    // Many connections of the group do not replace one of root.
    let mut idle = UnixStream::connect(&control).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    let many = "import socket,sys\nopen=[]\nfor _ in range(40):\n s=socket.socket(socket.AF_UNIX)\n \
                s.connect(sys.argv[1])\n s.sendall(b'{')\n open.append(s)\n";
    let mut python = as_user(Path::new("/usr/bin/python3"), &test_dir, Some(group));
    let connected = CommandOutput::of(python.args(["-c", many]).arg(&control));
    assert_eq!(connected.code, Some(0), "{connected:?}");
    idle.write_all(b"{\"version\":1,\"request\":\"rules\"}\n")
        .unwrap();
    let answer = line(&mut BufReader::new(idle));
    assert!(answer.starts_with("{\"rules\":["), "{answer}");
    daemon.stop();

    // Without the setting only root can connect, also where the directory is open to the group.
    let daemon = start("");
    assert_eq!(mode(&control), 0o600);
    let refused = ask("watch", Some(group), &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    // The log has the events of the first daemon.
    daemon.end(Signal::SIGTERM);
    // A group that does not exist is reported, and the daemon audits.
    let daemon = start("watch_group = \"nosuchgroup\"\n");
    assert!(daemon.has_printed("`nosuchgroup` of `watch_group` does not exist"));
    assert_eq!(mode(&control), 0o600);
    daemon.end(Signal::SIGTERM);
}

pub(crate) fn number_of_viewers_is_limited() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rules(&test_dir));
    let viewers: Vec<_> = (0..8).map(|_| connect(&daemon)).collect();
    let refused = watch(&daemon, &[]).wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(
        stderr.contains("8 viewers watch already, the maximum: end one of the processes "),
        "{stderr}"
    );
    drop(viewers);
    wait_for_viewers(&daemon, 0);
    drop(connect(&daemon));
    daemon.stop();
}

/// `tollgate-top`, with the socket of the daemon.
fn top(daemon: &Daemon) -> String {
    let top = program().with_file_name("tollgate-top");
    format!(
        "'{}' --control '{}'",
        top.display(),
        daemon.control.display()
    )
}

pub(crate) fn top_reports_rules_and_losses() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rules(&test_dir));
    test_dir.workload().run(&vec![rmdir(); 40]);
    daemon.flush();
    let run = |form: &str| {
        let line = format!("exec {} {form}", top(&daemon));
        let output = CommandOutput::of(Command::new("sh").args(["-c", &line]));
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        output.stdout
    };
    let report = objects(&run("--json")).remove(0);
    assert_eq!(
        (&report["matched"], &report["lost"]),
        (&40.into(), &0.into())
    );
    let rules = report["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0]["keys"][0], "gone");
    assert_eq!(
        (&rules[0]["matched"], &rules[0]["cost"]),
        (&40.into(), &"low".into())
    );
    assert_eq!(report["losses"][0]["reason"], "ring full");
    let text = run("--batch");
    let row = text.lines().find(|line| line.contains("gone")).unwrap();
    assert!(row.contains(" 40 "), "{text}");
    daemon.stop();
}

/// The terminal of a program that is killed by a signal, and of one that the user ends, is as before; a program whose
/// terminal is closed ends.
pub(crate) fn top_restores_the_terminal() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rules(&test_dir));
    for end in ["TERM", "HUP", "q", "closed"] {
        let screen = test_dir.own.join(format!("screen-{end}"));
        // `script` gives it a terminal of its own.
        let line = format!(
            "stty rows 24 cols 80; sh -c 'echo $$ >pid; exec {}'; stty -a",
            top(&daemon).replace('\'', "")
        );
        let mut script = Command::new("script")
            .args(["-qfec", &line])
            .arg(&screen)
            .current_dir(&test_dir.own)
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let shown = || fs::read(&screen).unwrap_or_default();
        wait_for("the screen", || {
            let shown = String::from_utf8_lossy(&shown()).into_owned();
            shown.contains("EVENTS/S").then_some(())
        });
        let pid = fs::read_to_string(test_dir.own.join("pid")).unwrap();
        let pid: i32 = pid.trim().parse().unwrap();
        if end == "closed" {
            script.kill().unwrap();
            script.wait().unwrap();
            let process = format!("/proc/{pid}");
            wait_for("the end of top", || {
                (!Path::new(&process).exists()).then_some(())
            });
            continue;
        }
        if end == "q" {
            script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
        } else {
            let signal: Signal = format!("SIG{end}").parse().unwrap();
            kill(Pid::from_raw(pid), signal).unwrap();
        }
        let status = wait_for("the end", || script.try_wait().unwrap());
        assert!(status.success(), "{end}: {status}");
        let shown = String::from_utf8_lossy(&shown()).into_owned();
        let (_, after) = shown.rsplit_once("\x1b[?1049l").expect("alternate screen");
        let words: Vec<&str> = after.split([' ', ';', '\r', '\n']).collect();
        for word in ["icanon", "echo", "isig"] {
            assert!(words.contains(&word), "{end}: {after}");
        }
    }
    daemon.stop();
}
