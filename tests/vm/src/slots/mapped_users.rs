//! Users of a user namespace that root has made, as of a container: their user numbers are far above those of the
//! host's users, and their blocked threads take no slot from them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, setgid, setuid};
use support::wait::wait_for;

use super::{Blocked, Scale, block, expect_removed, prepare, remove, watched_files};
use crate::daemon::Daemon;
use crate::machine::{STRANGER, THIS_PROGRAM, USER, WORK, make_directory};
use crate::suite::{Rules, Session};

/// No event is lost.
pub(crate) const SESSION: Session = Session {
    name: "slots_mapped",
    engine: "fentry",
    prepare: || {
        prepare()?;
        make_directory(Path::new(SOCKETS), 0)?;
        fs::set_permissions(SOCKETS, fs::Permissions::from_mode(0o777))?;
        Ok(())
    },
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S connect -F uid=7777 -k connects\n\
         -w /tmp/slots/watched -p wa -k watched\n",
    ),
    tests: &[(
        "same_number_inside_takes_no_slot",
        same_number_inside_takes_no_slot,
    )],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The directory of the sockets of users inside.
const SOCKETS: &str = "/tmp/slots_mapped";
/// Users inside start at this number of the host.
const MAP: &str = "0 524288 65536";

/// Blocks threads as a user inside, `THREADS:UID`, once root has written the maps.
///
/// # Errors
/// It cannot become that user, or the threads cannot start.
pub(super) fn run_task(argument: &str) -> anyhow::Result<()> {
    let (threads, uid) = argument.split_once(':').context("no user")?;
    unshare(CloneFlags::CLONE_NEWUSER).context("cannot make a user namespace")?;
    wait_for("the maps of users", || {
        let is_written = |map| -> anyhow::Result<bool> { Ok(!fs::read_to_string(map)?.is_empty()) };
        let both = is_written("/proc/self/uid_map")? && is_written("/proc/self/gid_map")?;
        Ok(both.then_some(()))
    })?;
    let number = uid.parse()?;
    setgid(Gid::from_raw(number))?;
    setuid(Uid::from_raw(number))?;
    block(threads.parse()?, &format!("{SOCKETS}/{uid}"))
}

/// Starts blocked threads of a user inside.
fn start(uid: u32) -> anyhow::Result<Blocked> {
    let _absent = fs::remove_file(format!("{SOCKETS}/{uid}"));
    let threads = Scale::of_machine()?.threads;
    let child = Command::new(THIS_PROGRAM)
        .args(["mapped", &format!("{threads}:{uid}")])
        .current_dir(WORK)
        .spawn()
        .context("cannot start the threads")?;
    let mut blocked = Blocked(child);
    let process = Path::new("/proc").join(blocked.0.id().to_string());
    let own = fs::read_link("/proc/self/ns/user")?;
    wait_for("the user namespace", || {
        let ended = blocked.0.try_wait()?;
        ensure!(ended.is_none(), "the threads ended: {ended:?}");
        Ok((fs::read_link(process.join("ns/user"))? != own).then_some(()))
    })?;
    for map in ["uid_map", "gid_map"] {
        fs::write(process.join(map), MAP).with_context(|| format!("cannot write {map}"))?;
    }
    blocked.wait(threads)?;
    let status = fs::read_to_string(process.join("status"))?;
    let outside = format!("Uid:\t{}\t", 524_288 + uid);
    ensure!(status.contains(&outside), "not as {outside}");
    Ok(blocked)
}

/// All users of the host have all their events while the threads are blocked.
fn nothing_is_lost(daemon: &Daemon, owner: &str) -> anyhow::Result<()> {
    let mut removed = Vec::new();
    for uid in [USER, STRANGER, 0] {
        let files = watched_files(&format!("{owner}-{uid}"), 3)?;
        removed.push((uid, remove(uid, &files)?, files));
    }
    let mut missing = Vec::new();
    for (uid, pid, files) in &removed {
        if let Err(error) = expect_removed(daemon, *pid, files) {
            missing.push(format!("uid {uid}: {error:#}"));
        }
    }
    ensure!(missing.is_empty(), "events missing of {missing:?}");
    Ok(())
}

/// Threads of the user inside with the number of a host's user take no slot from that user, nor from others.
fn same_number_inside_takes_no_slot(daemon: &Daemon) -> anyhow::Result<()> {
    nothing_is_lost(daemon, "before")?;
    let blocked = start(USER)?;
    nothing_is_lost(daemon, "same")?;
    drop(blocked);
    nothing_is_lost(daemon, "after")
}
