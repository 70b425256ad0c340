//! The first process of a test machine: runs the tests and reports on the serial port.
//!
//! `cargo xtask vm` packs this program as `/init` beside the daemon and `ausearch`, boots a kernel, and reads the
//! serial port. Lines for it start with `vm: `; [`suite`] documents them. The machine has no disk and powers off
//! after the tests.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "standard output is the serial port that the harness reads"
)]

mod attack;
mod avc;
mod clock;
mod count;
mod daemon;
mod deny;
mod differential;
mod disabled_hooks;
mod filesystems;
mod handover;
mod json;
mod lists;
mod locked;
mod machine;
mod names;
mod panic;
mod program;
mod raw;
mod reload;
mod rulesets;
mod run;
mod slots;
mod suite;
mod traced;
mod tracepoint;

use std::process::ExitCode;

use machine::Purpose;
use suite::Session;

/// Sessions of the general machine; each starts one daemon.
const GENERAL: &[Session] = &[
    tracepoint::SESSION,
    raw::SESSION,
    Session {
        name: "fentry",
        engine: "fentry",
        ..tracepoint::SESSION
    },
    Session {
        name: "fentry_both_abis",
        engine: "fentry",
        ..raw::SESSION
    },
    reload::SESSION,
    reload::MANY,
    handover::SESSION,
    disabled_hooks::SESSION,
    clock::SESSION,
    Session {
        name: "clock_fentry",
        engine: "fentry",
        ..clock::SESSION
    },
    json::SESSION,
    deny::SESSION,
    run::SESSION,
    differential::SESSION,
    differential::SESSION_32,
    differential::SESSION_URING,
    differential::SESSION_URING_LIST,
    differential::SESSION_FILESYSTEM_LIST,
    differential::watched::SESSION,
    lists::SESSION,
    filesystems::SESSION,
    filesystems::SESSION_ROOT,
    filesystems::SESSION_ROOT_TRACEPOINT,
    names::SESSION,
    names::SESSION_TRACEPOINT,
    slots::SESSION,
    traced::SESSION,
    locked::SESSION,
];

/// Sessions of the machine for races. `cargo xtask vm` selects it by their name.
const RACE: &[Session] = &[attack::SESSION];

/// Sessions of the machine with SELinux. `cargo xtask vm` selects it by their name.
const SELINUX: &[Session] = &[
    avc::SESSION,
    Session {
        name: "avc_tracepoint",
        engine: "tracepoint",
        ..avc::SESSION
    },
];

/// Sessions that take minutes and run only if the filter names them.
const SLOW: &[Session] = &[rulesets::SESSION, rulesets::SESSION_ALL_CALLS];

fn main() -> ExitCode {
    if std::process::id() != 1 {
        return run_task(&std::env::args().collect::<Vec<_>>());
    }
    match machine::prepare() {
        Ok(options) => {
            let run = |sessions| suite::run(sessions, &options.filter);
            match options.purpose {
                Purpose::Count => run(count::SESSIONS),
                Purpose::Race => run(RACE),
                Purpose::Selinux => run(SELINUX),
                Purpose::Panic => panic::run(),
                Purpose::General if options.filter.starts_with("rulesets") => run(SLOW),
                Purpose::General => run(GENERAL),
            }
        }
        Err(error) => println!("vm: broken {error:#}"),
    }
    machine::power_off()
}

/// A task other than that of the first process: `lists SEED:FIRST:COUNT TOLLGATE` on the host, and those of
/// [`slots::run_task`] in a machine.
fn run_task(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = match words.as_slice() {
        [_, "lists", lists, tollgate] => lists::run_on_host(lists, tollgate),
        [_, task, argument] => slots::run_task(task, argument),
        _ => {
            println!("this is the first process of a test machine; run `cargo xtask vm`");
            return ExitCode::FAILURE;
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("vm: FAIL {error:#}");
            ExitCode::FAILURE
        }
    }
}
