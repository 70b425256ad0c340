//! Events of syscalls with auxiliary records.

use audit::event::aux_record::{
    AuxRecord, CapabilitySets, FileCapabilities, IpcPerm, IpcSetPerm, MqAttributes, OldNew,
    SocketCall, TargetTask, Timespec,
};
use audit::event::{Argv, Event, SecurityLabel, Task};
use audit::ids::{Arch, Syscall};

use super::openat;

/// A successful syscall without objects.
fn call(number: u32, details: impl IntoIterator<Item = AuxRecord<'static>>) -> Event<'static> {
    Event {
        syscall: Syscall(number),
        exit: Some(0),
        unproven: false,
        args: [1, 2, 3, 4],
        aux_records: details.into_iter().collect(),
        cwd: None,
        items: [].into_iter().collect(),
        ..openat()
    }
}

const MOST_CAPS: u64 = 0x1ff_ffff_ffff;

/// `ping` run by a user; the file has the capability `CAP_NET_RAW`.
pub(crate) fn file_caps() -> Event<'static> {
    let raw = 1 << 13;
    let caps = FileCapabilities {
        version: 2,
        permitted: raw,
        effective: true,
        new: CapabilitySets {
            permitted: raw,
            effective: raw,
            ..CapabilitySets::default()
        },
        ..FileCapabilities::default()
    };
    Event {
        argv: Some(Argv {
            argc: 1,
            bytes: b"ping\0",
        }),
        ..call(59, [AuxRecord::FileCapabilities(caps)])
    }
}

/// `socketpair` through `socketcall`, with an address that only other socket calls have.
pub(crate) fn socketcall() -> Event<'static> {
    let call_of = SocketCall {
        count: 4,
        args: [1, 0xffff_ffff, 0, 0x1000, 7, 7],
    };
    Event {
        arch: Arch::I386,
        sockaddr: Some(b"\x01\0"),
        ..call(
            102,
            [AuxRecord::FdPair([3, 4]), AuxRecord::SocketCall(call_of)],
        )
    }
}

/// A signal to three tasks: the first one is written last.
pub(crate) fn targets() -> Event<'static> {
    let task = |pid, comm| {
        AuxRecord::TargetTask(TargetTask {
            pid,
            auid: if pid == 1 { u32::MAX } else { 1000 },
            uid: 0,
            ses: if pid == 1 { u32::MAX } else { 3 },
            comm,
            obj: (pid == 77).then_some(SecurityLabel {
                name: b"/usr/sbin/cupsd",
                mode: Some("enforce"),
            }),
        })
    };
    call(
        62,
        [task(1, b"systemd"), task(77, b"two words"), task(78, b"sh")],
    )
}

/// A task without an AppArmor profile.
pub(crate) fn unconfined() -> Event<'static> {
    let event = openat();
    let subj = Some(SecurityLabel {
        name: b"unconfined",
        mode: None,
    });
    Event {
        task: Task { subj, ..event.task },
        ..event
    }
}

pub(crate) fn ipc_set() -> Event<'static> {
    let object = IpcPerm {
        uid: 0,
        gid: 42,
        mode: 0o600,
    };
    let wanted = IpcSetPerm {
        qbytes: 0x1000,
        perm: IpcPerm {
            uid: 1001,
            gid: 4242,
            mode: 0,
        },
    };
    let detail = AuxRecord::Ipc {
        object,
        wanted: Some(wanted),
    };
    call(71, [detail])
}

const ATTRIBUTES: MqAttributes = MqAttributes {
    flags: 0x800,
    max_messages: 5,
    message_bytes: 128,
    messages: -1,
};

pub(crate) fn mq_open() -> Event<'static> {
    let detail = AuxRecord::MqOpen {
        oflag: 0o102,
        mode: 0o600,
        attributes: ATTRIBUTES,
    };
    call(240, [detail])
}

pub(crate) fn mq_send() -> Event<'static> {
    let detail = AuxRecord::MqSendReceive {
        mqdes: -1,
        len: 4,
        priority: 7,
        until: Timespec { sec: -1, nsec: 5 },
    };
    call(242, [detail])
}

pub(crate) fn mq_notify() -> Event<'static> {
    let detail = AuxRecord::MqNotify {
        mqdes: 3,
        signal: 10,
    };
    call(244, [detail])
}

pub(crate) fn mq_set() -> Event<'static> {
    let detail = AuxRecord::MqAttributes {
        mqdes: 3,
        attributes: ATTRIBUTES,
    };
    call(245, [detail])
}

pub(crate) fn capset() -> Event<'static> {
    let caps = CapabilitySets {
        permitted: MOST_CAPS,
        inheritable: 0,
        effective: 1,
        ambient: 0,
    };
    call(126, [AuxRecord::CapSet { pid: 4322, caps }])
}

pub(crate) fn mmap() -> Event<'static> {
    call(9, [AuxRecord::Mmap { fd: -1, flags: 2 }])
}

pub(crate) fn openat2() -> Event<'static> {
    let detail = AuxRecord::OpenHow {
        flags: 0o102,
        mode: 0,
        resolve: 8,
    };
    Event {
        syscall: Syscall(437),
        aux_records: [detail].into_iter().collect(),
        ..openat()
    }
}

pub(crate) fn module() -> Event<'static> {
    call(175, [AuxRecord::Module { name: b"dummy" }])
}

/// An `adjtimex` that changes frequency and tick, and sets the clock forward.
pub(crate) fn clock() -> Event<'static> {
    let mut changes = [OldNew::default(); 6];
    changes[1] = OldNew {
        old: 0,
        new: 281_474_976_710_656,
    };
    changes[4] = OldNew {
        old: 10_000,
        new: 9_999,
    };
    let forward = Timespec {
        sec: -1,
        nsec: 1000,
    };
    call(
        159,
        [
            AuxRecord::TimeAdjusted(changes),
            AuxRecord::TimeInjected(forward),
        ],
    )
}
