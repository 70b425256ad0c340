//! Landlock: what the program may do after it has opened what it needs.

use std::path::Path;

use anyhow::Context as _;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};

/// Newest ABI whose rights are handled; rights of later ones are not restricted.
const LANDLOCK_ABI: ABI = ABI::V7;

/// Lets this thread and those that it starts read the directory of the log and write the state directory, and nothing
/// else: no other file, no TCP, no signals to other processes. Returns what the kernel enforces.
///
/// # Errors
/// The rules cannot be made. A kernel without Landlock is no error.
pub(super) fn confine(log: &Path, state: &Path) -> anyhow::Result<String> {
    let read = AccessFs::from_read(LANDLOCK_ABI) & !AccessFs::Execute;
    let write = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    // A link leads to the log of another directory.
    let resolved = log.canonicalize().unwrap_or_else(|_| log.to_owned());
    let directories = [
        (log.parent(), read),
        (resolved.parent(), read),
        (Some(state), read | write),
    ];
    let failed = "cannot restrict this program with Landlock";
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))
        .context(failed)?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))
        .context(failed)?
        .scope(Scope::Signal)
        .context(failed)?
        .create()
        .context(failed)?;
    for (directory, access) in directories {
        let path = match directory {
            Some(path) if !path.as_os_str().is_empty() => path,
            _ => Path::new("."),
        };
        let directory = PathFd::new(path)
            .with_context(|| format!("cannot open directory `{}`", path.display()))?;
        ruleset = ruleset
            .add_rule(PathBeneath::new(directory, access))
            .context(failed)?;
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
    use std::net::TcpStream;
    use std::thread;

    use super::*;

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
            let told = confine(&log, &state).unwrap();
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
}
