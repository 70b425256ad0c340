//! An HTTP/1.1 client for one address: requests with a body, one after another on a connection that is kept. For
//! listeners, [`request`] has the heads of such requests, and their answers.
//!
//! Answers are not trusted: their size and the time until their end are bounded, and nothing that they say is followed.
//!
//! # Source
//! RFC 9110 and RFC 9112.

mod answer;
mod headers;
mod request;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use crate::transport::{DeadlineStream, TlsSettings};
pub(crate) use answer::Answer;
use answer::ReadError;
#[cfg(test)]
pub(crate) use answer::tests::read_answer;
pub(crate) use headers::{HeaderFile, HeaderValue, is_header_name};
pub(crate) use request::{Reply, RequestError, RequestHead};

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// Host, and the port if it is not that of the scheme, as in the URL.
    pub(crate) authority: String,
    /// Path, with the query.
    pub(crate) target: String,
    pub(crate) tls: Option<TlsSettings>,
    /// Headers that each request has, by their names.
    pub(crate) headers: Vec<(String, HeaderValue)>,
    /// Longest time from the start of a request to the end of its answer.
    pub(crate) timeout: Duration,
}

/// A client.
pub(crate) struct HttpClient {
    endpoint: Endpoint,
    open: Option<Open>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Path, with the query.
    pub(crate) target: &'a str,
    /// Lines of headers about it.
    pub(crate) about: &'a str,
    pub(crate) body: Body<'a>,
}

/// What a request has behind its head. It can be sent twice.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    Bytes(&'a [u8]),
    /// So many bytes from the start of a file.
    File(&'a File, u64),
}

/// Bytes of a file that are read at once.
const FILE_BYTES: usize = 64 << 10;

/// A connection.
struct Open {
    stream: DeadlineStream,
    /// Lines of the headers that the configuration names.
    headers: Vec<u8>,
    is_used: bool,
}

/// An exchange that failed.
struct Failure {
    error: anyhow::Error,
    /// The peer has closed the connection and sent nothing: it may not have seen the request.
    is_closed: bool,
}

impl Endpoint {
    /// The URL, without the query: it may have a secret.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let path = self.target.split('?').next().unwrap_or_default();
        format!("{scheme}://{}{path}", self.authority)
    }
}

impl Body<'_> {
    fn len(self) -> u64 {
        match self {
            Self::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::File(_, len) => len,
        }
    }

    fn write(self, to: &mut impl io::Write) -> io::Result<()> {
        let (file, len) = match self {
            Self::Bytes(bytes) => return to.write_all(bytes),
            Self::File(file, len) => (file, len),
        };
        let mut buffer = vec![0; FILE_BYTES];
        let mut sent = 0;
        while sent < len {
            let wanted =
                usize::try_from(len - sent).map_or(FILE_BYTES, |left| left.min(FILE_BYTES));
            let part = buffer.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(part, sent)?;
            to.write_all(part)?;
            sent += u64::try_from(part.len()).unwrap_or(len);
        }
        Ok(())
    }
}

