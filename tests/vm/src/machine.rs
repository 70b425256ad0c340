//! What a first process owes its machine: file systems, users, and an end.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::sync;

/// Where workloads work; belongs to [`USER`].
pub(crate) const WORK: &str = "/tmp/work";
/// Where the programs of the tests are.
pub(crate) const PROGRAMS: &str = "/tmp/programs";
/// Whom the rules name.
pub(crate) const USER: u32 = 1001;
/// Whom no rule names.
pub(crate) const STRANGER: u32 = 1002;

/// On the kernel's command line: only tests whose name holds what follows are run.
const FILTER: &str = "vm.filter=";
/// On the kernel's command line: what this machine is for, when it is not for most of the tests.
const PURPOSES: [(&str, Purpose); 4] = [
    ("vm.labels", Purpose::Labelled),
    ("vm.counts", Purpose::Counting),
    ("vm.races", Purpose::Racing),
    ("vm.dies", Purpose::Dying),
];

/// What a machine is made for; `xtask/src/vm/boot.rs` says how each differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Testing,
    /// Its processors run at the same time.
    Racing,
    /// SELinux is there.
    Labelled,
    /// It is taken down.
    Dying,
    /// Its clocks count instructions.
    Counting,
}

/// What the kernel's command line asks for.
#[derive(Debug)]
pub(crate) struct Wishes {
    /// Only tests whose name holds this.
    pub(crate) filter: String,
    /// Only those for such a machine.
    pub(crate) purpose: Purpose,
}

/// Mounts what a program may expect of any machine, and nothing that the daemon must do without:
/// neither tracefs nor bpffs.
///
/// # Errors
/// When the kernel refuses a file system, or a directory cannot be made.
pub(crate) fn prepare() -> anyhow::Result<Wishes> {
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
    Ok(Wishes {
        filter: filter.unwrap_or_default().to_owned(),
        purpose: purpose.unwrap_or(Purpose::Testing),
    })
}

/// Makes a directory that belongs to a user.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_directory(path: &Path, owner: u32) -> anyhow::Result<()> {
    let made = fs::create_dir_all(path).and_then(|()| chown(path, Some(owner), Some(owner)));
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Makes a file that belongs to a user.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_file(path: &Path, owner: u32) -> anyhow::Result<()> {
    let made = fs::write(path, "x\n").and_then(|()| chown(path, Some(owner), Some(owner)));
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Ends the machine. Returns only where the kernel refuses, and then the kernel panics.
pub(crate) fn power_off() -> ExitCode {
    sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(_refused) => ExitCode::FAILURE,
    }
}
