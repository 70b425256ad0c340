//! Opens that fail after the kernel has found or created their file. Compared with the kernel's own audit.

pub(crate) mod exec_operations;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use support::event::{self, Event};

use crate::daemon::{Daemon, replace};
use crate::differential::kernel::KernelAudit;
use crate::filesystems::{LOAD_MODULES, shell};
use crate::half_seen::{LAST, events_of};
use crate::idle_threads::with_idle_threads;
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};
use crate::uring_ops::URING_OPS;

/// Each test loads its rules.
pub(crate) const SESSION: Session = Session {
    name: "failed_opens",
    engine: "fentry",
    prepare,
    rules: Rules::Text(LAST),
    tests: &[
        ("file_created_with_direct_flag_tmpfs", |daemon| {
            created(daemon, "tmpfs", "-w DIR -p wa -k created")
        }),
        ("file_created_with_direct_flag_ramfs", |daemon| {
            created(daemon, "ramfs", "-w DIR -p wa -k created")
        }),
        ("file_created_is_found_by_rule", |daemon| {
            let rule = "-a always,exit -F arch=b64 -S openat -F dir=DIR -F success=0 -k created";
            created(daemon, "ramfs", rule)
        }),
        ("file_leased_while_it_is_created_ext4", |daemon| {
            leased(daemon, "ext4")
        }),
        ("file_leased_while_it_is_created_tmpfs", |daemon| {
            leased(daemon, "tmpfs")
        }),
        ("idle_threads_hold_no_slot", idle_threads_hold_no_slot),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Makes file systems with `dropbox` and files of root, and `own` of a user with a link to `dropbox`.
fn prepare() -> anyhow::Result<()> {
    shell(LOAD_MODULES)?;
    shell(PREPARE)
}

const PREPARE: &str = "
for fs in ext4 tmpfs ramfs; do umount /tmp/failed_opens/$fs 2>/dev/null || true; done
rm -rf /tmp/failed_opens
mkdir -p /tmp/failed_opens/ext4 /tmp/failed_opens/tmpfs /tmp/failed_opens/ramfs
truncate -s 8M /tmp/failed_opens/disk
/usr/sbin/mke2fs -q -F -t ext4 /tmp/failed_opens/disk
mount -t ext4 -o loop /tmp/failed_opens/disk /tmp/failed_opens/ext4
mount -t tmpfs none /tmp/failed_opens/tmpfs
mount -t ramfs none /tmp/failed_opens/ramfs
for fs in ext4 tmpfs ramfs; do
    cd /tmp/failed_opens/$fs
    mkdir dropbox own
    for file in quiet tool text readable; do echo text > $file; done
    chmod 755 quiet text
    chmod 700 tool
    chmod 644 readable
    chmod 777 dropbox
    ln -s ../dropbox own/link
    chown 1001:1001 own
done
";

/// Syscall numbers of the 64-bit table.
mod nr {
    pub(super) const OPENAT: u32 = 257;
}

const AT_FDCWD: i64 = -100;
const O_RDWR: i64 = 2;
const O_CREAT: i64 = 0o100;
const O_DIRECT: i64 = 0o4_0000;

/// Summaries of the events with a key of a process and its children.
fn of_process(events: &[Event], pid: u32, key: &str) -> Vec<String> {
    let pid = pid.to_string();
    let of = |event: &&Event| {
        let is = |field| event.field("SYSCALL", field) == pid;
        (is("pid") || is("ppid")) && event.field("SYSCALL", "key") == key
    };
    events.iter().filter(of).map(Event::summary).collect()
}

/// What the daemon and the kernel's audit record with a key under these rules.
fn recorded(
    daemon: &Daemon,
    rules: &str,
    key: &str,
    run: &dyn Fn() -> anyhow::Result<u32>,
) -> anyhow::Result<[Vec<String>; 2]> {
    replace(daemon, &format!("{LAST}{rules}"))?;
    let pid = run()?;
    events_of(daemon, 0)?;
    let ours = of_process(&event::parse(&daemon.log_text()?)?, pid, key);
    replace(daemon, LAST)?;
    let file = Path::new("/tmp/failed_opens/rules");
    fs::write(file, rules).context("cannot write rules")?;
    let audit = KernelAudit::start(file)?;
    let pid = run();
    let log = audit.stop()?;
    Ok([ours, of_process(&event::parse(&log)?, pid?, key)])
}

/// Fails unless both have recorded the same calls with the same results and items.
fn agree([ours, kernel]: &[Vec<String>; 2]) -> anyhow::Result<()> {
    ensure!(!kernel.is_empty(), "the kernel recorded nothing");
    ensure!(ours == kernel, "recorded {ours:?}, the kernel {kernel:?}");
    Ok(())
}

/// A file that an open creates in a watched directory, by a link, before the file system refuses its flag.
fn created(daemon: &Daemon, file_system: &str, rule: &str) -> anyhow::Result<()> {
    let file = format!("/tmp/failed_opens/{file_system}/dropbox/created");
    let path = format!("/tmp/failed_opens/{file_system}/own/link/created\0");
    let rules = rule.replace("DIR", &format!("/tmp/failed_opens/{file_system}/dropbox")) + "\n";
    let flags = O_CREAT | O_RDWR | O_DIRECT;
    let program = Program::new(Entry::Syscall)
        .call(
            nr::OPENAT,
            args![AT_FDCWD, Arg::Bytes(path.into_bytes()), flags, 0o644],
        )
        .install("creates")?;
    let run = || {
        let _absent = fs::remove_file(&file);
        daemon.run_user(&program, &[])
    };
    let found = recorded(daemon, &rules, "created", &run)?;
    fs::remove_file(&file).context("the kernel created no file")?;
    agree(&found)
}

/// A file is created in a watched directory, by a link, and another process leases it before its open ends.
fn leased(daemon: &Daemon, file_system: &str) -> anyhow::Result<()> {
    let name = format!("/tmp/failed_opens/{file_system}/own/link/leased");
    let rules = format!(
        "-a always,exit -F arch=b64 -S openat -F dir=/tmp/failed_opens/{file_system}/dropbox -F exit=-EAGAIN -k leased\n"
    );
    let run = || daemon.run_user(Path::new(URING_OPS), &["leased", &name]);
    agree(&recorded(daemon, &rules, "leased", &run)?)
}

/// Threads that sleep after a refused open that no rule matches hold no memory.
fn idle_threads_hold_no_slot(daemon: &Daemon) -> anyhow::Result<()> {
    const FILE: &str = "/tmp/failed_opens/ext4/dropbox/removed";
    let rules = "-w /tmp/failed_opens/ext4/tool -p wa -k idle\n-w /tmp/failed_opens/ext4/dropbox -p wa -k idle\n";
    replace(daemon, &format!("{LAST}{rules}"))?;
    let found = with_idle_threads("/tmp/failed_opens/ext4/tool", || {
        shell(&format!("echo x > {FILE}"))?;
        let pid = daemon.run_user(Path::new("/bin/busybox"), &["rm", "-f", FILE])?;
        events_of(daemon, pid)
    });
    replace(daemon, LAST)?;
    let found = found?;
    ensure!(found.len() == 1, "{} events of a removal", found.len());
    Ok(())
}
