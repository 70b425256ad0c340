//! Landlock: what the program may do after it has opened what it needs.

use std::path::Path;

use logs::confinement::{Allowed, ConfinementError, directories_of, directory_of};

/// Lets this thread and those that it starts read the directories of the log and of `silences`, and `/proc`, and write
/// the state directory; nothing else. Returns what the kernel enforces.
///
/// # Errors
/// As of [`logs::confinement::confine`].
pub(super) fn confine(
    log: &Path,
    silences: Option<&Path>,
    state: &Path,
    proc_directory: &Path,
) -> Result<String, ConfinementError> {
    let mut read = directories_of(log);
    read.push(proc_directory.to_owned());
    read.extend(silences.map(directory_of));
    logs::confinement::confine(&Allowed {
        read,
        write: vec![state.to_owned()],
        ..Allowed::default()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpStream;
    use std::thread;

    use super::*;

    /// Applies to the calling thread only, and ends with it.
    #[test]
    fn confined_thread_reads_the_log_and_writes_the_state() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["log", "state", "other", "silences"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), "text").unwrap();
        }
        let (log, state, other) = (path("log/file"), path("state"), path("other/file"));
        let silences = path("silences/file");
        let confined = thread::spawn(move || {
            let told = confine(&log, Some(&silences), &state, Path::new("/proc")).unwrap();
            fs::read(&log).unwrap();
            fs::read(&silences).unwrap();
            fs::read("/proc/self/stat").unwrap();
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
}
