//! URLs of HTTP, and what a table that has one must have beside it.

use std::time::Duration;

use toml::Spanned;

use super::document::Tls;
use super::{Address, Checker};
use crate::http::{Endpoint, HeaderValue};

/// Longest URL.
const MAX_URL: usize = 2048;

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
    /// Where requests of a table go: by its `url` and its table `tls`. `advice` tells how the URL must be.
    pub(super) fn endpoint(
        &mut self,
        url: &Spanned<String>,
        tls: Option<Tls>,
        headers: Vec<(String, HeaderValue)>,
        timeout: Duration,
        advice: &str,
    ) -> Endpoint {
        let parsed = Url::parse(url.get_ref()).unwrap_or_else(|message| {
            self.mistake(url.span(), message, advice);
            Url {
                is_tls: tls.is_some(),
                authority: "",
                address: Address::default(),
                target: "/",
            }
        });
        match (parsed.is_tls, &tls) {
            (true, None) => self.mistake(
                url.span(),
                "`https` needs a table `tls`",
                "name the authorities in it, for example `ca = \"/etc/ssl/certs/ca-certificates.crt\"`",
            ),
            (false, Some(_)) => self.mistake(
                url.span(),
                "a table `tls` needs `https`",
                "begin `url` with `https://`, or remove the table",
            ),
            (true, Some(_)) | (false, None) => {}
        }
        Endpoint {
            tls: tls.map(|tls| self.tls(tls, &parsed.address)),
            authority: parsed.authority.to_owned(),
            target: parsed.target.to_owned(),
            address: parsed.address.text,
            headers,
            timeout,
        }
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
