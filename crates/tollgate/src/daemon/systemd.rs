//! What systemd is told of the daemon: `sd_notify(3)`, one datagram each.
//!
//! Nothing is said, and nothing fails, where no service manager asks.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// How long after it was not alive it is looked again: the manager counts from what it has heard last.
const RETRY: Duration = Duration::from_secs(1);

/// The service manager.
#[derive(Debug, Default)]
pub(super) struct ServiceManager {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the daemon is alive.
    every: Option<Duration>,
    due: Option<Instant>,
}

impl ServiceManager {
    /// Who is named in the environment.
    pub(super) fn from_environment() -> Self {
        let named = std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name));
        let to = named.and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // A manager that takes nothing makes nobody wait.
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

    /// The daemon audits.
    pub(super) fn ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={status}"));
    }

    /// It reads its configuration and rules again; [`Self::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// It ends.
    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping");
    }

    /// How long until the manager is to hear that the daemon is alive.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        self.due
            .map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Tells that it is alive, when that is due and so.
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
                // Looking may have taken its time.
                Instant::now() + RETRY.min(every)
            }
        });
    }

    fn notify(&self, state: &str) {
        if let Some((socket, address)) = &self.to {
            // A manager that has gone away needs to know nothing.
            let _gone = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

/// A path, or after an `@` a name that is no path.
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
