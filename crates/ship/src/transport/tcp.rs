//! A TCP connection.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use rustix::net::sockopt;

use super::{END, MOST_READS, STALL, Transport, drop_to_end, not_connected, stalled};

/// Longest time in which a connection is made, or a handshake done.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// Longest time in which the peer's kernel acknowledges nothing.
const ACKNOWLEDGE_MS: u32 = 60_000;
/// When a connection without traffic is tested, and how often.
const KEEP_IDLE: Duration = Duration::from_secs(30);
const KEEP_INTERVAL: Duration = Duration::from_secs(10);

/// A TCP connection.
pub(crate) struct Tcp {
    /// `HOST:PORT`.
    address: String,
    stream: Option<TcpStream>,
}

impl Tcp {
    pub(crate) const fn new(address: String) -> Self {
        Self {
            address,
            stream: None,
        }
    }
}

/// Connects to the first address of a name that answers.
///
/// # Errors
/// The name has no address, or none answers.
pub(super) fn connect(address: &str) -> anyhow::Result<TcpStream> {
    let found = address
        .to_socket_addrs()
        .with_context(|| format!("cannot look up `{address}`"))?;
    let mut failed = None;
    for found in found {
        match TcpStream::connect_timeout(&found, CONNECT) {
            Ok(stream) => {
                set_up(&stream)?;
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
    }
    let error = failed.unwrap_or_else(|| io::ErrorKind::NotFound.into());
    Err(error).with_context(|| format!("cannot connect to `{address}`"))
}

fn set_up(stream: &TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(STALL))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_INTERVAL)?;
    sockopt::set_tcp_user_timeout(stream, ACKNOWLEDGE_MS)?;
    not_acknowledged(stream)?;
    Ok(())
}

/// Bytes that the peer's kernel has not acknowledged.
///
/// # Errors
/// The connection has ended, or `/proc` cannot be read.
///
/// # Source
/// `proc_pid_net(5)`: `tx_queue` of `tcp` and `tcp6` is what the ioctl `SIOCOUTQ` of `tcp(7)` returns.
pub(super) fn not_acknowledged(stream: &TcpStream) -> anyhow::Result<u64> {
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    let path = match local {
        SocketAddr::V4(_) => "/proc/self/net/tcp",
        SocketAddr::V6(_) => "/proc/self/net/tcp6",
    };
    let table = fs::read_to_string(path).with_context(|| format!("cannot read `{path}`"))?;
    let ends = format!(" {} {} ", written(local), written(peer));
    let row = table.lines().find_map(|row| row.split_once(&ends));
    let Some((_, rest)) = row else {
        bail!("the connection has ended");
    };
    // Two digits of the state, and a blank.
    let queue = rest.get(3..).and_then(|rest| rest.split(':').next());
    let bytes = queue.and_then(|queue| u64::from_str_radix(queue, 16).ok());
    bytes.with_context(|| format!("`{path}` has an unknown form"))
}

/// An address as `/proc` writes it: words of the address as numbers of this machine.
fn written(address: SocketAddr) -> String {
    let word = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
    let words: String = match address.ip() {
        IpAddr::V4(address) => word(address.octets()),
        IpAddr::V6(address) => {
            let octets = address.octets();
            octets.as_chunks().0.iter().copied().map(word).collect()
        }
    };
    format!("{words}:{:04X}", address.port())
}

/// Whether the peer has closed the connection. What it sends is dropped.
///
/// # Errors
/// It has.
pub(super) fn check_open(stream: &TcpStream) -> anyhow::Result<()> {
    let mut dropped = [0; 4096];
    for _ in 0..MOST_READS {
        match recv(stream.as_raw_fd(), &mut dropped, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => {
                let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(closed).context("the peer has closed the connection");
            }
            Ok(_) => {}
            Err(Errno::EAGAIN) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

impl Transport for Tcp {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.stream = Some(connect(&self.address)?);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let stream = self.stream.as_mut().ok_or_else(not_connected)?;
        check_open(stream)?;
        Ok(stream.write_all(bytes).map_err(stalled)?)
    }

    fn not_taken(&mut self, _sent: u64) -> anyhow::Result<u64> {
        let stream = self.stream.as_ref().ok_or_else(not_connected)?;
        check_open(stream)?;
        not_acknowledged(stream)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let mut stream = self.stream.take().ok_or_else(not_connected)?;
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(END))?;
        drop_to_end(&mut stream)
    }

    fn disconnect(&mut self) {
        self.stream = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn bytes_that_are_not_acknowledged_are_counted() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut tcp = Tcp::new(listener.local_addr().unwrap().to_string());
            tcp.connect().unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            // More than the buffers of both kernels.
            let stream = tcp.stream.as_ref().unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut sent = 0;
            let many = vec![b'a'; 1 << 16];
            while let Ok(count) = tcp.stream.as_ref().unwrap().write(&many) {
                sent += count;
            }
            let waiting = tcp.not_taken(0).unwrap();
            assert!(waiting > 0 && waiting < u64::try_from(sent).unwrap());
            let mut left = sent;
            let mut buffer = vec![0; 1 << 20];
            while left > 0 {
                left -= peer.read(&mut buffer).unwrap();
            }
            while tcp.not_taken(0).unwrap() > 0 {
                std::thread::yield_now();
            }
            drop(peer);
            let error = loop {
                match tcp.not_taken(0) {
                    Ok(_) => std::thread::yield_now(),
                    Err(error) => break format!("{error:#}"),
                }
            };
            assert!(
                error.contains("the peer has closed the connection"),
                "{error}"
            );
        }
    }
}
