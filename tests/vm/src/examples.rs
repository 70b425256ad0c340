//! The first rule file of the examples, with rules for 32-bit programs beside it, and `tollgate run`, on a machine of
//! any architecture: no test names a syscall that some machine lacks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::ids::{Arch, NativeArch};
use nix::libc::{AT_FDCWD, O_CREAT, O_WRONLY};
use support::event::{self, Event, expect};

use crate::daemon::{Daemon, TOLLGATE};
use crate::differential::steps::{self, ProgramStep, step};
use crate::machine::{STRANGER, USER, WORK, make_directory, make_file};
use crate::program::Entry;
use crate::suite::{Rules, Session};

/// The engine on functions.
pub(crate) const SESSION: Session = Session {
    name: "examples",
    engine: "fentry",
    prepare,
    rules: Rules::Made(|| example() + NARROW),
    tests: &[
        ("wide_calls_are_recorded", wide_calls_are_recorded),
        ("denied_opens_are_recorded", denied_opens_are_recorded),
        ("narrow_calls_are_recorded", narrow_calls_are_recorded),
        ("run_records_both_abis", run_records_both_abis),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Tracepoints of single syscalls.
pub(crate) const SESSION_TRACEPOINT: Session = Session {
    name: "examples_tracepoint",
    engine: "tracepoint",
    rules: Rules::Made(example),
    tests: &[
        ("wide_calls_are_recorded", wide_calls_are_recorded),
        ("denied_opens_are_recorded", denied_opens_are_recorded),
    ],
    ..SESSION
};

/// The raw tracepoint.
pub(crate) const SESSION_RAW: Session = Session {
    name: "examples_raw",
    engine: "tracepoint",
    tests: &[
        ("wide_calls_are_recorded", wide_calls_are_recorded),
        ("denied_opens_are_recorded", denied_opens_are_recorded),
        ("narrow_calls_are_recorded", narrow_calls_are_recorded),
    ],
    ..SESSION
};

/// Packed by `xtask/src/vm.rs`.
const EXAMPLE: &str = "/etc/first.rules";

const NARROW: &str = "\
-a always,exit -F arch=b32 -S open,openat,unlink,rename,exit_group -k narrow
";

const SECRET: &str = "/tmp/own/secret";

fn example() -> String {
    fs::read_to_string(EXAMPLE).unwrap_or_default()
}

fn prepare() -> anyhow::Result<()> {
    make_directory(Path::new(WORK), USER)?;
    make_directory(Path::new("/tmp/own"), 0)?;
    make_file(Path::new("/tmp/work/file"), USER)?;
    make_file(Path::new(SECRET), 0)?;
    fs::set_permissions(SECRET, fs::Permissions::from_mode(0o600)).context("cannot close a file")
}

/// Runs the steps as a program of a user; returns its process.
fn run(
    daemon: &Daemon,
    name: &str,
    entry: Entry,
    uid: u32,
    steps: &[ProgramStep],
) -> anyhow::Result<u32> {
    let path = steps::program(entry, steps)?.install(name)?;
    daemon.run(uid, &path, &[])
}

fn has_arch(events: &[Event], arch: Arch) -> anyhow::Result<()> {
    for event in events {
        let found = event.field("SYSCALL", "arch");
        ensure!(found == format!("{arch:x}"), "{event:?}");
    }
    Ok(())
}

fn wide_calls_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let steps = [
        step!("openat", AT_FDCWD, "/etc/new", O_CREAT | O_WRONLY, 0o640),
        step!("fchmodat", AT_FDCWD, "/etc/new", 0o600),
        step!("renameat2", AT_FDCWD, "/etc/new", AT_FDCWD, "/etc/newer", 0),
        step!("unlinkat", AT_FDCWD, "/etc/newer", 0),
        step!("openat", AT_FDCWD, "/etc/first.rules", 0, 0),
        step!("unlinkat", AT_FDCWD, "missing", 0),
    ];
    let pid = run(daemon, "wide", Entry::Syscall, 0, &steps)?;
    let below_etc = daemon.events("etc", pid, 4)?;
    expect(
        &below_etc,
        &[
            "openat=3 PARENT:/etc/ CREATE:/etc/new",
            "fchmodat=0 NORMAL:/etc/new",
            "renameat2=0 PARENT:/etc/ PARENT:/etc/ DELETE:/etc/new CREATE:/etc/newer",
            "unlinkat=0 PARENT:/etc/ DELETE:/etc/newer",
        ],
    )?;
    let programs = daemon.events("exec", pid, 1)?;
    expect(
        &programs,
        &["execve=0 (/tmp/programs/wide) NORMAL:/tmp/programs/wide"],
    )?;
    let deleted = daemon.events("delete", pid, 1)?;
    expect(&deleted, &["unlinkat=-2 PARENT:/tmp/work"])?;
    let arch = NativeArch::BUILD.b64();
    for event in below_etc.iter().chain(&programs).chain(&deleted) {
        event.check(arch, "/tmp/programs/wide", WORK, 0)?;
    }
    Ok(())
}

fn denied_opens_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let steps = [
        step!("openat", AT_FDCWD, SECRET, 0, 0),
        step!("openat", AT_FDCWD, "file", 0, 0),
    ];
    let pid = run(daemon, "denied", Entry::Syscall, USER, &steps)?;
    let events = daemon.events("denied", pid, 1)?;
    let item = if daemon.sees_inside() {
        "NORMAL"
    } else {
        "UNKNOWN"
    };
    expect(&events, &[&format!("openat=-13 {item}:{SECRET}")])?;
    has_arch(&events, NativeArch::BUILD.b64())
}

