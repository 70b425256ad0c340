//! Generates the number tables of crate `audit` from the source of crate `linux-raw-sys`.
//!
//! That crate has bindgen's output for the kernel's headers of every architecture, and the version of the kernel.
//! The tables are committed: `audit` needs no dependency for them, and a change of a number appears in review.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Outcome;
use crate::repository::Repository;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The source crate.
const NAME: &str = "linux-raw-sys";

/// The use of the generated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Write the files.
    Write,
    /// Compare with the files, and fail if they differ.
    Check,
}

/// One generated file.
struct Table {
    /// Its name under `crates/audit/src/table/generated`.
    file: &'static str,
    /// Its contents, for the header.
    title: &'static str,
    /// The file in the source crate.
    source: &'static str,
    /// The prefix of the constants' names.
    prefix: Prefix,
}

enum Prefix {
    /// Not part of the names in the table.
    Stripped(&'static str),
    /// Part of the names in the table.
    Included(&'static str),
}

const TABLES: [Table; 10] = [
    syscalls(
        "syscalls_x86_64.rs",
        "Syscalls of `x86_64`",
        "src/x86_64/general.rs",
    ),
    syscalls(
        "syscalls_i386.rs",
        "Syscalls of `i386`",
        "src/x86/general.rs",
    ),
    syscalls(
        "syscalls_aarch64.rs",
        "Syscalls of `aarch64`",
        "src/aarch64/general.rs",
    ),
    syscalls("syscalls_arm.rs", "Syscalls of `arm`", "src/arm/general.rs"),
    syscalls(
        "syscalls_ppc.rs",
        "Syscalls of `ppc`",
        "src/powerpc/general.rs",
    ),
    syscalls(
        "syscalls_ppc64.rs",
        "Syscalls of `ppc64`",
        "src/powerpc64/general.rs",
    ),
    syscalls(
        "syscalls_s390x.rs",
        "Syscalls of `s390x`",
        "src/s390x/general.rs",
    ),
    syscalls(
        "syscalls_riscv32.rs",
        "Syscalls of `riscv32`",
        "src/riscv32/general.rs",
    ),
    syscalls(
        "syscalls_riscv64.rs",
        "Syscalls of `riscv64`",
        "src/riscv64/general.rs",
    ),
    Table {
        file: "errno.rs",
        title: "Error numbers of x86",
        source: "src/x86_64/errno.rs",
        prefix: Prefix::Included("E"),
    },
];

/// Syscalls of one arch.
const fn syscalls(file: &'static str, title: &'static str, source: &'static str) -> Table {
    Table {
        file,
        title,
        source,
        prefix: Prefix::Stripped("__NR_"),
    }
}

/// The first number that no audit rule can name. The headers of arm list the bases of its two ABIs among the
/// syscalls; one of them is 0.
const SYSCALL_LIMIT: u32 = 2048;

/// Name of such a base.
const BASE: &str = "SYSCALL_BASE";

/// Generates every table; with `--check`, compares instead of writing.
///
/// # Errors
/// If the source crate cannot be found or read, or, with `--check`, if a table is outdated.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let mode = match arguments {
        [] => Mode::Write,
        [argument] if argument == "--check" => Mode::Check,
        _ => return Err("usage: tables [--check]".into()),
    };
    tables(repository, mode)?;
    Ok(ExitCode::SUCCESS)
}

fn tables(repository: &Repository, mode: Mode) -> Result<()> {
    let source = SourceCrate::find(repository)?;
    let kernel = kernel_version(&source)?;
    for table in &TABLES {
        let text = generate(table, &source, &kernel)?;
        let path = repository
            .root
            .join("crates/audit/src/table/generated")
            .join(table.file);
        let shown = path.display();
        match mode {
            Mode::Write => {
                fs::write(&path, text)
                    .map_err(|error| format!("cannot write `{shown}`: {error}"))?;
            }
            Mode::Check if read(&path)? != text => {
                return Err(format!(
                    "`{shown}` is outdated; run `cargo xtask tables` and commit the result"
                )
                .into());
            }
            Mode::Check => {}
        }
    }
    Ok(())
}

/// The source crate in cargo's registry.
struct SourceCrate {
    version: String,
    directory: PathBuf,
}

