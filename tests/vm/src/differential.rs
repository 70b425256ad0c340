//! Tollgate's records of a workload equal those of the kernel's audit, except for the differences in
//! `tests/differential/known.toml`.
//!
//! Each test is a family of syscalls. Only workloads run with the group that the rules of both auditors name;
//! [`steps`] defines workloads.

mod attributes;
mod exec;
mod filesystem_list;
mod ipc;
pub(crate) mod kernel;
mod namespace;
mod objects;
mod open;
mod sockets;
pub(crate) mod steps;
mod stock;
pub(crate) mod uring;
pub(crate) mod watched;

use std::fs;

use anyhow::{Context as _, ensure};
use audit::ids::NativeArch;
use support::compare::{Comparison, compare};
use support::event::{self, Event};
use support::permitted::{Permitted, RecordEntry, Setting};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::program::Entry;
use crate::suite::{Rules, Session, Work};
use kernel::{KernelAudit, is_io_uring_rule};
use steps::Run;
use uring::Worker;

/// The group of the workloads.
const GROUP: u32 = 4242;

/// A test of a session.
type Test = (&'static str, Work);

/// Tests of the sessions about the 64-bit table.
const OPEN: Test = ("open", |daemon| {
    agree(daemon, &SESSION, "open", &open::runs(B64))
});
const NAMESPACE: Test = ("namespace", |daemon| {
    agree(daemon, &SESSION, "namespace", &namespace::runs(B64))
});
const ATTRIBUTES: Test = ("attributes", |daemon| {
    agree(daemon, &SESSION, "attributes", &attributes::runs(B64))
});
const SOCKETS: Test = ("sockets", |daemon| {
    agree(daemon, &SESSION, "sockets", &sockets::runs(B64))
});
const EXEC: Test = ("exec", |daemon| {
    agree(daemon, &SESSION, "exec", &exec::runs(B64))
});
const OBJECTS: Test = ("objects", |daemon| {
    agree(daemon, &SESSION, "objects", &objects::runs())
});

/// Syscalls of the 64-bit table. The daemon also reads the kernel's own records, from the multicast group.
pub(crate) const SESSION: Session = Session {
    name: "differential",
    engine: "fentry",
    prepare: stock::prepare,
    rules: Rules::Made(|| steps::rules_of_this_machine(RULES)),
    tests: &[
        OPEN,
        NAMESPACE,
        ATTRIBUTES,
        SOCKETS,
        EXEC,
        ("ipc", |daemon| agree(daemon, &SESSION, "ipc", &ipc::runs())),
        OBJECTS,
        ("stock_programs", stock::stock_readers_agree),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Syscalls of the 64-bit table on arm64, where the stock tools are not packed. Not those with two names: the kernel lists
/// their items in the order in which its compiler has read them.
pub(crate) const SESSION_ARM64: Session = Session {
    prepare: || Ok(()),
    tests: &[OPEN, ATTRIBUTES, SOCKETS, EXEC, OBJECTS],
    ..SESSION
};

/// Syscalls of the 32-bit table, from 64-bit and 32-bit programs.
pub(crate) const SESSION_32: Session = Session {
    name: "differential_32",
    prepare: || Ok(()),
    rules: Rules::Made(|| steps::rules_of_this_machine(RULES_32)),
    tests: &[
        ("open_int80", |daemon| {
            agree(daemon, &SESSION_32, "open_int80", &open::runs(INT80))
        }),
        ("open_i386", |daemon| {
            agree(daemon, &SESSION_32, "open_i386", &open::runs(B32))
        }),
        ("namespace_int80", |daemon| {
            agree(
                daemon,
                &SESSION_32,
                "namespace_int80",
                &namespace::runs(INT80),
            )
        }),
        ("namespace_i386", |daemon| {
            agree(daemon, &SESSION_32, "namespace_i386", &namespace::runs(B32))
        }),
        ("attributes_int80", |daemon| {
            agree(
                daemon,
                &SESSION_32,
                "attributes_int80",
                &attributes::runs(INT80),
            )
        }),
        ("attributes_i386", |daemon| {
            agree(
                daemon,
                &SESSION_32,
                "attributes_i386",
                &attributes::runs(B32),
            )
        }),
        ("sockets_int80", |daemon| {
            agree(
                daemon,
                &SESSION_32,
                "sockets_int80",
                &sockets::runs_32(INT80),
            )
        }),
        ("sockets_i386", |daemon| {
            agree(daemon, &SESSION_32, "sockets_i386", &sockets::runs_32(B32))
        }),
        ("exec_int80", |daemon| {
            agree(daemon, &SESSION_32, "exec_int80", &exec::runs(INT80))
        }),
        ("exec_i386", |daemon| {
            agree(daemon, &SESSION_32, "exec_i386", &exec::runs(B32))
        }),
        ("objects_int80", |daemon| {
            agree(
                daemon,
                &SESSION_32,
                "objects_int80",
                &objects::runs_32(INT80),
            )
        }),
        ("objects_i386", |daemon| {
            agree(daemon, &SESSION_32, "objects_i386", &objects::runs_32(B32))
        }),
        ("ipc_int80", |daemon| {
            agree(daemon, &SESSION_32, "ipc_int80", &ipc::runs_32(INT80))
        }),
        ("ipc_i386", |daemon| {
            agree(daemon, &SESSION_32, "ipc_i386", &ipc::runs_32(B32))
        }),
    ],
    ..SESSION
};

/// `io_uring` operations under rules of the exit list, which also apply to the matching operations.
pub(crate) const SESSION_URING: Session = Session {
    name: "differential_uring",
    prepare: || Ok(()),
    rules: Rules::Text(RULES_URING),
    tests: &[
        ("uring_submitter", |daemon| {
            agree(
                daemon,
                &SESSION_URING,
                "uring_submitter",
                &uring::runs(Worker::Submitter)?,
            )
        }),
        ("uring_worker", |daemon| {
            agree(
                daemon,
                &SESSION_URING,
                "uring_worker",
                &uring::runs(Worker::Pool)?,
            )
        }),
        ("uring_poller", |daemon| {
            agree(
                daemon,
                &SESSION_URING,
                "uring_poller",
                &uring::runs(Worker::Poller)?,
            )
        }),
        ("uring_chain", |daemon| {
            agree(
                daemon,
                &SESSION_URING,
                "uring_chain",
                &uring::runs(Worker::Chain)?,
            )
        }),
    ],
    ..SESSION
};

/// The same operations under rules of the `io_uring` list.
pub(crate) const SESSION_URING_LIST: Session = Session {
    name: "differential_uring_list",
    prepare: || Ok(()),
    rules: Rules::Text(RULES_URING_LIST),
    tests: &[
        ("uring_list_submitter", |daemon| {
            agree(
                daemon,
                &SESSION_URING_LIST,
                "uring_list_submitter",
                &uring::runs(Worker::Submitter)?,
            )
        }),
        ("uring_list_worker", |daemon| {
            agree(
                daemon,
                &SESSION_URING_LIST,
                "uring_list_worker",
                &uring::runs(Worker::Pool)?,
            )
        }),
        ("uring_list_poller", |daemon| {
            agree(
                daemon,
                &SESSION_URING_LIST,
                "uring_list_poller",
                &uring::runs(Worker::Poller)?,
            )
        }),
    ],
    ..SESSION
};

/// File systems that rules of the filesystem list exclude, and one that they do not.
pub(crate) const SESSION_FILESYSTEM_LIST: Session = Session {
    name: "differential_filesystem_list",
    prepare: || Ok(()),
    rules: Rules::Text(RULES_FILESYSTEM_LIST),
    tests: &[("filesystem_list", |daemon| {
        agree(
            daemon,
            &SESSION_FILESYSTEM_LIST,
            "filesystem_list",
            &filesystem_list::runs(),
        )
    })],
    ..SESSION
};

const B64: Entry = Entry::Syscall;
const INT80: Entry = Entry::Int80;
const B32: Entry = Entry::I386;

const RULES: &str = "\
-a always,exit -F arch=b64 -S open,openat,openat2,creat,open_by_handle_at,name_to_handle_at -F gid=4242 -k differential
-a always,exit -F arch=b64 -S unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,symlink,symlinkat -F gid=4242 -k differential
-a always,exit -F arch=b64 -S link,linkat,rename,renameat,renameat2 -F gid=4242 -k differential
-a always,exit -F arch=b64 -S chmod,fchmod,fchmodat,chown,lchown,fchown,fchownat -F gid=4242 -k differential
-a always,exit -F arch=b64 -S truncate,ftruncate,utime,utimes,futimesat,utimensat -F gid=4242 -k differential
-a always,exit -F arch=b64 -S setxattr,lsetxattr,fsetxattr,getxattr,lgetxattr,fgetxattr -F gid=4242 -k differential
-a always,exit -F arch=b64 -S listxattr,llistxattr,flistxattr,removexattr,lremovexattr,fremovexattr -F gid=4242 -k differential
-a always,exit -F arch=b64 -S stat,lstat,fstat,newfstatat,statx,access,faccessat,faccessat2 -F gid=4242 -k differential
-a always,exit -F arch=b64 -S readlink,readlinkat,statfs,fstatfs,chdir,fchdir,chroot -F gid=4242 -k differential
-a always,exit -F arch=b64 -S mount,umount2,pivot_root,swapon,swapoff,acct,inotify_add_watch -F gid=4242 -k differential
-a always,exit -F arch=b64 -S execve,execveat,exit,exit_group -F gid=4242 -k differential
-a always,exit -F arch=b64 -S connect,bind,accept,accept4,sendto,sendmsg,sendmmsg,recvfrom,recvmsg -F gid=4242 -k differential
-a always,exit -F arch=b64 -S socket,listen,getsockname,getpeername,setsockopt -F gid=4242 -k differential
-a always,exit -F arch=b64 -S pipe,pipe2,socketpair,kill,tkill,tgkill,rt_sigqueueinfo,ptrace -F gid=4242 -k differential
-a always,exit -F arch=b64 -S mmap,capset,setresuid,prctl,memfd_create -F gid=4242 -k differential
-a always,exit -F arch=b64 -S msgget,msgctl,msgsnd,msgrcv,semget,semctl,semop,shmget,shmctl,shmat -F gid=4242 -k differential
-a always,exit -F arch=b64 -S mq_open,mq_unlink,mq_timedsend,mq_timedreceive,mq_notify,mq_getsetattr -F gid=4242 -k differential
-a always,exit -F arch=b64 -S init_module,finit_module,delete_module -F gid=4242 -k differential
-a always,exit -F arch=b64 -S adjtimex,clock_adjtime,clock_settime,settimeofday -F gid=4242 -k differential
";

const RULES_32: &str = "\
-a always,exit -F arch=b32 -S open,openat,openat2,creat,open_by_handle_at,name_to_handle_at -F gid=4242 -k differential
-a always,exit -F arch=b32 -S unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,symlink,symlinkat -F gid=4242 -k differential
-a always,exit -F arch=b32 -S link,linkat,rename,renameat,renameat2 -F gid=4242 -k differential
-a always,exit -F arch=b32 -S chmod,fchmod,fchmodat,chown,lchown,fchown,fchownat -F gid=4242 -k differential
-a always,exit -F arch=b32 -S truncate,ftruncate,utime,utimes,futimesat,utimensat -F gid=4242 -k differential
-a always,exit -F arch=b32 -S setxattr,lsetxattr,fsetxattr,getxattr,listxattr,removexattr -F gid=4242 -k differential
-a always,exit -F arch=b32 -S stat,lstat,statx,access,faccessat,faccessat2 -F gid=4242 -k differential
-a always,exit -F arch=b32 -S readlink,readlinkat,statfs,chdir,chroot -F gid=4242 -k differential
-a always,exit -F arch=b32 -S mount,umount2,swapon,acct -F gid=4242 -k differential
-a always,exit -F arch=b32 -S execve,execveat,exit,exit_group -F gid=4242 -k differential
-a always,exit -F arch=b64 -S execve,exit,exit_group -F gid=4242 -k differential
-a always,exit -F arch=b32 -S socketcall,connect,bind,sendto -F gid=4242 -k differential
-a always,exit -F arch=b32 -S pipe,pipe2,socketpair,kill,tkill,tgkill,rt_sigqueueinfo,ptrace -F gid=4242 -k differential
-a always,exit -F arch=b32 -S mmap,mmap2,capset,delete_module,adjtimex,clock_adjtime,settimeofday -F gid=4242 -k differential
-a always,exit -F arch=b32 -S ipc,msgget,msgctl,msgsnd,msgrcv,semctl,shmctl -F gid=4242 -k differential
-a always,exit -F arch=b32 -S mq_open,mq_unlink,mq_timedsend,mq_timedreceive,mq_notify,mq_getsetattr -F gid=4242 -k differential
";

const RULES_URING: &str = "\
-a always,exit -F arch=b64 -S openat,openat2,mkdirat,symlinkat,linkat,renameat,renameat2,unlinkat,connect -F gid=4242 -k differential
-a always,exit -F arch=b64 -S fallocate,shutdown,close,setxattr,getxattr -F gid=4242 -k differential
-a always,exit -F arch=b64 -S execve,exit,exit_group -F gid=4242 -k differential
";

/// The last rule has no effect in the kernel; in tollgate it shows that the `io_uring` list precedes rules of the
/// exit list.
const RULES_URING_LIST: &str = "\
-a always,io_uring -S openat,openat2 -F uid!=0 -F gid=4242 -k other
-a always,io_uring -S openat,openat2 -F uid=0 -F gid=4242 -k differential
-a never,io_uring -S mkdirat,shutdown -F gid=4242
-a always,io_uring -S all -F gid=4242 -k differential
-a always,exit -F arch=b64 -S openat,execve,exit,exit_group -F gid=4242 -k differential
-a always,exit -F arch=b64 -S mkdirat,unlinkat -F gid=4242 -k calls
";

/// No object on a tmpfs matches a rule: the second to fourth rule would change the key.
const RULES_FILESYSTEM_LIST: &str = "\
-a never,filesystem -F fstype=0x01021994
-a always,exit -F arch=b64 -S openat,mkdir,rename,unlink,chmod -F dir=/tmp -F gid=4242 -k by-directory
-a always,exit -F arch=b64 -S openat,mkdir,unlink -F path=/tmp/w -F gid=4242 -k by-path
-a always,exit -F arch=b64 -S openat,mkdir,truncate -F filetype=dir -F gid=4242 -k by-type
-a always,exit -F arch=b64 -S openat -F dir=/proc -F gid=4242 -k below-proc
-a always,exit -F arch=b64 -S openat,mkdir,symlink,link,rename,chmod,fchmod,truncate -F gid=4242 -k differential
-a always,exit -F arch=b64 -S unlink,unlinkat,exit -F gid=4242 -k differential
";

/// Key of all rules.
const KEY: &str = "differential";

/// Runs a workload under both auditors and fails unless their records agree.
fn agree(daemon: &Daemon, session: &Session, test: &str, runs: &[Run]) -> anyhow::Result<()> {
    let line = line_of_kernel()?;
    let setting = Setting {
        test,
        line: &line,
        engine: session.engine(),
    };
    let audit = KernelAudit::start(daemon.rules())?;
    if !session.rules.text().lines().any(is_io_uring_rule) {
        audit.add(&format!(
            "-a always,io_uring -S all -F gid={GROUP} -k {KEY}"
        ))?;
    }
    let pids = steps::run(test, runs);
    let theirs = event::parse_interleaved(&audit.stop()?)?;
    let pids = pids?;
    let comparison = compare(&theirs, &events_of(daemon, &pids)?, &pids);
    judge(&comparison, &mut Permitted::records(setting)?)
}

/// The kernel's version line: `6.12`.
pub(crate) fn line_of_kernel() -> anyhow::Result<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("no kernel release")?;
    Ok(release.splitn(3, '.').take(2).collect::<Vec<_>>().join("."))
}

/// The daemon's own events, once the log has the exit of each of these processes, their last syscall.
fn events_of(daemon: &Daemon, pids: &[u32]) -> anyhow::Result<Vec<Event>> {
    wait_for("the end of each process in the log", || {
        for &pid in pids {
            let is_exit = |event: &Event| event.summary().starts_with("exit");
            if !daemon.logged(pid)?.iter().any(is_exit) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })?;
    let mut events = event::parse(&daemon.log_text()?)?;
    events.retain(Event::is_from_tollgate);
    Ok(events)
}

/// Prints differences that are not permitted, and fails if there are any.
fn judge(comparison: &Comparison, permitted: &mut Permitted<RecordEntry>) -> anyhow::Result<()> {
    ensure!(comparison.events > 0, "no event to compare");
    let (mut known, mut unknown) = (0, 0);
    for pair in &comparison.pairs {
        let before = unknown;
        for difference in &pair.differences {
            if permitted.permits_difference(difference) {
                known += 1;
            } else {
                unknown += 1;
                println!("vm: note NOT PERMITTED {difference}");
            }
        }
        for line in pair.text.iter().filter(|_| unknown > before) {
            println!("vm: note {line}");
        }
    }
    let idle = permitted.idle();
    for entry in &idle {
        println!("vm: note NOT SEEN {}", entry.summary());
    }
    println!(
        "vm: note compared {} events, {} records, {} fields, times to within {} ms: {known} \
         differences are permitted, {unknown} are not; {} permitted ones do not occur",
        comparison.events,
        comparison.records,
        comparison.fields,
        comparison.apart_ms,
        idle.len()
    );
    // The list is made on x86-64: on other machines some differences do not occur.
    let is_complete = idle.is_empty() || NativeArch::BUILD != NativeArch::X86_64;
    ensure!(
        unknown == 0 && is_complete,
        "{unknown} differences that are not permitted, {} that are and do not occur",
        idle.len()
    );
    Ok(())
}
