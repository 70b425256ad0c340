//! The architectures of test machines: emulator, kernels, and how programs for them are built.

use std::path::PathBuf;
use std::process::Command;

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

    /// Tools that machines of this architecture need beside those of all.
    pub(crate) const fn tools(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Arm64 => &ARM64_TOOLS,
        }
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
