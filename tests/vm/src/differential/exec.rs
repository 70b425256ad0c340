//! Syscalls that execute programs. A successful one is the last of its program.

use nix::libc::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_DIRECTORY, O_PATH, O_RDONLY};

use super::steps::{CWD, ProgramStep, Run, RunAs, numbers, step};
use crate::program::{Arg, Entry};

/// `include/uapi/linux/fcntl.h`.
const AT_EXECVE_CHECK: i32 = 0x1_0000;

pub(super) fn runs(entry: Entry) -> Vec<Run> {
    let run = |user, steps| Run { user, entry, steps };
    let mut runs = vec![run(RunAs::Root, failing()), run(RunAs::Root, capable())];
    runs.extend(
        succeeding()
            .into_iter()
            .map(|steps| run(RunAs::Root, steps)),
    );
    let as_user = [
        vec![execve("/tmp/w/busybox", words(&[b"true"]))],
        vec![
            execve("own/busybox", words(&[b"true"])),
            execve("secret", words(&[b"true"])),
        ],
    ];
    runs.extend(as_user.map(|steps| run(RunAs::User, steps)));
    runs
}

/// An argument vector.
fn words(words: &[&[u8]]) -> Arg {
    let bytes = |word: &&[u8]| Arg::Bytes([*word, b"\0"].concat());
    let mut list: Vec<Arg> = words.iter().map(bytes).collect();
    list.push(0.into());
    Arg::Words(list)
}

fn execve(name: &'static str, argv: Arg) -> ProgramStep {
    step!("execve", name, argv, words(&[b"A=1", b"B=two"]))
}

fn succeeding() -> Vec<Vec<ProgramStep>> {
    let many: Vec<Vec<u8>> = (0..120)
        .map(|number| format!("word{number}").into())
        .collect();
    let mut many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    many.insert(0, b"true");
    let (long, hostile) = (vec![b'x'; 9000], vec![b' '; 5000]);
    vec![
        vec![execve(
            "/bin/busybox",
            words(&[b"true", b"two words", b"", b"\xff\n\"", b"last"]),
        )],
        vec![execve("../../bin/busybox", words(&[b"true"]))],
        vec![execve("/bin/busybox", words(&many))],
        vec![execve("/bin/busybox", words(&[b"true", &long, b"last"]))],
        vec![execve(
            "/bin/busybox",
            words(&[b"true", &hostile, &hostile]),
        )],
        vec![execve("script", words(&[b"ignored", b"word"]))],
        vec![execve("/tmp/w/script", words(&[b"ignored"]))],
        vec![execve("nested", words(&[b"ignored", b"word"]))],
        vec![execve("linked", words(&[b"true"]))],
        vec![
            step!("chdir", "sub"),
            execve("../busybox", words(&[b"true", b"-x"])),
        ],
        vec![
            step!("openat", CWD, "/bin", O_DIRECTORY).save("bin"),
            step!(
                "execveat",
                Arg::Saved("bin"),
                "busybox",
                words(&[b"true"]),
                0,
                0
            ),
        ],
        vec![
            step!("openat", CWD, "busybox", O_RDONLY).save("fd"),
            step!(
                "execveat",
                Arg::Saved("fd"),
                "",
                words(&[b"true"]),
                0,
                AT_EMPTY_PATH
            ),
        ],
        vec![
            step!("openat", CWD, "script", O_PATH).save("fd"),
            step!(
                "execveat",
                Arg::Saved("fd"),
                "",
                words(&[b"true"]),
                0,
                AT_EMPTY_PATH
            ),
        ],
        vec![step!("execveat", CWD, "busybox", words(&[b"true"]), 0, 0)],
        vec![step!("prctl", 15, "another name"), step!("exit_group", 0)],
    ]
}

fn failing() -> Vec<ProgramStep> {
    let true_ = || words(&[b"true"]);
    vec![
        execve("missing", true_()),
        execve("missing/busybox", true_()),
        execve("file", true_()),
        execve("sub", true_()),
        execve("text", true_()),
        execve("orphan", true_()),
        execve("loop", true_()),
        execve("dangling", true_()),
        execve("", true_()),
        execve("file/below", true_()),
        step!("execve", 1, true_(), 0),
        step!("execve", "/bin/busybox", 1, 0),
        // Only a question (v6.14): what follows has nothing of it.
        step!("execveat", CWD, "busybox", true_(), 0, AT_EXECVE_CHECK),
        step!("execveat", CWD, "script", true_(), 0, AT_EXECVE_CHECK),
        step!("execveat", CWD, "missing", true_(), 0, 0),
        step!("execveat", 77, "busybox", true_(), 0, 0),
        step!("execveat", CWD, "linked", true_(), 0, AT_SYMLINK_NOFOLLOW),
        step!("execveat", CWD, "busybox", true_(), 0, 0x8000),
        step!("openat", CWD, "script", O_RDONLY | O_CLOEXEC).save("fd"),
        step!("execveat", Arg::Saved("fd"), "", true_(), 0, AT_EMPTY_PATH),
    ]
}

/// Sets file capabilities of a program that is executed later.
fn capable() -> Vec<ProgramStep> {
    // `struct vfs_cap_data` of version 2, effective: CAP_CHOWN and CAP_NET_RAW permitted.
    let capabilities = numbers([0x0200_0001_u32, 0x2001, 0, 0, 0].map(u32::to_ne_bytes));
    vec![
        step!(
            "setxattr",
            "busybox",
            "security.capability",
            capabilities,
            20,
            0
        ),
        step!("chmod", "busybox", 0o755),
        step!("openat", CWD, "busybox", O_RDONLY),
    ]
}
