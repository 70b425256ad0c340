//! Names that lead the kernel past other objects than the one that the syscall is about: two names that are one string,
//! a link to a file in a closed directory, the layers of an overlay, and a directory in a watched one that is bound
//! elsewhere.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use support::event::Event;

use crate::daemon::{Daemon, calls, replace};
use crate::differential::kernel::KernelAudit;
use crate::filesystems::{LOAD_MODULES, shell};
use crate::half_seen::{LAST, events_of};
use crate::machine::{USER, start_waiting};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// Each test loads its rules.
pub(crate) const SESSION: Session = Session {
    name: "lookups",
    engine: "fentry",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(PREPARE)
    },
    rules: Rules::Text(LAST),
    tests: &[
        (
            "rename_with_one_pointer_is_recorded",
            rename_with_one_pointer_is_recorded,
        ),
        (
            "rename_with_one_pointer_is_recorded_with_audit_context",
            rename_with_one_pointer_is_recorded_with_audit_context,
        ),
        (
            "rename_with_one_pointer_is_recorded_under_never_task",
            rename_with_one_pointer_is_recorded_under_never_task,
        ),
        (
            "open_refused_behind_a_link_is_recorded",
            open_refused_behind_a_link_is_recorded,
        ),
        (
            "failed_getxattr_on_overlay_has_no_object",
            failed_getxattr_on_overlay_has_no_object,
        ),
        (
            "failed_getxattr_on_overlay_is_not_suppressed",
            failed_getxattr_on_overlay_is_not_suppressed,
        ),
        (
            "failed_getxattr_on_overlay_hits_no_watch",
            failed_getxattr_on_overlay_hits_no_watch,
        ),
        (
            "never_in_watched_directory_holds_in_bind_mount",
            never_in_watched_directory_holds_in_bind_mount,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const PREPARE: &str = "
umount /tmp/lookups/fs 2>/dev/null || true
rm -rf /tmp/lookups
mkdir -p /tmp/lookups/fs /tmp/lookups/overlay /tmp/lookups/bound
truncate -s 8M /tmp/lookups/disk
/usr/sbin/mke2fs -q -F -t ext4 /tmp/lookups/disk
mount -t ext4 -o loop /tmp/lookups/disk /tmp/lookups/fs
cd /tmp/lookups/fs
mkdir -p watched/quiet own links closed layers/lower/dir layers/upper/dir layers/work
for file in watched/file watched/quiet/file links/refused closed/file; do echo text > $file; done
ln -s /tmp/lookups/fs/closed/file links/link
chown -R 1001:1001 watched own
chown -h 1001:1001 links/link
chmod 600 links/refused
chmod 700 closed
";

/// Syscall numbers of the 64-bit table.
mod nr {
    pub(super) const READ: u32 = 0;
    pub(super) const GETXATTR: u32 = 191;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const RENAMEAT: u32 = 264;
}

const AT_FDCWD: i64 = -100;
const O_DIRECTORY: i64 = 0o20_0000;
const STDIN: i64 = 0;

const WATCHED: &str = "/tmp/lookups/fs/watched";
const OWN: &str = "/tmp/lookups/fs/own";

/// Runs a program of the user under these rules and [`LAST`]; returns its events.
fn run(daemon: &Daemon, rules: &str, program: &Program) -> anyhow::Result<Vec<Event>> {
    replace(daemon, &format!("{LAST}{rules}"))?;
    let pid = daemon.run_user(&program.install("looks_up")?, &[])?;
    let events = events_of(daemon, pid)?;
    replace(daemon, LAST)?;
    Ok(events)
}

/// Opens files for reading.
fn opens(files: &[&'static str]) -> Program {
    files
        .iter()
        .fold(Program::new(Entry::Syscall), |all, file| {
            all.call(nr::OPENAT, args![AT_FDCWD, *file, 0])
        })
}

/// Fails unless the events have these summaries and keys.
fn expect(events: &[Event], expected: &[(&str, &str)]) -> anyhow::Result<()> {
    let found: Vec<(String, String)> = events
        .iter()
        .map(|event| (event.summary(), event.field("SYSCALL", "key")))
        .collect();
    let expected: Vec<(String, String)> = expected
        .iter()
        .map(|(summary, key)| ((*summary).to_owned(), (*key).to_owned()))
        .collect();
    ensure!(found == expected, "{found:?} and not {expected:?}");
    Ok(())
}

/// A `renameat` from a watched directory to another one, with one string as both names. `start` runs the program.
fn rename_with_one_pointer(
    daemon: &Daemon,
    start: impl FnOnce(&Path) -> anyhow::Result<u32>,
) -> anyhow::Result<()> {
    let [from, to] = [WATCHED, OWN].map(|directory| Path::new(directory).join("moved"));
    let _absent = fs::remove_file(&to);
    fs::write(&from, "text\n").context("cannot make a file")?;
    // Of both directories and twice of the file.
    let mut inodes = Vec::new();
    for object in [Path::new(WATCHED), Path::new(OWN), &from, &from] {
        inodes.push(fs::metadata(object)?.ino().to_string());
    }
    inodes.sort();
    let name = || Arg::Shared("name", b"moved\0".to_vec());
    let program = Program::new(Entry::Syscall)
        .call(nr::OPENAT, args![AT_FDCWD, WATCHED, O_DIRECTORY])
        .save("from")
        .call(nr::OPENAT, args![AT_FDCWD, OWN, O_DIRECTORY])
        .save("to")
        .call(nr::READ, args![STDIN, Arg::Buffer, 1])
        .call(
            nr::RENAMEAT,
            args![Arg::Saved("from"), name(), Arg::Saved("to"), name()],
        )
        .install("renames")?;
    replace(daemon, &format!("{LAST}-w {WATCHED} -p wa -k watched\n"))?;
    let events = events_of(daemon, start(&program)?)?;
    replace(daemon, LAST)?;
    ensure!(to.exists(), "the file was not renamed");
    let renames: Vec<Event> = calls(&events, nr::RENAMEAT).into_iter().cloned().collect();
    // The kernel gives a directory the name of the working directory, too.
    let renamed = "renameat=0 PARENT:/tmp/work PARENT:/tmp/work DELETE:moved CREATE:moved";
    expect(&renames, &[(renamed, "watched")])?;
    let mut found: Vec<String> = renames
        .iter()
        .flat_map(|event| event.fields("PATH", "inode"))
        .collect();
    // The compiler of the kernel chose which name it reads first.
    found.sort();
    ensure!(found == inodes, "inodes {found:?} and not {inodes:?}");
    Ok(())
}

/// Runs a program of the user that waits for a byte while the kernel's audit is enabled. The task has an audit context;
/// a script changes the kernel's audit before the task goes on.
fn run_with_audit_context(daemon: &Daemon, program: &Path, script: &str) -> anyhow::Result<u32> {
    let audit = KernelAudit::start(daemon.rules())?;
    let run = || -> anyhow::Result<u32> {
        let mut child = start_waiting(program, USER)?;
        shell(script)?;
        let mut input = child.stdin.take().context("no standard input")?;
        input.write_all(b"x").context("cannot write to a program")?;
        let status = child.wait().context("cannot wait for a program")?;
        ensure!(status.success(), "a program ended with {status}");
        Ok(child.id())
    };
    let ran = run();
    audit.stop()?;
    ran
}

fn rename_with_one_pointer_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    rename_with_one_pointer(daemon, |program| daemon.run_user(program, &[]))
}

/// In a task with an audit context, the kernel copies a string once for both names.
fn rename_with_one_pointer_is_recorded_with_audit_context(daemon: &Daemon) -> anyhow::Result<()> {
    rename_with_one_pointer(daemon, |program| {
        run_with_audit_context(daemon, program, "true")
    })
}

/// As on a machine with the boot option `audit=1`, where a task is older than the rule that spares later ones an audit
/// context.
fn rename_with_one_pointer_is_recorded_under_never_task(daemon: &Daemon) -> anyhow::Result<()> {
    let never_task = "/usr/sbin/auditctl -D > /dev/null; /usr/sbin/auditctl -a never,task";
    rename_with_one_pointer(daemon, |program| {
        run_with_audit_context(daemon, program, never_task)
    })
}

/// A link of the user in the directory of a `never` rule hides nothing of the directory that it leads to.
fn open_refused_behind_a_link_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let rules = "-a never,exit -F arch=b64 -S openat -F dir=/tmp/lookups/fs/links\n\
                 -a always,exit -F arch=b64 -S openat -F exit=-EACCES -F uid=1001 -k denied\n";
    let files = [
        "/tmp/lookups/fs/links/link",
        "/tmp/lookups/fs/closed/file",
        "/tmp/lookups/fs/links/refused",
    ];
    let events = run(daemon, rules, &opens(&files))?;
    let link = ("openat=-13 UNKNOWN:/tmp/lookups/fs/links/link", "denied");
    let closed = ("openat=-13 UNKNOWN:/tmp/lookups/fs/closed/file", "denied");
    expect(&events, &[link, closed]) // the last one is suppressed
}

/// Two calls: of a missing file below a directory of an overlay, whose attributes overlayfs reads in the upper layer on
/// the way, and of that directory in the upper layer itself. `rule` comes before one for the user.
fn getxattr_on_overlay(daemon: &Daemon, rule: &str) -> anyhow::Result<Vec<Event>> {
    const PATHS: [&str; 2] = [
        "/tmp/lookups/overlay/dir/missing",
        "/tmp/lookups/fs/layers/upper/dir",
    ];
    let program = PATHS
        .iter()
        .fold(Program::new(Entry::Syscall), |all, path| {
            all.call(nr::GETXATTR, args![*path, "user.a", Arg::Buffer, 64])
        });
    let rules = format!("{rule}-a always,exit -F arch=b64 -S getxattr -F uid=1001 -k attributes\n");
    // Nothing has looked anything up in the new mount.
    shell(
        "cd /tmp/lookups/fs/layers
         mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay /tmp/lookups/overlay",
    )?;
    let events = run(daemon, &rules, &program);
    shell("umount /tmp/lookups/overlay")?;
    events
}

/// The event of the first of these calls.
const FAILED: (&str, &str) = (
    "getxattr=-2 UNKNOWN:/tmp/lookups/overlay/dir/missing",
    "attributes",
);
const OF_LAYER: &str = "getxattr=-61 NORMAL:/tmp/lookups/fs/layers/upper/dir";

fn failed_getxattr_on_overlay_has_no_object(daemon: &Daemon) -> anyhow::Result<()> {
    let events = getxattr_on_overlay(daemon, "")?;
    expect(&events, &[FAILED, (OF_LAYER, "attributes")])?;
    let failed = events.first().context("no event")?;
    let inodes = failed.fields("PATH", "inode");
    ensure!(inodes.is_empty(), "inodes of no object: {inodes:?}");
    Ok(())
}

/// A `never` rule about the layers suppresses no event of the overlay.
fn failed_getxattr_on_overlay_is_not_suppressed(daemon: &Daemon) -> anyhow::Result<()> {
    let rule = "-a never,exit -F arch=b64 -S getxattr -F dir=/tmp/lookups/fs/layers\n";
    expect(&getxattr_on_overlay(daemon, rule)?, &[FAILED])
}

fn failed_getxattr_on_overlay_hits_no_watch(daemon: &Daemon) -> anyhow::Result<()> {
    let events = getxattr_on_overlay(daemon, "-w /tmp/lookups/fs/layers -p r -k layers\n")?;
    expect(&events, &[FAILED, (OF_LAYER, "layers")])
}

/// Opens a file in the directory of the `never` rule by both of its names, then a file of the watched directory.
fn never_in_watched_directory_holds_in_bind_mount(daemon: &Daemon) -> anyhow::Result<()> {
    let rules = "-a never,exit -F arch=b64 -S openat -F dir=/tmp/lookups/fs/watched/quiet\n\
                 -w /tmp/lookups/fs/watched -p rwa -k watched\n";
    let files = [
        "/tmp/lookups/bound/file",
        "/tmp/lookups/fs/watched/quiet/file",
        "/tmp/lookups/fs/watched/file",
    ];
    shell("mount -o bind /tmp/lookups/fs/watched/quiet /tmp/lookups/bound")?;
    let events = run(daemon, rules, &opens(&files));
    shell("umount /tmp/lookups/bound")?;
    expect(
        &events?,
        &[("openat=5 NORMAL:/tmp/lookups/fs/watched/file", "watched")],
    )
}
