//! A bucket of a store that speaks S3: files are put there whole.
//!
//! # Source
//! Amazon Simple Storage Service, API version 2006-03-01, `PutObject`: an object is seen when all of it was taken, and its
//! checksum (`x-amz-content-sha256`) was right.

mod signature;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use ring::digest::{self, SHA256};
use serde::Deserialize;

use crate::frame::Time;
use crate::http::{Answer, Body, Endpoint, HttpClient, Request};
use crate::output::{now_ms, peer_text};
use crate::secret_file;
use crate::sink::Later;
pub(crate) use signature::is_plain;
use signature::{Key, SignedRequest, amz_date, hex};

/// Bytes of a file that are read at once.
const FILE_BYTES: usize = 64 << 10;
/// Longest region, and id of an access key.
pub(crate) const MAX_WORD: usize = 128;

/// Settings of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct S3Settings {
    /// The bucket, and what names of objects begin with: no letter of its path needs an escape.
    pub(crate) endpoint: Endpoint,
    pub(crate) region: String,
    pub(crate) access_key: AccessKey,
    /// File with the secret of the access key.
    pub(crate) secret_file: PathBuf,
    /// File with the session token of an access key that expires.
    pub(crate) session_token_file: Option<PathBuf>,
}

/// Id of an access key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected a string, or `{ file = \"/PATH\" }`"
)]
pub(crate) enum AccessKey {
    Id(String),
    /// A key that expires is renewed with its id.
    File {
        file: PathBuf,
    },
}

/// A bucket.
pub(crate) struct Bucket {
    settings: S3Settings,
    client: HttpClient,
    credentials: Credentials,
}

/// What requests are signed with.
#[derive(Default)]
struct Credentials {
    access_key: String,
    secret: String,
    session_token: Option<String>,
}

impl S3Settings {
    /// Files that are read for each connection.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let mut files = vec![self.secret_file.as_path()];
        files.extend(self.session_token_file.as_deref());
        if let AccessKey::File { file } = &self.access_key {
            files.push(file);
        }
        files
    }

    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or is not what it should be.
    fn credentials(&self) -> anyhow::Result<Credentials> {
        let access_key = match &self.access_key {
            AccessKey::Id(id) => id.clone(),
            AccessKey::File { file } => {
                let id = secret_file::read(file, "id of the access key")?;
                let shown = file.display();
                ensure!(is_word(&id), "file `{shown}` has no id of an access key");
                id
            }
        };
        let token = self.session_token_file.as_deref();
        let token = token.map(|file| secret_file::read(file, "session token of the access key"));
        Ok(Credentials {
            access_key,
            secret: secret_file::read(&self.secret_file, "secret of the access key")?,
            session_token: token.transpose()?,
        })
    }
}

impl Bucket {
    pub(crate) fn new(settings: S3Settings) -> Self {
        Self {
            client: HttpClient::new(settings.endpoint.clone()),
            settings,
            credentials: Credentials::default(),
        }
    }

    /// Looks whether the store can be reached. The credentials are read: they may be renewed while the program runs.
    ///
    /// # Errors
    /// They cannot be read, or the store cannot be reached.
    pub(crate) fn connect(&mut self) -> anyhow::Result<()> {
        self.credentials = self.settings.credentials()?;
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
            id: &self.credentials.access_key,
            secret: &self.credentials.secret,
            region: &self.settings.region,
        };
        let mut headers = vec![
            ("host", self.settings.endpoint.authority.as_str()),
            ("x-amz-content-sha256", &payload),
            ("x-amz-date", &date),
        ];
        let token = self.credentials.session_token.as_deref();
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let authorization = key.authorization(&SignedRequest {
            method: "PUT",
            path: &target,
            headers: &headers,
            payload: &payload,
        });
        let mut about = format!(
            "Authorization: {authorization}\r\nContent-Type: application/vnd.apache.parquet\r\n"
        );
        // The client writes the host.
        for &(name, value) in headers.iter().filter(|(name, _)| *name != "host") {
            about.extend([name, ": ", value, "\r\n"]);
        }
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
        self.credentials = Credentials::default();
    }
}

/// Whether a text can be a region, or the id of an access key.
pub(crate) fn is_word(text: &str) -> bool {
    (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(is_plain)
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
        400 => {
            "look at `region`, at the clock of this machine, and whether the session token has expired"
        }
        401 | 403 => {
            "look at `access_key`, `secret_file`, `session_token_file` and `region`, at what the store permits, and at the clock of this machine"
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
