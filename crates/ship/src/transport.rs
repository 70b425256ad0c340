//! Streams of bytes to a peer on this machine or another.

mod deadline;
mod standard_output;
mod tcp;
mod tls;
mod unix;

use std::io;
use std::time::{Duration, Instant};

pub(crate) use deadline::DeadlineStream;
pub(crate) use standard_output::StandardOutput;
pub(crate) use tcp::Tcp;
pub(crate) use tls::{Tls, TlsSettings, authorities, identity, provider, unusable};
pub(crate) use unix::UnixSocket;

/// Longest time in which a peer takes no byte.
const STALL: Duration = Duration::from_secs(30);
/// Longest time in which a peer reads the rest and closes, at the end of a run.
const END: Duration = Duration::from_secs(3);

/// A stream of bytes.
pub(crate) trait Transport: Send {
    /// Connects.
    ///
    /// # Errors
    /// There is no peer.
    fn connect(&mut self) -> anyhow::Result<()>;

    /// Sends bytes.
    ///
    /// # Errors
    /// The peer is gone, or takes no byte for too long.
    fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()>;

    /// How many of the `sent` bytes the peer may not have taken, at most.
    ///
    /// # Errors
    /// The peer is gone.
    fn not_taken(&mut self, sent: u64) -> anyhow::Result<u64>;

    /// Ends the stream, and waits until the peer has taken all bytes.
    ///
    /// # Errors
    /// The peer is gone, or takes too long.
    fn finish(&mut self) -> anyhow::Result<()>;

    /// Closes the stream.
    fn disconnect(&mut self);
}

/// Most times that a look at what a peer sends reads: a peer that sends on and on must not keep the sender busy.
const MOST_READS: usize = 64;

/// Waits until the peer of a stream has closed its end; what it sends is dropped.
///
/// # Errors
/// As of [`wait_for_end`].
fn drop_to_end(stream: &mut impl io::Read) -> anyhow::Result<()> {
    let mut dropped = [0; 4096];
    wait_for_end(|| Ok(stream.read(&mut dropped).map_err(stalled)?))
}

/// Waits until a peer has closed its end, by reads that end with it.
///
/// # Errors
/// The peer sends on and on, or a read fails.
fn wait_for_end(mut read: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while read()? > 0 {
        if begun.elapsed() > END {
            anyhow::bail!("the peer does not close the connection");
        }
    }
    Ok(())
}

/// The error of a stream that has not been connected.
pub(crate) fn not_connected() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// Says what a time that is over means.
fn stalled(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer takes no data: it hangs, or is too slow",
        ),
        _ => error,
    }
}