fn narrow_calls_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    for name in ["gone", "kept"] {
        make_file(&Path::new(WORK).join(name), USER)?;
    }
    let steps = [
        step!("open", "file", 0, 0),
        step!("openat", AT_FDCWD, "file", 0, 0),
        step!("unlink", "gone"),
        step!("rename", "kept", "moved"),
        step!("open", "missing", 0, 0),
        step!("exit_group", 0),
    ];
    let pid = run(daemon, "narrow", Entry::I386, USER, &steps)?;
    let events = daemon.events("narrow", pid, 6)?;
    expect(
        &events,
        &[
            "open=3 NORMAL:file",
            "openat=4 NORMAL:file",
            "unlink=0 PARENT:/tmp/work DELETE:gone",
            "rename=0 PARENT:/tmp/work PARENT:/tmp/work DELETE:kept CREATE:moved",
            "open=-2 UNKNOWN:missing",
            "exit_group",
        ],
    )?;
    has_arch(&events, NativeArch::BUILD.b32())
}

fn run_records_both_abis(_daemon: &Daemon) -> anyhow::Result<()> {
    let directory = Path::new("/tmp/run");
    make_directory(directory, STRANGER)?;
    make_file(&directory.join("file"), STRANGER)?;
    let (rules, log) = (directory.join("rules"), directory.join("log"));
    fs::write(
        &rules,
        "-a always,exit -F arch=b64 -S openat,unlinkat,exit -k run\n\
         -a always,exit -F arch=b32 -S openat,unlinkat,exit -k run\n",
    )
    .context("cannot write the rules")?;
    let steps = [
        step!("openat", AT_FDCWD, "file", 0, 0),
        step!("unlinkat", AT_FDCWD, "missing", 0),
        step!("exit", 7),
    ];
    for (name, entry) in [("run_wide", Entry::Syscall), ("run_narrow", Entry::I386)] {
        let program = steps::program(entry, &steps)?.install(name)?;
        let output = Command::new(TOLLGATE)
            .args(["run", "--rules"])
            .arg(&rules)
            .arg("--log")
            .arg(&log)
            .arg("--")
            .arg(program)
            .uid(STRANGER)
            .gid(STRANGER)
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()
            .context("cannot start tollgate")?;
        ensure!(output.status.code() == Some(7), "{name}: {output:?}");
        let events = event::parse(&fs::read(&log).context("no log")?)?;
        fs::remove_file(&log).context("cannot remove the log")?;
        let expected = [
            "openat=3 NORMAL:file",
            "unlinkat=-2 PARENT:/tmp/run",
            "exit",
        ];
        expect(&events, &expected).context(name)?;
        has_arch(&events, entry.arch())?;
    }
    Ok(())
}
