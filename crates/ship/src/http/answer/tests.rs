//! Tests of answers.

use std::io::{self, Cursor};

use inputs::fuzz::fuzz;

use super::*;

fn read_bytes(bytes: &[u8]) -> Result<Answer, String> {
    read(&mut Cursor::new(bytes)).map_err(|error| match error {
        ReadError::Nothing(error) => format!("nothing: {error}"),
        ReadError::Bad(error) => format!("{error:#}"),
    })
}

/// Reads an answer from a stream, and nothing behind it.
#[track_caller]
pub(crate) fn read_answer(from: &mut impl Read) -> Answer {
    struct Single<'a, R>(&'a mut R);
    impl<R: Read> Read for Single<'_, R> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(&mut to[..1])
        }
    }
    read(&mut Single(from)).unwrap()
}

fn body(bytes: &[u8]) -> (Vec<u8>, bool, bool) {
    let answer = read_bytes(bytes).unwrap();
    (answer.body, answer.is_whole, answer.keeps_connection)
}

#[test]
fn bodies_end_as_the_headers_say() {
    for (text, expected, keeps) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "ab", true),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
            "ab",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: Close\r\n\r\nab",
            "ab",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab",
            "ab",
            false,
        ),
        // Something that nobody asked for.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200",
            "ab",
            false,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        ("HTTP/1.1 200 OK\r\n\r\nabc", "abc", false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n02;x=\"y\"\r\nbc\r\n0\r\n\r\n",
            "abc",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\na: b\r\nc: d\r\n\r\n",
            "",
            true,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "",
            true,
        ),
    ] {
        assert_eq!(
            body(text.as_bytes()),
            (expected.into(), true, keeps),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_answer_is_an_error() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (text, expected) in [
        ("", "nothing: "),
        ("HTTP/1.1 200", "it ends within the headers"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "it ends within the body",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "invalid digit",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "a length and chunks",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "its encoding is unknown",
        ),
        (
            "HTTP/1.1 101 Switching\r\n\r\n",
            "it switches to another protocol",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n", "invalid HTTP version"),
    ] {
        let error = read_bytes(text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for (rest, expected) in [
        ("", "it ends before the last chunk"),
        ("1\r\na", "it ends within the body"),
        ("1\r\nabc\r\n", "a chunk has not its size"),
        ("x\r\n", "a chunk has no size"),
        ("0\r\n", "it ends behind the last chunk"),
    ] {
        let error = read_bytes(format!("{chunked}{rest}").as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{rest}: {error}");
    }
}

/// Bytes again and again.
struct Endless(&'static [u8], usize);

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *to {
            *byte = self.0[self.1 % self.0.len()];
            self.1 += 1;
        }
        Ok(to.len())
    }
}

#[test]
fn endless_answers_are_cut() {
    for (head, rest) in [
        ("HTTP/1.1 200 OK\r\n\r\n", &b"x"[..]),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            b"x",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1\r\nx\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"7fffffffffffffff\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"x: y\r\n",
        ),
    ] {
        let mut from = Cursor::new(head).chain(Endless(rest, 0));
        let answer = read(&mut from).unwrap();
        assert!(!answer.is_whole && !answer.keeps_connection, "{head}");
        assert!(answer.body.len() <= MAX_BODY, "{head}");
    }
    for endless in [
        &b"x: y\r\n"[..],
        b"HTTP/1.1 200 OK\r\nx: y\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        let error = read(&mut Endless(endless, 0)).unwrap_err();
        assert!(matches!(error, ReadError::Bad(_)), "{error:?}");
    }
}

#[test]
fn time_to_wait_is_seconds_or_a_date() {
    // Sun, 06 Nov 1994 08:49:37 GMT.
    let now_ms = 784_111_777_000;
    for (text, expected) in [
        ("120", Some(120)),
        ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
        ("Mon, 06 Nov 1994 08:49:30 GMT", Some(0)),
        ("-1", None),
        ("soon", None),
    ] {
        let expected = expected.map(Duration::from_secs);
        assert_eq!(retry_after(text, now_ms), expected, "{text}");
    }
}

/// Any bytes are an answer or an error.
#[test]
fn fuzz_ship_answer() {
    const WORDS: &[&str] = &[
        "HTTP/1.1 200 OK\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Retry-After: 9\r\n",
        "\r\n",
        "5\r\nabcde\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
    ];
    let corpus = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab".to_vec(),
        b"HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n".to_vec(),
    ];
    fuzz("fuzz_ship_answer", &corpus, WORDS, 2000, |bytes| {
        if let Ok(answer) = read(&mut Cursor::new(bytes)) {
            assert!(answer.status >= 200);
            assert!(answer.body.len() <= MAX_BODY.min(bytes.len()));
        }
    });
}
