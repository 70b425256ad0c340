//! The raw tracepoints, which the engine uses for all syscalls if a rule covers 32-bit calls.

use std::path::Path;

use anyhow::Context as _;
use audit::ids::Arch;
use support::event::expect;

use crate::daemon::Daemon;
use crate::machine::{USER, WORK, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "raw",
    engine: "tracepoint",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text(
        "\
-a always,exit -F arch=b32 -S open,unlink,execve,exit,exit_group -F uid=1001 -k narrow
-a always,exit -F arch=b64 -S open,execve -F uid=1001 -k wide
",
    ),
    tests: &[
        ("int80_calls_are_32_bit_calls", int80_calls_are_32_bit_calls),
        ("i386_program_is_recorded", i386_program_is_recorded),
        ("b64_calls_are_recorded", b64_calls_are_recorded),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Syscall numbers of the 32-bit table.
mod nr {
    pub(super) const OPEN: u32 = 5;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const EXECVE: u32 = 11;
}

/// Runs a program and expects these events, each with the executable of the process at that time.
fn run(
    daemon: &Daemon,
    name: &str,
    calls: &Program,
    expected: &[(&str, &str)],
) -> anyhow::Result<()> {
    let path = calls.install(name)?;
    let pid = daemon.run_user(&path, &[])?;
    let events = support::wait::wait_for("all events", || {
        let events = daemon.logged(pid)?;
        Ok((events.len() >= expected.len()).then_some(events))
    })
    .with_context(|| support::event::show(&daemon.logged(pid).unwrap_or_default()))?;
    let summaries: Vec<&str> = expected.iter().map(|&(_, summary)| summary).collect();
    expect(&events, &summaries)?;
    for (event, (program, _)) in events.iter().zip(expected) {
        let narrow = event.field("SYSCALL", "key") == "narrow";
        let arch = if narrow { Arch::I386 } else { Arch::X86_64 };
        event.check(arch, program, WORK, USER)?;
    }
    Ok(())
}

fn int80_calls_are_32_bit_calls(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Int80)
        .call(nr::OPEN, args!["file", 0, 0])
        .call(nr::OPEN, args!["missing", 0, 0])
        .call(nr::UNLINK, args!["/tmp/work/missing"]);
    run(
        daemon,
        "interrupt",
        &calls,
        &[
            (
                "/tmp/programs/interrupt",
                "execve=0 (/tmp/programs/interrupt) NORMAL:/tmp/programs/interrupt",
            ),
            ("/tmp/programs/interrupt", "open=3 NORMAL:file"),
            ("/tmp/programs/interrupt", "open=-2 UNKNOWN:missing"),
            ("/tmp/programs/interrupt", "unlink=-2 PARENT:/tmp/work/"),
            ("/tmp/programs/interrupt", "exit"),
        ],
    )
}

fn i386_program_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    Program::new(Entry::I386)
        .call(nr::OPEN, args!["file", 0, 0])
        .install("again")?;
    let words = Arg::Texts(&["again", "word"]);
    let calls = Program::new(Entry::I386)
        .call(nr::EXECVE, vec!["missing".into(), words.clone(), 0.into()])
        .call(
            nr::EXECVE,
            vec!["/tmp/programs/again".into(), words, 0.into()],
        );
    run(
        daemon,
        "narrow",
        &calls,
        &[
            (
                "/tmp/programs/narrow",
                "execve=0 (/tmp/programs/narrow) NORMAL:/tmp/programs/narrow",
            ),
            ("/tmp/programs/narrow", "execve=-2 UNKNOWN:missing"),
            (
                "/tmp/programs/again",
                "execve=0 (again word) NORMAL:/tmp/programs/again",
            ),
            ("/tmp/programs/again", "open=3 NORMAL:file"),
            ("/tmp/programs/again", "exit"),
        ],
    )
}

fn b64_calls_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall).call(2, args!["file", 0, 0]);
    run(
        daemon,
        "wide",
        &calls,
        &[
            (
                "/tmp/programs/wide",
                "execve=0 (/tmp/programs/wide) NORMAL:/tmp/programs/wide",
            ),
            ("/tmp/programs/wide", "open=3 NORMAL:file"),
        ],
    )
}
