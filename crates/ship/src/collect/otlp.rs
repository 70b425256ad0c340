//! Requests of OTLP/HTTP: which are taken, what their bodies are, and which messages log records become.
//!
//! | request | reply |
//! | --- | --- |
//! | its records are written, but for those that can never be | 200; `partial_success` counts the others |
//! | too many lines are refused: those before are written | 400 |
//! | not as OTLP or HTTP have it: nothing is written | 400, 404, 405, 411, 413, 415, 417, 431, 505 |
//! | the configuration refuses the host of a record; other records are written | 403 |
//! | no room on the disk, or no memory | 503 with `Retry-After` |
//!
//! # Source
//! OTLP specification 1.5, "OTLP/HTTP".

use std::borrow::Cow;
use std::io::Read as _;

use audit::record::decode;
use flate2::bufread::GzDecoder;

use super::shipped::{Kind, RecordNumber, ShippedMessage, boot_id};
use crate::http::{RequestError, RequestHead};
use crate::otlp::{EVENT, GAP, HEARTBEAT, LogRecord};

/// The only path.
const PATH: &str = "/v1/logs";
/// The only type of bodies and replies.
pub(super) const PROTOBUF: &str = "application/x-protobuf";
/// Most bytes of a body, as it comes and as it is unpacked. `tollgate-ship` sends some 3 MiB at most: 1 MiB of records, and
/// one more record.
const MAX_BODY: u64 = 4 << 20;
/// Most lines of a request that are refused: a small request can have millions, and each is told.
pub(super) const MAX_REFUSED: u32 = 1000;
/// Seconds after which a peer tries again: other requests are complete then, or somebody has made room.
const BUSY_SECONDS: u32 = 1;
const DISK_SECONDS: u32 = 5;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum OtlpError {
    #[error("{0}")]
    Head(#[from] RequestError),
    #[error("only `{PATH}` is taken: look at the path in the URL")]
    Path,
    #[error("only POST is taken")]
    Method,
    #[error("only `{PROTOBUF}` is taken")]
    ContentType,
    #[error("the body must be as it is, or have the encoding `gzip`")]
    Encoding,
    #[error("no header `Content-Length`")]
    NoLength,
    #[error("the body has more than {MAX_BODY} bytes: send less at a time")]
    TooLarge,
    #[error("the body is not gzip: {0}")]
    Gzip(std::io::Error),
    #[error("bytes follow the end of gzip in the body")]
    GzipEnd,
    #[error("the body is no request of OTLP: {0:#}")]
    Protobuf(anyhow::Error),
    #[error("more than {MAX_REFUSED} lines are refused, the last one because of this: {0}")]
    Refused(String),
    #[error("too many requests at a time")]
    Busy,
    #[error("{0}")]
    Host(String),
    #[error("{0}")]
    Write(String),
}

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Gzip,
}

impl OtlpError {
    /// The status of the reply.
    pub(super) const fn status(&self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::Gzip(_) | Self::GzipEnd | Self::Protobuf(_) | Self::Refused(_) => 400,
            Self::Host(_) => 403,
            Self::Path => 404,
            Self::Method => 405,
            Self::NoLength => 411,
            Self::TooLarge => 413,
            Self::ContentType | Self::Encoding => 415,
            Self::Busy | Self::Write(_) => 503,
        }
    }

    /// When the same request may be taken, in seconds.
    pub(super) const fn retry_after(&self) -> Option<u32> {
        match self {
            Self::Busy => Some(BUSY_SECONDS),
            Self::Write(_) => Some(DISK_SECONDS),
            _ => None,
        }
    }
}

/// The bytes of the body that follows a head, and how it is packed.
///
/// # Errors
/// It is not taken.
pub(super) fn check(head: &RequestHead) -> Result<(usize, Packing), OtlpError> {
    if head.path != PATH {
        return Err(OtlpError::Path);
    }
    if head.method != "POST" {
        return Err(OtlpError::Method);
    }
    if head.content_type != PROTOBUF {
        return Err(OtlpError::ContentType);
    }
    let packing = match head.content_encoding.as_str() {
        "" => Packing::None,
        "gzip" => Packing::Gzip,
        _ => return Err(OtlpError::Encoding),
    };
    let bytes = head.body.ok_or(OtlpError::NoLength)?;
    let bytes = usize::try_from(bytes).ok().filter(|_| bytes <= MAX_BODY);
    Ok((bytes.ok_or(OtlpError::TooLarge)?, packing))
}

/// Unpacks a body.
///
/// # Errors
/// It is not gzip, or becomes too large.
pub(super) fn unpack(body: &[u8], packing: Packing) -> Result<Cow<'_, [u8]>, OtlpError> {
    if packing == Packing::None {
        return Ok(Cow::Borrowed(body));
    }
    let mut decoder = GzDecoder::new(body);
    let mut unpacked = Vec::new();
    let mut most = decoder.by_ref().take(MAX_BODY + 1);
    let read = most.read_to_end(&mut unpacked).map_err(OtlpError::Gzip)?;
    if u64::try_from(read).is_ok_and(|read| read > MAX_BODY) {
        return Err(OtlpError::TooLarge);
    }
    match decoder.into_inner() {
        [] => Ok(Cow::Owned(unpacked)),
        _ => Err(OtlpError::GzipEnd),
    }
}

