//! Syscalls that find one object and act on another: the kernel looks a name up again when a file system answers with
//! `ESTALE`, and asks an overlay's directories for attributes on the way to a file. Records and rules must go by the
//! object that the kernel acted on last.

pub(crate) mod opens;
mod stale_server;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use anyhow::{Context as _, ensure};
use support::event::{Event, show};

use crate::daemon::Daemon;
use crate::deny::set_xattr;
use crate::differential::steps::CWD;
use crate::filesystems::{LOAD_MODULES, shell};
use crate::machine::{STRANGER, USER, make_directory, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};
use stale_server::{StaleServer, Targets, is_of_server};

/// A rule for another user comes before the watches.
pub(crate) const SESSION: Session = Session {
    name: "retried",
    engine: "fentry",
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S chmod,truncate,chown,linkat,getxattr,openat -F uid=1002 -k other\n\
         -w /tmp/retried/watched/secret -p wa -k watched\n\
         -w /tmp/retried/watched/closed -p wa -k watched\n\
         -w /tmp/retried/watched/read -p r -k read\n",
    ),
    tests: &[
        ("chmod_hits_the_watch", |daemon| watched(daemon, &CHMOD)),
        ("truncate_hits_the_watch", |daemon| {
            watched(daemon, &TRUNCATE)
        }),
        ("chown_hits_the_watch", |daemon| watched(daemon, &CHOWN)),
        ("linkat_hits_the_watch", |daemon| watched(daemon, &LINKAT)),
        ("openat_hits_the_watch", |daemon| watched(daemon, &OPENAT)),
        ("refused_openat_hits_the_watch", |daemon| {
            watched(daemon, &REFUSED)
        }),
        ("chmod_record_names_no_other_object", |daemon| {
            truthful(daemon, &CHMOD)
        }),
        ("truncate_record_names_no_other_object", |daemon| {
            truthful(daemon, &TRUNCATE)
        }),
        ("chown_record_names_no_other_object", |daemon| {
            truthful(daemon, &CHOWN)
        }),
        ("linkat_record_names_no_other_object", |daemon| {
            truthful(daemon, &LINKAT)
        }),
        ("openat_record_names_no_other_object", |daemon| {
            truthful(daemon, &OPENAT)
        }),
        ("refused_openat_record_names_no_other_object", |daemon| {
            truthful(daemon, &REFUSED)
        }),
        (
            "getxattr_through_an_overlay_hits_the_watch",
            getxattr_through_an_overlay_hits_the_watch,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// A rule suppresses the events of the directory that the kernel finds first.
pub(crate) const SESSION_NEVER: Session = Session {
    name: "retried_never",
    rules: Rules::Text(
        "-a never,exit -F arch=b64 -S unlink,unlinkat,rename,renameat,renameat2,chmod,openat -F dir=/tmp/retried/quiet\n\
         -w /tmp/retried/watched -p wa -k watched\n",
    ),
    tests: &[
        ("unlink_is_not_suppressed", |daemon| {
            watched(daemon, &UNLINK)
        }),
        ("rename_is_not_suppressed", |daemon| {
            watched(daemon, &RENAME)
        }),
        ("chmod_is_not_suppressed", |daemon| {
            watched(daemon, &CHMOD_QUIET)
        }),
        ("refused_openat_is_not_suppressed", |daemon| {
            watched(daemon, &REFUSED_QUIET)
        }),
    ],
    ..SESSION
};

const SECRET: &str = "/tmp/retried/watched/secret";
/// A file of root in the watched directory, whose mode refuses the users.
const CLOSED: &str = "/tmp/retried/watched/closed";
/// A file in the watched directory.
const NAME: &str = "/tmp/retried/watched/name";
const READ: &str = "/tmp/retried/watched/read";
/// An extended attribute without bytes.
const EMPTY: &str = "security.empty";
/// A directory of the user, and names that syscalls make there.
const OWN: &str = "/tmp/retried/own";
const TAKEN: &str = "/tmp/retried/own/taken";
const STOLEN: &str = "/tmp/retried/own/stolen";
/// Where the server is mounted.
const MOUNT: &str = "/tmp/retried/own/mount";
/// Where it is mounted below the directory of the `never` rule.
const QUIET: &str = "/tmp/retried/quiet/mount";

mod nr {
    pub(super) const WRITE: u32 = 1;
    pub(super) const EXECVE: u32 = 59;
    pub(super) const TRUNCATE: u32 = 76;
    pub(super) const RENAME: u32 = 82;
    pub(super) const UNLINK: u32 = 87;
    pub(super) const CHMOD: u32 = 90;
    pub(super) const CHOWN: u32 = 92;
    pub(super) const GETXATTR: u32 = 191;
    pub(super) const EXIT_GROUP: u32 = 231;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const LINKAT: u32 = 265;
}

/// A syscall on names that the server serves.
struct Case {
    call: &'static str,
    program: fn(uid: u32) -> Program,
    /// Where the names are.
    mount: &'static str,
    targets: Targets,
    /// The object that the kernel acts on in the end.
    object: &'static str,
    /// Whether it did.
    is_done: fn() -> anyhow::Result<bool>,
}

const CHMOD: Case = Case {
    call: "chmod",
    program: |_uid| one(nr::CHMOD, args!["/tmp/retried/own/mount/file", 0o640]),
    mount: MOUNT,
    targets: Targets {
        file: SECRET,
        from: "/tmp/retried/watched",
        to: OWN,
    },
    object: SECRET,
    is_done: || Ok(fs::metadata(SECRET)?.mode() & 0o7777 == 0o640),
};

const TRUNCATE: Case = Case {
    call: "truncate",
    program: |_uid| one(nr::TRUNCATE, args!["/tmp/retried/own/mount/file", 3]),
    is_done: || Ok(fs::metadata(SECRET)?.len() == 3),
    ..CHMOD
};

/// It changes no owner, and takes the set-user-ID bit away.
const CHOWN: Case = Case {
    call: "chown",
    program: |uid| {
        let id = || Arg::Number(uid.into());
        one(nr::CHOWN, args!["/tmp/retried/own/mount/file", id(), id()])
    },
    is_done: || Ok(fs::metadata(SECRET)?.mode() & 0o4000 == 0),
    ..CHMOD
};

const LINKAT: Case = Case {
    call: "linkat",
    program: |_uid| {
        let (cwd, follow) = (-100, 0x400);
        let (file, link) = (
            "/tmp/retried/own/mount/file",
            "/tmp/retried/own/mount/to/taken",
        );
        one(nr::LINKAT, args![cwd, file, cwd, link, follow])
    },
    is_done: || Ok(Path::new(TAKEN).exists()),
    ..CHMOD
};

/// Security modules are asked about the first file too, before its file system is.
const OPENAT: Case = Case {
    call: "openat",
    program: |_uid| {
        const O_WRONLY: i64 = 1;
        let file = "/tmp/retried/own/mount/opened";
        one(nr::OPENAT, args![CWD, file, O_WRONLY]).call(nr::WRITE, args![Arg::Result, "lost\n", 5])
    },
    is_done: || Ok(fs::read(SECRET)? == b"lost\n"),
    ..CHMOD
};

/// The file that the name leads to in the end refuses the user.
const REFUSED: Case = Case {
    call: "openat",
    program: |_uid| one(nr::OPENAT, args![CWD, "/tmp/retried/own/mount/opened", 1]),
    targets: Targets {
        file: CLOSED,
        ..CHMOD.targets
    },
    object: CLOSED,
    is_done: || Ok(fs::read(CLOSED)? == b"x\n"),
    ..CHMOD
};

const REFUSED_QUIET: Case = Case {
    program: |_uid| one(nr::OPENAT, args![CWD, "/tmp/retried/quiet/mount/opened", 1]),
    mount: QUIET,
    ..REFUSED
};

const UNLINK: Case = Case {
    call: "unlink",
    program: |_uid| one(nr::UNLINK, args!["/tmp/retried/quiet/mount/from/name"]),
    mount: QUIET,
    object: NAME,
    is_done: || Ok(!Path::new(NAME).exists()),
    ..CHMOD
};

const RENAME: Case = Case {
    call: "rename",
    program: |_uid| {
        let (from, to) = (
            "/tmp/retried/quiet/mount/from/name",
            "/tmp/retried/quiet/mount/to/stolen",
        );
        one(nr::RENAME, args![from, to])
    },
    is_done: || Ok(Path::new(STOLEN).exists()),
    ..UNLINK
};

const CHMOD_QUIET: Case = Case {
    program: |_uid| one(nr::CHMOD, args!["/tmp/retried/quiet/mount/file", 0o640]),
    mount: QUIET,
    ..CHMOD
};

fn one(number: u32, args: Vec<Arg>) -> Program {
    Program::new(Entry::Syscall).call(number, args)
}

fn prepare() -> anyhow::Result<()> {
    shell(LOAD_MODULES)?;
    for directory in ["", "watched", "own", "quiet"] {
        make_directory(&Path::new("/tmp/retried").join(directory), USER)?;
    }
    // Both users act here.
    fs::set_permissions(OWN, fs::Permissions::from_mode(0o777))?;
    make_file(Path::new(READ), USER)?;
    make_file(Path::new(CLOSED), 0)?;
    fs::set_permissions(CLOSED, fs::Permissions::from_mode(0o600))?;
    reset(USER)
}

/// Makes the objects of a user as they were before any syscall.
fn reset(uid: u32) -> anyhow::Result<()> {
    for made in [TAKEN, STOLEN] {
        let _absent = fs::remove_file(made);
    }
    for file in [SECRET, NAME] {
        fs::write(file, "text\n")?;
        chown(file, Some(uid), Some(uid))?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o4755))?;
    }
    Ok(())
}

