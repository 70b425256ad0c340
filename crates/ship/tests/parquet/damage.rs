//! Directories that are full, and those in which others write.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use nix::fcntl::{Flock, FlockArg};

use super::super::place::{Place, has_all, wait_until};
use super::{PARQUET, files_below, place, received};

/// A small file system, which is unmounted at the end.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tollgate"]);
        assert!(mount.arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disk_is_told_and_nothing_confirmed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: a small file system needs root");
        return;
    }
    let place = place(PARQUET);
    let small = Small::mount(place.path("out"));
    let ballast = small.0.join("ballast");
    let mut filled = File::create(&ballast).unwrap();
    while filled.write_all(&[1; 4096]).is_ok() {}
    drop(filled);
    place.append_events(0, 3000);
    let run = place.start();
    wait_until("the error", || {
        let text = place.text("stderr");
        text.contains("arc: cannot write `") && text.contains("No space left on device")
    });
    wait_until("the status", || {
        let status = String::from_utf8(place.status(&[]).stdout).unwrap();
        let has = |text| status.contains(text);
        has("No space left on device") && has("0 read and 0 sent, all confirmed")
    });
    assert_eq!(files_below(&small.0), std::slice::from_ref(&ballast));
    fs::remove_file(&ballast).unwrap();
    wait_until("all events", || received(&place).0.len() == 3000);
    assert!(run.end());
    assert!(received(&place).0.values().all(|count| *count == 1));
    assert_eq!(place.confirmed(), 3000);
    assert!(
        files_below(&small.0)
            .iter()
            .all(|path| path.extension().unwrap() == "parquet")
    );
}

/// The directory of a date that is there before the first file.
fn partition(place: &Place) -> PathBuf {
    let today = Command::new("date")
        .args(["-u", "+date=%F"])
        .output()
        .unwrap();
    let today = String::from_utf8(today.stdout).unwrap();
    place.path("out").join(today.trim_end())
}

#[test]
fn links_in_the_directory_are_not_followed() {
    let place = place(PARQUET);
    fs::create_dir(place.path("elsewhere")).unwrap();
    let date = partition(&place);
    symlink(place.path("elsewhere"), &date).unwrap();
    place.append_events(0, 10);
    let run = place.start();
    wait_until("the error", || {
        place.text("stderr").contains("arc: cannot use directory `")
    });
    fs::remove_file(&date).unwrap();
    fs::create_dir(&date).unwrap();
    symlink(place.path("elsewhere"), date.join("host=h")).unwrap();
    wait_until("the error", || place.text("stderr").contains("/host=h`: "));
    fs::remove_file(date.join("host=h")).unwrap();
    wait_until("all events", || received(&place).0.len() == 10);
    assert!(run.end());
    assert!(files_below(&place.path("elsewhere")).is_empty());
}

#[test]
fn what_a_killed_run_has_left_is_removed_and_nothing_else() {
    let place = place(PARQUET);
    let host = partition(&place).join("host=h");
    fs::create_dir_all(&host).unwrap();
    fs::create_dir_all(place.path("out/date=2020-01-01/host=h")).unwrap();
    fs::create_dir_all(place.path("out/date=2020-01-01/host=other")).unwrap();
    let other = place.path("other");
    fs::write(&other, "kept").unwrap();
    let left = [
        host.join(".tollgate.arc.1.tmp"),
        place.path("out/date=2020-01-01/host=h/.tollgate.arc.12.tmp"),
    ];
    let kept = [
        // Of another destination, of another host, of nobody.
        host.join(".tollgate.arc-2.1.tmp"),
        place.path("out/date=2020-01-01/host=other/.tollgate.arc.1.tmp"),
        host.join(".tollgate.arc.x.tmp"),
        host.join("arc-1.parquet.tmp"),
        // Which another run writes.
        host.join(".tollgate.arc.3.tmp"),
    ];
    for path in left.iter().chain(&kept) {
        fs::write(path, "text").unwrap();
    }
    let link = host.join(".tollgate.arc.2.tmp");
    symlink(&other, &link).unwrap();
    let locked = File::open(&kept[4]).unwrap();
    let lock = Flock::lock(locked, FlockArg::LockExclusiveNonblock).unwrap();
    place.append_events(0, 10);
    let output = place.once();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("arc: removed 2 files that a run had not completed"),
        "{errors}"
    );
    drop(lock);
    assert!(left.iter().all(|path| !path.exists()));
    for path in kept.iter().chain([&link]) {
        assert!(fs::symlink_metadata(path).is_ok(), "{}", path.display());
    }
    assert_eq!(fs::read_to_string(other).unwrap(), "kept");
    fs::remove_file(link).unwrap();
    assert_eq!(received(&place).0.len(), 10);
}

/// The other destinations go on, and the next run makes good what is missing.
#[test]
fn directory_that_is_absent_stops_no_other_destination() {
    let others = "[json.out]\nto = \"stdout\"\nstart = \"begin\"\n\
        [syslog.tls]\naddress = \"127.0.0.1:1\"\n[syslog.tls.tls]\nca = \"DIR/absent/ca.pem\"\n";
    let place = Place::new(&format!("{PARQUET}{others}"));
    place.append_events(0, 10);
    let run = place.start();
    wait_until("events of the other destination", || {
        has_all(&place.text("stdout"), 10)
    });
    wait_until("the status", || {
        let status = place.status(&[]);
        let text = String::from_utf8(status.stdout).unwrap();
        status.status.code() == Some(1)
            && text.contains("cannot open directory `")
            && text.contains("cannot read certificates `")
    });
    assert!(run.end());
    let errors = place.text("stderr");
    for name in ["out", "absent"] {
        let told = format!("`{}` is no directory: ", place.path(name).display());
        assert_eq!(errors.matches(&told).count(), 1, "{errors}");
    }
    fs::create_dir(place.path("out")).unwrap();
    let run = place.start();
    wait_until("all events", || received(&place).0.len() == 10);
    assert!(run.end());
}
