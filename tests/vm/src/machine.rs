//! Setup and shutdown of the machine: file systems, users, power off.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::sync;

/// The directory of workloads, owned by [`USER`].
pub(crate) const WORK: &str = "/tmp/work";
/// The directory of the tests' programs.
pub(crate) const PROGRAMS: &str = "/tmp/programs";
/// The user that the rules name.
pub(crate) const USER: u32 = 1001;
/// A user that no rule names.
pub(crate) const STRANGER: u32 = 1002;

/// Kernel option: runs only tests whose name contains its value.
const FILTER: &str = "vm.filter=";
/// Kernel options that select another purpose.
const PURPOSES: [(&str, Purpose); 4] = [
    ("vm.selinux", Purpose::Selinux),
    ("vm.count", Purpose::Count),
    ("vm.race", Purpose::Race),
    ("vm.panic", Purpose::Panic),
];

/// The purpose of a machine; `xtask/src/vm/boot.rs` has the differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    General,
    /// Its CPUs run in parallel.
    Race,
    /// SELinux is enabled.
    Selinux,
    /// Its kernel panics.
    Panic,
    /// Its clocks count instructions.
    Count,
}

/// Options of the kernel's command line.
#[derive(Debug)]
pub(crate) struct BootOptions {
    /// Runs only tests whose name contains this.
    pub(crate) filter: String,
    /// The purpose of this machine.
    pub(crate) purpose: Purpose,
}

/// Mounts the usual file systems, but neither tracefs nor bpffs, without which the daemon must work.
///
/// # Errors
/// If a mount fails, or a directory cannot be created.
pub(crate) fn prepare() -> anyhow::Result<BootOptions> {
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
        mount(
            Some(kind),
            place,
            Some(kind),
            MsFlags::empty(),
            None::<&str>,
        )
        .with_context(|| format!("cannot mount {place}"))?;
    }
    for (directory, owner) in [(WORK, USER), (PROGRAMS, 0)] {
        make_directory(Path::new(directory), owner)?;
    }
    let line = fs::read_to_string("/proc/cmdline").context("cannot read the command line")?;
    let words = || line.split_whitespace();
    let filter = words().find_map(|word| word.strip_prefix(FILTER));
    let purpose = PURPOSES
        .into_iter()
        .find_map(|(named, purpose)| words().any(|word| word == named).then_some(purpose));
    Ok(BootOptions {
        filter: filter.unwrap_or_default().to_owned(),
        purpose: purpose.unwrap_or(Purpose::General),
    })
}

/// Creates a directory owned by a user.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn make_directory(path: &Path, owner: u32) -> anyhow::Result<()> {
    let made = fs::create_dir_all(path).and_then(|()| chown(path, Some(owner), Some(owner)));
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Creates a file owned by a user.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn make_file(path: &Path, owner: u32) -> anyhow::Result<()> {
    let made = fs::write(path, "x\n").and_then(|()| chown(path, Some(owner), Some(owner)));
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Powers off. Returns only if that fails; the kernel then panics.
pub(crate) fn power_off() -> ExitCode {
    sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(_refused) => ExitCode::FAILURE,
    }
}
