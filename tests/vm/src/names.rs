//! Names that lead to another object than before, or in another mount namespace: bind mounts of an ordinary user
//! hide and forge nothing, and a watch follows a file that is replaced, but not its inode number.

mod open_how;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, ensure};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::filesystems::{LOAD_MODULES, events, shell};
use crate::machine::USER;
use crate::suite::{Rules, Session};

/// Hooks see names change.
pub(crate) const SESSION: Session = Session {
    name: "names",
    engine: "fentry",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(PREPARE)
    },
    rules: Rules::Text(
        "-a never,exit -F arch=b64 -S open,openat -F exe=/tmp/names/trusted/busybox\n\
         -a never,exit -F arch=b64 -S open,openat -F dir=/tmp/names/quiet\n\
         -a never,exit -F arch=b64 -S open,openat -F path=/tmp/names/fs/unheard\n\
         -a never,exit -F arch=b64 -S open,openat -F path=/tmp/names/fs/hush\n\
         -a never,exit -F arch=b64 -S open,openat,rename -F path=/tmp/names/fs/own/log\n\
         -w /tmp/names/fs/heard -p wa -k heard\n\
         -w /tmp/names/covered -p wa -k covered\n\
         -w /tmp/names/fs/loud -p wa -k loud\n\
         -w /tmp/names/fs/marker -p r -k marker\n\
         -w /tmp/names/fs/secret -p rwa -k secret\n\
         -w /tmp/names/fs/missing -p rwa -k missing\n\
         -w /tmp/names/fs/dir -p rwa -k dir\n\
         -w /tmp/names/fs/moved/file -p rwa -k moved\n\
         -w /tmp/names/fs/reused -p rwa -k reused\n\
         -w /tmp/names/fs/all -p rwa -k all\n\
         -w /tmp/names/fs/linked -p r -k linked\n\
         -w /tmp/names/fs/later -p w -k later\n\
         -w /tmp/names/private/file -p rwa -k private\n\
         -w /tmp/names/closed -p rwa -k closed\n\
         -w /tmp/names/emptied -p w -k emptied\n\
         -w /tmp/names/sealed -p r -k sealed\n\
         -w /tmp/names/program -p x -k program\n\
         -w /tmp/names/fs/outer/inner/file -p rwa -k inner\n\
         -w /tmp/names/fs/twice -p w -k twice_w\n\
         -w /tmp/names/fs/alias/twice -p r -k twice_r\n\
         -w /tmp/names/fs/again -p a -k twice_a\n\
         -a always,exit -F arch=b64 -S chdir,mkdir -F uid=1001 -k cwd\n",
    ),
    tests: &[
        ("bound_program_hides_nothing", bound_program_hides_nothing),
        (
            "bound_directory_hides_nothing",
            bound_directory_hides_nothing,
        ),
        ("bound_files_forge_nothing", bound_files_forge_nothing),
        (
            "names_count_in_namespaces_of_root",
            names_count_in_namespaces_of_root,
        ),
        (
            "directories_above_a_bind_mount",
            directories_above_a_bind_mount,
        ),
        ("file_created_in_a_namespace", file_created_in_a_namespace),
        ("replaced_file_is_followed", replaced_file_is_followed),
        ("directory_is_renamed", directory_is_renamed),
        (
            "known_directory_hides_nothing",
            known_directory_hides_nothing,
        ),
        ("depth_hides_nothing", depth_hides_nothing),
        (
            "reused_inode_number_is_not_watched",
            reused_inode_number_is_not_watched,
        ),
        (
            "reused_inode_number_is_recorded",
            reused_inode_number_is_recorded,
        ),
        ("cwd_is_that_of_the_begin", cwd_is_that_of_the_begin),
        ("refused_link_is_recorded", refused_link_is_recorded),
        (
            "watches_of_one_file_all_count",
            watches_of_one_file_all_count,
        ),
        ("link_takes_no_watch_over", link_takes_no_watch_over),
        ("link_hides_nothing", link_hides_nothing),
        ("renamed_file_hides_nothing", renamed_file_hides_nothing),
        ("mounts_hide_nothing_later", mounts_hide_nothing_later),
        ("refused_open_is_recorded", refused_open_is_recorded),
        (
            "flags_that_the_open_removes",
            open_how::flags_that_the_open_removes,
        ),
        ("refused_exec_is_recorded", refused_exec_is_recorded),
        (
            "name_below_a_renamed_directory",
            name_below_a_renamed_directory,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The same where names are read when a call has ended.
pub(crate) const SESSION_TRACEPOINT: Session = Session {
    name: "names_tracepoint",
    engine: "tracepoint",
    ..SESSION
};

/// Files of the user on a file system that uses the lowest free inode number.
const PREPARE: &str = "
umount /tmp/names/fs 2>/dev/null || true
mkdir -p /tmp/names/fs /tmp/names/covered /tmp/names/source /tmp/names/trusted /tmp/names/quiet /tmp/names/private /tmp/names/bound
cp /bin/busybox /tmp/names/trusted/busybox
echo text > /tmp/names/quiet/file
echo text > /tmp/names/closed
touch /tmp/names/emptied
echo text > /tmp/names/covered/file
chmod 666 /tmp/names/covered/file
echo text > /tmp/names/sealed
cp /bin/busybox /tmp/names/program
chmod 600 /tmp/names/closed /tmp/names/sealed
chmod 700 /tmp/names/program
ln -sf closed /tmp/names/to_closed
ln -sf sealed /tmp/names/to_sealed
ln -sf program /tmp/names/to_program
rm -f /tmp/names/disk
truncate -s 8M /tmp/names/disk
/usr/sbin/mke2fs -q -F -t ext4 /tmp/names/disk
mount -t ext4 -o loop /tmp/names/disk /tmp/names/fs
cd /tmp/names/fs
mkdir dir dir/sub moved all own outer outer/inner
for name in outer/inner/file marker secret unheard reused own/file own/log dir/sub/file twice linked loud heard; do echo text > $name; done
cp /bin/busybox own/busybox
ln -s . alias
ln twice again
ln twice another
ln loud hush
chown -R 1001:1001 .
echo text > dir/rooted
chmod 600 dir/rooted
echo 1 > /proc/sys/fs/protected_hardlinks
";

/// Runs a script as the user.
fn user(script: &str) -> anyhow::Result<()> {
    let mut shell = Command::new("/bin/busybox");
    shell.args(["sh", "-ec", script]).current_dir("/tmp/names");
    let ended = shell.uid(USER).gid(USER).status()?;
    ensure!(ended.success(), "a script ended with {ended}: {script}");
    Ok(())
}

/// Runs a script as the user, in a user namespace and a mount namespace of its own.
fn inside(script: &str) -> anyhow::Result<()> {
    user(&format!("unshare -U -r -m sh -ec '{script}'"))
}

/// The number of events with a key that some work makes.
fn made(
    daemon: &Daemon,
    key: &str,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    settle(daemon)?;
    let before = events(daemon, key)?.len();
    work()?;
    settle(daemon)?;
    Ok(events(daemon, key)?.len() - before)
}

/// Waits until all earlier events are in the log.
fn settle(daemon: &Daemon) -> anyhow::Result<()> {
    let marked = events(daemon, "marker")?.len();
    user("cat fs/marker")?;
    wait_for("the last event", || {
        Ok((events(daemon, "marker")?.len() > marked).then_some(()))
    })
}

fn recorded(daemon: &Daemon, key: &str, script: &str, in_namespace: bool) -> anyhow::Result<()> {
    let run = if in_namespace { inside } else { user };
    let found = made(daemon, key, || run(script))?;
    ensure!(found > 0, "not recorded: {script}");
    Ok(())
}

fn unrecorded(daemon: &Daemon, key: &str, script: &str, in_namespace: bool) -> anyhow::Result<()> {
    let run = if in_namespace { inside } else { user };
    let found = made(daemon, key, || run(script))?;
    ensure!(found == 0, "{found} events: {script}");
    Ok(())
}

/// An object is below a watched directory at any depth.
fn depth_hides_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    let deep = |make: &str| {
        format!(
            "cd fs/dir; at=0
             while [ $at -lt 150 ]; do {make} cd deep; at=$((at + 1)); done"
        )
    };
    user(&format!("{}; echo text > file", deep("mkdir deep;")))?;
    for work in [
        "cat file",
        "echo more > file",
        "mv file file2",
        "mkdir directory",
        "rm file2",
    ] {
        recorded(daemon, "dir", &format!("{}; {work}", deep("")), false)?;
    }
    user("rm -r fs/dir/deep")
}

/// A rule that suppresses the events of a program knows that program by its inode.
fn bound_program_hides_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    let real = "/tmp/names/trusted/busybox cat fs/secret";
    unrecorded(daemon, "secret", real, false)?;
    unrecorded(daemon, "secret", real, true)?;
    let bound = "mount -o bind fs/own/busybox trusted/busybox; trusted/busybox cat fs/secret";
    recorded(daemon, "secret", bound, true)?;
    let bound = "mount -o bind fs/own trusted; trusted/busybox cat fs/secret";
    recorded(daemon, "secret", bound, true)
}

