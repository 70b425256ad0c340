//! Tables `[otlp.NAME]`: a collector of OpenTelemetry.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::document::Otlp;
use super::{Checker, Kind};
use crate::http::{HeaderFile, HeaderValue, is_header_name};
use crate::otlp::Compression;
use crate::secret_file::is_line;

/// Most headers.
const MAX_HEADERS: usize = 32;

impl Checker<'_> {
    pub(super) fn otlp(&mut self, otlp: Otlp) -> Kind {
        let timeout = self.timeout(otlp.timeout.as_ref());
        let headers = self.headers(otlp.headers, otlp.url.span());
        let advice =
            "write `https://HOST:4318/v1/logs`; what is secret belongs into `headers`, from a file";
        let endpoint = self.endpoint(&otlp.url, otlp.tls, headers, timeout, advice);
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
