//! Syscalls of System V IPC and of message queues, 64-bit.

use super::steps::{ProgramStep, Run, RunAs, numbers, step};
use crate::program::{Arg, Entry};

const IPC_CREAT: i32 = 0o1000;
const IPC_RMID: i32 = 0;
const IPC_SET: i32 = 1;
const IPC_STAT: i32 = 2;
const SHM_STAT_ANY: i32 = 15;
const O_RDWR: i32 = 2;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_NONBLOCK: i32 = 0o4000;

pub(super) fn runs() -> Vec<Run> {
    let run = |user, steps| Run {
        user,
        entry: Entry::Syscall,
        steps,
    };
    let refused = vec![
        step!("msgget", 4242, 0o600),
        step!("msgctl", 0, IPC_RMID, 0),
        step!("shmctl", 0, IPC_RMID, 0),
        step!("mq_open", "queue", O_RDWR, 0, 0),
        step!("mq_unlink", "queue"),
    ];
    vec![
        run(RunAs::Root, system_v()),
        run(RunAs::Root, queues()),
        run(RunAs::User, refused),
        run(RunAs::Root, vec![step!("mq_unlink", "queue")]),
    ]
}

/// A `struct ipc64_perm` and the fields after it: owner 1001, group 4242, mode 0640.
fn owner(words_after: &[u64]) -> Arg {
    let mut bytes: Vec<u8> = [0_u32, 1001, 4242, 0, 0, 0o640]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    bytes.resize(48, 0);
    bytes.extend(words_after.iter().flat_map(|word| word.to_ne_bytes()));
    bytes.resize(160, 0);
    Arg::Bytes(bytes)
}

fn system_v() -> Vec<ProgramStep> {
    let room = || Arg::Shared("room", vec![0; 256]);
    let (messages, semaphores, memory) = (
        || Arg::Saved("messages"),
        || Arg::Saved("semaphores"),
        || Arg::Saved("memory"),
    );
    let text = || {
        let mut bytes = 1_u64.to_ne_bytes().to_vec();
        bytes.extend(b"text");
        Arg::Bytes(bytes)
    };
    vec![
        step!("msgget", 4242, IPC_CREAT | 0o600).save("messages"),
        step!("msgget", 4242, IPC_CREAT | 0o600),
        step!("msgget", 4243, 0o600),
        step!("msgsnd", messages(), text(), 4, 0),
        step!("msgrcv", messages(), room(), 4, 0, 0),
        step!("msgrcv", messages(), room(), 4, 0, 0o4000),
        step!("msgctl", messages(), IPC_STAT, room()),
        // `msg_qbytes` is the word after three times and two counts.
        step!("msgctl", messages(), IPC_SET, owner(&[0, 0, 0, 0, 0, 4096])),
        step!("msgctl", messages(), IPC_SET, 1),
        step!("msgctl", 999, IPC_STAT, room()),
        step!("msgctl", messages(), IPC_RMID, 0),
        step!("semget", 0, 2, IPC_CREAT | 0o600).save("semaphores"),
        step!("semop", semaphores(), numbers([[0_u8, 0, 1, 0, 0, 0]]), 1),
        step!("semctl", semaphores(), 0, IPC_STAT, room()),
        step!("semctl", semaphores(), 0, IPC_SET, owner(&[])),
        step!("semctl", semaphores(), 0, 16, 5),
        step!("semctl", semaphores(), 0, IPC_RMID, 0),
        step!("semctl", 999, 0, IPC_RMID, 0),
        step!("shmget", 0, 4096, IPC_CREAT | 0o600).save("memory"),
        step!("shmat", memory(), 0, 0),
        step!("shmctl", memory(), IPC_STAT, room()),
        step!("shmctl", memory(), IPC_SET, owner(&[])),
        step!("shmctl", memory(), 11, 0),
        step!("shmctl", memory(), SHM_STAT_ANY, room()),
        step!("shmctl", memory(), IPC_RMID, 0),
        step!("shmctl", 999, IPC_RMID, 0),
        step!("shmat", 999, 0, 0),
    ]
}

