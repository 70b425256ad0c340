//! Tables `[parquet.NAME]`: a directory of Parquet files.

use super::document::Parquet;
use super::{Checker, Kind, MAX_SECS};
use crate::parquet_files::ParquetSettings;

/// Some 100 MB of usual events.
const ROWS: u64 = 1_000_000;
/// What is told about row groups in memory grows with them.
const MAX_ROWS: u64 = 10_000_000;
/// A file needs some kilobytes beside its events, and those are sent again after a kill.
const PARQUET_SECS: u64 = 300;

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
        })
    }
}