fn bound_directory_hides_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    let bound = "mount -o bind fs/dir quiet; cat quiet/sub/file";
    recorded(daemon, "dir", bound, true)?;
    let below = "mount -o bind fs/secret quiet/file; cat quiet/file";
    recorded(daemon, "secret", below, true)
}

fn bound_files_forge_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    let file = "mount -o bind fs/own/file fs/secret; cat fs/secret";
    unrecorded(daemon, "secret", file, true)?;
    let directory = "mount -o bind fs/own fs/dir; cat fs/dir/file; echo x > fs/dir/new";
    unrecorded(daemon, "dir", directory, true)?;
    let below = "mount -o bind fs/own fs/dir/sub; cat fs/dir/sub/file";
    unrecorded(daemon, "dir", below, true)
}

/// As under systemd's `PrivateTmp=`, where names count as they are there.
fn names_count_in_namespaces_of_root(daemon: &Daemon) -> anyhow::Result<()> {
    let work = "unshare -m sh -ec 'mount -t tmpfs none /tmp/names/private; echo x > /tmp/names/private/file'";
    let found = made(daemon, "private", || shell(work))?;
    ensure!(found > 0, "not recorded: {work}");
    Ok(())
}

/// The path of a file does not show the directories above a bind mount.
fn directories_above_a_bind_mount(daemon: &Daemon) -> anyhow::Result<()> {
    let script = "mount -o bind fs/dir/sub bound; cat bound/file";
    recorded(daemon, "dir", script, true)?;
    shell("mount -o bind /tmp/names/fs/dir/sub /tmp/names/bound")?;
    let found = recorded(daemon, "dir", "cat bound/file", false);
    shell("umount /tmp/names/bound")?;
    found
}

