//! `cargo xtask fuzz`: throws rule text of any bytes at what reads it, for as long as it is told.
//!
//! The targets are tests of the crates `audit` and `tollgate`, of which every plain run of the tests does
//! a little.

use std::process::ExitCode;

use crate::Outcome;
use crate::repository::Repository;
use crate::step::succeeds;

/// How long a target runs, if nothing is said.
const SECONDS: u64 = 60;

/// What the names of all targets begin with.
const ALL: &str = "fuzz_";
/// Packages with targets, and where in them those are.
const TARGETS: [(&str, &[&str]); 2] = [("audit", &["--test", "fuzz"]), ("tollgate", &["--bins"])];

struct Wanted {
    seconds: u64,
    seed: Option<u64>,
    target: Option<String>,
}

/// Runs the targets, one after the other.
///
/// # Errors
/// An argument that is not understood, or a tool that cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let wanted = wanted(arguments)?;
    let out = repository.root.join("target/fuzz");
    std::fs::create_dir_all(&out)?;
    let seed = wanted.seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}; inputs that fail go to `{}`", out.display());
    let target = wanted.target.unwrap_or_else(|| ALL.into());
    for (package, tests) in TARGETS {
        let mut command = repository.cargo(&["test", "--release", "--locked", "-p", package]);
        command
            .args(tests)
            .args(["--", "--nocapture", "--test-threads=1"])
            .arg(&target)
            .env("TOLLGATE_FUZZ_SECONDS", wanted.seconds.to_string())
            .env("TOLLGATE_FUZZ_SEED", seed.to_string())
            .env("TOLLGATE_FUZZ_OUT", &out);
        if !succeeds(&mut command)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn wanted(arguments: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted {
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
            "--seconds" => wanted.seconds = number()?,
            "--seed" => wanted.seed = Some(number()?),
            "--target" => wanted.target = Some(value.clone()),
            _ => {
                return Err(format!(
                    "`fuzz` takes `--seconds`, `--seed` and `--target`, not `{name}`"
                ));
            }
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Wanted, String> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        wanted(&arguments)
    }

    #[test]
    fn arguments_are_read_or_named() {
        let found = read(&["--seed", "7", "--target", "rule_text"]).unwrap();
        assert_eq!((found.seconds, found.seed), (SECONDS, Some(7)));
        assert_eq!(found.target.as_deref(), Some("rule_text"));
        for (wrong, named) in [
            (&["--seed"][..], "`--seed`"),
            (&["--seconds", "x"], "`x`"),
            (&["--frob", "1"], "`--frob`"),
        ] {
            let error = read(wrong).map(|_| ()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
