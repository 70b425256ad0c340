//! `cargo xtask kernels`: runs `tollgate doctor` on each kernel of the matrix, records what it found in
//! `docs/kernels.json`, and writes `docs/kernels.md` from that; `cargo xtask tidy` compares both.
//!
//! `--check` compares what doctor finds now with the record; `--page` writes the page without a boot.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::boot_all;
use super::matrix::MATRIX;
use super::options::{DOCTOR, Options};
use crate::Outcome;
use crate::repository::Repository;
use crate::test_results::TestResults;

/// Paths of the record and the page.
const RECORD: &str = "docs/kernels.json";
const PAGE: &str = "docs/kernels.md";

/// A program may grow by this many per cent.
const GROWTH: u64 = 10;

const USAGE: &str = "usage: kernels [--check] [KERNEL...] | kernels --page";

const HEAD: &str = "\
# Kernels

What `tollgate doctor` says on Debian's kernels, booted in QEMU.
`cargo xtask kernels` writes this page and `docs/kernels.json`, which also has the instructions that the verifier processes for each program; `cargo xtask kernels --check` boots the kernels again and fails if an engine or a preemption mode differs, or a program grows by more than ten per cent.
`cargo xtask hooks KERNEL...` checks the hooks of any kernel in seconds, without booting it.

The engine is the one of `--engine auto`, for rules about every syscall whose objects `fentry` sees; `-` if the daemon does not start.
The last column has the engines that do not start, with the reason, and how many hooks are missing.
The largest program is the one with the most instructions processed, of those of that engine.

| kernel | release | arch | preemption | engine | largest program | refused or missing |
| --- | --- | --- | --- | --- | --- | --- |
";

/// The record of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Diagnosed {
    /// Its name in the matrix.
    pub(crate) kernel: String,
    /// Its architecture, as `uname -m` prints it.
    pub(crate) arch: String,
    pub(crate) doctor: Doctor,
}

/// What `tollgate doctor` has found; `tests/vm/src/doctor.rs` writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Doctor {
    /// `uname -r`.
    release: String,
    /// The preemption mode, if it is known.
    preemption: Option<String>,
    /// The engine of `--engine auto`, if one starts.
    engine: Option<String>,
    engines: Vec<Engine>,
    missing_hooks: u32,
    /// The lines of its output.
    text: Vec<String>,
}

/// What it has found about an engine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Engine {
    name: String,
    /// Why it does not start.
    refusal: Option<String>,
    /// Instructions that the verifier has processed, by program.
    verified: BTreeMap<String, u64>,
}

