//! `cargo xtask vm`: runs the tests of `tests/vm` on Debian's kernels in QEMU.
//!
//! A machine is a kernel and an initramfs, without disk, network or installed packages. Its first process runs
//! the tests and writes a line for each to the serial port. The last line of standard output is
//! `N passed, N failed, N skipped`.

mod again;
mod boot;
mod build;
mod counts;
mod initramfs;
mod kernel;
mod kernels;
mod pack;
mod ports;
mod queue;
mod report;
mod rulesets;
mod sigma;
mod table;
mod target;

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::Outcome;
use crate::repository::Repository;
use crate::test_results::TestResults;
use boot::{FIRST_SEED, Machine, PARTS, Purpose};
use build::{Profile, build_with};
use kernel::Kernel;
use kernels::Diagnosed;
use table::Counted;
use target::Target;

/// Machines with a special purpose, and the prefix of their tests' names. A filter for these tests must
/// start with the prefix.
const PREFIXES: [(&str, Purpose); 4] = [
    (COUNT, Purpose::Count),
    ("attack", Purpose::Race),
    ("avc", Purpose::Selinux),
    ("panic", Purpose::Panic),
];

const COUNT: &str = "count_";

/// The kernels of arm64 that are booted without `--kernel`, as its value.
const ARM64_KERNELS: &str = "6.12";

/// The tests with random rule lists.
const LISTS: &str = "lists::";

/// The tests with random programs.
const HUNT: &str = "hunt::";

pub(crate) use build::{BackgroundBuild, build};
pub(crate) use kernels::run as kernels;

/// What all machines have counted and said.
#[derive(Default)]
struct Passed {
    counted: Vec<Counted>,
    diagnosed: Vec<Diagnosed>,
}

/// Parsed arguments.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    target: Target,
    kernels: Vec<Kernel>,
    profile: Profile,
    /// Runs only tests whose name contains this.
    filter: String,
    /// More kernel options: `vm.lists=SEED:FIRST:COUNT` and `vm.hunt=SEED:FIRST:COUNT` select random rule lists or
    /// programs, `vm.allow_loss` starts daemons with `--allow-loss`.
    kernel_options: String,
}

/// Builds the programs and runs the tests.
///
/// # Errors
/// If the arguments are invalid or a tool is missing.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    let mut tests = TestResults::default();
    let passed = build_with(repository, options.profile, options.target)?
        && boot_all(repository, &options, &mut tests)?.is_some();
    println!("{}{}", tests.listing(), tests.tally);
    Ok(if passed && tests.tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Counts instructions on all kernels, and writes `docs/instructions.md`.
///
/// # Errors
/// If a tool is missing, or the file cannot be written.
pub(crate) fn count(repository: &Repository, _: &[String]) -> Outcome {
    let options = Options::parse(&["--filter".to_owned(), COUNT.to_owned()])?;
    let mut tests = TestResults::default();
    if build_with(repository, options.profile, options.target)?
        && let Some(passed) = boot_all(repository, &options, &mut tests)?
    {
        table::write(repository, &passed.counted)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}{}", tests.listing(), tests.tally);
    Ok(ExitCode::FAILURE)
}

/// All tests on all kernels, as a step of a longer command that has made the release build.
///
/// # Errors
/// If a kernel cannot be downloaded or a machine cannot be started.
pub(crate) fn test(
    repository: &Repository,
    tests: &mut TestResults,
) -> Result<bool, Box<dyn Error>> {
    if let Some(reason) = missing_requirement() {
        tests.skip(&format!("all: {reason}"));
        return Ok(true);
    }
    let Some(passed) = boot_all(repository, &Options::parse(&[])?, tests)? else {
        return Ok(false);
    };
    let differences = table::differences(repository, &passed.counted)?;
    for difference in &differences {
        println!("    FAIL  {difference}");
        tests.fail(difference);
    }
    Ok(differences.is_empty())
}

/// The path of a kernel, which is downloaded if it is not there: a line as for `--kernel`.
///
/// # Errors
/// If there is no such line, or it cannot be downloaded.
pub(crate) fn kernel_image(repository: &Repository, line: &str) -> Result<PathBuf, Box<dyn Error>> {
    let directory = repository.target().join("vm");
    fs::create_dir_all(&directory)?;
    let kernel = Kernel::parse(line, Target::X86_64)
        .ok_or_else(|| format!("`{line}` is no file and no kernel"))?;
    Ok(kernel.image(&directory)?.path)
}

/// Why no machine can run on this host.
pub(crate) fn missing_requirement() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the kernels are built for x86_64".to_owned());
    }
    let missing = pack::TOOLS.into_iter().find(|tool| !exists(tool))?;
    Some(format!("`{missing}` not found; see `make setup`"))
}

