//! `cargo xtask fuzz`: feeds mutated input to the parsers for a given time.
//!
//! The targets are tests of the crates in [`TARGETS`]; a plain `cargo test` runs each for a short time.

use std::process::ExitCode;

use crate::Outcome;
use crate::repository::Repository;
use crate::step::run_tests;
use crate::test_results::TestResults;

/// Default duration of a target.
const SECONDS: u64 = 60;

/// Prefix of the targets' names.
const ALL: &str = "fuzz_";
/// Packages with targets, and the cargo options that select their test binaries.
const TARGETS: [(&str, &[&str]); 5] = [
    ("audit", &["--test", "fuzz"]),
    ("logs", &["--lib"]),
    ("search", &["--bins"]),
    ("ship", &["--lib"]),
    ("tollgate", &["--bins"]),
];

struct Options {
    seconds: u64,
    seed: Option<u64>,
    target: Option<String>,
}

/// Runs the targets one after another.
///
/// # Errors
/// If an argument is invalid, or a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let options = parse(arguments)?;
    let out = repository.root.join("target/fuzz");
    std::fs::create_dir_all(&out)?;
    let seed = options
        .seed
        .unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}; failing inputs go to `{}`", out.display());
    let target = options.target.unwrap_or_else(|| ALL.into());
    let mut tests = TestResults::default();
    for (package, binaries) in TARGETS {
        let mut command = repository.cargo(&["test", "--release", "--locked", "-p", package]);
        command
            .args(binaries)
            .args(["--", "--nocapture", "--test-threads=1"])
            .arg(&target)
            .env("TOLLGATE_FUZZ_SECONDS", options.seconds.to_string())
            .env("TOLLGATE_FUZZ_SEED", seed.to_string())
            .env("TOLLGATE_FUZZ_OUT", &out);
        if !run_tests(&mut command, &mut tests)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    if tests.tally.passed == 0 {
        return Err(format!("no target matches `{target}`").into());
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        seconds: SECONDS,
        seed: None,
        target: None,
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
            "--seed" => options.seed = Some(number()?),
            "--target" => options.target = Some(value.clone()),
            _ => {
                return Err(format!(
                    "`fuzz` takes `--seconds`, `--seed` and `--target`, not `{name}`"
                ));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(arguments: &[&str]) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        parse(&arguments)
    }

    #[test]
    fn arguments_are_parsed_and_invalid_ones_named() {
        let found = parse_words(&["--seed", "7", "--target", "rule_text"]).unwrap();
        assert_eq!((found.seconds, found.seed), (SECONDS, Some(7)));
        assert_eq!(found.target.as_deref(), Some("rule_text"));
        for (wrong, named) in [
            (&["--seed"][..], "`--seed`"),
            (&["--seconds", "x"], "`x`"),
            (&["--frob", "1"], "`--frob`"),
        ] {
            let error = parse_words(wrong).map(|_| ()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
