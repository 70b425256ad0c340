//! Pinned state that outlives a daemon, and its use by the next daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bstr::ByteSlice as _;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::Signal;

use super::daemon::{Account, CommandOutput, Daemon, program};
use super::event;
use super::harness::needs;
use super::harness::wait_for;
use super::status_metrics::{BPF_STATS, Setting};
use super::step::step;
use super::test_dir::TestDir;

/// A private BPF file system.
pub(crate) struct Bpf(PathBuf);

impl Bpf {
    pub(crate) fn mount(test_dir: &TestDir) -> Self {
        let path = test_dir.own.join("bpf");
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "bpf", "bpf"]).arg(&path).status();
        needs(
            mounted.is_ok_and(|status| status.success()),
            "a bpf file system, to pin things on",
        );
        Self(path)
    }

    /// The directory of the daemon's pins.
    pub(crate) fn pins(&self) -> PathBuf {
        self.0.join("tollgate")
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg(&self.0).status();
    }
}

/// Names of pinned objects, without plan snapshots, which come and go.
pub(crate) fn names(pins: &Path) -> Vec<String> {
    let names = fs::read_dir(pins).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("plan-")).collect()
}

/// Sleeps. Only where the time itself is varied by the test, or limits the rate of a load: there is no condition
/// to wait for.
fn delay(time: Duration) {
    poll(&mut [], PollTimeout::try_from(time).unwrap()).unwrap();
}

/// Programs that open a file in a loop, and the number of opens.
pub(crate) struct Load {
    opens: AtomicU32,
    stop: AtomicBool,
}

impl Load {
    const OPENS: u32 = 50;
    /// Pause between two programs: the ring must hold all events until the next daemon has started.
    const INTERVAL: Duration = Duration::from_millis(10);

    /// Waits until so many more programs have run.
    #[track_caller]
    pub(crate) fn wait_for_programs(&self, more: u32) {
        let wanted = self.opens.load(Ordering::Relaxed) + more * Self::OPENS;
        wait_for("more opens", || {
            (self.opens.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    /// Runs two loops during `body`; returns the number of opens.
    pub(crate) fn during(test_dir: &TestDir, file: &Path, body: impl FnOnce(&Self)) -> usize {
        let load = Self {
            opens: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !load.stop.load(Ordering::Relaxed) {
                        test_dir.workload().burst(file, Self::OPENS);
                        load.opens.fetch_add(Self::OPENS, Ordering::Relaxed);
                        delay(Self::INTERVAL);
                    }
                });
            }
            body(&load);
            load.stop.store(true, Ordering::Relaxed);
        });
        usize::try_from(load.opens.into_inner()).unwrap()
    }
}

/// A rule for opens in a test directory, with a key.
pub(crate) fn opens(test_dir: &TestDir, key: &str) -> String {
    let id = test_dir.id;
    format!("-a always,exit -F arch=b64 -S open,openat -F uid={id} -k {key}\n")
}

/// Checks that the log has each open of the file once, and each serial once.
#[track_caller]
pub(crate) fn each_once(log: &Path, file: &Path, made: usize) {
    let log = fs::read(log).unwrap();
    assert!(log.ends_with(b"\n"), "a torn end");
    let known = [
        &b"type=SYSCALL "[..],
        b"type=CWD ",
        b"type=PATH ",
        b"type=PROCTITLE ",
    ];
    for line in log.lines() {
        let is_known = known.iter().any(|start| line.starts_with(start));
        assert!(
            is_known,
            "a torn line, or one of a loss: {}",
            line.as_bstr()
        );
    }
    event::expect_dense(&log);
    event::expect_opens(&log, file, made);
}

pub(crate) fn events_of_a_killed_daemon_are_written_once() {
    const KILLED: u64 = 20;
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let rules = opens(&test_dir, "once");
    let mut daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    let mut ended = None;
    let made = Load::during(&test_dir, &file, |load| {
        for round in 1..=KILLED {
            load.wait_for_programs(2);
            // Each round kills it at another instant of its work.
            delay(Duration::from_micros(7_919 * round % 10_000));
            daemon.kill();
            // Events while no daemon runs.
            load.wait_for_programs(u32::try_from(round).unwrap() / 2);
            daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
            assert!(daemon.has_printed("took over the BPF programs of the previous daemon"));
        }
        ended = Some(daemon);
    });
    let Account {
        summary, code, log, ..
    } = ended.unwrap().end(Signal::SIGTERM);
    assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
    assert_eq!(summary.matched, summary.written, "{summary:?}");
    each_once(&log, &file, made);
}

