//! State that another build, or a daemon with other options, has pinned.

use std::fs;
use std::path::Path;
use std::thread;

use bstr::ByteSlice as _;
use nix::sys::signal::Signal;

use super::daemon::{Account, Daemon};
use super::event;
use super::handover::{Bpf, Load, each_once, opens};
use super::harness::wait_for;
use super::raw_syscalls;
use super::test_dir::TestDir;

pub(crate) fn unknown_ring_format_is_not_decoded() {
    // Offset of the ring's format version in the header.
    const WIRE: usize = 12;
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let rules = opens(&test_dir, "format");
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    daemon.kill();
    test_dir.workload().burst(&file, 100);
    raw_syscalls::poke(&bpf.pins().join("header"), WIRE, 4711);
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    assert!(daemon.has_printed("its events are in format 4711, and this version reads format"));
    test_dir.workload().burst(&file, 10);
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

/// Changes the hash of the pinned programs.
fn pretend_other_build(bpf: &Bpf) {
    // Its offset in the header.
    const OBJECT: usize = 16;
    raw_syscalls::poke(&bpf.pins().join("header"), OBJECT, 4711);
}

pub(crate) fn other_build_writes_pending_events() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let rules = opens(&test_dir, "build");
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    test_dir.workload().burst(&file, 100);
    daemon.flush();
    daemon.kill();
    test_dir.workload().burst(&file, 1000);
    pretend_other_build(&bpf);
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    assert!(daemon.has_printed("took over from another build"));
    test_dir.workload().burst(&file, 10);
    let Account { log, .. } = daemon.end(Signal::SIGTERM);
    each_once(&log, &file, 1110);
}

pub(crate) fn other_build_is_followed_without_a_gap() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let rules = opens(&test_dir, "build");
    let first = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    let mut ended = None;
    let made = Load::during(&test_dir, &file, |load| {
        load.wait_for_programs(4);
        first.end(Signal::SIGQUIT);
        pretend_other_build(&bpf);
        load.wait_for_programs(4);
        let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
        assert!(daemon.has_printed("took over from another build"));
        load.wait_for_programs(4);
        ended = Some(daemon);
    });
    let Account { summary, log, .. } = ended.unwrap().end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    let log = fs::read(&log).unwrap();
    event::expect_dense(&log);
    let found = event::opens(&log, &file);
    // A call that ends while the plan is switched is recorded by both builds.
    let most = made + thread::available_parallelism().unwrap().get();
    assert!((made..=most).contains(&found), "{found} of {made} opens");
}

/// Records of calls that can be missing, by reason.
fn gaps(log: &Path) -> Vec<String> {
    let log = fs::read(log).unwrap();
    let gaps = log.lines().filter_map(|line| {
        let (_, rest) = line.to_str().ok()?.split_once("op=lost-calls reason=\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    gaps.collect()
}

pub(crate) fn interrupted_takeover_is_reported() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let rules = opens(&test_dir, "gap");
    let note = bpf.pins().join("restarting");
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    daemon.kill();
    // As if it had been killed after it had ended the recording of another build.
    fs::hard_link(bpf.pins().join("header"), &note).unwrap();
    pretend_other_build(&bpf);
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    assert!(daemon.has_printed("was killed while it replaced programs"));
    assert!(!note.exists());
    wait_for("the record of the gap", || {
        (!gaps(&daemon.log).is_empty()).then_some(())
    });
    daemon.kill();
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    assert!(!daemon.has_printed("was killed while it replaced programs"));
    let Account { log, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(gaps(&log), ["killed-while-replacing-programs"]);
}

pub(crate) fn losses_of_other_options_are_reported() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let rules = opens(&test_dir, "lost");
    let daemon = Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    daemon.kill();
    // More than the ring has room for while nobody reads.
    let made: u32 = 250_000;
    test_dir.workload().burst(&file, made);
    let json = test_dir.own.join("log.json");
    let settings = format!(
        "pins = \"{}\"\n[json]\nfile = \"{}\"\n",
        bpf.pins().display(),
        json.display()
    );
    let daemon = Daemon::start_with_settings(&test_dir, &rules, &settings);
    assert!(daemon.has_printed("its programs were loaded with different options"));
    let Account {
        code, summary, log, ..
    } = daemon.end(Signal::SIGTERM);
    assert_eq!(code, Some(3));
    assert_ne!(summary.lost, 0, "{summary:?}");
    assert_eq!(summary.matched, u64::from(made), "{summary:?}");
    assert_eq!(
        summary.written + summary.lost,
        u64::from(made),
        "{summary:?}"
    );
    assert_eq!(gaps(&log), ["restarted"]);
    let text = fs::read(&log).unwrap();
    let lost = format!("op=lost-events lost={} reason=\"ring-full\"", summary.lost);
    assert_eq!(text.find_iter(&lost).count(), 1);
}
