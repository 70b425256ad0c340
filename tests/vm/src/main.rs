//! The first process of a test machine: runs the tests and reports on the first serial port.
//!
//! `cargo xtask vm` packs this program as `/init` beside the daemon and `ausearch`, boots a kernel, and reads the
//! port. Lines for it start with `vm: `; [`suite`] documents them. The machine has no disk and powers off
//! after the tests.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "standard output is the port that the harness reads"
)]

mod attack;
mod avc;
mod clock;
mod contention;
mod count;
mod daemon;
mod deny;
mod detections;
mod differential;
mod disabled_hooks;
mod doctor;
mod examples;
mod failed_opens;
mod filesystems;
mod flood;
mod full_disk;
mod half_seen;
mod handover;
mod hunt;
mod idle_threads;
mod json;
mod late;
mod lists;
mod load;
mod locked;
mod lookups;
mod machine;
mod names;
mod operation_at_entry;
mod other_mounts;
mod panic;
mod pinned;
mod preemption;
mod program;
mod raw;
mod registers;
mod reload;
mod retried;
mod rulesets;
mod run;
mod shared_functions;
mod signals;
mod slots;
mod stopping;
mod suite;
mod traced;
mod tracepoint;
mod uring_ops;

use std::process::ExitCode;

use audit::ids::NativeArch;

use machine::Purpose;
use suite::{Group, Session};

/// Sessions of the general machine. `cargo xtask vm` boots a machine for each part; the parts take about the same time.
/// Locked rules stay until reboot, so their session is the last one of its part.
const GENERAL: [&[Group]; 4] = [
    &[
        // Before a session loads the module btrfs, for which programs have more instructions.
        &[reload::MANY],
        &[
            tracepoint::SESSION,
            raw::SESSION,
            half_seen::SESSION_TRACEPOINT,
        ],
        &[
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
            shared_functions::SESSION,
            signals::SESSION,
            half_seen::SESSION,
        ],
        &[reload::SESSION],
        &[handover::SESSION],
        &[disabled_hooks::SESSION],
        &[clock::SESSION],
        &[Session {
            name: "clock_fentry",
            engine: "fentry",
            ..clock::SESSION
        }],
        &[json::SESSION],
    ],
    &[
        &[contention::SESSION],
        &[contention::SESSION_DENY],
        &[preemption::SESSION],
        &[stopping::SESSION],
        &[pinned::SESSION],
        &[flood::SESSION],
        &[flood::SESSION_TRACEPOINT],
        &[slots::SESSION],
        &[slots::mapped_users::SESSION],
        &[slots::operations::SESSION],
        &[slots::subordinate_users::SESSION],
    ],
    &[
        // For a time after rules are replaced, names of calls that the kernel has not looked up are recorded.
        &[differential::SESSION],
        &[differential::SESSION_32],
        &[
            differential::SESSION_URING,
            differential::SESSION_URING_LIST,
            differential::SESSION_FILESYSTEM_LIST,
            differential::watched::SESSION,
        ],
        &[differential::watched::SESSION_RAW],
        &[detections::SESSION],
        &[detections::own_daemon::SESSION],
        &[deny::SESSION],
        &[lists::SESSION],
        &[full_disk::SESSION],
    ],
    &[
        &[
            run::SESSION,
            names::SESSION_TRACEPOINT,
            other_mounts::SESSION_TRACEPOINT,
            traced::SESSION_TRACEPOINT,
        ],
        &[
            names::SESSION,
            filesystems::SESSION,
            other_mounts::SESSION,
            uring_ops::SESSION,
            retried::SESSION,
            retried::SESSION_NEVER,
            retried::opens::SESSION,
            late::SESSION,
            lookups::SESSION,
            failed_opens::SESSION,
            failed_opens::exec_operations::SESSION,
            traced::SESSION,
            traced::SESSION_WATCHED,
            traced::SESSION_RESULT,
            operation_at_entry::SESSION,
            operation_at_entry::unreadable_name::SESSION,
            hunt::SESSION,
        ],
        &[filesystems::SESSION_ROOT],
        &[filesystems::SESSION_ROOT_TRACEPOINT],
        &[traced::SESSION_DENIED],
        &[locked::SESSION],
    ],
];

