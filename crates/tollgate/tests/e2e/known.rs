//! The differences between the kernel's records and tollgate's that are permitted: tables of rows.

use std::fmt;

use super::differential::Difference;

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    row: &'static str,
    calls: Pattern,
    record: Pattern,
    field: Pattern,
    kernel: Pattern,
    tollgate: Pattern,
    used: bool,
}

/// What a cell stands for: one of several words, `-` for nothing, `*` for whatever there is.
#[derive(Clone, Debug)]
struct Pattern(&'static str);

impl Pattern {
    fn fits(&self, value: Option<&str>) -> bool {
        self.0.split(',').any(|word| match (word, value) {
            ("-", value) => value.is_none(),
            ("*", value) => value.is_some(),
            (word, Some(value)) => match word.strip_suffix('*') {
                Some(start) => value.starts_with(start),
                None => value == word,
            },
            (_, None) => false,
        })
    }
}

impl Known {
    /// All rows.
    #[track_caller]
    pub(crate) fn all(table: &'static str) -> Vec<Self> {
        table
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|row| {
                let (cells, reason) = row.split_once(": ").unwrap_or((row, ""));
                assert!(!reason.is_empty(), "a difference without a reason: {row}");
                let cells: Vec<&'static str> = cells.split_whitespace().collect();
                let &[calls, record, field, kernel, tollgate] = cells.as_slice() else {
                    panic!("not five cells and a reason: {row}");
                };
                Self {
                    row,
                    calls: Pattern(calls),
                    record: Pattern(record),
                    field: Pattern(field),
                    kernel: Pattern(kernel),
                    tollgate: Pattern(tollgate),
                    used: false,
                }
            })
            .collect()
    }

    /// Whether this row permits the difference; remembers that it did.
    pub(crate) fn permits(&mut self, difference: &Difference) -> bool {
        let permits = self.calls.fits(Some(&difference.call))
            && self.record.fits(Some(&difference.record))
            && self.field.fits(Some(&difference.field))
            && self.kernel.fits(difference.kernel.as_deref())
            && self.tollgate.fits(difference.tollgate.as_deref());
        self.used |= permits;
        permits
    }

    /// Whether some difference needed this row.
    pub(crate) const fn was_used(&self) -> bool {
        self.used
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row)
    }
}
