//! A log, a state directory and runs of the program, for tests.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// First serial of tollgate.
pub(crate) const FIRST: u32 = 0x8000_0001;
/// Longest wait for a condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Directories of a test.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new(config: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for name in ["log", "state"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        File::create(place.log()).unwrap();
        place.configure(config);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path("log/audit.log")
    }

    /// Writes the configuration, with the log and the host `h`. `DIR` stands for the directory.
    pub(crate) fn configure(&self, config: &str) {
        let head = format!("log = {:?}\nhost = \"h\"\n", self.log());
        let text = head + config;
        let directory = self.0.path().to_str().unwrap();
        fs::write(self.path("ship.toml"), text.replace("DIR", directory)).unwrap();
    }

    pub(crate) fn append(&self, text: &str) {
        let mut log = OpenOptions::new().append(true).open(self.log()).unwrap();
        log.write_all(text.as_bytes()).unwrap();
    }

    /// Appends events with serials from [`FIRST`] + `from` on.
    pub(crate) fn append_events(&self, from: u32, count: u32) {
        let text: String = (from..from + count)
            .map(|number| event(FIRST + number))
            .collect();
        self.append(&text);
    }

    /// Renames the log and keeps `keep` old ones.
    pub(crate) fn rotate(&self, keep: u32) {
        let old = |number: u32| self.path(&format!("log/audit.log.{number}"));
        for number in (1..=keep).rev() {
            if old(number).exists() {
                match number == keep {
                    true => fs::remove_file(old(number)).unwrap(),
                    false => fs::rename(old(number), old(number + 1)).unwrap(),
                }
            }
        }
        match keep {
            0 => fs::remove_file(self.log()).unwrap(),
            _ => fs::rename(self.log(), old(1)).unwrap(),
        }
        File::create_new(self.log()).unwrap();
    }

    pub(crate) fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-ship"));
        command.current_dir(self.0.path()).args([
            "run",
            "--config",
            "ship.toml",
            "--state",
            "state",
        ]);
        command.args(options).stdin(Stdio::null());
        command
    }

    /// Runs until the whole log was sent.
    pub(crate) fn once(&self) -> Output {
        self.command(&["--once"]).output().unwrap()
    }

    /// Starts a run whose output goes to files.
    pub(crate) fn start(&self) -> Run {
        let file = |name: &str| {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(self.path(name))
                .unwrap()
        };
        let mut command = self.command(&[]);
        Run(command
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap())
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The first error about a destination that runs have told. A line that is being written is none.
    pub(crate) fn error(&self, destination: &str) -> Option<String> {
        let errors = self.text("stderr");
        let mut whole = errors
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let name = format!(" {destination}: ");
        whole.find(|line| line.contains(&name)).map(str::to_owned)
    }

    /// Waits until the only destination of the run was sent so many events on its connection.
    #[track_caller]
    pub(crate) fn wait_sent(&self, count: u32) {
        wait_until("the connection to be up to date", || {
            let output = self.status(&["--json"]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            let destination = &found["destinations"][0];
            let numbers = [&destination["counts"]["sent"], &destination["unconfirmed"]];
            let sent: u64 = numbers.iter().filter_map(|number| number.as_u64()).sum();
            destination["state"] == "connected" && sent == u64::from(count)
        });
    }

    /// Number of events that the only destination has confirmed, after a run that has ended. None is left in the log.
    pub(crate) fn confirmed(&self) -> u32 {
        let output = self.status(&["--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let destination = &found["destinations"][0];
        assert_eq!(destination["behind_bytes"], 0, "{found}");
        u32::try_from(destination["counts"]["sent"].as_u64().unwrap()).unwrap()
    }

    pub(crate) fn status(&self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-ship"));
        command
            .current_dir(self.0.path())
            .args(["status", "--state", "state"]);
        command.args(options).output().unwrap()
    }
}

/// A run, which is killed at the end.
pub(crate) struct Run(pub(crate) Child);

impl Run {
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends a signal and returns whether the run succeeded.
    pub(crate) fn end(mut self) -> bool {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// An event now, as tollgate writes it.
pub(crate) fn event(serial: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let stamp = format!(
        "msg=audit({}.{:03}:{serial}): ",
        now.as_secs(),
        now.subsec_millis()
    );
    let key = match serial % 10 {
        0 => "rare",
        _ => "often",
    };
    format!(
        "type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 ppid=1 pid={serial} auid=1000 uid=0 gid=0 \
         euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 comm=\"id\" exe=\"/usr/bin/id\" subj=unconfined \
         key=\"{key}\"\n\
         type=EXECVE {stamp}argc=1 a0=\"id\"\ntype=CWD {stamp}cwd=\"/root\"\n\
         type=PATH {stamp}item=0 name=\"/usr/bin/id\" inode=1 dev=fe:00 mode=0100755 ouid=0 ogid=0 rdev=00:00 \
         nametype=NORMAL cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n\
         type=PROCTITLE {stamp}proctitle=\"id\"\n"
    )
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// How often each event came, by its number from [`FIRST`], and the gaps, of JSON lines. The last line may be cut.
pub(crate) fn received(lines: &str) -> (BTreeMap<u32, u32>, Vec<Value>) {
    let (mut events, mut gaps) = (BTreeMap::new(), Vec::new());
    for line in lines.split_inclusive('\n') {
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            assert!(!line.ends_with('\n'), "{line}");
            continue;
        };
        match value["kind"].as_str() {
            Some("event") => {
                let serial = u32::try_from(value["serial"].as_u64().unwrap()).unwrap();
                *events.entry(serial - FIRST).or_default() += 1;
            }
            Some("gap") => gaps.push(value),
            _ => assert_eq!(value["kind"], "heartbeat"),
        }
    }
    (events, gaps)
}

/// Whether all events came.
pub(crate) fn has_all(lines: &str, count: u32) -> bool {
    received(lines).0.into_keys().eq(0..count)
}
