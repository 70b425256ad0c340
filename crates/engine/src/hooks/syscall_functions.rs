//! What the kernel calls the tracepoints and functions of a syscall.
//!
//! The functions of 64-bit syscalls follow one rule. Those of 32-bit syscalls do not: the 32-bit table names a
//! function for each syscall, with a dozen spellings for functions that are old, 16-bit, 32-bit or shared with
//! the 64-bit ABI. A program on one function too many does no harm, because the program compares the syscall
//! number; one function too few would be a blind spot. So the engine tries every name that is possible.

use audit::ids::Arch;
use audit::plan::SyscallId;

/// Name of a syscall in its tracepoints, after `sys_enter_` or `sys_exit_`; `None` for a syscall that has none.
///
/// # Source
/// The `SYSCALL_DEFINE` names in Linux 6.12, where they differ from `syscall_64.tbl`.
#[must_use]
pub(crate) fn tracepoint_name(syscall: SyscallId) -> Option<&'static str> {
    if syscall.arch != Arch::X86_64 {
        return None;
    }
    Some(match syscall.name()? {
        "stat" => "newstat",
        "fstat" => "newfstat",
        "lstat" => "newlstat",
        "uname" => "newuname",
        "sendfile" => "sendfile64",
        "umount2" => "umount",
        name => name,
    })
}

