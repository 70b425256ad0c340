//! Requests, as a listener gets them: heads of bounded size, whose bodies have a length; and the replies.
//!
//! What a head says in two ways, or leaves open, is refused: no peer before this one may have understood it differently.
//!
//! # Source
//! RFC 9112, sections 3, 6 and 9.

use std::io::Write as _;

use httparse::{EMPTY_HEADER, Request, Status};

/// Most bytes of a head.
const MAX_HEAD: usize = 8 << 10;
/// Most headers.
const MAX_HEADERS: usize = 64;

/// The head of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// Bytes of the head.
    pub(crate) len: usize,
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    /// In lower case, without parameters.
    pub(crate) content_type: String,
    /// In lower case; empty if the body is as it is.
    pub(crate) content_encoding: String,
    /// Bytes of the body.
    pub(crate) body: Option<u64>,
    /// The peer waits for the status 100 before it sends the body.
    pub(crate) expects_continue: bool,
    /// The peer sends another request on the connection.
    pub(crate) keeps_connection: bool,
}

/// A request that is refused by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("not a request of HTTP: {0}")]
    Malformed(httparse::Error),
    #[error("the head has more than {MAX_HEAD} bytes or {MAX_HEADERS} headers")]
    TooLong,
    #[error("not HTTP/1.1")]
    Version,
    #[error("no header `Host`, or several")]
    Host,
    #[error("`Content-Length` is no number, or there are two")]
    Length,
    #[error("`Transfer-Encoding` is not taken: send the body with `Content-Length`")]
    Chunks,
    #[error("an expectation that is not known")]
    Expectation,
    #[error("a header that must come once comes twice")]
    Twice,
}

impl RequestError {
    /// The status of its reply.
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::Host | Self::Length | Self::Twice => 400,
            Self::TooLong => 431,
            Self::Version => 505,
            Self::Chunks => 411,
            Self::Expectation => 417,
        }
    }
}

impl RequestHead {
    /// The head at the start of `bytes`; `None` if more of them are needed.
    ///
    /// # Errors
    /// It is none, or not understood. What follows it is unknown.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, RequestError> {
        let start = bytes.get(..MAX_HEAD).unwrap_or(bytes);
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = Request::new(&mut headers);
        let len = match request.parse(start) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(RequestError::TooLong);
            }
            Err(error) => return Err(RequestError::Malformed(error)),
        };
        if request.version != Some(1) {
            return Err(RequestError::Version);
        }
        let path = request.path.unwrap_or_default();
        let mut head = Self {
            len,
            method: request.method.unwrap_or_default().to_owned(),
            path: path.split('?').next().unwrap_or_default().to_owned(),
            keeps_connection: true,
            ..Self::default()
        };
        let mut hosts = 0;
        for header in request.headers.iter() {
            hosts += u32::from(header.name.eq_ignore_ascii_case("host"));
            head.take(header.name, header.value)?;
        }
        match hosts {
            1 => Ok(Some(head)),
            _ => Err(RequestError::Host),
        }
    }

    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), RequestError> {
        let value = String::from_utf8_lossy(value).trim().to_ascii_lowercase();
        let set = |to: &mut String, value: &str| match to.is_empty() {
            true => {
                value.clone_into(to);
                Ok(())
            }
            false => Err(RequestError::Twice),
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                let length = value.parse().ok().filter(|_| is_number);
                if length.is_none() || self.body.is_some() {
                    return Err(RequestError::Length);
                }
                self.body = length;
            }
            "transfer-encoding" => return Err(RequestError::Chunks),
            "content-type" => {
                let kind = value.split(';').next().unwrap_or_default();
                set(&mut self.content_type, kind.trim_end())?;
            }
            "content-encoding" if value != "identity" => set(&mut self.content_encoding, &value)?,
            "expect" if value == "100-continue" => self.expects_continue = true,
            "expect" => return Err(RequestError::Expectation),
            "connection" => self.keeps_connection &= !value.contains("close"),
            _ => {}
        }
        Ok(())
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) status: u16,
    pub(crate) keeps_connection: bool,
    /// `Retry-After`, in seconds.
    pub(crate) retry_after: Option<u32>,
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
}

impl Reply<'_> {
    /// What lets a peer send the body that it holds back.
    pub(crate) const CONTINUE: &'static [u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

    /// Appends the reply.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let (status, reason) = (self.status, reason(self.status));
        let (kind, len) = (self.content_type, self.body.len());
        // Writing to memory cannot fail.
        let _written = write!(
            to,
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n"
        );
        if let Some(seconds) = self.retry_after {
            let _written = write!(to, "Retry-After: {seconds}\r\n");
        }
        if status == 405 {
            to.extend_from_slice(b"Allow: POST\r\n");
        }
        if !self.keeps_connection {
            to.extend_from_slice(b"Connection: close\r\n");
        }
        to.extend_from_slice(b"\r\n");
        to.extend_from_slice(self.body);
    }
}

