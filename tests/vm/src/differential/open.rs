//! Syscalls that open files.

use nix::libc::{
    O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC,
    O_WRONLY,
};

use super::steps::{CWD, ProgramStep, Run, RunAs, numbers, step};
use crate::program::{Arg, Entry};

/// `RESOLVE_` flags of `openat2(2)`.
const RESOLVE_BENEATH: u64 = 8;
const RESOLVE_NO_SYMLINKS: u64 = 4;

/// `AT_EMPTY_PATH` of `name_to_handle_at(2)`.
const AT_EMPTY_PATH: i32 = 0x1000;

pub(super) fn runs(entry: Entry) -> Vec<Run> {
    let run = |user, steps| Run { user, entry, steps };
    let mut steps = existing();
    steps.extend(made());
    steps.extend(failing());
    steps.extend(other_calls());
    vec![run(RunAs::Root, steps), run(RunAs::User, refused())]
}

fn openat(name: &'static str, flags: i32) -> ProgramStep {
    step!("openat", CWD, name, flags, 0o640)
}

/// A name that is too long, and a name with a component that is too long.
fn too_long() -> [Arg; 2] {
    [5000, 300].map(|length| {
        let mut name = vec![b'x'; length];
        name.push(0);
        Arg::Bytes(name)
    })
}

fn existing() -> Vec<ProgramStep> {
    vec![
        step!("openat", CWD, "/tmp/w/sub", O_DIRECTORY, 0).save("dfd"),
        openat("/tmp/w/file", O_RDONLY),
        openat("file", O_RDONLY),
        openat("./file", O_RDWR),
        openat("sub/../file", O_RDONLY),
        openat("sub//below", O_RDONLY),
        openat("/tmp/w/file", O_CREAT | O_RDWR),
        openat("file", O_CREAT | O_WRONLY),
        openat("file", O_WRONLY | O_TRUNC),
        openat("file", O_PATH),
        openat("sub/", O_RDONLY),
        openat(".", O_DIRECTORY),
        openat("..", O_DIRECTORY),
        openat("/", O_DIRECTORY),
        openat("link", O_RDONLY),
        openat("link", O_CREAT | O_RDWR),
        openat("way/below", O_RDONLY),
        openat("link", O_PATH | O_NOFOLLOW),
        openat("/dev/null", O_RDWR),
        openat("/proc/self/status", O_RDONLY),
        openat("/proc/self/exe", O_RDONLY),
        step!("openat", Arg::Saved("dfd"), "below", O_RDONLY),
        step!("openat", Arg::Saved("dfd"), "../file", O_RDWR),
        step!("openat", Arg::Saved("dfd"), ".", O_RDONLY),
        step!("open", "/tmp/w/file", O_RDONLY, 0),
        step!("open", "file", O_RDWR, 0),
    ]
}

fn made() -> Vec<ProgramStep> {
    vec![
        openat("/tmp/w/new1", O_CREAT | O_RDWR),
        openat("new2", O_CREAT | O_WRONLY),
        openat("new3", O_CREAT | O_EXCL | O_WRONLY),
        openat("sub/new4", O_CREAT | O_WRONLY),
        openat("./new5", O_CREAT | O_WRONLY),
        openat("../w/new6", O_CREAT | O_WRONLY),
        openat("way/new7", O_CREAT | O_WRONLY),
        openat("dangling", O_CREAT | O_WRONLY),
        openat("two words \"\n\u{1}ü", O_CREAT | O_WRONLY),
        step!("openat", Arg::Saved("dfd"), "new8", O_CREAT | O_RDWR, 0o600),
        step!(
            "openat",
            Arg::Saved("dfd"),
            "../new9",
            O_CREAT | O_RDWR,
            0o600
        ),
        openat("/tmp/w", O_TMPFILE | O_RDWR),
        openat(".", O_TMPFILE | O_RDWR | O_EXCL),
        step!("creat", "/tmp/w/new10", 0o600),
        step!("creat", "new11", 0o600),
        step!("creat", "new11", 0o600),
        step!("open", "new12", O_CREAT | O_RDWR, 0o4755),
    ]
}

