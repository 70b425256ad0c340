//! `cargo xtask vm`: the tests of `tests/vm` on the kernels that Debian ships, in machines that QEMU
//! emulates.
//!
//! A machine is a kernel and a file system in memory: no disk, no network, no package is installed.
//! Its first process runs the tests and writes a line for each to the serial port. The last line of
//! this chore on standard output is `N passed, N failed, N skipped`.

mod boot;
mod counts;
mod initramfs;
mod kernel;
mod report;
mod rulesets;
mod table;

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use crate::Outcome;
use crate::repository::Repository;
use crate::step::{Tally, succeeds};
use boot::{Machine, Purpose, QEMU};
use counts::Counts;
use initramfs::Archive;
use kernel::{Image, KERNELS, Kernel};
use table::Counted;

const BUSYBOX: &str = "/bin/busybox";
const AUSEARCH: &str = "/usr/sbin/ausearch";
const AUREPORT: &str = "/usr/sbin/aureport";
const AULAST: &str = "/usr/bin/aulast";
const AUDITCTL: &str = "/usr/sbin/auditctl";
const BPFTOOL: &str = "/usr/sbin/bpftool";
const MKFS_BTRFS: &str = "/usr/sbin/mkfs.btrfs";
const BTRFS: &str = "/usr/bin/btrfs";
const CHECKPOLICY: &str = "checkpolicy";

/// What programs that use auparse are made with.
const AUPARSE: &str = "/usr/include/auparse.h";

/// Programs of the tests in C, below `tests/differential`, and what they are linked to.
const IN_C: [(&str, &[&str]); 2] = [("walk", &["-lauparse"]), ("say", &[])];

/// Names of tests that count instructions start so; filters for them must as well.
const COUNTING: &str = "count_";

/// The same for those whose processors must run at the same time.
const RACING: &str = "attack";

/// The same for those in which SELinux refuses something.
const LABELLED: &str = "avc";

/// The same for the one that takes its machine down.
const DYING: &str = "panic";

/// Tests with random rule lists.
const LISTS: &str = "lists::";

/// What a machine or its kernel is made with, and cannot be without.
const TOOLS: [&str; 16] = [
    QEMU,
    BUSYBOX,
    AUSEARCH,
    AUREPORT,
    AULAST,
    AUPARSE,
    AUDITCTL,
    BPFTOOL,
    MKFS_BTRFS,
    BTRFS,
    "apt-cache",
    "apt-get",
    CHECKPOLICY,
    "dpkg-deb",
    "gcc",
    "ldd",
];

/// What to run.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    kernels: Vec<&'static Kernel>,
    /// Only tests whose name holds this.
    filter: String,
    /// Which random rule lists, as `SEED:FIRST:COUNT`; a few when empty.
    lists: String,
}

/// Builds what the machines run, and runs the tests.
///
/// # Errors
/// When the arguments are wrong or a tool is missing.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    let mut tests = Tally::default();
    let passed = build(repository)? && boot_all(repository, &options, &mut tests)?.is_some();
    println!("{tests}");
    Ok(if passed && tests.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Counts instructions on all kernels, and writes `docs/instructions.md`.
///
/// # Errors
/// When a tool is missing, or the file cannot be written.
pub(crate) fn count(repository: &Repository, _: &[String]) -> Outcome {
    let options = Options::parse(&["--filter".to_owned(), COUNTING.to_owned()])?;
    let mut tests = Tally::default();
    if build(repository)?
        && let Some(counted) = boot_all(repository, &options, &mut tests)?
    {
        table::write(repository, &counted)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{tests}");
    Ok(ExitCode::FAILURE)
}

/// All tests on all kernels, as a step of a longer chore that has made the release build.
///
/// # Errors
/// When a kernel cannot be fetched or a machine cannot be started.
pub(crate) fn test(repository: &Repository, tests: &mut Tally) -> Result<bool, Box<dyn Error>> {
    if let Some(reason) = unfit() {
        println!("    skipped: {reason}");
        tests.skipped += 1;
        return Ok(true);
    }
    let Some(counted) = boot_all(repository, &Options::parse(&[])?, tests)? else {
        return Ok(false);
    };
    let differences = table::differences(repository, &counted)?;
    for difference in &differences {
        println!("    FAIL  {difference}");
    }
    Ok(differences.is_empty())
}

/// Builds the daemon and the first process of the machines.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) fn build(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    let packages = ["bench", "tollgate", "vm"].map(|name| format!("--package={name}"));
    let mut command = repository.cargo(&["build", "--release", "--locked"]);
    succeeds(command.args(packages))
}

/// Why no machine can run here.
fn unfit() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the kernels are those of x86_64".to_owned());
    }
    let missing = TOOLS.into_iter().find(|tool| !is_there(tool))?;
    Some(format!("`{missing}` is not there; see `make setup`"))
}

