//! The records of `tollgate run` equal those of the kernel's audit, except for the differences in
//! `tests/differential/known.toml`.

use std::ffi::OsString;
use std::fs;

use bstr::ByteSlice as _;

use super::cases::{cases, failing, names};
use super::differential::expect_permitted;
use super::event::Event;
use super::exec::execve;
use super::harness::needs;
use super::kernel_audit::{KernelAudit, Lock};
use super::run::{Run, workload_words};
use super::step::{CWD, WorkloadStep, step};
use super::test_dir::TestDir;

fn rules(test_dir: &TestDir, steps: &[WorkloadStep]) -> String {
    let (id, work) = (test_dir.id, test_dir.work.display());
    let names = names(steps);
    format!(
        "-a never,exit -F arch=b64 -S chmod -F uid={id} -F a1=0644\n\
         -a always,exit -F arch=b64 -S {names} -F uid={id} -F success=1 -k calls\n\
         -a always,exit -F arch=b64 -S {names} -F uid={id} -F success=0 -k failed\n\
         -a always,exit -F arch=b64 -S execve,exit_group -F uid={id} -k tasks\n\
         -a always,exit -F arch=b64 -S bind,connect,accept4,sendto -F uid={id} -k net\n\
         -a always,exit -F arch=b32 -S open,mkdir,unlink -F uid={id} -k narrow -k two\n\
         -a always,exit -F dir={work}/tree -F perm=wa -F uid={id} -k tree\n"
    )
}

pub(crate) fn kernel_and_run_agree() {
    let lock = Lock::take();
    let test_dir = TestDir::new();
    test_dir.directory("tree");
    test_dir.file("tree/old", "");
    test_dir.file("over", "");
    let mut steps: Vec<WorkloadStep> = cases().into_iter().map(|case| case.step).collect();
    steps.extend(failing());
    steps.extend([
        step!("chmod", "p", 0o644),
        step!("chmod", "p", 0o600),
        step!("openat", CWD, "hostile \"\n\u{1}ü", libc::O_CREAT, 0o600),
        step!("unlink", "hostile \"\n\u{1}ü"),
        step!("rename", "tree/old", "over"),
        step!(
            "openat",
            CWD,
            "tree/new",
            libc::O_CREAT | libc::O_WRONLY,
            0o600
        ),
        step!(
            "openat",
            CWD,
            "tree/new",
            libc::O_CREAT | libc::O_WRONLY,
            0o600
        ),
        step!("mkdir", "narrow", 0o700).in_32_bits(),
        step!("open", "missing", 0).in_32_bits(),
    ]);
    let rules = rules(&test_dir, &steps);
    let run = Run::new(&test_dir, &rules);
    let script = test_dir.program("script", "/usr/bin/true");
    fs::write(script, "#!/bin/sh -e\nexit 0\n").unwrap();
    let calls = workload_words(&test_dir, &steps);
    let exec = workload_words(
        &test_dir,
        &[execve("./script", &[b"script", b"two words", b"\xff"])],
    );
    let fails = workload_words(&test_dir, &[execve("missing", &[b"missing"])]);
    let shell: Vec<OsString> = [
        "sh",
        "-c",
        "cp /etc/passwd x; chmod 600 x; mv x y; rm y; id",
    ]
    .map(Into::into)
    .to_vec();
    let python: Vec<OsString> = ["/usr/bin/python3", "-c", NETWORK].map(Into::into).to_vec();

    let kernel = KernelAudit::start(&lock, &test_dir, &rules);
    let mut ours = Vec::new();
    for words in [calls, exec, fails, shell, python] {
        let output = run.command_of(&[], &words).output().unwrap();
        let ran = run.ran(output);
        assert_eq!(ran.output.stderr.as_bstr(), "");
        ours.extend(ran.events);
    }
    let mut last = run.plain(&["mkdir", "/the-end-of-the-command"]);
    let last = kernel
        .settle(&mut last, "/the-end-of-the-command")
        .to_string();
    let mut theirs = kernel.stop();
    drop(lock);
    let (uid, exe) = (test_dir.id.to_string(), format!("\"{}\"", run.exe()));
    let is_command = |event: &Event| {
        let others = event.syscall("exe") == exe || event.syscall("pid") == last;
        event.syscall("uid") == uid && !others
    };
    theirs.retain(is_command);
    needs(!theirs.is_empty(), "a kernel audit that sends events");
    assert!(theirs.len() > 60, "{} events", theirs.len());

    expect_permitted("run", &theirs, &ours);
}

/// Socket addresses passed to and returned by syscalls.
const NETWORK: &str = "\
import socket
server = socket.socket(socket.AF_UNIX)
server.bind('server')
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect('server')
server.accept()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.sendto(b'x', ('127.0.0.1', 9))
";
