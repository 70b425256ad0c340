//! `cargo xtask hooks`: which hooks of the engine fentry kernels have, without booting them.
//!
//! A kernel is a file (`vmlinuz`, `vmlinux`, or BTF as in `/sys/kernel/btf/vmlinux`), or a line of Debian's kernels as
//! for `cargo xtask vm`. `tollgate doctor --btf` compares its types with the table of hooks.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use crate::Outcome;
use crate::repository::Repository;
use crate::step::succeeds;
use crate::vm;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Start of an ELF file, and of BTF.
const ELF: &[u8] = b"\x7fELF";
const BTF: [u8; 2] = [0x9f, 0xeb];

/// Compressed formats of kernels: how the data starts, and the program that decompresses it.
const FORMATS: [(&[u8], &str); 4] = [
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x02!L\x18", "lz4"),
];

/// Checks kernels. Fails if one lacks a hook.
///
/// # Errors
/// If a kernel is not found or has no BTF, or a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    if arguments.is_empty() {
        return Err("usage: hooks FILE|KERNEL...".into());
    }
    let mut complete = true;
    for name in arguments {
        println!("{name}");
        let file = type_information(repository, name)?;
        let mut doctor = repository.cargo(&["run", "--quiet", "--locked", "--package=tollgate"]);
        doctor.args(["--", "doctor", "--btf"]).arg(file);
        complete &= succeeds(&mut doctor)?;
    }
    Ok(if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The path of a file with the BTF of a kernel.
fn type_information(repository: &Repository, name: &str) -> Result<PathBuf> {
    let given = Path::new(name);
    let path = if given.is_file() {
        given.to_owned()
    } else {
        vm::kernel_image(repository, name)?
    };
    let bytes =
        fs::read(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    if bytes.starts_with(ELF) || bytes.starts_with(&BTF) {
        return Ok(path);
    }
    let kernel = FORMATS
        .iter()
        .find_map(|(start, program)| decompressed(repository, &bytes, start, program))
        .ok_or_else(|| format!("`{}` is no kernel", path.display()))?;
    let file = repository.target().join("hooks.vmlinux");
    fs::write(&file, kernel)?;
    Ok(file)
}

/// The ELF file that a kernel image has in this format. Code before it may contain the same bytes.
fn decompressed(
    repository: &Repository,
    image: &[u8],
    start: &[u8],
    program: &str,
) -> Option<Vec<u8>> {
    let places = image.windows(start.len()).enumerate();
    let mut places = places.filter(|(_, bytes)| *bytes == start);
    places.find_map(|(at, _)| {
        let mut command = repository.command(program);
        command
            .arg("-dc")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().ok()?;
        let mut input = child.stdin.take()?;
        let rest = image.get(at..)?.to_vec();
        // What follows the compressed kernel ends the program early.
        let writer = std::thread::spawn(move || drop(input.write_all(&rest)));
        let output = child.wait_with_output().ok()?.stdout;
        writer.join().ok()?;
        output.starts_with(ELF).then_some(output)
    })
}