/// The same in the 32-bit table: through `ipc`, and directly.
pub(super) fn runs_32(entry: Entry) -> Vec<Run> {
    let (semget, semctl, msgsnd, msgget, msgctl, shmget, shmctl) = (2, 3, 11, 13, 14, 23, 24);
    let ipc_64 = 0x100;
    let (messages, memory, queue) = (
        || Arg::Saved("messages"),
        || Arg::Saved("memory"),
        || Arg::Saved("queue"),
    );
    let room = || Arg::Shared("room", vec![0; 256]);
    let text = || {
        let mut bytes = 1_u32.to_ne_bytes().to_vec();
        bytes.extend(b"text");
        Arg::Bytes(bytes)
    };
    let attributes = |flags: i32| numbers([flags, 5, 128, 0, 0, 0, 0, 0].map(i32::to_ne_bytes));
    let time = || numbers([1_u32, 5].map(u32::to_ne_bytes));
    let event = || Arg::Bytes([[0, 0, 0, 0], [10, 0, 0, 0], [0; 4]].concat().repeat(6));
    let flags = O_CREAT | O_RDWR | O_NONBLOCK;
    let steps = vec![
        step!("ipc", msgget, 4242, IPC_CREAT | 0o600, 0, 0).save("messages"),
        step!("ipc", msgget, 4242, IPC_CREAT | 0o600, 0, 0),
        step!("ipc", msgsnd, messages(), 4, 0, text()),
        step!("ipc", msgctl, messages(), IPC_STAT | ipc_64, 0, room()),
        step!("ipc", msgctl, messages(), IPC_SET | ipc_64, 0, owner(&[])),
        step!("ipc", msgctl, messages(), IPC_RMID, 0, 0),
        step!("ipc", semget, 0, 1, IPC_CREAT | 0o600, 0).save("semaphores"),
        step!("ipc", semctl, 999, 0, IPC_RMID, room()),
        step!("ipc", shmget, 0, 4096, IPC_CREAT | 0o600, 0).save("memory"),
        step!("ipc", shmctl, memory(), 11, 0, 0),
        step!("ipc", shmctl, memory(), IPC_RMID, 0, 0),
        step!("semctl", Arg::Saved("semaphores"), 0, IPC_RMID, 0),
        step!("msgget", 4243, IPC_CREAT | 0o600).save("messages"),
        step!("msgsnd", messages(), text(), 4, 0),
        step!("msgrcv", messages(), room(), 4, 0, 0),
        step!("msgctl", messages(), IPC_RMID, 0),
        step!("mq_open", "narrow", flags, 0o600, attributes(0)).save("queue"),
        step!("mq_timedsend", queue(), "text", 4, 7, time()),
        step!("mq_timedreceive", queue(), room(), 128, 0, 0),
        step!("mq_notify", queue(), event()),
        step!("mq_getsetattr", queue(), attributes(O_NONBLOCK), room()),
        step!("mq_unlink", "narrow"),
    ];
    vec![Run {
        user: RunAs::Root,
        entry,
        steps,
    }]
}

fn queues() -> Vec<ProgramStep> {
    let queue = || Arg::Saved("queue");
    let room = || Arg::Shared("room", vec![0; 256]);
    let attributes = |flags: i64| numbers([flags, 5, 128, 0, 0, 0, 0, 0].map(i64::to_ne_bytes));
    let time = || numbers([1_u64, 5].map(u64::to_ne_bytes));
    // A `struct sigevent`: SIGEV_SIGNAL with signal 10.
    let event = || numbers([0_u32, 0, 10, 0, 0, 0, 0, 0].map(u32::to_ne_bytes));
    let flags = O_CREAT | O_RDWR | O_NONBLOCK;
    vec![
        step!("mq_open", "queue", flags, 0o600, attributes(0)).save("queue"),
        step!("mq_open", "queue", O_CREAT | O_EXCL | O_RDWR, 0o600, 0),
        step!("mq_open", "queue", O_RDWR, 0, 0),
        step!("mq_open", "default", flags, 0o600, 0),
        step!("mq_open", "missing", O_RDWR, 0, 0),
        step!("mq_open", "with/slash", flags, 0o600, 0),
        step!("mq_open", "bad", flags, 0o600, 1),
        step!("mq_timedsend", queue(), "text", 4, 7, 0),
        step!("mq_timedsend", queue(), "more", 4, 1, time()),
        step!("mq_timedreceive", queue(), room(), 128, 0, 0),
        step!("mq_timedreceive", queue(), room(), 128, 0, time()),
        step!("mq_timedreceive", queue(), room(), 128, 0, 0),
        step!("mq_timedsend", 77, "text", 4, 7, 0),
        step!("mq_notify", queue(), event()),
        step!("mq_notify", queue(), 0),
        step!("mq_getsetattr", queue(), 0, room()),
        step!(
            "mq_getsetattr",
            queue(),
            attributes(i64::from(O_NONBLOCK)),
            room()
        ),
        step!("mq_getsetattr", 77, attributes(0), 0),
        step!("mq_unlink", "default"),
        step!("mq_unlink", "missing"),
    ]
}
