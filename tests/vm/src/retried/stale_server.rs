//! A FUSE server that answers one request with `ESTALE`. The kernel then looks all names up again, and the server shows
//! them as symbolic links to other objects. It runs in a thread of this program and serves one mount of a user, as
//! under `fusermount`.
//!
//! # Source
//! `include/uapi/linux/fuse.h`, protocol 7.31, and `retry_estale()` in `include/linux/namei.h`, Linux 6.1 and 6.12.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Targets of the links that the names in the mounted directory become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets {
    /// Of `file`, `checked` and `opened`, files at first. A request for attributes of `checked` is answered with `ESTALE`,
    /// which the kernel makes when it checks access; so is the request to open `opened`.
    pub(super) file: &'static str,
    /// Of `from`, a directory at first. A look-up of [`STALE_NAME`] in it is answered with `ESTALE`.
    pub(super) from: &'static str,
    /// Of `to`, the same directory at first.
    pub(super) to: &'static str,
}

/// The name whose look-up fails in the first directory.
const STALE_NAME: &[u8] = b"name";

const ROOT: u64 = 1;
const FILE: u64 = 2;
const DIRECTORY: u64 = 3;
const FILE_LINK: u64 = 4;
const FROM_LINK: u64 = 5;
const TO_LINK: u64 = 6;
const CHECKED: u64 = 7;
const OPENED: u64 = 8;
/// Inode numbers follow this one, which is above those of the other file systems here.
const INODES: u64 = 700_000;

/// Codes of requests.
mod op {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const INIT: u32 = 26;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// Size of the header of a request.
const HEADER_BYTES: usize = 40;
/// More than the longest request.
const REQUEST_BYTES: usize = 1 << 17;
const LONGEST_WRITE: u32 = 4096;

/// A mounted server; unmounted on drop.
pub(super) struct StaleServer {
    at: PathBuf,
    /// Returns the number of requests that it answered with `ESTALE`.
    thread: Option<JoinHandle<anyhow::Result<u32>>>,
}

impl StaleServer {
    /// Mounts it at a directory, which is created, for a user.
    ///
    /// # Errors
    /// If the kernel has no FUSE or refuses the mount.
    pub(super) fn mount(at: &Path, uid: u32, targets: Targets) -> anyhow::Result<Self> {
        fs::create_dir_all(at).context("cannot make a mount point")?;
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.context("cannot open /dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id={uid},group_id={uid},default_permissions",
            device.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("stale"),
            at,
            Some("fuse"),
            flags,
            Some(options.as_str()),
        )
        .context("cannot mount FUSE")?;
        let mut connection = Connection {
            device,
            uid,
            targets,
            stale: 0,
        };
        let thread = thread::spawn(move || connection.serve());
        Ok(Self {
            at: at.to_owned(),
            thread: Some(thread),
        })
    }

    /// Unmounts it; returns the number of requests that it answered with `ESTALE`.
    ///
    /// # Errors
    /// If it cannot be unmounted or the server failed.
    pub(super) fn end(mut self) -> anyhow::Result<u32> {
        umount2(&self.at, MntFlags::MNT_DETACH).context("cannot unmount FUSE")?;
        let thread = self.thread.take().context("no server")?;
        let ended = thread.join();
        ended.unwrap_or_else(|_panic| anyhow::bail!("the server has panicked"))
    }
}

impl Drop for StaleServer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The thread ends with the mount.
            let _gone = umount2(&self.at, MntFlags::MNT_DETACH);
        }
    }
}

/// Whether an inode number is that of an object that the server shows.
pub(super) fn is_of_server(inode: &str) -> bool {
    inode.parse().is_ok_and(|inode: u64| inode > INODES)
}

/// The server's side of a mount.
struct Connection {
    device: File,
    uid: u32,
    targets: Targets,
    stale: u32,
}

/// What the kernel asks.
struct Request<'a> {
    code: u32,
    unique: u64,
    node: u64,
    argument: &'a [u8],
}

