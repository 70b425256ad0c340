//! What outlives a daemon, and what the next one makes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bstr::ByteSlice as _;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::Signal;

use super::calls;
use super::daemon::{Account, CommandOutput, Daemon, program};
use super::event;
use super::harness::needs;
use super::harness::wait_for;
use super::outside::{BPF_STATS, Setting};
use super::place::Place;
use super::step::step;

/// A bpf file system of a test's own.
pub(crate) struct Bpf(PathBuf);

impl Bpf {
    pub(crate) fn mount(place: &Place) -> Self {
        let path = place.own.join("bpf");
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "bpf", "bpf"]).arg(&path).status();
        needs(
            mounted.is_ok_and(|status| status.success()),
            "a bpf file system, to pin things on",
        );
        Self(path)
    }

    /// Where a daemon pins.
    pub(crate) fn pins(&self) -> PathBuf {
        self.0.join("tollgate")
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg(&self.0).status();
    }
}

/// What is pinned, but for notes about plans, which come and go.
pub(crate) fn names(pins: &Path) -> Vec<String> {
    let names = fs::read_dir(pins).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("plan-")).collect()
}

/// Lets time pass where the time itself is what the test varies, or limits a load.
fn delay(time: Duration) {
    poll(&mut [], PollTimeout::try_from(time).unwrap()).unwrap();
}

/// Programs that open a file without end, and how often they have.
struct Load {
    opens: AtomicU32,
    stop: AtomicBool,
}

impl Load {
    const OPENS: u32 = 50;
    /// Between two programs, so that the ring has room for all events until the next daemon has started.
    const INTERVAL: Duration = Duration::from_millis(10);

