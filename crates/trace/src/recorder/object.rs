//! Objects that a syscall names, looked up through the `/proc` directory of its task: `root`, `cwd` and `fd`.
//!
//! Objects that the syscall creates, deletes or changes are looked up at entry; opened objects at exit, through
//! the returned descriptor.

use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use audit::event::Inode;
use audit::ids::Dev;
use audit::plan::objects::{ObjectArg, ObjectEffect, ObjectRef};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlink};
use nix::sys::stat::{Mode, major, minor};

use crate::task::Thread;
use crate::task::memory::Memory;

/// One object of a syscall.
#[derive(Clone, Debug)]
pub(crate) struct NamedObject {
    pub(crate) object: ObjectArg,
    /// Name as given; `None` for a descriptor.
    pub(crate) name: Option<Vec<u8>>,
    /// Path relative to `/proc/TID`.
    proc_path: Vec<u8>,
    follow_symlink: bool,
    /// Its inode, if found.
    pub(crate) inode: Option<Inode>,
    /// Inode of its parent directory, if the syscall creates or deletes the object.
    pub(crate) parent: Option<Inode>,
    /// Absolute resolved path; empty when not needed or not known.
    pub(crate) path: Vec<u8>,
    /// Absolute resolved path of the parent directory; empty likewise.
    pub(crate) parent_path: Vec<u8>,
    /// The syscall is an open that can create it.
    pub(crate) may_create: bool,
}

/// Whether paths of objects are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathLookup {
    /// A rule tests paths.
    Wanted,
    /// Inodes only.
    Unneeded,
}

/// Reads the names of the objects of a syscall. Objects whose name is at an invalid address are omitted.
///
/// # Errors
/// `EPERM`, `ESRCH`: the memory of the task cannot be read.
pub(crate) fn named_objects(
    shapes: &'static [ObjectArg],
    call: &str,
    args: &[u64; 6],
    memory: Memory,
) -> Result<Vec<NamedObject>, Errno> {
    let mut all = Vec::with_capacity(shapes.len());
    let arg = |index: u8| args.get(usize::from(index)).copied().unwrap_or(0);
    for &object in shapes {
        let (dir, name) = match object.place {
            ObjectRef::Path(path) | ObjectRef::Opened { dir: None, path } => (None, arg(path)),
            ObjectRef::At(dir, path)
            | ObjectRef::Opened {
                dir: Some(dir),
                path,
            } => (Some(arg(dir)), arg(path)),
            ObjectRef::Text(text) => (None, arg(text)),
            ObjectRef::Returned => {
                all.push(NamedObject::new(object, Some(Vec::new()), Vec::new(), true));
                continue;
            }
            ObjectRef::Fd(fd) => {
                all.push(NamedObject::new(object, None, fd_path(arg(fd)), true));
                continue;
            }
        };
        let name = match memory.name(name) {
            Ok(name) => name,
            Err(errno @ (Errno::EPERM | Errno::ESRCH)) => return Err(errno),
            Err(_no_name) => continue,
        };
        let proc_path = proc_path(dir, &name);
        all.push(NamedObject::new(
            object,
            Some(name),
            proc_path,
            follow_symlink(call, object, args),
        ));
    }
    Ok(all)
}

/// The object of a Unix socket address with a path.
pub(crate) fn socket(name: &[u8], effect: ObjectEffect) -> NamedObject {
    let object = ObjectArg {
        place: ObjectRef::Path(1),
        effect,
    };
    NamedObject::new(object, Some(name.to_vec()), proc_path(None, name), true)
}

impl NamedObject {
    const fn new(
        object: ObjectArg,
        name: Option<Vec<u8>>,
        proc_path: Vec<u8>,
        follow_symlink: bool,
    ) -> Self {
        Self {
            object,
            name,
            proc_path,
            follow_symlink,
            inode: None,
            parent: None,
            path: Vec::new(),
            parent_path: Vec::new(),
            may_create: false,
        }
    }

