//! Builds the programs that run in the machines.

use std::error::Error;
use std::process::{Child, Command, Stdio};

use crate::repository::Repository;
use crate::step::succeeds;

/// Profile with which the programs of the machines are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As users get them.
    Release,
    /// Built in less time.
    Dev,
}

/// Builds the daemon and the first process of the machines.
///
/// # Errors
/// If cargo cannot be started.
pub(crate) fn build(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    build_with(repository, Profile::Release)
}

/// The same with a profile.
///
/// # Errors
/// If cargo cannot be started.
pub(super) fn build_with(
    repository: &Repository,
    profile: Profile,
) -> Result<bool, Box<dyn Error>> {
    succeeds(&mut build_command(repository, profile))
}

/// A release build in the background.
pub(crate) struct BackgroundBuild(Child);

impl BackgroundBuild {
    /// Starts what [`build`] runs.
    ///
    /// # Errors
    /// If cargo cannot be started.
    pub(crate) fn start(repository: &Repository) -> Result<Self, Box<dyn Error>> {
        let mut command = build_command(repository, Profile::Release);
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

fn build_command(repository: &Repository, profile: Profile) -> Command {
    // Companions too: the end-to-end tests run this build.
    let packages = [
        "ausearch", "bench", "detect", "search", "tollgate", "top", "vm",
    ];
    let packages = packages.map(|name| format!("--package={name}"));
    let mut command = repository.cargo(&["build", "--locked"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    command.args(packages);
    command
}
