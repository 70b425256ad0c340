//! The program of `--on-alert`, which is started for alerts.
//!
//! The run confines itself to what it reads, and can start nothing. Before that it starts a helper, this program again,
//! which starts only the program that is on its command line and gets the alerts from the run ([`helper`]). What the
//! program inherits is so that of the service, and not the rights of the run: in these no program could do anything
//! useful, since it may not even load its libraries. The run never waits for the helper: an alert that it does not take
//! at once is left out and counted.

pub(crate) mod helper;
mod permitted;
pub(crate) mod program;

use std::io::IoSlice;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use logs::escaped::EscapedJson;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, sendmsg, shutdown, socketpair,
};
use serde::{Deserialize, Serialize};

use crate::alert::{Alert, Kind, ocsf};
use crate::output::info;
use crate::sigma::Level;

/// Most bytes of a message.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Most bytes of a finding: texts of longer ones, which users choose, are cut. As a text of a message it has at most
/// twice as many, and the kernel takes messages of up to 208 KiB (`net.core.wmem_default`).
const MAX_FINDING_BYTES: usize = 64 << 10;

/// An alert for the program.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    id: String,
    level: String,
    /// The Detection Finding of OCSF, as text.
    finding: String,
}

/// Numbers of alerts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// The program was started.
    pub(crate) started: u64,
    /// The program could not be started, failed, or took too long.
    pub(crate) failed: u64,
    /// There were too many alerts at once.
    pub(crate) left_out: u64,
}

/// The helper, as the run sees it.
#[derive(Debug)]
pub(crate) struct OnAlert {
    socket: OwnedFd,
    helper: Child,
    least: Level,
    /// What the helper told last.
    told: Counts,
    /// Alerts that the helper did not take.
    refused: u64,
}

impl OnAlert {
    /// Starts the helper.
    ///
    /// # Errors
    /// The program is none that may be started, or the helper cannot be.
    pub(crate) fn start(program: &Path, least: Level) -> anyhow::Result<Self> {
        permitted::check(program)?;
        let (socket, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .context("cannot create a socket")?;
        let helper = Command::new("/proc/self/exe")
            .arg0("tollgate-detect")
            .arg(helper::COMMAND)
            .arg(program)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // It ends after the run, whatever a terminal sends.
            .process_group(0)
            .spawn()
            .context("cannot start the helper of --on-alert")?;
        let mut own = Self {
            socket,
            helper,
            least,
            told: Counts::default(),
            refused: 0,
        };
        // It sends its first numbers when it is ready.
        match own.read(MsgFlags::empty()) {
            true => Ok(own),
            false => bail!("the helper of --on-alert has ended: see the messages before"),
        }
    }

    /// Passes an alert on, if its level is one of those; not the number of events that followed an earlier one.
    pub(crate) fn send(&mut self, alert: &Alert) {
        if alert.rule.level < self.least || matches!(alert.kind, Kind::Repeated(_)) {
            return;
        }
        let request = Request {
            id: alert.id.clone(),
            level: alert.rule.level.name().to_owned(),
            finding: finding(alert),
        };
        let message = serde_json::to_vec(&request).unwrap_or_default();
        if let Err(errno) = send(&self.socket, &message) {
            if self.refused == 0 {
                let error = match errno {
                    Errno::EAGAIN => "it has too many".to_owned(),
                    errno => errno.to_string(),
                };
                info(format_args!(
                    "the helper of --on-alert does not take an alert: {error}; `tollgate detect status` counts them"
                ));
            }
            self.refused += 1;
        }
    }

    /// Numbers of alerts, as far as the helper has told them.
    pub(crate) fn counts(&mut self) -> Counts {
        while self.read(MsgFlags::MSG_DONTWAIT) {}
        Counts {
            left_out: self.told.left_out + self.refused,
            ..self.told
        }
    }

    /// Waits until the helper has ended the programs, some seconds at most.
    pub(crate) fn end(&mut self) {
        if shutdown(self.socket.as_raw_fd(), Shutdown::Write).is_ok() {
            while self.read(MsgFlags::empty()) {}
        }
        let _ended = self.helper.wait();
    }

    /// Reads numbers; false if there are none.
    fn read(&mut self, flags: MsgFlags) -> bool {
        let mut buffer = [0; 1024];
        let length = recv(self.socket.as_raw_fd(), &mut buffer, flags);
        let message = length.ok().and_then(|length| buffer.get(..length));
        let counts = message.and_then(|message| serde_json::from_slice(message).ok());
        self.told = counts.unwrap_or(self.told);
        counts.is_some()
    }
}

/// The Detection Finding of an alert, as text.
fn finding(alert: &Alert) -> String {
    let written = |alert: &Alert| EscapedJson(&ocsf::finding(alert)).to_string();
    let lengths = [1024, 256, 64, 16].into_iter();
    lengths.fold(written(alert), |text, most| match text.len() {
        0..=MAX_FINDING_BYTES => text,
        _ => written(&alert.clone().shortened(most)),
    })
}

/// Sends a message if the other end takes it at once.
fn send(socket: &OwnedFd, message: &[u8]) -> nix::Result<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let parts = [IoSlice::new(message)];
    sendmsg::<()>(socket.as_raw_fd(), &parts, &[], flags, None).map(drop)
}
