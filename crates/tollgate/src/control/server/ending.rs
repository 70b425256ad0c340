//! The control socket of a daemon that ends. Detaching hooks can take half a minute, in which no other daemon may start:
//! the socket stays, and requests are refused.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{Reply, Server, poll_timeout};
use crate::control::protocol::{Answer, Refusal};

/// A thread that refuses all requests until this is dropped, which removes the socket.
#[derive(Debug)]
pub(crate) struct EndingServer {
    end: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl EndingServer {
    /// Starts the thread.
    ///
    /// # Errors
    /// There are no resources for it.
    pub(crate) fn start(mut server: Server) -> anyhow::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let end =
            Arc::new(EventFd::from_flags(flags).context("cannot create an event descriptor")?);
        let ended = Arc::clone(&end);
        let thread = Builder::new()
            .name("tlg-ending".to_owned())
            .spawn(move || {
                while !wait(&server, &ended) {
                    server.serve(&mut |_peer, _request| Reply::Answer(Answer::Refused(refusal())));
                }
            })
            .context("cannot start the thread that refuses requests")?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for EndingServer {
    fn drop(&mut self) {
        // A thread that could not be told is left to the end of the process.
        if self.end.write(1).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _panicked = thread.join();
        }
    }
}

fn refusal() -> Refusal {
    let reason = "the daemon is ending: it detaches its hooks".to_owned();
    Refusal::with_reason(Errno::ESHUTDOWN, reason)
}

/// Waits for a client or the end; returns whether it is the end.
fn wait(server: &Server, end: &EventFd) -> bool {
    let mut wakers = [
        PollFd::new(end.as_fd(), PollFlags::POLLIN),
        PollFd::new(server.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut wakers, poll_timeout(server.time_left())) {
        Ok(_) | Err(Errno::EINTR) => wakers[0].any().unwrap_or(true),
        Err(_) => true,
    }
}
