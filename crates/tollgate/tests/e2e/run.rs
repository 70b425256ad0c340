//! `tollgate run` without root: the command behaves as without it, and its syscalls are recorded.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use bstr::{BString, ByteSlice as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::daemon::program;
use super::event::{Event, events};
use super::harness::wait_for;
use super::test_dir::TestDir;

/// `tollgate run` in a test directory, as the workloads' id.
pub(crate) struct Run<'a> {
    test_dir: &'a TestDir,
    tollgate: PathBuf,
    rules: PathBuf,
    /// Its log.
    pub(crate) log: PathBuf,
}

/// The result of a command, and its events.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) events: Vec<Event>,
}

impl<'a> Run<'a> {
    /// Prepares runs with these rules. The program is copied to a directory that the id can enter.
    pub(crate) fn new(test_dir: &'a TestDir, rules: &str) -> Self {
        let from = program();
        Self {
            test_dir,
            tollgate: test_dir.program("tollgate", from.to_str().unwrap()),
            rules: test_dir.file("run.rules", rules),
            log: test_dir.work.join("run.log"),
        }
    }

    /// The path of the program under test in the kernel's records.
    pub(crate) fn exe(&self) -> &str {
        self.tollgate.to_str().unwrap()
    }

    /// A command under `tollgate run` with these options, logged to [`Self::log`].
    pub(crate) fn command(&self, options: &[&str], words: &[&str]) -> Command {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        self.command_of(options, &words)
    }

    /// The same with arguments of any bytes.
    pub(crate) fn command_of(&self, options: &[&str], words: &[OsString]) -> Command {
        let mut command = Command::new(&self.tollgate);
        command.arg("run").arg("--rules").arg(&self.rules);
        command
            .arg("--log")
            .arg(&self.log)
            .args(options)
            .arg("--")
            .args(words);
        self.as_user(&mut command);
        command
    }

    /// The same command without tollgate.
    pub(crate) fn plain(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.as_user(&mut command);
        command
    }

