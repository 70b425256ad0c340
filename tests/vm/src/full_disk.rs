//! A full disk: only a file whose removal makes room is removed, on file systems that free space at once and later.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use rustix::fs::{FallocateFlags, fallocate};
use support::daemon::{self, Account};

use crate::daemon::{Daemon, LONGEST_END, LONGEST_START, TOLLGATE};
use crate::filesystems::{LOAD_MODULES, shell};
use crate::machine::{PROGRAMS, USER};
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests. They do not use the session's daemon.
pub(crate) const SESSION: Session = Session {
    name: "full_disk",
    engine: "tracepoint",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(MOUNT)?;
        Program::new(Entry::Syscall)
            .call(RMDIR, args![MISSING])
            .rounds(ROUNDS)
            .install("fill")
            .map(|_path| ())
    },
    rules: Rules::Text("-a always,exit -F arch=b64 -S acct -F uid=1001 -k unused\n"),
    tests: &[
        ("room_is_made_on_tmpfs", |daemon| {
            room_is_made(daemon, Path::new("/tmp/full/tmpfs"))
        }),
        ("room_is_made_on_btrfs", |daemon| {
            room_is_made(daemon, Path::new("/tmp/full/btrfs"))
        }),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const MOUNT: &str = "
mkdir -p /tmp/full/tmpfs /tmp/full/btrfs
mount -t tmpfs -o size=24m full /tmp/full/tmpfs
truncate -s 160M /tmp/full/disk
/usr/sbin/mkfs.btrfs -q /tmp/full/disk
mount -t btrfs -o loop /tmp/full/disk /tmp/full/btrfs
";

/// # Source
/// `arch/x86/entry/syscalls/syscall_64.tbl`, Linux 6.12.
const RMDIR: u32 = 84;
/// A name as long as those of logs that fill.
const MISSING: &str =
    "missing-missing-missing-missing-missing-missing-missing-missing-missing-missing-missing";
/// Their records take more than what is left free.
const ROUNDS: u32 = 400;
/// Size of an old log.
const OLD_BYTES: usize = 4 << 20;
/// What is left free at most.
const LEFT_BYTES: u64 = 64 << 10;

const CONF: &str = "log_format = RAW\n\
                    num_logs = 9\n\
                    max_log_file = 60\n\
                    max_log_file_action = ROTATE\n\
                    space_left = 2\n\
                    space_left_action = IGNORE\n\
                    admin_space_left = 1\n\
                    admin_space_left_action = IGNORE\n\
                    disk_full_action = ROTATE\n";

/// The oldest log is read by a program: the next one goes, and no other.
fn room_is_made(daemon: &Daemon, place: &Path) -> anyhow::Result<()> {
    let at = |name: &str| -> PathBuf { place.join("log").join(name) };
    fs::create_dir(place.join("log"))?;
    for number in 1..=3 {
        fs::write(at(&format!("audit.log.{number}")), vec![b'\n'; OLD_BYTES])?;
    }
    let reader = File::open(at("audit.log.3"))?;
    let log = start(place, &at("audit.log")).context("cannot start a daemon")?;
    fill(&place.join("ballast")).context("cannot fill the file system")?;
    daemon.run(USER, &Path::new(PROGRAMS).join("fill"), &[])?;
    let Account { line, summary, .. } = log.end(Signal::SIGTERM, LONGEST_END)?;
    let output = log.output();
    ensure!(
        summary.written == u64::from(ROUNDS) && summary.lost == 0,
        "{line}: {output:?}"
    );
    ensure!(
        log.has_printed("; removed the oldest file, `audit.log.2`"),
        "{output:?}"
    );
    let left = [1, 2, 3].map(|number| at(&format!("audit.log.{number}")).exists());
    ensure!(left == [true, false, true], "{left:?}: {output:?}");
    let text = fs::read_to_string(at("audit.log"))?;
    let recorded = text
        .lines()
        .filter(|line| line.starts_with("type=SYSCALL "));
    ensure!(recorded.count() == usize::try_from(ROUNDS)?, "{line}");
    drop(reader);
    Ok(())
}

fn start(place: &Path, log: &Path) -> anyhow::Result<daemon::Daemon> {
    let (rules, conf) = (place.with_extension("rules"), place.with_extension("conf"));
    let rule = format!("-a always,exit -F arch=b64 -S rmdir -F uid={USER} -k full\n");
    fs::write(&rules, rule)?;
    fs::write(&conf, CONF)?;
    let mut command = Command::new(TOLLGATE);
    command
        .args([
            "daemon",
            "--foreground",
            "--engine",
            "tracepoint",
            "--no-pins",
        ])
        .args(["--no-control", "--allow-loss"])
        .arg("--auditd-conf")
        .arg(conf)
        .arg("--rules")
        .arg(&rules)
        .arg("--log")
        .arg(log);
    daemon::Daemon::start(&mut command, &rules, log, LONGEST_START)
}

/// Leaves at most [`LEFT_BYTES`] free.
fn fill(ballast: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(ballast)?;
    let (mut at, mut step) = (0, 32 << 20);
    while step >= LEFT_BYTES {
        match fallocate(&file, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(rustix::io::Errno::NOSPC) => step /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
