//! Rows that are not written yet, column by column, as Parquet has them.
//!
//! A row sets some columns, and the others are null. A value has the highest definition level of its column, a null that
//! of what is there around it; a value in a list has the repetition level 1 unless it is the first of its row.

use std::io::Write;

use parquet::basic::Type;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::schema::Leaf;

/// Rows.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: usize,
    /// Bytes of values.
    bytes: usize,
}

#[derive(Debug)]
struct Column {
    /// Definition level of a value.
    value_level: i16,
    is_list: bool,
    values: Values,
    definitions: Vec<i16>,
    /// Of a list; else empty.
    repetitions: Vec<i16>,
    /// Rows that have levels.
    rows: usize,
}

#[derive(Debug)]
enum Values {
    /// Bytes of all values, and where each ends.
    Text(Vec<u8>, Vec<usize>),
    Number(Vec<i64>),
    Flag(Vec<bool>),
}

impl Table {
    pub(super) fn new(schema: &SchemaDescriptor) -> Self {
        let columns = schema.columns().iter();
        Self {
            columns: columns.map(|column| Column::new(column)).collect(),
            rows: 0,
            bytes: 0,
        }
    }

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a row, in which all columns are null.
    pub(super) const fn begin_row(&mut self) {
        self.rows += 1;
    }

    /// Sets a column, unless the row has it.
    pub(super) fn text(&mut self, leaf: Leaf, value: &[u8]) {
        if !self.has(leaf) {
            self.add_text(leaf, value);
        }
    }

    /// Sets a column, unless the row has it.
    pub(super) fn number(&mut self, leaf: Leaf, value: i64) {
        if !self.has(leaf) {
            self.add_number(leaf, value);
        }
    }

    /// Sets a column, unless the row has it.
    pub(super) fn flag(&mut self, leaf: Leaf, value: bool) {
        let rows = self.rows;
        if let Some(column) = self.column(leaf)
            && column.rows < rows
            && let Values::Flag(values) = &mut column.values
        {
            values.push(value);
            column.level(rows, column.value_level);
            self.bytes += 1;
        }
    }

    /// Appends a value to the list of the row. Bytes that are no UTF-8 become U+FFFD.
    pub(super) fn add_text(&mut self, leaf: Leaf, value: &[u8]) {
        let rows = self.rows;
        if let Some(column) = self.column(leaf)
            && let Values::Text(bytes, ends) = &mut column.values
        {
            // Nearly all text is ASCII, which is told faster than UTF-8.
            match value.is_ascii() {
                true => bytes.extend_from_slice(value),
                false => bytes.extend_from_slice(String::from_utf8_lossy(value).as_bytes()),
            }
            ends.push(bytes.len());
            column.level(rows, column.value_level);
            self.bytes += value.len() + size_of::<usize>();
        }
    }

    /// Appends a value to the list of the row.
    pub(super) fn add_number(&mut self, leaf: Leaf, value: i64) {
        let rows = self.rows;
        if let Some(column) = self.column(leaf)
            && let Values::Number(values) = &mut column.values
        {
            values.push(value);
            column.level(rows, column.value_level);
            self.bytes += size_of::<i64>();
        }
    }

    /// Appends a null to the list of the row.
    pub(super) fn add_null(&mut self, leaf: Leaf) {
        let rows = self.rows;
        if let Some(column) = self.column(leaf) {
            column.level(rows, column.value_level - 1);
        }
    }

    /// Whether the row has a column.
    pub(super) fn has(&self, leaf: Leaf) -> bool {
        let column = self.columns.get(leaf as usize);
        column.is_some_and(|column| column.rows == self.rows)
    }

    /// Writes the rows as a row group, and forgets them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write<W: Write + Send>(
        &mut self,
        to: &mut SerializedFileWriter<W>,
    ) -> Result<()> {
        let mut group = to.next_row_group()?;
        for column in &mut self.columns {
            column.fill(self.rows);
            if let Some(mut writer) = group.next_column()? {
                column.write(writer.untyped())?;
                writer.close()?;
            }
            column.clear();
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    fn column(&mut self, leaf: Leaf) -> Option<&mut Column> {
        self.columns.get_mut(leaf as usize)
    }
}

impl Column {
    fn new(column: &ColumnDescriptor) -> Self {
        Self {
            value_level: column.max_def_level(),
            is_list: column.max_rep_level() > 0,
            values: match column.physical_type() {
                Type::BOOLEAN => Values::Flag(Vec::new()),
                Type::INT64 => Values::Number(Vec::new()),
                _ => Values::Text(Vec::new(), Vec::new()),
            },
            definitions: Vec::new(),
            repetitions: Vec::new(),
            rows: 0,
        }
    }

    /// Appends the definition level of what is next in a row; rows before it that have none are null.
    fn level(&mut self, row: usize, definition: i16) {
        let is_first = self.rows < row;
        if is_first {
            if self.rows + 1 < row {
                self.fill(row - 1);
            }
            self.rows = row;
        }
        self.definitions.push(definition);
        if self.is_list {
            self.repetitions.push(i16::from(!is_first));
        }
    }

    /// The column is null in rows that have no level, up to a number of them.
    fn fill(&mut self, rows: usize) {
        let nulls = rows.saturating_sub(self.rows);
        self.definitions.resize(self.definitions.len() + nulls, 0);
        if self.is_list {
            self.repetitions.resize(self.repetitions.len() + nulls, 0);
        }
        self.rows += nulls;
    }

    fn write(&mut self, to: &mut ColumnWriter<'_>) -> Result<()> {
        let definitions = Some(&self.definitions[..]);
        let repetitions = self.is_list.then_some(&self.repetitions[..]);
        match (to, &mut self.values) {
            (ColumnWriter::ByteArrayColumnWriter(to), Values::Text(bytes, ends)) => {
                // As many are expected next: memory that is not touched is not used.
                let next = Vec::with_capacity(bytes.len());
                let all = ByteArray::from(std::mem::replace(bytes, next));
                let mut start = 0;
                let values = ends.iter().map(|&end| {
                    let value = all.slice(start, end - start);
                    start = end;
                    value
                });
                let values: Vec<ByteArray> = values.collect();
                to.write_batch(&values, definitions, repetitions)?;
            }
            (ColumnWriter::Int64ColumnWriter(to), Values::Number(values)) => {
                to.write_batch(values, definitions, repetitions)?;
            }
            (ColumnWriter::BoolColumnWriter(to), Values::Flag(values)) => {
                to.write_batch(values, definitions, repetitions)?;
            }
            _ => {
                let text = "a column is of another type than its values";
                return Err(ParquetError::General(text.to_owned()));
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Text(bytes, ends) => {
                bytes.clear();
                ends.clear();
            }
            Values::Number(values) => values.clear(),
            Values::Flag(values) => values.clear(),
        }
        self.definitions.clear();
        self.repetitions.clear();
        self.rows = 0;
    }
}
