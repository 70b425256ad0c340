//! Answers: status, the headers that matter, and a bounded body.

use std::io::{self, Read};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use httparse::{EMPTY_HEADER, InvalidChunkSize, Response, Status, parse_chunk_size};

use crate::output::now_ms;

/// Most bytes of the status and the headers.
const MAX_HEAD: usize = 16 << 10;
/// Most headers.
const MAX_HEADERS: usize = 96;
/// Most bytes of a body: what is behind it is not read.
const MAX_BODY: usize = 64 << 10;
/// Most bytes around the chunks of a body.
const MAX_CHUNK_LINES: usize = 64 << 10;
/// Most answers with a status below 200, which others follow.
const MAX_INTERIM: usize = 8;

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
    /// `Content-Type`, without parameters.
    pub(crate) content_type: String,
    /// `Location`.
    pub(crate) location: String,
    /// The start of the body.
    pub(crate) body: Vec<u8>,
    /// The body has ended.
    pub(crate) is_whole: bool,
    /// Another request can be sent.
    pub(super) keeps_connection: bool,
}

/// There is no answer.
#[derive(Debug)]
pub(super) enum ReadError {
    /// No byte came.
    Nothing(io::Error),
    /// What came is no answer, or ends too early or too late.
    Bad(anyhow::Error),
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(u64),
    Chunks,
    UntilEnd,
}

/// What was read of a stream and not used.
struct Input<R> {
    from: R,
    bytes: Vec<u8>,
}

/// Reads an answer.
///
/// # Errors
/// The stream fails or ends before, or has something else.
pub(super) fn read(from: &mut impl Read) -> Result<Answer, ReadError> {
    let mut input = Input {
        from,
        bytes: Vec::new(),
    };
    match input.more() {
        Ok(0) => return Err(ReadError::Nothing(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => return Err(ReadError::Nothing(error)),
        Ok(_) => {}
    }
    answer(&mut input).map_err(ReadError::Bad)
}

fn answer(input: &mut Input<impl Read>) -> anyhow::Result<Answer> {
    for _ in 0..MAX_INTERIM {
        let (mut answer, length) = head(input)?;
        if answer.status >= 200 {
            body(input, length, &mut answer)?;
            return Ok(answer);
        }
        ensure!(answer.status != 101, "it switches to another protocol");
    }
    bail!("no answer follows those of a status below 200")
}

/// Reads status and headers.
fn head(input: &mut Input<impl Read>) -> anyhow::Result<(Answer, Length)> {
    loop {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut response = Response::new(&mut headers);
        if let Status::Complete(len) = response.parse(&input.bytes)? {
            let found = meaning(&response)?;
            input.bytes.drain(..len);
            return Ok(found);
        }
        ensure!(
            input.bytes.len() <= MAX_HEAD,
            "its headers have more than {MAX_HEAD} bytes"
        );
        ensure!(input.more()? > 0, "it ends within the headers");
    }
}

fn meaning(response: &Response<'_, '_>) -> anyhow::Result<(Answer, Length)> {
    let status = response.code.unwrap_or_default();
    let mut answer = Answer {
        status,
        keeps_connection: response.version == Some(1),
        ..Answer::default()
    };
    let (mut bytes, mut is_chunked) = (None, false);
    for header in response.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let len: u64 = value.parse()?;
            ensure!(bytes.is_none_or(|other| other == len), "it has two lengths");
            bytes = Some(len);
        } else if is("transfer-encoding") {
            ensure!(
                value.eq_ignore_ascii_case("chunked"),
                "its encoding is unknown"
            );
            is_chunked = true;
        } else if is("content-type") {
            let kind = value.split(';').next().unwrap_or_default();
            answer.content_type = kind.trim_end().to_ascii_lowercase();
        } else if is("retry-after") {
            answer.retry_after = retry_after(value, now_ms());
        } else if is("location") {
            value.clone_into(&mut answer.location);
        } else if is("connection") {
            answer.keeps_connection &= !value.to_ascii_lowercase().contains("close");
        }
    }
    ensure!(bytes.is_none() || !is_chunked, "it has a length and chunks");
    let length = match (status, is_chunked, bytes) {
        (204 | 304, ..) => Length::Bytes(0),
        (_, true, _) => Length::Chunks,
        (_, false, Some(bytes)) => Length::Bytes(bytes),
        (_, false, None) => Length::UntilEnd,
    };
    answer.keeps_connection &= length != Length::UntilEnd;
    Ok((answer, length))
}

