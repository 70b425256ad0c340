//! Headers of requests that the configuration names. No value can begin another line.

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// Most bytes of a value.
const MAX_VALUE: usize = 8 << 10;

/// Value of a header.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a string, or `{ file = \"/PATH\" }`")]
pub(crate) enum HeaderValue {
    Text(String),
    /// What a file has, without blanks around it.
    File(HeaderFile),
}

/// The file that has the value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderFile {
    pub(crate) file: PathBuf,
}

/// A text may be a secret.
impl fmt::Debug for HeaderValue {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => to.write_str("Text(..)"),
            Self::File(file) => file.fmt(to),
        }
    }
}

impl HeaderValue {
    /// Appends the line of a header. A file is read.
    ///
    /// # Errors
    /// The file cannot be read, or has no value of a header. It is not shown.
    pub(super) fn append(&self, name: &str, to: &mut Vec<u8>) -> anyhow::Result<()> {
        let value = match self {
            Self::Text(text) => text.clone(),
            Self::File(HeaderFile { file: path }) => {
                let shown = path.display();
                // Opening a pipe would wait.
                let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
                ensure!(
                    is_file,
                    "header `{name}` cannot be read: `{shown}` is no file that this program may read"
                );
                let mut value = String::new();
                let limit = u64::try_from(MAX_VALUE + 1)?;
                File::open(path)
                    .and_then(|file| file.take(limit).read_to_string(&mut value))
                    .with_context(|| format!("cannot read header `{name}` from file `{shown}`"))?;
                let value = value.trim_ascii().to_owned();
                ensure!(
                    is_header_value(&value),
                    "file `{shown}` has no value of header `{name}`: it must be one line of ASCII with at most {MAX_VALUE} bytes"
                );
                value
            }
        };
        to.extend_from_slice(name.as_bytes());
        to.extend_from_slice(b": ");
        to.extend_from_slice(value.as_bytes());
        to.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Whether a name is that of a header which the configuration may set: not one that frames the request, or asks for an
/// answer in a form that is not read.
///
/// # Source
/// RFC 9110, section 5.6.2 (tokens).
pub(crate) fn is_header_name(name: &str) -> bool {
    const OWN: [&str; 13] = [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ];
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=64).contains(&name.len())
        && name.bytes().all(is_token)
        && !OWN.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a text can be the value of a header.
///
/// # Source
/// RFC 9110, section 5.5.
pub(crate) fn is_header_value(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    (1..=MAX_VALUE).contains(&value.len()) && value.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_files_are_one_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let line = |text: &str| {
            fs::write(&path, text).unwrap();
            let mut line = Vec::new();
            let value = HeaderValue::File(HeaderFile { file: path.clone() });
            value
                .append("authorization", &mut line)
                .map(|()| String::from_utf8(line).unwrap())
                .map_err(|error| format!("{error:#}"))
        };
        assert_eq!(
            line("Bearer abc\n").unwrap(),
            "authorization: Bearer abc\r\n"
        );
        for bad in [
            "",
            "\n",
            "secret\r\nhost: x",
            "secret\u{e9}",
            &"s".repeat(MAX_VALUE + 1),
        ] {
            let error = line(bad).unwrap_err();
            assert!(
                error.contains("has no value of header `authorization`"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
        let directory = HeaderValue::File(HeaderFile {
            file: place.path().to_owned(),
        });
        directory.append("a", &mut Vec::new()).unwrap_err();
        let secret = HeaderValue::Text("secret".to_owned());
        assert_eq!(format!("{secret:?}"), "Text(..)");
    }

    #[test]
    fn names_are_tokens_that_do_not_frame_the_request() {
        for name in ["authorization", "X-Scope-OrgID"] {
            assert!(is_header_name(name), "{name}");
        }
        for name in [
            "",
            "a b",
            "a:",
            "a\r\n",
            "Content-Length",
            "HOST",
            "Accept-Encoding",
            "transfer-encoding",
        ] {
            assert!(!is_header_name(name), "{name}");
        }
    }
}