fn is_there(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // A path that starts with a slash replaces the directory that it is joined to.
    env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            kernels: KERNELS.iter().collect(),
            filter: String::new(),
            lists: String::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("`{word}` lacks a value"))?;
            match word.as_str() {
                "--kernel" if value == "all" => options.kernels = KERNELS.iter().collect(),
                "--kernel" => {
                    let known = KERNELS.iter().find(|kernel| kernel.line == value);
                    let known =
                        known.ok_or_else(|| format!("`{value}` is none of 6.1, 6.12, all"))?;
                    options.kernels = vec![known];
                }
                "--filter" if value.contains(char::is_whitespace) => {
                    return Err("a filter is part of one name: no blanks".into());
                }
                "--filter" => options.filter.clone_from(value),
                "--lists" if !value.contains(char::is_whitespace) => {
                    options.filter = LISTS.to_owned();
                    options.lists = format!("vm.lists={value}");
                }
                _ => {
                    return Err("usage: vm [--kernel 6.1|6.12|all] [--filter NAME] \
                                [--lists SEED:FIRST:COUNT]"
                        .into());
                }
            }
        }
        Ok(options)
    }

    /// The machines that have such tests.
    fn purposes(&self) -> Vec<Purpose> {
        if self.filter.is_empty() {
            vec![
                Purpose::Testing,
                Purpose::Labelled,
                Purpose::Racing,
                Purpose::Dying,
                Purpose::Counting,
            ]
        } else if self.filter.starts_with(COUNTING) {
            vec![Purpose::Counting]
        } else if self.filter.starts_with(RACING) {
            vec![Purpose::Racing]
        } else if self.filter.starts_with(LABELLED) {
            vec![Purpose::Labelled]
        } else if self.filter.starts_with(DYING) {
            vec![Purpose::Dying]
        } else {
            vec![Purpose::Testing]
        }
    }
}

/// Runs the tests; gives what was counted when all have passed.
fn boot_all(
    repository: &Repository,
    options: &Options,
    tests: &mut Tally,
) -> Result<Option<Vec<Counted>>, Box<dyn Error>> {
    if let Some(reason) = unfit() {
        return Err(reason.into());
    }
    let directory = repository.target().join("vm");
    fs::create_dir_all(&directory)?;
    let mut images = Vec::new();
    for kernel in &options.kernels {
        let image = kernel.image(&directory)?;
        println!("    {}: {}", kernel.line, image.package);
        images.push((kernel.line, image));
    }
    let initramfs = directory.join("initramfs");
    fs::write(&initramfs, pack(repository, &images)?)?;
    let mut passed = true;
    let mut counted = Vec::new();
    for purpose in options.purposes() {
        let machines: Vec<Machine<'_>> = images
            .iter()
            .map(|(line, image)| Machine {
                purpose,
                line,
                kernel: &image.path,
                initramfs: &initramfs,
                filter: &options.filter,
                words: &options.lists,
            })
            .collect();
        let ended = run_all(&machines, purpose).map_err(|error| error.to_string())?;
        for ((tally, counts), kernel) in ended.into_iter().zip(&options.kernels) {
            passed &= tally.failed == 0;
            tests.add(tally);
            if purpose == Purpose::Counting {
                let line = kernel.line;
                counted.push(Counted { line, counts });
            }
        }
    }
    Ok(passed.then_some(counted))
}

