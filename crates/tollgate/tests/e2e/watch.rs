//! Watches: `path=`, `dir=` and `-w`, under every name that an object can have.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;

use bstr::BString;

use super::daemon::{Daemon, Stopped};
use super::place::Place;
use super::step::{CWD, Step, step};
use super::workload::Workload;

/// Of each event the syscall's success and the name of its last object.
fn seen(stopped: &Stopped) -> Vec<(String, BString)> {
    let name = |path: BString| {
        let at = path.iter().position(|&byte| byte == b' ').unwrap();
        BString::from(&path[at + 1..])
    };
    stopped
        .events
        .iter()
        .map(|event| {
            (
                event.syscall("success").to_owned(),
                name(event.paths().pop().unwrap()),
            )
        })
        .collect()
}

#[track_caller]
fn check(stopped: &Stopped, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(success, name)| ((*success).to_owned(), BString::from(*name)))
        .collect();
    assert_eq!(seen(stopped), expected);
}

fn read(name: &str) -> Step {
    step!("openat", CWD, name, 0)
}

fn write(name: &str) -> Step {
    step!("openat", CWD, name, libc::O_WRONLY)
}

pub(crate) fn a_watched_file_is_seen_under_every_name() {
    let place = Place::new();
    let secret = place.file("secret", "");
    place.directory("sub");
    fs::hard_link(&secret, place.work.join("hard")).unwrap();
    symlink("secret", place.work.join("soft")).unwrap();
    symlink(&place.work, place.work.join("sub/up")).unwrap();
    let absolute = secret.to_str().unwrap();
    let daemon = Daemon::start(
        &place,
        &format!(
            "-a always,exit -F arch=b64 -F path={absolute} -F perm=rwa -F uid={} -k secret\n",
            place.id
        ),
    );
    let names = [
        absolute,
        "secret",
        "./secret",
        "sub/../secret",
        "sub/up/secret",
        "soft",
        "hard",
    ];
    let mut steps: Vec<Step> = names.into_iter().map(read).collect();
    steps.extend([
        read("sub"),
        step!("openat", 999, absolute, 0),
        step!("open", "sub", 0o200_000),
        Step {
            args: vec![super::step::Arg::Result(9), "../secret".into(), 0.into()],
            ..step!("openat")
        },
        step!("chmod", "secret", 0o600),
        step!("truncate", "sub/../secret", 0),
        step!("open", "secret", libc::O_PATH),
        step!("access", "secret", 4),
    ]);
    let done = place.workload().run(&steps);
    for (made, step) in done.made.iter().zip(&steps) {
        assert!(made.result.unwrap() >= 0, "{step:?}: {made:?}");
    }
    let stopped = daemon.stop();
    let mut expected: Vec<(&str, &str)> = names.into_iter().map(|name| ("yes", name)).collect();
    expected.extend([
        ("yes", absolute),
        ("yes", "../secret"),
        ("yes", "secret"),
        ("yes", "sub/../secret"),
        ("yes", "secret"),
    ]);
    check(&stopped, &expected);
}

pub(crate) fn a_watched_name_outlives_its_file() {
    let place = Place::new();
    let secret = place.file("secret", "");
    place.file("next", "");
    let rule = format!("-w {} -p wa -k secret\n", secret.display());
    let daemon = Daemon::start(&place, &rule);
    place.workload().run(&[
        step!("rename", "next", "secret"),
        write("secret"),
        step!("unlink", "secret"),
        write("secret"),
        step!(
            "openat",
            CWD,
            "secret",
            libc::O_CREAT | libc::O_WRONLY,
            0o600
        ),
        step!("link", "secret", "other"),
        step!("rename", "secret", "gone"),
        read("gone"),
    ]);
    check(
        &daemon.stop(),
        &[
            ("yes", "secret"),
            ("yes", "secret"),
            ("yes", "secret"),
            ("no", "secret"),
            ("yes", "secret"),
            ("yes", "other"),
            ("yes", "gone"),
        ],
    );
}

