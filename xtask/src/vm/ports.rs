//! Reads the two serial ports of a machine: that of the tests and that of the kernel's messages, which would
//! otherwise break the tests' lines. Both give one sequence of lines, in the order in which the machine wrote them.

use std::io::{self, Read};
use std::mem;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Lines of both ports; the channel closes when both are closed.
pub(super) fn lines<Tests, Kernel>(tests: Tests, kernel: Kernel) -> Receiver<String>
where
    Tests: Read + AsFd + Send + 'static,
    Kernel: Read + AsFd + Send + 'static,
{
    let (to, lines) = channel();
    thread::spawn(move || {
        // Whoever reads the lines sees the end of a port that cannot be read.
        let _end = forward(Port::new(tests), Port::new(kernel), &to);
    });
    lines
}

/// A port, and the part of its next line that has been read.
struct Port<From> {
    from: From,
    is_open: bool,
    part: Vec<u8>,
}

impl<From: Read + AsFd> Port<From> {
    const fn new(from: From) -> Self {
        Self {
            from,
            is_open: true,
            part: Vec::new(),
        }
    }

    /// What to wait for; nothing after the end of the port, at which poll(2) would return at once.
    fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.is_open
            .then(|| PollFd::new(self.from.as_fd(), PollFlags::POLLIN))
    }

    /// Whether [`Self::read`] returns at once.
    fn is_ready(&self) -> io::Result<bool> {
        match self.poll_fd() {
            Some(waker) => Ok(poll(&mut [waker], PollTimeout::ZERO)? > 0),
            None => Ok(false),
        }
    }

    /// Reads what is there; returns the lines that it ends.
    fn read(&mut self) -> io::Result<Vec<String>> {
        let mut bytes = [0; 4096];
        let size = self.from.read(&mut bytes)?;
        self.is_open = size > 0;
        let mut ended = Vec::new();
        for &byte in &bytes[..size] {
            if byte == b'\n' {
                ended.push(self.take_line());
            } else {
                self.part.push(byte);
            }
        }
        if !self.is_open && !self.part.is_empty() {
            ended.push(self.take_line());
        }
        Ok(ended)
    }

    /// Firmware writes bytes that are not UTF-8.
    fn take_line(&mut self) -> String {
        String::from_utf8_lossy(&mem::take(&mut self.part)).into_owned()
    }
}

/// A panic follows the line by which a test announces it: what the kernel's port has is passed on after all that the
/// tests' port has then.
fn forward(
    mut tests: Port<impl Read + AsFd>,
    mut kernel: Port<impl Read + AsFd>,
    to: &Sender<String>,
) -> io::Result<()> {
    while tests.is_open || kernel.is_open {
        let wakers = [tests.poll_fd(), kernel.poll_fd()].into_iter().flatten();
        match poll(&mut wakers.collect::<Vec<_>>(), PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let later = if kernel.is_ready()? {
            kernel.read()?
        } else {
            Vec::new()
        };
        while tests.is_ready()? {
            send(tests.read()?, to);
        }
        send(later, to);
    }
    Ok(())
}

/// The reader may have stopped to listen; the machine must still be able to write.
fn send(lines: Vec<String>, to: &Sender<String>) {
    for line in lines {
        let _unheard = to.send(line);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, pipe};
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn messages_of_the_kernel_do_not_break_lines_of_tests() {
        let (tests, mut from_tests) = pipe().unwrap();
        let (kernel, mut from_kernel) = pipe().unwrap();
        let lines = lines(tests, kernel);
        from_tests.write_all(b"vm: ok 1.75 de").unwrap();
        from_kernel.write_all(b"[ 447.8] tollgate: lost\n").unwrap();
        assert_eq!(lines.recv_timeout(SOON).unwrap(), "[ 447.8] tollgate: lost");
        from_tests.write_all(b"ny::a\n").unwrap();
        drop(from_tests);
        assert_eq!(lines.recv_timeout(SOON).unwrap(), "vm: ok 1.75 deny::a");
        from_kernel.write_all(b"no end").unwrap();
        drop(from_kernel);
        assert_eq!(lines.recv_timeout(SOON).unwrap(), "no end");
        assert!(lines.recv_timeout(SOON).is_err());
    }

    #[test]
    fn lines_of_tests_come_before_later_messages_of_the_kernel() {
        for round in 0..200 {
            let (tests, mut from_tests) = pipe().unwrap();
            let (kernel, mut from_kernel) = pipe().unwrap();
            let lines = lines(tests, kernel);
            from_tests.write_all(b"vm: crash a\n").unwrap();
            from_kernel.write_all(b"Kernel panic\n").unwrap();
            assert_eq!(lines.recv_timeout(SOON).unwrap(), "vm: crash a", "{round}");
            assert_eq!(lines.recv_timeout(SOON).unwrap(), "Kernel panic", "{round}");
        }
    }
}
