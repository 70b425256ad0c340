//! `tollgate run` with killed, concurrent and many tasks: nothing hangs, and losses are counted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::harness::wait_for;
use super::run::Run;
use super::test_dir::TestDir;

/// Rules that need results, and rules that do not.
const BOTH: [&[&str]; 2] = [&[], &["--no-result"]];
const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn ten_thousand_short_processes() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, "-a always,exit -F arch=b64 -S execve -k exec\n");
    let script = "i=0; while [ $i -lt 10000 ]; do /bin/true; i=$((i+1)); done";
    for options in BOTH {
        let mut command = run.command(options, &["sh", "-c", script]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stderr.as_bstr(), "", "nothing is lost");
        let log = fs::read(&run.log).unwrap();
        assert_eq!(log.find_iter("name=\"/bin/true\"").count(), 10_000);
        assert_eq!(log.find_iter("type=SYSCALL").count(), 10_001);
        fs::remove_file(&run.log).unwrap();
    }
}

pub(crate) fn two_hundred_threads_at_once() {
    let test_dir = TestDir::new();
    test_dir.file("file", "");
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S openat,close -k open\n",
    );
    let script = "\
import os, threading
barrier = threading.Barrier(200)
def work():
    barrier.wait()
    for _ in range(50):
        os.close(os.open('file', os.O_RDONLY))
threads = [threading.Thread(target=work) for _ in range(200)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
    for options in BOTH {
        let ran = run.run(options, &[PYTHON, "-c", script]);
        assert_eq!(ran.succeeded().output.stderr.as_bstr(), "");
        let file = |event: &&super::event::Event| event.paths() == ["NORMAL file"];
        assert_eq!(ran.events.iter().filter(file).count(), 10_000);
    }
}

pub(crate) fn tasks_killed_in_a_stop_do_not_hang() {
    let test_dir = TestDir::new();
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S openat,close -k open\n",
    );
    // The main thread exits the process, or another process kills it, while other threads are stopped.
    let script = "\
import os, signal, threading
def work():
    while True:
        os.close(os.open('/etc/hostname', os.O_RDONLY))
for round in range(100):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads: thread.start()
        os.open('/etc/hostname', os.O_RDONLY)
        if round % 2: os._exit(0)
        signal.pause()
    if round % 2 == 0:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print('done')
";
    for options in BOTH {
        let ran = run.run(options, &[PYTHON, "-c", script]);
        assert_eq!(ran.succeeded().output.stdout.as_bstr(), "done\n");
        let stderr = ran.output.stderr.as_bstr();
        assert!(stderr.is_empty() || stderr.contains_str("lost"), "{stderr}");
        wait_for("the end of the tasks", || {
            no_process_of(test_dir.id).then_some(())
        });
    }
}

pub(crate) fn killed_supervisor_ends_the_command() {
    let test_dir = TestDir::new();
    let run = Run::new(
        &test_dir,
        "-a always,exit -F arch=b64 -S execve,openat -k x\n",
    );
    // A child and a grandchild of the command; without results, later syscalls fail.
    let script = "(while cat /etc/hostname >/dev/null; do :; done) & \
                  while cat /etc/hostname >/dev/null; do :; done";
    for options in BOTH {
        let mut child = run
            .command(options, &["sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("some records", || {
            let log = fs::read(&run.log).unwrap_or_default();
            (log.find_iter("/etc/hostname").count() > 20).then_some(())
        });
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        wait_for("the end of the command", || {
            no_process_of(test_dir.id).then_some(())
        });
        fs::remove_file(&run.log).unwrap();
    }
}