pub(crate) fn rule_change_across_restart_loses_no_event() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let id = test_dir.id;
    let other = format!(
        "{}-a always,exit -F arch=b64 -S rmdir,close -F uid=77 -k other\n",
        opens(&test_dir, "second")
    );
    let mut daemon = Daemon::start_pinned(&test_dir, &opens(&test_dir, "first"), &bpf.pins());
    let mut ended = None;
    let made = Load::during(&test_dir, &file, |load| {
        // The next daemon continues in the same way after an exit and after a kill.
        for (signal, rules) in [
            (Signal::SIGQUIT, other.clone()),
            (Signal::SIGKILL, opens(&test_dir, "third")),
            (Signal::SIGQUIT, other),
        ] {
            load.wait_for_programs(4);
            if signal == Signal::SIGQUIT {
                let said = daemon.end(signal).output;
                let goes_on = said
                    .iter()
                    .any(|line| line.contains("BPF programs stay attached"));
                assert!(goes_on, "{said:?}");
            } else {
                daemon.signal(signal);
                daemon.wait();
            }
            load.wait_for_programs(4);
            daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
        }
        load.wait_for_programs(4);
        ended = Some(daemon);
    });
    let Account { summary, log, .. } = ended.unwrap().end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    each_once(&log, &file, made);
    let log = fs::read(&log).unwrap();
    for key in ["first", "second", "third"] {
        let key = format!(" key=\"{key}\"");
        assert_ne!(log.find_iter(&key).count(), 0, "events with{key} of {id}");
    }
}

pub(crate) fn kill_during_replacement_leaves_no_partial_rules() {
    const KILLED: u64 = 16;
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let plain = opens(&test_dir, "plain");
    let more = format!(
        "-a always,exit -F arch=b64 -S rmdir,mkdir,close,chmod -F uid=77 -k other\n\
         -a always,exit -F arch=b64 -S open,openat -F dir={} -F uid={} -k more\n",
        test_dir.work.display(),
        test_dir.id
    );
    let mut daemon = Daemon::start_pinned(&test_dir, &plain, &bpf.pins());
    let links = || -> Vec<String> {
        let names = fs::read_dir(bpf.pins()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut links: Vec<String> = names.filter(|name| name.starts_with("link-")).collect();
        links.sort();
        links
    };
    let first = links();
    assert!(!first.is_empty());
    let mut ended = None;
    let made = Load::during(&test_dir, &file, |_load| {
        for round in 1..=KILLED {
            daemon.begin_to_replace(&more);
            // Each round kills it at another instant of the replacement.
            delay(Duration::from_micros(1_300 * round * round / 4));
            daemon.kill();
            daemon = Daemon::start_pinned(&test_dir, &plain, &bpf.pins());
        }
        ended = Some(daemon);
    });
    let daemon = ended.unwrap();
    wait_for("only the first hooks to be pinned", || {
        (links() == first).then_some(())
    });
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    each_once(&log, &file, made);
}

pub(crate) fn clean_exit_unpins_everything() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = Daemon::start_pinned(&test_dir, &opens(&test_dir, "end"), &bpf.pins());
        assert_ne!(fs::read_dir(bpf.pins()).unwrap().count(), 0);
        let status = CommandOutput::of(
            Command::new(program())
                .args(["status", "--control"])
                .arg(&daemon.control),
        );
        let line = format!("pinned      {}\n", bpf.pins().display());
        assert!(status.stdout.contains(&line), "{status:?}");
        assert_eq!(daemon.end(signal).code, Some(0));
        assert_eq!(fs::read_dir(bpf.pins()).unwrap().count(), 0, "{signal}");
    }
    // `tollgate unpin` removes the state of a stopped daemon and ends its auditing.
    let daemon = Daemon::start_pinned(&test_dir, &opens(&test_dir, "end"), &bpf.pins());
    let log = daemon.log.clone();
    let unpin = || CommandOutput::of(Command::new(program()).arg("unpin").arg(bpf.pins()));
    let busy = unpin();
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(busy.stderr.contains("a daemon uses"), "{busy:?}");
    daemon.kill();
    let before = fs::read(&log).unwrap().len();
    test_dir.workload().burst(&file, 10);
    let gone = unpin();
    assert_eq!(gone.code, Some(0), "{gone:?}");
    assert_eq!(fs::read_dir(bpf.pins()).unwrap().count(), 0);
    let daemon = Daemon::start_pinned(&test_dir, &opens(&test_dir, "end"), &bpf.pins());
    assert!(!daemon.has_printed("took over the BPF programs"));
    daemon.end(Signal::SIGTERM);
    assert_eq!(fs::read(&log).unwrap().len(), before, "nothing was left");
}