fn file_created_in_a_namespace(daemon: &Daemon) -> anyhow::Result<()> {
    recorded(daemon, "missing", "echo x > fs/missing", true)?;
    user("ln fs/missing fs/second")?;
    recorded(daemon, "missing", "cat fs/second", false)?;
    recorded(daemon, "missing", "rm fs/missing", true)
}

fn replaced_file_is_followed(daemon: &Daemon) -> anyhow::Result<()> {
    let bound = "mount -o bind fs bound; cat bound/secret";
    let linked = "cat fs/third";
    for (round, in_namespace) in [("1", false), ("2", true), ("3", false)] {
        user("echo text > fs/new; ln -f fs/new fs/third")?;
        recorded(daemon, "secret", "mv -f fs/new fs/secret", in_namespace).context(round)?;
        if !daemon.sees_inside() {
            user("cat fs/secret")?;
        }
        recorded(daemon, "secret", bound, true).context(round)?;
        recorded(daemon, "secret", linked, false).context(round)?;
    }
    user("ln -f fs/own/file fs/fourth; rm fs/secret; ln fs/fourth fs/secret")?;
    if !daemon.sees_inside() {
        user("cat fs/secret")?;
    }
    recorded(daemon, "secret", "cat fs/own/file", false)
}

fn directory_is_renamed(daemon: &Daemon) -> anyhow::Result<()> {
    recorded(daemon, "moved", "echo x > fs/moved/file", false)?;
    user("mv fs/moved fs/elsewhere")?;
    recorded(daemon, "moved", "echo x >> fs/elsewhere/file", false)
}

