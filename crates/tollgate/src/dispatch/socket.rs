//! The plugin that is a socket: programs connect, and are given events from then on.
//!
//! `args` are the mode and the path of the socket, in any order, and optionally the format. A program that takes
//! nothing for a second is disconnected, so that it costs the others nothing more.
//!
//! # Source
//! `builtin_af_unix` of audit-userspace 3.0.9, and `audisp-af_unix(8)` of 4.2.1.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use audit::conf::plugin::{Format, Plugin, Program};
use bstr::{BString, ByteSlice as _};

use super::chunk::Chunk;
use super::feed::{Loss, Shared};

/// How long a program may take nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket that is listened on. It is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    /// What the path leads to as long as nobody has put something else there.
    inode: (u64, u64),
    listener: UnixListener,
    format: Format,
    clients: Vec<UnixStream>,
    binary: Vec<u8>,
}

impl Socket {
    /// Makes the socket, in place of one that was left behind.
    ///
    /// # Errors
    /// Arguments that do not say where, and a path that cannot be listened on.
    pub(super) fn bind(plugin: &Plugin) -> anyhow::Result<Self> {
        let Some((mode, path, rest)) = words(plugin) else {
            bail!("it needs `args` of a mode and a path, such as 0640 /run/audit/audispd_events");
        };
        let mode = mode
            .to_str()
            .ok()
            .and_then(|mode| u32::from_str_radix(mode, 8).ok())
            .filter(|mode| *mode <= 0o777)
            .with_context(|| format!("`{mode}` is no mode such as 0640"))?;
        let path = path.to_path().context("the path")?;
        let format = match rest.first() {
            None => plugin.format,
            Some(word) if word == "string" => Format::String,
            Some(word) if word == "binary" => Format::Binary,
            Some(word) => bail!("`{word}` is no format: write string or binary"),
        };
        remove_left(path).with_context(|| format!("cannot remove `{}`", path.display()))?;
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on `{}`", path.display()))?;
        fs::set_permissions(path, Permissions::from_mode(mode))
            .with_context(|| format!("cannot give `{}` its mode", path.display()))?;
        listener
            .set_nonblocking(true)
            .context("cannot listen without waiting")?;
        let inode = inode(path).with_context(|| format!("cannot look at `{}`", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            inode,
            listener,
            format,
            clients: Vec::new(),
            binary: Vec::new(),
        })
    }

    /// Gives a chunk to all that have connected.
    pub(super) fn write(&mut self, chunk: &Chunk, shared: &Shared) {
        while let Ok((client, _)) = self.listener.accept() {
            if client.set_write_timeout(Some(PATIENCE)).is_ok() {
                self.clients.push(client);
            }
        }
        let bytes = match self.format {
            Format::String => chunk.string(),
            Format::Binary => {
                self.binary.clear();
                chunk.binary(&mut self.binary);
                &self.binary
            }
        };
        self.clients.retain_mut(|client| {
            let taken = client.write_all(bytes);
            if let Err(error) = &taken
                && error.kind() == io::ErrorKind::WouldBlock
            {
                shared.lose(Loss::TooSlow, chunk.events);
            }
            taken.is_ok()
        });
    }
}

/// Mode, path and what follows.
fn words(plugin: &Plugin) -> Option<(&BString, &BString, &[BString])> {
    match plugin.args.as_slice() {
        [path, mode, rest @ ..] if path.starts_with(b"/") => Some((mode, path, rest)),
        [mode, path, rest @ ..] => Some((mode, path, rest)),
        _ => None,
    }
}

/// The directory of the socket of an active plugin, if it is one.
pub(super) fn directory(plugin: &Plugin) -> Option<PathBuf> {
    let (_, path, _) = words(plugin)?;
    let is_socket = plugin.active && plugin.program == Program::Socket;
    let parent = path.to_path().ok()?.parent()?;
    is_socket.then(|| parent.to_owned())
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A plugin that was configured anew has its own there already.
        if inode(&self.path).is_ok_and(|now| now == self.inode) {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let about = fs::symlink_metadata(path)?;
    Ok((about.dev(), about.ino()))
}

/// Removes a socket that nobody listens on any more; anything else stays.
fn remove_left(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}
