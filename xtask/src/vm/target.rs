//! The architectures of test machines: emulator, kernels, and how programs for them are built.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::exists;
use crate::repository::Repository;

/// Architecture of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    /// The host's: programs are linked to its libraries, which are packed with them.
    #[default]
    X86_64,
    /// Emulated; programs are static and built by cross compilers.
    Arm64,
}

/// Rust's name of [`Target::Arm64`].
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// The cross compilers of arm64 and of its 32-bit programs.
const ARM64_TOOLS: [&str; 3] = [
    "qemu-system-aarch64",
    "aarch64-linux-gnu-gcc",
    "arm-linux-gnueabihf-gcc",
];

/// What the compiler needs to build for [`AARCH64`].
const ARM64_LIBRARY: &str = "Rust's library for aarch64-unknown-linux-gnu";

impl Target {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    /// The emulator.
    pub(crate) const fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The kernel's name of the architecture.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Debian's name of the architecture.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Flavour of kernels, with or without `PREEMPT_RT`.
    pub(crate) const fn flavour(self, is_realtime: bool) -> &'static str {
        match (self, is_realtime) {
            (Self::X86_64, false) => "cloud-amd64",
            (Self::X86_64, true) => "rt-amd64",
            (Self::Arm64, false) => "cloud-arm64",
            (Self::Arm64, true) => "rt-arm64",
        }
    }

    /// What is missing to build for the architecture and to emulate it, beside what all machines need.
    ///
    /// # Errors
    /// If the Rust compiler cannot be started.
    pub(super) fn missing(self) -> io::Result<Option<&'static str>> {
        if self == Self::X86_64 {
            return Ok(None);
        }
        if let Some(tool) = ARM64_TOOLS.into_iter().find(|tool| !exists(tool)) {
            return Ok(Some(tool));
        }
        Ok((!has_rust_library(AARCH64)?).then_some(ARM64_LIBRARY))
    }

    /// Sets up a `cargo build` for the architecture.
    pub(crate) fn configure(self, command: &mut Command, repository: &Repository) {
        if self == Self::Arm64 {
            command
                .args(["--target", AARCH64])
                .env("CARGO_TARGET_DIR", static_directory(repository))
                .env("RUSTFLAGS", "-C target-feature=+crt-static")
                .env(
                    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                    "aarch64-linux-gnu-gcc",
                );
        }
    }

    /// Where a build has put its programs; `profile` is `release` or `debug`.
    pub(crate) fn programs(self, repository: &Repository, profile: &str) -> PathBuf {
        match self {
            Self::X86_64 => repository.target().join(profile),
            Self::Arm64 => static_directory(repository).join(AARCH64).join(profile),
        }
    }
}

fn static_directory(repository: &Repository) -> PathBuf {
    repository.target().join("static")
}

/// Whether the compiler has the standard library of a target.
fn has_rust_library(target: &str) -> io::Result<bool> {
    let mut command = Command::new("rustc");
    let output = command.args(["--print", "target-libdir", "--target", target]);
    let path = output.output()?.stdout;
    Ok(Path::new(OsStr::from_bytes(path.trim_ascii_end())).is_dir())
}