/// Reads the body, up to a bound.
fn body(input: &mut Input<impl Read>, length: Length, answer: &mut Answer) -> anyhow::Result<()> {
    answer.is_whole = match length {
        Length::Bytes(bytes) => {
            let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
            let kept = wanted.min(MAX_BODY);
            input.fill(kept)?;
            answer.body.extend(input.bytes.drain(..kept));
            kept == wanted
        }
        Length::UntilEnd => {
            while input.bytes.len() <= MAX_BODY && input.more()? > 0 {}
            answer.body = std::mem::take(&mut input.bytes);
            answer.body.len() <= MAX_BODY
        }
        Length::Chunks => chunks(input, &mut answer.body)?,
    };
    answer.body.truncate(MAX_BODY);
    // What follows would be the answer to the next request.
    answer.keeps_connection &= answer.is_whole && input.bytes.is_empty();
    Ok(())
}

/// Reads chunks up to the last one, and what follows it. Returns whether it came before the bound.
fn chunks(input: &mut Input<impl Read>, to: &mut Vec<u8>) -> anyhow::Result<bool> {
    let mut lines = 0;
    while lines <= MAX_CHUNK_LINES {
        let size = parse_chunk_size(&input.bytes);
        let (len, size) = match size.map_err(|InvalidChunkSize| anyhow!("a chunk has no size"))? {
            Status::Complete(found) => found,
            Status::Partial => {
                ensure!(input.bytes.len() <= MAX_HEAD, "a chunk has no size");
                ensure!(input.more()? > 0, "it ends before the last chunk");
                continue;
            }
        };
        input.bytes.drain(..len);
        lines += len + 2;
        if size == 0 {
            return trailer(input);
        }
        let room = MAX_BODY.saturating_sub(to.len());
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > room {
            input.fill(room)?;
            to.extend(input.bytes.drain(..room));
            return Ok(false);
        }
        input.fill(size + 2)?;
        to.extend(input.bytes.drain(..size));
        let end: Vec<u8> = input.bytes.drain(..2).collect();
        ensure!(end == b"\r\n", "a chunk has not its size");
    }
    Ok(false)
}

/// Reads the lines behind the last chunk, up to the empty one.
fn trailer(input: &mut Input<impl Read>) -> anyhow::Result<bool> {
    let mut read = 0;
    while read <= MAX_HEAD {
        match input.bytes.windows(2).position(|pair| pair == b"\r\n") {
            Some(0) => {
                input.bytes.drain(..2);
                return Ok(true);
            }
            Some(end) => {
                input.bytes.drain(..end + 2);
                read += end + 2;
            }
            None if input.bytes.len() > MAX_HEAD => break,
            None => ensure!(input.more()? > 0, "it ends behind the last chunk"),
        }
    }
    Ok(false)
}

impl<R: Read> Input<R> {
    /// Reads what there is; returns the number of bytes, 0 at the end.
    fn more(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 8 << 10];
        let count = loop {
            match self.from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => break count?,
            }
        };
        self.bytes
            .extend_from_slice(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }

    /// Reads until there are so many bytes.
    fn fill(&mut self, len: usize) -> anyhow::Result<()> {
        while self.bytes.len() < len {
            ensure!(self.more()? > 0, "it ends within the body");
        }
        Ok(())
    }
}

/// Time of `Retry-After`: a number of seconds, or a date.
///
/// # Source
/// RFC 9110, section 10.2.3.
fn retry_after(value: &str, now_ms: u64) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let date = date.parse_timestamp(value).ok()?.as_millisecond();
    let left = u64::try_from(date).ok()?.saturating_sub(now_ms);
    Some(Duration::from_millis(left))
}

#[cfg(test)]
pub(super) mod tests;
