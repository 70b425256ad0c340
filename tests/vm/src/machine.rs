//! Setup and shutdown of the machine: file systems, users, power off.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::termios::tcdrain;
use nix::unistd::{dup2_stdout, sync};

/// The directory of workloads, owned by [`USER`].
pub(crate) const WORK: &str = "/tmp/work";
/// The directory of the tests' programs.
pub(crate) const PROGRAMS: &str = "/tmp/programs";
/// This program, whose tasks ([`crate::run_task`]) tests run as a user.
pub(crate) const THIS_PROGRAM: &str = "/init";
/// The user that the rules name.
pub(crate) const USER: u32 = 1001;
/// A user that no rule names.
pub(crate) const STRANGER: u32 = 1002;

/// The serial port of the tests; the kernel's messages have another.
const PORT: &str = "/dev/ttyS0";

/// Kernel option: selects tests by name.
const FILTER: &str = "vm.filter";
/// Kernel option of the general machine: `vm.part=1/4` runs the first of four parts of the sessions.
const PART: &str = "vm.part";
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
    /// Selects the tests.
    pub(crate) filter: Filter,
    /// The purpose of this machine.
    pub(crate) purpose: Purpose,
    /// `NUMBER/COUNT`: the part of the general sessions to run; all without it.
    pub(crate) part: Option<String>,
}

/// Selects tests by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// `=NAME`: the test of this name.
    Test(String),
    /// `^SESSION|...`: the tests of these sessions.
    Session(String),
    /// `TEXT|...`: tests whose name contains one of these texts.
    Part(String),
}

impl Filter {
    /// Parses the value of the kernel option.
    pub(crate) fn parse(text: &str) -> Self {
        if let Some(name) = text.strip_prefix('=') {
            return Self::Test(name.to_owned());
        }
        match text.strip_prefix('^') {
            Some(session) => Self::Session(session.to_owned()),
            None => Self::Part(text.to_owned()),
        }
    }

    /// Whether a test, `SESSION::NAME`, is selected.
    pub(crate) fn matches(&self, test: &str) -> bool {
        self.alternatives().any(|text| self.selects(text, test))
    }

    /// The first alternative that selects none of these tests.
    pub(crate) fn idle_alternative(&self, tests: &[String]) -> Option<&str> {
        self.alternatives()
            .find(|text| !tests.iter().any(|test| self.selects(text, test)))
    }

    fn alternatives(&self) -> impl Iterator<Item = &str> {
        self.text().split('|')
    }

    /// Whether one alternative selects a test.
    fn selects(&self, text: &str, test: &str) -> bool {
        match self {
            Self::Test(_) => test == text,
            Self::Session(_) => test
                .split_once("::")
                .is_some_and(|(session, _)| session == text),
            Self::Part(_) => test.contains(text),
        }
    }

    /// The text without its first sign.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Test(text) | Self::Session(text) | Self::Part(text) => text,
        }
    }
}

/// Mounts a bpf file system, whose directory is created.
///
/// # Errors
/// If it cannot be mounted.
pub(crate) fn mount_bpf_file_system(place: &str) -> anyhow::Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot create {place}"))?;
    let flags = MsFlags::empty();
    mount(Some("bpf"), place, Some("bpf"), flags, None::<&str>)
        .context("cannot mount a bpf file system")
}

/// Mounts the usual file systems, but neither tracefs nor bpffs, without which the daemon must work. Makes the tests'
/// port standard output.
///
/// # Errors
/// If a mount fails, a directory cannot be created, or the port cannot be opened.
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
    let port = File::options().write(true).open(PORT);
    let port = port.with_context(|| format!("cannot open {PORT}"))?;
    dup2_stdout(&port).context("cannot make the port standard output")?;
    for (directory, owner) in [(WORK, USER), (PROGRAMS, 0)] {
        make_directory(Path::new(directory), owner)?;
    }
    let line = command_line()?;
    let words = || line.split_whitespace();
    let purpose = PURPOSES
        .into_iter()
        .find_map(|(named, purpose)| words().any(|word| word == named).then_some(purpose));
    Ok(BootOptions {
        filter: Filter::parse(option_value(FILTER)?.as_deref().unwrap_or_default()),
        purpose: purpose.unwrap_or(Purpose::General),
        part: option_value(PART)?,
    })
}

/// The kernel's command line.
///
/// # Errors
/// If it cannot be read.
fn command_line() -> anyhow::Result<String> {
    fs::read_to_string("/proc/cmdline").context("cannot read the command line")
}

/// Whether the kernel's command line has an option without value.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn has_option(option: &str) -> anyhow::Result<bool> {
    Ok(command_line()?
        .split_whitespace()
        .any(|word| word == option))
}

/// The value of an option of the kernel's command line.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn option_value(option: &str) -> anyhow::Result<Option<String>> {
    let line = command_line()?;
    let mut words = line.split_whitespace();
    let value = words.find_map(|word| word.strip_prefix(option)?.strip_prefix('='));
    Ok(value.map(str::to_owned))
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

/// Starts a program of a user with a pipe as its standard input, from which it reads a byte before it acts.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start_waiting(program: &Path, uid: u32) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command.current_dir(WORK).uid(uid).gid(uid);
    let child = command.stdin(Stdio::piped()).spawn();
    child.with_context(|| format!("cannot start {}", program.display()))
}

/// Returns when all lines are written: the machine ends.
pub(crate) fn flush() {
    // A line that is missing fails the run.
    let _written = tcdrain(io::stdout());
}

/// Powers off. Returns only if that fails; the kernel then panics.
pub(crate) fn power_off() -> ExitCode {
    sync();
    flush();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(_refused) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_select_a_test_a_session_or_a_part_of_names() {
        let names = ["fentry::opens", "clock_fentry::opens", "fentry::opens_too"];
        for (filter, selected) in [
            ("=fentry::opens", &[0][..]),
            ("^fentry", &[0, 2]),
            ("fentry::opens", &[0, 1, 2]),
            ("", &[0, 1, 2]),
            ("=fentry", &[]),
        ] {
            let filter = Filter::parse(filter);
            let found: Vec<usize> = (0..names.len())
                .filter(|&index| filter.matches(names[index]))
                .collect();
            assert_eq!(found, selected, "{filter:?}");
        }
    }

    #[test]
    fn alternatives_that_select_nothing_are_found() {
        let tests = ["fentry::opens", "opens_fentry::names"].map(str::to_owned);
        for (filter, idle) in [
            ("^fentry|opens_fentry", None),
            ("^fentry|opens", Some("opens")),
            ("opens|reload", Some("reload")),
            ("=fentry::names", Some("fentry::names")),
            ("", None),
        ] {
            let filter = Filter::parse(filter);
            assert_eq!(filter.idle_alternative(&tests), idle, "{filter:?}");
        }
    }
}
