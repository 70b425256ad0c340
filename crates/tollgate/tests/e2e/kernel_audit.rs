//! The kernel's audit: its state, its lock, and an `auditd` that is always stopped.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bstr::ByteSlice as _;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::event;

use super::event::Event;
use super::harness::{needs, wait_for};
use super::test_dir::TestDir;

const AUDITCTL: &str = "/usr/sbin/auditctl";
const AUDITD: &str = "/usr/sbin/auditd";

/// `auditd.conf` for records as the kernel sends them.
const RAW: &str = "log_format = RAW\nname_format = NONE\n";

/// The machine-wide lock for changes of the kernel's audit.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Waits for the lock and takes it.
    pub(crate) fn take() -> Self {
        let path = Path::new("/tmp/tollgate-machine.lock");
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        Self {
            _file: Flock::lock(file, FlockArg::LockExclusive).unwrap(),
        }
    }
}

/// The state of the kernel's audit, from `auditctl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) status: Vec<String>,
    pub(crate) rules: Vec<String>,
}

impl State {
    /// Queries the state without counters that change by themselves.
    #[track_caller]
    pub(crate) fn ask() -> Self {
        needs(
            Path::new(AUDITCTL).exists(),
            "auditctl, of Debian's package auditd",
        );
        let lines = |output: String| output.lines().map(str::to_owned).collect::<Vec<_>>();
        let mut status = lines(auditctl(&["-s"]));
        let moves = ["lost ", "backlog ", "backlog_wait_time_actual "];
        status.retain(|line| !moves.iter().any(|name| line.starts_with(name)));
        Self {
            status,
            rules: lines(auditctl(&["-l"])),
        }
    }

    /// Queries the state; skips the test if the kernel's audit is in use.
    #[track_caller]
    pub(crate) fn unused(_: &Lock) -> Self {
        let state = Self::ask();
        let (enabled, reader) = (state.number("enabled"), state.number("pid"));
        needs(
            enabled == 0 && reader == 0 && state.rules == ["No rules"],
            &format!(
                "the kernel's audit, which somebody else uses (enabled {enabled}, reader {reader}, rules {:?})",
                state.rules
            ),
        );
        state
    }

    /// A number in the output of `auditctl -s`.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u32 {
        let line = self
            .status
            .iter()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap().parse().unwrap()
    }
}

/// Runs `auditctl`; returns its output.
#[track_caller]
pub(crate) fn auditctl(arguments: &[&str]) -> String {
    let output = Command::new(AUDITCTL)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    needs(
        !said.contains("Connection refused") && !said.contains("Protocol not supported"),
        "a kernel with audit",
    );
    assert!(output.status.success(), "auditctl {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The kernel's audit with rules and a running `auditd`.
#[derive(Debug)]
pub(crate) struct KernelAudit {
    child: Child,
    log: PathBuf,
    backlog: u32,
}

impl KernelAudit {
    /// Loads the rules and starts `auditd`. The caller must hold the lock.
    #[track_caller]
    pub(crate) fn start(lock: &Lock, test_dir: &TestDir, rules: &str) -> Self {
        Self::start_with(lock, test_dir, rules, RAW)
    }

    /// The same, with these lines of `auditd.conf` about the format of the log.
    #[track_caller]
    pub(crate) fn start_with(lock: &Lock, test_dir: &TestDir, rules: &str, format: &str) -> Self {
        let before = State::unused(lock);
        let rule_file = test_dir.own.join("rules-of-kernel");
        fs::write(&rule_file, rules).unwrap();
        let backlog = before.number("backlog_limit");
        let (mut auditd, log) = auditd(test_dir, format);
        let child = auditd.stdin(Stdio::null()).spawn().unwrap();
        let audit = Self {
            child,
            log,
            backlog,
        };
        wait_for("auditd to listen", || {
            (State::ask().number("pid") != 0).then_some(())
        });
        auditctl(&["-b", "65536"]);
        auditctl(&["-e", "1"]);
        auditctl(&["-R", rule_file.to_str().unwrap()]);
        audit
    }

    /// The current log of `auditd`.
    #[track_caller]
    pub(crate) fn text(&self) -> Vec<u8> {
        fs::read(&self.log).unwrap()
    }

    /// Waits until `auditd` has all events so far. `last` is a command that the rules record, with this text in its
    /// records, which come last. Returns its process id.
    #[track_caller]
    pub(crate) fn settle(&self, last: &mut Command, text: &str) -> u32 {
        let mut child = last
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.wait().unwrap();
        wait_for("the kernel's last event", || {
            fs::read(&self.log)
                .unwrap()
                .contains_str(text)
                .then_some(())
        });
        child.id()
    }

    /// Stops `auditd`; returns the events of the rules by serial.
    #[track_caller]
    pub(crate) fn stop(self) -> Vec<Event> {
        let log = self.log.clone();
        drop(self);
        let mut events = event::parse_interleaved(&fs::read(log).unwrap()).unwrap();
        events.retain(|event| event.all("SYSCALL").count() == 1);
        events
    }
}

impl Drop for KernelAudit {
    fn drop(&mut self) {
        // A failure here must not keep the rest from being restored.
        let quietly = |arguments: &[&str]| {
            let _status = Command::new(AUDITCTL)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        };
        quietly(&["-D"]);
        quietly(&["-e", "0"]);
        let _gone = kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        );
        let _status = self.child.wait();
        quietly(&["-b", &self.backlog.to_string()]);
    }
}

/// The command that runs `auditd` with this log format, and its log.
#[track_caller]
pub(crate) fn auditd(test_dir: &TestDir, format: &str) -> (Command, PathBuf) {
    needs(
        Path::new(AUDITD).exists(),
        "auditd, of Debian's package auditd",
    );
    let directory = test_dir.own.join("auditd");
    let plugins = directory.join("plugins.d");
    fs::create_dir_all(&plugins).unwrap();
    let log = directory.join("audit.log");
    let config = directory.join("auditd.conf");
    fs::write(&config, configuration(&log, &plugins, format)).unwrap();
    for (path, mode) in [(&directory, 0o750), (&plugins, 0o750), (&config, 0o640)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(AUDITD);
    command.args(["-n", "-s", "nochange", "-c"]).arg(&directory);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    (command, log)
}

fn configuration(log: &Path, plugins: &Path, format: &str) -> String {
    format!(
        "local_events = yes\nwrite_logs = yes\nlog_file = {}\nlog_group = root\n{format}\
         flush = NONE\nmax_log_file = 100\nnum_logs = 2\n\
         max_log_file_action = IGNORE\nspace_left = 2\nspace_left_action = IGNORE\n\
         admin_space_left = 1\nadmin_space_left_action = IGNORE\ndisk_full_action = IGNORE\n\
         disk_error_action = IGNORE\noverflow_action = IGNORE\nq_depth = 2000\nplugin_dir = {}\n\
         end_of_event_timeout = 2\n",
        log.display(),
        plugins.display()
    )
}