    /// Looks the object up at syscall entry. An object to be opened is left to [`Self::look_up_opened`], unless
    /// the open can create it or the exit is not awaited.
    pub(crate) fn look_up_before(
        &mut self,
        thread: &Thread,
        paths: PathLookup,
        result_comes: bool,
    ) {
        match self.object.place {
            ObjectRef::Text(_) | ObjectRef::Returned => {}
            ObjectRef::Opened { .. } if result_comes && !self.may_create => {}
            _ => self.look_up(thread, paths),
        }
    }

    /// Looks up an object that the syscall created.
    pub(crate) fn look_up_created(&mut self, thread: &Thread) {
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        self.inode = thread.stat(&self.proc_path, flags).ok().map(inode);
    }

    /// Looks up an opened object through its descriptor, or by name when the open failed.
    pub(crate) fn look_up_opened(&mut self, thread: &Thread, exit: i64, paths: PathLookup) {
        let Ok(fd) = u64::try_from(exit) else {
            if !self.may_create && exit != -i64::from(libc::ENOENT) {
                self.look_up(thread, paths);
            }
            return;
        };
        let proc_path = fd_path(fd);
        self.inode = thread.stat(&proc_path, AtFlags::empty()).ok().map(inode);
        if paths == PathLookup::Wanted {
            let link = std::str::from_utf8(&proc_path)
                .ok()
                .and_then(|proc_path| thread.link(proc_path));
            self.path = link.unwrap_or_default();
        }
    }

    fn look_up(&mut self, thread: &Thread, paths: PathLookup) {
        let flags = if self.follow_symlink {
            AtFlags::empty()
        } else {
            AtFlags::AT_SYMLINK_NOFOLLOW
        };
        self.inode = thread.stat(&self.proc_path, flags).ok().map(inode);
        let made_or_removed = self.object.effect != ObjectEffect::Use || self.may_create;
        let (directory, last) = split_path(&self.proc_path);
        if made_or_removed {
            self.parent = thread.stat(directory, AtFlags::empty()).ok().map(inode);
        }
        if paths == PathLookup::Unneeded {
            return;
        }
        if made_or_removed || self.inode.is_none() {
            self.parent_path = resolved_path(thread, directory, true).unwrap_or_default();
        }
        let found = if self.inode.is_some() {
            resolved_path(thread, &self.proc_path, self.follow_symlink)
        } else {
            None
        };
        self.path = match found {
            Some(path) => path,
            None if self.parent_path.is_empty() => Vec::new(),
            None => join_path(&self.parent_path, last),
        };
    }
}

/// Path of a name relative to `/proc/TID`.
fn proc_path(dir: Option<u64>, name: &[u8]) -> Vec<u8> {
    // These paths depend on the task that resolves them.
    for (own, of_task) in [
        (b"/proc/self/".as_slice(), b"".as_slice()),
        (b"/proc/thread-self/", b""),
        (b"/dev/fd/", b"fd/"),
        (b"/dev/stdin", b"fd/0"),
        (b"/dev/stdout", b"fd/1"),
        (b"/dev/stderr", b"fd/2"),
    ] {
        if let Some(rest) = name.strip_prefix(own) {
            return [of_task, rest].concat();
        }
    }
    if name.starts_with(b"/") {
        return [b"root".as_slice(), name].concat();
    }
    let mut proc_path = match dir {
        Some(fd) if fd_number(fd) != libc::AT_FDCWD => fd_path(fd),
        _ => b"cwd".to_vec(),
    };
    if !name.is_empty() {
        proc_path.push(b'/');
        proc_path.extend_from_slice(name);
    }
    proc_path
}

fn fd_path(fd: u64) -> Vec<u8> {
    format!("fd/{}", fd_number(fd)).into_bytes()
}

/// A descriptor from a register, truncated as in the kernel.
const fn fd_number(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Splits a path into directory and last component.
fn split_path(proc_path: &[u8]) -> (&[u8], &[u8]) {
    let end = proc_path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |at| at + 1);
    let trimmed = proc_path.get(..end).unwrap_or_default();
    match trimmed.iter().rposition(|&byte| byte == b'/') {
        // Keep the slash: `cwd/` is the directory, `cwd` a link to it.
        Some(at) => trimmed.split_at(at + 1),
        None => (trimmed, b""),
    }
}

fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.ends_with(b"/") {
        [directory, name].concat()
    } else {
        [directory, b"/", name].concat()
    }
}

/// The absolute path that the kernel shows for a path relative to `/proc/TID`.
fn resolved_path(thread: &Thread, proc_path: &[u8], follow_symlink: bool) -> Option<Vec<u8>> {
    let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    if !follow_symlink {
        flags |= OFlag::O_NOFOLLOW;
    }
    let fd = openat(
        &thread.dir,
        OsStr::from_bytes(proc_path),
        flags,
        Mode::empty(),
    )
    .ok()?;
    let link = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_str()).ok()?;
    Some(link.into_vec())
}

/// Whether the syscall follows a symbolic link in the last component.
fn follow_symlink(call: &str, object: ObjectArg, args: &[u64; 6]) -> bool {
    let flag = |index: usize, bit: i32| {
        args.get(index)
            .is_some_and(|&flags| fd_number(flags) & bit != 0)
    };
    if object.effect != ObjectEffect::Use {
        return false;
    }
    match call {
        "lchown" | "lchown32" | "lsetxattr" | "lremovexattr" | "lgetxattr" | "llistxattr"
        | "readlink" | "readlinkat" | "lstat" | "lstat64" | "oldlstat" | "link" => false,
        "fchownat" | "execveat" => !flag(4, libc::AT_SYMLINK_NOFOLLOW),
        "newfstatat" | "fstatat64" | "fchmodat2" | "utimensat" | "faccessat2" => {
            !flag(3, libc::AT_SYMLINK_NOFOLLOW)
        }
        "statx" | "setxattrat" | "getxattrat" | "listxattrat" | "removexattrat" => {
            !flag(2, libc::AT_SYMLINK_NOFOLLOW)
        }
        "linkat" | "name_to_handle_at" => flag(4, libc::AT_SYMLINK_FOLLOW),
        "open" => !flag(1, libc::O_NOFOLLOW),
        "openat" => !flag(2, libc::O_NOFOLLOW),
        _ => true,
    }
}

/// An inode from the result of `stat(2)`, with device numbers in the kernel's encoding.
pub(crate) fn inode(stat: libc::stat) -> Inode {
    Inode {
        ino: stat.st_ino,
        dev: device(stat.st_dev),
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: device(stat.st_rdev),
    }
}

fn device(dev: libc::dev_t) -> Dev {
    let major = u32::try_from(major(dev)).unwrap_or(0);
    let minor = u32::try_from(minor(dev)).unwrap_or(0);
    Dev((major << 20) | (minor & 0xf_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CWD: u64 = 0xffff_ff9c;

    #[test]
    fn names_resolve_below_proc_directory_of_task() {
        for (dir, name, at) in [
            (None, "/etc/passwd", "root/etc/passwd"),
            (Some(CWD), "x/y", "cwd/x/y"),
            (Some(0xffff_ffff_ffff_ff9c), "x", "cwd/x"),
            (None, "x", "cwd/x"),
            (Some(7), "x", "fd/7/x"),
            (Some(7), "/x", "root/x"),
            (Some(7), "", "fd/7"),
            (None, "/proc/self/fd/3", "fd/3"),
            (None, "/dev/fd/3", "fd/3"),
            (None, "/dev/stdout", "fd/1"),
        ] {
            assert_eq!(proc_path(dir, name.as_bytes()), at.as_bytes());
        }
    }

    #[test]
    fn path_is_split_before_last_component() {
        for (proc_path, directory, last) in [
            ("cwd/x", "cwd/", "x"),
            ("cwd/x/", "cwd/", "x"),
            ("root/a/b", "root/a/", "b"),
            ("fd/3", "fd/", "3"),
        ] {
            assert_eq!(
                split_path(proc_path.as_bytes()),
                (directory.as_bytes(), last.as_bytes())
            );
        }
    }

    #[test]
    fn device_numbers_match_kernel_encoding() {
        let about = nix::sys::stat::stat("/dev/null").unwrap();
        assert_eq!(inode(about).rdev, Dev((1 << 20) | 3));
    }
}
