//! Per-syscall tracepoints, which the tracepoint engine uses for rules of 64-bit calls.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, ensure};
use audit::ids::Arch;
use support::event::{Event, expect};

use crate::daemon::Daemon;
use crate::machine::{PROGRAMS, STRANGER, USER, WORK, make_directory, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session, has_task_work};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "tracepoint",
    engine: "tracepoint",
    prepare,
    rules: Rules::Text(
        "\
-a always,exit -F arch=b64 -F dir=/tmp/watched -F perm=wa -k watched
-a always,exit -F arch=b64 -F path=/tmp/exactly8/sixteen_letters_ -F perm=wa -k awaited
-a always,exit -F arch=b64 -F path=/tmp/exactly8/eleven_more -F perm=wa -k awaited
-a always,exit -F arch=b64 -S open,openat,close -F uid=1001 -F exe=/tmp/programs/burst -k burst
-a always,exit -F arch=b64 -S open,openat -F uid=1001 -F success=1 -k opened
-a always,exit -F arch=b64 -S open,openat -F uid=1001 -F success=0 -k refused
-a always,exit -F arch=b64 -S unlink,unlinkat,rename,renameat,renameat2 -F uid=1001 -k names
-a always,exit -F arch=b64 -S chmod,fchmod,fchmodat -F uid=1001 -k modes
-a always,exit -F arch=b64 -S execve,execveat,exit,exit_group -F uid=1001 -F gid=1001 -k tasks
",
    ),
    tests: &[
        (
            "successful_opens_are_recorded",
            successful_opens_are_recorded,
        ),
        ("failed_opens_are_recorded", failed_opens_are_recorded),
        ("name_changes_are_recorded", name_changes_are_recorded),
        ("mode_changes_are_recorded", mode_changes_are_recorded),
        ("execs_are_recorded", execs_are_recorded),
        ("script_execs_are_recorded", script_execs_are_recorded),
        ("failed_execs_are_recorded", failed_execs_are_recorded),
        ("other_users_are_not_recorded", other_users_are_not_recorded),
        (
            "watched_directory_behind_a_link_is_recorded",
            watched_directory_behind_a_link_is_recorded,
        ),
        (
            "watch_of_a_missing_name_records_its_creation",
            watch_of_a_missing_name_records_its_creation,
        ),
        ("many_calls_are_recorded", many_calls_are_recorded),
    ],
    stop: Daemon::stop,
    after,
    stays: false,
};

const B64: Arch = Arch::X86_64;
const AT_FDCWD: i64 = -100;
const O_WRONLY: i64 = 1;
const O_CREAT: i64 = 0o100;

/// Syscall numbers of the 64-bit table.
mod nr {
    pub(super) const OPEN: u32 = 2;
    pub(super) const CLOSE: u32 = 3;
    pub(super) const EXECVE: u32 = 59;
    pub(super) const RENAME: u32 = 82;
    pub(super) const UNLINK: u32 = 87;
    pub(super) const CHMOD: u32 = 90;
    pub(super) const FCHMOD: u32 = 91;
    pub(super) const EXIT_GROUP: u32 = 231;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const UNLINKAT: u32 = 263;
    pub(super) const RENAMEAT: u32 = 264;
    pub(super) const FCHMODAT: u32 = 268;
    pub(super) const RENAMEAT2: u32 = 316;
}

fn prepare() -> anyhow::Result<()> {
    clear(&["/tmp/watched", "/tmp/own", "/tmp/exactly8"])?;
    for (directory, owner) in [
        ("/tmp/watched", USER),
        ("/tmp/watched/below", USER),
        ("/tmp/own", 0),
        ("/tmp/exactly8", 0),
    ] {
        make_directory(Path::new(directory), owner)?;
    }
    for (file, owner) in [
        ("/tmp/work/file", USER),
        ("/tmp/work/burst", USER),
        ("/tmp/watched/below/file", USER),
        ("/tmp/own/secret", 0),
    ] {
        make_file(Path::new(file), owner)?;
    }
    fs::set_permissions("/tmp/own/secret", fs::Permissions::from_mode(0o600))?;
    symlink("/tmp/watched", "/tmp/work/link").context("cannot make a link")
}

