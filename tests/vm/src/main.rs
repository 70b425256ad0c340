//! The first process of a test machine: runs the daemon there and says how it did.
//!
//! `cargo xtask vm` packs this program as `/init` beside the daemon and `ausearch`, boots a kernel with
//! it, and reads the serial port. What is meant for it starts with `vm: `; [`suite`] has the words.
//! The machine has no disk and ends when the tests have.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "standard output is the serial port that the harness reads"
)]

mod attack;
mod avc;
mod blind;
mod clock;
mod count;
mod daemon;
mod deny;
mod differential;
mod filesystems;
mod json;
mod lists;
mod locked;
mod machine;
mod panic;
mod program;
mod raw;
mod reload;
mod rulesets;
mod run;
mod suite;
mod survive;
mod tracepoint;

use std::process::ExitCode;

use machine::Purpose;
use suite::Session;

/// Each starts one daemon.
const TESTING: &[Session] = &[
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
    survive::SESSION,
    blind::SESSION,
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
    differential::SESSION_LEFT_OUT,
    differential::watched::SESSION,
    lists::SESSION,
    filesystems::SESSION,
    filesystems::SESSION_ROOT,
    filesystems::SESSION_ROOT_TRACEPOINT,
    locked::SESSION,
];

/// Those in which something happens while a call runs. `cargo xtask vm` knows them by their name.
const RACING: &[Session] = &[attack::SESSION];

/// Those in which SELinux refuses something. `cargo xtask vm` knows them by their name.
const LABELLED: &[Session] = &[
    avc::SESSION,
    Session {
        name: "avc_tracepoint",
        engine: "tracepoint",
        ..avc::SESSION
    },
];

/// Those that take minutes, run when a filter names them.
const LONG: &[Session] = &[rulesets::SESSION, rulesets::SESSION_ALL_CALLS];

fn main() -> ExitCode {
    if std::process::id() != 1 {
        return here(&std::env::args().collect::<Vec<_>>());
    }
    match machine::prepare() {
        Ok(wishes) => {
            let run = |sessions| suite::run(sessions, &wishes.filter);
            match wishes.purpose {
                Purpose::Counting => run(count::SESSIONS),
                Purpose::Racing => run(RACING),
                Purpose::Labelled => run(LABELLED),
                Purpose::Dying => panic::run(),
                Purpose::Testing if wishes.filter.starts_with("rulesets") => run(LONG),
                Purpose::Testing => run(TESTING),
            }
        }
        Err(error) => println!("vm: broken {error:#}"),
    }
    machine::power_off()
}

/// What is also run on the machine that it was built on: `lists SEED:FIRST:COUNT TOLLGATE`.
fn here(words: &[String]) -> ExitCode {
    let [_, task, lists, tollgate] = words else {
        println!("this is the first process of a test machine; run `cargo xtask vm`");
        return ExitCode::FAILURE;
    };
    let ran = if task == "lists" {
        lists::run_here(lists, tollgate)
    } else {
        Err(anyhow::anyhow!("there is no task `{task}`"))
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("vm: FAIL {error:#}");
            ExitCode::FAILURE
        }
    }
}
