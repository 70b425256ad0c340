//! User, group and process ids of a task, from its pidfd or from `/proc`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::unistd::Pid;

/// Ids of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) tgid: u32,
    pub(crate) ppid: u32,
    /// Real, effective, saved and file system id.
    pub(crate) uid: [u32; 4],
    pub(crate) gid: [u32; 4],
}

/// Source of ids.
#[derive(Debug)]
pub(crate) enum IdSource {
    /// `PIDFD_GET_INFO`, v6.13.
    Pidfd(OwnedFd),
    /// `/proc/TID/status`.
    Status(File),
}

impl IdSource {
    /// Opens the fastest source that the kernel supports, and reads it. `status` opens `/proc/TID/status`.
    ///
    /// # Errors
    /// When the task has ended.
    pub(crate) fn open(
        tid: Pid,
        status: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<(Self, Ids)> {
        let by_pidfd = pidfd(tid).map(Self::Pidfd);
        let by_pidfd = by_pidfd.and_then(|source| Ok((source.read()?, source)));
        if let Ok((ids, source)) = by_pidfd {
            return Ok((source, ids));
        }
        let source = Self::Status(status()?);
        let ids = source.read()?;
        Ok((source, ids))
    }
}

/// Opens a pidfd of a thread. For threads other than the group leader this needs v6.9.
fn pidfd(tid: Pid) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_ulong = 0o200; // O_EXCL
    // SAFETY: the arguments are integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_pidfd_open,
            libc::c_long::from(tid.as_raw()),
            PIDFD_THREAD,
        )
    };
    let fd = Errno::result(fd)?;
    let fd = i32::try_from(fd).map_err(|_wide| Errno::EMFILE)?;
    // SAFETY: the system call has opened this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct pidfd_info` of `include/uapi/linux/pidfd.h` as of v6.13.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ruid: u32,
    rgid: u32,
    euid: u32,
    egid: u32,
    suid: u32,
    sgid: u32,
    fsuid: u32,
    fsgid: u32,
    exit_code: i32,
}

impl IdSource {
    /// Reads the current ids.
    ///
    /// # Errors
    /// When the task has ended.
    pub(crate) fn read(&self) -> io::Result<Ids> {
        match self {
            Self::Pidfd(fd) => {
                /// `PIDFD_INFO_PID | PIDFD_INFO_CREDS`.
                const PID_AND_CREDS: u64 = 3;
                /// `_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)`.
                const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b;
                const _: () = assert!(size_of::<PidfdInfo>() == 64);
                let mut info = PidfdInfo {
                    mask: PID_AND_CREDS,
                    ..PidfdInfo::default()
                };
                // SAFETY: the request number encodes 64 bytes, the size of `info`; the kernel writes no more.
                let answer = unsafe { libc::ioctl(fd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
                Errno::result(answer)?;
                if info.mask & PID_AND_CREDS != PID_AND_CREDS {
                    return Err(Errno::ESRCH.into());
                }
                Ok(Ids {
                    tgid: info.tgid,
                    ppid: info.ppid,
                    uid: [info.ruid, info.euid, info.suid, info.fsuid],
                    gid: [info.rgid, info.egid, info.sgid, info.fsgid],
                })
            }
            Self::Status(file) => {
                let status = read_all(file)?;
                parse_status(&status).ok_or_else(|| Errno::ESRCH.into())
            }
        }
    }
}

fn parse_status(status: &[u8]) -> Option<Ids> {
    let field = |name: &str| -> Option<[u32; 4]> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name.as_bytes()))?;
        let mut numbers = std::str::from_utf8(line)
            .ok()?
            .split_whitespace()
            .map(|number| number.parse().unwrap_or(0));
        Some(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
    };
    Some(Ids {
        tgid: field("Tgid:")?[0],
        ppid: field("PPid:")?[0],
        uid: field("Uid:")?,
        gid: field("Gid:")?,
    })
}

/// Reads a file of `/proc` from its start.
pub(crate) fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let mut used = 0;
    loop {
        let free = bytes.get_mut(used..).unwrap_or_default();
        let offset = u64::try_from(used).unwrap_or(0);
        match file.read_at(free, offset)? {
            0 => break,
            read => used += read,
        }
        if used == bytes.len() {
            bytes.resize(2 * used, 0);
        }
    }
    bytes.truncate(used);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_from_proc_status() {
        let ids = parse_status(
            b"Name:\tx\nTgid:\t7\nPPid:\t3\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n",
        )
        .unwrap();
        assert_eq!((ids.tgid, ids.ppid), (7, 3));
        assert_eq!((ids.uid, ids.gid), ([1, 2, 3, 4], [5, 6, 7, 8]));
        assert!(parse_status(b"Name:\tx\n").is_none());
    }

    #[test]
    fn pidfd_and_proc_status_agree() {
        let own = nix::unistd::getpid();
        let no_status = || Err(io::ErrorKind::NotFound.into());
        let Ok((_, ids)) = IdSource::open(own, no_status) else {
            return; // before v6.13
        };
        let status =
            parse_status(&read_all(&File::open("/proc/self/status").unwrap()).unwrap()).unwrap();
        assert_eq!((ids.tgid, ids.ppid), (status.tgid, status.ppid));
        assert_eq!((ids.uid, ids.gid), (status.uid, status.gid));
        assert_eq!(ids.tgid, own.as_raw().cast_unsigned());
    }
}