/// Runs machines of one purpose. A machine takes one processor of the host, so that two run side by side;
/// one whose processors race takes two.
fn run_all(
    machines: &[Machine<'_>],
    purpose: Purpose,
) -> Result<Vec<(Tally, Counts)>, Box<dyn Error + Send + Sync>> {
    match purpose {
        Purpose::Racing => machines.iter().map(Machine::run).collect(),
        Purpose::Testing | Purpose::Labelled | Purpose::Dying | Purpose::Counting => {
            thread::scope(|scope| {
                let running: Vec<_> = machines
                    .iter()
                    .map(|machine| scope.spawn(|| machine.run()))
                    .collect();
                running
                    .into_iter()
                    .map(|machine| {
                        machine
                            .join()
                            .map_err(|_panic| "a machine's thread ended")?
                    })
                    .collect()
            })
        }
    }
}

/// The file system of a machine.
fn pack(repository: &Repository, images: &[(&str, Image)]) -> Result<Vec<u8>, Box<dyn Error>> {
    let release = repository.target().join("release");
    let mut archive = Archive::default();
    for (from, to) in [
        (release.join("vm"), "/init"),
        (release.join("tollgate"), "/bin/tollgate"),
        (PathBuf::from(BUSYBOX), BUSYBOX),
        (PathBuf::from(AUSEARCH), AUSEARCH),
        (PathBuf::from(AUREPORT), AUREPORT),
        (PathBuf::from(AULAST), AULAST),
        (PathBuf::from(AUDITCTL), AUDITCTL),
        (PathBuf::from(BPFTOOL), BPFTOOL),
        (PathBuf::from(MKFS_BTRFS), MKFS_BTRFS),
        (PathBuf::from(BTRFS), BTRFS),
    ] {
        archive.program(&from, to)?;
    }
    for (name, libraries) in IN_C {
        let program = repository.target().join("vm").join(name);
        let mut command = repository.command("gcc");
        command
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program);
        command.arg(format!("tests/differential/{name}.c"));
        if !succeeds(command.args(libraries))? {
            return Err(format!("cannot make `{name}`").into());
        }
        archive.program(&program, &format!("/bin/{name}"))?;
    }
    for (line, image) in images {
        archive.directory(&image.modules, &format!("/modules/{line}"))?;
    }
    archive.file(
        "/etc/passwd",
        0o644,
        b"root:x:0:0::/:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n",
    );
    archive.file("/etc/group", 0o644, b"root:x:0:\n");
    let policy = repository.target().join("vm").join("selinux.policy");
    let mut command = repository.command(CHECKPOLICY);
    // Both kernels read this version.
    command.args(["-c", "33", "-U", "allow", "-o"]).arg(&policy);
    if !succeeds(command.arg("tests/vm/selinux/policy.conf"))? {
        return Err("cannot make a policy for SELinux".into());
    }
    archive.file("/etc/selinux.policy", 0o644, &fs::read(policy)?);
    rulesets::pack(repository, &mut archive)?;
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Options::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn all_kernels_and_all_tests_are_the_default() {
        let all = options(&[]).unwrap();
        assert_eq!(all.kernels.len(), KERNELS.len());
        assert_eq!(all.filter, "");
        assert_eq!(options(&["--kernel", "all"]), Ok(all));
    }

    #[test]
    fn one_kernel_and_some_tests_can_be_chosen() {
        let chosen = options(&["--kernel", "6.12", "--filter", "raw::"]).unwrap();
        let lines: Vec<_> = chosen.kernels.iter().map(|kernel| kernel.line).collect();
        assert_eq!(
            (lines.as_slice(), chosen.filter.as_str()),
            (&["6.12"][..], "raw::")
        );
    }

    #[test]
    fn lists_are_asked_for_by_number() {
        let some = options(&["--lists", "7:0:250"]).unwrap();
        assert_eq!(
            (some.filter.as_str(), some.lists.as_str()),
            ("lists::", "vm.lists=7:0:250")
        );
    }

    #[test]
    fn a_filter_chooses_the_machine() {
        let purposes = |filter| options(&["--filter", filter]).unwrap().purposes();
        assert_eq!(purposes("count_fentry::"), [Purpose::Counting]);
        assert_eq!(purposes("fentry"), [Purpose::Testing]);
        assert_eq!(purposes("attack::names"), [Purpose::Racing]);
        assert_eq!(purposes("avc::"), [Purpose::Labelled]);
        assert_eq!(purposes("panic::"), [Purpose::Dying]);
        let all = [
            Purpose::Testing,
            Purpose::Labelled,
            Purpose::Racing,
            Purpose::Dying,
            Purpose::Counting,
        ];
        assert_eq!(options(&[]).unwrap().purposes(), all);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (words, named) in [
            (&["--kernel", "2.4"][..], "`2.4`"),
            (&["--kernel"], "lacks a value"),
            (&["--filter", "a b"], "no blanks"),
            (&["--what", "x"], "usage"),
        ] {
            let error = options(words).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