/// Skips the test on kernels where the state locked by `-e 2` cannot be removed.
pub(crate) fn needs_no_guard() {
    let test_dir = TestDir::new();
    // Without pins, the guard ends with its daemon.
    let locking = Daemon::start(&test_dir, &format!("{}-e 2\n", opens(&test_dir, "locking")));
    let said = locking.end(Signal::SIGTERM).output;
    let guards = said
        .iter()
        .any(|line| line.contains("are protected from root"));
    needs(
        !guards,
        "a kernel that takes no programs on functions: on others `-e 2` lasts as long as the machine",
    );
}

pub(crate) fn locked_rules_stay_attached() {
    const NOBODY: &str = "-a always,exit -F arch=b64 -S rmdir -F uid=77 -k nobody\n";
    let test_dir = TestDir::new();
    let locked = format!("{}-e 2\n", opens(&test_dir, "locked"));
    needs_no_guard();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let daemon = Daemon::start_pinned(&test_dir, &locked, &bpf.pins());
    test_dir.workload().burst(&file, 10);
    let lock = daemon.control.with_file_name("locked");
    let said = daemon.end(Signal::SIGTERM).output;
    assert!(
        said.iter()
            .any(|line| line.contains("BPF programs stay attached")),
        "{said:?}"
    );
    test_dir.workload().burst(&file, 10);
    let unpin = CommandOutput::of(Command::new(program()).arg("unpin").arg(bpf.pins()));
    assert_eq!(unpin.code, Some(1), "{unpin:?}");
    assert!(
        unpin.stderr.contains("until the machine restarts"),
        "{unpin:?}"
    );
    // The pinned state has the lock too.
    fs::remove_file(lock).unwrap();
    let daemon = Daemon::start_pinned(&test_dir, NOBODY, &bpf.pins());
    for said in ["the rule files are ignored", "took over the BPF programs"] {
        assert!(daemon.has_printed(said), "not said: {said}");
    }
    test_dir.workload().burst(&file, 10);
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    each_once(&log, &file, 30);
}

/// Only programs in use stay: pinned state does not grow with the number of daemons.
pub(crate) fn restarts_do_not_grow_pinned_state() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let rules = opens(&test_dir, "again");
    let _counted = Setting::set(BPF_STATS, "1");
    let mut daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    let mut made = 0;
    let mut pinned = Vec::new();
    for round in 0..6 {
        test_dir.workload().burst(&file, 10);
        made += 10;
        daemon.flush();
        // The first daemon's program keeps running; its runs are counted for the daemons that continue.
        let runs = daemon.status()["runs"].as_array().unwrap().clone();
        let runs = runs.iter().filter(|runs| runs["runs"].as_u64() >= Some(10));
        assert_ne!(runs.count(), 0, "round {round}: {}", daemon.status());
        pinned.push(names(&bpf.pins()).len());
        daemon.signal(if round % 2 == 0 {
            Signal::SIGQUIT
        } else {
            Signal::SIGKILL
        });
        daemon.wait();
        daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
        assert!(daemon.has_printed("took over the BPF programs"));
    }
    let [_, settled, later @ ..] = &*pinned else {
        panic!("{pinned:?}");
    };
    assert!(later.iter().all(|names| names == settled), "{pinned:?}");
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    each_once(&log, &file, made);
}

pub(crate) fn pinned_state_has_one_daemon() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let rules = opens(&test_dir, "one");
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    let second = CommandOutput::of(
        Command::new(program())
            .args(["daemon", "--foreground", "--no-control", "--rules"])
            .arg(test_dir.own.join("rules"))
            .arg("--log")
            .arg(test_dir.own.join("second.log"))
            .arg("--pins")
            .arg(bpf.pins()),
    );
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("a daemon uses"), "{second:?}");
    test_dir
        .workload()
        .run(&[step!("openat", libc::AT_FDCWD, "missing", 0)]);
    let stopped = daemon.end(Signal::SIGTERM);
    assert_ne!(stopped.summary.written, 0);
    assert_eq!(stopped.summary.lost, 0);
}
