//! What a collector's answer means for the records of a request.
//!
//! | answer | records |
//! | --- | --- |
//! | 200 and others below 300 | taken, but for those that it rejects: these must not be sent again |
//! | 400, 413 | refused: some of them may be taken without the others |
//! | 429, 502, 503, 504 | not taken now; `Retry-After` tells when |
//! | any other | not taken, until somebody changes something |
//!
//! # Source
//! OTLP specification 1.5, "OTLP/HTTP Response".

use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value as Json;

use super::protobuf::{Value, fields, last};
use super::receiver::{MESSAGE, PARTIAL_SUCCESS};
use crate::halves::{Rejected, Verdict};
use crate::http::Answer;
use crate::output::peer_text;
use crate::sink::Later;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
/// Without a time in the answer, the backoff tells.
const NO_TIME: Duration = Duration::ZERO;

/// The verdict of an answer to a request.
///
/// # Errors
/// The records are not taken now.
pub(super) fn of(answer: &Answer, url: &str) -> anyhow::Result<Verdict> {
    let status = answer.status;
    if (200..300).contains(&status) {
        let rejected = rejected(answer)
            .with_context(|| format!("`{url}` answers {status}, but is no OTLP collector"))?;
        return Ok(Verdict::Taken(rejected));
    }
    // Advice follows the sentence of the peer.
    let told = match text(answer).trim_end_matches('.') {
        "" => format!("`{url}` answers {status}"),
        text => format!("`{url}` answers {status}: {text}"),
    };
    let advice = match status {
        400 | 413 => {
            let is_too_large = status == 413;
            return Ok(Verdict::Refused { told, is_too_large });
        }
        429 | 502 | 503 | 504 => {
            let after = answer.retry_after.unwrap_or(NO_TIME);
            return Err(Later { after, text: told }.into());
        }
        300..400 => {
            let location = peer_text(&answer.location);
            return Err(anyhow!(
                "{told}: it redirects to `{location}`, which is not followed: write the right `url`"
            ));
        }
        401 | 403 | 407 => "look at `headers`, and at what the collector permits",
        404 | 405 => "look at the path in `url`: most collectors have `/v1/logs`",
        415 => "it may not read protobuf, or `compression = \"gzip\"`",
        _ => "nothing is dropped: it is tried again",
    };
    Err(anyhow!("{told}: {advice}"))
}

/// What a collector has rejected, of an answer of success.
///
/// # Errors
/// The answer is not one of a collector.
fn rejected(answer: &Answer) -> anyhow::Result<Rejected> {
    ensure!(answer.is_whole, "its answer is too long");
    if answer.body.is_empty() {
        return Ok(Rejected::default());
    }
    match answer.content_type.as_str() {
        PROTOBUF => protobuf_rejected(&answer.body).context("its answer is not as OTLP has it"),
        JSON => json_rejected(&answer.body).context("its answer is not as OTLP has it"),
        other => Err(anyhow!("its answer has the type `{}`", peer_text(other))),
    }
}

/// `ExportLogsServiceResponse`: the field `partial_success`.
fn protobuf_rejected(body: &[u8]) -> anyhow::Result<Rejected> {
    let partial = last(body, PARTIAL_SUCCESS)?.unwrap_or_default();
    let mut found = Rejected::default();
    for field in fields(partial) {
        match field? {
            // A negative number is none.
            (1, Value::Number(records)) => {
                found.records = i64::try_from(records).map_or(0, i64::cast_unsigned);
            }
            (2, Value::Bytes(message)) => {
                found.message = peer_text(&String::from_utf8_lossy(message));
            }
            _ => {}
        }
    }
    Ok(found)
}

fn json_rejected(body: &[u8]) -> anyhow::Result<Rejected> {
    let answer: Json = serde_json::from_slice(body)?;
    ensure!(answer.is_object(), "it is no object");
    let partial = &answer["partialSuccess"];
    let records = &partial["rejectedLogRecords"];
    // A number of 64 bits may be a string.
    let text = records.as_str().and_then(|records| records.parse().ok());
    Ok(Rejected {
        records: records.as_u64().or(text).unwrap_or(0),
        message: peer_text(partial["errorMessage"].as_str().unwrap_or_default()),
    })
}

