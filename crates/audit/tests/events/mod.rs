//! Events for the record tests, each with the name of its golden file.

mod aux_records;

use audit::event::{Argv, Event, Inode, NameSource, NameType, PathItem, Task, Timestamp};
use audit::ids::{Arch, Auid, Dev, Serial, Syscall};

/// Serial of the first event of [`all`]; the others follow.
pub(crate) const FIRST_SERIAL: u32 = 0x8000_0001;

/// A successful `openat` of `/etc/shadow` by a login user who became root.
pub(crate) fn openat() -> Event<'static> {
    Event {
        time: Timestamp {
            sec: 1_700_000_000,
            milli: 7,
        },
        serial: Serial(FIRST_SERIAL),
        arch: Arch::X86_64,
        syscall: Syscall(257),
        uring_op: None,
        uring_enter: None,
        personality: 0,
        exit: Some(3),
        unproven: false,
        args: [0xffff_ff9c, 0x7ffd_1234_5678, 0x8_0000, 0],
        task: Task {
            ppid: 4321,
            pid: 4322,
            auid: Auid(1000),
            uid: 0,
            gid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            ses: 3,
            tty: b"pts0",
            comm: b"cat",
            exe: Some(b"/usr/bin/cat"),
            subj: None,
        },
        key: Some(b"identity"),
        argv: None,
        sockaddr: None,
        aux_records: [].into_iter().collect(),
        cwd: Some(b"/home/alice"),
        items: [item(b"/etc/shadow", NameType::Normal)]
            .into_iter()
            .collect(),
        proctitle: b"cat\0/etc/shadow\0",
        task_context: None,
    }
}

type Make = fn() -> Event<'static>;

/// A syscall that a seccomp filter may have answered.
fn unproven() -> Event<'static> {
    Event {
        unproven: true,
        ..two_keys()
    }
}

/// All events, by serial.
pub(crate) fn all() -> Vec<(&'static str, Event<'static>)> {
    let cases: [(&str, Make); 27] = [
        ("open_success", openat),
        ("open_not_found", open_not_found),
        ("open_by_handle_restarted", open_by_handle_restarted),
        ("execve_hostile_argv", execve_hostile_argv),
        ("execve_long_arguments", execve_long_arguments),
        ("execve_cut_argv", execve_cut_argv),
        ("rename_over_existing", rename_over_existing),
        ("exit_group", exit_group),
        ("two_keys", two_keys),
        ("names_hostile", names_hostile),
        ("names_longest", names_longest),
        ("exe_too_long", exe_too_long),
        ("detail_file_caps", aux_records::file_caps),
        ("detail_socketcall", aux_records::socketcall),
        ("detail_targets", aux_records::targets),
        ("detail_ipc_set", aux_records::ipc_set),
        ("detail_mq_open", aux_records::mq_open),
        ("detail_mq_send", aux_records::mq_send),
        ("detail_mq_notify", aux_records::mq_notify),
        ("detail_mq_set", aux_records::mq_set),
        ("detail_capset", aux_records::capset),
        ("detail_mmap", aux_records::mmap),
        ("detail_openat2", aux_records::openat2),
        ("detail_module", aux_records::module),
        ("detail_clock", aux_records::clock),
        ("subj_unconfined", aux_records::unconfined),
        ("unproven", unproven),
    ];
    (FIRST_SERIAL..)
        .zip(cases)
        .map(|(serial, (name, make))| {
            (
                name,
                Event {
                    serial: Serial(serial),
                    ..make()
                },
            )
        })
        .collect()
}

fn item(name: &'static [u8], nametype: NameType) -> PathItem<'static> {
    let inode = Inode {
        ino: 131_074,
        dev: Dev(8 << 20 | 1),
        mode: 0o100_640,
        uid: 0,
        gid: 42,
        rdev: Dev(0),
    };
    PathItem {
        name: Some(name),
        source: NameSource::Kernel,
        inode: Some(inode),
        nametype,
        path: None,
    }
}

fn directory(name: &'static [u8]) -> PathItem<'static> {
    let inode = Inode {
        ino: 2,
        dev: Dev(0xfe << 20 | 0x100),
        mode: 0o41_777,
        uid: 1000,
        gid: 1000,
        rdev: Dev(0),
    };
    PathItem {
        inode: Some(inode),
        ..item(name, NameType::Parent)
    }
}

fn open_not_found() -> Event<'static> {
    Event {
        exit: Some(-2),
        key: None,
        items: [PathItem {
            source: NameSource::User,
            inode: None,
            ..item(b"missing", NameType::Unknown)
        }]
        .into_iter()
        .collect(),
        ..openat()
    }
}

/// No login, terminal, program or name; another execution domain; interrupted.
fn open_by_handle_restarted() -> Event<'static> {
    let event = openat();
    let null = Inode {
        ino: 4,
        dev: Dev(5),
        mode: 0o20_666,
        uid: 0,
        gid: 0,
        rdev: Dev(1 << 20 | 3),
    };
    Event {
        syscall: Syscall(304),
        personality: 0x40_0000,
        exit: Some(-512),
        unproven: false,
        args: [u64::MAX, 0, 0x10, 0xdead_beef_0000_0000],
        task: Task {
            auid: Auid::UNSET,
            ses: u32::MAX,
            tty: b"",
            exe: None,
            ..event.task
        },
        items: [PathItem {
            name: None,
            inode: Some(null),
            ..item(b"", NameType::Normal)
        }]
        .into_iter()
        .collect(),
        proctitle: b"\0\0\0",
        task_context: None,
        ..event
    }
}

