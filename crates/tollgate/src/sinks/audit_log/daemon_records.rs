//! Records of the daemon itself: start, end, signals and losses.
//!
//! Their serials are separate from those of the kernel and of events, as auditd's are: they count from a number below
//! 10,000 that differs at each start.

use audit::event::Timestamp;
use bstr::ByteSlice as _;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{getpid, getuid};

/// Identity of the sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalSender {
    auid: u32,
    uid: u32,
    ses: u32,
    pid: u32,
}

/// Subject of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DaemonRecord<'a> {
    /// The daemon has started with this log format.
    Start(&'static str),
    /// The daemon ends.
    End(SignalSender),
    /// The configuration was reloaded; whether it is active.
    Configured(SignalSender, bool),
    /// The log was rotated.
    Rotated(SignalSender),
    /// Logging was resumed.
    Resumed(SignalSender),
    /// Events could not be written; the last reason.
    Lost(u64, &'a str),
    /// Events are missing in the JSON log; the last reason.
    LostToJson(u64, &'a str),
    /// A plugin lost events, for this reason.
    LostToPlugin(&'a str, u64, &'a str),
}

impl SignalSender {
    /// Reads the identity of a process; unavailable fields are unset.
    pub(crate) fn of(pid: u32, uid: u32) -> Self {
        let number = |name: &str| {
            let text = std::fs::read(format!("/proc/{pid}/{name}")).ok()?;
            text.trim().to_str().ok()?.parse().ok()
        };
        Self {
            auid: number("loginuid").unwrap_or(u32::MAX),
            uid,
            ses: number("sessionid").unwrap_or(u32::MAX),
            pid,
        }
    }

    /// The daemon itself.
    pub(crate) fn this() -> Self {
        let pid = getpid().as_raw().unsigned_abs();
        Self::of(pid, getuid().as_raw())
    }
}

/// Serials of the records.
#[derive(Debug)]
pub(crate) struct DaemonRecords {
    serial: u32,
}

impl DaemonRecords {
    /// Upper limit of the first serial.
    const START_BELOW: u32 = 10_000;

    /// Starts at a serial that differs at each start.
    pub(crate) fn new() -> Self {
        let nanos = clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_nsec());
        let nanos = u32::try_from(nanos).unwrap_or_default();
        Self {
            serial: (nanos / 1000) % Self::START_BELOW,
        }
    }

    /// Formats a record as a line without its newline.
    ///
    /// # Source
    /// `main`, `netlink_handler` and `audit_format_signal_info` of `auditd`, audit-userspace 3.0.9.
    pub(crate) fn record(&mut self, about: &DaemonRecord<'_>) -> Vec<u8> {
        let time = now();
        let serial = self.serial;
        self.serial = self.serial.wrapping_add(1);
        let (kind, text) = match about {
            DaemonRecord::Start(format) => {
                let SignalSender {
                    auid,
                    uid,
                    ses,
                    pid,
                } = SignalSender::this();
                let version = env!("CARGO_PKG_VERSION");
                let kernel = nix::sys::utsname::uname().map_or_else(
                    |_| "?".to_owned(),
                    |name| name.release().to_string_lossy().into_owned(),
                );
                let text = format!(
                    "op=start ver={version} format={format} kernel={kernel:.56} auid={auid} pid={pid} uid={uid} ses={ses} res=success"
                );
                ("DAEMON_START", text)
            }
            DaemonRecord::End(sender) => ("DAEMON_END", with_sender("terminate", *sender)),
            DaemonRecord::Rotated(sender) => ("DAEMON_ROTATE", with_sender("rotate-logs", *sender)),
            DaemonRecord::Resumed(sender) => {
                ("DAEMON_RESUME", with_sender("resume-logging", *sender))
            }
            DaemonRecord::Configured(SignalSender { auid, pid, .. }, true) => (
                "DAEMON_CONFIG",
                format!("op=reconfigure state=changed auid={auid} pid={pid} subj=? res=success"),
            ),
            DaemonRecord::Configured(SignalSender { auid, pid, .. }, false) => (
                "DAEMON_CONFIG",
                format!("op=reconfigure state=no-change auid={auid} pid={pid} subj=? res=failed"),
            ),
            DaemonRecord::Lost(events, reason) => {
                let reason = quoted(&without_blanks(reason));
                let text = format!("op=lost-events lost={events} reason={reason} res=failed");
                ("DAEMON_ERR", text)
            }
            DaemonRecord::LostToJson(events, reason) => {
                let reason = quoted(&without_blanks(reason));
                let text = format!("op=lost-json-events lost={events} reason={reason} res=failed");
                ("DAEMON_ERR", text)
            }
            DaemonRecord::LostToPlugin(plugin, events, reason) => {
                let (plugin, reason) = (quoted(plugin), quoted(reason));
                let text = format!(
                    "op=lost-plugin-events plugin={plugin} lost={events} reason={reason} res=failed"
                );
                ("DAEMON_ERR", text)
            }
        };
        let Timestamp { sec, milli } = time;
        format!("type={kind} msg=audit({sec}.{milli:03}:{serial}): {text}").into_bytes()
    }
}

/// Replaces blanks: `ausearch -i` shows a string with blanks in hexadecimal.
fn without_blanks(text: &str) -> String {
    text.replace(' ', "-")
}

/// Quotes a string as records quote untrusted ones.
fn quoted(text: &str) -> String {
    let mut quoted = Vec::new();
    audit::record::quote::untrusted(text.as_bytes(), &mut quoted);
    quoted.to_str_lossy().into_owned()
}

fn with_sender(op: &str, sender: SignalSender) -> String {
    let SignalSender {
        auid,
        uid,
        ses,
        pid,
    } = sender;
    format!("op={op} auid={auid} uid={uid} ses={ses} pid={pid} res=success")
}

/// The clock of record stamps.
fn now() -> Timestamp {
    let (sec, nanos) = clock_gettime(ClockId::CLOCK_REALTIME_COARSE)
        .map_or((0, 0), |time| (time.tv_sec(), time.tv_nsec()));
    Timestamp {
        sec: u64::try_from(sec).unwrap_or_default(),
        milli: u16::try_from(nanos / 1_000_000).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_records_have_the_text_of_auditd() {
        let mut daemon_records = DaemonRecords { serial: 7234 };
        let sender = SignalSender {
            auid: 0,
            uid: 0,
            ses: u32::MAX,
            pid: 21820,
        };
        let mut body = |about: DaemonRecord<'_>| {
            let line = daemon_records.record(&about);
            let decoded = audit::record::decode::line(&line).unwrap();
            let kind = decoded.kind.to_string();
            let text = line.split_str("): ").nth(1).unwrap();
            (kind, text.to_str().unwrap().to_owned())
        };
        for (about, kind, expected) in [
            (
                DaemonRecord::Rotated(sender),
                "DAEMON_ROTATE",
                "op=rotate-logs auid=0 uid=0 ses=4294967295 pid=21820 res=success",
            ),
            (
                DaemonRecord::Resumed(sender),
                "DAEMON_RESUME",
                "op=resume-logging auid=0 uid=0 ses=4294967295 pid=21820 res=success",
            ),
            (
                DaemonRecord::Configured(sender, true),
                "DAEMON_CONFIG",
                "op=reconfigure state=changed auid=0 pid=21820 subj=? res=success",
            ),
            (
                DaemonRecord::End(sender),
                "DAEMON_END",
                "op=terminate auid=0 uid=0 ses=4294967295 pid=21820 res=success",
            ),
            (
                DaemonRecord::Lost(3, "no space"),
                "DAEMON_ERR",
                "op=lost-events lost=3 reason=\"no-space\" res=failed",
            ),
            (
                DaemonRecord::LostToJson(4, "no space"),
                "DAEMON_ERR",
                "op=lost-json-events lost=4 reason=\"no-space\" res=failed",
            ),
            (
                DaemonRecord::LostToPlugin("a b.conf", 5, "queue-full"),
                "DAEMON_ERR",
                "op=lost-plugin-events plugin=6120622E636F6E66 lost=5 reason=\"queue-full\" res=failed",
            ),
        ] {
            assert_eq!(body(about), (kind.to_owned(), expected.to_owned()));
        }
        let (_, start) = body(DaemonRecord::Start("enriched"));
        assert!(start.starts_with("op=start ver="), "{start}");
        assert!(start.contains(" format=enriched kernel="), "{start}");
        assert_eq!(daemon_records.serial, 7242);
    }
}