/// The reason phrase of a status that is sent.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use inputs::fuzz::fuzz;

    use super::*;

    const HEAD: &str = "POST /v1/logs?a=b HTTP/1.1\r\nHost: a\r\nContent-Type: Application/X-Protobuf; a=b\r\nContent-Encoding: GZIP\r\nContent-Length: 5\r\n\r\n";

    fn parse(text: &str) -> Result<Option<RequestHead>, RequestError> {
        RequestHead::parse(text.as_bytes())
    }

    #[test]
    fn heads_say_what_follows() {
        let expected = RequestHead {
            len: HEAD.len(),
            method: "POST".to_owned(),
            path: "/v1/logs".to_owned(),
            content_type: "application/x-protobuf".to_owned(),
            content_encoding: "gzip".to_owned(),
            body: Some(5),
            expects_continue: false,
            keeps_connection: true,
        };
        let with_body = HEAD.to_owned() + "12345POST";
        assert_eq!(parse(&with_body), Ok(Some(expected)));
        for end in 0..HEAD.len() {
            assert_eq!(
                RequestHead::parse(&HEAD.as_bytes()[..end]),
                Ok(None),
                "{end}"
            );
        }
        let plain = HEAD.replace("GZIP", "identity").replace(
            "Host: a",
            "Host: a\r\nExpect: 100-Continue\r\nConnection: Close",
        );
        let head = parse(&plain).unwrap().unwrap();
        assert_eq!(head.content_encoding, "");
        assert!(head.expects_continue && !head.keeps_connection);
    }

    #[test]
    fn heads_that_can_be_understood_differently_are_refused() {
        for (from, to, expected) in [
            ("HTTP/1.1", "HTTP/1.0", RequestError::Version),
            (
                "HTTP/1.1",
                "HTTP/2.0",
                RequestError::Malformed(httparse::Error::Version),
            ),
            (
                "POST ",
                "POST\0",
                RequestError::Malformed(httparse::Error::Token),
            ),
            ("Host: a\r\n", "", RequestError::Host),
            ("Host: a", "Host: a\r\nHost: a", RequestError::Host),
            ("h: 5", "h: -5", RequestError::Length),
            ("h: 5", "h: +5", RequestError::Length),
            ("h: 5", "h: 5, 5", RequestError::Length),
            ("h: 5", "h:", RequestError::Length),
            ("h: 5", "h: 99999999999999999999", RequestError::Length),
            (
                "Host: a",
                "Host: a\r\nContent-Length: 5",
                RequestError::Length,
            ),
            (
                "Host: a",
                "Host: a\r\nTransfer-Encoding: chunked",
                RequestError::Chunks,
            ),
            (
                "Host: a",
                "Host: a\r\nExpect: more",
                RequestError::Expectation,
            ),
            (
                "Host: a",
                "Host: a\r\nContent-Encoding: br",
                RequestError::Twice,
            ),
            (
                "Host: a",
                "Host : a",
                RequestError::Malformed(httparse::Error::HeaderName),
            ),
            (
                "Host: a",
                "Host: a\r\n b",
                RequestError::Malformed(httparse::Error::HeaderName),
            ),
        ] {
            assert_eq!(parse(&HEAD.replace(from, to)), Err(expected), "{to}");
        }
        let many = HEAD.replace(
            "Host: a",
            &format!("Host: a{}", "\r\na: b".repeat(MAX_HEADERS)),
        );
        assert_eq!(parse(&many), Err(RequestError::TooLong));
        let long = vec![b'P'; MAX_HEAD];
        assert_eq!(RequestHead::parse(&long[1..]), Ok(None));
        assert_eq!(RequestHead::parse(&long), Err(RequestError::TooLong));
    }

    #[test]
    fn replies_are_what_the_client_of_this_program_reads() {
        let mut bytes = Vec::new();
        for status in [200, 400, 403, 404, 405, 411, 413, 415, 417, 431, 503, 505] {
            assert!(!reason(status).is_empty(), "{status}");
            let reply = Reply {
                status,
                keeps_connection: status == 200,
                retry_after: (status == 503).then_some(7),
                content_type: "a/b",
                body: b"text",
            };
            bytes.clear();
            bytes.extend_from_slice(Reply::CONTINUE);
            reply.encode(&mut bytes);
            let answer = super::super::answer::read(&mut &*bytes).unwrap();
            assert_eq!((answer.status, &*answer.body), (status, &b"text"[..]));
            assert_eq!(answer.keeps_connection, status == 200);
            assert_eq!(answer.retry_after.is_some(), status == 503);
            assert_eq!(answer.content_type, "a/b");
        }
    }

    /// Whatever comes is a head within its bytes, or none.
    #[test]
    fn fuzz_collect_http_heads() {
        let words = [
            "\r\n",
            ": ",
            "Content-Length",
            "chunked",
            "HTTP/1.1",
            "Expect",
            "close",
        ];
        fuzz(
            "fuzz_collect_http_heads",
            &[HEAD.as_bytes().to_vec()],
            &words,
            2000,
            |bytes| {
                if let Ok(Some(head)) = RequestHead::parse(bytes) {
                    assert!(head.len <= bytes.len().min(MAX_HEAD));
                    // The same, whatever follows.
                    assert_eq!(RequestHead::parse(&bytes[..head.len]), Ok(Some(head)));
                }
            },
        );
    }
}