/// Runs the syscall as a user, then a plain one that must have an event with `key`. Returns the events of the first,
/// and the inode number of its object.
fn run(daemon: &Daemon, case: &Case, uid: u32, key: &str) -> anyhow::Result<(Vec<Event>, String)> {
    reset(uid)?;
    let inode = fs::metadata(case.object)?.ino().to_string();
    let server = StaleServer::mount(Path::new(case.mount), uid, case.targets)?;
    let program = (case.program)(uid).install(case.call)?;
    let pid = daemon.run(uid, &program, &[])?;
    let stale = server.end()?;
    ensure!(stale == 1, "{stale} requests were answered with ESTALE");
    let is_done = (case.is_done)()?;
    ensure!(is_done, "the kernel did not retry {}", case.call);
    let plain = one(nr::CHMOD, args![SECRET, 0o604]).install("plain")?;
    let plain = daemon.run(uid, &plain, &[])?;
    daemon.events(key, plain, 1).context("a plain chmod")?;
    Ok((daemon.logged(pid)?, inode))
}

/// Fails unless there is one event, of this syscall, with this key and this object.
fn expect(events: &[Event], call: &str, key: &str, inode: &str) -> anyhow::Result<()> {
    let [event] = events else {
        anyhow::bail!("{} events of one {call}: {}", events.len(), show(events));
    };
    let summary = event.summary();
    ensure!(summary.starts_with(call), "{summary} for {call}");
    ensure!(event.field("SYSCALL", "key") == key, "{summary}: {event}");
    let inodes = event.fields("PATH", "inode");
    let found_first = inodes.iter().find(|inode| is_of_server(inode));
    ensure!(
        found_first.is_none(),
        "{call} acted on inode {inode}, the record names what it found first, {inodes:?}: {summary}"
    );
    ensure!(
        inodes.iter().any(|found| found == inode),
        "{call} acted on inode {inode}, the record has {inodes:?}: {summary}"
    );
    Ok(())
}

