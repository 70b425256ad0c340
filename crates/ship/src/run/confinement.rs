//! Landlock: what the program may do after it has opened what it needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use logs::confinement::{Allowed, ConfinementError, directories_of};

use crate::config::Kind;
use crate::output::info;

/// Where the look-up of a host name reads: files that others replace while the program runs. A resolver may ask by TCP,
/// too.
const RESOLVER: [&str; 6] = [
    "/etc",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/usr/lib",
    "/lib",
];
const DNS_PORT: u16 = 53;
/// Where `self/net` tells what the kernels of peers have not acknowledged. A directory below it is another one for Landlock
/// when the kernel has forgotten it.
const PROC: &str = "/proc";

/// Lets this thread and those that it starts read the directories of the log, of certificates, headers and passwords, write the
/// state directory, write and make directories in those of Parquet files, and connect to the ports of destinations, for
/// which it also reads `/proc`, and what looks up their names; nothing else. Returns what the kernel enforces.
///
/// A directory of a destination that is not there is told, and cannot be allowed: that destination fails.
///
/// # Errors
/// As of [`logs::confinement::confine`].
pub(super) fn confine(
    log: &Path,
    state: &Path,
    kinds: &[&Kind],
) -> Result<String, ConfinementError> {
    let mut read = directories_of(log);
    // Certificates are often links.
    let files = kinds.iter().flat_map(|kind| kind.files());
    read.extend(present(files.flat_map(directories_of)));
    let mut connect: Vec<u16> = kinds.iter().flat_map(|kind| kind.ports()).collect();
    if !connect.is_empty() {
        read.push(PathBuf::from(PROC));
        connect.push(DNS_PORT);
    }
    if kinds.iter().any(|kind| kind.has_host_name()) {
        let resolver = RESOLVER.iter().map(PathBuf::from);
        read.extend(resolver.filter(|path| path.is_dir()));
    }
    let directories = kinds.iter().filter_map(|kind| match kind {
        Kind::Parquet(settings) => Some(settings.directory.clone()),
        Kind::JsonOutput
        | Kind::JsonUnix(_)
        | Kind::Syslog(..)
        | Kind::Auditd(..)
        | Kind::Otlp(..)
        | Kind::Kafka(_) => None,
    });
    logs::confinement::confine(&Allowed {
        read,
        write: vec![state.to_owned()],
        make: present(directories),
        connect,
    })
}

/// Those directories that are there; others are told.
fn present(directories: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let directories: BTreeSet<PathBuf> = directories.collect();
    let is_present = |path: &PathBuf| {
        let is_present = path.is_dir();
        if !is_present {
            info(format_args!(
                "`{}` is no directory: the destination that needs it fails; create it, and start the run again",
                path.display()
            ));
        }
        is_present
    };
    directories.into_iter().filter(is_present).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::config::Address;
    use crate::parquet_files::ParquetSettings;
    use crate::transport::TlsSettings;

    /// Applies to the calling thread only, and ends with it.
    #[test]
    fn confined_thread_reads_the_log_and_writes_the_state() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["log", "state", "other"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), "text").unwrap();
        }
        let (log, state, other) = (path("log/file"), path("state"), path("other/file"));
        let confined = thread::spawn(move || {
            let told = confine(&log, &state, &[]).unwrap();
            fs::read(&log).unwrap();
            fs::write(state.join("new"), "text").unwrap();
            fs::rename(state.join("new"), state.join("file")).unwrap();
            if told.ends_with("not available in this kernel") {
                eprintln!("skipped: {told}");
                return;
            }
            fs::read(&other).unwrap_err();
            fs::read("/etc/passwd").unwrap_err();
            fs::write(&log, "text").unwrap_err();
            if told.ends_with("fully enforced") {
                let refused = TcpStream::connect("127.0.0.1:9").unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
            }
        });
        confined.join().unwrap();
    }

    #[test]
    fn confined_thread_makes_directories_only_for_parquet_files() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["log", "state", "out"] {
            fs::create_dir(path(name)).unwrap();
        }
        let kind = Kind::Parquet(ParquetSettings {
            s3: None,
            directory: path("out"),
            rows: 1,
            interval: Duration::from_secs(1),
        });
        let confined = thread::spawn(move || {
            let path = |name: &str| place.path().join(name);
            let told = confine(&path("log/file"), &path("state"), &[&kind]).unwrap();
            fs::create_dir(path("out/date")).unwrap();
            fs::write(path("out/date/new"), "text").unwrap();
            fs::rename(path("out/date/new"), path("out/date/file")).unwrap();
            fs::remove_file(path("out/date/file")).unwrap();
            if told.ends_with("fully enforced") {
                fs::create_dir(path("state/date")).unwrap_err();
                fs::create_dir(path("log/date")).unwrap_err();
            }
        });
        confined.join().unwrap();
    }

    /// The files of the resolver, and certificates that are links, may be replaced meanwhile.
    #[test]
    fn confined_thread_reads_what_was_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["log", "state", "live", "archive", "other"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), "text").unwrap();
        }
        std::os::unix::fs::symlink(path("archive/file"), path("live/ca")).unwrap();
        let to = Address {
            text: "localhost:1".to_owned(),
        };
        let tls = TlsSettings {
            ca: path("live/ca"),
            identity: None,
            server_name: "localhost".to_owned(),
        };
        let kind = Kind::Syslog(to, Some(tls));
        let confined = thread::spawn(move || {
            let path = |name: &str| place.path().join(name);
            let told = confine(&path("log/file"), &path("state"), &[&kind]).unwrap();
            fs::read(path("live/ca")).unwrap();
            fs::read("/proc/self/net/tcp").unwrap();
            ("localhost", 1).to_socket_addrs().unwrap();
            if told.ends_with("fully enforced") {
                fs::read(path("other/file")).unwrap_err();
            }
        });
        confined.join().unwrap();
    }

    #[test]
    fn confined_thread_connects_to_the_ports_of_destinations_only() {
        let place = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let [address, other] = [&listener, &other].map(|listener| listener.local_addr().unwrap());
        let confined = thread::spawn(move || {
            let to = Address {
                text: address.to_string(),
            };
            let kind = Kind::Syslog(to, None);
            let told = confine(&place.path().join("log"), place.path(), &[&kind]).unwrap();
            TcpStream::connect(address).unwrap();
            fs::read("/proc/self/net/tcp").unwrap();
            if told.ends_with("fully enforced") {
                let refused = TcpStream::connect(other).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
                fs::read("/etc/passwd").unwrap_err();
            }
        });
        confined.join().unwrap();
    }
}
