//! A daemon whose BPF objects are pinned, as after an installation.

use std::path::Path;

use anyhow::ensure;
use support::event;

use crate::daemon::{Daemon, calls, replace};
use crate::machine::{self, USER, make_file};
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session};

/// The test.
pub(crate) const SESSION: Session = Session {
    name: "pinned",
    engine: "fentry",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text(OTHER),
    tests: &[(
        "hooks_that_come_back_record_once",
        hooks_that_come_back_record_once,
    )],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Rules about calls that the test does not make.
const OTHER: &str = "-a always,exit -F arch=b64 -S acct -F uid=1001 -k other\n";
/// Rules with many hooks, which the kernel detaches one after the other.
const MANY: &str = "-a always,exit -F arch=b64 -S chmod,rmdir,mkdir,unlink,rename,link,symlink,mknod,chown,lchown,truncate,setxattr,removexattr,socket,bind,connect,listen,accept,kill,ptrace,mount,umount2,chroot,sethostname,setuid,setgid,capset,utime,flock,fsync,pipe,dup2 -F uid=1001 -k many\n";

/// Some of them.
const SOME: &str = "-a always,exit -F arch=b64 -S chmod,rmdir -F uid=1001 -k some\n";

const BPF: &str = "/tmp/pinned-bpf";
const PINS: &str = "/tmp/pinned-bpf/tollgate";

/// Rules that lose their hooks and get them back while the kernel is still detaching.
fn hooks_that_come_back_record_once(daemon: &Daemon) -> anyhow::Result<()> {
    /// The last call: the others are in the log before it.
    const RMDIR: u32 = 84;
    const CHMOD: u32 = 90;
    machine::mount_bpf_file_system(BPF)?;
    let path = Program::new(Entry::Syscall)
        .call(CHMOD, args!["/tmp/work/file", 0o644])
        .call(RMDIR, args!["/tmp/work/missing"])
        .install("pinned")?;
    let pinned = Daemon::start_pinned("pinned_second", daemon.engine(), MANY, PINS)?;
    for _ in 0..3 {
        replace(&pinned, MANY)?;
        replace(&pinned, OTHER)?;
        replace(&pinned, SOME)?;
        let pid = pinned.run_user(&path, &[])?;
        let events = pinned.events_until(pid, RMDIR)?;
        for call in [CHMOD, RMDIR] {
            let count = calls(&events, call).len();
            ensure!(count == 1, "{}", event::show(&events));
        }
    }
    pinned.stop_last()
}
