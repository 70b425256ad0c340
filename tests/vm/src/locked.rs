//! The lock of `-e 2` against root: no ordinary tool can detach BPF programs, change maps or pins, or change the
//! log.
//!
//! The lock lasts until reboot: this session is the last one of its machine.
//!
//! Length: the attempts of root are one list, and each needs the same locked machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::ptrace;
use rustix::fs::{
    CWD, IFlags, RenameFlags, XattrFlags, ioctl_getflags, removexattr, renameat_with, setxattr,
};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use support::event;

use crate::daemon::{Daemon, TOLLGATE, calls};
use crate::deny::set_xattr;
use crate::differential::watched::{ACL, ACL_BYTES, acl};
use crate::load;
use crate::machine::mount_bpf_file_system;
use crate::program::{Arg, Entry, Program, args};
use crate::run;
use crate::suite::{Rules, Session};

/// The tests. They do not use the session's daemon.
pub(crate) const SESSION: Session = Session {
    name: "locked",
    // The guard does not depend on the engine, but on what the kernel skips: as does this choice.
    engine: "auto",
    prepare,
    rules: Rules::Text("-a always,exit -F arch=b64 -S mkdir -F uid=77 -k nobody\n"),
    tests: &[
        (
            "root_cannot_change_locked_state",
            root_cannot_change_locked_state,
        ),
        ("second_log_is_refused", second_log_is_refused),
        (
            "only_one_daemon_opens_locked_state",
            only_one_daemon_opens_locked_state,
        ),
        (
            "many_reloads_do_not_exhaust_guarded_maps",
            many_reloads_do_not_exhaust_guarded_maps,
        ),
        // It also lasts until reboot.
        ("yama_scope_3_is_named", run::yama_scope_3_is_named),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: true,
};

const PERM: rustix::io::Errno = rustix::io::Errno::PERM;
/// BPF programs are loaded meanwhile, on an emulated CPU.
const SOON: Duration = Duration::from_secs(120);
const RULES: &str = "-a always,exit -F arch=b64 -S rmdir -F uid=1001 -k kept\n-e 2\n";
/// Rules that would record less.
const OTHER_RULES: &str = "-a always,exit -F arch=b64 -S mkdir -F uid=77 -k nobody\n";
const BPF: &str = "/tmp/locked-bpf";
const PINS: &str = "/tmp/locked-bpf/tollgate";
/// The binary of the locking daemons. The binary of the session's daemon is always running, and a running binary
/// cannot be written, guarded or not.
const LOCKING: &str = "/tmp/locked-tollgate";
const CONTROL: &str = "/tmp/locked-control/socket";
/// An old log of the locking daemons.
const OLD_LOG: &str = "/tmp/kept.log.9";

/// Attempts of root that must fail. Each is one command of busybox's shell.
const ATTEMPTS: &[&str] = &[
    "rm /tmp/kept.log",
    "mv /tmp/kept.log /tmp/moved.log",
    "mv /tmp/free /tmp/kept.log",
    "truncate -s 0 /tmp/kept.log",
    ": > /tmp/kept.log",
    "echo type=USER >> /tmp/kept.log",
    "chmod 000 /tmp/kept.log",
    "chown 1001 /tmp/kept.log",
    "ln /tmp/kept.log /tmp/another-name",
    ": > /tmp/earlier-name",
    "truncate -s 0 /tmp/earlier-name",
    "echo type=USER >> /tmp/earlier-name",
    "chmod 000 /tmp/earlier-name",
    "ln /tmp/earlier-name /tmp/another-name",
    "mkdir /tmp/kept.log.1",
    "ln -s /tmp/free /tmp/kept.log.2",
    "mkfifo /tmp/kept.log.3",
    "touch /tmp/kept.log.4",
    "mount -t tmpfs none /tmp",
    "mount -o bind /tmp/free /tmp/kept.log",
    "unshare -m --propagation shared mount -t tmpfs none /tmp",
    "/tmp/locked-tollgate augenrules --rules /tmp/rules.d --output /tmp/kept.log",
    "chmod 700 /tmp/locked-tollgate",
    "rm /tmp/locked-bpf/tollgate/header",
    "rm /tmp/locked-bpf/tollgate/locked",
    "rm /tmp/locked-bpf/tollgate/guard-guard_unlink",
    "rm /tmp/locked-bpf/tollgate/link-*",
    "mv /tmp/locked-bpf/tollgate/header /tmp/locked-bpf/header",
    "mv /tmp/locked-bpf/tollgate /tmp/locked-bpf/moved",
    "chmod 777 /tmp/locked-bpf/tollgate",
    "mkdir /tmp/locked-bpf/tollgate/new",
    "umount -l /tmp/locked-bpf",
    "unshare -m --propagation shared umount -l /tmp/locked-bpf",
    "mount -o bind /tmp/free /tmp/locked-bpf/tollgate/header",
    "mount -t tmpfs none /tmp/locked-bpf/tollgate",
    "bpftool map update pinned /tmp/locked-bpf/tollgate/map-tlg_rule_tests key 0 0 0 0 value 0 0 0 0 0 0 0 0 \
     0 0 0 0 0 0 0 0",
    "bpftool map delete pinned /tmp/locked-bpf/tollgate/map-tlg_watch_path key 0 0 0 0 0 0 0 0",
    "bpftool map update name tlg_guard_maps key 0 0 0 0 value 0 0 0 0",
    "echo 0 > /proc/sys/kernel/ftrace_enabled",
    "mkdir -p /tmp/debugfs; mount -t debugfs none /tmp/debugfs; echo 0 > /tmp/debugfs/kprobes/enabled",
];

/// Attempts on file systems with inode flags, which tmpfs on Linux 6.1 lacks.
const CHATTR: &str = "chattr +i /tmp/kept.log";
const HAS_CHATTR: &str = "touch /tmp/flags && chattr +i /tmp/flags && chattr -i /tmp/flags";

const DETACH: &str = "for link in /tmp/locked-bpf/tollgate/link-* /tmp/locked-bpf/tollgate/guard-*; do \
    bpftool link detach pinned $link && exit 0; done; exit 1";

/// Actions that must succeed.
const FREE: &str = "echo x > /tmp/kept.txt && chmod 600 /tmp/kept.txt && mv /tmp/kept.txt /tmp/free && \
    cat /tmp/kept.log > /tmp/copy && mkdir /tmp/beside && mount -t tmpfs none /tmp/beside && \
    umount /tmp/beside && rmdir /tmp/beside && rm /tmp/copy && ls /tmp/locked-bpf/tollgate && \
    unshare -m umount -l /tmp/locked-bpf && unshare -m mount -t tmpfs none /tmp && \
    /tmp/locked-tollgate run --rules /tmp/rules.d/a.rules --log /tmp/run.log -- /bin/busybox true && \
    rm /tmp/run.log";

/// Attempts on a binary that is not running; they write nothing if they succeed.
const OVERWRITE: &str = ": >> /tmp/locked-tollgate";

fn prepare() -> anyhow::Result<()> {
    fs::create_dir_all("/tmp/rules.d").context("cannot create a directory")?;
    fs::write("/tmp/rules.d/a.rules", OTHER_RULES).context("cannot write rules")?;
    fs::copy(TOLLGATE, LOCKING).context("cannot copy the program")?;
    // An old log that has another name already.
    fs::write(OLD_LOG, "").context("cannot write a log")?;
    fs::hard_link(OLD_LOG, "/tmp/earlier-name").context("cannot link the log")?;
    let none: Option<&str> = None;
    // With all capabilities, as PID 1 has on most machines.
    mount(none, "/tmp", none, MsFlags::MS_SHARED, none).context("cannot share a mount")?;
    mount_bpf_file_system(BPF)
}

fn start(daemon: &Daemon, name: &str, rules: &str) -> anyhow::Result<Daemon> {
    start_as(daemon.engine(), name, rules)
}

fn start_as(engine: &str, name: &str, rules: &str) -> anyhow::Result<Daemon> {
    let options = ["--pins", PINS, "--control", CONTROL];
    Daemon::start_with(LOCKING, name, engine, rules, &options)
}

/// The message of a daemon with a guard.
fn locked(daemon: &Daemon) -> anyhow::Result<()> {
    let line = daemon.wait_for_line(&["tollgate: rules and settings are locked"], SOON)?;
    let guards = "programs, maps, pins and the log are protected from root's tools";
    ensure!(line.ends_with(guards), "{line}");
    Ok(())
}

fn root_cannot_change_locked_state(daemon: &Daemon) -> anyhow::Result<()> {
    const ROUNDS: u32 = 10;
    let path = load::program("kept", ROUNDS)?;
    let start = |rules| start(daemon, "kept", rules);

    let writer = OpenOptions::new().append(true).open(OLD_LOG);
    let writer = writer.context("cannot open the old log")?;
    let mut kept = start(RULES)?;
    locked(&kept)?;
    let open = "`/tmp/kept.log.9` is open for writing in another process";
    ensure!(kept.has_printed(open), "not printed: {open}");
    drop(writer);
    let mut processes = vec![load::make_calls(&path)?];
    let names = pinned(PINS)?;
    ensure_kept(&names)?;
    // Running the BPF programs with which the daemon identifies itself does not make a process the daemon.
    for program in ["guard_init", "guard_claim", "daemon_register"] {
        run_program(daemon, program)?;
    }
    ensure_kept(&names)?;
    reload_rules(1)?;
    let traced = ptrace::seize(kept.pid(), ptrace::Options::empty());
    ensure!(traced == Err(Errno::EPERM), "PTRACE_SEIZE: {traced:?}");

    kept.kill()?;
    processes.push(load::make_calls(&path)?);
    ensure_kept(&names)?;
    let overwritten = shell(OVERWRITE)?;
    ensure!(
        said(&overwritten).contains("Operation not permitted"),
        "`{OVERWRITE}`: {}",
        said(&overwritten)
    );
    let copied = refused(Command::new(TOLLGATE).args(["unpin", PINS]))?;
    ensure!(copied.contains("until the machine restarts"), "{copied}");
    let options = [
        "daemon",
        "--foreground",
        "--no-control",
        "--log",
        "/tmp/other.log",
    ];
    // A program traced from its start is not the daemon either.
    let mut traced = Command::new("/bin/busybox");
    traced
        .args(["timeout", "120", LOCKING, "run"])
        .args(["--rules", "/tmp/rules.d/a.rules", "--log", "/tmp/run.log"])
        .args(["--", LOCKING]);
    for command in [&mut Command::new(TOLLGATE), &mut traced] {
        let said = refused(command.args(options).args(["--pins", PINS]))?;
        ensure!(
            said.contains("only the tollgate program that locked it can"),
            "{said}"
        );
    }

    // With the other engine the daemon would attach anew, without a guard meanwhile.
    kept = start_as("tracepoint", "kept", OTHER_RULES)?;
    locked(&kept)?;
    for said in [
        "the rule files are ignored",
        "settings ignored because `-e 2` locked them: engine = \"tracepoint\"",
        "took over the BPF programs of the previous daemon",
    ] {
        ensure!(kept.has_printed(said), "not printed: {said}");
    }
    processes.push(load::make_calls(&path)?);
    let names = kept_by_next(&names)?;
    ensure_kept(&names)?;
    // SIGTERM ends a daemon, not its lock.
    kept.stop_last()?;
    processes.push(load::make_calls(&path)?);
    ensure_kept(&names)?;
    let unpinned = refused(Command::new(LOCKING).args(["unpin", PINS]))?;
    ensure!(
        unpinned.contains("until the machine restarts"),
        "{unpinned}"
    );

    kept = start(OTHER_RULES)?;
    kept.stop_last()?;
    let log = fs::read(kept.log()).context("cannot read the log")?;
    let events = event::parse(&log)?;
    event::expect_dense(&events)?;
    for process in processes {
        let of_process =
            |event: &&event::Event| event.field("SYSCALL", "pid") == process.to_string();
        let calls = calls(&events, 84).into_iter();
        let seen = calls.filter(of_process).count();
        ensure!(
            seen == usize::try_from(ROUNDS)?,
            "{seen} calls of {process}, not {ROUNDS}"
        );
    }
    Ok(())
}

/// The next daemon's configuration names another log: it continues with the locked log, which stays guarded.
fn second_log_is_refused(daemon: &Daemon) -> anyhow::Result<()> {
    const NOT_TAKEN: &str = "settings ignored because `-e 2` locked them: \
                             log_file = /tmp/elsewhere.log";
    let size = || Ok::<_, io::Error>(fs::metadata("/tmp/kept.log")?.len());
    let before = size().context("no log")?;
    let path = load::program("elsewhere", 10)?;
    let started = start(daemon, "elsewhere", RULES)?;
    locked(&started)?;
    ensure!(started.has_printed(NOT_TAKEN), "not printed: {NOT_TAKEN}");
    load::make_calls(&path)?;
    started.stop_last()?;
    ensure!(size().context("no log")? > before, "no event was written");
    ensure!(
        !Path::new("/tmp/elsewhere.log").exists(),
        "the daemon has opened another log"
    );
    let removed = shell("rm /tmp/kept.log")?;
    ensure!(!removed.status.success(), "root could remove the log");
    Ok(())
}

/// A second daemon of the same binary has its own pins, and the BPF program that identified the first one.
fn only_one_daemon_opens_locked_state(daemon: &Daemon) -> anyhow::Result<()> {
    let lived = start(daemon, "kept", RULES)?;
    locked(&lived)?;
    let place = format!("{BPF}/second");
    let options = ["--pins", &place, "--no-control"];
    let claim = format!("{PINS}/claim");
    let pin = format!("mkdir -m 700 {place} && bpftool prog pin pinned {claim} {place}/claim");
    let pinned = shell(&pin)?;
    ensure!(pinned.status.success(), "`{pin}`: {}", said(&pinned));
    let second = Daemon::start_with(LOCKING, "second", daemon.engine(), OTHER_RULES, &options)?;
    reload_rules(1).context("the first daemon may not write to guarded maps any more")?;
    second.kill()?;
    lived.stop_last()
}

/// After many rule replacements, each of which leaves a plan snapshot, the next daemon continues.
fn many_reloads_do_not_exhaust_guarded_maps(daemon: &Daemon) -> anyhow::Result<()> {
    /// More than the list of maps holds.
    const TIMES: u32 = 300;
    let lived = start(daemon, "kept", RULES)?;
    locked(&lived)?;
    reload_rules(TIMES)?;
    lived.stop_last()
}

/// Makes the daemon reload its rules so many times, as `auditctl -t` does: it writes to guarded maps.
fn reload_rules(times: u32) -> anyhow::Result<()> {
    let socket = UnixStream::connect(CONTROL).context("cannot connect to the daemon")?;
    let mut answers = BufReader::new(&socket).lines();
    for _ in 0..times {
        (&socket)
            .write_all(b"{\"version\":1,\"request\":\"trim\"}\n")
            .context("cannot send a request")?;
        let answer = answers.next().context("no answer")??;
        ensure!(answer == "\"done\"", "{answer}");
    }
    Ok(())
}

/// Every attempt fails, and nothing has changed.
fn ensure_kept(names: &[String]) -> anyhow::Result<()> {
    let free = shell(FREE)?;
    ensure!(free.status.success(), "not free: {}", said(&free));
    let before = fs::metadata("/tmp/kept.log").context("no log")?.len();
    let has_chattr = shell(HAS_CHATTR)?.status.success();
    let chattr = has_chattr.then_some(&CHATTR);
    for attempt in ATTEMPTS.iter().chain(chattr) {
        let tried = shell(attempt)?;
        let said = said(&tried);
        ensure!(!tried.status.success(), "root could `{attempt}`");
        // Messages of busybox and its mount for EPERM.
        let refused = [
            "Operation not permitted",
            "permission denied (are you root?)",
        ];
        ensure!(
            refused.iter().any(|words| said.contains(words)),
            "`{attempt}`: {said}"
        );
    }
    let (attribute, none) = ("trusted.tollgate", XattrFlags::empty());
    let set = |file| setxattr(file, attribute, b"1", none);
    ensure!(set("/tmp/free").is_ok(), "no attribute can be set at all");
    ensure!(
        set("/tmp/kept.log") == Err(PERM),
        "an attribute of the log can be set"
    );
    let set_acl = |file: &str| set_xattr(Path::new(file), ACL, acl(), ACL_BYTES);
    set_acl("/tmp/free").context("no access control list can be set at all")?;
    for guarded in ["/tmp/kept.log", "/tmp/earlier-name", LOCKING] {
        let error = set_acl(guarded).err();
        ensure!(
            error.as_ref().and_then(io::Error::raw_os_error) == Some(Errno::EPERM as i32),
            "the access control list of {guarded} can be set: {error:?}"
        );
    }
    let removed = removexattr("/tmp/kept.log", attribute);
    ensure!(
        removed == Err(PERM),
        "an attribute of the log can be removed: {removed:?}"
    );
    if has_chattr {
        ensure!(
            set_immutable("/tmp/flags")?,
            "a 32-bit program can set no flag at all"
        );
        let clear = shell("chattr -i /tmp/flags")?;
        ensure!(clear.status.success(), "{}", said(&clear));
        ensure!(
            !set_immutable("/tmp/kept.log")?,
            "a 32-bit program can set flags of the log"
        );
    }
    let other = "/tmp/locked-bpf/other";
    fs::create_dir_all(other).context("cannot create a directory beside the pins")?;
    let exchanged = renameat_with(CWD, other, CWD, PINS, RenameFlags::EXCHANGE);
    ensure!(
        exchanged == Err(PERM),
        "renameat2 of the pins: {exchanged:?}"
    );
    // The kernel does not detach a program while its link is open.
    let detached = shell(DETACH)?;
    ensure!(!detached.status.success(), "root could `{DETACH}`");
    ensure!(
        move_mount_to("/tmp/work").is_ok(),
        "no mount can be moved at all"
    );
    for place in [PINS, "/tmp", "/tmp/kept.log"] {
        let moved = move_mount_to(place);
        ensure!(moved == Err(PERM), "move_mount over {place}: {moved:?}");
    }
    let after = fs::metadata("/tmp/kept.log").context("no log")?.len();
    ensure!(after >= before, "the log is shorter");
    let now = pinned(PINS)?;
    ensure!(
        names.iter().all(|name| now.contains(name)),
        "of {names:?} only {now:?} are there"
    );
    Ok(())
}

/// Pinned objects after a handover: programs without users have been unpinned.
fn kept_by_next(names: &[String]) -> anyhow::Result<Vec<String>> {
    let now = pinned(PINS)?;
    let gone = names.iter().filter(|name| !now.contains(name));
    let gone: Vec<&String> = gone.filter(|name| !name.starts_with("prog-")).collect();
    ensure!(gone.is_empty(), "the next daemon has unpinned {gone:?}");
    Ok(now)
}

/// Makes a file immutable with a 32-bit syscall; returns whether it is.
fn set_immutable(path: &'static str) -> anyhow::Result<bool> {
    const OPEN: u32 = 5;
    const IOCTL: u32 = 54;
    const FS_IOC32_SETFLAGS: i64 = 0x4004_6602;
    let flags = Arg::Bytes(IFlags::IMMUTABLE.bits().to_ne_bytes().to_vec());
    let program = Program::new(Entry::Int80)
        .call(OPEN, args![path, 0])
        .call(IOCTL, vec![Arg::Result, FS_IOC32_SETFLAGS.into(), flags])
        .install("immutable")?;
    let ran = Command::new(&program).status();
    ensure!(
        ran.context("cannot start a program")?.success(),
        "the 32-bit program failed"
    );
    let file = File::open(path).with_context(|| format!("cannot open {path}"))?;
    let flags =
        ioctl_getflags(&file).with_context(|| format!("cannot read the flags of {path}"))?;
    Ok(flags.contains(IFlags::IMMUTABLE))
}

/// Runs a BPF program once from a tool of root that has the directory of pins open, as the daemon has.
fn run_program(daemon: &Daemon, name: &str) -> anyhow::Result<()> {
    const OPEN: u32 = 2;
    const BPF_CALL: u32 = 321;
    const BPF_PROG_TEST_RUN: i64 = 10;
    const BPF_PROG_GET_FD_BY_ID: i64 = 13;
    // The first and second descriptor of a process.
    const DIRECTORY: i64 = 3;
    const PROGRAM: i64 = 4;
    let shown = shell(&format!("bpftool prog show name {name}"))?;
    let number = said(&shown)
        .lines()
        .rev()
        .find_map(|line| line.split_once(": ")?.0.parse::<u32>().ok());
    let number = number.with_context(|| format!("no program {name}: {}", said(&shown)))?;
    let find = args![
        BPF_PROG_GET_FD_BY_ID,
        Arg::Words(args![i64::from(number), 0, 0]),
        24
    ];
    // The program, the size of its context, and its context: one argument.
    let argument = Arg::Bytes(DIRECTORY.to_ne_bytes().to_vec());
    let run = Arg::Words(args![PROGRAM, 0, 0, 0, 0, 8, argument, 0, 0, 0]);
    let path = Program::new(Entry::Syscall)
        .call(OPEN, args![PINS, 0])
        .call(BPF_CALL, find)
        .call(BPF_CALL, args![BPF_PROG_TEST_RUN, run, 80])
        .install("runner")?;
    daemon.run(0, &path, &[]).map(|_pid| ())
}

/// Bind-mounts a directory with the new mount API, as newer versions of mount(8) do.
fn move_mount_to(place: &str) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, "/tmp/programs", flags)?;
    move_mount(
        &tree,
        "",
        CWD,
        place,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    unmount(place, UnmountFlags::DETACH)
}

/// Names of pinned objects, without plan snapshots, which come and go.
pub(crate) fn pinned(pins: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(pins).context("cannot list the pinned objects")? {
        let name = entry.context("cannot list the pinned objects")?.file_name();
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with("plan-") {
            names.push(name);
        }
    }
    Ok(names)
}

pub(crate) fn shell(command: &str) -> anyhow::Result<Output> {
    let mut shell = Command::new("/bin/busybox");
    shell.args(["sh", "-c", command]);
    shell.output().context("cannot start a shell")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// The output of a program that must fail.
fn refused(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().context("cannot start a program")?;
    ensure!(!output.status.success(), "{command:?} succeeded");
    Ok(said(&output))
}