impl Connection {
    /// Answers requests until the unmount.
    fn serve(&mut self) -> anyhow::Result<u32> {
        let mut buffer = vec![0; REQUEST_BYTES];
        loop {
            let bytes = match self.device.read(&mut buffer) {
                Ok(bytes) => bytes,
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::ENODEV) => return Ok(self.stale),
                    // An interrupted request is gone.
                    Some(Errno::EINTR | Errno::ENOENT | Errno::EAGAIN) => continue,
                    _ => return Err(error).context("cannot read a request"),
                },
            };
            let request = buffer.get(..bytes).context("a long request")?;
            let request = Request::parse(request)?;
            if matches!(request.code, op::FORGET | op::BATCH_FORGET) {
                continue;
            }
            let answer = self.answer(&request);
            if matches!(answer, Err(Errno::ESTALE)) {
                self.stale += 1;
            }
            self.reply(request.unique, answer)?;
        }
    }

    fn reply(&mut self, unique: u64, answer: Result<Vec<u8>, Errno>) -> anyhow::Result<()> {
        let (error, data) = match answer {
            Ok(data) => (0, data),
            Err(errno) => (-(errno as i32), Vec::new()),
        };
        let length = u32::try_from(16 + data.len())?;
        let mut reply = Vec::new();
        reply.extend(length.to_ne_bytes());
        reply.extend(error.to_ne_bytes());
        reply.extend(unique.to_ne_bytes());
        reply.extend(data);
        match self.device.write_all(&reply) {
            // The request was interrupted.
            Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(()),
            written => written.context("cannot answer a request"),
        }
    }

    fn answer(&self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        match request.code {
            op::INIT => Ok(init()),
            op::LOOKUP => {
                let node = self.lookup(request)?;
                Ok(self.entry(node))
            }
            op::GETATTR if request.node == CHECKED && self.stale == 0 => Err(Errno::ESTALE),
            op::OPEN if request.node == OPENED && self.stale == 0 => Err(Errno::ESTALE),
            op::GETATTR => {
                let mut answer = vec![0; 16];
                answer.extend(self.attributes(request.node));
                Ok(answer)
            }
            op::READLINK => match request.node {
                FILE_LINK => Ok(self.targets.file.into()),
                FROM_LINK => Ok(self.targets.from.into()),
                TO_LINK => Ok(self.targets.to.into()),
                _ => Err(Errno::EINVAL),
            },
            op::SETATTR | op::LINK => Err(Errno::ESTALE),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// The object of a name, which depends on whether the server has answered with `ESTALE`.
    fn lookup(&self, request: &Request<'_>) -> Result<u64, Errno> {
        let name = request.argument.split(|byte| *byte == 0).next();
        match (request.node, name.unwrap_or_default(), self.stale > 0) {
            (ROOT, b"file", false) => Ok(FILE),
            (ROOT, b"checked", false) => Ok(CHECKED),
            (ROOT, b"opened", false) => Ok(OPENED),
            (ROOT, b"file" | b"checked" | b"opened", true) => Ok(FILE_LINK),
            (ROOT, b"from" | b"to", false) => Ok(DIRECTORY),
            (ROOT, b"from", true) => Ok(FROM_LINK),
            (ROOT, b"to", true) => Ok(TO_LINK),
            (DIRECTORY, STALE_NAME, false) => Err(Errno::ESTALE),
            _ => Err(Errno::ENOENT),
        }
    }

    /// `struct fuse_entry_out`, valid for no time.
    fn entry(&self, node: u64) -> Vec<u8> {
        let mut entry = Vec::from(node.to_ne_bytes());
        entry.resize(40, 0);
        entry.extend(self.attributes(node));
        entry
    }

    /// `struct fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (mode, links) = match node {
            ROOT | DIRECTORY => (0o40777, 2),
            FILE | CHECKED | OPENED => (0o100_755, 1),
            _ => (0o120_777, 1),
        };
        let mut attributes = Vec::from((INODES + node).to_ne_bytes());
        // Sizes and times are 0.
        attributes.resize(60, 0);
        let device = 0;
        let block_bytes = 4096;
        for word in [mode, links, self.uid, self.uid, device, block_bytes, 0] {
            attributes.extend(u32::to_ne_bytes(word));
        }
        attributes
    }
}

impl<'a> Request<'a> {
    fn parse(request: &'a [u8]) -> anyhow::Result<Self> {
        ensure!(request.len() >= HEADER_BYTES, "a short request");
        let (header, argument) = request.split_at(HEADER_BYTES);
        let (words, _) = header.as_chunks();
        let word = |at: usize| {
            let word = words.get(at).copied().map(u64::from_ne_bytes);
            word.context("a short header")
        };
        Ok(Self {
            code: u32::try_from(word(0)? >> 32)?,
            unique: word(1)?,
            node: word(2)?,
            argument,
        })
    }
}

/// `struct fuse_init_out`.
fn init() -> Vec<u8> {
    let (major, minor, readahead, flags, background) = (7, 31, 0, 0, 0x000c_0010);
    let mut answer = Vec::new();
    for word in [major, minor, readahead, flags, background, LONGEST_WRITE] {
        answer.extend(u32::to_ne_bytes(word));
    }
    answer.resize(64, 0);
    answer
}
