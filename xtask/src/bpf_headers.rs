//! Checks that each header of the BPF programs compiles alone.
//!
//! One clang process for each architecture parses them all as separate translation units. libbpf's headers come from the
//! source of crate `libbpf-sys`, as in `crates/engine/build.rs`.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository::Repository;
use crate::step::succeeds;

/// The compiler of `crates/engine/build.rs`.
const CLANG: &str = "clang-19";

/// Its options there. Functions of a header may be unused.
const OPTIONS: [&str; 10] = [
    "-target",
    "bpf",
    "-mcpu=v3",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-unused-function",
    "-Werror",
    "-fsyntax-only",
];

/// The architectures that the programs are built for.
const TARGETS: [&str; 2] = ["-D__TARGET_ARCH_x86", "-D__TARGET_ARCH_arm64"];

/// The directory of the BPF programs.
const BPF: &str = "crates/engine/bpf";

/// Whether each header compiles alone, for each architecture.
///
/// # Errors
/// If libbpf's headers are not found, or clang cannot be started.
pub(crate) fn compile_alone(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    let sources = repository.c_sources()?;
    let headers: Vec<PathBuf> = sources
        .into_iter()
        .filter(|path| path.starts_with(BPF) && path.ends_with(".h"))
        .map(PathBuf::from)
        .collect();
    if headers.is_empty() {
        return Err(format!("{BPF} has no headers").into());
    }
    let include = libbpf(repository)?;
    for target in TARGETS {
        let mut clang = repository.command(CLANG);
        clang.arg(target);
        if !parse(&mut clang, &[Path::new(BPF), &include], &headers)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Parses each header as a separate translation unit.
fn parse(
    clang: &mut Command,
    include: &[&Path],
    headers: &[PathBuf],
) -> Result<bool, Box<dyn Error>> {
    clang.args(OPTIONS);
    for directory in include {
        clang.arg("-I").arg(directory);
    }
    succeeds(clang.args(["-x", "c"]).args(headers))
}

/// A directory with libbpf's headers as `bpf/NAME.h`.
fn libbpf(repository: &Repository) -> Result<PathBuf, Box<dyn Error>> {
    let output = repository
        .cargo(&["metadata", "--format-version=1", "--locked"])
        .output()?;
    let metadata = String::from_utf8_lossy(&output.stdout);
    let source = libbpf_source(&metadata)
        .ok_or("`cargo metadata` does not list the source of `libbpf-sys`")?;
    let include = repository.target().join("libbpf-headers");
    fs::create_dir_all(&include)?;
    let link = include.join("bpf");
    if !fs::read_link(&link).is_ok_and(|to| to == source) {
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => symlink(&source, &link)?,
        }
    }
    Ok(include)
}

/// The headers in the source of crate `libbpf-sys`.
fn libbpf_source(metadata: &str) -> Option<PathBuf> {
    metadata
        .split("\"manifest_path\":\"")
        .skip(1)
        .find_map(|rest| {
            let directory = Path::new(rest.split('"').next()?).parent()?;
            let name = directory.file_name()?.to_str()?;
            name.starts_with("libbpf-sys-")
                .then(|| directory.join("libbpf/src"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependent_header_is_refused() {
        let directory = std::env::temp_dir().join(format!("bpf-headers-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let header = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let types = header("types.h", "typedef unsigned int word;\n");
        let alone = header("alone.h", "#include \"types.h\"\nextern word counter;\n");
        let needs = header("needs.h", "extern word other;\n");
        let parse = |headers: &[PathBuf]| {
            parse(&mut Command::new(CLANG), &[directory.as_path()], headers).unwrap()
        };
        assert!(parse(&[types.clone(), alone.clone()]));
        assert!(!parse(&[types, alone, needs]));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn libbpf_is_found_among_the_packages() {
        let metadata = r#"{"manifest_path":"/r/libbpf-rs-0.27.2/Cargo.toml"},
            {"manifest_path":"/r/libbpf-sys-1.7.0+v1.7.0/Cargo.toml"}"#;
        assert_eq!(
            libbpf_source(metadata),
            Some(PathBuf::from("/r/libbpf-sys-1.7.0+v1.7.0/libbpf/src"))
        );
        assert_eq!(libbpf_source("{}"), None);
    }
}
