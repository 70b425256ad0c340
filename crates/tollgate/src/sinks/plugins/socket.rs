//! The built-in socket plugin: programs connect and receive events from then on.
//!
//! `args` are mode and path of the socket in any order, and optionally the format. All clients are written to in
//! parallel. A client that does not read within a second what others have read is disconnected, so that it cannot
//! delay them.
//!
//! # Source
//! `builtin_af_unix` of audit-userspace 3.0.9, and `audisp-af_unix(8)` of 4.2.1.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use audit::conf::plugin::{Plugin, PluginFormat, PluginProgram};
use bstr::{BString, ByteSlice as _};
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::chunk::Chunk;
use super::plugin_queue::{Loss, QueueState};
use crate::messages::warn;

/// Time for a client to read a chunk.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of checking whether writing is still wanted.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Maximum number of clients; further ones are disconnected at once.
const CLIENTS: usize = 64;

/// Held while the file of a socket is created or removed: a reconfigured plugin creates its own while the thread of
/// the former one removes its file.
static FILES: Mutex<()> = Mutex::new(());

/// A listening socket, removed when dropped.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    /// Device and inode of the socket, unless it was replaced.
    inode: (u64, u64),
    listener: UnixListener,
    format: PluginFormat,
    clients: Vec<Client>,
    /// Too many clients were reported, and there have not been fewer since.
    reported: bool,
    binary: Vec<u8>,
}

/// A connected client.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// Bytes of the current chunk already written.
    taken: usize,
}

impl Socket {
    /// Creates the socket, replacing a stale one.
    ///
    /// # Errors
    /// The arguments are invalid, or the path cannot be bound.
    pub(super) fn bind(plugin: &Plugin) -> anyhow::Result<Self> {
        let Some((mode, path, rest)) = words(plugin) else {
            bail!("`args` must have a mode and a path, such as 0640 /run/audit/audispd_events");
        };
        let mode = mode
            .to_str()
            .ok()
            .and_then(|mode| u32::from_str_radix(mode, 8).ok())
            .filter(|mode| *mode <= 0o777)
            .with_context(|| format!("`{mode}` is no octal mode such as 0640"))?;
        let path = path.to_path().context("invalid path")?;
        let format = match rest.first() {
            None => plugin.format,
            Some(word) if word == "string" => PluginFormat::String,
            Some(word) if word == "binary" => PluginFormat::Binary,
            Some(word) => bail!("unknown format `{word}`: use string or binary"),
        };
        let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        remove_stale(path).with_context(|| format!("cannot remove `{}`", path.display()))?;
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on `{}`", path.display()))?;
        let inode = set_mode(path, mode)
            .with_context(|| format!("cannot set the mode of `{}`", path.display()))?;
        listener
            .set_nonblocking(true)
            .context("cannot set the socket non-blocking")?;
        Ok(Self {
            path: path.to_owned(),
            inode,
            listener,
            format,
            clients: Vec::new(),
            reported: false,
            binary: Vec::new(),
        })
    }

    /// Writes a chunk to all clients.
    pub(super) fn write(&mut self, chunk: &Chunk, shared: &QueueState) {
        self.accept();
        let bytes = match self.format {
            PluginFormat::String => chunk.string(),
            PluginFormat::Binary => {
                self.binary.clear();
                chunk.binary(&mut self.binary);
                &self.binary
            }
        };
        for client in &mut self.clients {
            client.taken = 0;
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.clients.retain_mut(|client| client.send(bytes));
            if self.clients.iter().all(|client| client.has_all_of(bytes)) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || shared.control.must_stop() {
                self.clients.retain(|client| client.has_all_of(bytes));
                shared.count_lost(Loss::TooSlow, chunk.events);
                return;
            }
            let waiting = self
                .clients
                .iter()
                .filter(|client| !client.has_all_of(bytes));
            let mut waiting: Vec<PollFd<'_>> = waiting
                .map(|client| PollFd::new(client.stream.as_fd(), PollFlags::POLLOUT))
                .collect();
            let timeout = PollTimeout::try_from(left.min(BETWEEN_LOOKS));
            // After EINTR all clients are checked.
            let _ready = poll(&mut waiting, timeout.unwrap_or(PollTimeout::ZERO));
        }
    }

    /// Accepts new clients.
    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() >= CLIENTS {
                if !std::mem::replace(&mut self.reported, true) {
                    let path = self.path.display();
                    warn(&format!(
                        "`{path}` has {CLIENTS} clients, the maximum: further ones are disconnected"
                    ));
                }
            } else if stream.set_nonblocking(true).is_ok() {
                self.reported = false;
                self.clients.push(Client { stream, taken: 0 });
            }
        }
    }
}

impl Client {
    /// Writes what the socket takes. Returns whether the client is still connected.
    fn send(&mut self, bytes: &[u8]) -> bool {
        while let Some(left @ [_, ..]) = bytes.get(self.taken..) {
            match self.stream.write(left) {
                Ok(taken) if taken != 0 => self.taken += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
                Ok(_) => return false,
            }
        }
        true
    }

    const fn has_all_of(&self, bytes: &[u8]) -> bool {
        self.taken >= bytes.len()
    }
}

/// Mode, path and the remaining arguments.
fn words(plugin: &Plugin) -> Option<(&BString, &BString, &[BString])> {
    match plugin.args.as_slice() {
        [path, mode, rest @ ..] if path.starts_with(b"/") => Some((mode, path, rest)),
        [mode, path, rest @ ..] => Some((mode, path, rest)),
        _ => None,
    }
}