/// Names that the functions of a syscall may have.
///
/// For a 64-bit syscall, the first name that exists is its function; for a 32-bit syscall, every name that
/// exists may be. `__do_sys_X` is the function of a syscall without arguments, which both ABIs share; for other
/// syscalls, `__do_sys_X` is an inner function of another type.
///
/// # Source
/// `arch/x86/include/asm/syscall_wrapper.h` and `arch/x86/entry/syscalls/syscall_32.tbl`, Linux 6.12.
/// Compared with the functions of Debian's 6.1.192 and 6.12.117: syscalls without one there are not built.
#[must_use]
pub(crate) fn function_candidates(syscall: SyscallId) -> Vec<String> {
    if let Some(name) = tracepoint_name(syscall) {
        return vec![format!("__do_sys_{name}"), format!("__x64_sys_{name}")];
    }
    let Some(name) = syscall.name() else {
        return Vec::new();
    };
    let mut names: Vec<String> = stems(name)
        .iter()
        .flat_map(|stem| forms(stem))
        .flat_map(|form| PREFIXES.map(|prefix| format!("{prefix}{form}")))
        .chain(irregular(name).iter().map(|&name| name.to_owned()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The `__do_sys_X` of which an `__ia32_sys_X` is an alias when the syscall has no arguments: one address takes
/// one program.
#[must_use]
pub(crate) fn alias_of(name: &str) -> Option<String> {
    let stem = name.strip_prefix("__ia32_sys_")?;
    Some(format!("__do_sys_{stem}"))
}

const PREFIXES: [&str; 4] = [
    "__ia32_compat_sys_",
    "__ia32_sys_",
    "__do_compat_sys_",
    "__do_sys_",
];

/// The name, and the name without the suffixes by which the table tells widths and generations apart.
fn stems(name: &str) -> Vec<&str> {
    let plain = name.trim_start_matches('_');
    let mut stems = vec![name, plain];
    for end in ["_time64", "64", "32", "2"] {
        stems.extend(plain.strip_suffix(end));
    }
    stems
}

fn forms(stem: &str) -> [String; 9] {
    [
        stem.to_owned(),
        format!("new{stem}"),
        format!("old_{stem}"),
        format!("{stem}16"),
        format!("{stem}32"),
        format!("{stem}_time32"),
        format!("{stem}_pgoff"),
        format!("ia32_{stem}"),
        format!("x86_{stem}"),
    ]
}

/// Functions whose names follow no rule.
fn irregular(name: &str) -> &'static [&'static str] {
    match name {
        "_newselect" => &["__ia32_compat_sys_select"],
        "fcntl" => &["__ia32_compat_sys_fcntl64"],
        "oldstat" => &["__ia32_sys_stat"],
        "oldlstat" => &["__ia32_sys_lstat"],
        "oldfstat" => &["__ia32_sys_fstat"],
        "oldolduname" => &["__ia32_sys_olduname"],
        "olduname" => &["__ia32_sys_uname"],
        "ugetrlimit" => &["__ia32_compat_sys_getrlimit"],
        "umount" => &["__ia32_sys_oldumount"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use audit::ids::{Arch, Syscall};
    use audit::table;

    use super::*;

    #[track_caller]
    fn candidates(arch: Arch, name: &str) -> Vec<String> {
        let syscall = table::syscall_number(arch, name.as_bytes()).unwrap();
        function_candidates(SyscallId { arch, syscall })
    }

    #[test]
    fn a_64_bit_syscall_has_two_candidates() {
        assert_eq!(
            candidates(Arch::X86_64, "stat"),
            ["__do_sys_newstat", "__x64_sys_newstat"]
        );
    }

    #[test]
    fn functions_of_the_32_bit_table_are_candidates() {
        // Right column of syscall_32.tbl, Linux 6.12: the functions that are not named as their syscalls, and some others.
        for (name, function) in [
            ("restart_syscall", "__do_sys_restart_syscall"),
            ("open", "__ia32_compat_sys_open"),
            ("close", "__ia32_sys_close"),
            ("time", "__ia32_sys_time32"),
            ("lchown", "__ia32_sys_lchown16"),
            ("oldstat", "__ia32_sys_stat"),
            ("umount", "__ia32_sys_oldumount"),
            ("umount2", "__ia32_sys_umount"),
            ("setuid", "__ia32_sys_setuid16"),
            ("getuid", "__do_sys_getuid16"),
            ("stime", "__ia32_sys_stime32"),
            ("ptrace", "__ia32_compat_sys_ptrace"),
            ("oldfstat", "__ia32_sys_fstat"),
            ("fork", "__do_sys_fork"),
            ("utime", "__ia32_sys_utime32"),
            ("execve", "__ia32_compat_sys_execve"),
            ("fcntl", "__ia32_compat_sys_fcntl64"),
            ("fcntl64", "__ia32_compat_sys_fcntl64"),
            ("oldolduname", "__ia32_sys_olduname"),
            ("olduname", "__ia32_sys_uname"),
            ("uname", "__ia32_sys_newuname"),
            ("sigaction", "__ia32_compat_sys_sigaction"),
            ("setreuid", "__ia32_sys_setreuid16"),
            ("getrlimit", "__ia32_compat_sys_old_getrlimit"),
            ("ugetrlimit", "__ia32_compat_sys_getrlimit"),
            ("setgroups", "__ia32_sys_setgroups16"),
            ("select", "__ia32_compat_sys_old_select"),
            ("_newselect", "__ia32_compat_sys_select"),
            ("oldlstat", "__ia32_sys_lstat"),
            ("readdir", "__ia32_compat_sys_old_readdir"),
            ("mmap", "__ia32_compat_sys_ia32_mmap"),
            ("mmap2", "__ia32_sys_mmap_pgoff"),
            ("truncate", "__ia32_compat_sys_truncate"),
            ("truncate64", "__ia32_compat_sys_ia32_truncate64"),
            ("fchown", "__ia32_sys_fchown16"),
            ("fchown32", "__ia32_sys_fchown"),
            ("stat", "__ia32_compat_sys_newstat"),
            ("stat64", "__ia32_compat_sys_ia32_stat64"),
            ("lstat", "__ia32_compat_sys_newlstat"),
            ("fstat", "__ia32_compat_sys_newfstat"),
            ("clone", "__ia32_compat_sys_ia32_clone"),
            ("adjtimex", "__ia32_sys_adjtimex_time32"),
            ("quotactl", "__ia32_compat_sys_quotactl32"),
            ("setfsuid", "__ia32_sys_setfsuid16"),
            ("_llseek", "__ia32_sys_llseek"),
            (
                "sched_rr_get_interval",
                "__ia32_sys_sched_rr_get_interval_time32",
            ),
            ("nanosleep", "__ia32_sys_nanosleep_time32"),
            (
                "rt_sigtimedwait",
                "__ia32_compat_sys_rt_sigtimedwait_time32",
            ),
            ("pread64", "__ia32_sys_ia32_pread64"),
            ("pwrite64", "__ia32_sys_ia32_pwrite64"),
            ("chown", "__ia32_sys_chown16"),
            ("chown32", "__ia32_sys_chown"),
            ("setresuid32", "__ia32_sys_setresuid"),
            ("getuid32", "__do_sys_getuid"),
            ("sendfile", "__ia32_compat_sys_sendfile"),
            ("readahead", "__ia32_sys_ia32_readahead"),
            ("futex", "__ia32_sys_futex_time32"),
            ("futex_time64", "__ia32_sys_futex"),
            ("io_getevents", "__ia32_sys_io_getevents_time32"),
            ("fadvise64", "__ia32_sys_ia32_fadvise64"),
            ("fadvise64_64", "__ia32_sys_ia32_fadvise64_64"),
            ("timer_settime", "__ia32_sys_timer_settime32"),
            ("clock_settime", "__ia32_sys_clock_settime32"),
            ("clock_settime64", "__ia32_sys_clock_settime"),
            ("clock_gettime", "__ia32_sys_clock_gettime32"),
            ("clock_gettime64", "__ia32_sys_clock_gettime"),
            ("clock_getres", "__ia32_sys_clock_getres_time32"),
            ("clock_nanosleep", "__ia32_sys_clock_nanosleep_time32"),
            ("utimes", "__ia32_sys_utimes_time32"),
            ("mq_timedsend", "__ia32_sys_mq_timedsend_time32"),
            ("futimesat", "__ia32_sys_futimesat_time32"),
            ("fstatat64", "__ia32_compat_sys_ia32_fstatat64"),
            ("pselect6", "__ia32_compat_sys_pselect6_time32"),
            ("pselect6_time64", "__ia32_compat_sys_pselect6_time64"),
            ("ppoll", "__ia32_compat_sys_ppoll_time32"),
            ("sync_file_range", "__ia32_sys_ia32_sync_file_range"),
            ("utimensat", "__ia32_sys_utimensat_time32"),
            ("utimensat_time64", "__ia32_sys_utimensat"),
            ("fallocate", "__ia32_sys_ia32_fallocate"),
            ("timerfd_settime", "__ia32_sys_timerfd_settime32"),
            ("recvmmsg", "__ia32_compat_sys_recvmmsg_time32"),
            ("recvmmsg_time64", "__ia32_compat_sys_recvmmsg_time64"),
            ("clock_adjtime", "__ia32_sys_clock_adjtime32"),
            ("clock_adjtime64", "__ia32_sys_clock_adjtime"),
            ("io_pgetevents", "__ia32_compat_sys_io_pgetevents"),
            ("semtimedop_time64", "__ia32_sys_semtimedop"),
        ] {
            let candidates = candidates(Arch::I386, name);
            assert!(
                candidates.iter().any(|candidate| candidate == function),
                "{name}: {candidates:?}"
            );
        }
    }

    #[test]
    fn an_unnamed_syscall_has_no_candidate() {
        let syscall = SyscallId {
            arch: Arch::X86_64,
            syscall: Syscall(1500),
        };
        assert!(function_candidates(syscall).is_empty());
    }

    #[test]
    fn a_syscall_without_arguments_has_an_alias() {
        assert_eq!(
            alias_of("__ia32_sys_getuid16").as_deref(),
            Some("__do_sys_getuid16")
        );
        assert_eq!(alias_of("__ia32_compat_sys_open"), None);
    }
}