impl SourceCrate {
    fn find(repository: &Repository) -> Result<Self> {
        let output = repository
            .cargo(&["metadata", "--format-version=1", "--locked"])
            .output()?;
        let metadata = String::from_utf8_lossy(&output.stdout);
        Self::find_in(&metadata).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("`cargo metadata` does not list `{NAME}`: {}", said.trim()).into()
        })
    }

    /// Finds the manifest whose directory has the name that cargo gives the source of a registry package. This
    /// crate has no JSON parser.
    fn find_in(metadata: &str) -> Option<Self> {
        metadata
            .split("\"manifest_path\":\"")
            .skip(1)
            .find_map(|rest| {
                let manifest = Path::new(rest.split('"').next()?);
                let directory = manifest.parent()?;
                let version = directory
                    .file_name()?
                    .to_str()?
                    .strip_prefix(NAME)?
                    .strip_prefix('-')?;
                Some(Self {
                    version: version.to_owned(),
                    directory: directory.to_owned(),
                })
            })
    }

    fn read(&self, file: &str) -> Result<String> {
        read(&self.directory.join(file))
    }
}

/// The version of the kernel whose headers the source crate has.
fn kernel_version(source: &SourceCrate) -> Result<String> {
    let text = source.read("src/x86_64/general.rs")?;
    let part = |name: &str| {
        constants(&text)
            .find_map(|(found, number)| (found == name).then_some(number))
            .ok_or_else(|| format!("`{name}` is not in `{NAME}`"))
    };
    let major = part("LINUX_VERSION_MAJOR")?;
    let patch = part("LINUX_VERSION_PATCHLEVEL")?;
    let sub = part("LINUX_VERSION_SUBLEVEL")?;
    Ok(format!("{major}.{patch}.{sub}"))
}

fn generate(table: &Table, source: &SourceCrate, kernel: &str) -> Result<String> {
    let Table {
        title,
        source: file,
        ..
    } = table;
    let text = source.read(file)?;
    let mut entries: Vec<(u32, &str)> = constants(&text)
        .filter_map(|(name, number)| match table.prefix {
            Prefix::Stripped(prefix) => {
                let name = name.strip_prefix(prefix)?;
                (number < SYSCALL_LIMIT && name != BASE).then_some((number, name))
            }
            Prefix::Included(prefix) => name.starts_with(prefix).then_some((number, name)),
        })
        .collect();
    // Of two names with one number, the preferred one precedes in the header; a stable sort keeps the order.
    entries.sort_by_key(|&(number, _)| number);
    let names: BTreeSet<&str> = entries.iter().map(|&(_, name)| name).collect();
    if names.is_empty() || names.len() != entries.len() {
        return Err(format!("`{file}` of `{NAME}` has no names, or one twice").into());
    }

    let mut out = format!(
        "//! {title}, by number, from the headers of Linux {kernel}.\n\
         //!\n\
         //! Generated by `cargo xtask tables` from {NAME} {}, `{file}`. Do not edit.\n\
         \n\
         pub(in crate::table) static BY_NUMBER: &[(u32, &str)] = &[\n",
        source.version
    );
    for (number, name) in entries {
        writeln!(out, "    ({number}, \"{name}\"),")?;
    }
    out.push_str("];\n");
    Ok(out)
}

/// The unsigned constants of a bindgen file, in file order.
fn constants(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("pub const ")?.split_once(": u32 = ")?;
        Some((name, number.strip_suffix(';')?.parse().ok()?))
    })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| format!("cannot read `{}`: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_in_file_order() {
        let text = "pub type x = u8;\npub const __NR_b: u32 = 2;\npub const S: &[u8] = b\"x\";\n\
                    pub const __NR_a: u32 = 1;\n";
        let found: Vec<_> = constants(text).collect();
        assert_eq!(found, [("__NR_b", 2), ("__NR_a", 1)]);
    }

    #[test]
    fn source_crate_is_found_by_its_directory() {
        let metadata = r#"{"packages":[{"manifest_path":"/r/linux-raw-sysx/Cargo.toml"},
            {"manifest_path":"/w/xtask/Cargo.toml"},
            {"manifest_path":"/r/linux-raw-sys-0.12.1/Cargo.toml"}]}"#;
        let found = SourceCrate::find_in(metadata).unwrap();
        assert_eq!(found.version, "0.12.1");
        assert_eq!(found.directory, Path::new("/r/linux-raw-sys-0.12.1"));
        assert!(SourceCrate::find_in("").is_none());
    }

    #[test]
    fn committed_tables_are_fresh() {
        tables(&Repository::find().unwrap(), Mode::Check).unwrap();
    }
}
