//! Endurance: after many repetitions nothing has grown and every count is exact.
//!
//! Each test has a short form, which takes seconds, and a long form with `TOLLGATE_ENDURE` set: `cargo xtask
//! endure` takes some ten minutes. `docs/endurance.md` has the figures.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bstr::ByteSlice as _;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde_json::json;
use support::wait::PATIENCE;

use super::daemon::{Account, Daemon};
use super::event;
use super::handover::opens;
use super::harness::{needs, wait_for};
use super::load::other_user;
use super::reload::{held, lists};
use super::step::step;
use super::test_dir::TestDir;
use super::workload::Workload;

/// Selects the long form.
const LONG: &str = "TOLLGATE_ENDURE";
/// Samples of the daemon from start to end.
const LOOKS: u32 = 20;
/// Samples until memory is stable: each buffer has been used and each rule matched once.
const WARM: usize = 4;
/// Growth after that which allocator rounding explains.
const SLACK_KIB: u64 = 1024;

/// Number of repetitions in the short and the long form.
fn times(few: u32, often: u32) -> u32 {
    if env::var_os(LONG).is_some() {
        often
    } else {
        few
    }
}

/// The daemon's resources over time.
#[derive(Debug)]
struct Watch {
    began: Instant,
    what: &'static str,
    looks: Vec<Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    /// Memory without the ring.
    resident_kib: u64,
    descriptors: usize,
    threads: usize,
}

impl Watch {
    fn new(what: &'static str) -> Self {
        if env::var_os(LONG).is_some() {
            println!("{what:>10} | seconds | RSS beside the ring, KiB | descriptors | threads");
        }
        Self {
            began: Instant::now(),
            what,
            looks: Vec::new(),
        }
    }

    /// Samples a daemon; the long form prints the sample.
    fn look(&mut self, done: u32, daemon: &Daemon) {
        let of = |name: &str| format!("/proc/{}/{name}", daemon.pid());
        let count = |name: &str| fs::read_dir(of(name)).unwrap().count();
        let look = Look {
            resident_kib: beside_ring_kib(&fs::read_to_string(of("smaps")).unwrap()),
            descriptors: count("fd"),
            threads: count("task"),
        };
        if env::var_os(LONG).is_some() {
            let seconds = self.began.elapsed().as_secs();
            let Look {
                resident_kib,
                descriptors,
                threads,
            } = look;
            println!(
                "{done:>10} | {seconds:>7} | {resident_kib:>24} | {descriptors:>11} | {threads:>7}"
            );
        }
        self.looks.push(look);
    }

    /// Samples a daemon again until it is as small as in the warm-up: buffers and threads are freed, and hooks
    /// detached, a moment after their last use. Fails if anything has grown.
    #[track_caller]
    fn is_flat(&mut self, done: u32, daemon: &Daemon) {
        let deadline = Instant::now() + PATIENCE;
        while self.growth().is_some() && Instant::now() < deadline {
            poll(&mut [], PollTimeout::from(50_u8)).unwrap();
            self.looks.pop();
            self.look(done, daemon);
        }
        assert_eq!(self.growth(), None, "with {}: {:#?}", self.what, self.looks);
    }

    /// What has grown since the warm-up.
    fn growth(&self) -> Option<&'static str> {
        let (warm, later) = self.looks.split_at(WARM);
        let most = warm.iter().map(|look| look.resident_kib).max().unwrap();
        let last = later.last().unwrap();
        let most_of = |of: fn(&Look) -> usize| warm.iter().map(of).max().unwrap();
        if last.resident_kib > most + SLACK_KIB {
            Some("memory")
        } else if last.threads > most_of(|look| look.threads) {
            Some("threads")
        } else if last.descriptors > most_of(|look| look.descriptors) {
            Some("descriptors")
        } else {
            None
        }
    }
}

/// The resident size in `smaps` without BPF maps: the daemon maps the ring twice.
fn beside_ring_kib(maps: &str) -> u64 {
    let (mut sum, mut of_bpf) = (0, false);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("Rss:") if !of_bpf => sum += words.next().unwrap().parse::<u64>().unwrap(),
            Some(word) if !word.ends_with(':') => of_bpf = line.ends_with("anon_inode:bpf-map"),
            _ => {}
        }
    }
    assert!(sum > 0, "no smaps: {maps}");
    sum
}

