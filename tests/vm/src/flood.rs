//! A user who floods the ring loses events of his own, and no other user does: `bpf/lib/ring_shares.bpf.h`.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use bstr::{BString, ByteSlice as _};
use nix::sys::signal::Signal;
use support::wait::wait_within;

use crate::daemon::{Daemon, LONGEST_END, LOST};
use crate::machine::{STRANGER, USER};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "flood",
    engine: "fentry",
    prepare: || Ok(()),
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S mkdir -F a1=0 -F uid=1001 -k flood\n\
         -a always,exit -F arch=b64 -S rmdir -k removed\n",
    ),
    tests: &[
        ("only_the_user_loses_events", only_the_user_loses_events),
        (
            "user_with_many_numbers_is_one",
            user_with_many_numbers_is_one,
        ),
    ],
    stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The same for programs on tracepoints.
pub(crate) const SESSION_TRACEPOINT: Session = Session {
    name: "flood_tracepoint",
    engine: "tracepoint",
    ..SESSION
};

const MKDIR: u32 = 83;
const RMDIR: u32 = 84;
const SETRESUID: u32 = 117;

/// Calls with names of 4,000 bytes; the ring of 64 MiB has no room for all.
const FLOOD: u32 = 17_000;
const CALLS: u32 = 20;
/// Events of two CPUs before they look at the ring again: `EVENTS_PER_LOOK` of `bpf/lib/ring.bpf.h`.
const UNLOOKED: usize = 2 * 7;
const BUSYBOX: &str = "/bin/busybox";
/// As any user of the host whose number is given to him by a directory service.
const HIGH_USER: u32 = 70_000;
/// One who makes his first events after the user has filled the table.
const NEW_USER: u32 = 1003;
/// More than places for owners: `WIRE_RING_OWNERS` of `bpf/wire.h`.
const SUBORDINATE_USERS: std::ops::Range<u32> = 100_000..104_500;
/// Halves of the rest of the ring, if each is another owner's.
const SANDBOXES: u32 = 20;
/// As a setuid program does for a user who has logged in.
const SANDBOX: &str = "echo 1001 >/proc/self/loginuid && exec /bin/busybox unshare -p -f \"$0\"";

