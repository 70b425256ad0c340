//! The arguments `a0` to `a3` of syscalls.

use super::flags;
use super::names::{self, find};
use super::numbers::{self, conversion_error, hex, named, named_hex, read, wrapped};
use super::{Field, Interpreter, Machine};
use crate::ctext::{low_32, low_i32};

/// Name of the syscall; empty if it is unknown.
fn syscall(field: &Field<'_>) -> &'static str {
    field
        .machine
        .syscall_name(field.syscall)
        .unwrap_or_default()
}

impl Interpreter {
    pub(super) fn a0(&mut self, field: &Field<'_>) -> Vec<u8> {
        let value = field.value;
        match syscall(field) {
            "rt_sigaction" => numbers::signal(value, 16),
            "readlinkat" | "removexattrat" | "mkdirat" | "mknodat" | "fchownat" | "futimesat"
            | "fchmodat" | "futimensat" | "file_getattr" | "file_setattr" | "unlinkat"
            | "utimensat" | "setxattrat" | "linkat" | "listxattrat" | "newfstatat"
            | "name_to_handle_at" | "getxattrat" => dirfd(value),
            "clock_settime" => clock(value),
            "clone" | "clone2" | "unshare" => flags::clone(value),
            "personality" => numbers::personality(value),
            "ptrace" => named_hex(value, names::PTRACE_REQUESTS, "unknown-ptrace"),
            "prctl" => named_hex(value, names::PRCTL_OPTIONS, "unknown-prctl-option"),
            "getrlimit" | "setrlimit" => rlimit(value),
            "setuid" | "setreuid" | "setresuid" | "setfsuid" => self.uid(value, 16),
            "setgid" | "setregid" | "setresgid" | "setfsgid" => self.gid(value, 16),
            "socket" => named_hex(value, names::ADDRESS_FAMILIES, "unknown-family"),
            "socketcall" => called(value, names::SOCKET_CALLS, "unknown-socketcall"),
            "ipccall" => called(value, names::IPC_CALLS, "unknown-ipccall"),
            "bpf" => named(value, 16, names::BPF_COMMANDS, |value, _| {
                wrapped("unknown-bpf-cmd", value)
            }),
            name if name.starts_with("renameat")
                || name.starts_with("faccessat")
                || name.starts_with("openat") =>
            {
                dirfd(value)
            }
            name if name.starts_with("exit") => exit_status(value),
            _ => hex(value),
        }
    }

    pub(super) fn a1(&mut self, field: &Field<'_>) -> Vec<u8> {
        let value = field.value;
        match syscall(field) {
            "fchmod" | "chmod" | "creat" | "mkdir" => flags::mode_short(value, 16),
            "setsockopt" | "getsockopt" => self.socket_level(value),
            "setreuid" | "setresuid" => self.uid(value, 16),
            "setregid" | "setresgid" => self.gid(value, 16),
            "socket" => socket_type(value),
            "setns" => flags::clone(value),
            "sched_setscheduler" => scheduler(value),
            "mknod" => flags::mode(value, 16),
            "mq_open" | "open" => flags::open(value, 16),
            "access" => flags::access_mode(value),
            "epoll_ctl" => named(value, 16, names::EPOLL_OPERATIONS, |_, number| {
                wrapped("unknown-epoll_ctl-operation", number.to_string().as_bytes())
            }),
            "kill" | "tkill" => numbers::signal(value, 16),
            "prctl" => prctl_argument(field),
            "umount2" => flags::umount(value),
            "ioctl" => numbers::ioctl(value),
            name if name.starts_with("fcntl") => {
                named(value, 16, names::FCNTL_COMMANDS, |_, number| {
                    wrapped("unknown-fcntl-command", number.to_string().as_bytes())
                })
            }
            name if name.starts_with("fscon") => {
                named(value, 16, names::FSCONFIG_COMMANDS, |_, number| {
                    wrapped("unknown-fsconfig-operation", number.to_string().as_bytes())
                })
            }
            name if name.starts_with("fsopen") && value == b"1" => b"FSOPEN_CLOEXEC".to_vec(),
            name if name.starts_with("fsmount") && value == b"1" => b"FSMOUNT_CLOEXEC".to_vec(),
            name if name.starts_with('c') && name.contains("chown") => self.uid(value, 16),
            _ => hex(value),
        }
    }

    pub(super) fn a2(&mut self, field: &Field<'_>) -> Vec<u8> {
        const O_CREAT: u64 = 0o100;
        let value = field.value;
        let creates = field.arguments[1] & O_CREAT != 0;
        match syscall(field) {
            "setsockopt" | "getsockopt" => socket_option(field),
            "openat" | "open_by_handle_at" => flags::open(value, 16),
            "open" | "mq_open" if creates => flags::mode_short(value, 16),
            "fchmodat" | "mkdirat" | "mknodat" => flags::mode_short(value, 16),
            "setresuid" => self.uid(value, 16),
            "setresgid" => self.gid(value, 16),
            "socket" => self.socket_protocol(value),
            "sendmsg" | "recvmsg" => flags::receive(value),
            "shmget" => flags::shared_memory(value),
            "setxattrat" | "removexattrat" | "listxattrat" => flags::xattr_at(value),
            "mmap" => flags::protection(value, true),
            "mprotect" => flags::protection(value, false),
            "move_mount" | "readlinkat" | "linkat" => dirfd(value),
            "lseek" => seek(value),
            "tgkill" => numbers::signal(value, 16),
            name if name.starts_with("fcntl") => self.fcntl_argument(field),
            name if name.starts_with("faccessat") => flags::access_mode(value),
            name if name.starts_with("fsmount") => flags::mount(value),
            name if name.starts_with("renameat") => dirfd(value),
            // Of these initials no other syscall is looked at: not even `lchown`.
            name if name.starts_with(['o', 'f', 's', 'm', 'r', 'l']) => hex(value),
            name if name.contains("chown") => self.gid(value, 16),
            name if name.contains("getxattrat") => flags::xattr_at(value),
            _ => hex(value),
        }
    }

    fn fcntl_argument(&mut self, field: &Field<'_>) -> Vec<u8> {
        const F_SETFD: u64 = 2;
        const F_SETOWN: u64 = 8;
        const FD_CLOEXEC: i32 = 1;
        let value = field.value;
        let Some(number) = read(value, 16) else {
            return conversion_error(value);
        };
        match field.arguments[1] {
            F_SETOWN => self.uid(value, 16),
            F_SETFD if low_i32(number) == FD_CLOEXEC => b"FD_CLOEXEC".to_vec(),
            _ => hex(value),
        }
    }

    fn socket_protocol(&mut self, value: &[u8]) -> Vec<u8> {
        let Some(number) = read(value, 16) else {
            return conversion_error(value);
        };
        match self.protocols.name(low_i32(number)) {
            Some(name) => name.to_vec(),
            None => wrapped("unknown-proto", value),
        }
    }

    fn socket_level(&mut self, value: &[u8]) -> Vec<u8> {
        const SOL_SOCKET: i32 = 1;
        let Some(number) = read(value, 16) else {
            return conversion_error(value);
        };
        let level = low_i32(number);
        if level == SOL_SOCKET {
            return b"SOL_SOCKET".to_vec();
        }
        if let Some(name) = self.protocols.name(level) {
            return name.to_vec();
        }
        match find(names::SOCKET_LEVELS, i64::from(level)) {
            Some(name) => name.into(),
            None => wrapped("unknown-sockopt-level", &hex(value)),
        }
    }
}

pub(super) fn a3(field: &Field<'_>) -> Vec<u8> {
    let value = field.value;
    match syscall(field) {
        "mmap" => flags::mmap(value),
        "mount" => flags::mount(value),
        "recv" | "recvfrom" | "recvmmsg" | "send" | "sendto" | "sendmmsg" => flags::receive(value),
        "faccessat" | "faccessat2" => flags::access_flags(value),
        "open_tree_attr" => flags::xattr_at(value),
        _ => hex(value),
    }
}

/// A directory descriptor.
fn dirfd(value: &[u8]) -> Vec<u8> {
    match read(value, 16).map(low_32) {
        Some(0xffff_ff9c) => b"AT_FDCWD".to_vec(),
        Some(_) => hex(value),
        None => conversion_error(value),
    }
}

/// The call of a multiplexed syscall.
fn called(value: &[u8], table: &[(i64, &'static str)], unknown: &str) -> Vec<u8> {
    let (number, read) = crate::ctext::signed(value, 16);
    if read.overflow {
        return conversion_error(value);
    }
    match find(table, i64::from(low_i32(number.cast_unsigned()))) {
        Some(name) => name.into(),
        None => wrapped(unknown, value),
    }
}

fn clock(value: &[u8]) -> Vec<u8> {
    limited(value, 7, names::CLOCKS, "unknown-clk_id")
}

fn rlimit(value: &[u8]) -> Vec<u8> {
    limited(value, 17, names::RLIMITS, "unknown-rlimit")
}

/// The name of a number below a limit.
fn limited(value: &[u8], limit: i32, table: &[(i64, &'static str)], unknown: &str) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let number = low_i32(number);
    match find(table, i64::from(number)).filter(|_| number < limit) {
        Some(name) => name.into(),
        None => wrapped(unknown, &hex(value)),
    }
}

fn exit_status(value: &[u8]) -> Vec<u8> {
    let name: &[u8] = match value {
        b"0" => b"EXIT_SUCCESS",
        b"1" => b"EXIT_FAILURE",
        _ => b"UNKNOWN",
    };
    name.to_vec()
}

fn socket_type(value: &[u8]) -> Vec<u8> {
    low_byte(value, names::SOCKET_TYPES, "unknown-type")
}

fn seek(value: &[u8]) -> Vec<u8> {
    low_byte(value, names::SEEK_ORIGINS, "unknown-whence")
}

/// The name of a number's lowest byte.
fn low_byte(value: &[u8], table: &[(i64, &'static str)], unknown: &str) -> Vec<u8> {
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    match find(table, i64::from(low_32(number & 0xff))) {
        Some(name) => name.into(),
        None => wrapped(unknown, value),
    }
}

fn scheduler(value: &[u8]) -> Vec<u8> {
    const RESET_ON_FORK: u64 = 0x4000_0000;
    let Some(number) = read(value, 16) else {
        return conversion_error(value);
    };
    let Some(name) = find(names::SCHEDULERS, i64::from(low_32(number & 0xf))) else {
        return wrapped("unknown-scheduler-policy", &hex(value));
    };
    if number & RESET_ON_FORK == 0 {
        name.into()
    } else {
        format!("{name}|SCHED_RESET_ON_FORK").into_bytes()
    }
}

fn prctl_argument(field: &Field<'_>) -> Vec<u8> {
    const SET_PDEATHSIG: u64 = 1;
    const CAPBSET_READ: u64 = 23;
    const CAPBSET_DROP: u64 = 24;
    match field.arguments[0] {
        CAPBSET_READ | CAPBSET_DROP => numbers::capability(field.value, 16),
        SET_PDEATHSIG => numbers::signal(field.value, 16),
        _ => hex(field.value),
    }
}

/// An option of a socket, which depends on the level.
fn socket_option(field: &Field<'_>) -> Vec<u8> {
    let value = field.value;
    match field.arguments[1] {
        0 => named_hex(value, names::IP_OPTIONS, "unknown-ipopt-name"),
        1 => {
            let Some(number) = read(value, 16) else {
                return conversion_error(value);
            };
            let number = low_i32(number);
            // Six options differ on PowerPC.
            let is_power = matches!(
                field.machine,
                Machine::Arch(audit::ids::Arch::PPC | audit::ids::Arch::PPC64)
            );
            let moved = if is_power && (16..=21).contains(&number) {
                number + 100
            } else {
                number
            };
            match find(names::SOCKET_OPTIONS, i64::from(moved)) {
                Some(name) => name.into(),
                None => wrapped("unknown-sockopt-name", &hex(value)),
            }
        }
        6 => named_hex(value, names::TCP_OPTIONS, "unknown-tcpopt-name"),
        17 => named_hex(value, names::UDP_OPTIONS, "unknown-udpopt-name"),
        41 => named_hex(value, names::IP6_OPTIONS, "unknown-ip6opt-name"),
        263 => named_hex(value, names::PACKET_OPTIONS, "unknown-pktopt-name"),
        _ => hex(value),
    }
}