/// Removes the files of another session.
fn clear(directories: &[&str]) -> anyhow::Result<()> {
    for directory in directories {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot remove {directory}"))?,
        }
    }
    for left in fs::read_dir("/tmp/work").context("cannot list the work directory")? {
        fs::remove_file(left?.path()).context("cannot empty the work directory")?;
    }
    Ok(())
}

/// Runs a program and expects these events under a key.
fn run(
    daemon: &Daemon,
    name: &str,
    calls: &Program,
    key: &str,
    expected: &[&str],
) -> anyhow::Result<Vec<Event>> {
    let path = calls.install(name)?;
    let pid = daemon.run_user(&path, &[])?;
    let events = daemon.events(key, pid, expected.len())?;
    expect(&events, expected)?;
    for event in &events {
        event.check(B64, &path.to_string_lossy(), WORK, USER)?;
    }
    Ok(events)
}

fn successful_opens_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall)
        .call(nr::OPEN, args!["file", 0, 0])
        .call(
            nr::OPENAT,
            args![AT_FDCWD, "/tmp/work/../work/file", O_WRONLY, 0],
        )
        .call(
            nr::OPENAT,
            args![AT_FDCWD, "new", O_CREAT | O_WRONLY, 0o640],
        );
    let events = run(
        daemon,
        "opens",
        &calls,
        "opened",
        &[
            "open=3 NORMAL:file",
            "openat=4 NORMAL:/tmp/work/../work/file",
            "openat=5 PARENT:/tmp/work CREATE:new",
        ],
    )?;
    for (event, path) in events
        .iter()
        .zip(["/tmp/work/file", "/tmp/work/file", WORK])
    {
        let inode = fs::metadata(path)
            .with_context(|| format!("no {path}"))?
            .ino();
        let found = event.field("PATH", "inode");
        ensure!(
            found == inode.to_string(),
            "inode of {path} is {inode}, recorded {found}"
        );
    }
    Ok(())
}

fn failed_opens_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall)
        .call(nr::OPEN, args!["missing", 0, 0])
        .call(nr::OPENAT, args![AT_FDCWD, "/tmp/own/secret", 0, 0])
        .call(nr::OPENAT, args![77, "file", 0, 0]);
    run(
        daemon,
        "failing",
        &calls,
        "refused",
        &[
            "open=-2 UNKNOWN:missing",
            &format!(
                "openat=-13 {}:/tmp/own/secret",
                refused(daemon.sees_inside())
            ),
            "openat=-9 UNKNOWN:file",
        ],
    )?;
    Ok(())
}

/// The item for an object that exists and was refused, if the engine sees it or not.
const fn refused(is_seen: bool) -> &'static str {
    if is_seen { "NORMAL" } else { "UNKNOWN" }
}

fn name_changes_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    for name in ["a", "b"] {
        make_file(&Path::new(WORK).join(name), USER)?;
    }
    let calls = Program::new(Entry::Syscall)
        .call(nr::RENAME, args!["a", "/tmp/work/c"])
        .call(nr::RENAMEAT, args![AT_FDCWD, "c", AT_FDCWD, "d"])
        .call(nr::RENAMEAT2, args![AT_FDCWD, "d", AT_FDCWD, "e", 0])
        .call(nr::UNLINK, args!["e"])
        .call(nr::UNLINKAT, args![AT_FDCWD, "/tmp/work/b", 0])
        .call(nr::UNLINK, args!["missing"]);
    // The kernel copies the new name first until 7.0.
    let rename = if has_task_work() {
        "rename=0 PARENT:/tmp/work PARENT:/tmp/work/ DELETE:a CREATE:/tmp/work/c"
    } else {
        "rename=0 PARENT:/tmp/work/ PARENT:/tmp/work DELETE:a CREATE:/tmp/work/c"
    };
    run(
        daemon,
        "names",
        &calls,
        "names",
        &[
            rename,
            "renameat=0 PARENT:/tmp/work PARENT:/tmp/work DELETE:c CREATE:d",
            "renameat2=0 PARENT:/tmp/work PARENT:/tmp/work DELETE:d CREATE:e",
            "unlink=0 PARENT:/tmp/work DELETE:e",
            "unlinkat=0 PARENT:/tmp/work/ DELETE:/tmp/work/b",
            "unlink=-2 PARENT:/tmp/work",
        ],
    )?;
    Ok(())
}

