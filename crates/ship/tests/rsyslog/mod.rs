//! Debian's rsyslog, as the peer of tests.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::place::{FIRST, wait_until};

/// A syslog daemon that writes what it gets to a file, also over restarts.
pub(crate) struct Rsyslog {
    directory: PathBuf,
    pub(crate) port: u16,
    child: Child,
}

impl Rsyslog {
    /// Starts one. `global` begins its configuration, and `module` are further parameters of `imtcp`.
    pub(crate) fn start(directory: &Path, global: &str, module: &str) -> Self {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let shown = directory.display();
        let configuration = format!(
            "{global}global(workDirectory=\"{shown}\" maxMessageSize=\"128k\" parser.escapeControlCharactersOnReceive=\"off\")\n\
             module(load=\"imtcp\" {module})\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\")\n\
             template(name=\"all\" type=\"string\" string=\"%timestamp:::date-rfc3339% %hostname% %msgid% %structured-data% %msg%\\n\")\n\
             action(type=\"omfile\" file=\"{shown}/received\" template=\"all\")\n"
        );
        fs::write(directory.join("rsyslog.conf"), configuration).unwrap();
        let child = spawn(directory);
        let mut started = Self {
            directory: directory.to_owned(),
            port,
            child,
        };
        started.wait();
        started
    }

    /// Waits until it listens.
    fn wait(&mut self) {
        let directory = self.directory.clone();
        wait_until("rsyslog", || {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "{}",
                fs::read_to_string(directory.join("rsyslog.errors")).unwrap_or_default()
            );
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// Ends it by a signal, and starts another one.
    pub(crate) fn restart(&mut self, signal: Signal) {
        self.signal(signal);
        self.child.wait().unwrap();
        self.child = spawn(&self.directory);
        self.wait();
    }

    /// What it has written.
    pub(crate) fn received(&self) -> String {
        fs::read_to_string(self.directory.join("received")).unwrap_or_default()
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

fn spawn(directory: &Path) -> Child {
    let errors = fs::File::create(directory.join("rsyslog.errors")).unwrap();
    // A pid file would keep the next one out after a kill.
    Command::new("/usr/sbin/rsyslogd")
        .args(["-n", "-i", "NONE", "-f"])
        .arg(directory.join("rsyslog.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .unwrap_or_else(|error| {
            panic!("cannot run rsyslogd ({error}): run `sh scripts/setup.sh tests`")
        })
}

/// Events by their number from [`FIRST`] of which all records came, and how often the first one did.
pub(crate) fn whole_events(received: &str) -> BTreeMap<u32, usize> {
    let mut records: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for line in received.lines() {
        let number = |name: &str| -> Option<u32> {
            let (_, rest) = line.split_once(&format!(" {name}=\""))?;
            rest.split_once('"')?.0.parse().ok()
        };
        if let (Some(serial), Some(n), Some(of)) = (number("serial"), number("n"), number("of")) {
            records.entry(serial - FIRST).or_default().push((n, of));
        }
    }
    let is_whole = |numbers: &Vec<(u32, u32)>| {
        let of = numbers[0].1;
        (1..=of).all(|n| numbers.contains(&(n, of)))
    };
    let whole = records.iter().filter(|(_, numbers)| is_whole(numbers));
    whole
        .map(|(number, numbers)| (*number, numbers.iter().filter(|(n, _)| *n == 1).count()))
        .collect()
}
