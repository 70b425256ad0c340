//! Tables `[otlp.NAME]`: a collector of OpenTelemetry.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::document::Otlp;
use super::{Address, Checker, Kind};
use crate::http::{Endpoint, HeaderFile, HeaderValue, is_header_name};
use crate::otlp::Compression;
use crate::secret_file::is_line;

/// Longest URL.
const MAX_URL: usize = 2048;
/// Most headers.
const MAX_HEADERS: usize = 32;

/// A URL of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Url<'a> {
    is_tls: bool,
    /// Host, and the port if the URL has one.
    authority: &'a str,
    address: Address,
    /// Path and query.
    target: &'a str,
}

impl<'a> Url<'a> {
    /// # Errors
    /// Returns what is wrong, without the text: a URL may have a secret.
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err("`url` begins neither with `http://` nor with `https://`"),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte);
        if text.len() > MAX_URL || !text.bytes().all(is_plain) {
            return Err("`url` has letters that a URL must not have, or is too long");
        }
        let (authority, target) = rest
            .find('/')
            .and_then(|slash| rest.split_at_checked(slash))
            .ok_or("`url` has no path")?;
        if authority.contains('@') {
            return Err("`url` has a user or a password");
        }
        let address = match Address::parse(authority) {
            Some(address) => Some(address),
            // An IPv6 address has colons, too.
            None if authority.ends_with(']') || !authority.contains(':') => {
                let port = if is_tls { 443 } else { 80 };
                Address::parse(&format!("{authority}:{port}"))
            }
            None => None,
        };
        Ok(Self {
            is_tls,
            authority,
            address: address.ok_or("`url` has no host")?,
            target,
        })
    }
}

impl Checker<'_> {
    pub(super) fn otlp(&mut self, otlp: Otlp) -> Kind {
        let url = Url::parse(otlp.url.get_ref()).unwrap_or_else(|message| {
            self.mistake(
                otlp.url.span(),
                message,
                "write `https://HOST:4318/v1/logs`; what is secret belongs into `headers`, from a file",
            );
            Url {
                is_tls: otlp.tls.is_some(),
                authority: "",
                address: Address::default(),
                target: "/",
            }
        });
        match (url.is_tls, &otlp.tls) {
            (true, None) => self.mistake(
                otlp.url.span(),
                "`https` needs a table `tls`",
                "name the authorities in it, for example `ca = \"/etc/ssl/certs/ca-certificates.crt\"`",
            ),
            (false, Some(_)) => self.mistake(
                otlp.url.span(),
                "a table `tls` needs `https`",
                "begin `url` with `https://`, or remove the table",
            ),
            (true, Some(_)) | (false, None) => {}
        }
        let timeout = self.timeout(otlp.timeout.as_ref());
        let headers = self.headers(otlp.headers, otlp.url.span());
        let endpoint = Endpoint {
            tls: otlp.tls.map(|tls| self.tls(tls, &url.address)),
            authority: url.authority.to_owned(),
            target: url.target.to_owned(),
            address: url.address.text,
            headers,
            timeout,
        };
        let compression = otlp.compression.unwrap_or(Compression::Gzip);
        Kind::Otlp(endpoint, compression)
    }

    fn headers(
        &mut self,
        headers: BTreeMap<Spanned<String>, HeaderValue>,
        table: Range<usize>,
    ) -> Vec<(String, HeaderValue)> {
        if headers.len() > MAX_HEADERS {
            let message = format!("more than {MAX_HEADERS} headers");
            self.mistake(table, message, "remove some");
        }
        let mut found: Vec<(String, HeaderValue)> = Vec::new();
        for (name, value) in headers {
            let span = name.span();
            let shown = name.get_ref().escape_debug().to_string();
            if !is_header_name(name.get_ref()) {
                self.mistake(
                    span.clone(),
                    format!("`{shown}` is no header that can be set"),
                    "write the name of one that the collector wants, such as `authorization`",
                );
            }
            if found
                .iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(name.get_ref()))
            {
                let message = format!("two headers are called `{shown}`");
                self.mistake(span.clone(), message, "remove one");
            }
            match &value {
                HeaderValue::Text(text) if !is_line(text) => self.mistake(
                    span,
                    format!("header `{shown}` has no value of a header"),
                    "write one line of ASCII",
                ),
                HeaderValue::File(HeaderFile { file }) => self.mistakes.absolute(file, span),
                HeaderValue::Text(_) => {}
            }
            found.push((name.into_inner(), value));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_host_port_and_path() {
        for (text, address, target) in [
            ("http://a/v1/logs", "a:80", "/v1/logs"),
            (
                "https://a.example/v1/logs?x=1",
                "a.example:443",
                "/v1/logs?x=1",
            ),
            ("https://a:4318/v1/logs", "a:4318", "/v1/logs"),
            ("http://[::1]/v1", "[::1]:80", "/v1"),
            ("http://[::1]:4318/", "[::1]:4318", "/"),
            ("http://192.0.2.1:4318/", "192.0.2.1:4318", "/"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.address.text.as_str(), url.target), (address, target));
            assert_eq!(url.is_tls, text.starts_with("https"));
        }
        for text in [
            "",
            "a:4318",
            "ftp://a/",
            "http://a",
            "http:///v1",
            "http://:1/v1",
            "http://a:0/v1",
            "http://a:99999/v1",
            "http://::1/v1",
            "http://user:secret@a/v1",
            "http://a/v1 HTTP/1.1\r\nx: y",
            "http://a/v1#x",
        ] {
            Url::parse(text).unwrap_err();
        }
    }
}
