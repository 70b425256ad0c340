//! Signatures of requests, which do not show the secret.
//!
//! # Source
//! "AWS Signature Version 4 for API requests", "Create a signed AWS API request".

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};

use crate::frame::Time;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Who signs.
pub(super) struct Key<'a> {
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
    pub(super) region: &'a str,
}

/// What is signed.
pub(super) struct SignedRequest<'a> {
    pub(super) method: &'a str,
    /// As [`encoded_path`] has it.
    pub(super) path: &'a str,
    /// In the order of their names, which are in lower case; with `x-amz-date`.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// Checksum of the body.
    pub(super) payload: &'a str,
}

impl Key<'_> {
    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self, request: &SignedRequest<'_>) -> String {
        let is_date = |(name, _): &&(&str, &str)| *name == "x-amz-date";
        let date = request.headers.iter().find(is_date);
        let date = date.map_or("", |(_, value)| value);
        let day = date.get(..8).unwrap_or_default();
        let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let canonical = hex(digest(&SHA256, request.canonical(&names).as_bytes()).as_ref());
        let text = format!("{ALGORITHM}\n{date}\n{scope}\n{canonical}");
        let signature = hex(self.signing(day, text.as_bytes()).as_ref());
        format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.id
        )
    }

    /// Signs a text with a key that is only for this day, region and service.
    fn signing(&self, day: &str, text: &[u8]) -> hmac::Tag {
        let secret = format!("AWS4{}", self.secret);
        let mut tag = sign(secret.as_bytes(), day.as_bytes());
        for part in [self.region, "s3", "aws4_request"] {
            tag = sign(tag.as_ref(), part.as_bytes());
        }
        sign(tag.as_ref(), text)
    }
}

impl SignedRequest<'_> {
    /// The request in the form that both sides make of it: method, path, an empty query, headers, and checksum.
    fn canonical(&self, names: &str) -> String {
        let mut text = format!("{}\n{}\n\n", self.method, self.path);
        for (name, value) in self.headers {
            // Writing to memory cannot fail.
            let _written = writeln!(text, "{name}:{value}");
        }
        text + "\n" + names + "\n" + self.payload
    }
}

fn sign(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text)
}

/// Bytes as lower-case digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A path with an escape for each byte that is not plain.
pub(super) fn encoded_path(path: &str) -> String {
    let encode = |byte: u8| match is_plain(byte) || byte == b'/' {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

/// Whether a byte has no escape in a path.
pub(crate) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A time as `YYYYMMDDTHHMMSSZ`.
pub(super) fn amz_date(time: Time) -> String {
    time.timestamp().strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)".
    #[test]
    fn signatures_are_those_of_the_specification() {
        let key = Key {
            id: "AKIAIOSFODNN7EXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let get = key.authorization(&SignedRequest {
            method: "GET",
            path: "/test.txt",
            headers: &[
                ("host", "examplebucket.s3.amazonaws.com"),
                ("range", "bytes=0-9"),
                ("x-amz-content-sha256", empty),
                ("x-amz-date", "20130524T000000Z"),
            ],
            payload: empty,
        });
        assert_eq!(
            get,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let payload = hex(digest(&SHA256, b"Welcome to Amazon S3.").as_ref());
        let put = key.authorization(&SignedRequest {
            method: "PUT",
            path: &encoded_path("/test$file.text"),
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("host", "examplebucket.s3.amazonaws.com"),
                ("x-amz-content-sha256", &payload),
                ("x-amz-date", "20130524T000000Z"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            payload: &payload,
        });
        assert!(
            put.ends_with(
                "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
            ),
            "{put}"
        );
    }

    #[test]
    fn paths_have_escapes_also_for_those_that_a_name_has() {
        let path = "date=2026-10-02/host=fd00%3A%3A7/a-1.2~.parquet";
        assert_eq!(
            encoded_path(path),
            "date%3D2026-10-02/host%3Dfd00%253A%253A7/a-1.2~.parquet"
        );
    }

    #[test]
    fn dates_have_no_separators() {
        assert_eq!(
            amz_date(Time {
                ms: 1_369_353_600_999
            }),
            "20130524T000000Z"
        );
        assert!(!amz_date(Time { ms: u64::MAX }).is_empty());
    }
}
