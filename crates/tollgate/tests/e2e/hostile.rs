//! Bytes that could break a line, a field or a terminal are decoded unchanged.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::chown;

use bstr::{BString, ByteSlice as _};

use super::daemon::Daemon;
use super::event::{ausearch, with_key};
use super::step::{Arg, CWD, WorkloadStep, step};
use super::test_dir::TestDir;

/// Hostile names and arguments.
fn texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = [
        b"line\nbreak".as_slice(),
        b"two words",
        b"quo\"te",
        b"'single'",
        b"\x01",
        b"\xff\xfe",
        b"\x1b[2Jgone",
        b"tab\there",
        b"name=\"x\" inode=1",
        b"ends with\n",
        b"type=SYSCALL msg=audit(1.000:1): arch=c000003e",
        b"\ntype=EOE msg=audit(1.000:1): ",
        "Grüße-☃".as_bytes(),
        b"\x7f",
        b"64616B",
        b"(null)",
        b"\x1dENRICHED=\"yes\"",
    ]
    .map(<[u8]>::to_vec)
    .into();
    texts.push(vec![b'x'; 255]);
    texts.push(vec![0xff; 255]);
    texts.push((1..=255).filter(|&byte| byte != b'/').collect());
    texts
}

/// SYSCALL records in the output of `ausearch -i`.
fn calls(shown: &[u8]) -> usize {
    shown
        .lines()
        .filter(|line| line.starts_with(b"type=SYSCALL "))
        .count()
}

pub(crate) fn hostile_bytes_decode_back() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat,unlink,symlink -F uid={} -F a3!=1 -k hostile\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let mut steps = Vec::new();
    for text in texts() {
        let flags = libc::O_CREAT | libc::O_WRONLY;
        steps.push(step!("openat", CWD, text.as_slice(), flags, 0o600));
        steps.push(step!("unlink", text.as_slice()));
        steps.push(step!("symlink", text.as_slice(), "link"));
        steps.push(step!("unlink", "link"));
    }
    let done = test_dir.workload().run(&steps);
    assert!(
        done.made.iter().all(|made| made.result.unwrap() >= 0),
        "{done:?}"
    );
    let stopped = daemon.stop();
    assert_eq!(stopped.events.len(), steps.len());
    for (events, text) in stopped.events.chunks(4).zip(texts()) {
        let text = BString::from(text);
        let named = |event: usize, item: usize| {
            events[event]
                .all("PATH")
                .nth(item)
                .unwrap()
                .text("name")
                .unwrap()
        };
        assert_eq!(named(0, 1), text, "made\n{}", events[0]);
        assert_eq!(named(1, 1), text, "removed\n{}", events[1]);
        assert_eq!(named(2, 1), text, "target\n{}", events[2]);
    }
    assert_eq!(with_key(&stopped.log, "hostile"), stopped.events);
    let shown = ausearch(&stopped.log, &["-i", "-k", "hostile"]);
    assert_eq!(calls(&shown), steps.len(), "{}", shown.as_bstr());
}

pub(crate) fn hostile_arguments_decode_back() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S execve -F uid={} -k hostile\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let args = texts();
    let program = test_dir.program("a \"b\"\n\u{1}", "/usr/bin/true");
    let step = WorkloadStep {
        args: vec![
            program.as_os_str().into(),
            Arg::Texts(args.clone()),
            Arg::Texts(vec![b"A=\n".to_vec()]),
        ],
        ..step!("execve")
    };
    test_dir.workload().run(&[step]);
    let stopped = daemon.stop();
    assert_eq!(stopped.events.len(), 1);
    let event = &stopped.events[0];
    assert_eq!(event.arguments().unwrap().args, args, "{event}");
    let call = event.one("SYSCALL");
    assert_eq!(
        call.text("exe").unwrap(),
        program.as_os_str().as_bytes(),
        "{event}"
    );
    assert_eq!(
        call.text("comm").unwrap(),
        program.file_name().unwrap().as_bytes(),
        "{event}"
    );
    assert_eq!(
        event.all("PATH").next().unwrap().text("name").unwrap(),
        program.as_os_str().as_bytes()
    );
    assert_eq!(with_key(&stopped.log, "hostile"), stopped.events);
    let shown = ausearch(&stopped.log, &["-i"]);
    assert_eq!(calls(&shown), 1, "{}", shown.as_bstr());
}

pub(crate) fn longest_path_is_complete() {
    const PATH_MAX: usize = 4096;
    let test_dir = TestDir::new();
    let mut path = test_dir.work.as_os_str().as_bytes().to_vec();
    let mut letters = (b'a'..=b'z').cycle();
    while path.len() + 257 < PATH_MAX {
        path.push(b'/');
        path.extend_from_slice(&vec![letters.next().unwrap(); 255]);
        let directory = OsStr::from_bytes(&path);
        fs::create_dir(directory).unwrap();
        chown(directory, Some(test_dir.id), Some(test_dir.id)).unwrap();
    }
    let directory = path.clone();
    path.push(b'/');
    path.resize(PATH_MAX - 1, b'\xff');
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat,unlink -F uid={} -F dir={} -k long\n",
        test_dir.id,
        test_dir.work.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let mut workload = test_dir.workload();
    workload.directory = OsStr::from_bytes(&directory).into();
    let done = workload.run(&[
        step!(
            "openat",
            CWD,
            path.as_slice(),
            libc::O_CREAT | libc::O_WRONLY,
            0o600
        ),
        step!("unlink", path.as_slice()),
        step!(
            "openat",
            CWD,
            "short",
            libc::O_CREAT | libc::O_WRONLY,
            0o600
        ),
    ]);
    assert!(
        done.made.iter().all(|made| made.result.unwrap() >= 0),
        "{:?}",
        done.made
    );
    let stopped = daemon.stop();
    assert_eq!(stopped.events.len(), 3);
    for event in &stopped.events[..2] {
        let name = event.all("PATH").nth(1).unwrap().text("name").unwrap();
        assert_eq!(name.as_bstr(), path.as_bstr());
    }
    for event in &stopped.events {
        let cwd = event.one("CWD").text("cwd").unwrap();
        assert_eq!(cwd.len(), directory.len(), "{}", event.one("CWD").line);
        assert_eq!(cwd.as_bstr(), directory.as_bstr());
    }
    let found = with_key(&stopped.log, "long");
    assert_eq!(found.len(), 3);
}

pub(crate) fn hostile_key_is_found() {
    let test_dir = TestDir::new();
    let key = "a'b(c)=é";
    let rule = format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -F key={key}\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    test_dir.workload().run(&[step!("rmdir", "/etc/missing")]);
    let stopped = daemon.stop();
    assert_eq!(stopped.events.len(), 1);
    assert_eq!(stopped.events[0].key().unwrap(), key);
    assert_eq!(with_key(&stopped.log, key), stopped.events);
}
