//! Who makes the records of a type.

use audit::ids::{MsgType, NativeArch, Syscall};
use audit::plan::sockaddr;
use audit::table;

/// Syscalls that execute a program.
pub(super) const EXEC: &[&str] = &["execve", "execveat"];

/// Who makes the records of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Every syscall that an audit rule records.
    AnySyscall,
    /// Syscalls that name objects.
    Names,
    /// These syscalls, if an audit rule records them.
    Syscalls(Vec<&'static str>),
    /// Operations of `io_uring`.
    Operations,
    /// The kernel, without audit rules.
    Kernel,
    /// Programs and daemons, which send them.
    Programs,
    /// No record has the type.
    Unknown,
}

impl Origin {
    /// Who makes records of a type, in upper case.
    ///
    /// # Source
    /// `show_special` and `audit_log_exit` in `kernel/auditsc.c` for the records of a syscall, and the callers of the
    /// functions `audit_*` that fill `ctx->type` for the syscalls that have them, Linux 6.12.
    pub(super) fn of(kind: &str) -> Self {
        let syscalls = |names: &[&'static str]| Self::Syscalls(names.to_vec());
        match kind {
            "SYSCALL" | "CWD" | "PROCTITLE" | "EOE" => Self::AnySyscall,
            "PATH" => Self::Names,
            "EXECVE" | "BPRM_FCAPS" => syscalls(EXEC),
            "SOCKADDR" => Self::Syscalls(with_address()),
            "SOCKETCALL" => syscalls(&["socketcall"]),
            "CAPSET" => syscalls(&["capset"]),
            "MMAP" => syscalls(&["mmap", "mmap2"]),
            "FD_PAIR" => syscalls(&["pipe", "pipe2", "socketpair", "socketcall"]),
            "KERN_MODULE" => syscalls(&["delete_module", "finit_module", "init_module"]),
            "OBJ_PID" => syscalls(&[
                "kill",
                "pidfd_send_signal",
                "ptrace",
                "rt_sigqueueinfo",
                "rt_tgsigqueueinfo",
                "tgkill",
                "tkill",
            ]),
            "IPC" | "IPC_SET_PERM" => syscalls(&[
                "ipc",
                "msgctl",
                "msgget",
                "msgrcv",
                "msgsnd",
                "semctl",
                "semget",
                "semop",
                "semtimedop",
                "semtimedop_time64",
                "shmat",
                "shmctl",
                "shmget",
            ]),
            "MQ_OPEN" => syscalls(&["mq_open"]),
            "MQ_SENDRECV" => syscalls(&[
                "mq_timedreceive",
                "mq_timedreceive_time64",
                "mq_timedsend",
                "mq_timedsend_time64",
            ]),
            "MQ_NOTIFY" => syscalls(&["mq_notify"]),
            "MQ_GETSETATTR" => syscalls(&["mq_getsetattr"]),
            "OPENAT2" => syscalls(&["openat2"]),
            "TIME_INJOFFSET" | "TIME_ADJNTPVAL" => syscalls(&[
                "adjtimex",
                "clock_adjtime",
                "clock_adjtime64",
                "clock_settime",
                "clock_settime64",
                "settimeofday",
                "stime",
            ]),
            "URINGOP" => Self::Operations,
            _ => match table::msg_type_number(kind.as_bytes()) {
                Some(MsgType(1006 | 1300..2000)) => Self::Kernel,
                Some(_) => Self::Programs,
                None => Self::Unknown,
            },
        }
    }
}

/// Syscalls that pass or return the address of a socket.
fn with_address() -> Vec<&'static str> {
    let [native, compat] = NativeArch::BUILD.abis();
    let names = table::syscall_names(native).chain(table::syscall_names(compat));
    let mut names: Vec<_> = names
        .filter(|name| sockaddr::by_name(name).is_some())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Ids of syscalls in all ABIs that have them.
pub(super) fn syscall_ids(names: &[&str]) -> impl Iterator<Item = audit::plan::SyscallId> {
    let abis = NativeArch::BUILD.abis().into_iter();
    abis.flat_map(move |arch| {
        names.iter().filter_map(move |name| {
            let syscall: Syscall = table::syscall_number(arch, name.as_bytes())?;
            Some(audit::plan::SyscallId { arch, syscall })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_an_origin() {
        assert_eq!(Origin::of("USER_LOGIN"), Origin::Programs);
        assert_eq!(Origin::of("SERVICE_STOP"), Origin::Programs);
        assert_eq!(Origin::of("DAEMON_END"), Origin::Programs);
        assert_eq!(Origin::of("AVC"), Origin::Kernel);
        assert_eq!(Origin::of("CONFIG_CHANGE"), Origin::Kernel);
        assert_eq!(Origin::of("LOGIN"), Origin::Kernel);
        assert_eq!(Origin::of("NO_SUCH_TYPE"), Origin::Unknown);
        let Origin::Syscalls(names) = Origin::of("SOCKADDR") else {
            panic!("records of addresses are those of syscalls");
        };
        for name in ["accept4", "bind", "connect", "recvmsg", "sendto"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }

    #[test]
    fn named_syscalls_exist() {
        for kind in table::msg_type_names() {
            if let Origin::Syscalls(names) = Origin::of(kind) {
                for name in names {
                    assert!(syscall_ids(&[name]).next().is_some(), "{kind}: {name}");
                }
            }
        }
    }
}