fn execve_hostile_argv() -> Event<'static> {
    let argv = b"ls\0-l\0\0a b\0say \"hi\"\0two\nlines\0\xff\xfe\0\x1b[2J\0a1=b\0caf\xc3\xa9\0";
    Event {
        syscall: Syscall(59),
        exit: Some(0),
        argv: Some(Argv {
            argc: 10,
            bytes: argv,
        }),
        items: [
            item(b"/usr/bin/ls", NameType::Normal),
            item(b"/lib64/ld-linux-x86-64.so.2", NameType::Normal),
        ]
        .into_iter()
        .collect(),
        proctitle: argv,
        task_context: None,
        ..openat()
    }
}

/// Whole, quoted over two records, and hex over several records.
fn execve_long_arguments() -> Event<'static> {
    let argv: Vec<u8> = [
        b"sh\0".to_vec(),
        vec![b'q'; 7000],
        b"\0".to_vec(),
        vec![b'r'; 1000],
        b"\0".to_vec(),
        vec![b' '; 300],
        b"\0".to_vec(),
        vec![b'x'; 9000],
        b"\0end\0".to_vec(),
    ]
    .concat();
    Event {
        syscall: Syscall(59),
        exit: Some(0),
        argv: Some(Argv {
            argc: 6,
            bytes: argv.leak(),
        }),
        ..openat()
    }
}

fn execve_cut_argv() -> Event<'static> {
    Event {
        syscall: Syscall(59),
        exit: Some(0),
        argv: Some(Argv {
            argc: 1000,
            bytes: b"rm\0-rf\0/ho",
        }),
        ..openat()
    }
}

fn rename_over_existing() -> Event<'static> {
    Event {
        syscall: Syscall(82),
        exit: Some(0),
        items: [
            directory(b"/tmp/"),
            directory(b"/tmp/"),
            item(b"/tmp/old", NameType::Delete),
            item(b"/tmp/new", NameType::Delete),
            item(b"/tmp/new", NameType::Create),
        ]
        .into_iter()
        .collect(),
        ..openat()
    }
}

fn exit_group() -> Event<'static> {
    Event {
        syscall: Syscall(231),
        exit: None,
        unproven: false,
        args: [1, 0, 0xe7, 0xffff_ffff_ffff_ff80],
        cwd: None,
        items: [].into_iter().collect(),
        ..openat()
    }
}

fn two_keys() -> Event<'static> {
    Event {
        key: Some(b"identity\x01pci"),
        ..openat()
    }
}

fn names_hostile() -> Event<'static> {
    let names: [&[u8]; 6] = [
        b"two\nlines",
        b"\"quoted\"",
        b"\xff",
        b"a b",
        b"",
        b"plain\" key=\"forged",
    ];
    Event {
        cwd: Some(b"/tmp/\ntype=SYSCALL"),
        items: names
            .into_iter()
            .map(|name| item(name, NameType::Normal))
            .collect(),
        ..openat()
    }
}

/// One byte longer than any name that the kernel accepts, in hex.
fn names_longest() -> Event<'static> {
    static LONGEST: [u8; 4096] = [b' '; 4096];
    Event {
        cwd: Some(&LONGEST),
        items: [item(&LONGEST, NameType::Normal)].into_iter().collect(),
        ..openat()
    }
}

/// The longest path of a program that was deleted, all hex, with the longest keys.
fn exe_too_long() -> Event<'static> {
    static EXE: [u8; 4105] = [0xe9; 4105];
    static KEY: [u8; 255] = {
        let mut keys = [b'k'; 255];
        keys[100] = 1;
        keys
    };
    let event = openat();
    Event {
        task: Task {
            exe: Some(&EXE),
            ..event.task
        },
        key: Some(&KEY),
        ..event
    }
}