impl Doctor {
    /// Parses what a machine writes.
    ///
    /// # Errors
    /// If it is no JSON of this form.
    pub(super) fn parse(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// The preemption mode.
    pub(super) fn mode(&self) -> &str {
        self.preemption.as_deref().unwrap_or("not known")
    }

    /// The engine of `--engine auto`, `-` if none starts.
    pub(super) fn engine_name(&self) -> &str {
        self.engine.as_deref().unwrap_or("-")
    }

    /// The program of the chosen engine with the most verified instructions.
    fn largest_program(&self) -> Option<(&str, u64)> {
        let chosen = |engine: &&Engine| Some(&engine.name) == self.engine.as_ref();
        let programs = &self.engines.iter().find(chosen)?.verified;
        let largest = programs.iter().max_by_key(|(_, number)| **number)?;
        Some((largest.0, *largest.1))
    }

    /// Engines that do not start, with the first clause of the reason, and missing hooks.
    fn lacks(&self) -> String {
        let refusal = |engine: &Engine| {
            let reason = engine.refusal.as_ref()?.split(';').next()?;
            Some(format!("`{}`: {reason}", engine.name))
        };
        let mut lacks: Vec<String> = self.engines.iter().filter_map(refusal).collect();
        if self.missing_hooks != 0 {
            lacks.push(format!("{} hooks", self.missing_hooks));
        }
        lacks.join("; ").replace('|', "\\|")
    }
}

/// Writes record and page, or compares the record with `--check`.
///
/// # Errors
/// If an argument is wrong, a machine cannot be started, or a file cannot be read or written.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let write_page = |recorded: &[Diagnosed]| fs::write(repository.root.join(PAGE), page(recorded));
    let (is_check, names) = match arguments {
        [option] if option == "--page" => {
            write_page(&recorded(repository)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        [option, names @ ..] if option == "--check" => (true, names),
        names => (false, names),
    };
    let Some(kernels) = selected(names) else {
        return Err(USAGE.into());
    };
    let words = ["--profile", "dev", "--kernel", &kernels, "--filter", DOCTOR];
    let options = Options::parse(&words.map(str::to_owned))?;
    let mut tests = TestResults::default();
    if !options.build(repository)? {
        return Ok(ExitCode::FAILURE);
    }
    let ran = boot_all(repository, &options, &mut tests)?;
    let mut is_passed = ran.is_passed;
    if is_check {
        let differences = differences(&recorded(repository)?, &ran.diagnosed);
        for difference in &differences {
            println!("    FAIL  {difference}");
        }
        is_passed &= differences.is_empty();
    } else {
        let recorded = merged(recorded(repository)?, ran.diagnosed);
        let json = serde_json::to_string_pretty(&recorded)? + "\n";
        fs::write(repository.root.join(RECORD), json)?;
        write_page(&recorded)?;
    }
    println!("{}{}", tests.listing(), tests.tally);
    Ok(if is_passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The record.
///
/// # Errors
/// If it cannot be read.
pub(super) fn recorded(repository: &Repository) -> Result<Vec<Diagnosed>, Box<dyn Error>> {
    let json = fs::read_to_string(repository.root.join(RECORD))
        .map_err(|error| format!("cannot read {RECORD}: {error}"))?;
    Ok(parse(&json)?)
}

/// The page that a record gives.
///
/// # Errors
/// If the text is no record.
pub(crate) fn page_of_record(json: &str) -> Result<String, String> {
    Ok(page(&parse(json)?))
}

fn parse(json: &str) -> Result<Vec<Diagnosed>, String> {
    serde_json::from_str(json)
        .map_err(|error| format!("{RECORD} is no record: {error}; `cargo xtask kernels` writes it"))
}

/// A value of `--kernel` for these names, all of the matrix if there are none; `None` if one is not in the matrix.
fn selected(names: &[String]) -> Option<String> {
    let all: Vec<&str> = MATRIX.iter().map(|entry| entry.kernel).collect();
    if names.is_empty() {
        return Some(all.join(","));
    }
    let is_known = names.iter().all(|name| all.contains(&name.as_str()));
    is_known.then(|| names.join(","))
}

/// The record with the kernels of `now` in place of those before, in the order of the matrix.
fn merged(mut before: Vec<Diagnosed>, now: Vec<Diagnosed>) -> Vec<Diagnosed> {
    before.retain(|old| now.iter().all(|new| new.kernel != old.kernel));
    before.extend(now);
    let mut recorded = Vec::new();
    for entry in &MATRIX {
        let found = before.iter().position(|it| it.kernel == entry.kernel);
        recorded.extend(found.map(|at| before.swap_remove(at)));
    }
    recorded
}

fn page(recorded: &[Diagnosed]) -> String {
    let mut text = HEAD.to_owned();
    for Diagnosed {
        kernel,
        arch,
        doctor,
    } in recorded
    {
        let engine = doctor.engine_name();
        let largest = doctor.largest_program();
        let largest = largest.map_or_else(
            || "-".to_owned(),
            |(name, number)| format!("`{name}` {number}"),
        );
        // Writing to a string does not fail.
        let _written = writeln!(
            text,
            "| {kernel} | {} | {arch} | {} | {engine} | {largest} | {} |",
            doctor.release,
            doctor.mode(),
            doctor.lacks()
        );
    }
    for Diagnosed { kernel, doctor, .. } in recorded {
        let _written = write!(
            text,
            "\n## {kernel}\n\n```text\n{}\n```\n",
            doctor.text.join("\n")
        );
    }
    text
}

/// Engines and preemption modes that differ from the record, programs that have grown, and those that it lacks.
fn differences(recorded: &[Diagnosed], now: &[Diagnosed]) -> Vec<String> {
    let mut differences = Vec::new();
    for Diagnosed { kernel, doctor, .. } in now {
        let Some(before) = recorded.iter().find(|it| it.kernel == *kernel) else {
            differences.push(format!("{RECORD} lacks {kernel}"));
            continue;
        };
        let before = &before.doctor;
        for (what, before, now) in [
            ("engine", before.engine_name(), doctor.engine_name()),
            ("preemption", before.mode(), doctor.mode()),
        ] {
            if before != now {
                differences.push(format!("{kernel}: {what} `{now}`, recorded `{before}`"));
            }
        }
        for engine in &doctor.engines {
            let recorded = before.engines.iter().find(|it| it.name == engine.name);
            for (program, now) in &engine.verified {
                let name = format!("{kernel}: {}/{program}", engine.name);
                match recorded.and_then(|it| it.verified.get(program)) {
                    Some(before) if *now * 100 <= before * (100 + GROWTH) => {}
                    Some(before) => {
                        differences.push(format!("{name} has grown from {before} to {now}"));
                    }
                    None => differences.push(format!("{name} is not in {RECORD}")),
                }
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosed(kernel: &str, verified: u64) -> Diagnosed {
        let engine = |name: &str, refusal: Option<&str>| Engine {
            name: name.to_owned(),
            refusal: refusal.map(str::to_owned),
            verified: BTreeMap::new(),
        };
        let mut fentry = engine("fentry", None);
        fentry.verified.insert("exec".to_owned(), 1);
        fentry.verified.insert("open_filp".to_owned(), verified);
        Diagnosed {
            kernel: kernel.to_owned(),
            arch: "x86_64".to_owned(),
            doctor: Doctor {
                release: "6.1.0".to_owned(),
                preemption: Some("preempt=full".to_owned()),
                engine: Some("fentry".to_owned()),
                engines: vec![fentry, engine("lsm", Some("it needs a|b; c has them"))],
                missing_hooks: 2,
                text: vec!["kernel: 6.1.0".to_owned(), "result: limited".to_owned()],
            },
        }
    }

    #[test]
    fn page_has_the_table_and_the_text_of_each_kernel() {
        let json = serde_json::to_string_pretty(&[diagnosed("6.1", 100)]).unwrap();
        let page = page_of_record(&json).unwrap();
        let row = "| 6.1 | 6.1.0 | x86_64 | preempt=full | fentry | `open_filp` 100 | `lsm`: it needs a\\|b; 2 hooks |\n";
        let text = "\n## 6.1\n\n```text\nkernel: 6.1.0\nresult: limited\n```\n";
        assert_eq!(page, format!("{HEAD}{row}{text}"));
        let error = page_of_record("[{}]").unwrap_err();
        assert!(
            error.contains("missing field") && error.contains("line 1"),
            "{error}"
        );
    }

    #[test]
    fn kernels_that_were_not_booted_keep_their_record() {
        let before = vec![
            diagnosed("newest", 1),
            diagnosed("6.1", 1),
            diagnosed("5.4", 1),
        ];
        let now = vec![diagnosed("6.12", 2), diagnosed("6.1", 2)];
        let merged = merged(before, now);
        let found = merged
            .iter()
            .map(|it| (it.kernel.as_str(), it.doctor.largest_program()));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [("6.1", 2), ("6.12", 2), ("newest", 1)]
                .map(|(kernel, number)| (kernel, Some(("open_filp", number))))
        );
    }

    #[test]
    fn only_kernels_of_the_matrix_are_recorded() {
        let select =
            |names: &[&str]| selected(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(select(&["6.1", "newest"]).as_deref(), Some("6.1,newest"));
        assert_eq!(select(&["6.1", "--all"]), None);
        assert!(select(&[]).unwrap().contains("6.12-full,"));
    }

    #[test]
    fn growth_beyond_ten_per_cent_and_another_engine_are_differences() {
        let recorded = [diagnosed("6.1", 100)];
        let found = |now: Diagnosed| differences(&recorded, &[now]);
        assert_eq!(found(diagnosed("6.1", 110)), [""; 0]);
        assert_eq!(
            found(diagnosed("6.1", 111)),
            ["6.1: fentry/open_filp has grown from 100 to 111"]
        );
        assert_eq!(
            found(diagnosed("6.12", 1)),
            ["docs/kernels.json lacks 6.12"]
        );
        let mut other = diagnosed("6.1", 100);
        other.doctor.engine = None;
        assert_eq!(found(other), ["6.1: engine `-`, recorded `fentry`"]);
    }
}
