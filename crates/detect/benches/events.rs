//! What reading an event, mapping it and matching it with rules costs, in CPU time.
//!
//! `cargo bench -p detect -- [--log FILE] RULES...` reads a log, or else events like those that the rule sets of CIS
//! record: of eight, four opens, one that failed, a rename, a program and a connection. The three variants take turns.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement prints its result, and ends if it cannot be made"
)]

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use detect::mapping::{Mapping, ProcessTable};
use detect::rule_files::RuleFiles;
use detect::sigma::Engine;
use detect::sigma::placeholder::Placeholders;
use detect::sigma::rsigma::Rsigma;
use logs::accounts::Accounts;
use logs::event_reader::EventReader;
use logs::log_set::LogSet;
use nix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 7;
const EVENTS: u32 = 40_000;

fn main() {
    let mut log = None;
    let mut rules = Vec::new();
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            // `cargo bench` adds it.
            Some("--bench") => {}
            Some("--log") => log = words.next().map(PathBuf::from),
            _ => rules.push(PathBuf::from(word)),
        }
    }
    let text = match &log {
        Some(_) => String::new(),
        None => (0..EVENTS).map(event).collect(),
    };
    // Not copied for each run.
    let text: &'static [u8] = text.leak().as_bytes();
    let open = || match &log {
        Some(path) => LogSet::files(&[path]).expect("the log can be read"),
        None => LogSet::stream(Path::new("generated"), Box::new(Cursor::new(text))),
    };
    let loaded = RuleFiles::load(&rules, &Placeholders::default());
    println!("{} rules", loaded.engine.rules().len());
    let none = Rsigma::default();
    let mut times = [const { Vec::new() }; 3];
    let mut last = (0, 0);
    for _ in 0..ROUNDS {
        for (variant, times) in times.iter_mut().enumerate() {
            let engine: Option<&dyn Engine> = match variant {
                0 => None,
                1 => Some(&none),
                _ => Some(&*loaded.engine),
            };
            let before = cpu_time();
            last = run(open(), engine);
            times.push((cpu_time() - before).as_nanos() / last.0.max(1));
        }
    }
    println!("{} events, {} matches", last.0, last.1);
    for (name, times) in ["read", "read, map", "read, map, match"]
        .iter()
        .zip(&mut times)
    {
        times.sort_unstable();
        let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{name}: {median} ns an event ({least} to {most})");
    }
}

/// Reads a log, and returns the numbers of events and matches.
fn run(logs: LogSet, engine: Option<&dyn Engine>) -> (u128, usize) {
    let mut reader = EventReader::new(logs);
    let mut mapping = Mapping::new(Accounts::default(), ProcessTable::default());
    let (mut events, mut matches) = (0, 0);
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().expect("the log can be read") {
        if let Some(engine) = engine {
            mapping.find(engine, event, &mut found);
            matches += found.len();
            found.clear();
        }
        events += 1;
    }
    (events, matches)
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("the clock exists")
        .into()
}

/// An event of eight kinds in turn.
fn event(number: u32) -> String {
    let stamp = format!(
        "msg=audit({}.{:03}:{number}): ",
        1_790_000_000 + number / 500,
        number % 500
    );
    let pid = 1000 + number % 3000;
    let syscall = |number: u32, result: &str, items: u32| {
        format!(
            "type=SYSCALL {stamp}arch=c000003e syscall={number} {result} a0=ffffff9c a1=7ffd1c2a a2=0 a3=0 items={items} \
             ppid={} pid={pid} auid=1000 uid=1000 gid=1000 euid=1000 suid=1000 fsuid=1000 egid=1000 sgid=1000 \
             fsgid=1000 tty=pts0 ses=3 comm=\"worker\" exe=\"/usr/lib/app/worker{}\" subj=unconfined key=\"access\"\n",
            pid - 1,
            pid % 40,
        )
    };
    let cwd = format!("type=CWD {stamp}cwd=\"/srv/app/data\"\n");
    let path = |item: u32, name: &str, kind: &str| {
        format!(
            "type=PATH {stamp}item={item} name=\"{name}\" inode={number} dev=08:01 mode=0100644 ouid=1000 ogid=1000 \
             rdev=00:00 nametype={kind} cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n"
        )
    };
    let title = format!(
        "type=PROCTITLE {stamp}proctitle=2F7573722F6C69622F6170702F776F726B6572002D2D71756575650033\n"
    );
    let file = format!("/srv/app/data/part{}/file{number}.db", number % 100);
    match number % 8 {
        4 => syscall(257, "success=no exit=-13", 1) + &cwd + &path(0, &file, "NORMAL") + &title,
        5 => {
            syscall(82, "success=yes exit=0", 4)
                + &cwd
                + &path(0, "/srv/app/data/", "PARENT")
                + &path(1, "/srv/app/data/", "PARENT")
                + &path(2, "state.new", "DELETE")
                + &path(3, "state", "CREATE")
                + &title
        }
        6 => {
            let command = ["ls", "grep", "python3", "sed", "cat", "sh"][number as usize / 8 % 6];
            syscall(59, "success=yes exit=0", 2)
                + &format!(
                    "type=EXECVE {stamp}argc=4 a0=\"/usr/bin/{command}\" a1=\"--quiet\" a2=\"-n\" a3=\"/srv/app/data/x{number}\"\n"
                )
                + &cwd
                + &path(0, &format!("/usr/bin/{command}"), "NORMAL")
                + &path(1, "/lib64/ld-linux-x86-64.so.2", "NORMAL")
                + &title
        }
        7 => {
            syscall(42, "success=yes exit=0", 0)
                + &format!(
                    "type=SOCKADDR {stamp}saddr=020001BB0A0000{:02X}0000000000000000\n",
                    number % 256
                )
                + &title
        }
        _ => syscall(257, "success=yes exit=3", 1) + &cwd + &path(0, &file, "NORMAL") + &title,
    }
}
