//! Parquet files: a destination for archives and queries.
//!
//! Rows of a date are in a [`table`] until they are some megabytes, and then become a row group of a file, which readers
//! see when it is complete: it gets its name in the directory, or is put into a bucket. All open files are completed
//! together: what was put until then is confirmed. docs/parquet.md describes the files.

mod partition;
mod row;
mod schema;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescriptor;

use crate::frame::{Frame, Record, Time};
use crate::output::info;
use crate::s3::{Bucket, S3Settings};
use crate::sink::Sink;
use partition::{Directory, TemporaryFile, UPLOADS};
use table::Table;

/// Bytes of values that are held before they become row groups.
const GROUP_BYTES: usize = 8 << 20;
/// Rows that are held before they become row groups: a row without values has a level in each column.
const GROUP_ROWS: usize = 16 << 10;
/// Most dates whose files are open: another one completes them.
const MAX_DATES: usize = 4;
const DAY_MS: u64 = 86_400_000;

/// Settings of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParquetSettings {
    /// Where the files are; with a bucket, only until they are complete.
    pub(crate) directory: PathBuf,
    /// Events after which files are completed.
    pub(crate) rows: u64,
    /// Time after which files are completed.
    pub(crate) interval: Duration,
    /// Where complete files are put instead.
    pub(crate) s3: Option<S3Settings>,
}

/// The destination.
pub(crate) struct ParquetSink {
    settings: ParquetSettings,
    /// Name of the destination.
    name: String,
    /// Name of the directories of the host.
    host: String,
    schema: SchemaDescriptor,
    properties: WriterPropertiesPtr,
    directory: Option<Directory>,
    bucket: Option<Bucket>,
    /// Files that are not complete, by the number of their day.
    open: BTreeMap<u64, OpenFile>,
    /// When the first row of them was put.
    since: Option<Instant>,
    /// Frames that were put.
    frames: u64,
    /// Frames that are in complete files.
    confirmed: u64,
    is_completed: bool,
}

/// A file that is not complete.
struct OpenFile {
    table: Table,
    /// `None` until the first row group.
    writer: Option<SerializedFileWriter<TemporaryFile>>,
    /// Id of the boot of the first row.
    boot: String,
    /// The first event and the last one.
    events: Option<(EventId, EventId)>,
    /// Time of the first row.
    time: Time,
    /// Number of events.
    count: u64,
}

/// What is the same for an event that comes twice, beside host and boot.
#[derive(Clone, Copy)]
struct EventId {
    time: Time,
    serial: u32,
}

impl ParquetSink {
    /// A destination of this name.
    ///
    /// # Errors
    /// None is known.
    pub(crate) fn new(name: &str, host: &str, settings: ParquetSettings) -> anyhow::Result<Self> {
        Ok(Self {
            bucket: settings.s3.clone().map(Bucket::new),
            settings,
            name: name.to_owned(),
            host: partition::host_directory(host),
            schema: schema::schema()?,
            properties: schema::properties()?,
            directory: None,
            open: BTreeMap::new(),
            since: None,
            frames: 0,
            confirmed: 0,
            is_completed: false,
        })
    }

    /// Writes the rows that are held as row groups.
    fn write_groups(&mut self) -> anyhow::Result<()> {
        let directory = self.directory.as_ref().context("no directory is open")?;
        for (day, file) in &mut self.open {
            if file.table.rows() == 0 {
                continue;
            }
            let writer = match &mut file.writer {
                Some(writer) => writer,
                None => {
                    let partition = match &self.bucket {
                        None => directory.partition(&date(*day), &self.host)?,
                        Some(_) => directory.partition(UPLOADS, &self.host)?,
                    };
                    let temporary = partition.create(&self.name)?;
                    let schema = self.schema.root_schema_ptr();
                    let writer =
                        SerializedFileWriter::new(temporary, schema, self.properties.clone());
                    file.writer.insert(writer.map_err(plain)?)
                }
            };
            let written = file.table.write(writer).map_err(plain);
            written
                .with_context(|| format!("cannot write `{}`", writer.inner().path().display()))?;
        }
        Ok(())
    }