/// What a collector says about an error: the message of a `Status`, or a text.
fn text(answer: &Answer) -> String {
    let body = &answer.body;
    match answer.content_type.as_str() {
        PROTOBUF => {
            let message = last(body, MESSAGE).ok().flatten().unwrap_or_default();
            peer_text(&String::from_utf8_lossy(message))
        }
        JSON => {
            let status: Option<Json> = serde_json::from_slice(body).ok();
            let message = status
                .as_ref()
                .and_then(|status| status["message"].as_str());
            message.map_or_else(|| peer_text(&String::from_utf8_lossy(body)), peer_text)
        }
        "text/plain" => peer_text(&String::from_utf8_lossy(body)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::receiver::{partial_success as partial, status};

    fn answer(status: u16, kind: &str, body: &[u8]) -> Answer {
        let mut answer = Answer::default();
        answer.status = status;
        kind.clone_into(&mut answer.content_type);
        answer.body = body.to_vec();
        answer.is_whole = true;
        answer
    }

    #[test]
    fn successes_tell_what_is_rejected() {
        for (kind, body, records, message) in [
            ("", &b""[..], 0, ""),
            (PROTOBUF, b"", 0, ""),
            (PROTOBUF, &partial(3, "too\nold"), 3, "too old"),
            (PROTOBUF, &partial(0, "beware"), 0, "beware"),
            (
                PROTOBUF,
                &partial(u64::MAX, "less than none"),
                0,
                "less than none",
            ),
            (JSON, b"{}", 0, ""),
            (
                JSON,
                b"{\"partialSuccess\":{\"rejectedLogRecords\":\"4\",\"errorMessage\":\"no\"}}",
                4,
                "no",
            ),
        ] {
            let verdict = of(&answer(200, kind, body), "u").unwrap();
            let Verdict::Taken(found) = verdict else {
                panic!("{verdict:?}");
            };
            assert_eq!((found.records, found.message.as_str()), (records, message));
        }
        // A web server that has a page for every request stores nothing.
        for (kind, body) in [
            ("text/html", &b"<html>"[..]),
            (PROTOBUF, b"<html>"),
            (JSON, b"[]"),
            ("", b"x"),
        ] {
            let error = format!("{:#}", of(&answer(200, kind, body), "u").unwrap_err());
            assert!(error.contains("is no OTLP collector"), "{error}");
        }
        let mut cut = answer(200, PROTOBUF, b"");
        cut.is_whole = false;
        of(&cut, "u").unwrap_err();
    }

    #[test]
    fn failures_tell_what_the_collector_says() {
        let status = status("bad\x1b data");
        for (code, kind, body, expected) in [
            (400, PROTOBUF, &status[..], "`u` answers 400: bad  data"),
            (
                413,
                "text/plain",
                b"too large\n",
                "`u` answers 413: too large",
            ),
            (
                400,
                JSON,
                b"{\"code\":3,\"message\":\"m\"}",
                "`u` answers 400: m",
            ),
            (400, "text/html", b"<html>", "`u` answers 400"),
        ] {
            let verdict = of(&answer(code, kind, body), "u").unwrap();
            let Verdict::Refused { told, is_too_large } = verdict else {
                panic!("{verdict:?}");
            };
            assert_eq!((told.as_str(), is_too_large), (expected, code == 413));
        }
        for (code, expected) in [
            (
                307,
                "it redirects to `https://other`, which is not followed",
            ),
            (401, "look at `headers`"),
            (404, "look at the path"),
            (500, "it is tried again"),
        ] {
            let mut answer = answer(code, "", b"");
            answer.location = "https://other".to_owned();
            let error = of(&answer, "u").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let sentence = answer(401, "text/plain", b"No token.");
        let error = of(&sentence, "u").unwrap_err().to_string();
        let expected = "`u` answers 401: No token: look at";
        assert!(error.starts_with(expected), "{error}");
        for code in [429, 502, 503, 504] {
            let mut answer = answer(code, "", b"");
            answer.retry_after = Some(Duration::from_secs(7));
            let error = of(&answer, "u").unwrap_err();
            let later = error.downcast_ref::<Later>().unwrap();
            assert_eq!(later.after, Duration::from_secs(7));
        }
        let long = answer(400, "text/plain", "\u{e9}".repeat(1000).as_bytes());
        let Verdict::Refused { told, .. } = of(&long, "u").unwrap() else {
            panic!();
        };
        assert!(told.len() < 500, "{told}");
    }
}