/// Rules are replaced with new ones under load: no event is lost, and nothing remains of deleted rules.
pub(crate) fn many_rule_replacements() {
    const OPENS: u32 = 25;
    let replaced = times(200, 10_000);
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let lists = lists(&test_dir);
    let rules = |round: u32| {
        // Attaching and detaching hooks takes most of the time.
        let list = match round % 30 {
            10 => 3,
            20 => 4,
            _ => round % 3,
        };
        let list = &lists[usize::try_from(list).unwrap()];
        format!("{list}-a always,exit -F arch=b64 -S rmdir -F uid=77 -k only{round}\n")
    };
    let daemon = Daemon::start(&test_dir, &rules(0));
    let (made, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut watch = Watch::new("reloads");
    let mut bpf = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                test_dir.workload().burst(&file, OPENS);
                made.fetch_add(OPENS, Ordering::Relaxed);
                // Without a limit it would fill the disk.
                poll(&mut [], PollTimeout::from(10_u8)).unwrap();
            }
        });
        let every = replaced / LOOKS;
        for round in 1..=replaced {
            let taken = daemon.replace(&rules(round));
            if !taken {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(taken, "replacement {round} is refused");
            if round % every == 0 {
                watch.look(round, &daemon);
                bpf.push(held(daemon.pid()));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    watch.is_flat(replaced, &daemon);
    // Hooks are detached in the background.
    let most = bpf.iter().take(WARM).max().copied();
    wait_for("no more BPF objects than in the warm-up", || {
        (Some(held(daemon.pid())) <= most).then_some(())
    });
    let Account {
        summary, code, log, ..
    } = daemon.end(Signal::SIGTERM);
    assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
    assert_eq!(summary.matched, summary.written);
    let log = fs::read(log).unwrap();
    let made = usize::try_from(made.into_inner()).unwrap();
    assert!(made > 0, "nothing was opened meanwhile");
    event::expect_opens(&log, &file, made);
}

/// A program that exits at once, without the dynamic linker, in which a usual program spends most of its time.
fn shortest_program(test_dir: &TestDir) -> PathBuf {
    const SOURCE: &str = "#include <sys/syscall.h>\n\
         void _start(void)\n\
         {\n\
         \tasm volatile(\"syscall\" : : \"a\"(SYS_exit), \"D\"(0));\n\
         \t__builtin_unreachable();\n\
         }\n";
    let built = test_dir.compiled("short", SOURCE, &["-static", "-nostdlib"]);
    test_dir.program("short", built.to_str().unwrap())
}

/// Each process has its own PID, program image and exit; the daemon caches something of each.
pub(crate) fn many_short_processes() {
    const WORKERS: u32 = 2;
    let rounds = LOOKS;
    let each = times(5000, 1_000_000) / rounds / WORKERS;
    let test_dir = TestDir::new();
    let program = shortest_program(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S execve -F uid={} -k short\n",
        test_dir.id
    );
    let log = test_dir.own.join("audit.log");
    let daemon = Daemon::start_configured(&test_dir, &rule, &log, ROTATED_BY_SIGNAL);
    let mut watch = Watch::new("processes");
    let mut logged = 0;
    for round in 1..=rounds {
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| test_dir.workload().spawn(&program, each));
            }
        });
        daemon.flush();
        logged += logged_and_removed(&daemon, &log, "short");
        watch.look(round * each * WORKERS, &daemon);
    }
    watch.is_flat(rounds * each * WORKERS, &daemon);
    let Account { summary, code, .. } = daemon.end(Signal::SIGTERM);
    let made = u64::from(rounds * each * WORKERS);
    assert_eq!((summary.matched, summary.written), (made, made));
    assert_eq!((summary.lost, code), (0, Some(0)));
    assert_eq!(logged, made, "programs in the log");
    assert_eq!(
        logged_with(&log, "short"),
        0,
        "all were in the log when it was rotated"
    );
}

/// `auditd.conf` of a log that becomes `audit.log.1` when the daemon gets `SIGUSR1`.
const ROTATED_BY_SIGNAL: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\nnum_logs = 2\n\
     max_log_file_action = ROTATE\nmax_log_file = 1000\n";

/// Rotates a log; removes the old one and returns the number of its calls with this key.
#[track_caller]
fn logged_and_removed(daemon: &Daemon, log: &Path, key: &str) -> u64 {
    let old = log.with_extension("log.1");
    daemon.signal(Signal::SIGUSR1);
    wait_for("the new log", || {
        (old.exists() && log.exists()).then_some(())
    });
    // Batches that were taken before still go to the old one.
    daemon.flush();
    let logged = logged_with(&old, key);
    fs::remove_file(&old).unwrap();
    logged
}