/// Programs keep what is watched at a directory and above, for the next open of a file in it.
fn known_directory_hides_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    let open = |directory: &str| format!("for i in 1 2 3 4; do cat {directory}/file; done");
    user("mkdir fs/plain; echo text > fs/plain/file")?;
    unrecorded(daemon, "dir", &open("fs/plain"), false)?;
    user("mv fs/plain fs/dir/plain")?;
    // Each of them: the first four may have run on one CPU.
    let work = open("fs/dir/plain");
    let found = made(daemon, "dir", || user(&work))?;
    ensure!(found == 4, "{found} events of 4: {work}");
    user("mv fs/dir/plain fs/plain")?;
    unrecorded(daemon, "dir", &open("fs/plain"), false)?;
    shell("mount -o bind /tmp/names/fs/dir /tmp/names/fs/plain")?;
    let found = recorded(daemon, "dir", &open("fs/plain/sub"), false);
    shell("umount /tmp/names/fs/plain")?;
    found?;
    unrecorded(daemon, "dir", &open("fs/plain"), false)?;
    // A directory with the same inode number, and perhaps the same memory.
    user(
        "ino=$(stat -c %i fs/plain); rm -r fs/plain; i=0; \
         while [ $i -lt 50 ]; do \
             mkdir fs/dir/same; \
             if [ $(stat -c %i fs/dir/same) = $ino ]; then echo text > fs/dir/same/file; exit 0; fi; \
             mkdir fs/all/other$i; rmdir fs/dir/same; i=$((i + 1)); \
         done; exit 1",
    )?;
    recorded(daemon, "dir", &open("fs/dir/same"), false)?;
    user("rm -r fs/dir/same; rmdir fs/all/other* 2> /dev/null || true")
}

/// Removes a file and makes others until one has its inode number, as `$new`.
fn reuse(file: &str, new: &str, then: &str) -> String {
    format!(
        "ino=$(stat -c %i {file}); rm {file}; i=0; \
         while [ $i -lt 50 ]; do \
             echo text > {new}$i; \
             if [ $(stat -c %i {new}$i) = $ino ]; then new={new}$i; {then}; exit 0; fi; \
             i=$((i + 1)); \
         done; exit 1"
    )
}

fn reused_inode_number_is_not_watched(daemon: &Daemon) -> anyhow::Result<()> {
    recorded(daemon, "reused", "cat fs/reused", false)?;
    user(&reuse("fs/reused", "fs/other", "mv $new fs/taken"))?;
    unrecorded(daemon, "reused", "cat fs/taken; echo x > fs/taken", false)?;
    recorded(daemon, "reused", "echo x > fs/reused", false)
}

/// A file that takes the number of one whose events a rule suppresses.
fn reused_inode_number_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    user(&reuse("fs/unheard", "fs/all/file", "mv $new fs/all/taken"))?;
    recorded(daemon, "all", "cat fs/all/taken", false)
}

/// A working directory that the call itself changes before it ends.
fn cwd_is_that_of_the_begin(daemon: &Daemon) -> anyhow::Result<()> {
    if !daemon.sees_inside() {
        return Ok(());
    }
    let expect = |cwd: &str, name: &str| -> anyhow::Result<()> {
        let event = wait_for("the event", || {
            let mut events = events(daemon, "cwd")?.into_iter();
            // A shell may give the absolute name.
            Ok(events.find(|event| {
                let names = event.fields("PATH", "name");
                names.iter().any(|found| found.ends_with(name))
            }))
        })?;
        let found = event.field("CWD", "cwd");
        ensure!(found == cwd, "{found}: {}", event.summary());
        Ok(())
    };
    recorded(daemon, "cwd", "cd fs/own", false)?;
    expect("/tmp/names", "fs/own")
}

/// A watch hits a file that `protected_hardlinks` keeps from being linked.
fn refused_link_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    recorded(daemon, "closed", "! ln closed refused", false)?;
    recorded(daemon, "dir", "! ln fs/dir/rooted fs/refused", false)
}

/// Two spellings of a path and a hard link are three watches of one file.
fn watches_of_one_file_all_count(daemon: &Daemon) -> anyhow::Result<()> {
    for name in ["twice", "alias/twice", "again", "another"] {
        recorded(daemon, "twice_r", &format!("cat fs/{name}"), false)?;
        recorded(daemon, "twice_w", &format!("echo x >> fs/{name}"), false)?;
    }
    recorded(daemon, "twice_a", "chmod 640 fs/again", false)
}

