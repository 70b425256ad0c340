//! `docs/instructions.md`: instructions per call on each kernel. `cargo xtask counts` writes it; `make test`
//! compares it with the counts of that run.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;

use super::counts::Counts;
use crate::repository::Repository;

/// Path of the table.
const FILE: &str = "docs/instructions.md";
/// The state in the table's second column of each kernel; the first is without a daemon.
const RULES: &str = "fentry, ten rules";
/// A count may differ by 1/20 from the table: the placement of the kernel's allocations, and names that share
/// a hash chain, change it by a few instructions.
const TOLERANCE: u64 = 20;

const HEAD: &str = "\
# Instructions of a syscall

`cargo xtask counts` writes this table. `make test` counts again and fails if a count differs by more than 5%, or if a 0 changes.
Each number is the most frequent of 3,000 counts of user-mode and kernel-mode instructions, including those that load the arguments, by QEMU's `-icount` on Debian's kernels.
`tests/vm/src/count.rs` has the method and the limits.
The rules are the ten of Cloudflare's patch: `dir=` watches with `perm=wa` for `openat` and four other syscalls.
Syscalls that no rule names have 0 added.
The counts of `open` and `openat` include the `close`.

";

/// The counts of one kernel.
pub(crate) struct Counted {
    pub(crate) line: String,
    pub(crate) counts: Counts,
}

/// A call's row: for each kernel the count without a daemon, and with the rules.
type Row<'a> = (&'a str, Vec<(u64, u64)>);

/// Writes the table.
///
/// # Errors
/// If a count is missing, or the file cannot be written.
pub(crate) fn write(repository: &Repository, counted: &[Counted]) -> Result<(), Box<dyn Error>> {
    let path = repository.root.join(FILE);
    Ok(fs::write(path, text(counted, &rows(counted)?))?)
}

/// Differences between the table and the counts.
///
/// # Errors
/// If a count is missing, or the file cannot be read.
pub(crate) fn differences(
    repository: &Repository,
    counted: &[Counted],
) -> Result<Vec<String>, Box<dyn Error>> {
    let rows = rows(counted)?;
    let written = fs::read_to_string(repository.root.join(FILE))
        .map_err(|error| format!("cannot read {FILE}: {error}; `cargo xtask counts` writes it"))?;
    Ok(compare(&written, &rows))
}

fn rows(counted: &[Counted]) -> Result<Vec<Row<'_>>, String> {
    let calls = counted.first().map(|first| first.counts.calls());
    let mut rows = Vec::new();
    for call in calls.unwrap_or_default() {
        let mut cells = Vec::new();
        for Counted { line, counts } in counted {
            let of = |state| counts.first(call, state);
            let cell = of("off").zip(of(RULES));
            cells.push(cell.ok_or_else(|| format!("{line}: no count of `{call}`"))?);
        }
        rows.push((call, cells));
    }
    Ok(rows)
}

fn text(counted: &[Counted], rows: &[Row<'_>]) -> String {
    let mut text = HEAD.to_owned();
    let (mut names, mut line) = ("| call |".to_owned(), "| --- |".to_owned());
    for Counted { line: kernel, .. } in counted {
        // Writing to a string does not fail.
        let _written = write!(names, " no daemon, {kernel} | ten rules add, {kernel} |");
        line.push_str(" ---: | ---: |");
    }
    let _written = write!(text, "{names}\n{line}\n");
    for row in rows {
        let _written = writeln!(text, "{}", format_row(row));
    }
    text
}

fn format_row((call, cells): &Row<'_>) -> String {
    let mut row = format!("| {call} |");
    for (off, with) in cells {
        let _written = write!(row, " {off} | {} |", with.saturating_sub(*off));
    }
    row
}

fn compare(written: &str, rows: &[Row<'_>]) -> Vec<String> {
    let mut differences = Vec::new();
    for row in rows {
        let (call, cells) = row;
        let start = format!("| {call} |");
        let Some(found) = written.lines().find(|line| line.starts_with(&start)) else {
            differences.push(format!("{FILE} has no row `{call}`"));
            continue;
        };
        let numbers: Vec<u64> = found
            .split('|')
            .filter_map(|cell| cell.trim().parse().ok())
            .collect();
        let now = cells
            .iter()
            .flat_map(|(off, with)| [*off, with.saturating_sub(*off)]);
        let same = numbers.len() == 2 * cells.len() && numbers.iter().zip(now).all(is_near);
        if !same {
            differences.push(format!(
                "{FILE} has `{found}`, counted `{}`; run `cargo xtask counts`",
                format_row(row)
            ));
        }
    }
    differences
}

fn is_near((&before, now): (&u64, u64)) -> bool {
    // 0 must stay 0.
    before.abs_diff(now) * TOLERANCE <= before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> Vec<Counted> {
        let mut counts = Counts::default();
        for line in lines {
            assert!(counts.parse_line(line), "{line}");
        }
        vec![Counted {
            line: "6.1".to_owned(),
            counts,
        }]
    }

    const LINES: [&str; 4] = [
        "322 getppid/before any daemon",
        "5600 openat/before any daemon",
        "322 getppid/fentry, ten rules",
        "6000 openat/fentry, ten rules",
    ];

    #[test]
    fn table_has_the_counts() {
        let counted = counted(&LINES);
        let rows = rows(&counted).unwrap();
        let text = text(&counted, &rows);
        assert!(
            text.ends_with("| getppid | 322 | 0 |\n| openat | 5600 | 400 |\n"),
            "{text}"
        );
        assert_eq!(compare(&text, &rows), Vec::<String>::new());
    }

    #[test]
    fn counts_may_differ_by_the_tolerance_and_zero_may_not() {
        let before = counted(&LINES);
        let text = text(&before, &rows(&before).unwrap());
        let now = |with: &str| {
            let lines: Vec<&str> = LINES
                .iter()
                .take(2)
                .copied()
                .chain(with.split(';'))
                .collect();
            let now = counted(&lines);
            compare(&text, &rows(&now).unwrap()).len()
        };
        assert_eq!(
            now("322 getppid/fentry, ten rules;6020 openat/fentry, ten rules"),
            0
        );
        assert_eq!(
            now("322 getppid/fentry, ten rules;6021 openat/fentry, ten rules"),
            1
        );
        assert_eq!(
            now("323 getppid/fentry, ten rules;6000 openat/fentry, ten rules"),
            1
        );
        assert_eq!(compare("", &rows(&before).unwrap()).len(), 2);
    }

    #[test]
    fn missing_count_is_named() {
        let counted = counted(&LINES[..3]);
        assert!(rows(&counted).unwrap_err().contains("`openat`"));
    }
}
