//! Builds the programs that run in the machines.

use std::error::Error;
use std::process::{Child, Command, Stdio};

use super::target::Target;
use crate::repository::Repository;
use crate::step::succeeds;

/// Profile with which the programs of the machines are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As users get them; in CI, as [`crate::repository::CI_PROFILES`].
    Release,
    /// Built in less time.
    Dev,
}

impl Profile {
    /// Name of its directory.
    pub(super) const fn directory(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "debug",
        }
    }
}

/// Builds the daemon and the first process of the machines.
///
/// # Errors
/// If cargo cannot be started.
pub(crate) fn build(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    build_with(repository, Profile::Release, Target::X86_64)
}

/// The same with a profile and a target.
///
/// # Errors
/// If cargo cannot be started.
pub(super) fn build_with(
    repository: &Repository,
    profile: Profile,
    target: Target,
) -> Result<bool, Box<dyn Error>> {
    succeeds(&mut build_command(repository, profile, target))
}

/// A release build in the background.
pub(crate) struct BackgroundBuild(Child);

impl BackgroundBuild {
    /// Starts what [`build`] runs.
    ///
    /// # Errors
    /// If cargo cannot be started.
    pub(crate) fn start(repository: &Repository) -> Result<Self, Box<dyn Error>> {
        let mut command = build_command(repository, Profile::Release, Target::X86_64);
        let build = command.arg("--quiet").stderr(Stdio::piped()).spawn()?;
        Ok(Self(build))
    }

    /// Waits for the end and prints warnings and errors; true if the build succeeded.
    ///
    /// # Errors
    /// If the output cannot be read.
    pub(crate) fn finish(self) -> Result<bool, Box<dyn Error>> {
        let output = self.0.wait_with_output()?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(output.status.success())
    }
}

fn build_command(repository: &Repository, profile: Profile, target: Target) -> Command {
    let packages: &[&str] = match target {
        // Companions too: the end-to-end tests run this build.
        Target::X86_64 => &[
            "ausearch", "bench", "detect", "search", "ship", "tollgate", "top", "vm",
        ],
        Target::Arm64 => &["ausearch", "tollgate", "vm"],
    };
    let packages = packages.iter().map(|name| format!("--package={name}"));
    let mut command = repository.cargo(&["build", "--locked"]);
    target.configure(&mut command, repository);
    if profile == Profile::Release {
        command.arg("--release");
    }
    command.args(packages);
    command
}
