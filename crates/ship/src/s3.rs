//! A bucket of a store that speaks S3: files are put there whole.
//!
//! # Source
//! Amazon Simple Storage Service, API version 2006-03-01, `PutObject`: an object is seen when all of it was taken, and its
//! checksum (`x-amz-content-sha256`) was right.

mod signature;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ring::digest::{self, SHA256};

use crate::frame::Time;
use crate::http::{Answer, Body, Endpoint, HttpClient, Request};
use crate::output::{now_ms, peer_text};
use crate::secret_file;
use crate::sink::Later;
pub(crate) use signature::is_plain;
use signature::{Key, SignedRequest, amz_date, hex};

/// Bytes of a file that are read at once.
const FILE_BYTES: usize = 64 << 10;

/// Settings of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct S3Settings {
    /// The bucket, and what names of objects begin with: no letter of its path needs an escape.
    pub(crate) endpoint: Endpoint,
    pub(crate) region: String,
    pub(crate) access_key: String,
    /// File with the secret of the access key.
    pub(crate) secret_file: PathBuf,
}

/// A bucket.
pub(crate) struct Bucket {
    settings: S3Settings,
    client: HttpClient,
    secret: String,
}

impl Bucket {
    pub(crate) fn new(settings: S3Settings) -> Self {
        Self {
            client: HttpClient::new(settings.endpoint.clone()),
            settings,
            secret: String::new(),
        }
    }

    /// Looks whether the store can be reached. The secret is read: it may be renewed while the program runs.
    ///
    /// # Errors
    /// It cannot be read, or the store cannot be reached.
    pub(crate) fn connect(&mut self) -> anyhow::Result<()> {
        self.secret = secret_file::read(&self.settings.secret_file, "secret of the access key")?;
        self.client.connect()?;
        // Until a file is complete, the store would close it.
        self.client.disconnect();
        Ok(())
    }

    /// Puts a file into the bucket. It replaces an object of this name.
    ///
    /// # Errors
    /// The file cannot be read, or the store has not taken it.
    pub(crate) fn put(&mut self, name: &str, file: &File) -> anyhow::Result<()> {
        let (len, payload) = checksum(file).context("cannot read the file that is uploaded")?;
        let prefix = self.settings.endpoint.target.trim_end_matches('/');
        let target = format!("{prefix}/{}", signature::encoded_path(name));
        let date = amz_date(Time { ms: now_ms() });
        let key = Key {
            id: &self.settings.access_key,
            secret: &self.secret,
            region: &self.settings.region,
        };
        let authorization = key.authorization(&SignedRequest {
            method: "PUT",
            path: &target,
            headers: &[
                ("host", &self.settings.endpoint.authority),
                ("x-amz-content-sha256", &payload),
                ("x-amz-date", &date),
            ],
            payload: &payload,
        });
        let about = format!(
            "Authorization: {authorization}\r\nx-amz-content-sha256: {payload}\r\nx-amz-date: {date}\r\n\
             Content-Type: application/vnd.apache.parquet\r\n"
        );
        let answer = self.client.send(Request {
            method: "PUT",
            target: &target,
            about: &about,
            body: Body::File(file, len),
        })?;
        taken(&answer, &self.client.shown())
    }

    pub(crate) fn disconnect(&mut self) {
        self.client.disconnect();
        self.secret = String::new();
    }
}

/// Length and checksum of a file.
fn checksum(file: &File) -> io::Result<(u64, String)> {
    let mut context = digest::Context::new(&SHA256);
    let mut buffer = vec![0; FILE_BYTES];
    let mut len = 0;
    loop {
        let count = file.read_at(&mut buffer, len)?;
        if count == 0 {
            return Ok((len, hex(context.finish().as_ref())));
        }
        context.update(buffer.get(..count).unwrap_or_default());
        len += u64::try_from(count).unwrap_or(0);
    }
}

/// Whether the store has taken a file.
///
/// # Errors
/// It has not, or not now.
fn taken(answer: &Answer, url: &str) -> anyhow::Result<()> {
    let status = answer.status;
    let told = match reason(&String::from_utf8_lossy(&answer.body)) {
        text if text.is_empty() => format!("`{url}` answers {status}"),
        text => format!("`{url}` answers {status}: {text}"),
    };
    let advice = match status {
        200..300 => return Ok(()),
        429 | 500 | 502 | 503 | 504 => {
            let after = answer.retry_after.unwrap_or(Duration::ZERO);
            return Err(Later { after, text: told }.into());
        }
        300..400 => "look at `region` and at the host in `url`: nothing is followed",
        400 => "look at `region`, and at the clock of this machine",
        401 | 403 => {
            "look at `access_key`, `secret_file` and `region`, at what the store permits, and at the clock of this machine"
        }
        404 => "look at the bucket in `url`, which must exist",
        413 => "use fewer `rows` in a file",
        _ => "nothing is dropped: it is tried again",
    };
    Err(anyhow!("{told}: {advice}"))
}

/// `Code: Message` of an error in XML, or what there is of it, without the full stop of a sentence.
fn reason(body: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        let (text, _) = rest.split_once(&format!("</{name}>"))?;
        Some(text)
    };
    let parts = [element("Code"), element("Message")];
    let text: Vec<&str> = parts.into_iter().flatten().collect();
    let text = peer_text(&text.join(": "));
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