fn exists(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Joining an absolute path gives that path.
    env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            target: Target::default(),
            kernels: Kernel::tested(),
            profile: Profile::Release,
            filter: String::new(),
            kernel_options: String::new(),
        };
        let mut names = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("`{word}` needs a value"))?;
            match word.as_str() {
                "--arch" => {
                    let target = Target::parse(value);
                    options.target =
                        target.ok_or_else(|| format!("unknown arch `{value}`: x86_64 or arm64"))?;
                }
                "--kernel" => names = Some(value),
                "--filter" if value.contains(char::is_whitespace) => {
                    return Err("a filter is part of one test name and has no blanks".into());
                }
                "--filter" => options.filter.clone_from(value),
                "--lists" if !value.contains(char::is_whitespace) => {
                    options.filter = LISTS.to_owned();
                    options.kernel_options = format!("vm.lists={value}");
                }
                "--hunt" if !value.contains(char::is_whitespace) => {
                    options.filter = HUNT.to_owned();
                    options.kernel_options = format!("vm.hunt={value}");
                }
                "--profile" if value == "dev" => options.profile = Profile::Dev,
                "--profile" if value == "release" => options.profile = Profile::Release,
                "--append" => options.kernel_options.clone_from(value),
                _ => {
                    return Err(
                        "usage: vm [--arch x86_64|arm64] [--kernel VERSION[-rt]|newest[-rt]|all] [--filter NAME] \
                                [--lists SEED:FIRST:COUNT] [--hunt SEED:FIRST:COUNT] \
                                [--append KERNEL_OPTIONS] [--profile dev|release]"
                            .into(),
                    );
                }
            }
        }
        options.kernels = options.kernels(names.map_or("all", String::as_str))?;
        Ok(options)
    }

    /// The kernels of a value of `--kernel`.
    fn kernels(&self, names: &str) -> Result<Vec<Kernel>, Box<dyn Error>> {
        let names = match (self.target, names) {
            (Target::X86_64, "all") => return Ok(Kernel::tested()),
            (Target::Arm64, "all") => ARM64_KERNELS,
            (_, names) => names,
        };
        let parse = |name| {
            Kernel::parse(name, self.target).ok_or_else(|| {
                format!("unknown kernel `{name}`: a version, newest or all; -rt for PREEMPT_RT")
                    .into()
            })
        };
        names.split(',').map(parse).collect()
    }

    /// The parts in which a machine of this purpose is booted. `None` is the whole.
    fn parts(&self, purpose: Purpose) -> Vec<Option<usize>> {
        if purpose == Purpose::General && self.filter.is_empty() && self.target == Target::X86_64 {
            (1..=PARTS).map(Some).collect()
        } else {
            vec![None]
        }
    }

    /// The machines that run the selected tests.
    fn purposes(&self) -> Vec<Purpose> {
        if self.target == Target::Arm64 {
            return vec![Purpose::General];
        }
        if self.filter.is_empty() {
            return vec![
                Purpose::General,
                Purpose::Selinux,
                Purpose::Race,
                Purpose::Panic,
                Purpose::Count,
            ];
        }
        let mut prefixes = PREFIXES.iter();
        let found = prefixes.find(|(prefix, _)| self.filter.starts_with(prefix));
        vec![found.map_or(Purpose::General, |(_, purpose)| *purpose)]
    }
}

