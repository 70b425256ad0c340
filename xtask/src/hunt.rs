//! `cargo xtask hunt`: random programs under random rules, on Debian's kernels with the fentry engine or on the running
//! kernel with the tracepoint engine.

use std::error::Error;
use std::process::ExitCode;

use crate::Outcome;
use crate::on_host;
use crate::repository::Repository;
use crate::step::succeeds;
use crate::test_results::TestResults;
use crate::vm;

/// The longest hunt of one machine; a machine is stopped some minutes later.
const MAX_SECONDS: u64 = 900;

/// The next machine starts with a program so much later: no machine runs as many.
const STRIDE: u64 = 1_000_000;

/// Programs of a machine whose time is limited; the time decides how many run.
const ANY_COUNT: u64 = 1;

/// The name of the test in `tests/vm`.
const TEST: &str = "hunt";

/// The programs that [`test`] runs: some ten seconds.
const DEFAULT: &str = "1:0:64";

/// Parsed arguments.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    seconds: u64,
    /// `host`, or a value of `cargo xtask vm --kernel`.
    kernel: String,
    seed: u64,
    /// Runs this program alone.
    program: Option<u64>,
}

/// Builds the programs and hunts.
///
/// # Errors
/// If an argument is invalid, or a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    println!("seed {}", options.seed);
    let is_on_host = options.kernel == "host";
    if is_on_host && !vm::build(repository)? {
        return Ok(ExitCode::FAILURE);
    }
    let mut failed = 0;
    let runs = options.runs();
    for programs in &runs {
        let passed = if is_on_host {
            succeeds(&mut on_host::command(repository, TEST, programs))?
        } else {
            let arguments = ["--kernel", &options.kernel, "--hunt", programs];
            vm::run(repository, &arguments.map(str::to_owned))? == ExitCode::SUCCESS
        };
        // The other runs have other programs.
        failed += usize::from(!passed);
    }
    println!(
        "hunt: {failed} of {} runs found differences or failed",
        runs.len()
    );
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the default programs on the host, as a step of a longer command that has made the release build.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn test(
    repository: &Repository,
    tests: &mut TestResults,
) -> Result<bool, Box<dyn Error>> {
    on_host::run(repository, TEST, DEFAULT, tests)
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            seconds: 60,
            kernel: "6.12".to_owned(),
            seed: u64::from(std::process::id()),
            program: None,
        };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("`{name}` needs a value"))?;
            let number = || {
                value
                    .parse()
                    .map_err(|error| format!("`{name}` takes a number, not `{value}`: {error}"))
            };
            match name.as_str() {
                "--seconds" => options.seconds = number()?,
                "--seed" => options.seed = number()?,
                "--program" => options.program = Some(number()?),
                "--kernel" => options.kernel.clone_from(value),
                _ => {
                    return Err(format!(
                        "`hunt` takes `--seconds`, `--kernel`, `--seed` and `--program`, not `{name}`"
                    ));
                }
            }
        }
        Ok(options)
    }

    /// What each machine runs: `SEED:FIRST:COUNT`, or `SEED:FIRST:COUNT:SECONDS`.
    fn runs(&self) -> Vec<String> {
        let seed = self.seed;
        if let Some(program) = self.program {
            return vec![format!("{seed}:{program}:1")];
        }
        let machines = self.seconds.div_ceil(MAX_SECONDS).max(1);
        let seconds = self.seconds.div_ceil(machines);
        (0..machines)
            .map(|machine| format!("{seed}:{}:{ANY_COUNT}:{seconds}", machine * STRIDE))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn long_hunts_use_several_machines() {
        let runs = |arguments: &[&str]| options(arguments).unwrap().runs();
        assert_eq!(runs(&["--seed", "7", "--seconds", "60"]), ["7:0:1:60"]);
        let hour = runs(&["--seed", "7", "--seconds", "3600"]);
        let machines = [0, 1_000_000, 2_000_000, 3_000_000];
        assert_eq!(hour, machines.map(|first| format!("7:{first}:1:900")));
        assert_eq!(runs(&["--seed", "7", "--program", "12"]), ["7:12:1"]);
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (wrong, named) in [
            (&["--seed"][..], "`--seed`"),
            (&["--seconds", "x"], "`x`"),
            (&["--frob", "1"], "`--frob`"),
        ] {
            let error = options(wrong).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
