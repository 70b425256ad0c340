//! Many events: none is lost while there is room, and what is lost is counted.

use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::chown;

use bstr::ByteSlice as _;

use super::daemon::{Account, Daemon};
use super::event::ausearch;
use super::place::Place;

pub(crate) fn a_burst_loses_nothing() {
    const PAIRS: u32 = 50_000;
    const PART_EVENTS: usize = 2500;
    let place = Place::new();
    let file = place.file("file", "");
    let rule = format!(
        "-a always,exit -F arch=b64 -S open,openat,close -F uid={} -k burst\n",
        place.id
    );
    let daemon = Daemon::start(&place, &rule);
    place.workload().burst(&file, PAIRS);
    let Account {
        summary,
        code,
        log: path,
        ..
    } = daemon.end(Signal::SIGTERM);
    assert_eq!(
        (summary.lost, summary.matched, code),
        (0, summary.written, Some(0))
    );
    let name = format!(" name=\"{}\" ", file.display());
    let log = fs::read(&path).unwrap();
    let count = |text: &[u8], needle: &str| text.find_iter(needle).count();
    let pairs = usize::try_from(PAIRS).unwrap();
    let written = usize::try_from(summary.written).unwrap();
    assert_eq!(count(&log, &name), pairs, "opens in the log");
    assert!(count(&log, " syscall=3 ") >= pairs, "closes in the log");
    assert_eq!(count(&log, "type=SYSCALL "), written, "events in the log");

    // For each record ausearch looks at all events of the last two seconds: minutes for the whole
    // burst, seconds for its parts.
    let mut found = 0;
    let mut rest = log.as_slice();
    let part = place.own.join("part.log");
    while !rest.is_empty() {
        let at = rest
            .find_iter("\ntype=SYSCALL ")
            .nth(PART_EVENTS)
            .map_or(rest.len(), |at| at + 1);
        fs::write(&part, &rest[..at]).unwrap();
        found += count(&ausearch(&part, &["--raw", "-k", "burst"]), "type=SYSCALL ");
        rest = &rest[at..];
    }
    assert_eq!(found, written, "events that ausearch finds");
}

pub(crate) fn what_a_full_ring_loses_is_counted() {
    // Each event holds a name of 4,000 bytes, and the ring 64 MiB.
    const OPENS: u32 = 20_000;
    let place = Place::new();
    let mut path = place.work.clone();
    while path.as_os_str().len() < 3900 {
        path.push("x".repeat(250).as_str());
        fs::create_dir(&path).unwrap();
        chown(&path, Some(place.id), Some(place.id)).unwrap();
    }
    path.push("file");
    fs::write(&path, "").unwrap();
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat -F uid={} -k full\n\
         -a always,exit -F arch=b64 -S rmdir -F uid={} -k after\n",
        place.id, place.id
    );
    let daemon = Daemon::start(&place, &rule);
    daemon.signal(Signal::SIGSTOP);
    place.workload().burst(&path, OPENS);
    daemon.signal(Signal::SIGCONT);
    let Account {
        summary, code, log, ..
    } = daemon.end(Signal::SIGTERM);
    assert!(summary.matched >= u64::from(OPENS), "{summary:?}");
    assert!(summary.lost > 0 && summary.written > 0, "{summary:?}");
    assert_eq!(
        summary.matched,
        summary.written + summary.lost,
        "{summary:?}"
    );
    let logged = fs::read(log).unwrap().find_iter("type=SYSCALL ").count();
    assert_eq!(u64::try_from(logged).unwrap(), summary.written);
    assert_eq!(code, Some(3), "losing events is no success");
}
