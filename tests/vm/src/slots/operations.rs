//! An `io_uring` operation is in progress while the rules are replaced, and ends where no hook sees it. Later syscalls
//! of the task are recorded all the same, also if the operation got no slot.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::event;
use support::wait::wait_for;

use super::Blocked;
use crate::daemon::{Daemon, replace};
use crate::filesystems::{LOAD_MODULES, shell};
use crate::half_seen::{LAST, events_of};
use crate::machine::{USER, make_directory, make_file};
use crate::reload::held;
use crate::suite::{Rules, Session};
use crate::uring_ops::URING_OPS;

/// Nothing is lost: the share of slots is full only while the operation sleeps.
pub(crate) const SESSION: Session = Session {
    name: "slots_operations",
    engine: "fentry",
    prepare: || {
        super::prepare()?;
        shell(LOAD_MODULES)?;
        make_directory(Path::new(WATCHED), USER)?;
        make_file(Path::new(SECRET), USER)?;
        shell("cd /tmp/slots_operations; mkdir -p below fuse; echo text > below/file")
    },
    rules: Rules::Text(LAST),
    tests: &[
        ("ended_sendmsg_hides_no_syscall", |daemon| {
            hides_nothing(daemon, &SENDMSG, Share::Free)
        }),
        ("ended_sendmsg_without_a_slot_hides_no_syscall", |daemon| {
            hides_nothing(daemon, &SENDMSG, Share::Full)
        }),
        ("ended_open_without_a_slot_hides_no_syscall", |daemon| {
            hides_nothing(daemon, &OPEN, Share::Full)
        }),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const WATCHED: &str = "/tmp/slots_operations/watched";
const SECRET: &str = "/tmp/slots_operations/secret";
/// The file whose server sleeps, and its mount.
const SERVED: &str = "/tmp/slots_operations/fuse/file";
const MOUNT: &str = "/tmp/slots_operations/fuse";

/// Rules that do not name the operations.
fn watches() -> String {
    format!("{LAST}-w {SECRET} -p rwa -k secret\n-w {WATCHED} -p rwa -k watched\n")
}

/// The same and rules that name the operations, and the call in which threads block.
fn all() -> String {
    let watches = watches();
    format!(
        "{watches}-a always,exit -F arch=b64 -S sendto,sendmsg -F uid=1001 -k sends\n\
         -a always,exit -F arch=b64 -S connect -F uid=1001 -k connects\n"
    )
}

/// An operation that waits for the server.
struct Case {
    /// Its name for the program.
    mode: &'static str,
    /// The function of the kernel in which it waits.
    function: &'static str,
    /// The rules when it ends.
    rules: fn() -> String,
}

/// The watches need no hook of it.
const SENDMSG: Case = Case {
    mode: "send",
    function: "io_sendmsg",
    rules: watches,
};

/// The watches need its hooks.
const OPEN: Case = Case {
    mode: "open",
    function: "io_openat2",
    rules: || LAST.to_owned(),
};

/// What the user's share of the slots has left when the operation begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Free,
    Full,
}

/// The server of the mounted file. It is killed on drop.
struct Server(Child);

impl Server {
    fn mount() -> anyhow::Result<Self> {
        let mut server = Command::new("/usr/bin/bindfs");
        server.args(["-f", "/tmp/slots_operations/below", MOUNT]);
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(server.spawn().context("cannot start bindfs")?);
        wait_for("the mount", || Ok(Path::new(SERVED).exists().then_some(())))?;
        Ok(server)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(self.0.id().try_into()?), signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It runs until killed, and its requests end with it.
        let _gone = self.0.kill();
        let _status = self.0.wait();
        let _unmounted = umount2(MOUNT, MntFlags::MNT_DETACH);
    }
}

/// The program of the operation: each byte of input starts a step, and a byte of output follows the step.
struct Steps {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Steps {
    fn start(mode: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(URING_OPS);
        command.args([mode, SERVED, SECRET, WATCHED]);
        command.uid(USER).gid(USER);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.context("cannot start the operation")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut steps = Self {
            child,
            input: input.context("no input")?,
            output: output.context("no output")?,
        };
        steps.wait()?;
        Ok(steps)
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.input.write_all(b"x").context("the program has ended")
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let step = self.output.read_exact(&mut [0]);
        step.context("the program has ended")
    }

    fn run(&mut self) -> anyhow::Result<()> {
        self.begin()?;
        self.wait()
    }

    /// Waits until it sleeps in a function of the kernel.
    fn sleeps_in(&self, function: &str) -> anyhow::Result<()> {
        let path = format!("/proc/{}/stack", self.child.id());
        wait_for(&format!("a sleep in {function}"), || {
            let stack = fs::read_to_string(&path).context("no such process")?;
            let is_in = stack.contains(&format!(" {function}+"));
            Ok(is_in.then_some(()))
        })
    }

    /// Ends it; returns its process id.
    fn end(mut self) -> anyhow::Result<u32> {
        drop(self.input);
        let status = self.child.wait()?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(self.child.id())
    }
}

/// Links of the hooks of each case's rules when the operation ends, counted before any are detached.
fn links(daemon: &Daemon) -> anyhow::Result<[usize; 2]> {
    static LINKS: OnceLock<[usize; 2]> = OnceLock::new();
    if LINKS.get().is_none() {
        let last = held(daemon, &["link_id"])?;
        replace(daemon, &watches())?;
        let watches = held(daemon, &["link_id"])?;
        LINKS.get_or_init(|| [last, watches]);
    }
    LINKS.get().copied().context("no links were counted")
}

/// The syscalls of the task after the operation are recorded with their objects: under rules that do not name the
/// operation, and under rules that name it again.
fn hides_nothing(daemon: &Daemon, case: &Case, share: Share) -> anyhow::Result<()> {
    let [last, watches_only] = links(daemon)?;
    let rules = (case.rules)();
    let expected = if rules == LAST { last } else { watches_only };
    replace(daemon, &all())?;
    let blocked = match share {
        Share::Free => None,
        Share::Full => Some(Blocked::start()?),
    };
    let server = Server::mount()?;
    let mut steps = Steps::start(case.mode)?;
    server.signal(Signal::SIGSTOP)?;
    steps.begin()?;
    steps.sleeps_in(case.function)?;
    replace(daemon, &rules)?;
    wait_for("the end of all other hooks", || {
        Ok((held(daemon, &["link_id"])? == expected).then_some(()))
    })?;
    server.signal(Signal::SIGCONT)?;
    steps.wait()?;
    drop(blocked);
    if rules == LAST {
        replace(daemon, &watches())?;
    }
    steps.run()?;
    replace(daemon, &all())?;
    steps.run()?;
    let mut events = events_of(daemon, steps.end()?)?;
    events.retain(|event| event.all("URINGOP").next().is_none());
    replace(daemon, &watches())?;
    let created = format!("PARENT:{WATCHED}/ CREATE:{WATCHED}/new");
    let deleted = format!("PARENT:{WATCHED}/ DELETE:{WATCHED}/new");
    let round = [
        format!("openat NORMAL:{SECRET}"),
        format!("chmod NORMAL:{SECRET}"),
        format!("mkdir {created}"),
        format!("rmdir {deleted}"),
        format!("truncate NORMAL:{SECRET}"),
    ];
    let found: Vec<String> = events.iter().map(call_and_objects).collect();
    ensure!(
        found == [round.clone(), round].concat(),
        "recorded: {}",
        event::show(&events)
    );
    Ok(())
}

/// The summary of an event without its result, which is a descriptor for an open.
fn call_and_objects(event: &event::Event) -> String {
    let summary = event.summary();
    let (call, objects) = summary.split_once(' ').unwrap_or((&summary, ""));
    let call = call.split('=').next().unwrap_or_default();
    format!("{call} {objects}")
}