impl HttpClient {
    pub(crate) const fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            open: None,
        }
    }

    /// The URL, for people.
    pub(crate) fn shown(&self) -> String {
        self.endpoint.shown()
    }

    /// Connects. Files of headers and certificates are read: they may be renewed while the program runs.
    ///
    /// # Errors
    /// A file cannot be read, or the peer cannot be reached.
    pub(crate) fn connect(&mut self) -> anyhow::Result<()> {
        self.open = None;
        let mut headers = Vec::new();
        for (name, value) in &self.endpoint.headers {
            value.append(name, &mut headers)?;
        }
        let tls = self.endpoint.tls.as_ref();
        let stream = DeadlineStream::connect(&self.endpoint.address, tls, self.endpoint.timeout)?;
        self.open = Some(Open {
            stream,
            headers,
            is_used: false,
        });
        Ok(())
    }

    /// Sends a body to the target of the endpoint, with lines of headers about it, and returns the answer.
    ///
    /// # Errors
    /// As of [`HttpClient::send`].
    pub(crate) fn post(&mut self, about: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let target = self.endpoint.target.clone();
        self.send(Request {
            method: "POST",
            target: &target,
            about,
            body: Body::Bytes(body),
        })
    }

    /// Sends a request, and returns the answer. A peer that has closed a connection which it had kept is connected again,
    /// once.
    ///
    /// # Errors
    /// The peer cannot be reached, takes too long, or its answer is none; or a file that is sent cannot be read.
    pub(crate) fn send(&mut self, request: Request<'_>) -> anyhow::Result<Answer> {
        let is_stale = |open: &mut Open| open.is_used && open.stream.is_stale();
        if self.open.as_mut().is_none_or(is_stale) {
            self.connect()?;
        }
        let is_used = self.open.as_ref().is_some_and(|open| open.is_used);
        match self.exchange(request) {
            Err(failure) if failure.is_closed && is_used => {
                self.connect()?;
                self.exchange(request).map_err(|failure| failure.error)
            }
            answer => answer.map_err(|failure| failure.error),
        }
    }

    fn exchange(&mut self, request: Request<'_>) -> Result<Answer, Failure> {
        let Some(mut open) = self.open.take() else {
            return Err(self.no_answer(io::ErrorKind::NotConnected.into()));
        };
        open.stream
            .set_deadline(Instant::now() + self.endpoint.timeout);
        let written = self.write(&mut open, request);
        // A peer may refuse a request before it has read all of it.
        let answer = match answer::read(&mut open.stream) {
            Ok(answer) => answer,
            Err(ReadError::Nothing(error)) => {
                return Err(self.no_answer(written.err().unwrap_or(error)));
            }
            Err(ReadError::Bad(error)) => return Err(self.bad_answer(error)),
        };
        open.is_used = true;
        if answer.keeps_connection && written.is_ok() {
            self.open = Some(open);
        }
        Ok(answer)
    }

    fn write(&self, open: &mut Open, request: Request<'_>) -> io::Result<()> {
        let mut head = Vec::with_capacity(512 + open.headers.len());
        let Request {
            method,
            target,
            about,
            body,
        } = request;
        let authority = &self.endpoint.authority;
        write!(
            head,
            "{method} {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: tollgate-ship/{}\r\n{about}Content-Length: {}\r\n",
            env!("CARGO_PKG_VERSION"),
            body.len()
        )?;
        head.extend_from_slice(&open.headers);
        head.extend_from_slice(b"\r\n");
        open.stream.write_all(&head)?;
        body.write(&mut open.stream)?;
        open.stream.flush()
    }

    /// Nothing was received.
    fn no_answer(&self, error: io::Error) -> Failure {
        let is_closed = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        );
        let tls = self.endpoint.tls.as_ref();
        let is_unknown = tls.is_some_and(|tls| tls.identity.is_none());
        let what = match (is_closed, is_unknown) {
            (true, true) => {
                "has closed the connection without an answer: it may ask for a certificate of this machine"
            }
            (true, false) => "has closed the connection without an answer",
            (false, _) => "has not answered",
        };
        Failure {
            error: self.told(what, error.into()),
            is_closed,
        }
    }

    /// What was received is no answer, or not all of it.
    fn bad_answer(&self, error: anyhow::Error) -> Failure {
        Failure {
            error: self.told("has not answered in HTTP", error),
            is_closed: false,
        }
    }

    fn told(&self, what: &str, error: anyhow::Error) -> anyhow::Error {
        let url = self.shown();
        let io = error.downcast_ref::<io::Error>();
        match io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            true => {
                let seconds = self.endpoint.timeout.as_secs();
                error.context(format!("`{url}` has not answered within {seconds} seconds"))
            }
            false => error.context(format!("`{url}` {what}")),
        }
    }

    pub(crate) fn disconnect(&mut self) {
        self.open = None;
    }
}
