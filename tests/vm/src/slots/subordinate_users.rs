//! A user with subordinate user numbers (`/etc/subuid`) runs processes under them: as root of a user namespace he makes
//! set-uid files that they own. Their blocked threads take no slot from other users.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;

use super::{Blocked, LOST, Scale, block, expect_removed, prepare, remove, watched_files};
use crate::daemon::{Daemon, LONGEST_END};
use crate::machine::{STRANGER, THIS_PROGRAM, USER, WORK, make_directory};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// Events of the user's own are lost, as he holds more than he may.
pub(crate) const SESSION: Session = Session {
    name: "slots_subordinate",
    engine: "fentry",
    prepare: || {
        prepare()?;
        fs::write("/etc/subuid", "1001:100000:65536\n").context("cannot write /etc/subuid")?;
        make_directory(Path::new(SOCKETS), USER)?;
        fs::set_permissions(SOCKETS, fs::Permissions::from_mode(0o777))?;
        Ok(())
    },
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S connect -F uid>=100000 -k connects\n\
         -w /tmp/slots/watched -p wa -k watched\n",
    ),
    tests: &[(
        "blocked_threads_take_no_slot_from_others",
        blocked_threads_take_no_slot_from_others,
    )],
    stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The directory of the sockets.
const SOCKETS: &str = "/tmp/slots_subordinate";
/// Some of the subordinate numbers: without a limit for the user, they can hold all slots but those for root.
const NUMBERS: [u32; 4] = [100_000, 100_001, 131_072, 165_535];

mod nr {
    pub(super) const EXECVE: u32 = 59;
    pub(super) const SETRESUID: u32 = 117;
}

/// Blocks threads, `THREADS:UID`.
///
/// # Errors
/// The threads cannot start.
pub(super) fn run_task(argument: &str) -> anyhow::Result<()> {
    let (threads, uid) = argument.split_once(':').context("no user")?;
    block(threads.parse()?, &format!("{SOCKETS}/{uid}"))
}

/// The user starts blocked threads by a set-uid program of a subordinate number.
fn start(uid: u32) -> anyhow::Result<Blocked> {
    let threads = Scale::of_machine()?.threads;
    let word = |text: &str| Arg::Bytes([text.as_bytes(), b"\0"].concat());
    let task = format!("{threads}:{uid}");
    let words = vec![word("init"), word("subordinate"), word(&task), 0.into()];
    let number = || Arg::Number(uid.into());
    let path = Program::new(Entry::Syscall)
        .call(nr::SETRESUID, vec![number(), number(), number()])
        .call(nr::EXECVE, args![THIS_PROGRAM, Arg::Words(words), 0])
        .install(&format!("as_{uid}"))?;
    chown(&path, Some(uid), None)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755))?;
    let mut command = Command::new(&path);
    let child = command.current_dir(WORK).uid(USER).gid(USER).spawn();
    let mut blocked = Blocked(child.context("cannot start the threads")?);
    blocked.wait(threads)?;
    let status = fs::read_to_string(format!("/proc/{}/status", blocked.0.id()))?;
    ensure!(
        status.contains(&format!("Uid:\t{uid}\t{uid}\t")),
        "not as user {uid}: {status}"
    );
    Ok(blocked)
}

/// Another user and root have all their events.
fn nothing_is_lost(daemon: &Daemon, owner: &str) -> anyhow::Result<()> {
    for uid in [STRANGER, 0] {
        let files = watched_files(&format!("{owner}-{uid}"), 3)?;
        let pid = remove(uid, &files)?;
        expect_removed(daemon, pid, &files).with_context(|| format!("{owner}: uid {uid}"))?;
    }
    Ok(())
}

fn blocked_threads_take_no_slot_from_others(daemon: &Daemon) -> anyhow::Result<()> {
    nothing_is_lost(daemon, "before")?;
    let blocked: Vec<Blocked> = NUMBERS.into_iter().map(start).collect::<Result<_, _>>()?;
    nothing_is_lost(daemon, "blocked")?;
    drop(blocked);
    nothing_is_lost(daemon, "after")
}

/// Ends the daemon, which has counted all that was lost as calls without a slot.
fn stop(daemon: &Daemon) -> anyhow::Result<()> {
    let account = daemon.end(Signal::SIGTERM, LONGEST_END)?;
    let (line, lost) = (account.line, account.summary.lost);
    let expected = format!("(no state slot {lost})");
    ensure!(
        account.status.code() == Some(LOST) && line.contains(&expected),
        "{}: {line}",
        account.status
    );
    Ok(())
}
