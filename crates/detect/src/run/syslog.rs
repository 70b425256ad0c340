//! Alerts for the syslog daemon of this machine.
//!
//! A datagram has an alert in the form of RFC 5424. Nothing waits for a socket that is absent or full: some datagrams are
//! kept and tried again with the next alert, and each second. Those above that are lost and counted. The alert is printed
//! in any case.
//!
//! # Source
//! RFC 5424, section 6.

use std::collections::VecDeque;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use crate::alert::{Alert, text};
use crate::output::info;
use crate::sigma::Level;

/// Most bytes of a datagram: what rsyslog and syslog-ng read by default.
const MAX_BYTES: usize = 8192;
/// Most datagrams that are kept. The kernel keeps ten for a socket that nobody reads (`net.unix.max_dgram_qlen`).
const MAX_KEPT: usize = 256;
/// How often a connection is tried.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is told that alerts are not sent: a daemon that is slow takes some again and again.
const TELL_INTERVAL: Duration = Duration::from_secs(60);
/// Facility `authpriv`: command lines may have secrets.
const FACILITY: u8 = 10;

/// The socket of a syslog daemon.
#[derive(Debug)]
pub(super) struct Syslog {
    path: PathBuf,
    /// Least level that is sent.
    least: Level,
    socket: Option<UnixDatagram>,
    tried: Option<Instant>,
    /// Datagrams that are not sent yet.
    kept: VecDeque<String>,
    /// Number of lost alerts when it was told that some are not sent; `None` after it was told that they are.
    lost_before: Option<u64>,
    /// When it was told last that alerts are not sent.
    told: Option<Instant>,
    counts: Counts,
}

/// Numbers of alerts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Syslog {
    /// A socket, which need not exist yet.
    pub(super) fn new(path: &Path, least: Level) -> Self {
        Self {
            path: path.to_owned(),
            least,
            socket: None,
            tried: None,
            kept: VecDeque::new(),
            lost_before: None,
            told: None,
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Sends an alert, with a text of one line, if its level is sent.
    pub(super) fn send(&mut self, alert: &Alert, line: &str) {
        if alert.rule.level < self.least {
            return;
        }
        self.kept.push_back(datagram(alert, line));
        self.flush();
        if self.kept.len() > MAX_KEPT {
            self.kept.pop_front();
            self.counts.lost += 1;
        }
    }

    /// Sends what is kept, as far as the socket takes it.
    pub(super) fn flush(&mut self) {
        while let Some(datagram) = self.kept.front() {
            let sent = self.try_send(&datagram.clone());
            if let Err(error) = sent {
                self.tell(&error);
                return;
            }
            self.kept.pop_front();
            self.counts.sent += 1;
        }
        if let Some(lost_before) = self.lost_before.take() {
            let lost = self.counts.lost - lost_before;
            info(format_args!("syslog takes alerts again; {lost} are lost"));
        }
    }

    /// Sends what is kept for the last time; the rest is lost.
    pub(super) fn end(&mut self) {
        self.flush();
        self.counts.lost += u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        self.kept.clear();
    }

    /// Tells that alerts are not sent, unless that was told shortly before.
    fn tell(&mut self, error: &std::io::Error) {
        let is_known = self.told.is_some_and(|told| told.elapsed() < TELL_INTERVAL);
        if self.lost_before.is_none() && !is_known {
            let path = self.path.display();
            info(format_args!(
                "cannot send alerts to syslog socket `{path}`, which is tried again: {error}"
            ));
            self.told = Some(Instant::now());
            self.lost_before = Some(self.counts.lost);
        }
    }

    /// Sends a datagram, and once more if the daemon has started anew, which has another socket.
    fn try_send(&mut self, datagram: &str) -> std::io::Result<()> {
        let had_socket = self.socket.is_some();
        let sent = self.try_send_once(datagram);
        let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= RETRY);
        match had_socket && self.socket.is_none() && is_due {
            true => self.try_send_once(datagram),
            false => sent,
        }
    }

    fn try_send_once(&mut self, datagram: &str) -> std::io::Result<()> {
        if self.socket.is_none() {
            if self.tried.is_some_and(|tried| tried.elapsed() < RETRY) {
                return Err(std::io::ErrorKind::NotConnected.into());
            }
            self.tried = Some(Instant::now());
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect(&self.path)?;
            self.socket = Some(socket);
        }
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let sent = socket.send(datagram.as_bytes());
        if sent
            .as_ref()
            .is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
        {
            self.socket = None;
        }
        sent.map(drop)
    }
}