/// Sessions of an arm64 machine, which has one part.
const ARM64: &[Session] = &[
    examples::SESSION,
    examples::SESSION_TRACEPOINT,
    examples::SESSION_RAW,
    differential::SESSION_ARM64,
    contention::SESSION,
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
const SLOW: &[Session] = &[
    rulesets::SESSION,
    rulesets::SESSION_ALL_CALLS,
    detections::sigmahq::SESSION,
    count::stages::SESSION,
];

fn main() -> ExitCode {
    if std::process::id() != 1 {
        return run_task(&std::env::args().collect::<Vec<_>>());
    }
    match machine::prepare() {
        Ok(options) => {
            let run = |groups: &[Group]| suite::run(groups, &options.filter);
            match options.purpose {
                Purpose::Count => run(&alone(count::SESSIONS)),
                Purpose::Race => run(&alone(RACE)),
                Purpose::Selinux => run(&alone(SELINUX)),
                Purpose::Panic => panic::run(),
                Purpose::General if is_slow(options.filter.text()) => run(&alone(SLOW)),
                Purpose::General if options.filter.text().starts_with("doctor") => doctor::run(),
                Purpose::General => match general(options.part.as_deref()) {
                    Some(groups) => run(&groups),
                    None => println!("vm: broken there is no such part: {:?}", options.part),
                },
            }
        }
        Err(error) => println!("vm: broken {error:#}"),
    }
    machine::power_off()
}

/// Whether a filter names a slow session.
fn is_slow(filter: &str) -> bool {
    SLOW.iter().any(|session| filter.starts_with(session.name))
}

/// Groups of one session each.
fn alone(sessions: &'static [Session]) -> Vec<Group> {
    sessions.chunks(1).collect()
}

/// The general sessions of a part, `NUMBER/COUNT`, or all; `None` if the caller has another number of parts.
fn general(part: Option<&str>) -> Option<Vec<Group>> {
    let Some(part) = part else {
        return Some(match NativeArch::BUILD {
            NativeArch::X86_64 => GENERAL.concat(),
            NativeArch::Aarch64 => alone(ARM64),
        });
    };
    let (number, count) = part.split_once('/')?;
    let number: usize = number.parse().ok()?;
    if count.parse() != Ok(GENERAL.len()) {
        return None;
    }
    let groups = GENERAL.get(number.checked_sub(1)?)?;
    Some(groups.to_vec())
}

/// A task other than that of the first process: `lists SEED:FIRST:COUNT TOLLGATE` and `hunt PROGRAMS TOLLGATE` on the
/// host, and those of [`slots::run_task`] in a machine.
fn run_task(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = match words.as_slice() {
        [_, "lists", lists, tollgate] => lists::run_on_host(lists, tollgate),
        [_, "hunt", programs, tollgate] => hunt::run_on_host(programs, tollgate),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_rules_stay_for_no_other_session() {
        for part in GENERAL {
            let sessions = part.concat();
            let stays = sessions.iter().position(|session| session.stays);
            assert!(stays.is_none_or(|at| at == sessions.len() - 1), "{part:?}");
        }
    }

    #[test]
    fn sessions_of_a_group_have_one_engine() {
        for group in GENERAL.concat() {
            let engine = |session: &Session| session.engine;
            assert!(group.is_sorted_by_key(engine), "{group:?}");
            assert_eq!(group.first().map(engine), group.last().map(engine));
        }
    }

    #[test]
    fn parts_make_up_the_whole() {
        let all = GENERAL.concat().len();
        let sum = |count: usize| -> usize {
            let part = |number| general(Some(&format!("{number}/{count}")));
            (1..=count)
                .map(|number| part(number).map_or(0, |groups| groups.len()))
                .sum()
        };
        assert_eq!(sum(GENERAL.len()), all);
        assert_eq!(sum(GENERAL.len() - 1), 0);
        assert_eq!(general(None).unwrap().len(), all);
        for part in ["0/4", "5/4", "1", "x/4"] {
            assert!(general(Some(part)).is_none(), "{part}");
        }
    }
}
