//! Landlock: what the program may do after it has opened what it needs.

use std::path::Path;

use anyhow::Context as _;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};

use crate::config::Kind;

/// What the look-up of a host name reads. A resolver may ask by TCP, too.
const RESOLVER: [&str; 9] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/usr/lib",
    "/lib",
];
const DNS_PORT: u16 = 53;
/// What the kernels of peers have not acknowledged.
const CONNECTIONS: &str = "/proc/self/net";

/// Newest ABI whose rights are handled; rights of later ones are not restricted.
const LANDLOCK_ABI: ABI = ABI::V7;

/// Lets this thread and those that it starts read the directories of the log and of certificates, write the state
/// directory, and connect to the ports of destinations, for which it also reads what looks up their names; nothing else:
/// no other file, no other TCP, no signals to other processes. Returns what the kernel enforces.
///
/// # Errors
/// The rules cannot be made. A kernel without Landlock is no error.
pub(super) fn confine(log: &Path, state: &Path, kinds: &[&Kind]) -> anyhow::Result<String> {
    let read = AccessFs::from_read(LANDLOCK_ABI) & !AccessFs::Execute;
    let write = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    // A link leads to the log of another directory.
    let resolved = log.canonicalize().unwrap_or_else(|_| log.to_owned());
    let mut directories = vec![
        (log.parent(), read),
        (resolved.parent(), read),
        (Some(state), read | write),
    ];
    for kind in kinds {
        if let Kind::Syslog(_, Some(tls)) = kind {
            // A file that replaces one is in the same directory.
            let identity = tls.identity.iter().flat_map(|(one, other)| [one, other]);
            directories.extend(identity.chain([&tls.ca]).map(|file| (file.parent(), read)));
        }
    }
    let ports: Vec<u16> = kinds.iter().filter_map(|kind| kind.port()).collect();
    if !ports.is_empty() {
        let exists = |path: &&str| Path::new(path).exists();
        let paths = RESOLVER.iter().chain([&CONNECTIONS]).copied();
        directories.extend(
            paths
                .filter(exists)
                .map(|path| (Some(Path::new(path)), read)),
        );
    }
    let failed = "cannot restrict this program with Landlock";
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))
        .context(failed)?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))
        .context(failed)?
        .scope(Scope::from_all(LANDLOCK_ABI))
        .context(failed)?
        .create()
        .context(failed)?;
    for (directory, access) in directories {
        let path = match directory {
            Some(path) if !path.as_os_str().is_empty() => path,
            _ => Path::new("."),
        };
        // A file has no directory to list.
        let access = match path.is_dir() {
            true => access,
            false => AccessFs::ReadFile.into(),
        };
        let directory = PathFd::new(path)
            .with_context(|| format!("cannot open directory `{}`", path.display()))?;
        ruleset = ruleset
            .add_rule(PathBeneath::new(directory, access))
            .context(failed)?;
    }
    if !ports.is_empty() {
        for port in ports.into_iter().chain([DNS_PORT]) {
            ruleset = ruleset
                .add_rule(NetPort::new(port, AccessNet::ConnectTcp))
                .context(failed)?;
        }
    }
    let status = ruleset.restrict_self().context(failed)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "Landlock: fully enforced".to_owned(),
        RulesetStatus::PartiallyEnforced => {
            "Landlock: partially enforced by this kernel".to_owned()
        }
        RulesetStatus::NotEnforced => "Landlock: not available in this kernel".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
    use std::thread;

    use super::*;
    use crate::config::Address;

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
    fn confined_thread_connects_to_the_ports_of_destinations_only() {
        let place = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let [address, other] = [&listener, &other].map(|listener| listener.local_addr().unwrap());
        let confined = thread::spawn(move || {
            let to = Address {
                text: address.to_string(),
                port: address.port(),
            };
            let kind = Kind::Syslog(to, None);
            let told = confine(&place.path().join("log"), place.path(), &[&kind]).unwrap();
            TcpStream::connect(address).unwrap();
            fs::read("/proc/self/net/tcp").unwrap();
            ("localhost", 1).to_socket_addrs().unwrap();
            if told.ends_with("fully enforced") {
                let refused = TcpStream::connect(other).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
                fs::read("/etc/passwd").unwrap_err();
            }
        });
        confined.join().unwrap();
    }
}
