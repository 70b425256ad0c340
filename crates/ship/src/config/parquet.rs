//! Tables `[parquet.NAME]`: a directory of Parquet files, or a bucket.

use std::ops::Range;

use super::document::{Parquet, S3};
use super::{Checker, Kind, MAX_SECS, MAX_TIMEOUT_SECS};
use crate::parquet_files::ParquetSettings;
use crate::s3::{AccessKey, MAX_WORD, S3Settings, is_plain, is_word};

/// Some 100 MB of usual events.
const ROWS: u64 = 1_000_000;
/// What is told about row groups in memory grows with them.
const MAX_ROWS: u64 = 10_000_000;
/// A file needs some kilobytes beside its events, and those are sent again after a kill.
const PARQUET_SECS: u64 = 300;
/// What stores other than Amazon's take.
const REGION: &str = "us-east-1";

impl Checker<'_> {
    pub(super) fn parquet(&mut self, parquet: Parquet) -> Kind {
        let directory = parquet.directory;
        self.mistakes
            .absolute(directory.get_ref(), directory.span());
        let (rows, seconds) = (parquet.rows.as_ref(), parquet.seconds.as_ref());
        Kind::Parquet(ParquetSettings {
            directory: directory.into_inner(),
            rows: self
                .mistakes
                .number(rows, "rows", "events", 1..=MAX_ROWS, ROWS),
            interval: self
                .mistakes
                .seconds(seconds, "seconds", 1..=MAX_SECS, PARQUET_SECS),
            s3: parquet.s3.map(|s3| self.s3(s3)),
        })
    }

    fn s3(&mut self, s3: S3) -> S3Settings {
        let advice = "write `https://HOST/BUCKET`, or `https://BUCKET.HOST/`; names of objects can begin with what follows";
        // A file has some 100 MB.
        let timeout = self.mistakes.seconds(
            s3.timeout.as_ref(),
            "timeout",
            1..=MAX_TIMEOUT_SECS,
            MAX_TIMEOUT_SECS,
        );
        let endpoint = self.endpoint(&s3.url, s3.tls, Vec::new(), timeout, advice);
        let is_path_plain = |byte: u8| is_plain(byte) || byte == b'/';
        if !endpoint.target.bytes().all(is_path_plain) {
            self.mistake(
                s3.url.span(),
                "the path in `url` has letters that need an escape, or a query",
                "use letters, digits, `-`, `.`, `_`, `~` and `/`",
            );
        }
        match s3.access_key.get_ref() {
            AccessKey::Id(id) => self.word(id, s3.access_key.span()),
            AccessKey::File { file } => self.mistakes.absolute(file, s3.access_key.span()),
        }
        if let Some(region) = &s3.region {
            self.word(region.get_ref(), region.span());
        }
        let files = [Some(&s3.secret_file), s3.session_token_file.as_ref()];
        for file in files.into_iter().flatten() {
            self.mistakes.absolute(file.get_ref(), file.span());
        }
        S3Settings {
            endpoint,
            region: s3
                .region
                .map_or_else(|| REGION.to_owned(), toml::Spanned::into_inner),
            access_key: s3.access_key.into_inner(),
            secret_file: s3.secret_file.into_inner(),
            session_token_file: s3.session_token_file.map(toml::Spanned::into_inner),
        }
    }

    fn word(&mut self, text: &str, span: Range<usize>) {
        if !is_word(text) {
            self.mistake(
                span,
                format!("`{}` is no access key or region", text.escape_debug()),
                &format!("use at most {MAX_WORD} letters, digits, `-`, `.`, `_` and `~`"),
            );
        }
    }
}
