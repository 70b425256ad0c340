//! Notifications to systemd: `sd_notify(3)`, one datagram each.
//!
//! Without a service manager nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Delay of the next check if the daemon was not alive: the manager counts from the last message.
const RETRY: Duration = Duration::from_secs(1);

/// The service manager.
#[derive(Debug, Default)]
pub(super) struct ServiceManager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Interval of watchdog messages.
    every: Option<Duration>,
    due: Option<Instant>,
}

impl ServiceManager {
    /// Reads the service manager's socket and interval from the environment.
    pub(super) fn from_environment() -> Self {
        let named = std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name));
        let to = named.and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // A manager that does not read must not block the daemon.
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        });
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_for_us =
            number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let every = number("WATCHDOG_USEC")
            .filter(|&usec| usec != 0 && is_for_us)
            .map(|usec| Duration::from_micros(usec) / 2);
        Self {
            due: to.as_ref().and(every).map(|_| Instant::now()),
            to,
            every,
        }
    }

    /// Reports that the daemon is ready.
    pub(super) fn ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the daemon reloads; [`Self::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// Reports that the daemon stops.
    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping");
    }

    /// Time until the next watchdog message.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        self.due
            .map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Sends a watchdog message if it is due and the daemon is alive.
    pub(super) fn poll(&mut self, is_alive: impl FnOnce() -> bool) {
        let now = Instant::now();
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let is_alive = is_alive();
        if is_alive {
            self.notify("WATCHDOG=1");
        }
        self.due = self.every.map(|every| {
            if is_alive {
                now + every
            } else {
                // The check may take time.
                Instant::now() + RETRY.min(every)
            }
        });
    }

    fn notify(&self, state: &str) {
        if let Some((socket, address)) = &self.to {
            // A manager that has gone away needs no message.
            let _gone = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

/// A path, or an abstract name after `@`.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sent_to_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let heard = || {
            let mut buffer = [0; 256];
            let length = socket.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let mut manager = ServiceManager {
            to: Some((
                UnixDatagram::unbound().unwrap(),
                address(path.as_os_str()).unwrap(),
            )),
            every: Some(Duration::from_secs(60)),
            due: Some(Instant::now()),
        };
        manager.ready("audits");
        assert_eq!(heard(), "READY=1\nSTATUS=audits");
        manager.reloading();
        assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        manager.poll(|| true);
        assert_eq!(heard(), "WATCHDOG=1");
        assert!(manager.next_poll().unwrap() > Duration::from_secs(30));
        manager.poll(|| panic!("it is not due"));
        manager.due = Some(Instant::now());
        manager.poll(|| false);
        assert!(
            manager.next_poll().unwrap() <= RETRY,
            "it may live again by then"
        );
        manager.stopping();
        assert_eq!(heard(), "STOPPING=1\nSTATUS=stopping");
    }

    #[test]
    fn nothing_is_sent_without_a_socket() {
        let mut manager = ServiceManager::default();
        manager.ready("audits");
        manager.poll(|| panic!("nobody wants to know"));
        assert_eq!(manager.next_poll(), None);
        assert!(address(OsStr::new("relative")).is_none());
        assert!(address(OsStr::new("@abstract")).is_some());
    }
}
