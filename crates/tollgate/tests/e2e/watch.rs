//! Watches with `path=`, `dir=` and `-w`, under every name of an object.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use bstr::BString;

use super::daemon::{Daemon, Stopped};
use super::harness::needs;
use super::step::{CWD, WorkloadStep, step};
use super::test_dir::TestDir;
use super::workload::Workload;

/// The syscall's success and the last object's name of each event.
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

fn read(name: &str) -> WorkloadStep {
    step!("openat", CWD, name, 0)
}

fn write(name: &str) -> WorkloadStep {
    step!("openat", CWD, name, libc::O_WRONLY)
}

pub(crate) fn watched_file_is_recorded_under_every_name() {
    let test_dir = TestDir::new();
    let secret = test_dir.file("secret", "");
    test_dir.directory("sub");
    fs::hard_link(&secret, test_dir.work.join("hard")).unwrap();
    symlink("secret", test_dir.work.join("soft")).unwrap();
    symlink(&test_dir.work, test_dir.work.join("sub/up")).unwrap();
    let absolute = secret.to_str().unwrap();
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -F path={absolute} -F perm=rwa -F uid={} -k secret\n",
            test_dir.id
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
    let mut steps: Vec<WorkloadStep> = names.into_iter().map(read).collect();
    steps.extend([
        read("sub"),
        step!("openat", 999, absolute, 0),
        step!("open", "sub", 0o200_000),
        WorkloadStep {
            args: vec![super::step::Arg::Result(9), "../secret".into(), 0.into()],
            ..step!("openat")
        },
        step!("chmod", "secret", 0o600),
        step!("truncate", "sub/../secret", 0),
        step!("open", "secret", libc::O_PATH),
        step!("access", "secret", 4),
    ]);
    let done = test_dir.workload().run(&steps);
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

pub(crate) fn watch_outlives_its_file() {
    let test_dir = TestDir::new();
    let secret = test_dir.file("secret", "");
    test_dir.file("next", "");
    let rule = format!("-w {} -p wa -k secret\n", secret.display());
    let daemon = Daemon::start(&test_dir, &rule);
    test_dir.workload().run(&[
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

pub(crate) fn watched_directory_covers_its_subtree() {
    let test_dir = TestDir::new();
    let tree = test_dir.directory("tree");
    test_dir.directory("tree/old");
    test_dir.file("tree/old/file", "");
    test_dir.file("outside", "");
    symlink("tree/old/file", test_dir.work.join("link")).unwrap();
    symlink(test_dir.work.join("outside"), tree.join("away")).unwrap();
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -F dir={} -F perm=wa -F uid={} -k tree\n",
            tree.display(),
            test_dir.id
        ),
    );
    test_dir.workload().run(&[
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

pub(crate) fn unwatched_files_are_not_recorded() {
    let test_dir = TestDir::new();
    test_dir.file("secret", "");
    test_dir.file("secrets", "");
    test_dir.directory("sub");
    test_dir.file("sub/secret", "");
    let daemon = Daemon::start(
        &test_dir,
        &format!("-w {}/secret -p rwxa -k secret\n", test_dir.work.display()),
    );
    test_dir.workload().run(&[
        write("secrets"),
        write("sub/secret"),
        step!("unlink", "sub/secret"),
        write("sub/secret"),
        step!("chmod", "secrets", 0o600),
        step!("openat", CWD, "secret2", 0),
    ]);
    check(&daemon.stop(), &[]);
}

pub(crate) fn watches_hold_in_a_chroot() {
    let test_dir = TestDir::new();
    let secret = test_dir.file("secret", "");
    let inner = format!("jail{}", test_dir.work.display());
    test_dir.directory("jail");
    test_dir.directory(&inner);
    test_dir.file(&format!("{inner}/secret"), "");
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -F path={} -F perm=rwa -F uid={} -k secret\n",
            secret.display(),
            test_dir.id
        ),
    );
    let (absolute, missing) = (secret.to_str().unwrap(), format!("{inner}/missing"));
    let jailed = Workload {
        root: test_dir.work.join("jail"),
        directory: test_dir.work.clone(),
        ..test_dir.workload()
    };
    jailed.run(&[
        write(absolute),
        write("secret"),
        step!("unlink", absolute),
        write(absolute),
        write(&missing),
    ]);
    let above = Workload {
        root: test_dir.work.clone(),
        directory: "/".into(),
        ..test_dir.workload()
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
    let test_dir = TestDir::new();
    let mut rules = String::new();
    for number in 0..500 {
        let path = test_dir.file(&format!("file{number}"), "");
        writeln!(rules, "-w {} -p wa -k watch{number}", path.display()).unwrap();
    }
    let daemon = Daemon::start(&test_dir, &rules);
    test_dir.workload().run(&[
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

/// A user who mounts FUSE over the directory of a watched file, which root cannot enter then, stops neither the
/// daemon nor the other watches.
pub(crate) fn unreachable_watch_does_not_stop_the_daemon() {
    let test_dir = TestDir::new();
    let secret = test_dir.file("secret", "");
    let hidden = test_dir.directory("hidden");
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    needs(fuse.is_ok(), "/dev/fuse");
    let fuse = fuse.unwrap();
    let options = format!(
        "fd=0,rootmode=40000,user_id={id},group_id={id}",
        id = test_dir.id
    );
    let mounted = Command::new("mount")
        .args(["-i", "-t", "fuse", "-o", &options, "fuse"])
        .arg(&hidden)
        .stdin(fuse.try_clone().unwrap())
        .status();
    assert!(mounted.unwrap().success());
    let rules = format!(
        "-w {}/file -p rwa -k hidden\n-w {} -p rwa -k secret\n",
        hidden.display(),
        secret.display()
    );
    let daemon = Daemon::start(&test_dir, &rules);
    assert!(daemon.has_printed("only this name is matched"));
    assert!(
        daemon.replace(&rules),
        "a replacement is not stopped either"
    );
    test_dir.workload().run(&[read("secret")]);
    let stopped = daemon.stop();
    let unmounted = Command::new("umount").arg("-l").arg(&hidden).status();
    assert!(unmounted.unwrap().success());
    drop(fuse);
    assert_eq!(stopped.events.len(), 1);
}