fn mode_changes_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall)
        .call(nr::CHMOD, args!["file", 0o600])
        .call(nr::FCHMODAT, args![AT_FDCWD, "/tmp/work/file", 0o644, 0])
        .call(nr::OPEN, args!["file", 0, 0])
        .call(nr::FCHMOD, vec![Arg::Result, 0o600.into()])
        .call(nr::CHMOD, args!["/tmp/own/secret", 0o777]);
    run(
        daemon,
        "modes",
        &calls,
        "modes",
        &[
            "chmod=0 NORMAL:file",
            "fchmodat=0 NORMAL:/tmp/work/file",
            "fchmod=0 NORMAL:(null)",
            &format!("chmod=-1 {}:/tmp/own/secret", refused(daemon.sees_inside())),
        ],
    )?;
    Ok(())
}

fn execs_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall).call(nr::EXIT_GROUP, args![0]);
    let path = calls.install("starts")?;
    let pid = daemon.run_user(&path, &["one", "two words", "\"\n\u{fc}"])?;
    let events = daemon.events("tasks", pid, 2)?;
    expect(
        &events,
        &[
            "execve=0 (/tmp/programs/starts one two words \"\n\u{fc}) NORMAL:/tmp/programs/starts",
            "exit_group",
        ],
    )?;
    for event in &events {
        event.check(B64, &path.to_string_lossy(), WORK, USER)?;
    }
    let inode = fs::metadata(&path).context("no program")?.ino();
    let found = events
        .first()
        .map(|event| event.field("PATH", "inode"))
        .unwrap_or_default();
    ensure!(
        found == inode.to_string(),
        "inode of the program is {inode}, recorded {found}"
    );
    Ok(())
}

fn script_execs_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Path::new(PROGRAMS).join("script");
    fs::write(&path, "#!/bin/busybox sh\nexit 0\n").context("cannot write a script")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let pid = daemon.run_user(&path, &["word"])?;
    let events = daemon.events("tasks", pid, 2)?;
    expect(
        &events,
        &[
            "execve=0 (/bin/busybox sh /tmp/programs/script word) \
             NORMAL:/tmp/programs/script NORMAL:/bin/busybox",
            "exit_group",
        ],
    )?;
    for event in &events {
        ensure!(event.field("SYSCALL", "exe") == "/bin/busybox", "{event:?}");
        ensure!(event.field("SYSCALL", "comm") == "script", "{event:?}");
    }
    Ok(())
}

fn failed_execs_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let words = || Arg::Texts(&["x"]);
    let calls = Program::new(Entry::Syscall)
        .call(nr::EXECVE, vec!["missing".into(), words(), 0.into()])
        .call(nr::EXECVE, vec!["/tmp/work/file".into(), words(), 0.into()]);
    let path = calls.install("starter")?;
    let pid = daemon.run_user(&path, &[])?;
    let events = daemon.events("tasks", pid, 4)?;
    expect(
        &events,
        &[
            "execve=0 (/tmp/programs/starter) NORMAL:/tmp/programs/starter",
            "execve=-2 UNKNOWN:missing",
            &format!("execve=-13 {}:/tmp/work/file", refused(daemon.sees_all())),
            "exit",
        ],
    )?;
    for event in &events {
        event.check(B64, &path.to_string_lossy(), WORK, USER)?;
    }
    Ok(())
}

fn other_users_are_not_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Program::new(Entry::Syscall)
        .call(nr::OPEN, args!["file", 0, 0])
        .install("both")?;
    let stranger = daemon.run(STRANGER, &path, &[])?;
    let user = daemon.run_user(&path, &[])?;
    // Events are written in order: once the user's events are there, no event of the other user can follow.
    daemon.events("tasks", user, 2)?;
    expect(&daemon.logged(stranger)?, &[])
}