/// Calls with a key in a log.
fn logged_with(log: &Path, key: &str) -> u64 {
    let text = fs::read(log).unwrap();
    let key = format!(" key=\"{key}\"");
    let lines = text
        .lines()
        .filter(|line| line.starts_with(b"type=SYSCALL ") && line.contains_str(&key));
    u64::try_from(lines.count()).unwrap()
}

/// A user floods with all processors, and the daemon stands still for one second of five: of another user, who makes
/// 1,000 calls a second, no event is lost.
pub(crate) fn flood_costs_no_event_of_another_user_for_long() {
    /// Tenths of a second.
    const SECOND: u32 = 10;
    /// In each period of five seconds.
    const STOPS: u32 = 5;
    const GOES_ON: u32 = STOPS + SECOND;
    const CALLS: u32 = 100;
    let end = times(2, 30) * SECOND;
    let at = |tenths: u32| Duration::from_millis(100) * tenths;
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let other = other_user(&test_dir);
    let rules = format!(
        "-a always,exit -F arch=b64 -S openat -F uid={} -k flood\n\
         -a always,exit -F arch=b64 -S rmdir -F uid={other} -k other\n",
        test_dir.id
    );
    let log = test_dir.own.join("audit.log");
    let daemon = Daemon::start_configured(&test_dir, &rules, &log, ROTATED_BY_SIGNAL);
    let processors = thread::available_parallelism().unwrap().get();
    let steps = vec![step!("rmdir", "/etc/missing"); usize::try_from(CALLS).unwrap()];
    let workload = Workload::new(other, &test_dir.work);
    let mut logged = 0;
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while began.elapsed() < at(end) {
                    test_dir.workload().burst(&file, 10_000);
                }
            });
        }
        for now in 0..end {
            match now % (5 * SECOND) {
                STOPS => daemon.signal(Signal::SIGSTOP),
                GOES_ON => daemon.signal(Signal::SIGCONT),
                later if later > GOES_ON && later % SECOND == 0 => {
                    logged += logged_and_removed(&daemon, &log, "other");
                }
                _ => {}
            }
            workload.run(&steps);
            let rest = at(now + 1).saturating_sub(began.elapsed());
            poll(&mut [], PollTimeout::try_from(rest).unwrap()).unwrap();
        }
    });
    let took = began.elapsed();
    daemon.flush();
    let by_owner = daemon.status()["by_owner"].clone();
    let Account { summary, .. } = daemon.end(Signal::SIGTERM);
    logged += logged_with(&log, "other");
    if env::var_os(LONG).is_some() {
        println!("{took:.1?}: {summary:?}, {logged} of the other user");
    }
    assert!(summary.lost > 0, "the flood fits into the ring");
    let of_user = json!([{"uid": test_dir.id, "namespace": null, "lost": summary.lost}]);
    assert_eq!(by_owner, of_user);
    assert_eq!(
        logged,
        u64::from(end * CALLS),
        "events of the other user: {summary:?}"
    );
}

/// A log of gigabytes must not evict other files from the page cache.
pub(crate) fn a_long_log_leaves_the_page_cache() {
    const MIB: u64 = 1 << 20;
    let test_dir = TestDir::new();
    needs(
        statfs(&test_dir.own).unwrap().filesystem_type() != TMPFS_MAGIC,
        "a directory for tests on a disk",
    );
    let file = test_dir.file("file", "");
    let daemon = Daemon::start(&test_dir, &opens(&test_dir, "long"));
    // Some 750 bytes each.
    test_dir.workload().burst(&file, 100_000);
    daemon.flush();
    let size = fs::metadata(&daemon.log).unwrap().len();
    assert!(size > 64 * MIB, "{size}");
    let mut fincore = Command::new("fincore");
    fincore.args(["--bytes", "--noheadings", "--output", "RES"]);
    fincore.arg(&daemon.log);
    // The newest 32 MiB, and the data written since the last flush.
    wait_for("the old part of the log to leave", || {
        let said = fincore.output().unwrap();
        let resident = String::from_utf8(said.stdout).unwrap();
        let resident: u64 = resident.trim().parse().unwrap();
        (resident <= 48 * MIB).then_some(())
    });
    assert_eq!(daemon.end(Signal::SIGTERM).code, Some(0));
}