fn only_the_user_loses_events(daemon: &Daemon) -> anyhow::Result<()> {
    let flood = Program::new(Entry::Syscall).call(MKDIR, vec![long_name(), 0.into()]);
    let flood = flood.rounds(FLOOD).install("flood")?;
    let remove = remove_program()?;
    let remove = remove.as_os_str().to_string_lossy();
    let inside = |options: &[&'static str]| [&["unshare"], options, &[&*remove]].concat();

    let (of_user, others) = daemon.while_stopped(|| {
        daemon.run_user(&flood, &[])?;
        let own = daemon.run_user(Path::new(&*remove), &[])?;
        let in_namespace = inside(&["-U", "-r", "-p", "-f"]);
        let in_namespace = daemon.run_user(Path::new(BUSYBOX), &in_namespace)?;
        let container = daemon.run(0, Path::new(BUSYBOX), &inside(&["-p", "-f"]))?;
        let mut others = vec![container];
        for uid in [STRANGER, HIGH_USER, 0] {
            others.push(daemon.run(uid, Path::new(&*remove), &[])?);
        }
        Ok(([own, in_namespace], others))
    })?;

    let all = usize::try_from(CALLS)?;
    let last = others.last().copied().unwrap_or_default();
    let removed = wait_within(LONGEST_END, "the last events", || {
        let removed = removed(daemon)?;
        Ok((removed.of(last) == all).then_some(removed))
    })?;
    let recorded = |process| removed.of(process);
    let more = of_user.map(recorded);
    ensure!(
        more.iter().sum::<usize>() <= UNLOOKED,
        "the user has more than his share, outside a namespace or in one: {more:?}"
    );
    let of_others: Vec<usize> = others.into_iter().map(recorded).collect();
    ensure!(
        of_others.iter().all(|count| *count == all),
        "events of a container, other users and root are missing: {of_others:?}"
    );
    Ok(())
}

/// A user has the users of `/etc/subuid`, by setuid files of theirs, and process namespaces, by setuid sandboxes. And
/// root in a container is not the machine's.
fn user_with_many_numbers_is_one(daemon: &Daemon) -> anyhow::Result<()> {
    let program = |uid: u32, rounds: u32| {
        Program::new(Entry::Syscall)
            .call(SETRESUID, vec![i64::from(uid).into(); 3])
            .call(MKDIR, vec![long_name(), 0.into()])
            .rounds(rounds)
    };
    let flood = program(USER, FLOOD).install("flood")?;
    let sandboxed = program(USER, FLOOD / SANDBOXES).install("sandboxed")?;
    let sandboxed = sandboxed.as_os_str().to_string_lossy();
    let as_users = SUBORDINATE_USERS.fold(Program::new(Entry::Syscall), |program, uid| {
        program
            .call(SETRESUID, vec![i64::from(uid).into(), 0.into(), 0.into()])
            .call(RMDIR, args!["missing"])
    });
    let as_users = as_users.install("as_users")?;
    let contained = Program::new(Entry::Syscall).call(RMDIR, vec![long_name()]);
    let contained = contained.rounds(FLOOD).install("contained")?;
    let contained = contained.as_os_str().to_string_lossy();
    let remove = remove_program()?;

    let others = daemon.while_stopped(|| {
        daemon.run(0, &flood, &[])?;
        daemon.run(0, &as_users, &[])?;
        for _ in 0..SANDBOXES {
            daemon.run(0, Path::new(BUSYBOX), &["sh", "-c", SANDBOX, &sandboxed])?;
        }
        daemon.run(0, Path::new(BUSYBOX), &["unshare", "-p", "-f", &contained])?;
        let others = [NEW_USER, 0].map(|uid| daemon.run(uid, &remove, &[]));
        others.into_iter().collect::<anyhow::Result<Vec<u32>>>()
    })?;
    let all = usize::try_from(CALLS)?;
    let found = wait_within(LONGEST_END, "the last events", || {
        let removed = removed(daemon)?;
        let found: Vec<usize> = others.iter().map(|&process| removed.of(process)).collect();
        Ok((found.last() == Some(&all)).then_some(found))
    })?;
    ensure!(
        found.iter().all(|&count| count == all),
        "events of another user are missing: {found:?}"
    );
    Ok(())
}

/// A name of 4,000 bytes of a file that is not there.
fn long_name() -> Arg {
    Arg::Bytes([&b"/none".repeat(800)[..], b"\0"].concat())
}

/// The program whose events must not be lost.
fn remove_program() -> anyhow::Result<PathBuf> {
    let remove = Program::new(Entry::Syscall).call(RMDIR, args!["missing"]);
    remove.rounds(CALLS).install("remove")
}

/// The records of removed directories. The rest of the log is more than a machine parses in a minute.
struct Removed(Vec<BString>);

fn removed(daemon: &Daemon) -> anyhow::Result<Removed> {
    let log = daemon.log_text()?;
    let lines = log
        .lines()
        .filter(|line| line.contains_str(r#"key="removed""#));
    Ok(Removed(lines.map(BString::from).collect()))
}

impl Removed {
    /// Number of those of a process, or of its children.
    fn of(&self, process: u32) -> usize {
        let ids = ["pid", "ppid"].map(|field| format!(" {field}={process} "));
        let of_process = |line: &&BString| ids.iter().any(|id| line.contains_str(id));
        self.0.iter().filter(of_process).count()
    }
}

/// Ends the daemon; the log says that all that is lost was the user's, under any of his numbers.
fn stop(daemon: &Daemon) -> anyhow::Result<()> {
    let account = daemon.end(Signal::SIGTERM, LONGEST_END)?;
    let (line, counts) = (account.line, account.summary);
    ensure!(
        account.status.code() == Some(LOST)
            && counts.matched == counts.written + counts.lost
            && counts.written > u64::from(FLOOD / 2),
        "{}: {line}",
        account.status
    );
    let mut of_user = 0;
    for report in daemon.log_text()?.lines() {
        let Some((_, lost)) = report.split_once_str("op=lost-events lost=") else {
            continue;
        };
        let lost = lost.to_str_lossy();
        let (count, rest) = lost.split_once(' ').unwrap_or_default();
        let of_other = [0, STRANGER, NEW_USER, HIGH_USER].map(|uid| format!(" uid={uid} "));
        let of_other = of_other.iter().any(|uid| rest.contains(uid));
        ensure!(!of_other, "{}", report.as_bstr());
        of_user += count.parse::<u64>()?;
    }
    ensure!(
        of_user == counts.lost && of_user > u64::from(2 * CALLS),
        "the log reports {of_user}: {line}"
    );
    println!("vm: note {line}");
    Ok(())
}