/// The messages of a log record with a text: a gap or heartbeat of `tollgate-ship`, or each line of an event.
pub(super) fn messages<'a>(
    record: &LogRecord<'a>,
    text: &'a [u8],
) -> impl Iterator<Item = ShippedMessage<'a>> {
    let is = |name: &str| record.name == name.as_bytes();
    let kind = match (is(GAP), is(HEARTBEAT)) {
        (true, _) => Kind::Gap,
        (false, true) => Kind::Heartbeat,
        (false, false) => Kind::Record,
    };
    let is_numbered = is(EVENT);
    let (host, boot) = (record.host, boot_id(record.boot).unwrap_or_default());
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    // JSON is one message.
    let lines = move || text.split(move |&byte| byte == b'\n' && kind == Kind::Record);
    let of = u32::try_from(lines().count()).unwrap_or(u32::MAX);
    (1..).zip(lines()).map(move |(n, text)| {
        let serial = match is_numbered {
            true => decode::header(text).ok().map(|record| record.serial.0),
            false => None,
        };
        ShippedMessage {
            host,
            kind,
            boot,
            number: serial.map(|serial| RecordNumber { serial, n, of }),
            text,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    fn status(body: &[u8]) -> Result<usize, u16> {
        let unpacked = unpack(body, Packing::Gzip);
        unpacked
            .map(|body| body.len())
            .map_err(|error| error.status())
    }

    #[test]
    fn bodies_are_unpacked_up_to_a_bound() {
        let most = usize::try_from(MAX_BODY).unwrap();
        let packed = gzip(&vec![0; most]);
        assert_eq!(status(&packed), Ok(most));
        // One byte more, and a bomb.
        assert_eq!(status(&gzip(&vec![0; most + 1])), Err(413));
        let bomb = gzip(&vec![0; 16 << 20]);
        assert!(bomb.len() < 256 << 10);
        assert_eq!(status(&bomb), Err(413));
        let packed = gzip(b"text");
        for end in 0..packed.len() {
            assert_eq!(status(&packed[..end]), Err(400), "{end}");
        }
        assert_eq!(status(&[&packed[..], b"x"].concat()), Err(400));
        assert_eq!(status(&[&packed[..], &packed].concat()), Err(400));
        let mut damaged = packed;
        let last = damaged.len() - 5;
        damaged[last] ^= 1;
        assert_eq!(status(&damaged), Err(400));
        assert_eq!(status(b"text"), Err(400));
    }

    #[test]
    fn other_requests_are_refused() {
        let good = RequestHead {
            method: "POST".to_owned(),
            path: PATH.to_owned(),
            content_type: PROTOBUF.to_owned(),
            body: Some(MAX_BODY),
            ..RequestHead::default()
        };
        assert!(check(&good).is_ok());
        let refused = |change: fn(&mut RequestHead)| {
            let mut head = good.clone();
            change(&mut head);
            check(&head).unwrap_err().status()
        };
        assert_eq!(refused(|head| head.path = "/v1/traces".to_owned()), 404);
        assert_eq!(refused(|head| head.path.push('/')), 404);
        assert_eq!(refused(|head| head.method = "GET".to_owned()), 405);
        assert_eq!(
            refused(|head| head.content_type = "application/json".to_owned()),
            415
        );
        assert_eq!(
            refused(|head| head.content_encoding = "zstd".to_owned()),
            415
        );
        assert_eq!(
            refused(|head| head.content_encoding = "gzip, gzip".to_owned()),
            415
        );
        assert_eq!(refused(|head| head.body = None), 411);
        assert_eq!(refused(|head| head.body = Some(MAX_BODY + 1)), 413);
        assert_eq!(refused(|head| head.body = Some(u64::MAX)), 413);
    }

    #[test]
    fn lines_of_an_event_are_numbered() {
        let text = "type=A msg=audit(1.000:42): a=1\ntype=B msg=audit(1.000:42): b=2\n";
        let mut record = LogRecord {
            host: Some(b"web1"),
            boot: b"b-1",
            name: EVENT.as_bytes(),
            body: None,
        };
        let found: Vec<_> = messages(&record, text.as_bytes()).collect();
        let numbers: Vec<_> = found
            .iter()
            .map(|message| message.number.unwrap())
            .collect();
        let number = |n| RecordNumber {
            serial: 42,
            n,
            of: 2,
        };
        assert_eq!(numbers, [number(1), number(2)]);
        let texts: Vec<&[u8]> = found.iter().map(|message| message.text).collect();
        assert_eq!(
            texts,
            text.trim_end()
                .split('\n')
                .map(str::as_bytes)
                .collect::<Vec<_>>()
        );
        assert_eq!((found[0].host, found[0].boot), (Some(&b"web1"[..]), "b-1"));
        // Records of other programs have no number, and no empty text is passed over.
        record.name = b"";
        record.boot = b"b 1";
        let other: Vec<_> = messages(&record, b"").collect();
        assert_eq!((other.len(), other[0].number, other[0].boot), (1, None, ""));
        for (name, kind) in [(GAP, Kind::Gap), (HEARTBEAT, Kind::Heartbeat)] {
            record.name = name.as_bytes();
            let found: Vec<_> = messages(&record, b"{\n}").collect();
            assert_eq!(
                (found.len(), found[0].kind, found[0].text),
                (1, kind, &b"{\n}"[..])
            );
        }
    }
}
