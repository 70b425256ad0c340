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
mod matrix;
mod options;
mod pack;
mod ports;
mod queue;
mod report;
mod rulesets;
mod sessions;
mod sigma;
mod stages;
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
use boot::{FIRST_SEED, Machine, Purpose};
use kernel::Kernel;
use kernels::Diagnosed;
use options::{COUNT, Options, Scope};
use table::Counted;
use target::Target;

pub(crate) use build::{BackgroundBuild, build};
pub(crate) use kernels::{page_of_record, run as kernels};

/// What all machines have counted and found.
#[derive(Default)]
struct Ran {
    /// Whether no test has failed.
    is_passed: bool,
    counted: Vec<Counted>,
    /// Of machines without a failure.
    diagnosed: Vec<Diagnosed>,
}

/// Builds the programs and runs the tests.
///
/// # Errors
/// If the arguments are invalid or a tool is missing.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    let mut tests = TestResults::default();
    let passed =
        options.build(repository)? && boot_all(repository, &options, &mut tests)?.is_passed;
    println!("{}{}", tests.listing(), tests.tally);
    Ok(if passed && tests.tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Counts instructions on the kernels that run all tests for each commit, and writes `docs/instructions.md`. With
/// `--stages`, counts those of each stage of audited calls, and writes `docs/stages.md`.
///
/// # Errors
/// If the arguments are invalid, a tool is missing, or the file cannot be written.
pub(crate) fn count(repository: &Repository, arguments: &[String]) -> Outcome {
    if let Some(reason) = missing_requirement() {
        return Err(reason.into());
    }
    match arguments {
        [] => {}
        [option] if option == "--stages" => return stages::run(repository),
        _ => return Err("usage: counts [--stages]".into()),
    }
    let words = ["--kernel", &matrix::counted(), "--filter", COUNT];
    let options = Options::parse(&words.map(str::to_owned))?;
    let mut tests = TestResults::default();
    if options.build(repository)? {
        let ran = boot_all(repository, &options, &mut tests)?;
        if ran.is_passed {
            table::write(repository, &ran.counted)?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    println!("{}{}", tests.listing(), tests.tally);
    Ok(ExitCode::FAILURE)
}

/// All tests on the kernels of each commit, as a step of a longer command that has made the release build.
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
    let ran = boot_all(repository, &Options::parse(&[])?, tests)?;
    if !ran.is_passed {
        return Ok(false);
    }
    let differences = table::differences(repository, &ran.counted)?;
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
    let kernel = Kernel::parse(line).ok_or_else(|| format!("`{line}` is no file and no kernel"))?;
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

/// Runs the tests.
fn boot_all(
    repository: &Repository,
    options: &Options,
    tests: &mut TestResults,
) -> Result<Ran, Box<dyn Error>> {
    if let Some(reason) = missing_requirement() {
        return Err(reason.into());
    }
    let targets = options.targets();
    let directory = repository.target().join("vm");
    fs::create_dir_all(&directory)?;
    let mut images = Vec::new();
    for kernel in &options.kernels {
        match kernel.image(&directory) {
            Ok(image) => {
                println!("    {}: {}", kernel.line, image.package);
                images.push((kernel, image));
            }
            // The archive may have dropped one; the others count all the same.
            Err(error) if options.scope == Scope::Matrix => {
                tests.skip(&format!("{}: {error}", kernel.line));
            }
            Err(error) => return Err(error),
        }
    }
    let initramfs = |target: Target| directory.join(format!("initramfs-{}", target.debian()));
    for target in targets {
        let images = images.iter().filter(|(kernel, _)| kernel.target == target);
        let packed = pack::pack(
            repository,
            target,
            options.profile,
            options.tollgate.as_deref(),
            images.map(|(_, it)| it),
        )?;
        fs::write(initramfs(target), packed)?;
    }
    let mut machines = Vec::new();
    for purpose in Purpose::ALL {
        for (kernel, image) in &images {
            for (filter, part) in options.selections(purpose, kernel) {
                machines.push(Machine {
                    target: kernel.target,
                    purpose,
                    line: &kernel.line,
                    kernel: &image.path,
                    initramfs: initramfs(kernel.target),
                    filter: filter.to_owned(),
                    part,
                    options: options.of_kernel(kernel),
                    seed: FIRST_SEED,
                    debugger: None,
                });
            }
        }
    }
    let mut ended = queue::run_all(&machines).map_err(|error| error.to_string())?;
    let is_full = options.filter.is_empty();
    again::boot_again(&machines, &mut ended, is_full, Machine::run);
    if images.len() > 1 {
        let recorded = kernels::recorded(repository)?;
        print!("{}", sessions::table(&machines, &ended, &recorded));
    }
    let mut ran = Ran {
        is_passed: true,
        ..Ran::default()
    };
    for (machine, ended) in machines.iter().zip(ended) {
        let is_passed = ended.results.tally.failed == 0;
        ran.is_passed &= is_passed;
        tests.add(ended.results);
        if let Some(doctor) = ended.doctor.filter(|_| is_passed) {
            ran.diagnosed.push(Diagnosed {
                kernel: machine.line.to_owned(),
                arch: machine.target.machine().to_owned(),
                doctor,
            });
        }
        if machine.purpose == Purpose::Count {
            let (line, counts) = (machine.line.to_owned(), ended.counts);
            ran.counted.push(Counted { line, counts });
        }
    }
    Ok(ran)
}