    /// Completes all files.
    fn complete(&mut self) -> anyhow::Result<()> {
        self.write_groups()?;
        while let Some((day, mut file)) = self.open.pop_first() {
            let Some(writer) = file.writer.take() else {
                continue;
            };
            let path = writer.inner().path();
            let written = writer.into_inner().map_err(plain);
            let temporary =
                written.with_context(|| format!("cannot write `{}`", path.display()))?;
            let name = file.name(&self.name);
            match &mut self.bucket {
                None => temporary.publish(&name)?,
                Some(bucket) => {
                    let name = format!("{}/{}/{name}", date(day), self.host);
                    bucket.put(&name, temporary.file())?;
                }
            }
        }
        self.since = None;
        self.is_completed = self.confirmed != self.frames;
        self.confirmed = self.frames;
        Ok(())
    }

    fn is_due(&self) -> bool {
        let is_over = |since: Instant| since.elapsed() >= self.settings.interval;
        self.is_full() || self.since.is_some_and(is_over)
    }
}

impl Sink for ParquetSink {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        let directory = Directory::open(&self.settings.directory)?;
        let removed = directory.remove_left_over(&self.host, &self.name)?;
        if removed > 0 {
            info(format_args!(
                "{}: removed {removed} files that a run had not completed",
                self.name
            ));
        }
        self.directory = Some(directory);
        self.bucket.as_mut().map_or(Ok(()), Bucket::connect)
    }

    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        let time = row::time(frame);
        let file = self
            .open
            .entry(time.ms / DAY_MS)
            .or_insert_with(|| OpenFile {
                table: Table::new(&self.schema),
                writer: None,
                boot: frame.boot.to_owned(),
                events: None,
                time,
                count: 0,
            });
        row::append(frame, &mut file.table);
        if let Record::Event(event) = frame.record {
            let serial = event.serial().0;
            let id = EventId { time, serial };
            let (first, _) = file.events.unwrap_or((id, id));
            file.events = Some((first, id));
            file.count += 1;
        }
        self.frames += 1;
        self.since.get_or_insert_with(Instant::now);
        let tables = || self.open.values().map(|file| &file.table);
        let bytes: usize = tables().map(Table::bytes).sum();
        let rows: usize = tables().map(Table::rows).sum();
        if bytes >= GROUP_BYTES || rows >= GROUP_ROWS {
            self.write_groups()?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let events: u64 = self.open.values().map(|file| file.count).sum();
        events >= self.settings.rows || self.open.len() > MAX_DATES
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.is_completed = false;
        match self.is_due() {
            true => self.complete(),
            false => Ok(()),
        }
    }

    fn is_checkpoint(&self) -> bool {
        self.is_completed
    }

    fn confirmed(&mut self) -> anyhow::Result<u64> {
        Ok(self.confirmed)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.complete()
    }

    fn disconnect(&mut self) {
        self.open.clear();
        self.directory = None;
        if let Some(bucket) = &mut self.bucket {
            bucket.disconnect();
        }
        self.since = None;
        (self.frames, self.confirmed, self.is_completed) = (0, 0, false);
    }
}

impl OpenFile {
    /// Name of the complete file. A file that is written again, after a kill, has the same one if it has the same events.
    fn name(&self, destination: &str) -> String {
        let boot = match self.boot.as_str() {
            "" => "unknown".to_owned(),
            boot => partition::component(boot),
        };
        let first = EventId {
            time: self.time,
            serial: 0,
        };
        let (first, last) = self.events.unwrap_or((first, first));
        format!(
            "{destination}-{boot}-{}.{}-{}.{}-{}.parquet",
            first.time.ms, first.serial, last.time.ms, last.serial, self.count
        )
    }
}

/// Name of the directory of a day.
fn date(day: u64) -> String {
    let ms = day.saturating_mul(DAY_MS);
    let start = Time { ms }.timestamp();
    start.strftime("date=%Y-%m-%d").to_string()
}

/// An error of the crate with the one of the system in it, if there is one.
fn plain(error: ParquetError) -> anyhow::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => (*error).into(),
            Err(error) => anyhow::anyhow!(error),
        },
        error => error.into(),
    }
}
