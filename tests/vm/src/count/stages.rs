//! Calls whose instructions the host follows one by one, through the emulator: `cargo xtask counts --stages`.
//!
//! The session prints where the functions of the kernel and the lines of BPF programs are, and runs a program for each
//! call. The host stops the machine at `getppid`, with which each round of a program begins.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::{O_RDWR, TEN, WATCHED};
use crate::daemon::Daemon;
use crate::machine::{USER, WORK, make_directory, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// Rounds of a program: the host needs some hundred, from the moment that it is told of the call.
const ROUNDS: u32 = 4000;

/// Runs only if the filter names it.
pub(crate) const SESSION: Session = Session {
    name: "stages",
    engine: "fentry",
    prepare,
    rules: Rules::Made(|| format!("{TEN}{OTHERS}")),
    tests: &[("calls_are_followed", calls_are_followed)],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const OTHERS: &str = "-a always,exit -F arch=b64 -S connect -F uid=1001 -k connect\n\
    -a always,exit -F arch=b64 -S linkat,unlinkat -F dir=/tmp/audit-bench/3 -k names\n";

/// `getppid`.
const MARK: u32 = 110;

fn prepare() -> anyhow::Result<()> {
    make_file(Path::new("/tmp/work/file"), USER)?;
    make_directory(Path::new("/tmp/audit-bench"), USER)?;
    make_directory(Path::new(WATCHED), USER)?;
    make_file(&Path::new(WATCHED).join("file"), USER)
}

/// The calls, each with what its round needs.
fn calls() -> Vec<(&'static str, Program)> {
    const FILE: &str = "/tmp/audit-bench/3/file";
    let round = || Program::new(Entry::Syscall).call(MARK, args![]);
    let open = |path, flags| {
        round()
            .call(257, args![-100, path, flags])
            .call(3, args![Arg::Result])
    };
    const LINK: &str = "/tmp/audit-bench/3/link";
    // A name of the abstract namespace that nobody listens at.
    let address = Arg::Bytes([&[1, 0, 0][..], b"nobody"].concat());
    let connect = vec![Arg::Saved("socket"), address, 9.into()];
    vec![
        ("openat, unwatched, close", open("/tmp/work/file", O_RDWR)),
        ("openat, watched, close", open(FILE, O_RDWR)),
        (
            "linkat, unlinkat, watched",
            round()
                .call(265, args![-100, FILE, -100, LINK, 0])
                .call(263, args![-100, LINK, 0]),
        ),
        (
            "socket, connect, close",
            round()
                .call(41, args![1, 1, 0])
                .save("socket")
                .call(42, connect)
                .call(3, vec![Arg::Saved("socket")]),
        ),
    ]
}

fn calls_are_followed(_daemon: &Daemon) -> anyhow::Result<()> {
    show_functions()?;
    let status = Command::new("/bin/bpf_lines").status();
    let status = status.context("cannot start bpf_lines")?;
    ensure!(status.success(), "bpf_lines ended with {status}");
    for (name, program) in calls() {
        let path = program.rounds(ROUNDS).install("followed")?;
        println!("vm: follow {name}");
        let status = Command::new(&path)
            .current_dir(WORK)
            .uid(USER)
            .gid(USER)
            .stdin(Stdio::null())
            .status()
            .context("cannot start a program")?;
        ensure!(status.success(), "it ended with {status}");
    }
    Ok(())
}

/// Prints where the functions of the kernel are.
fn show_functions() -> anyhow::Result<()> {
    let symbols = fs::read_to_string("/proc/kallsyms").context("cannot read symbols")?;
    let mut shown = String::new();
    for symbol in symbols.lines() {
        let mut words = symbol.split_whitespace();
        if let (Some(address), Some("t" | "T"), Some(name)) =
            (words.next(), words.next(), words.next())
        {
            // Writing to a string does not fail.
            let _written = writeln!(shown, "vm: function {address} {name}");
        }
    }
    print!("{shown}");
    Ok(())
}
