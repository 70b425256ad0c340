//! Identity, program and terminal of a stopped task, from `/proc` and its pidfd.
//!
//! Ids, comm and working directory are read for each event. Facts that only an exec changes are cached per
//! process. Login UID, session and terminal are read again after each tick of the coarse clock.

mod ids;
pub(crate) mod memory;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;

use audit::event::{Task, Timestamp};
use audit::ids::Auid;
use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::Pid;

use ids::{IdSource, Ids, read_all};

/// Maximum number of cached threads; beyond it the cache is cleared.
const MAX_THREADS: usize = 4096;
/// Length of a command line in PROCTITLE records.
const PROCTITLE_BYTES: usize = 128;

/// Cache of the tasks that made syscalls.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    threads: HashMap<i32, Thread>,
    images: HashMap<i32, ProcessImage>,
}

/// One thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: Pid,
    pub(crate) tgid: Pid,
    /// `/proc/TID`.
    pub(crate) dir: OwnedFd,
    ids: IdSource,
    comm: File,
    cmdline: File,
    /// The last reading, for syscalls in which the task ends.
    last_seen: Identity,
}

/// Facts of a process that an exec changes.
#[derive(Debug, Default)]
pub(crate) struct ProcessImage {
    exe: Option<Vec<u8>>,
    proctitle: Vec<u8>,
    /// Execution domain.
    pub(crate) personality: u32,
    auid: u32,
    ses: u32,
    tty: Vec<u8>,
    read: Option<Timestamp>,
    /// This thread is in an exec; facts that are read now may be of the old or of the new program.
    exec_pending: Option<Pid>,
}

/// Facts that are read for each event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    ids: Ids,
    comm: Vec<u8>,
    /// Supplementary groups, if a rule tests them.
    pub(crate) groups: Vec<u32>,
}

/// A task as last read.
pub(crate) struct TaskView<'a> {
    pub(crate) thread: &'a Thread,
    pub(crate) image: &'a ProcessImage,
    pub(crate) identity: &'a Identity,
}

/// Which execs and task ends the backend reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecTracking {
    /// Completed execs to [`Tasks::drop_image`], and task ends to [`Tasks::remove`].
    Completed,
    /// Attempted execs to [`Tasks::exec_attempted`]; no task ends.
    Attempted,
}