fn failing() -> Vec<ProgramStep> {
    let [long, component] = too_long();
    vec![
        openat("/tmp/w/missing", O_RDONLY),
        openat("missing", O_RDONLY),
        openat("missing/file", O_RDONLY),
        openat("missing/file", O_CREAT | O_RDWR),
        openat("/tmp/w/missing/file", O_CREAT | O_RDWR),
        openat("file", O_CREAT | O_EXCL | O_RDWR),
        openat("/tmp/w/file", O_CREAT | O_EXCL | O_RDWR),
        openat("link", O_CREAT | O_EXCL | O_RDWR),
        openat("dangling", O_RDONLY),
        openat("dangling", O_CREAT | O_EXCL | O_RDWR),
        openat("loop", O_RDONLY),
        openat("link", O_RDONLY | O_NOFOLLOW),
        openat("file/below", O_RDONLY),
        openat("file/below", O_CREAT | O_RDWR),
        openat("file/", O_RDONLY),
        openat("newdir/", O_CREAT | O_RDWR),
        openat("file", O_DIRECTORY),
        openat("sub", O_WRONLY),
        openat("sub", O_CREAT | O_RDWR),
        openat("", O_RDONLY),
        step!("openat", CWD, 1, O_RDONLY),
        step!("openat", CWD, 0, O_RDONLY),
        step!("openat", CWD, long, O_RDONLY),
        step!("openat", CWD, component, O_RDONLY),
        step!("openat", 77, "file", O_RDONLY),
        step!("openat", 77, "/tmp/w/file", O_RDONLY),
        step!("openat", 0, "file", O_RDONLY),
        openat("file", O_TMPFILE | O_RDWR),
        openat("/proc/new", O_CREAT | O_RDWR),
        step!("open", "missing", O_RDONLY, 0),
        step!("creat", "sub", 0o600),
        step!("creat", "missing/new", 0o600),
    ]
}

fn other_calls() -> Vec<ProgramStep> {
    let how = |flags: i32, mode: u64, resolve: u64| {
        numbers([i64::from(flags).cast_unsigned(), mode, resolve].map(u64::to_ne_bytes))
    };
    // The size of the handle; the kernel writes the handle.
    let handle = || {
        let mut bytes = 128_u32.to_ne_bytes().to_vec();
        bytes.resize(136, 0);
        Arg::Shared("handle", bytes)
    };
    let mount = || Arg::Shared("mount", vec![0; 8]);
    vec![
        step!("openat2", CWD, "/tmp/w/file", how(O_RDONLY, 0, 0), 24),
        step!("openat2", CWD, "new20", how(O_CREAT | O_RDWR, 0o600, 0), 24),
        step!(
            "openat2",
            CWD,
            "sub/below",
            how(O_RDWR, 0, RESOLVE_BENEATH),
            24
        ),
        step!(
            "openat2",
            CWD,
            "/tmp/w/file",
            how(O_RDONLY, 0, RESOLVE_BENEATH),
            24
        ),
        step!(
            "openat2",
            CWD,
            "link",
            how(O_RDONLY, 0, RESOLVE_NO_SYMLINKS),
            24
        ),
        step!("openat2", CWD, "missing", how(O_RDONLY, 0, 0), 24),
        step!("openat2", CWD, "file", how(O_RDONLY, 0o600, 0), 24),
        step!("openat2", CWD, "file", how(O_RDONLY, 0, 0), 8),
        step!("openat2", CWD, "file", 1, 24),
        step!("name_to_handle_at", CWD, "file", handle(), mount(), 0),
        step!("open_by_handle_at", CWD, handle(), O_RDWR),
        step!("open_by_handle_at", 77, handle(), O_RDWR),
        step!("name_to_handle_at", CWD, "missing", handle(), mount(), 0),
        step!(
            "name_to_handle_at",
            Arg::Saved("dfd"),
            "",
            handle(),
            mount(),
            AT_EMPTY_PATH
        ),
        step!("name_to_handle_at", CWD, "link", handle(), mount(), 0x400),
        step!("memfd_create", "name", 0),
    ]
}

fn refused() -> Vec<ProgramStep> {
    vec![
        openat("secret", O_RDONLY),
        openat("/tmp/w/secret", O_WRONLY),
        openat("secret", O_CREAT | O_RDWR),
        openat("own/file", O_RDONLY),
        openat("own/new", O_CREAT | O_RDWR),
        openat("/etc/new", O_CREAT | O_RDWR),
        openat("file", O_RDONLY),
        openat("file", O_RDWR),
        openat("other", O_RDWR | O_TRUNC),
        openat("mine", O_CREAT | O_RDWR),
        step!("open", "own/file", O_RDONLY, 0),
        step!("creat", "file", 0o600),
    ]
}
