//! The workload of differential tests: syscalls of all kinds, programs, failures, watches and 32-bit calls.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::cases::{cases, failing, names};
use super::event::Event;
use super::exec::execve;
use super::step::{Arg, CWD, step};
use super::test_dir::TestDir;
use super::workload::{Identity, Workload};

/// Offset of the id of the watches' workload.
const WATCHED: u32 = 400_000;

/// Whether an event belongs to the scenario: the kernel also records syscalls that change its audit or load BPF
/// programs.
pub(crate) fn holds(test_dir: &TestDir, event: &Event) -> bool {
    let uid = event.syscall("uid");
    [test_dir.id, test_dir.id + WATCHED]
        .iter()
        .any(|id| uid == id.to_string())
}

/// The rules of both auditors.
pub(crate) fn rules(test_dir: &TestDir) -> String {
    let (id, watched) = (test_dir.id, test_dir.id + WATCHED);
    let steps: Vec<_> = cases()
        .into_iter()
        .map(|case| case.step)
        .chain(failing())
        .collect();
    let work = test_dir.work.display();
    format!(
        "-a never,exit -F arch=b64 -S chmod -F uid={id} -F a1=0644\n\
         -a always,exit -F arch=b64 -S {} -F uid={id} -F success=1 -k calls\n\
         -a always,exit -F arch=b64 -S {} -F uid={id} -F success=0 -k failed\n\
         -a always,exit -F arch=b64 -S execve,execveat,exit,exit_group -F uid={id} -k tasks\n\
         -a always,exit -F arch=b32 -S open,mkdir,unlink,execve -F uid={id} -k narrow -k two\n\
         -a always,exit -F path={work}/tree/secret -F perm=rwa -F uid={watched} -k secret\n\
         -a always,exit -F dir={work}/tree -F perm=wa -F uid={watched} -k tree\n",
        names(&steps),
        names(&steps)
    )
}

/// Runs the workload.
pub(crate) fn run(test_dir: &TestDir) {
    let workload = test_dir.workload();
    let mut steps: Vec<_> = cases().into_iter().map(|case| case.step).collect();
    steps.extend(failing());
    steps.push(step!("chmod", "p", 0o644));
    steps.push(step!("chmod", "p", 0o600));
    steps.push(step!(
        "openat",
        CWD,
        "hostile \"\n\u{1}ü",
        libc::O_CREAT,
        0o600
    ));
    steps.push(step!("unlink", "hostile \"\n\u{1}ü"));
    steps.push(step!("mkdir", "narrow", 0o700).in_32_bits());
    steps.push(step!("open", "missing", 0).in_32_bits());
    workload.run(&steps);

    let program = test_dir.program("program", "/usr/bin/true");
    let script = test_dir.program("script", "/usr/bin/true");
    fs::write(script, "#!/bin/sh -e\nexit 0\n").unwrap();
    let long = vec![b'x'; 9000];
    for step in [
        execve("./program", &[b"program", b"two words", b"", b"\xff"]),
        execve(program.to_str().unwrap(), &[b"program", &long, b"last"]),
        execve("script", &[b"script", b"argument"]),
        execve("missing", &[b"missing"]),
        execve("/etc/passwd", &[b"passwd"]),
        step!("exit_group", 0),
    ] {
        workload.run(&[step]);
    }
    let by_fd = super::step::WorkloadStep {
        args: vec![
            Arg::Result(0),
            "".into(),
            Arg::Texts(vec![b"fd".to_vec()]),
            Arg::Texts(Vec::new()),
            libc::AT_EMPTY_PATH.into(),
        ],
        ..step!("execveat")
    };
    workload.run(&[step!("open", "program", 0), by_fd]);
    workload.run(&[execve("./program", &[b"program", b"by", b"32 bits"]).in_32_bits()]);
    workload.program(&[
        "sh",
        "-c",
        "ls -l /nonexistent; cat /etc/hostname; wc -l /etc/hostname",
    ]);
    watched(test_dir);
}

/// Opens and changes of a watched file and in a watched directory.
fn watched(test_dir: &TestDir) {
    let id = test_dir.id + WATCHED;
    let workload = Workload {
        identity: Identity::is(id),
        ..test_dir.workload()
    };
    let tree = test_dir.work.join("tree");
    let open = |name: &str, flags: i32| step!("openat", CWD, name, flags, 0o600);
    workload.run(&[
        open("tree/secret", libc::O_RDONLY),
        open("tree/sub/../secret", libc::O_WRONLY),
        open(tree.join("secret").to_str().unwrap(), libc::O_RDWR),
        open("soft", libc::O_RDONLY),
        open("hard", libc::O_RDONLY),
        open("tree/other", libc::O_RDONLY),
        open("tree/other", libc::O_WRONLY),
        open("tree/new", libc::O_CREAT | libc::O_WRONLY),
        open("outside", libc::O_WRONLY),
        step!("rename", "outside", "tree/inside"),
        step!("rename", "tree/inside", "outside"),
        step!("chmod", "tree/secret", 0o640),
        step!("chmod", "tree", 0o755),
        step!("mkdir", "tree/sub/new", 0o755),
        step!("rmdir", "tree/sub/new"),
        open("tree/missing/file", libc::O_WRONLY),
        step!("unlink", "tree/missing"),
        step!("rename", "tree/other", "tree/secret"),
        open("tree/secret", libc::O_RDONLY),
        step!("unlink", "tree/secret"),
        open("tree/secret", libc::O_RDONLY),
        step!("link", "hard", "tree/secret"),
        open("tree/secret", libc::O_RDONLY),
    ]);
}

/// Creates the watched files: the kernel needs them when it loads the rules.
pub(crate) fn prepare(test_dir: &TestDir) {
    // Two users work here.
    fs::set_permissions(&test_dir.work, fs::Permissions::from_mode(0o777)).unwrap();
    test_dir.directory("tree");
    test_dir.directory("tree/sub");
    let secret = test_dir.file("tree/secret", "");
    test_dir.file("tree/other", "");
    test_dir.file("outside", "");
    fs::hard_link(&secret, test_dir.work.join("hard")).unwrap();
    symlink("tree/secret", test_dir.work.join("soft")).unwrap();
    let chown = |name: &str| {
        let id = Some(test_dir.id + WATCHED);
        std::os::unix::fs::chown(test_dir.work.join(name), id, id).unwrap();
    };
    for name in ["tree", "tree/sub", "tree/secret", "tree/other", "outside"] {
        chown(name);
    }
}