impl Tasks {
    /// Reads a stopped task.
    ///
    /// # Errors
    /// When the task has ended, or its `/proc` files cannot be read.
    pub(crate) fn lookup(
        &mut self,
        tid: Pid,
        time: Timestamp,
        groups: bool,
    ) -> io::Result<TaskView<'_>> {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid.as_raw()) {
            self.threads.clear();
            self.images.clear();
        }
        let known = self
            .threads
            .get(&tid.as_raw())
            .and_then(|thread| thread.ids.read().ok());
        let ids = match known {
            Some(ids) => ids,
            // A new task, or another task with a reused id.
            None => self.open_thread(tid)?,
        };
        let thread = self.threads.get_mut(&tid.as_raw()).ok_or(Errno::ESRCH)?;
        let image = self.images.entry(thread.tgid.as_raw()).or_default();
        image.refresh(thread, time);
        thread.last_seen.ids = ids;
        thread.read_comm()?;
        thread.last_seen.groups.clear();
        if groups {
            thread.last_seen.groups = thread.groups().unwrap_or_default();
        }
        Ok(TaskView {
            identity: &thread.last_seen,
            thread,
            image,
        })
    }

    /// The last reading of a task, which may have ended.
    pub(crate) fn last_seen(&self, tid: Pid) -> Option<TaskView<'_>> {
        let thread = self.threads.get(&tid.as_raw())?;
        let image = self.images.get(&thread.tgid.as_raw())?;
        Some(TaskView {
            identity: &thread.last_seen,
            thread,
            image,
        })
    }

    /// A stopped task, from the cache if it is there.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub(crate) fn thread(
        &mut self,
        tid: Pid,
        time: Timestamp,
        execs: ExecTracking,
    ) -> io::Result<&Thread> {
        let known = self.threads.get(&tid.as_raw());
        // If task ends are not reported, the id may have been reused.
        let stale =
            |thread: &Thread| execs == ExecTracking::Attempted && thread.ids.read().is_err();
        if known.is_none_or(stale) {
            self.lookup(tid, time, false)?;
        }
        Ok(self.threads.get(&tid.as_raw()).ok_or(Errno::ESRCH)?)
    }

    fn open_thread(&mut self, tid: Pid) -> io::Result<Ids> {
        let (thread, ids) = match Thread::open(tid) {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.threads.clear();
                Thread::open(tid)?
            }
            other => other?,
        };
        // The cached process may be another one, whose id was reused.
        let leader = self.threads.get(&thread.tgid.as_raw());
        if thread.tgid == tid || leader.is_none_or(|leader| leader.ids.read().is_err()) {
            self.images.remove(&thread.tgid.as_raw());
        }
        self.threads.insert(tid.as_raw(), thread);
        Ok(ids)
    }

    /// Marks the process of a thread as possibly running another program from now on.
    pub(crate) fn exec_attempted(&mut self, tid: Pid, time: Timestamp) {
        let Ok(thread) = self.thread(tid, time, ExecTracking::Attempted) else {
            return; // the task was killed
        };
        let tgid = thread.tgid.as_raw();
        if let Some(image) = self.images.get_mut(&tgid) {
            image.exec_pending = Some(tid);
        }
    }

    /// Removes the cached facts of a process that completed an exec.
    pub(crate) fn drop_image(&mut self, tgid: Pid) {
        self.images.remove(&tgid.as_raw());
    }

    /// Removes a thread that has ended.
    pub(crate) fn remove(&mut self, tid: Pid) {
        self.threads.remove(&tid.as_raw());
        self.images.remove(&tid.as_raw());
    }
}

impl Identity {
    /// The task as in an event.
    pub(crate) fn task<'a>(&'a self, image: &'a ProcessImage) -> Task<'a> {
        let Ids {
            tgid,
            ppid,
            uid: [uid, euid, suid, fsuid],
            gid: [gid, egid, sgid, fsgid],
        } = self.ids;
        Task {
            ppid,
            pid: tgid,
            auid: Auid(image.auid),
            uid,
            gid,
            euid,
            suid,
            fsuid,
            egid,
            sgid,
            fsgid,
            ses: image.ses,
            tty: &image.tty,
            comm: &self.comm,
            exe: image.exe.as_deref(),
            subj: None,
        }
    }
}

impl ProcessImage {
    /// First bytes of the command line.
    pub(crate) fn proctitle(&self) -> &[u8] {
        &self.proctitle
    }

    fn refresh(&mut self, thread: &Thread, time: Timestamp) {
        let new = self.read.is_none();
        if new || self.exec_pending.is_some() {
            self.exe = thread.link("exe");
            self.proctitle = thread.proctitle();
        }
        // The exec of this thread has ended, because it makes another syscall.
        self.exec_pending = self.exec_pending.filter(|&by| by != thread.tid);
        if self.read == Some(time) {
            return;
        }
        self.read = Some(time);
        self.auid = thread.number("loginuid").unwrap_or(Auid::UNSET.0);
        self.ses = thread.number("sessionid").unwrap_or(u32::MAX);
        self.tty = thread.tty();
        if new {
            let hex = thread.text("personality").unwrap_or_default();
            let hex = std::str::from_utf8(hex.trim_ascii()).unwrap_or_default();
            self.personality = u32::from_str_radix(hex, 16).unwrap_or(0);
        }
    }
}

impl Thread {
    fn open(tid: Pid) -> io::Result<(Self, Ids)> {
        let dir = open_path(&format!("/proc/{tid}"))?;
        let file = |name: &str| -> io::Result<File> {
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            Ok(File::from(openat(&dir, name, flags, Mode::empty())?))
        };
        let (ids_from, ids) = IdSource::open(tid, || file("status"))?;
        let (comm, cmdline) = (file("comm")?, file("cmdline")?);
        let tgid = Pid::from_raw(i32::try_from(ids.tgid).unwrap_or(tid.as_raw()));
        let thread = Self {
            tid,
            tgid,
            dir,
            ids: ids_from,
            comm,
            cmdline,
            last_seen: Identity::default(),
        };
        Ok((thread, ids))
    }

