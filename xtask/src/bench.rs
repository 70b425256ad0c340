//! `cargo xtask bench`: what auditing costs, next to no auditing and to the kernel's own.
//!
//! The chore runs as three kinds of process. The first looks at the arguments and becomes
//! `scripts/bench.sh`, which holds the machine's lock and puts the kernel's audit back whatever
//! happens: that takes a shell's `trap`, because this crate has no unsafe code to catch a signal
//! with. The second, started by that script, measures. The third kind is the workloads: this
//! program again, started anew for each measurement, because a task keeps for life the audit
//! context that it was or was not given when it was forked.
//!
//! Method, commands and figures are in `docs/bench.md`.

mod arguments;
mod daemon;
mod getpid;
mod loader;
mod log;
mod machine;
mod run;
mod state;
mod statistics;
mod table;
mod workload;

use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::Outcome;
use crate::repository::Repository;
use arguments::{Arguments, Subject};
use machine::Machine;
use state::{Bench, Scheduling, State};

/// First word of the arguments that the script gives.
const GUARDED: &str = "guarded";
/// First word of the arguments of a workload.
const WORKLOAD: &str = "workload";
/// Names the program to measure instead of the one that `make build` has built.
const PROGRAM_VARIABLE: &str = "TOLLGATE_BIN";

/// Measures, or plays the part of the chore that the first argument names.
///
/// # Errors
/// What kept it from measuring; an event that is missing is no error but a failure.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    match arguments.split_first() {
        Some((word, rest)) if word == WORKLOAD => workload::run(rest),
        Some((word, rest)) if word == GUARDED => guarded(repository, rest),
        _ => start(repository, arguments),
    }
}

/// Refuses what cannot be measured, then becomes the script that guards the machine.
fn start(repository: &Repository, words: &[String]) -> Outcome {
    let arguments = Arguments::parse(words)?;
    if cfg!(debug_assertions) {
        // In such a build the standard library asks the kernel about each descriptor that it
        // closes: the workload would make three syscalls for a pair.
        let manifest = repository.root.join("Cargo.toml");
        let error = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "run",
                "--release",
                "--quiet",
                "--locked",
                "--package",
                "xtask",
            ])
            .arg("--manifest-path")
            .arg(manifest)
            .args(["--", "bench"])
            .args(words)
            .exec();
        return Err(format!("cannot run cargo: {error}").into());
    }
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Err(
            "measuring needs root: it loads audit rules and BPF programs; run this:\n  \
                    sudo env PATH=\"$PATH\" HOME=\"$HOME\" make bench"
                .into(),
        );
    }
    let program = program(repository);
    if arguments.states.contains(&State::Tollgate) && !program.is_file() {
        return Err(format!("there is no `{}`: `make build` makes it", program.display()).into());
    }
    let error = Command::new("sh")
        .arg(repository.root.join("scripts/bench.sh"))
        .arg(env::current_exe()?)
        .args(words)
        .exec();
    Err(format!("cannot run sh: {error}").into())
}

fn program(repository: &Repository) -> PathBuf {
    env::var_os(PROGRAM_VARIABLE).map_or_else(
        || repository.target().join("release/tollgate"),
        PathBuf::from,
    )
}

/// Measures, in a directory that the script has made and will remove.
fn guarded(repository: &Repository, words: &[String]) -> Outcome {
    let (work, words) = words
        .split_first()
        .ok_or("`bench guarded` is for scripts/bench.sh alone")?;
    let arguments = Arguments::parse(words)?;
    let bench = prepare(Path::new(work), program(repository), arguments.scheduling)?;
    let machine = Machine::of(&bench.work)?;
    println!("{machine}");
    println!("program: {}", bench.program.display());
    println!(
        "workloads: on one CPU, {}",
        match arguments.scheduling {
            Scheduling::Ordinary => "scheduled as any program",
            Scheduling::Fifo => "SCHED_FIFO: nothing else runs there meanwhile",
        }
    );

    let mut complaints = Vec::new();
    let mut rows = Vec::new();
    for subject in &arguments.subjects {
        println!();
        match subject {
            Subject::Loader => {
                let measured = loader::measure(&bench, &arguments)?;
                print!("{}", loader::report(&measured, arguments.pairs));
                complaints.extend(loader::complaints(&measured, arguments.pairs));
                if arguments.goals {
                    complaints.extend(loader::missed_goal(&measured));
                }
                rows.extend(measured.iter().map(loader::Row::json));
            }
            Subject::Getpid => {
                let measured = getpid::measure(&bench, &arguments)?;
                print!("{}", getpid::report(&measured));
                if arguments.goals {
                    complaints.extend(getpid::missed_goal(&measured));
                }
                rows.extend(measured.iter().map(getpid::Row::json));
            }
            Subject::Run => {
                let measured = run::measure(&bench, &arguments)?;
                print!("{}", run::report(&measured, arguments.pairs));
                complaints.extend(run::complaints(&measured, arguments.pairs));
                if arguments.goals {
                    complaints.extend(run::missed_goals(&measured));
                }
                rows.extend(measured.iter().map(run::Row::json));
            }
        }
    }
    if let Some(path) = &arguments.json {
        let text = format!(
            "{{\"machine\":{},\n \"rows\":[\n  {}\n ]}}\n",
            machine.json(),
            rows.join(",\n  ")
        );
        fs::write(path, text)
            .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    for complaint in &complaints {
        println!("FAILED: {complaint}");
    }
    Ok(if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Lays out the directory: a copy of this program and a file to open, both within reach of the
/// workloads' user, and a directory for logs, which is not.
fn prepare(
    work: &Path,
    program: PathBuf,
    scheduling: Scheduling,
) -> Result<Bench, Box<dyn std::error::Error>> {
    let workload = work.join("xtask");
    fs::copy(env::current_exe()?, &workload)?;
    fs::set_permissions(&workload, fs::Permissions::from_mode(0o755))?;
    let files = work.join("files");
    fs::create_dir(&files)?;
    fs::set_permissions(&files, fs::Permissions::from_mode(0o755))?;
    let file = files.join(workload::FILE);
    fs::write(&file, "")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
    let logs = work.join("log");
    fs::create_dir(&logs)?;
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o700))?;
    Ok(Bench {
        work: work.to_owned(),
        program,
        workload,
        scheduling,
    })
}
