//! Whether somebody else has a file open: then removing it frees no space.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;

/// Sets the signal of a broken lease.
///
/// # Source
/// `F_SETSIG` in `include/uapi/asm-generic/fcntl.h`, Linux 6.12.
const F_SETSIG: libc::c_int = 10;

/// Whether there is another open file of the file's inode. It is not, as far as is known, on file systems without leases.
///
/// # Source
/// A write lease is refused with `EAGAIN` if the file is open elsewhere: `fcntl(2)`, `F_SETLEASE`, and
/// `check_conflicting_open()` in `fs/locks.c`, Linux 6.12. Who opens the file meanwhile breaks the lease by a signal,
/// `SIGURG` here, which is ignored, and waits until it is released, at once.
#[must_use]
pub fn is_open_elsewhere(file: &File) -> bool {
    let set = |command, argument: libc::c_int| {
        // SAFETY: these commands of `fcntl` take a number, and the descriptor is open.
        Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), command, argument) })
    };
    if set(F_SETSIG, libc::SIGURG).is_err() {
        return false;
    }
    match set(libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(_) => {
            // It ends with the file otherwise.
            let _released = set(libc::F_SETLEASE, libc::F_UNLCK);
            false
        }
        Err(errno) => errno == Errno::EAGAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reader_or_writer_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        assert!(!is_open_elsewhere(&file));
        let reader = File::open(&path).unwrap();
        assert!(is_open_elsewhere(&file));
        drop(reader);
        let writer = File::options().append(true).open(&path).unwrap();
        assert!(is_open_elsewhere(&file));
        drop(writer);
        assert!(!is_open_elsewhere(&file), "the lease was released");
    }
}