/// An alert as RFC 5424 writes it.
fn datagram(alert: &Alert, line: &str) -> String {
    let severity = match alert.rule.level {
        Level::Informational => 6,
        Level::Low => 5,
        Level::Medium => 4,
        Level::High => 3,
        Level::Critical => 2,
    };
    let is_host = |node: &&str| {
        !node.is_empty() && node.len() <= 255 && node.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let host = alert.node.as_deref().filter(is_host).unwrap_or("-");
    let head = format!(
        "<{}>1 {} {host} tollgate-detect {} alert - ",
        FACILITY * 8 + severity,
        alert.time_text(),
        process::id()
    );
    let room = MAX_BYTES - head.len();
    // JSON that is cut is none.
    match line.len() <= room {
        true => head + line,
        false => {
            let line = text::one_line(alert);
            head + line
                .get(..line.floor_char_boundary(room))
                .unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use audit::event::Timestamp;

    use super::*;
    use crate::alert::{Kind, Subject};
    use crate::sigma::Rule;

    fn alert(level: Level, node: Option<&str>) -> Alert {
        Alert {
            correlated: None,
            id: "r:1790000000.500:7".to_owned(),
            kind: Kind::New,
            time: Timestamp {
                sec: 1_790_000_000,
                milli: 500,
            },
            serial: 7,
            node: node.map(str::to_owned),
            rule: Rule {
                id: "r".to_owned(),
                name: None,
                title: "Rule".to_owned(),
                author: None,
                level,
                tags: Vec::new(),
                source: None,
                absent_fields: Vec::new(),
            },
            subject: Subject::default(),
            ancestors: Vec::new(),
            fields: vec![("Image".to_owned(), "/x\u{1b}\n".to_owned())],
        }
    }

    #[test]
    fn alert_is_a_line_of_rfc_5424() {
        let high = alert(Level::High, Some("web-1"));
        let line = text::one_line(&high);
        assert_eq!(
            datagram(&high, &line),
            format!(
                "<83>1 2026-09-21T14:13:20.500Z web-1 tollgate-detect {} alert - Rule; id: r:1790000000.500:7; \
                 who: login unset, user unknown; because: Image=/x\\u{{1b}}\\n; node: web-1; records: ausearch -a 7",
                process::id()
            )
        );
        let low = datagram(&alert(Level::Low, Some("a b")), "x");
        assert!(low.starts_with("<85>1 2026-09-21T14:13:20.500Z - tollgate-detect "));
        let cut = datagram(&high, &"x".repeat(10_000));
        assert!(cut.ends_with("ausearch -a 7"), "{cut}");
        let mut long = high;
        long.fields = (0..100)
            .map(|number| (format!("f{number}"), "\u{fc}".repeat(200)))
            .collect();
        assert!(datagram(&long, &text::one_line(&long)).len() <= MAX_BYTES);
    }

    /// Texts behind the head of datagrams that are there.
    fn received(daemon: &UnixDatagram) -> Vec<String> {
        daemon.set_nonblocking(true).unwrap();
        let mut buffer = [0; MAX_BYTES];
        let mut all = Vec::new();
        while let Ok(length) = daemon.recv(&mut buffer) {
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            all.push(text.split_once(" alert - ").unwrap().1.to_owned());
        }
        all
    }

    /// Detection must not wait for a daemon that is slow or away.
    #[test]
    fn alerts_wait_for_absent_and_full_sockets_and_above_some_are_lost() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut syslog = Syslog::new(&path, Level::High);
        let high = alert(Level::High, None);
        syslog.send(&alert(Level::Medium, None), "x");
        syslog.send(&high, "one");
        assert_eq!(syslog.counts(), Counts::default());
        let daemon = UnixDatagram::bind(&path).unwrap();
        syslog.tried = None;
        syslog.send(&high, "two");
        assert_eq!(syslog.counts(), Counts { sent: 2, lost: 0 });
        assert_eq!(received(&daemon), ["one", "two"]);
        // No one reads.
        let begun = Instant::now();
        let mut total = 2;
        while syslog.counts().lost < 100 {
            syslog.send(&high, &total.to_string());
            total += 1;
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
        assert_eq!(syslog.kept.len(), MAX_KEPT);
        let mut texts = Vec::new();
        while !syslog.kept.is_empty() {
            texts.extend(received(&daemon));
            syslog.flush();
        }
        texts.extend(received(&daemon));
        assert_eq!(
            syslog.counts(),
            Counts {
                sent: total - 100,
                lost: 100
            }
        );
        // In order, without those that waited for the longest time.
        let numbers: Vec<u64> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert!(numbers.is_sorted() && numbers.last() == Some(&(total - 1)));
    }

    #[test]
    fn daemon_that_starts_anew_loses_no_alert() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut syslog = Syslog::new(&path, Level::High);
        let high = alert(Level::High, None);
        syslog.send(&high, "one");
        drop(daemon);
        fs::remove_file(&path).unwrap();
        let daemon = UnixDatagram::bind(&path).unwrap();
        syslog.tried = None;
        syslog.send(&high, "new");
        assert_eq!(received(&daemon), ["new"]);
        // It is away, and is not tried with each alert.
        drop(daemon);
        syslog.send(&high, "two");
        fs::remove_file(&path).unwrap();
        let daemon = UnixDatagram::bind(&path).unwrap();
        syslog.send(&high, "three");
        assert_eq!(received(&daemon), [""; 0]);
        syslog.tried = None;
        syslog.flush();
        assert_eq!(received(&daemon), ["two", "three"]);
        assert_eq!(syslog.counts(), Counts { sent: 4, lost: 0 });
        drop(daemon);
        syslog.send(&high, "four");
        syslog.end();
        assert_eq!(syslog.counts(), Counts { sent: 4, lost: 1 });
    }
}
