//! Headers of requests that the configuration names. No value can begin another line.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

use crate::secret_file;

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
    /// As of [`secret_file::read`].
    pub(super) fn append(&self, name: &str, to: &mut Vec<u8>) -> anyhow::Result<()> {
        let value = match self {
            Self::Text(text) => text.clone(),
            Self::File(HeaderFile { file }) => {
                secret_file::read(file, &format!("value of header `{name}`"))?
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_values_of_files_which_are_not_shown() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("token");
        std::fs::write(&file, "Bearer abc\n").unwrap();
        let value = HeaderValue::File(HeaderFile { file });
        let mut line = Vec::new();
        value.append("authorization", &mut line).unwrap();
        assert_eq!(line, b"authorization: Bearer abc\r\n");
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