/// A syscall that the kernel retries hits the watch on the object that it acts on in the end.
fn watched(daemon: &Daemon, case: &Case) -> anyhow::Result<()> {
    let (events, inode) = run(daemon, case, USER, "watched")?;
    expect(&events, case.call, "watched", &inode)
}

/// The record by a rule for the user has the object that the kernel acted on in the end.
fn truthful(daemon: &Daemon, case: &Case) -> anyhow::Result<()> {
    let (events, inode) = run(daemon, case, STRANGER, "other")?;
    expect(&events, case.call, "other", &inode)
}

/// The kernel reads attributes of the overlay's own directories first, and the event has the watched file.
fn getxattr_through_an_overlay_hits_the_watch(daemon: &Daemon) -> anyhow::Result<()> {
    for made in ["lower/dir", "upper/dir", "work", "overlay"] {
        fs::create_dir_all(Path::new("/tmp/retried").join(made))?;
    }
    symlink(READ, "/tmp/retried/upper/dir/link")?;
    set_xattr(Path::new(READ), EMPTY, Arg::Buffer, 0)?;
    shell(
        "cd /tmp/retried; mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay overlay",
    )?;
    // The exit status is the size of the value, or the error.
    let through = |path| {
        one(nr::GETXATTR, args![path, EMPTY, Arg::Buffer, 64])
            .call(nr::EXIT_GROUP, vec![Arg::Result])
    };
    let ran = || -> anyhow::Result<_> {
        let program = through("/tmp/retried/overlay/dir/link").install("overlaid")?;
        let pid = daemon.run_user(&program, &[])?;
        let plain = daemon.run_user(&through(READ).install("plain")?, &[])?;
        daemon
            .events("read", plain, 1)
            .context("a plain getxattr")?;
        daemon.logged(pid)
    };
    let ran = ran();
    shell("umount /tmp/retried/overlay")?;
    let inode = fs::metadata(READ)?.ino().to_string();
    expect(&ran?, "getxattr", "read", &inode)
}
