//! `cargo xtask kernels`: runs `tollgate doctor` on each kernel of the matrix and writes `docs/kernels.md`; with
//! `--check` it compares what the verifier processes with the page.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use super::build::build_with;
use super::report::Doctor;
use super::{Options, boot_all};
use crate::Outcome;
use crate::repository::Repository;
use crate::test_results::TestResults;

/// Path of the page.
const FILE: &str = "docs/kernels.md";

/// The matrix.
const MATRIX: &str = "6.1,6.12,6.18,7.0,newest,newest-rt";

/// The filter of the test.
const FILTER: &str = "doctor::";

/// A program may grow by this many per cent.
const GROWTH: u64 = 10;

const HEAD: &str = "\
# Kernels

`cargo xtask kernels` writes this page: it boots Debian's kernels in QEMU and runs `tollgate doctor`.
`cargo xtask hooks KERNEL...` checks the hooks of any kernel in seconds, without booting it.

";

const VERIFIED: &str = "\
## Verified instructions

Instructions that the verifier processes for each program, with rules about every syscall whose objects `fentry` sees.
Engines that do not start on a kernel have none there.
`cargo xtask kernels --check` fails if a program grows by more than ten per cent.

";

/// What `tollgate doctor` said on a kernel.
#[derive(Debug)]
pub(crate) struct Diagnosed {
    pub(crate) line: String,
    pub(crate) doctor: Doctor,
}

/// Writes the page, or compares it with `--check`.
///
/// # Errors
/// If a machine cannot be started, or the page cannot be read or written.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let is_check = match arguments {
        [] => false,
        [option] if option == "--check" => true,
        _ => return Err("usage: kernels [--check]".into()),
    };
    let words = ["--profile", "dev", "--kernel", MATRIX, "--filter", FILTER];
    let options = Options::parse(&words.map(str::to_owned))?;
    let mut tests = TestResults::default();
    if !build_with(repository, options.profile, options.target)? {
        return Ok(ExitCode::FAILURE);
    }
    let Some(passed) = boot_all(repository, &options, &mut tests)? else {
        println!("{}{}", tests.listing(), tests.tally);
        return Ok(ExitCode::FAILURE);
    };
    let path = repository.root.join(FILE);
    if !is_check {
        fs::write(path, page(&passed.diagnosed))?;
        return Ok(ExitCode::SUCCESS);
    }
    let written =
        fs::read_to_string(path).map_err(|error| format!("cannot read {FILE}: {error}"))?;
    let grown = growth(&written, &passed.diagnosed);
    for line in &grown {
        println!("    FAIL  {line}");
    }
    Ok(if grown.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn page(kernels: &[Diagnosed]) -> String {
    let mut text = HEAD.to_owned();
    for Diagnosed { line, doctor } in kernels {
        // Writing to a string does not fail.
        let _written = writeln!(text, "## {line}\n\n```text\n{}```\n", doctor.text);
    }
    text.push_str(VERIFIED);
    let lines: Vec<&str> = kernels.iter().map(|kernel| kernel.line.as_str()).collect();
    let rules = "| ---: ".repeat(lines.len());
    let _written = writeln!(text, "| program | {} |\n| --- {rules}|", lines.join(" | "));
    for program in programs(kernels) {
        let cells: Vec<String> = kernels
            .iter()
            .map(|kernel| {
                kernel
                    .doctor
                    .verified(program)
                    .map_or_else(String::new, |it| it.to_string())
            })
            .collect();
        let _written = writeln!(text, "| {program} | {} |", cells.join(" | "));
    }
    text
}

/// The programs of all kernels, sorted.
fn programs(kernels: &[Diagnosed]) -> Vec<&str> {
    let all = kernels.iter().flat_map(|kernel| &kernel.doctor.verified);
    let mut names: Vec<&str> = all.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Programs that have grown since the page was written, and programs that the page lacks.
fn growth(written: &str, kernels: &[Diagnosed]) -> Vec<String> {
    let row = |name: &str| {
        let start = format!("| {name} |");
        let line = written.lines().find(|line| line.starts_with(&start))?;
        Some(
            line.split('|')
                .skip(2)
                .map(str::trim)
                .collect::<Vec<&str>>(),
        )
    };
    let columns = row("program").unwrap_or_default();
    let mut grown = Vec::new();
    for Diagnosed { line, doctor } in kernels {
        let column = columns.iter().position(|name| name == line);
        for (name, now) in &doctor.verified {
            let before = row(name)
                .zip(column)
                .and_then(|(row, at)| row.get(at)?.parse::<u64>().ok());
            match before {
                Some(before) if *now * 100 <= before * (100 + GROWTH) => {}
                Some(before) => {
                    grown.push(format!("{line}: {name} has grown from {before} to {now}"));
                }
                None => grown.push(format!("{line}: {FILE} lacks {name}")),
            }
        }
    }
    grown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(verified: u64) -> Vec<Diagnosed> {
        let mut doctor = Doctor::default();
        doctor.add_text("result: complete");
        assert!(doctor.add_verified(&format!("{verified} fentry/open_filp")));
        assert!(!doctor.add_verified("many fentry/open_filp"));
        let line = "6.1".to_owned();
        vec![Diagnosed { line, doctor }]
    }

    #[test]
    fn page_has_text_and_table() {
        let page = page(&kernels(100));
        assert!(
            page.contains("## 6.1\n\n```text\nresult: complete\n```\n"),
            "{page}"
        );
        assert!(
            page.ends_with("| program | 6.1 |\n| --- | ---: |\n| fentry/open_filp | 100 |\n"),
            "{page}"
        );
    }

    #[test]
    fn growth_beyond_ten_per_cent_fails() {
        let page = page(&kernels(100));
        assert_eq!(growth(&page, &kernels(110)), Vec::<String>::new());
        assert_eq!(growth(&page, &kernels(111)).len(), 1);
        assert_eq!(growth(HEAD, &kernels(1)).len(), 1);
    }
}
