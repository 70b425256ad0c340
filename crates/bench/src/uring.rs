//! Rings of `io_uring` that keep the kernel busy: the load of `tollgate bench uring`.
//!
//! It is in this crate because handing an operation to the kernel is unsafe: its buffer must stay where it
//! is until the kernel is done. [`Load`] owns both, and gives up neither while operations are under way.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

/// Operations under way at any time.
const DEPTH: u32 = 128;
/// Bytes of a read.
const BLOCK: usize = 4096;
/// How long the kernel's polling thread stays awake without work.
const IDLE_MS: u32 = 2000;
/// Operations between two looks at the clock.
const BETWEEN_LOOKS: u64 = 8192;

/// Who takes operations out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// The task, by `io_uring_enter`.
    Call,
    /// A thread of the kernel that polls (`IORING_SETUP_SQPOLL`).
    Poll,
}

/// What operations do.
#[derive(Debug)]
pub enum Operation {
    /// Nothing.
    Nop,
    /// Read 4 KiB at random places of a file.
    Read(File),
}

/// A ring with everything that operations in it use.
pub struct Load {
    ring: IoUring,
    operation: Operation,
    blocks: u64,
    buffers: Vec<[u8; BLOCK]>,
    under_way: u32,
    random: u64,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load")
            .field("operation", &self.operation)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

impl Load {
    /// Makes a ring.
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` where `io_uring` is forbidden or missing; a file of less than a block.
    pub fn new(operation: Operation, submission: Submission) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        if submission == Submission::Poll {
            builder.setup_sqpoll(IDLE_MS);
        }
        let ring = builder.build(DEPTH)?;
        let blocks = match &operation {
            Operation::Nop => 1,
            Operation::Read(file) => {
                ring.submitter().register_files(&[file.as_raw_fd()])?;
                let block = u64::try_from(BLOCK).unwrap_or(u64::MAX);
                file.metadata()?.len() / block
            }
        };
        if blocks == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let buffers = match operation {
            Operation::Nop => Vec::new(),
            Operation::Read(_) => vec![[0; BLOCK]; usize::try_from(DEPTH).unwrap_or(0)],
        };
        Ok(Self {
            ring,
            operation,
            blocks,
            buffers,
            under_way: 0,
            random: 0x853c_49e6_748f_ea9b,
        })
    }

    /// Keeps the ring full for so long; gives back the operations a second.
    ///
    /// # Errors
    /// When an operation or the ring fails.
    pub fn run(&mut self, time: Duration) -> io::Result<f64> {
        let began = Instant::now();
        let (mut done, mut looked) = (0_u64, 0_u64);
        loop {
            self.fill()?;
            done += self.reap()?;
            if done - looked < BETWEEN_LOOKS {
                continue;
            }
            looked = done;
            let elapsed = began.elapsed();
            if elapsed >= time {
                while self.under_way != 0 {
                    self.reap()?;
                }
                let done = u32::try_from(done).map_or(f64::INFINITY, f64::from);
                return Ok(done / elapsed.as_secs_f64());
            }
        }
    }

    /// Puts operations into the ring until as many are under way as fit.
    fn fill(&mut self) -> io::Result<()> {
        while self.under_way < DEPTH {
            let entry = match &self.operation {
                Operation::Nop => opcode::Nop::new().build(),
                Operation::Read(_) => {
                    self.random ^= self.random << 13;
                    self.random ^= self.random >> 7;
                    self.random ^= self.random << 17;
                    let block = (self.random >> 8) % self.blocks;
                    let buffers = self.buffers.len().max(1);
                    let slot = usize::try_from(self.random % 128).unwrap_or(0) % buffers;
                    let Some(buffer) = self.buffers.get_mut(slot) else {
                        return Err(io::ErrorKind::NotFound.into());
                    };
                    let bytes = u32::try_from(BLOCK).unwrap_or(0);
                    opcode::Read::new(types::Fixed(0), buffer.as_mut_ptr(), bytes)
                        .offset(block * u64::from(bytes))
                        .build()
                }
            };
            // SAFETY: the entry's buffer is one of `self.buffers`, whose memory neither moves nor is
            // freed before `Drop` has seen all operations end; what reads write there is never looked at.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                // The polling thread has not taken the last ones yet.
                break;
            }
            self.under_way += 1;
        }
        Ok(())
    }

    /// Takes out what has ended; waits for the first.
    fn reap(&mut self) -> io::Result<u64> {
        if self.ring.params().is_setup_sqpoll() {
            self.ring.submit()?;
            while self.under_way != 0 && self.ring.completion().is_empty() {
                std::hint::spin_loop();
            }
        } else {
            self.ring
                .submit_and_wait(usize::from(self.under_way != 0))?;
        }
        let mut ended = 0;
        for completion in self.ring.completion() {
            self.under_way = self.under_way.saturating_sub(1);
            ended += 1;
            if completion.result() < 0 {
                return Err(io::Error::from_raw_os_error(-completion.result()));
            }
        }
        Ok(ended)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        while self.under_way != 0 {
            if self.reap().is_err() && self.ring.completion().is_empty() {
                // The kernel may write there yet: better lost than reused.
                let _kept = ManuallyDrop::new(std::mem::take(&mut self.buffers));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Rings are forbidden in some containers: that is no fault of the load.
    fn rate(operation: Operation, submission: Submission) -> Option<f64> {
        match Load::new(operation, submission) {
            Ok(mut load) => Some(load.run(Duration::from_millis(5)).unwrap()),
            Err(error) => {
                let errno = error.raw_os_error();
                assert!(matches!(errno, Some(libc::EPERM | libc::ENOSYS)), "{error}");
                None
            }
        }
    }

    #[test]
    fn both_operations_run_in_both_ways() {
        for submission in [Submission::Call, Submission::Poll] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[7; 3 * BLOCK]).unwrap();
            for operation in [Operation::Nop, Operation::Read(file)] {
                assert!(rate(operation, submission).is_none_or(|rate| rate > 0.0));
            }
        }
    }

    #[test]
    fn an_empty_file_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(Load::new(Operation::Read(file), Submission::Call).is_err());
    }
}