fn watched_directory_behind_a_link_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall)
        .call(nr::OPEN, args!["/tmp/watched/below/file", 0, 0])
        .call(nr::OPEN, args!["link/below/file", O_WRONLY, 0])
        .call(nr::OPEN, args!["file", 0, 0])
        .call(
            nr::OPENAT,
            args![AT_FDCWD, "link/new", O_CREAT | O_WRONLY, 0o600],
        )
        .call(nr::CHMOD, args!["/tmp/watched/below", 0o755])
        .call(nr::UNLINK, args!["/tmp/watched/new"]);
    let path = calls.install("watched")?;
    // No other rule names this user.
    let pid = daemon.run(0, &path, &[])?;
    let events = daemon.events("watched", pid, 4)?;
    expect(
        &events,
        &[
            "open=4 NORMAL:link/below/file",
            "openat=6 PARENT:link/ CREATE:link/new",
            "chmod=0 NORMAL:/tmp/watched/below",
            "unlink=0 PARENT:/tmp/watched/ DELETE:/tmp/watched/new",
        ],
    )?;
    for event in &events {
        event.check(B64, &path.to_string_lossy(), WORK, 0)?;
    }
    Ok(())
}

/// Such a watch has no inode, only the name: names shorter than a word, of whole words, and of both use different
/// code of the hash.
fn watch_of_a_missing_name_records_its_creation(daemon: &Daemon) -> anyhow::Result<()> {
    let open = |program: Program, name: &'static str| {
        program.call(nr::OPEN, args![name, O_CREAT | O_WRONLY, 0o600])
    };
    let mut calls = Program::new(Entry::Syscall);
    for name in [
        "/tmp/exactly8/sixteen_letters_",
        "/tmp/exactly8/sixteen_letters",
        "/tmp/exactly8/eleven_more",
        "/tmp/exactly8/eleven_more_",
    ] {
        calls = open(open(calls, name), name);
    }
    let path = calls.install("awaited")?;
    let pid = daemon.run(0, &path, &[])?;
    let events = daemon.events("awaited", pid, 4)?;
    expect(
        &events,
        &[
            "open=3 PARENT:/tmp/exactly8/ CREATE:/tmp/exactly8/sixteen_letters_",
            "open=4 NORMAL:/tmp/exactly8/sixteen_letters_",
            "open=7 PARENT:/tmp/exactly8/ CREATE:/tmp/exactly8/eleven_more",
            "open=8 NORMAL:/tmp/exactly8/eleven_more",
        ],
    )
}

fn many_calls_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let calls = Program::new(Entry::Syscall)
        .call(nr::OPEN, args!["burst", 0, 0])
        .call(nr::CLOSE, vec![Arg::Result])
        .rounds(5000);
    let path = calls.install("burst")?;
    let pid = daemon.run_user(&path, &[])?;
    let events = support::wait::wait_for("the events of all calls", || {
        let events = daemon.logged(pid)?;
        Ok((events.len() >= 10_002).then_some(events))
    })?;
    let count = |summary: &str| {
        events
            .iter()
            .filter(|event| event.summary() == summary)
            .count()
    };
    let (opens, closes) = (count("open=3 NORMAL:burst"), count("close=0"));
    ensure!(
        (opens, closes, events.len()) == (5000, 5000, 10_002),
        "{opens} opens and {closes} closes among {} events",
        events.len()
    );
    Ok(())
}

/// The writer has ended.
fn after(log: &Path) -> anyhow::Result<()> {
    let before = fs::metadata(log).context("no log")?.len();
    let path = Path::new(PROGRAMS).join("starts");
    std::process::Command::new(path)
        .status()
        .context("cannot start a program")?;
    let now = fs::metadata(log).context("no log")?.len();
    ensure!(
        now == before,
        "the log has grown from {before} to {now} bytes"
    );
    Ok(())
}
