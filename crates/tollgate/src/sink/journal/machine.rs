//! What an action does to the machine: says, mails, runs, and in the last resort takes it down.
//!
//! Behind a trait, so that the tests of everything that leads here take nothing down.

use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bstr::{BStr, ByteSlice as _};

use crate::cli::report::say;
use crate::host::SENDMAIL;

/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
const INIT: &str = "/sbin/init";

/// How urgent a message to syslog is.
///
/// # Source
/// `syslog(3)`: facility daemon with the severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// `LOG_ALERT`.
    Alert,
    /// `LOG_NOTICE`.
    Notice,
}

/// Where the machine is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runlevel {
    /// Single user mode.
    Single,
    /// Off.
    Halt,
}

/// What can be done to a machine. Nothing here waits for anybody.
pub(crate) trait Machine: Send {
    /// Tells syslog, and whoever reads what the daemon says.
    fn tell(&mut self, urgency: Urgency, text: &str);
    /// Sends a mail.
    fn mail(&mut self, to: &BStr, subject: &str, text: &str);
    /// Runs a program without arguments; whether it has started.
    fn run(&mut self, program: &BStr) -> bool;
    /// Whether a program that was run has not been seen to end.
    fn waits(&self) -> bool;
    /// Whether a program that was run has ended since this was last asked.
    fn ended(&mut self) -> bool;
    /// Sends the machine there.
    fn go(&mut self, to: Runlevel);
}

/// The machine that the daemon runs on.
#[derive(Debug, Default)]
pub(crate) struct ThisMachine {
    children: Vec<Child>,
}

impl Machine for ThisMachine {
    fn tell(&mut self, urgency: Urgency, text: &str) {
        say(text);
        let priority = match urgency {
            Urgency::Alert => 25,
            Urgency::Notice => 29,
        };
        // A machine without syslog has heard it above; one whose syslog is stuck makes nobody wait.
        let _unheard = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            let pid = std::process::id();
            socket.send_to(
                format!("<{priority}>tollgate[{pid}]: {text}").as_bytes(),
                SYSLOG,
            )
        });
    }

    fn mail(&mut self, to: &BStr, subject: &str, text: &str) {
        let mut command = Command::new(SENDMAIL);
        command
            .arg("-t")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match engine::unblock_signals(&mut command).spawn() {
            Ok(mut child) => {
                // It is far shorter than what a pipe holds.
                let letter = format!("To: {to}\nFrom: root\nSubject: {subject}\n\n{text}\n");
                if let Some(mut stdin) = child.stdin.take() {
                    let _gone = stdin.write_all(letter.as_bytes());
                }
                self.children.push(child);
            }
            Err(error) => self.tell(
                Urgency::Alert,
                &format!("cannot run `{SENDMAIL}` to write to {to}: {error}"),
            ),
        }
    }

    fn run(&mut self, program: &BStr) -> bool {
        let child = program
            .to_path()
            .map_err(std::io::Error::other)
            .and_then(|path| {
                let mut command = Command::new(path);
                command.current_dir("/").stdin(Stdio::null());
                engine::unblock_signals(&mut command).spawn()
            });
        match child {
            Ok(child) => {
                self.children.push(child);
                true
            }
            Err(error) => {
                self.tell(Urgency::Alert, &format!("cannot run `{program}`: {error}"));
                false
            }
        }
    }

    fn waits(&self) -> bool {
        !self.children.is_empty()
    }

    fn ended(&mut self) -> bool {
        let before = self.children.len();
        self.children
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.children.len() < before
    }

    fn go(&mut self, to: Runlevel) {
        let (level, name) = match to {
            Runlevel::Single => ("1", "single user mode"),
            Runlevel::Halt => ("0", "off"),
        };
        self.tell(Urgency::Alert, &format!("the machine goes to {name}"));
        if !Path::new(INIT).exists() {
            return self.tell(Urgency::Alert, &format!("there is no `{INIT}` to ask"));
        }
        match Command::new(INIT).arg(level).stdin(Stdio::null()).spawn() {
            Ok(child) => self.children.push(child),
            Err(error) => self.tell(Urgency::Alert, &format!("cannot run `{INIT}`: {error}")),
        }
    }
}