pub(crate) fn full_log_losses_are_counted() {
    let test_dir = TestDir::new();
    let small = test_dir.directory("small");
    let mount = |arguments: &[&str]| {
        let status = Command::new(arguments[0])
            .args(&arguments[1..])
            .status()
            .unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    let options = format!("size=64k,uid={},mode=0700", test_dir.id);
    mount(&[
        "mount",
        "-t",
        "tmpfs",
        "-o",
        &options,
        "tmpfs",
        small.to_str().unwrap(),
    ]);
    let _unmount = Unmount(&small);
    let mut run = Run::new(&test_dir, "-a always,exit -F arch=b64 -S execve -k exec\n");
    run.log = small.join("log");
    let script = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done; exit 4";
    for options in BOTH {
        let output = run
            .command(options, &["sh", "-c", script])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4));
        let said = output.stderr.to_str().unwrap();
        let number = |name: &str| -> u64 {
            let rest = said.split_once(name).unwrap().1;
            let digits = rest
                .trim_start()
                .split(|letter: char| !letter.is_ascii_digit());
            digits.into_iter().next().unwrap().parse().unwrap()
        };
        let (matched, written, lost) = (number("matched"), number("written"), number("lost"));
        assert_eq!((matched, written + lost), (501, 501), "{said}");
        assert!(
            lost > 0 && said.contains("No space left on device"),
            "{said}"
        );
    }
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A shell with job control under tollgate, and a shell with tollgate as its job.
pub(crate) fn job_control_passes_through() {
    let test_dir = TestDir::new();
    let run = Run::new(&test_dir, "-a always,exit -F arch=b64 -S execve -k exec\n");
    let bash = ["bash", "--norc", "--noprofile", "-i"];
    let steps = "sleep 60\n|>,^Z|Stopped,jobs\n|sleep 60,fg\n|sleep 60,^C|>,echo status=$?\n|status=130,exit 7\n|";
    for options in BOTH {
        let inside = run.command(options, &bash);
        assert_eq!(dialogue(&run, &inside, steps), Some(7));
        fs::remove_file(&run.log).unwrap();
        let mut words: Vec<String> = vec![run.exe().into(), "run".into()];
        words.extend(options.iter().map(|word| (*word).to_owned()));
        let log = run.log.to_str().unwrap();
        words.extend(["--log", log, "--", "sleep", "60"].map(str::to_owned));
        let job = words.join(" ");
        let steps = steps
            .replacen("sleep 60", &job, 1)
            .replace("jobs\n|sleep 60", "jobs\n|Stopped");
        assert_eq!(dialogue(&run, &run.plain(&bash), &steps), Some(7));
        wait_for("the end of the job", || {
            no_process_of(test_dir.id).then_some(())
        });
        let _log = fs::remove_file(&run.log);
    }
}

/// Runs a command on a pseudo-terminal; types each text and waits for the expected output.
#[track_caller]
fn dialogue(run: &Run<'_>, command: &Command, steps: &str) -> Option<i32> {
    const TERMINAL: &str = "\
import os, pty, select, signal, sys, time
steps, words = sys.argv[1], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    # A shell without job control has what it runs in the background ignore these, and it is inherited.
    for ignored in (signal.SIGINT, signal.SIGQUIT): signal.signal(ignored, signal.SIG_DFL)
    os.environ['PS1'] = '>'
    os.execvp(words[0], words)
seen = b''
def wait(text):
    global seen
    deadline = time.monotonic() + 60
    while text not in seen:
        if not select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]:
            sys.exit('not seen: %r in %r' % (text, seen))
        try:
            seen += os.read(fd, 4096)
        except OSError:
            sys.exit('closed before %r: %r' % (text, seen))
    seen = seen.split(text, 1)[1]
def sleeps():
    # The job is there when it has the terminal and is not stopped any more.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        group = os.tcgetpgrp(fd)
        try:
            stats = [open('/proc/%s/stat' % p).read() for p in os.listdir('/proc') if p.isdigit()
                     and os.getpgid(int(p)) == group]
        except OSError:
            continue
        if any('(sleep) S' in stat for stat in stats): return
        time.sleep(0.005)
    sys.exit('the job does not get the terminal: %r' % seen)
wait(b'>')
for step in steps.split(','):
    text, answer = step.split('|')
    if text.startswith('^'):
        sleeps()
        text = chr(ord(text[1]) - 64)
    os.write(fd, text.encode())
    if answer and answer != '>': wait(answer.encode())
try:
    while os.read(fd, 4096): pass
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut terminal = Command::new(PYTHON);
    terminal.arg("-c").arg(TERMINAL).arg(steps).args(words);
    run.as_user(&mut terminal);
    let output = terminal.output().unwrap();
    assert_eq!(output.stderr.as_bstr(), "");
    output.status.code()
}

/// Whether no process of an id runs; zombies do not count.
fn no_process_of(id: u32) -> bool {
    let processes = fs::read_dir("/proc").unwrap();
    let alive = processes.flatten().any(|process| {
        let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        field("Uid:").starts_with(&id.to_string()) && !field("State:").starts_with('Z')
    });
    !alive
}