    /// Target of a link in `/proc/TID`.
    pub(crate) fn link(&self, name: &str) -> Option<Vec<u8>> {
        let to = readlinkat(&self.dir, name).ok()?;
        Some(to.into_vec())
    }

    fn read_comm(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64];
        let len = self.comm.read_at(&mut bytes, 0)?;
        let text = bytes.get(..len).unwrap_or_default();
        self.last_seen.comm.clear();
        let name = text.strip_suffix(b"\n").unwrap_or(text);
        self.last_seen.comm.extend_from_slice(name);
        Ok(())
    }

    /// The whole command line.
    pub(crate) fn arguments(&self) -> Option<Vec<u8>> {
        self.text("cmdline")
    }

    fn proctitle(&self) -> Vec<u8> {
        let mut bytes = [0; PROCTITLE_BYTES];
        let len = self.cmdline.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.get(..len).unwrap_or_default().to_vec()
    }

    fn text(&self, name: &str) -> Option<Vec<u8>> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.dir, name, flags, Mode::empty()).ok()?);
        read_all(&file).ok()
    }

    fn number(&self, name: &str) -> Option<u32> {
        let text = self.text(name)?;
        std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
    }

    fn groups(&self) -> Option<Vec<u32>> {
        let status = self.text("status")?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(b"Groups:"))?;
        let numbers = std::str::from_utf8(line).ok()?.split_whitespace();
        Some(numbers.filter_map(|number| number.parse().ok()).collect())
    }

    /// Name of the controlling terminal, from its device number.
    ///
    /// # Source
    /// `proc_pid_stat(5)`; `Documentation/admin-guide/devices.txt`.
    fn tty(&self) -> Vec<u8> {
        let stat = self.text("stat").unwrap_or_default();
        // The comm, in parentheses, can contain any bytes.
        let after = stat.rfind_byte(b')').and_then(|at| stat.get(at + 1..));
        let field = after
            .and_then(|rest| std::str::from_utf8(rest).ok())
            .and_then(|rest| rest.split_whitespace().nth(4));
        let number = field.and_then(|field| field.parse::<i32>().ok());
        tty_name(number.unwrap_or(0).cast_unsigned())
    }

    /// `stat(2)` of a path relative to `/proc/TID`: `cwd/NAME`, `fd/3/NAME`.
    pub(crate) fn stat(&self, path: &[u8], flags: AtFlags) -> Result<libc::stat, Errno> {
        fstatat(&self.dir, OsStr::from_bytes(path), flags)
    }
}

fn tty_name(number: u32) -> Vec<u8> {
    let (major, minor) = (
        (number >> 8) & 0xfff,
        (number & 0xff) | ((number >> 12) & 0xff_ff00),
    );
    let name = match (major, minor) {
        (0, _) => String::new(),
        (4, 0..64) => format!("tty{minor}"),
        (4, _) => format!("ttyS{}", minor - 64),
        (136..144, _) => format!("pts{}", (major - 136) * 256 + minor),
        (204, 64..) => format!("ttyAMA{}", minor - 64),
        (229, _) => format!("hvc{minor}"),
        _ => "?".to_owned(),
    };
    name.into_bytes()
}

fn open_path(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tty_names_follow_device_numbers() {
        let device = |major: u32, minor: u32| (major << 8) | minor;
        for (number, name) in [
            (0, ""),
            (device(136, 3), "pts3"),
            (device(137, 1), "pts257"),
            (device(4, 1), "tty1"),
            (device(4, 64), "ttyS0"),
            (device(229, 0), "hvc0"),
            (device(9, 9), "?"),
        ] {
            assert_eq!(tty_name(number), name.as_bytes());
        }
    }
}
