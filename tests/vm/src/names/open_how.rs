//! Flags of an `openat2` that are gone when it ends.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Context as _;
use nix::libc::{MAP_SHARED, O_RDWR, O_TRUNC, O_WRONLY, PROT_READ, PROT_WRITE};

use crate::daemon::Daemon;
use crate::differential::steps::{self, CWD, step};
use crate::program::{Arg, Entry};

/// The open empties the file that has its flags.
pub(super) fn flags_that_the_open_removes(daemon: &Daemon) -> anyhow::Result<()> {
    const FILE: &str = "/tmp/names/emptied";
    // `struct open_how`: flags, mode and resolve.
    let flags = u64::from((O_WRONLY | O_TRUNC).cast_unsigned());
    let how = [flags, 0, 0].map(u64::to_ne_bytes).concat();
    fs::write(FILE, how).context(FILE)?;
    fs::set_permissions(FILE, Permissions::from_mode(0o666)).context("chmod")?;
    let access = PROT_READ | PROT_WRITE;
    let steps = [
        step!("openat", CWD, FILE, O_RDWR).save("file"),
        step!("mmap", 0, 4096, access, MAP_SHARED, Arg::Saved("file"), 0).save("how"),
        step!("openat2", CWD, FILE, Arg::Saved("how"), 24),
        step!("exit_group", 0),
    ];
    let program = steps::program(Entry::Syscall, &steps)?.install("emptied")?;
    let pid = daemon.run_user(&program, &[])?;
    // The first is the one by `openat`.
    daemon.events("emptied", pid, 2).map(drop)
}