    /// Sets the workloads' id and directory for a command.
    pub(crate) fn as_user(&self, command: &mut Command) {
        command
            .uid(self.test_dir.id)
            .gid(self.test_dir.id)
            .current_dir(&self.test_dir.work)
            .env("HOME", &self.test_dir.work)
            // Cargo's value names directories that this user cannot enter.
            .env_remove("LD_LIBRARY_PATH")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn run(&self, options: &[&str], words: &[&str]) -> Ran {
        let output = self.command(options, words).output().unwrap();
        self.ran(output)
    }

    /// The events so far; removes the log.
    #[track_caller]
    pub(crate) fn ran(&self, output: Output) -> Ran {
        let log = fs::read(&self.log).unwrap_or_default();
        let _none = fs::remove_file(&self.log);
        Ran {
            output,
            events: events(&log),
        }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Self {
        assert!(
            self.output.status.success(),
            "{}: {}",
            self.output.status,
            self.output.stderr.as_bstr()
        );
        self
    }

    /// Events with a key.
    pub(crate) fn with_key<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Event> {
        self.events
            .iter()
            .filter(move |event| event.key().is_some_and(|found| found == key))
    }
}

pub(crate) fn every_syscall_of_a_command_is_recorded() {
    let test_dir = TestDir::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first.rules");
    let run = Run::new(&test_dir, &fs::read_to_string(example).unwrap());
    let words = [
        "sh",
        "-c",
        "cp /etc/passwd x; chmod 600 x; mv x y; rm y; id; exit 3",
    ];
    let plain = run.plain(&words).output().unwrap();
    let ran = run.run(&["--print"], &words);
    assert_eq!(ran.output.status.code(), Some(3));
    assert_eq!(ran.output.stdout, plain.stdout);
    let seen: Vec<BString> = ran
        .events
        .iter()
        .map(|event| {
            let last = event.paths().pop().unwrap_or_default();
            BString::from([event.key().unwrap().as_slice(), b" ", last.as_slice()].concat())
        })
        .collect();
    let loader = "NORMAL /lib64/ld-linux-x86-64.so.2";
    let exec = format!("exec {loader}");
    let expected = [
        exec.as_str(),
        &exec,
        &exec,
        "mode NORMAL x",
        &exec,
        "rename CREATE y",
        &exec,
        "delete DELETE y",
        &exec,
    ];
    assert_eq!(seen, expected);
    let shown = ran.output.stderr.as_bstr();
    for word in [
        "[exec]",
        "[mode]",
        "[rename]",
        "[delete]",
        "matched 9, written 9, lost 0",
    ] {
        assert!(shown.contains_str(word), "{word} in\n{shown}");
    }
}

pub(crate) fn status_streams_and_signals_pass_through() {
    let test_dir = TestDir::new();
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S execve,openat -k x\n",
    );
    for options in [&[][..], &["--no-result"]] {
        for (script, code, signal) in [
            ("exit 0", Some(0), None),
            ("exit 41", Some(41), None),
            ("kill -TERM $$", None, Some(15)),
            ("kill -SEGV $$", None, Some(11)),
            ("kill -PIPE $$", None, Some(13)),
        ] {
            let ran = run.run(options, &["sh", "-c", script]);
            let status = ran.output.status;
            assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
            assert_eq!(ran.output.stderr.as_bstr(), "", "{script}");
        }
        assert_eq!(
            run.run(options, &["no-such-program"]).output.status.code(),
            Some(127)
        );
        assert_eq!(
            run.run(options, &["/etc/passwd"]).output.status.code(),
            Some(126)
        );

        // Signals to tollgate are forwarded to the command.
        let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
        let mut child = run
            .command(options, &["sh", "-c", script])
            .stdout(fs::File::create(test_dir.work.join("out")).unwrap())
            .spawn()
            .unwrap();
        let out = || fs::read_to_string(test_dir.work.join("out")).unwrap();
        wait_for("the script", || out().contains("ready").then_some(()));
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        let status = wait_for("the end", || child.try_wait().unwrap());
        assert_eq!(
            (status.code(), out().as_str()),
            (Some(5), "ready\ncaught\n")
        );
        let _log = fs::remove_file(&run.log);
    }
}

pub(crate) fn results_are_omitted_unless_rules_need_them() {
    let test_dir = TestDir::new();
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S openat,execve -k x\n",
    );
    let ran = run.run(&["--no-result"], &["cat", "/etc/hostname"]);
    ran.succeeded();
    let opened = ran
        .events
        .iter()
        .find(|event| event.paths() == ["NORMAL /etc/hostname"])
        .unwrap();
    assert_eq!(
        (opened.syscall("success"), opened.syscall("exit")),
        ("", "")
    );
    let exec = ran
        .events
        .iter()
        .find(|event| event.syscall("syscall") == "59")
        .unwrap();
    assert_eq!(
        exec.arguments().unwrap().args,
        [b"cat".as_slice(), b"/etc/hostname"]
    );

    let asks = "-a always,exit -F arch=b64 -S openat -F success=0 -k failed\n\
                -a always,exit -F arch=b64 -S execve -k x\n";
    let run = Run::new(&test_dir, asks);
    let ran = run.run(&["--no-result"], &["cat", "/etc/hostname", "/etc/missing"]);
    let failed = |event: &Event| event.paths() == ["UNKNOWN /etc/missing"];
    assert_eq!(
        ran.with_key("failed").filter(|event| failed(event)).count(),
        1
    );
    assert!(
        ran.with_key("failed")
            .all(|event| event.syscall("success") == "no")
    );
    assert!(
        ran.with_key("x")
            .all(|event| event.syscall("success").is_empty())
    );
}

pub(crate) fn json_option_prints_json() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, "-a always,exit -F arch=b64 -S mkdir -k made\n");
    let mut command = run.command(&["--json"], &["mkdir", "a b"]);
    assert!(command.status().unwrap().success());
    let text = fs::read_to_string(&run.log).unwrap();
    let event: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(
        (&event["syscall"], &event["success"]),
        (&"mkdir".into(), &true.into())
    );
    assert_eq!(event["path"][1]["name"], "a b");
    assert_eq!(event["key"][0], "made");
    assert_eq!(event["task"]["uid"], test_dir.id);
}

pub(crate) fn command_with_its_own_seccomp_filter_is_followed() {
    let test_dir = TestDir::new();
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S mkdir,openat -k x\n",
    );
    // Fails mkdir with EPERM, regardless of the outer filter.
    let script = "\
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
code = struct.pack('HBBI', 0x20, 0, 0, 0) + struct.pack('HBBI', 0x15, 0, 1, 83)
code += struct.pack('HBBI', 6, 0, 0, 0x50001) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxQ', 4, ctypes.addressof(buffer))
os.mkdir('before')
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program) == 0, ctypes.get_errno()
try:
    os.mkdir('refused')
