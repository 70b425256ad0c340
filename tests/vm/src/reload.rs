//! Rule changes under load with the fentry engine, and many rules.
//!
//! The end-to-end tests of crate `tollgate` cover the tracepoint engine.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use support::event::{self, Event};
use support::wait::wait_for;

use crate::daemon::{Daemon, calls, replace};
use crate::load;
use crate::machine::{USER, make_file};
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "reload",
    engine: "fentry",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text(PLAIN),
    tests: &[
        ("hooks_follow_the_rules", hooks_follow_the_rules),
        (
            "invalid_rules_keep_the_old_ones",
            invalid_rules_keep_the_old_ones,
        ),
        (
            "rules_about_all_calls_need_no_other_engine",
            rules_about_all_calls_need_no_other_engine,
        ),
        // Last: its log takes long to search.
        (
            "no_event_is_lost_or_duplicated",
            no_event_is_lost_or_duplicated,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// As many rules as in public rule sets.
pub(crate) const MANY: Session = Session {
    name: "reload_200_rules",
    rules: Rules::Made(many),
    tests: &[("verifier_cost_is_limited", verifier_cost_is_limited)],
    ..SESSION
};

/// Different rules that all record the program: by syscall, by watches of two directories, by write access, with
/// other syscalls, and with syscalls of the other ABI.
const PLAIN: &str = "-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -k plain\n";
const LISTS: [(&str, &str); 6] = [
    ("plain", PLAIN),
    (
        "below",
        "-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -F dir=/tmp/work -k below\n",
    ),
    (
        "above",
        "-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -F dir=/tmp -k above\n",
    ),
    (
        "writes",
        "-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -F perm=wa -F dir=/tmp/work -k writes\n",
    ),
    (
        "more",
        "-a always,exit -F arch=b64 -S openat,rmdir,getpid,chmod -F uid=1001 -k more\n",
    ),
    (
        "both",
        "-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -k both\n-a always,exit -F arch=b32 -S open,mkdir -F uid=1001 -k both\n",
    ),
];

/// Number of replacements.
const REPLACED: usize = 60;

fn no_event_is_lost_or_duplicated(daemon: &Daemon) -> anyhow::Result<()> {
    // The log is in memory.
    const ROUNDS: u32 = 20;
    let path = load::program("replaced", ROUNDS)?;
    let links = first_links(daemon)?;
    let settled = || {
        wait_for("the hooks of the first rules and no other", || {
            let now = held(daemon, &["link_id"])?;
            Ok((now == links).then_some(()))
        })?;
        held(daemon, &["link_id", "prog_id", "map_id"])
    };
    // Each list once: afterwards all programs are loaded.
    for (_, rules) in LISTS.iter().rev() {
        replace(daemon, rules)?;
    }
    let before = settled()?;
    let (mut processes, replaced) = load::during(&path, 0, || replace_often(daemon, &path))?;
    processes.extend(replaced);
    let now = settled()?;
    ensure!(now == before, "{now} BPF objects, not {before} as before");

    // The log has events in the order of calls: with those of a program that is started last, it has all others. Events of
    // earlier tests are in it too, so that their number does not tell.
    let last = daemon.run_user(&path, &[])?.to_string();
    let events = wait_for("all events", || {
        let events = all(daemon)?;
        let opens = calls(&events, 257).into_iter();
        let of_last = opens.filter(|event| event.field("SYSCALL", "pid") == last);
        let is_last_open = of_last.count() == usize::try_from(ROUNDS)?;
        Ok(is_last_open.then_some(events))
    })?;
    load::expect_each_once(&events, &processes, ROUNDS)?;
    for event in calls(&events, 257) {
        let shown = event.summary();
        ensure!(shown == "openat=3 NORMAL:file", "{shown}");
    }
    event::expect_dense(&events)?;
    for (key, _) in LISTS {
        let with_key = |event: &&Event| event.field("SYSCALL", "key") == key;
        let events = events.iter().filter(with_key).count();
        ensure!(events != 0, "no event of {key}");
        println!(
            "vm: note {events} events by {key}, {} processes",
            processes.len()
        );
    }
    Ok(())
}

/// Replaces the rules repeatedly and runs the program once under each list. Returns the process ids.
fn replace_often(daemon: &Daemon, path: &Path) -> anyhow::Result<Vec<u32>> {
    let mut processes = Vec::new();
    for round in 1..=REPLACED {
        // Attaching and detaching hooks takes most of the time.
        let list = match round {
            20 => 4,
            40 => 5,
            _ => round % 4,
        };
        replace(daemon, LISTS.get(list).map_or(PLAIN, |(_, rules)| rules))?;
        if round <= 4 || list >= 4 {
            processes.push(load::make_calls(path)?);
        }
    }
    Ok(processes)
}

/// The fdinfo of each descriptor of the daemon.
fn infos(daemon: &Daemon) -> anyhow::Result<Vec<String>> {
    let open = fs::read_dir(format!("/proc/{}/fdinfo", daemon.pid()));
    let open = open.context("cannot list the daemon's descriptors")?;
    // A descriptor may have been closed since.
    let infos = open
        .flatten()
        .filter_map(|fd| fs::read_to_string(fd.path()).ok());
    Ok(infos.collect())
}

/// Number of fdinfo entries of the daemon with one of these keys: programs, maps, links.
///
/// # Errors
/// If its descriptors cannot be listed.
pub(crate) fn held(daemon: &Daemon, names: &[&str]) -> anyhow::Result<usize> {
    let infos = infos(daemon)?;
    let lines = infos.iter().flat_map(|info| info.lines());
    Ok(lines
        .filter(|line| names.iter().any(|name| line.starts_with(name)))
        .count())
}

/// Instructions that the verifier processed for a program.
fn verified(info: &str) -> Option<u64> {
    let mut fields = info.lines().filter_map(|line| line.split_once(":\t"));
    let (_, verified) = fields.find(|(field, _)| *field == "verified_insns")?;
    verified.parse().ok()
}

/// Events in the log.
fn all(daemon: &Daemon) -> anyhow::Result<Vec<Event>> {
    let log = fs::read(daemon.log()).context("cannot read the log")?;
    // The last event may be incomplete: it is left out.
    let whole = log.rfind("\ntype=SYSCALL ").map_or(0, |end| end + 1);
    event::parse(log.get(..whole).unwrap_or_default())
}

/// Links of the first rules, counted by the first test, before any are detached in the background.
fn first_links(daemon: &Daemon) -> anyhow::Result<usize> {
    static LINKS: OnceLock<usize> = OnceLock::new();
    if LINKS.get().is_none() {
        let links = held(daemon, &["link_id"])?;
        LINKS.get_or_init(|| links);
    }
    LINKS.get().copied().context("no links were counted")
}

fn hooks_follow_the_rules(daemon: &Daemon) -> anyhow::Result<()> {
    first_links(daemon)?;
    let calls = Program::new(Entry::Syscall).call(90, args!["file", 0o644]);
    let chmods = calls.install("chmods")?;
    let opens = load::program("opens", 1)?;
    replace(
        daemon,
        "-a always,exit -F arch=b64 -S chmod -F uid=1001 -k modes\n",
    )?;
    let unseen = daemon.run_user(&opens, &[])?;
    let pid = daemon.run_user(&chmods, &[])?;
    daemon.events("modes", pid, 1)?;
    ensure!(
        daemon.logged(unseen)?.is_empty(),
        "a syscall that no rule names is recorded"
    );
    replace(daemon, PLAIN)?;
    let unseen = daemon.run_user(&chmods, &[])?;
    let pid = daemon.run_user(&opens, &[])?;
    let events = daemon.events("plain", pid, 2)?;
    ensure!(events.len() == 2, "{}", event::show(&events));
    ensure!(
        daemon.logged(unseen)?.is_empty(),
        "a syscall that no rule names is recorded"
    );
    Ok(())
}

/// On the engine fentry, hooks of one syscall each stay; all others are seen at one raw tracepoint. Names and objects still come from inside
/// the kernel.
fn rules_about_all_calls_need_no_other_engine(daemon: &Daemon) -> anyhow::Result<()> {
    /// Functions inside the kernel, and those of the syscalls that wait or do not return.
    const MOST_LINKS: usize = 150;
    if !daemon.sees_all() {
        return Ok(()); // a kprobe for each call, which takes minutes under emulation: `differential_watched_raw` has them
    }
    let every = format!("{PLAIN}-a always,exit -F arch=b64 -S all -F uid=1001 -k every\n");
    let path = Program::new(Entry::Syscall)
        .call(90, args!["/tmp/work/file", 0o644])
        .call(110, args![])
        .call(84, args!["/tmp/work/missing"])
        .install("every")?;
    for _ in 0..2 {
        replace(daemon, &every)?;
        let links = held(daemon, &["link_id"])?;
        ensure!(links < MOST_LINKS, "{links} links");
        let pid = daemon.run_user(&path, &[])?;
        // The last call: the others are in the log before it.
        daemon.events("plain", pid, 1)?;
        let events = daemon.logged(pid)?;
        let of = |number: &str| {
            let is_call = |event: &&Event| event.syscall("syscall") == number;
            let found = events.iter().filter(is_call);
            found
                .map(|event| (event.field("SYSCALL", "key"), event.paths()))
                .collect::<Vec<_>>()
        };
        let every = |paths: &[&str]| {
            let paths = paths.iter().map(|&path| path.into()).collect();
            vec![("every".to_owned(), paths)]
        };
        let shown = event::show(&events);
        ensure!(of("90") == every(&["NORMAL /tmp/work/file"]), "{shown}");
        ensure!(of("110") == every(&[]), "{shown}");
        ensure!(of("84").len() == 1, "{shown}");
        replace(daemon, PLAIN)?;
    }
    Ok(())
}

fn invalid_rules_keep_the_old_ones(daemon: &Daemon) -> anyhow::Result<()> {
    let path = load::program("after_wrong_rules", 1)?;
    let wrong = "-a always,exit -S nosuch\n";
    ensure!(
        replace(daemon, wrong).is_err(),
        "invalid rules were accepted: {wrong}"
    );
    let pid = daemon.run_user(&path, &[])?;
    daemon.events("plain", pid, 2)?;
    Ok(())
}

/// 120 watches, and 80 syscall rules of both ABIs.
fn many() -> String {
    const CALLS: [&str; 20] = [
        "adjtimex",
        "settimeofday",
        "clock_settime",
        "sethostname",
        "setdomainname",
        "chmod",
        "fchmod",
        "chown",
        "setxattr",
        "removexattr",
        "unlink",
        "rename",
        "mount",
        "umount2",
        "init_module",
        "delete_module",
        "ptrace",
        "personality",
        "connect",
        "execve",
    ];
    let watches = (0..120).map(|watch| format!("-w /etc/watched/{watch} -p wa -k watch{watch}\n"));
    let rule = |call: &str, arch: &str, auid: u32| {
        format!(
            "-a always,exit -F arch={arch} -S {call} -F auid>={auid} -F auid!=unset -k {call}{auid}\n"
        )
    };
    let kinds = [("b64", 1000), ("b64", 2000), ("b32", 1000), ("b32", 2000)];
    let calls = CALLS
        .iter()
        .flat_map(|call| kinds.map(|(arch, auid)| rule(call, arch, auid)));
    watches.chain(calls).collect()
}

/// Maximum number of instructions that the verifier processes for a large rule set: a dozen tail-call targets. A
/// target per syscall would make forty. On 6.12 half of it is the text of paths, which each target that sees objects
/// can store: 1.62 million, of which the comparison with watches of one more tree for each object is 0.1, refused
/// opens are 0.06, and files that an open creates before it fails 0.07.
const MOST_VERIFIED: u64 = 1_650_000;

fn verifier_cost_is_limited(daemon: &Daemon) -> anyhow::Result<()> {
    let verified: u64 = infos(daemon)?
        .iter()
        .filter_map(|info| verified(info))
        .sum();
    println!("vm: note {verified} instructions verified for 200 rules");
    ensure!(verified <= MOST_VERIFIED, "{verified} instructions");
    Ok(())
}
