//! Calls whose task work comes late, or that look as if they had ended: with `PREEMPT_RT` a thread requests the work, and
//! a task with a real-time priority does not let it run.

use std::path::Path;

use anyhow::ensure;

use crate::daemon::{Daemon, calls};
use crate::differential::steps::CWD;
use crate::filesystems::{LOAD_MODULES, shell};
use crate::machine::{USER, make_directory};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "late",
    engine: "fentry",
    prepare: || {
        make_directory(Path::new("/tmp/late"), USER)?;
        shell(LOAD_MODULES)?;
        shell(MOUNT)
    },
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S unlink -F uid=1001 -k removes\n\
         -a always,exit -F arch=b64 -S openat -F uid=1001 -k opens\n\
         -a always,exit -F arch=b64 -S getpgid -F uid=1001 -k last\n",
    ),
    tests: &[
        ("calls_of_a_real_time_task", calls_of_a_real_time_task),
        ("open_that_copies_is_one_open", open_that_copies_is_one_open),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// An overlay whose lower file an open for writing copies.
const MOUNT: &str = "
[ -d /tmp/late/top ] && exit 0
mkdir /tmp/late/low /tmp/late/up /tmp/late/work /tmp/late/top
echo text > /tmp/late/low/file
chown -R 1001 /tmp/late
mount -t overlay -o lowerdir=/tmp/late/low,upperdir=/tmp/late/up,workdir=/tmp/late/work overlay /tmp/late/top
";

mod nr {
    pub(super) const NANOSLEEP: u32 = 35;
    pub(super) const UNLINK: u32 = 87;
    pub(super) const SETRESUID: u32 = 117;
    pub(super) const GETPGID: u32 = 121;
    pub(super) const SCHED_SETSCHEDULER: u32 = 144;
    pub(super) const EXIT_GROUP: u32 = 231;
    pub(super) const OPENAT: u32 = 257;
}

const FIFO: i64 = 1;
/// More calls than a claim tries slots.
const CALLS: usize = 100;

/// A task that does not wait between its calls, and goes on after a pause.
fn calls_of_a_real_time_task(daemon: &Daemon) -> anyhow::Result<()> {
    let priority = vec![10, 0, 0, 0];
    let pause = [0_u64, 300_000_000].map(u64::to_le_bytes).concat();
    let mut program = Program::new(Entry::Syscall)
        .call(nr::SCHED_SETSCHEDULER, args![0, FIFO, Arg::Bytes(priority)])
        .call(nr::SETRESUID, args![1001, 1001, 1001]);
    for _ in 0..CALLS {
        program = program.call(nr::UNLINK, args!["/tmp/late/first"]);
    }
    program = program.call(nr::NANOSLEEP, args![Arg::Bytes(pause), 0]);
    for _ in 0..CALLS {
        program = program.call(nr::UNLINK, args!["/tmp/late/second"]);
    }
    let path = program
        .call(nr::GETPGID, args![0])
        .call(nr::EXIT_GROUP, args![0])
        .install("real_time")?;
    let pid = daemon.run(0, &path, &[])?;
    let events = daemon.events_until(pid, nr::GETPGID)?;
    let removes = calls(&events, nr::UNLINK);
    let of = |name: &str| {
        let of = |event: &&&_| {
            support::event::Event::fields(event, "PATH", "name")
                .iter()
                .any(|path| path == name)
        };
        removes.iter().filter(of).count()
    };
    let exits = removes
        .iter()
        .filter(|event| event.syscall("exit") == "-2")
        .count();
    let found = (of("/tmp/late/first"), of("/tmp/late/second"), exits);
    ensure!(
        removes.len() == 2 * CALLS,
        "{} of {} calls are recorded; by name and with result: {found:?}",
        removes.len(),
        2 * CALLS
    );
    Ok(())
}

/// An overlay opens files of its lower file system when an open for writing copies one.
fn open_that_copies_is_one_open(daemon: &Daemon) -> anyhow::Result<()> {
    const O_WRONLY: i64 = 1;
    let path = Program::new(Entry::Syscall)
        .call(nr::OPENAT, args![CWD, "/tmp/late/top/file", O_WRONLY])
        .call(nr::GETPGID, args![0])
        .call(nr::EXIT_GROUP, args![0])
        .install("copies")?;
    let pid = daemon.run_user(&path, &[])?;
    let events = daemon.events_until(pid, nr::GETPGID)?;
    let opens = calls(&events, nr::OPENAT);
    let [open] = opens.as_slice() else {
        anyhow::bail!("{} opens: {}", opens.len(), support::event::show(&events));
    };
    ensure!(open.syscall("exit") == "3", "{open}");
    Ok(())
}