except PermissionError:
    print('refused')
open('/etc/hostname').close()
";
    for options in [&[][..], &["--no-result"]] {
        let ran = run.run(options, &["/usr/bin/python3", "-c", script]);
        assert_eq!(ran.succeeded().output.stdout.as_bstr(), "refused\n");
        let named = |name: &str| {
            let name = BString::from(name);
            ran.events
                .iter()
                .filter(|event| event.paths().last() == Some(&name))
                .count()
        };
        assert_eq!((named("CREATE before"), named("CREATE refused")), (1, 0));
        assert_eq!(named("NORMAL /etc/hostname"), 1);
        fs::remove_dir(test_dir.work.join("before")).unwrap();
    }
}

pub(crate) fn nested_tracer_works_or_is_refused() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, "-a always,exit -F arch=b64 -S openat -k x\n");
    let words = ["strace", "-o", "trace", "true"];
    let refused = run.run(&[], &words);
    assert!(!refused.output.status.success());
    let said = refused.output.stderr.as_bstr();
    assert!(
        said.contains_str("a task can have one tracer") && said.contains_str("--no-result"),
        "{said}"
    );
    let ran = run.run(&["--no-result"], &words);
    ran.succeeded();
    let trace = fs::read_to_string(test_dir.work.join("trace")).unwrap();
    assert!(trace.contains("exited with 0"), "{trace}");
    assert!(
        ran.events
            .iter()
            .any(|event| event.syscall("comm") == "\"true\"")
    );
}

pub(crate) fn lost_privileges_are_reported() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, "-a always,exit -F arch=b64 -S openat -k x\n");
    for options in [&[][..], &["--no-result"]] {
        let ran = run.run(options, &["sh", "-c", "su --version; su --version"]);
        let said = ran.succeeded().output.stderr.as_bstr();
        assert_eq!(said.find_iter("no-new-privs").count(), 1, "{said}");
        assert!(ran.output.stdout.contains_str("util-linux"));
    }
}

pub(crate) fn addresses_and_names_behind_descriptors_are_recorded() {
    let test_dir = TestDir::new();
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S connect,bind,sendto,accept4 -k net\n\
         -a always,exit -F arch=b64 -S openat -F dir=/etc -F perm=w -k etc\n\
         -a always,exit -F arch=b64 -S chmod,fchmod -k mode\n",
    );
    symlink("/etc", test_dir.work.join("link")).unwrap();
    let script = "\
import os, socket
a = socket.socket(socket.AF_UNIX)
a.bind('here')
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))
except OSError:
    pass
for name in ('link/passwd', '/etc/../etc/passwd', 'mine'):
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600))
    except PermissionError:
        pass
fd = os.open('mine', os.O_RDONLY)
os.fchmod(fd, 0o640)
";
    let ran = run.run(&[], &["/usr/bin/python3", "-c", script]);
    ran.succeeded();
    let addresses: Vec<&str> = ran
        .with_key("net")
        .map(|event| event.one("SOCKADDR").value("saddr"))
        .collect();
    assert!(addresses[0].starts_with("01006865726500"), "{addresses:?}");
    assert!(
        addresses
            .iter()
            .any(|address| address.starts_with("020000097F000001")),
        "{addresses:?}"
    );
    assert_eq!(ran.with_key("etc").count(), 2);
    let mode = ran.with_key("mode").last().unwrap();
    assert_eq!(mode.paths(), ["NORMAL (null)"]);
    assert_eq!(
        mode.one("PATH").value("mode"),
        "0100600",
        "the mode before the call"
    );
}

/// The command line of a workload of this binary, copied to a directory that the id can enter.
pub(crate) fn workload_words(
    test_dir: &TestDir,
    steps: &[super::step::WorkloadStep],
) -> Vec<OsString> {
    let own = std::env::current_exe().unwrap();
    let copy = test_dir.work.join("workload");
    if !copy.exists() {
        test_dir.program("workload", own.to_str().unwrap());
    }
    let id = test_dir.id.to_string();
    let mut words: Vec<OsString> = vec![copy.into()];
    for word in ["workload", "calls", &id, &id, "g", "/"] {
        words.push(word.into());
    }
    words.push(OsStr::new(&test_dir.work).to_owned());
    words.extend(steps.iter().flat_map(super::step::WorkloadStep::words));
    words
}
