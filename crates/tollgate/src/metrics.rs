//! Metrics for Prometheus, over HTTP on a unix socket or on loopback; off unless `tollgate.toml` says where.
//!
//! The thread `tlg-metrics` serves one request after the other, and asks the daemon as `tollgate status` does:
//! it knows nothing that the control socket does not tell. Who is too slow, or asks for too much, is let go:
//! nobody can hold the daemon up, and others only for [`PATIENCE`]. [`text`] has the format.

mod text;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bstr::ByteSlice as _;
use crossbeam_channel::after;
use nix::errno::Errno;
use serde::Deserialize;

use crate::cli::report::warn;
use crate::control::client::Client;
use crate::control::wire::{Answer, Request, Status};

/// Longest time from a connection to a whole request, and for the answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request with all its headers.
const REQUEST_LIMIT_BYTES: usize = 8 << 10;
/// What is short for a while, and then is there again.
const SHORT: [Errno; 4] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Address {
    /// A unix socket, which only root can open.
    Unix(PathBuf),
    /// An address of this machine that no other can reach.
    Loopback(SocketAddr),
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(address) => Err(format!(
                "`{address}` can be reached by other machines: write an address of loopback"
            )),
            Err(_) => Err(format!(
                "`{text}` is no path, and no address and port such as 127.0.0.1:9465"
            )),
        }
    }
}

/// A socket that is listened on, and whom to ask.
#[derive(Debug)]
pub(crate) struct Metrics {
    listener: Listener,
    control: PathBuf,
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Loopback(TcpListener),
}

impl Metrics {
    /// Listens, and will ask the daemon at `control`.
    ///
    /// # Errors
    /// When something else is there.
    pub(crate) fn listen(address: &Address, control: &Path) -> anyhow::Result<Self> {
        let listener = match address {
            Address::Unix(path) => unix(path)?,
            Address::Loopback(address) => TcpListener::bind(address)
                .map(Listener::Loopback)
                .with_context(|| format!("cannot serve metrics at {address}"))?,
        };
        Ok(Self {
            listener,
            control: control.to_owned(),
        })
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn start(self) -> anyhow::Result<()> {
        thread::Builder::new()
            .name("tlg-metrics".to_owned())
            .spawn(move || while self.serve_next() {})
            .context("cannot start thread `tlg-metrics`")?;
        Ok(())
    }

    /// Serves whoever comes next; whether somebody can come after that.
    fn serve_next(&self) -> bool {
        let accepted = match &self.listener {
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                self.serve(stream)
            }),
            Listener::Loopback(listener) => listener.accept().map(|(stream, _)| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                self.serve(stream)
            }),
        };
        match accepted {
            // Who has gone away, or was too slow, is no matter of ours.
            Ok(_served) => true,
            Err(error) if SHORT.iter().any(|&short| is(&error, short)) => {
                let _now = after(PATIENCE).recv();
                true
            }
            Err(error) if is(&error, Errno::ECONNABORTED) || is(&error, Errno::EINTR) => true,
            Err(error) => {
                warn(&format!("metrics are served no more: {error}"));
                false
            }
        }
    }

    /// Reads a request and answers it.
    fn serve(&self, mut stream: impl Read + Write) -> io::Result<()> {
        let answer = answer(&request(&mut stream)?, || self.status());
        stream.write_all(&answer)
    }

    fn status(&self) -> anyhow::Result<Status> {
        match Client::connect(&self.control)?.ask(Request::Status)? {
            Answer::Status(status) => Ok(*status),
            Answer::Refused(refusal) => bail!(refusal.reason),
            _ => bail!("the daemon answers what was not asked"),
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

/// A socket that only root can open, in place of one that nobody listens on any more.
fn unix(path: &Path) -> anyhow::Result<Listener> {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    if path
        .symlink_metadata()
        .is_ok_and(|about| about.file_type().is_socket())
    {
        if UnixStream::connect(path).is_ok() {
            bail!("cannot serve metrics at `{shown}`: somebody else listens there");
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove `{shown}`"))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot serve metrics at `{shown}`"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot keep others from `{shown}`"))?;
    Ok(Listener::Unix(listener))
}

/// The first line of a request, once all of it is there.
fn request(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut taken = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if let Some((head, _)) = taken.split_once_str("\r\n\r\n") {
            return Ok(head.lines().next().unwrap_or_default().to_owned());
        }
        if taken.len() > REQUEST_LIMIT_BYTES || Instant::now() > deadline {
            return Err(ErrorKind::InvalidData.into());
        }
        match stream.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => taken.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        }
    }
}

/// What is answered to a request of this first line.
fn answer(request: &[u8], status: impl FnOnce() -> anyhow::Result<Status>) -> Vec<u8> {
    let words: Vec<&[u8]> = request.split(|&byte| byte == b' ').collect();
    let (head, body) = match words.as_slice() {
        [b"GET", path, version] if version.starts_with(b"HTTP/1.") => {
            match path.split(|&byte| byte == b'?').next() {
                Some(b"/metrics") => match status() {
                    Ok(status) => ("200 OK", text::of(&status)),
                    Err(error) => ("503 Service Unavailable", format!("{error:#}\n")),
                },
                _ => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/1.") => {
            ("405 Method Not Allowed", "only GET\n".to_owned())
        }
        _ => ("400 Bad Request", "no request of HTTP/1\n".to_owned()),
    };
    format!(
        "HTTP/1.1 {head}\r\nContent-Type: {FORMAT}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request: &[u8]) -> String {
        let answer = answer(request, || Ok(Status::default()));
        let line = answer.lines().next().unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    }

    #[test]
    fn only_addresses_of_this_machine_are_taken() {
        let address = |text: &str| Address::try_from(text.to_owned());
        assert_eq!(address("/run/x"), Ok(Address::Unix("/run/x".into())));
        for text in ["127.0.0.1:9465", "[::1]:9465"] {
            assert_eq!(address(text), Ok(Address::Loopback(text.parse().unwrap())));
        }
        for (text, word) in [
            ("0.0.0.0:9465", "other machines"),
            ("10.0.0.1:1", "other machines"),
            ("localhost:9465", "no path"),
            ("x", "no path"),
        ] {
            assert!(address(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn a_request_has_an_end_and_a_limit() {
        let mut whole: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(request(&mut whole).unwrap(), b"GET /metrics HTTP/1.1");
        let mut cut: &[u8] = b"GET /metrics HTTP/1.1\r\n";
        request(&mut cut).unwrap_err();
        let mut endless = io::repeat(b'a');
        request(&mut endless).unwrap_err();
    }

    #[test]
    fn what_is_asked_for_is_answered_and_nothing_else() {
        assert_eq!(head(b"GET /metrics HTTP/1.1"), "HTTP/1.1 200 OK");
        assert_eq!(head(b"GET /metrics?x=y HTTP/1.0"), "HTTP/1.1 200 OK");
        assert_eq!(head(b"GET / HTTP/1.1"), "HTTP/1.1 404 Not Found");
        assert_eq!(
            head(b"POST /metrics HTTP/1.1"),
            "HTTP/1.1 405 Method Not Allowed"
        );
        for wrong in [&b""[..], b"GET", b"GET /metrics", b"\xff \xff \xff"] {
            assert_eq!(head(wrong), "HTTP/1.1 400 Bad Request");
        }
        let busy = answer(b"GET /metrics HTTP/1.1", || bail!("busy"));
        assert!(busy.starts_with(b"HTTP/1.1 503 "));
    }
}
