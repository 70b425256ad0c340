//! What the listener may do after it has opened its sockets.

use std::path::Path;

use anyhow::Context as _;
use caps::CapSet;
use logs::confinement::{Allowed, ConfinementError, directories_of};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::config::{Limits, MAX_HOSTS};
use crate::output::info;

/// Files besides connections and logs: sockets, directories, the status, clients of metrics.
const OTHER_FILES: u64 = 64;

/// Allows as many open files as the limits need, or as many as the system lets: what is missing is told.
///
/// # Errors
/// The limit cannot be read or set.
pub(super) fn allow_open_files(limits: &Limits) -> anyhow::Result<()> {
    // Each log is open twice while it is synced.
    let needed = u64::try_from(limits.connections)? + MAX_HOSTS * 2 + OTHER_FILES;
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    if soft < needed {
        let allowed = needed.min(hard);
        setrlimit(Resource::RLIMIT_NOFILE, allowed, hard)
            .context("cannot raise the limit of open files")?;
        if allowed < needed {
            info(format_args!(
                "at most {allowed} files can be open, and {needed} may be needed: raise LimitNOFILE of the service"
            ));
        }
    }
    Ok(())
}

/// Drops all capabilities of this thread and of those that it starts. Ports below 1024 need one, which is not needed
/// further.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn drop_capabilities() -> anyhow::Result<()> {
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).context("cannot drop capabilities")?;
    }
    Ok(())
}

/// Lets this thread and those that it starts read, write and make directories in that of the logs, write the state
/// directory, and read the directories of certificates; nothing else, so no other file, and no connection or socket.
/// Returns what the kernel enforces.
///
/// # Errors
/// As of [`logs::confinement::confine`].
pub(super) fn confine<'a>(
    logs: &Path,
    state: &Path,
    certificates: impl Iterator<Item = &'a Path>,
) -> Result<String, ConfinementError> {
    logs::confinement::confine(&Allowed {
        // Certificates are often links.
        read: certificates.flat_map(directories_of).collect(),
        write: vec![state.to_owned()],
        make: vec![logs.to_owned()],
        connect: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Applies to the calling thread only, and ends with it.
    #[test]
    fn confined_thread_writes_logs_and_state() {
        let place = tempfile::tempdir().unwrap();
        for name in ["logs", "state", "other", "keys"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let confined = thread::spawn(move || {
            let path = |name: &str| place.path().join(name);
            drop_capabilities().unwrap();
            fs::write(path("keys/key"), "text").unwrap();
            let key = path("keys/key");
            let told = confine(&path("logs"), &path("state"), [&*key].into_iter()).unwrap();
            fs::read(&key).unwrap();
            fs::create_dir(path("logs/web1")).unwrap();
            fs::write(path("logs/web1/audit.log"), "line\n").unwrap();
            fs::rename(path("logs/web1/audit.log"), path("logs/web1/audit.log.1")).unwrap();
            fs::write(path("state/status"), "text").unwrap();
            if told.ends_with("fully enforced") {
                fs::write(path("other/file"), "text").unwrap_err();
                fs::write(&key, "text").unwrap_err();
                fs::create_dir(path("state/web1")).unwrap_err();
                fs::read("/etc/passwd").unwrap_err();
                std::net::TcpStream::connect(address).unwrap_err();
                TcpListener::bind("127.0.0.1:0").unwrap_err();
            }
            assert!(caps::read(None, CapSet::Permitted).unwrap().is_empty());
        });
        confined.join().unwrap();
    }
}
