//! External programs that cases need, and their Debian packages.

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// A program and the Debian package that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    /// Name of the program.
    pub(crate) program: &'static str,
    /// Name of the package.
    pub(crate) package: &'static str,
}

pub(crate) const AUDITD: Program = Program::new("auditd", "auditd");
pub(crate) const AUDITCTL: Program = Program::new("auditctl", "auditd");
pub(crate) const AUSEARCH: Program = Program::new("ausearch", "auditd");
pub(crate) const FIO: Program = Program::new("fio", "fio");
pub(crate) const SYSBENCH: Program = Program::new("sysbench", "sysbench");
pub(crate) const REDIS_BENCHMARK: Program = Program::new("redis-benchmark", "redis-tools");
/// The redis server; redis-tools contains it under this name, without a service.
pub(crate) const REDIS: Program = Program::new("redis-check-rdb", "redis-tools");
pub(crate) const STRACE: Program = Program::new("strace", "strace");
pub(crate) const SETPRIV: Program = Program::new("setpriv", "util-linux");
pub(crate) const TASKSET: Program = Program::new("taskset", "util-linux");
pub(crate) const CHRT: Program = Program::new("chrt", "util-linux");

/// Directories that may be missing from the `PATH` of root.
const SBIN_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

impl Program {
    const fn new(program: &'static str, package: &'static str) -> Self {
        Self { program, package }
    }

    /// Path of the program; `None` if it is missing.
    pub(crate) fn path(self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path)
            .chain(SBIN_DIRECTORIES.map(PathBuf::from))
            .map(|directory| directory.join(self.program))
            .find(|file| {
                file.metadata()
                    .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
            })
    }

    /// A command that runs the program.
    ///
    /// # Errors
    /// When it is missing; names the package.
    pub(crate) fn command(self) -> anyhow::Result<Command> {
        let path = self.path().with_context(|| {
            format!(
                "`{}` is missing: install Debian's package `{}`",
                self.program, self.package
            )
        })?;
        Ok(Command::new(path))
    }
}

/// Packages of these programs, without duplicates.
pub(crate) fn packages(missing: &[Program]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|program| program.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Installs Debian packages without starting services: the package `auditd` would enable the kernel's audit.
///
/// # Errors
/// When apt-get is missing or fails.
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    let policy = Policy::forbid()?;
    for words in [&["update"][..], &["install", "--no-install-recommends"]] {
        let mut command = Command::new("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-q", "-y", "-o", "DPkg::Lock::Timeout=120"])
            .args(words)
            .stdin(Stdio::null());
        if words.contains(&"install") {
            command.args(packages);
        }
        let status = command
            .status()
            .context("cannot run `apt-get`: --install is for Debian")?;
        ensure!(status.success(), "`apt-get {}` {status}", words.join(" "));
    }
    policy.remove()?;
    if packages.contains(&"auditd") {
        // The package enables its service at boot. Without systemd there is none.
        let _no_systemd = Command::new("systemctl")
            .args(["--quiet", "disable", "auditd.service"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
    Ok(())
}

/// `policy-rc.d`, which package scripts consult before they start a service.
#[derive(Debug)]
struct Policy {
    written: bool,
}

impl Policy {
    const PATH: &str = "/usr/sbin/policy-rc.d";
    const TEXT: &str =
        "#!/bin/sh\n# Written by tollgate-bench --install, which removes it.\nexit 101\n";

    /// Forbids services during an installation; an existing policy stays.
    fn forbid() -> anyhow::Result<Self> {
        if std::path::Path::new(Self::PATH).exists() {
            return Ok(Self { written: false });
        }
        std::fs::write(Self::PATH, Self::TEXT)
            .with_context(|| format!("cannot write `{}`", Self::PATH))?;
        std::fs::set_permissions(Self::PATH, std::fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make `{}` executable", Self::PATH))?;
        Ok(Self { written: true })
    }

    fn remove(mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.written) {
            std::fs::remove_file(Self::PATH)
                .with_context(|| format!("cannot remove `{}`", Self::PATH))?;
        }
        Ok(())
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.written {
            // The error of the installation matters more.
            drop(std::fs::remove_file(Self::PATH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_named_with_their_package() {
        assert!(Program::new("sh", "dash").path().is_some());
        let missing = Program::new("no-such-program", "no-such-package");
        let error = missing.command().unwrap_err().to_string();
        assert!(error.contains("`no-such-program`") && error.contains("`no-such-package`"));
    }

    #[test]
    fn packages_are_listed_once() {
        assert_eq!(
            packages(&[FIO, AUDITD, AUSEARCH, AUDITCTL]),
            ["auditd", "fio"]
        );
    }
}
