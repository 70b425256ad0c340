//! The file of the control socket: its directory, its permissions, and what is left of an earlier daemon.

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, geteuid};

use crate::control::client::connect_in_time;
use crate::control::lock_file;
use crate::messages::warn;
use crate::private_directory;

/// Lets a group enter the directory, unless everybody can, and connect to the socket. A directory that has other files
/// stays closed: they may not be for the group.
pub(super) fn admit_group(directory: &Path, socket: &Path, group: Gid) -> anyhow::Result<()> {
    let about = std::fs::metadata(directory)?;
    let enters = about.gid() == group.as_raw() && about.mode() & 0o010 != 0;
    if about.mode() & 0o001 == 0 && !enters {
        if has_other_files(directory, socket)? {
            let directory = directory.display();
            warn(&format!(
                "group {group} of `watch_group` may not enter `{directory}`, which has other files than those of the daemon: choose \
                 a directory of its own with --control"
            ));
            return Ok(());
        }
        chown(directory, None, Some(group.as_raw()))?;
        let mode = about.mode() & 0o7707 | 0o010;
        std::fs::set_permissions(directory, Permissions::from_mode(mode))?;
    }
    chown(socket, None, Some(group.as_raw()))?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o660))?;
    Ok(())
}

/// Whether a directory has files that are not those of a control socket. `/run/tollgate` is for the daemon alone.
fn has_other_files(directory: &Path, socket: &Path) -> io::Result<bool> {
    if directory == Path::new(private_directory::RUN) {
        return Ok(false);
    }
    let socket = socket.file_name().unwrap_or_default();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name != socket && !lock_file::is_name(&name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Creates the directory with mode 0700, or checks that no other user can write to it.
///
/// # Errors
/// The directory cannot be created, or other users can write to it.
pub(crate) fn ensure_private_directory(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    private_directory::create(directory)?;
    let about = std::fs::metadata(directory)
        .with_context(|| format!("cannot inspect directory `{shown}`"))?;
    let foreign = about.uid() != geteuid().as_raw() && about.uid() != 0;
    if foreign || about.mode() & 0o022 != 0 {
        bail!(
            "directory `{shown}` can be written by other users, who could replace the files of \
             the daemon; choose a directory that only root can write"
        );
    }
    Ok(())
}

/// Whether a process listens at `path`.
pub(crate) fn is_listening(path: &Path) -> bool {
    match connect_in_time(path) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::TimedOut,
    }
}

/// Removes the socket of a daemon that has ended.
pub(super) fn remove_stale_socket(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot inspect `{shown}`"));
        }
        Ok(about) if !about.file_type().is_socket() => {
            bail!("`{shown}` exists and is not a socket: remove it, or choose another path")
        }
        Ok(_) => {}
    }
    let error = match connect_in_time(path) {
        Err(error) if error.kind() != ErrorKind::TimedOut => error,
        _ => bail!(
            "another daemon listens at `{shown}`: stop it, or choose another path with `--control`"
        ),
    };
    if error.kind() == ErrorKind::ConnectionRefused {
        return std::fs::remove_file(path)
            .with_context(|| format!("cannot remove the stale socket `{shown}`"));
    }
    Err(error).with_context(|| format!("cannot connect to `{shown}`"))
}