/// Directory of the socket, for an active socket plugin.
pub(super) fn directory(plugin: &Plugin) -> Option<PathBuf> {
    let (_, path, _) = words(plugin)?;
    let is_socket = plugin.active && plugin.program == PluginProgram::Socket;
    let parent = path.to_path().ok()?.parent()?;
    is_socket.then(|| parent.to_owned())
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        // A reconfigured plugin may have created its own socket there.
        if inode(&self.path).is_ok_and(|now| now == self.inode) {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Sets the mode of a socket that this process has made, and returns its device and inode. Another user of the directory can
/// put something else in its place, so links are not followed.
fn set_mode(path: &Path, mode: u32) -> anyhow::Result<(u64, u64)> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let about = file.metadata()?;
    ensure!(
        about.file_type().is_socket() && about.uid() == geteuid().as_raw(),
        "another program has replaced it: choose a directory that only root can write"
    );
    let file = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(file, Permissions::from_mode(mode))?;
    Ok((about.dev(), about.ino()))
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let about = fs::symlink_metadata(path)?;
    Ok((about.dev(), about.ino()))
}

/// Removes the socket of a former plugin; leaves anything else.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Barrier;
    use std::thread;

    use audit::conf::plugin::parse;

    use super::super::chunk::LineFormat;
    use super::*;

    /// One event longer than a socket buffer.
    fn long() -> Chunk {
        let line = b"type=CWD msg=audit(1.000:7): y\n";
        Chunk::new(&line.repeat((1 << 20) / line.len()), LineFormat::Raw, 1)
    }

    fn socket(directory: &Path) -> (Socket, PathBuf) {
        let path = directory.join("socket");
        let text = format!(
            "active = yes\npath = builtin_af_unix\nargs = 0600 {}\n",
            path.display()
        );
        (Socket::bind(&parse(text.as_bytes()).0).unwrap(), path)
    }

    /// Reads to the end, with a pause after each number of bytes.
    fn taken(mut client: UnixStream, bytes: usize, pause: Duration) -> usize {
        let mut buffer = vec![0; bytes];
        let mut taken = 0;
        loop {
            match client.read(&mut buffer) {
                Ok(0) | Err(_) => return taken,
                Ok(count) => taken += count,
            }
            let _now = crossbeam_channel::after(pause).recv();
        }
    }

    #[test]
    fn slow_client_is_disconnected_and_others_get_everything() {
        let directory = tempfile::tempdir().unwrap();
        let (mut socket, path) = socket(directory.path());
        let connect = || UnixStream::connect(&path).unwrap();
        let (shared, chunk) = (QueueState::default(), long());
        let (willing, slow, idle) = (connect(), connect(), connect());
        let willing = thread::spawn(|| taken(willing, 64 << 10, Duration::ZERO));
        // Never idle, but takes 8 s and more.
        let slow = thread::spawn(|| taken(slow, 1 << 10, Duration::from_millis(10)));
        socket.write(&chunk, &shared);
        assert_eq!(socket.clients.len(), 1, "who has all of it stays");
        assert_eq!(shared.lost().iter().sum::<u64>(), 1, "an event counts once");
        socket.write(&chunk, &shared);
        assert_eq!(shared.lost().iter().sum::<u64>(), 1);
        drop(socket);
        assert_eq!(willing.join().unwrap(), 2 * chunk.len());
        assert!(slow.join().unwrap() < chunk.len());
        drop(idle);
    }

    #[test]
    fn mode_is_that_of_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let (_socket, path) = socket(directory.path());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        let (other, link) = (
            directory.path().join("other"),
            directory.path().join("link"),
        );
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let before = mode(&other);
        for replaced in [&other, &link] {
            let error = set_mode(replaced, 0o777).unwrap_err().to_string();
            assert!(error.contains("has replaced it"), "{error}");
        }
        assert_eq!(mode(&other), before);
    }

    #[test]
    fn former_socket_that_is_dropped_leaves_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let (mut former, path) = socket(directory.path());
        let both = Barrier::new(2);
        for _ in 0..2000 {
            former = thread::scope(|scope| {
                let dropped = scope.spawn(|| {
                    both.wait();
                    drop(former);
                });
                both.wait();
                let (new, _) = socket(directory.path());
                dropped.join().unwrap();
                new
            });
            assert!(path.exists());
        }
    }

    #[test]
    fn stopping_plugin_does_not_wait_for_a_slow_client() {
        let directory = tempfile::tempdir().unwrap();
        let (mut socket, path) = socket(directory.path());
        let (shared, chunk) = (QueueState::default(), long());
        shared.control.end_by(Instant::now());
        let slow = UnixStream::connect(&path).unwrap();
        let slow = thread::spawn(|| taken(slow, 4 << 10, Duration::from_millis(5)));
        // It takes a second and more, and has the time before the deadline.
        socket.write(&chunk, &shared);
        assert!(socket.clients.is_empty());
        assert_eq!(shared.lost().iter().sum::<u64>(), 1);
        assert!(slow.join().unwrap() < chunk.len());
    }

    #[test]
    fn client_above_the_limit_is_disconnected() {
        let directory = tempfile::tempdir().unwrap();
        let (mut socket, path) = socket(directory.path());
        let connect = || UnixStream::connect(&path).unwrap();
        let _there: Vec<UnixStream> = (0..CLIENTS).map(|_| connect()).collect();
        let one_more = connect();
        socket.accept();
        assert_eq!(socket.clients.len(), CLIENTS);
        assert_eq!(taken(one_more, 1, Duration::ZERO), 0, "it is at its end");
    }
}