/// Runs the tests; returns what was counted and said if all passed.
fn boot_all(
    repository: &Repository,
    options: &Options,
    tests: &mut TestResults,
) -> Result<Option<Passed>, Box<dyn Error>> {
    if let Some(reason) = missing_requirement() {
        return Err(reason.into());
    }
    if let Some(tool) = options.target.tools().iter().find(|tool| !exists(tool)) {
        return Err(format!("`{tool}` not found; see `sh scripts/setup.sh arm64`").into());
    }
    let directory = repository.target().join("vm");
    fs::create_dir_all(&directory)?;
    let mut images = Vec::new();
    for kernel in &options.kernels {
        let image = kernel.image(&directory)?;
        println!("    {}: {}", kernel.line, image.package);
        images.push((kernel.line.as_str(), image));
    }
    let initramfs = directory.join(format!("initramfs-{}", options.target.debian()));
    let packed = match options.target {
        Target::X86_64 => pack::pack(repository, options.profile, &images)?,
        Target::Arm64 => pack::pack_arm64(repository, options.profile, &directory)?,
    };
    fs::write(&initramfs, packed)?;
    let mut machines = Vec::new();
    for purpose in options.purposes() {
        for part in options.parts(purpose) {
            for (line, image) in &images {
                machines.push(Machine {
                    target: options.target,
                    purpose,
                    line,
                    kernel: &image.path,
                    initramfs: &initramfs,
                    filter: options.filter.clone(),
                    part,
                    options: &options.kernel_options,
                    seed: FIRST_SEED,
                });
            }
        }
    }
    let mut ended = queue::run_all(&machines).map_err(|error| error.to_string())?;
    let is_full = options.filter.is_empty();
    again::boot_again(&machines, &mut ended, is_full, Machine::run);
    let mut is_passed = true;
    let mut passed = Passed::default();
    for (machine, ended) in machines.iter().zip(ended) {
        is_passed &= ended.results.tally.failed == 0;
        tests.add(ended.results);
        if !ended.doctor.text.is_empty() {
            let (line, doctor) = (machine.line.to_owned(), ended.doctor);
            passed.diagnosed.push(Diagnosed { line, doctor });
        }
        if machine.purpose == Purpose::Count {
            let (line, counts) = (machine.line.to_owned(), ended.counts);
            passed.counted.push(Counted { line, counts });
        }
    }
    Ok(is_passed.then_some(passed))
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
        assert_eq!(all.kernels, Kernel::tested());
        assert_eq!(all.filter, "");
        assert_eq!(options(&["--kernel", "all"]), Ok(all));
    }

    #[test]
    fn one_kernel_and_some_tests_can_be_chosen() {
        let chosen = options(&["--kernel", "6.12", "--filter", "raw::"]).unwrap();
        let lines: Vec<_> = chosen.kernels.iter().map(|it| it.line.as_str()).collect();
        assert_eq!(
            (lines.as_slice(), chosen.filter.as_str()),
            (&["6.12"][..], "raw::")
        );
        let two = options(&["--kernel", "6.18,newest-rt"]).unwrap().kernels;
        let lines: Vec<_> = two.iter().map(|it| it.line.as_str()).collect();
        assert_eq!(lines, ["6.18", "newest-rt"]);
    }

    #[test]
    fn arm64_has_kernels_and_machines_of_its_own() {
        let arm64 = options(&["--kernel", "6.12", "--arch", "arm64"]).unwrap();
        assert_eq!(
            arm64.kernels,
            [Kernel::parse("6.12", Target::Arm64).unwrap()]
        );
        assert_ne!(
            arm64.kernels,
            options(&["--kernel", "6.12"]).unwrap().kernels
        );
        let all = options(&["--arch", "arm64"]).unwrap();
        assert_eq!(
            (all.kernels.len(), all.purposes()),
            (1, vec![Purpose::General])
        );
        assert_eq!(all.parts(Purpose::General), [None]);
    }

    #[test]
    fn lists_are_selected_by_seed_and_number() {
        let some = options(&["--lists", "7:0:250"]).unwrap();
        assert_eq!(
            (some.filter.as_str(), some.kernel_options.as_str()),
            ("lists::", "vm.lists=7:0:250")
        );
    }

    #[test]
    fn filter_selects_the_machine() {
        let purposes = |filter| options(&["--filter", filter]).unwrap().purposes();
        assert_eq!(purposes("count_fentry::"), [Purpose::Count]);
        assert_eq!(purposes("fentry"), [Purpose::General]);
        assert_eq!(purposes("attack::names"), [Purpose::Race]);
        assert_eq!(purposes("avc::"), [Purpose::Selinux]);
        assert_eq!(purposes("panic::"), [Purpose::Panic]);
        let all = [
            Purpose::General,
            Purpose::Selinux,
            Purpose::Race,
            Purpose::Panic,
            Purpose::Count,
        ];
        assert_eq!(options(&[]).unwrap().purposes(), all);
    }

    #[test]
    fn only_a_full_run_has_parts() {
        let parts = |words, purpose| options(words).unwrap().parts(purpose);
        assert_eq!(parts(&[], Purpose::General), [Some(1), Some(2), Some(3)]);
        assert_eq!(parts(&[], Purpose::Race), [None]);
        assert_eq!(parts(&["--filter", "raw::"], Purpose::General), [None]);
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (words, named) in [
            (&["--kernel", "two"][..], "`two`"),
            (&["--kernel"], "needs a value"),
            (&["--filter", "a b"], "no blanks"),
            (&["--what", "x"], "usage"),
            (&["--arch", "vax"], "`vax`"),
        ] {
            let error = options(words).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