pub(crate) fn a_watched_directory_covers_what_is_below() {
    let place = Place::new();
    let tree = place.directory("tree");
    place.directory("tree/old");
    place.file("tree/old/file", "");
    place.file("outside", "");
    symlink("tree/old/file", place.work.join("link")).unwrap();
    symlink(place.work.join("outside"), tree.join("away")).unwrap();
    let daemon = Daemon::start(
        &place,
        &format!(
            "-a always,exit -F arch=b64 -F dir={} -F perm=wa -F uid={} -k tree\n",
            tree.display(),
            place.id
        ),
    );
    place.workload().run(&[
        write("tree/old/file"),
        write("link"),
        read("tree/old/file"),
        step!("mkdir", "tree/new", 0o755),
        step!(
            "open",
            "tree/new/made",
            libc::O_CREAT | libc::O_WRONLY,
            0o600
        ),
        step!("rename", "outside", "tree/inside"),
        step!("rename", "tree/inside", "outside"),
        write("outside"),
        step!("chmod", "tree", 0o700),
        step!("unlink", "tree/old/../old/file"),
        write("tree/missing/file"),
        step!("chmod", ".", 0o755),
        step!("mkdir", "treeless", 0o755),
    ]);
    check(
        &daemon.stop(),
        &[
            ("yes", "tree/old/file"),
            ("yes", "link"),
            ("yes", "tree/new"),
            ("yes", "tree/new/made"),
            ("yes", "tree/inside"),
            ("yes", "outside"),
            ("yes", "tree"),
            ("yes", "tree/old/../old/file"),
            ("no", "tree/missing/file"),
        ],
    );
}

pub(crate) fn what_is_not_watched_is_not_seen() {
    let place = Place::new();
    place.file("secret", "");
    place.file("secrets", "");
    place.directory("sub");
    place.file("sub/secret", "");
    let daemon = Daemon::start(
        &place,
        &format!("-w {}/secret -p rwxa -k secret\n", place.work.display()),
    );
    place.workload().run(&[
        write("secrets"),
        write("sub/secret"),
        step!("unlink", "sub/secret"),
        write("sub/secret"),
        step!("chmod", "secrets", 0o600),
        step!("openat", CWD, "secret2", 0),
    ]);
    check(&daemon.stop(), &[]);
}

pub(crate) fn chroot_does_not_confuse() {
    let place = Place::new();
    let secret = place.file("secret", "");
    let inner = format!("jail{}", place.work.display());
    place.directory("jail");
    place.directory(&inner);
    place.file(&format!("{inner}/secret"), "");
    let daemon = Daemon::start(
        &place,
        &format!(
            "-a always,exit -F arch=b64 -F path={} -F perm=rwa -F uid={} -k secret\n",
            secret.display(),
            place.id
        ),
    );
    let (absolute, missing) = (secret.to_str().unwrap(), format!("{inner}/missing"));
    let jailed = Workload {
        root: place.work.join("jail"),
        directory: place.work.clone(),
        ..place.workload()
    };
    jailed.run(&[
        write(absolute),
        write("secret"),
        step!("unlink", absolute),
        write(absolute),
        write(&missing),
    ]);
    let above = Workload {
        root: place.work.clone(),
        directory: "/".into(),
        ..place.workload()
    };
    above.run(&[
        write("/secret"),
        write("secret"),
        step!("unlink", "/../secret"),
        write("/secret"),
    ]);
    check(
        &daemon.stop(),
        &[
            ("yes", "/secret"),
            ("yes", "secret"),
            ("yes", "/../secret"),
            ("no", "/secret"),
        ],
    );
}

pub(crate) fn five_hundred_watches() {
    let place = Place::new();
    let mut rules = String::new();
    for number in 0..500 {
        let path = place.file(&format!("file{number}"), "");
        writeln!(rules, "-w {} -p wa -k watch{number}", path.display()).unwrap();
    }
    let daemon = Daemon::start(&place, &rules);
    place.workload().run(&[
        write("file0"),
        write("file250"),
        write("file499"),
        write("file500"),
    ]);
    let stopped = daemon.stop();
    check(
        &stopped,
        &[("yes", "file0"), ("yes", "file250"), ("yes", "file499")],
    );
    let keys: Vec<BString> = stopped
        .events
        .iter()
        .map(|event| event.key().unwrap())
        .collect();
    assert_eq!(keys, ["watch0", "watch250", "watch499"]);
}
