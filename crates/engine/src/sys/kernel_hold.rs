//! Descriptors that the kernel closes in a worker.
//!
//! Closing the last descriptor of a link, or removing its pin before Linux 6.10, waits until no CPU runs the program,
//! some 100 ms. The files of an `io_uring` are closed by a worker of the kernel after the ring.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys::descriptor::fd_from_syscall;

/// `IORING_REGISTER_FILES` of `include/uapi/linux/io_uring.h`.
const IORING_REGISTER_FILES: libc::c_uint = 2;

/// `struct io_uring_params` of the same header: 120 bytes that may be 0.
type Params = [u64; 15];

/// Files that stay open until a moment after this value is dropped.
pub(crate) struct KernelHold {
    #[expect(dead_code, reason = "closing it is what counts")]
    ring: OwnedFd,
}

impl KernelHold {
    /// Has the kernel hold the files of descriptors.
    ///
    /// # Errors
    /// `errno`: the kernel has no `io_uring`, or refuses it to this process.
    ///
    /// # Source
    /// `io_ring_exit_work()` in `io_uring/io_uring.c`, and `fput()` in `fs/file_table.c`, Linux 6.1 to 6.12: a thread
    /// of the kernel closes files later, in a work of their own.
    pub(crate) fn of(descriptors: &[BorrowedFd<'_>]) -> io::Result<Self> {
        const ENTRIES: libc::c_uint = 1;
        let mut params = Params::default();
        // SAFETY: `params` has the size of the structure, and the kernel writes to nothing else.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, params.as_mut_ptr()) };
        let ring = fd_from_syscall(ring)?;
        let files: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let count = libc::c_uint::try_from(files.len()).unwrap_or(libc::c_uint::MAX);
        // SAFETY: the kernel reads `count` numbers.
        let registered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                ring.as_raw_fd(),
                IORING_REGISTER_FILES,
                files.as_ptr(),
                count,
            )
        };
        if registered < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { ring })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _, pipe};
    use std::os::fd::AsFd as _;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn files_are_closed_after_the_ring() {
        let (mut reader, writer) = pipe().unwrap();
        let held = KernelHold::of(&[writer.as_fd()]);
        let Ok(held) = held else {
            println!("skipped: the kernel refuses io_uring");
            return;
        };
        drop(writer);
        let set = |reader: &PipeReader, flags| fcntl(reader, FcntlArg::F_SETFL(flags)).unwrap();
        set(&reader, OFlag::O_NONBLOCK);
        let waiting = reader.read(&mut [0]).unwrap_err();
        assert_eq!(waiting.kind(), io::ErrorKind::WouldBlock, "it is open");
        drop(held);
        set(&reader, OFlag::empty());
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "it is closed");
    }
}