/// A name that comes to lead to a file of another watch does not give its watch to the file.
fn link_takes_no_watch_over(daemon: &Daemon) -> anyhow::Result<()> {
    user("ln fs/linked fs/later; ln fs/linked fs/elsewhere_linked")?;
    recorded(daemon, "later", "echo x >> fs/later", false)?;
    user("rm fs/later")?;
    recorded(daemon, "linked", "cat fs/elsewhere_linked", false)?;
    unrecorded(daemon, "later", "echo x >> fs/elsewhere_linked", false)
}

/// A hard link with the name of a `never` rule hides nothing of the file.
fn link_hides_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    unrecorded(daemon, "loud", "echo x >> fs/hush", false)?;
    recorded(daemon, "loud", "echo x >> fs/loud", false)?;
    user("rm fs/hush")?;
    recorded(daemon, "loud", "echo x >> fs/loud", false)
}

/// A user renames the file of a `never` rule over a watched file, which has the inode of the former then.
fn renamed_file_hides_nothing(daemon: &Daemon) -> anyhow::Result<()> {
    unrecorded(daemon, "heard", "echo x >> fs/own/log", false)?;
    user("mv fs/own/log fs/heard")?;
    for in_namespace in [false, true] {
        recorded(daemon, "heard", "echo x >> fs/heard", in_namespace)?;
    }
    user("echo text > fs/own/log")?;
    recorded(daemon, "heard", "echo x >> fs/heard", false)?;
    unrecorded(daemon, "heard", "echo x >> fs/own/log", false)
}

/// What is mounted over a watched directory for a while takes the watch from it for that while only.
fn mounts_hide_nothing_later(daemon: &Daemon) -> anyhow::Result<()> {
    let bound = "mount -o bind covered bound; echo x >> bound/file";
    recorded(daemon, "covered", bound, true)?;
    for mounted in ["-t tmpfs none", "-o bind source", "-t tmpfs none"] {
        shell(&format!(
            "cd /tmp/names; mount {mounted} covered; echo x > covered/made; umount covered"
        ))?;
    }
    recorded(daemon, "covered", "echo x >> covered/file", false)?;
    recorded(daemon, "covered", bound, true)
}

/// A watch hits a file that its mode closes to the user, whatever name leads there.
fn refused_open_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    recorded(daemon, "closed", "! cat closed", false)?;
    if !daemon.sees_inside() {
        return Ok(()); // docs/limits.md
    }
    let bound = "mount -o rbind /tmp/names bound; ! cat bound/closed";
    let root = "! cat /proc/self/root/tmp/names/closed";
    for (script, in_namespace) in [
        ("! cat to_closed", false),
        ("! echo x > to_closed", false),
        (root, false),
        (bound, true),
    ] {
        recorded(daemon, "closed", script, in_namespace)?;
        let last = events(daemon, "closed")?.pop().context("no event")?;
        let found = (
            last.fields("PATH", "nametype"),
            last.field("SYSCALL", "exit"),
        );
        ensure!(
            found == (vec!["NORMAL".to_owned()], "-13".to_owned()),
            "{}",
            last.summary()
        );
    }
    recorded(daemon, "sealed", "! cat to_sealed", false)?;
    unrecorded(daemon, "sealed", "! echo x > to_sealed", false)
}

fn refused_exec_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    recorded(daemon, "program", "! ./program true", false)?;
    if daemon.sees_inside() {
        recorded(daemon, "program", "! ./to_program true", false)?;
    }
    Ok(())
}

/// A directory above that of a watched file is renamed: the name in its directory is still that of the watch.
fn name_below_a_renamed_directory(daemon: &Daemon) -> anyhow::Result<()> {
    user("mv fs/outer fs/beyond; echo new > fs/new")?;
    let replace = "mv -f fs/new fs/beyond/inner/file";
    if daemon.sees_inside() {
        recorded(daemon, "inner", replace, false)?;
    } else {
        user(replace)?;
    }
    recorded(daemon, "inner", "echo x >> fs/beyond/inner/file", false)?;
    user("mv fs/beyond fs/outer")?;
    recorded(daemon, "inner", "rm fs/outer/inner/file", false)?;
    recorded(daemon, "inner", "echo x > fs/outer/inner/file", false)
}
