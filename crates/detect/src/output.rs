//! Standard output and standard error.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write as _};

use anyhow::Context as _;

/// Standard output, buffered.
#[derive(Debug)]
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Prints a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn line(&mut self, line: impl Display) -> anyhow::Result<()> {
        writeln!(self.0, "{line}").context("cannot write to standard output")
    }

    /// Prints lines that end with a newline.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn text(&mut self, text: impl Display) -> anyhow::Result<()> {
        write!(self.0, "{text}").context("cannot write to standard output")
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        self.0.flush().context("cannot write to standard output")
    }
}

/// Prints a line on standard error, in one write, so that a reader sees whole lines. A closed pipe is ignored.
pub(crate) fn info(line: impl Display) {
    let _closed = io::stderr().write_all(format!("tollgate-detect: {line}\n").as_bytes());
}

/// Whether an error is that of a closed pipe.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Lines of a table: the first column is text, the others are numbers.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