    /// Waits until a number of programs more have run.
    #[track_caller]
    fn wait_for_programs(&self, more: u32) {
        let wanted = self.opens.load(Ordering::Relaxed) + more * Self::OPENS;
        wait_for("more opens", || {
            (self.opens.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }

    /// Runs two of them while `body` does something; how often they have opened the file.
    fn during(place: &Place, file: &Path, body: impl FnOnce(&Self)) -> usize {
        let load = Self {
            opens: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !load.stop.load(Ordering::Relaxed) {
                        place.workload().burst(file, Self::OPENS);
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

/// A rule about the opens of a place, under a key.
pub(crate) fn opens(place: &Place, key: &str) -> String {
    let id = place.id;
    format!("-a always,exit -F arch=b64 -S open,openat -F uid={id} -k {key}\n")
}

/// Looks whether the log has each open of the file once, and no serial is missing or there twice.
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

pub(crate) fn what_a_killed_daemon_leaves_is_written_once() {
    const KILLED: u64 = 20;
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let rules = opens(&place, "once");
    let mut daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    let mut ended = None;
    let made = Load::during(&place, &file, |load| {
        for round in 1..=KILLED {
            load.wait_for_programs(2);
            // At another instant of its work each time.
            delay(Duration::from_micros(7_919 * round % 10_000));
            daemon.signal(Signal::SIGKILL);
            daemon.wait();
            // Events without a daemon.
            load.wait_for_programs(u32::try_from(round).unwrap() / 2);
            daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
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

pub(crate) fn other_rules_are_put_in_force_without_a_gap() {
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let id = place.id;
    let other = format!(
        "{}-a always,exit -F arch=b64 -S rmdir,close -F uid=77 -k other\n",
        opens(&place, "second")
    );
    let mut daemon = Daemon::start_pinned(&place, &opens(&place, "first"), &bpf.pins());
    let mut ended = None;
    let made = Load::during(&place, &file, |load| {
        // Who leaves when asked, and who is killed, is followed in the same way.
        for (signal, rules) in [
            (Signal::SIGQUIT, other.clone()),
            (Signal::SIGKILL, opens(&place, "third")),
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
            daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
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

pub(crate) fn a_daemon_killed_amid_a_replacement_leaves_no_trace_of_it() {
    const KILLED: u64 = 16;
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let plain = opens(&place, "plain");
    let more = format!(
        "-a always,exit -F arch=b64 -S rmdir,mkdir,close,chmod -F uid=77 -k other\n\
         -a always,exit -F arch=b64 -S open,openat -F dir={} -F uid={} -k more\n",
        place.work.display(),
        place.id
    );
    let mut daemon = Daemon::start_pinned(&place, &plain, &bpf.pins());
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
    let made = Load::during(&place, &file, |_load| {
        for round in 1..=KILLED {
            daemon.begin_to_replace(&more);
            // At another instant of the replacement each time.
            delay(Duration::from_micros(1_300 * round * round / 4));
            daemon.signal(Signal::SIGKILL);
            daemon.wait();
            daemon = Daemon::start_pinned(&place, &plain, &bpf.pins());
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

pub(crate) fn an_orderly_end_leaves_nothing_pinned() {
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = Daemon::start_pinned(&place, &opens(&place, "end"), &bpf.pins());
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
    // What one has left that nobody follows is taken away by hand, and audits no more.
    let daemon = Daemon::start_pinned(&place, &opens(&place, "end"), &bpf.pins());
    let log = daemon.log.clone();
    let unpin = || CommandOutput::of(Command::new(program()).arg("unpin").arg(bpf.pins()));
    let busy = unpin();
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(busy.stderr.contains("another daemon uses"), "{busy:?}");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let before = fs::read(&log).unwrap().len();
    place.workload().burst(&file, 10);
    let gone = unpin();
    assert_eq!(gone.code, Some(0), "{gone:?}");
    assert_eq!(fs::read_dir(bpf.pins()).unwrap().count(), 0);
    let daemon = Daemon::start_pinned(&place, &opens(&place, "end"), &bpf.pins());
    assert!(!daemon.has_printed("took over the BPF programs"));
    daemon.end(Signal::SIGTERM);
    assert_eq!(fs::read(&log).unwrap().len(), before, "nothing was left");
}

/// Skips the test where what `-e 2` locks could not be taken away after it.
pub(crate) fn needs_no_guard() {
    let place = Place::new();
    // Not pinned, a guard ends with its daemon.
    let trial = Daemon::start(&place, &format!("{}-e 2\n", opens(&place, "trial")));
    let said = trial.end(Signal::SIGTERM).output;
    let guards = said.iter().any(|line| line.contains("tools are kept from"));
    needs(
        !guards,
        "a kernel that takes no programs on functions: on others `-e 2` lasts as long as the machine",
    );
}

pub(crate) fn what_is_locked_goes_on_after_its_daemon() {
    const NOBODY: &str = "-a always,exit -F arch=b64 -S rmdir -F uid=77 -k nobody\n";
    let place = Place::new();
    let locked = format!("{}-e 2\n", opens(&place, "locked"));
    needs_no_guard();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let daemon = Daemon::start_pinned(&place, &locked, &bpf.pins());
    place.workload().burst(&file, 10);
    let lock = daemon.control.with_file_name("locked");
    let said = daemon.end(Signal::SIGTERM).output;
    assert!(
        said.iter()
            .any(|line| line.contains("BPF programs stay attached")),
        "{said:?}"
    );
    place.workload().burst(&file, 10);
    let unpin = CommandOutput::of(Command::new(program()).arg("unpin").arg(bpf.pins()));
    assert_eq!(unpin.code, Some(1), "{unpin:?}");
    assert!(unpin.stderr.contains("locked until reboot"), "{unpin:?}");
    // What is pinned says it as well.
    fs::remove_file(lock).unwrap();
    let daemon = Daemon::start_pinned(&place, NOBODY, &bpf.pins());
    for said in ["the rule files are ignored", "took over the BPF programs"] {
        assert!(daemon.has_printed(said), "not said: {said}");
    }
    place.workload().burst(&file, 10);
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    each_once(&log, &file, 30);
}

/// Programs stay that run, and no others: what is pinned does not grow with the number of daemons.
pub(crate) fn restarts_add_nothing() {
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let rules = opens(&place, "again");
    let _counted = Setting::set(BPF_STATS, "1");
    let mut daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    let mut made = 0;
    let mut pinned = Vec::new();
    for round in 0..6 {
        place.workload().burst(&file, 10);
        made += 10;
        daemon.flush();
        // The first daemon's program goes on, and is counted for whoever has gone on with it.
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
        daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
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

pub(crate) fn what_cannot_be_read_is_not_misread() {
    // Where the header has the version of what is in the ring.
    const WIRE: usize = 12;
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let rules = opens(&place, "format");
    let daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    place.workload().burst(&file, 100);
    calls::poke(&bpf.pins().join("header"), WIRE, 4711);
    let daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    assert!(daemon.has_printed("its events are in format 4711, and this version reads format"));
    place.workload().burst(&file, 10);
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    let log = fs::read(&log).unwrap();
    let name = format!(" name=\"{}\" ", file.display());
    assert_eq!(log.find_iter(&name).count(), 10, "those of its own");
    let told = log
        .lines()
        .find(|line| line.starts_with(b"type=DAEMON_ERR "));
    let told = told.expect("a record").to_str().unwrap();
    let (_, rest) = told.split_once("op=lost-ring bytes=").unwrap();
    let bytes: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(bytes > 100 * 200, "{told}");
}

pub(crate) fn another_build_writes_what_it_finds() {
    // Where the header has the hash of the programs.
    const OBJECT: usize = 16;
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let rules = opens(&place, "build");
    let daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    place.workload().burst(&file, 100);
    daemon.flush();
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    place.workload().burst(&file, 1000);
    calls::poke(&bpf.pins().join("header"), OBJECT, 4711);
    let daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    assert!(daemon.has_printed("was another build"));
    place.workload().burst(&file, 10);
    let Account { log, .. } = daemon.end(Signal::SIGTERM);
    each_once(&log, &file, 1110);
}

pub(crate) fn one_daemon_at_a_time_uses_what_is_pinned() {
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let rules = opens(&place, "one");
    let daemon = Daemon::start_pinned(&place, &rules, &bpf.pins());
    let second = CommandOutput::of(
        Command::new(program())
            .args(["daemon", "--foreground", "--no-control", "--rules"])
            .arg(place.own.join("rules"))
            .arg("--log")
            .arg(place.own.join("second.log"))
            .arg("--pins")
            .arg(bpf.pins()),
    );
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("another daemon uses"), "{second:?}");
    place
        .workload()
        .run(&[step!("openat", libc::AT_FDCWD, "missing", 0)]);
    let stopped = daemon.end(Signal::SIGTERM);
    assert_ne!(stopped.summary.written, 0);
    assert_eq!(stopped.summary.lost, 0);
}
