//! What the kernel calls the tracepoints and functions of a syscall.
//!
//! The functions of 64-bit syscalls follow one rule. Those of 32-bit syscalls do not: a 32-bit table names a
//! function for each syscall, with a dozen spellings for functions that are old, 16-bit, 32-bit or shared with
//! the 64-bit ABI. A program on one function too many does no harm, because the program compares the syscall
//! number; one function too few would be a blind spot. So the engine tries every name that is possible.

use audit::ids::Arch;
use audit::plan::SyscallId;

/// Name of a syscall in its tracepoints, after `sys_enter_` or `sys_exit_`; `None` for a syscall that has none.
///
/// # Source
/// The `SYSCALL_DEFINE` names in Linux 6.12, where they differ from `syscall_64.tbl`, and from
/// `include/uapi/asm-generic/unistd.h` for arm64.
#[must_use]
pub(crate) fn tracepoint_name(syscall: SyscallId) -> Option<&'static str> {
    if !syscall.arch.is_64_bit() {
        return None;
    }
    Some(match syscall.name()? {
        "fadvise64" if syscall.arch == Arch::AARCH64 => "fadvise64_64",
        "personality" if syscall.arch == Arch::AARCH64 => "arm64_personality",
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
/// exists may be. On x86, `__do_sys_X` is the function of a syscall without arguments, which both ABIs share; for
/// other syscalls, `__do_sys_X` is an inner function of another type. On arm64, a 32-bit syscall without a
/// function of its own has that of the 64-bit ABI.
///
/// # Source
/// `arch/x86/include/asm/syscall_wrapper.h` and `arch/x86/entry/syscalls/syscall_32.tbl`, Linux 6.12;
/// `arch/arm64/include/asm/syscall_wrapper.h` and `arch/arm64/tools/syscall_32.tbl`, Linux 6.13.
/// Compared with the functions of Debian's 6.1.192 and 6.12.117: syscalls without one there are not built.
#[must_use]
pub(crate) fn function_candidates(syscall: SyscallId) -> Vec<String> {
    let names = Names::of(syscall.arch);
    if let Some(name) = tracepoint_name(syscall) {
        let prefixes = names.prefixes.iter();
        return prefixes.map(|prefix| format!("{prefix}{name}")).collect();
    }
    let Some(name) = syscall.name() else {
        return Vec::new();
    };
    let mut found: Vec<String> = stems(name)
        .iter()
        .flat_map(|stem| forms(stem, names.own_form))
        .flat_map(|form| {
            let prefixes = names.prefixes.iter();
            prefixes.map(move |prefix| format!("{prefix}{form}"))
        })
        .chain((names.irregular)(name).map(str::to_owned))
        .filter(|name| !names.never.contains(&name.as_str()))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Prefix of the functions of an ABI in lists: that of most of its syscalls.
#[must_use]
pub(crate) fn function_prefix(arch: Arch) -> &'static str {
    match arch {
        Arch::I386 => "__ia32_sys_",
        Arch::AARCH64 | Arch::ARM => "__arm64_sys_",
        _ => "__x64_sys_",
    }
}

/// The `__do_sys_X` of which an `__ia32_sys_X` is an alias when the syscall has no arguments: one address takes
/// one program.
#[must_use]
pub(crate) fn alias_of(name: &str) -> Option<String> {
    let stem = name.strip_prefix("__ia32_sys_")?;
    Some(format!("__do_sys_{stem}"))
}

/// How the functions of an ABI are named.
struct Names {
    prefixes: &'static [&'static str],
    /// What stands before the name where the ABI has a function of its own.
    own_form: &'static [&'static str],
    /// Name of the function of a syscall for which these rules do not hold.
    irregular: fn(&str) -> Option<&'static str>,
    /// Functions that only syscalls of the other ABI have: their stub differs.
    never: &'static [&'static str],
}

impl Names {
    const fn of(arch: Arch) -> Self {
        match arch {
            Arch::I386 => Self {
                prefixes: &[
                    "__ia32_compat_sys_",
                    "__ia32_sys_",
                    "__do_compat_sys_",
                    "__do_sys_",
                ],
                own_form: &["ia32_", "x86_"],
                irregular: irregular_i386,
                never: &[],
            },
            Arch::ARM => Self {
                prefixes: &["__arm64_compat_sys_", "__arm64_sys_"],
                own_form: &["aarch32_"],
                irregular: irregular_arm,
                never: &["__arm64_sys_openat"],
            },
            Arch::AARCH64 => Self {
                prefixes: &["__arm64_sys_"],
                own_form: &[],
                irregular: |_| None,
                never: &[],
            },
            _ => Self {
                prefixes: &["__do_sys_", "__x64_sys_"],
                own_form: &[],
                irregular: |_| None,
                never: &[],
            },
        }
    }
}

/// The name, and the name without the suffixes by which the table tells widths and generations apart.
fn stems(name: &str) -> Vec<&str> {
    let plain = name.trim_start_matches('_');
    let mut stems = vec![name, plain];
    for end in ["_time64", "64", "32", "2"] {
        stems.extend(plain.strip_suffix(end));
    }
    stems
}

fn forms(stem: &str, own_form: &[&str]) -> Vec<String> {
    let mut forms = vec![
        stem.to_owned(),
        format!("new{stem}"),
        format!("old_{stem}"),
        format!("{stem}16"),
        format!("{stem}32"),
        format!("{stem}_time32"),
        format!("{stem}_pgoff"),
    ];
    forms.extend(own_form.iter().map(|own| format!("{own}{stem}")));
    forms
}

/// Functions of i386 whose names follow no rule.
fn irregular_i386(name: &str) -> Option<&'static str> {
    Some(match name {
        "_newselect" => "__ia32_compat_sys_select",
        "fcntl" => "__ia32_compat_sys_fcntl64",
        "oldstat" => "__ia32_sys_stat",
        "oldlstat" => "__ia32_sys_lstat",
        "oldfstat" => "__ia32_sys_fstat",
        "oldolduname" => "__ia32_sys_olduname",
        "olduname" => "__ia32_sys_uname",
        "ugetrlimit" => "__ia32_compat_sys_getrlimit",
        "umount" => "__ia32_sys_oldumount",
        _ => return None,
    })
}

/// Functions of 32-bit arm whose names follow no rule.
fn irregular_arm(name: &str) -> Option<&'static str> {
    Some(match name {
        "_newselect" => "__arm64_compat_sys_select",
        "arm_fadvise64_64" => "__arm64_compat_sys_aarch32_fadvise64_64",
        "arm_sync_file_range" => "__arm64_compat_sys_aarch32_sync_file_range2",
        "ugetrlimit" => "__arm64_compat_sys_getrlimit",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use audit::ids::{Arch, NativeArch, Syscall};
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
    fn functions_of_arm64_are_candidates() {
        // The 64-bit names are those of `include/uapi/asm-generic/unistd.h`, Linux 6.12.
        for (name, function) in [
            ("openat", "__arm64_sys_openat"),
            ("fstat", "__arm64_sys_newfstat"),
            ("newfstatat", "__arm64_sys_newfstatat"),
            ("sendfile", "__arm64_sys_sendfile64"),
            ("umount2", "__arm64_sys_umount"),
            ("uname", "__arm64_sys_newuname"),
            ("fadvise64", "__arm64_sys_fadvise64_64"),
            ("personality", "__arm64_sys_arm64_personality"),
            ("getpid", "__arm64_sys_getpid"),
        ] {
            assert_eq!(candidates(Arch::AARCH64, name), [function], "{name}");
        }
        // Right column of `arch/arm64/tools/syscall_32.tbl`, Linux 6.13: the functions that are not named as their
        // syscalls, and some others.
        for (name, function) in [
            ("restart_syscall", "__arm64_sys_restart_syscall"),
            ("open", "__arm64_compat_sys_open"),
            ("close", "__arm64_sys_close"),
            ("execve", "__arm64_compat_sys_execve"),
            ("lchown", "__arm64_sys_lchown16"),
            ("lseek", "__arm64_compat_sys_lseek"),
            ("fcntl", "__arm64_compat_sys_fcntl"),
            ("fcntl64", "__arm64_compat_sys_fcntl64"),
            ("umount2", "__arm64_sys_umount"),
            ("setuid", "__arm64_sys_setuid16"),
            ("setuid32", "__arm64_sys_setuid"),
            ("truncate64", "__arm64_compat_sys_aarch32_truncate64"),
            ("stat", "__arm64_compat_sys_newstat"),
            ("stat64", "__arm64_sys_stat64"),
            ("uname", "__arm64_sys_newuname"),
            ("sigreturn", "__arm64_compat_sys_sigreturn"),
            ("rt_sigreturn", "__arm64_compat_sys_rt_sigreturn"),
            ("adjtimex", "__arm64_sys_adjtimex_time32"),
            ("_llseek", "__arm64_sys_llseek"),
            ("_newselect", "__arm64_compat_sys_select"),
            ("ugetrlimit", "__arm64_compat_sys_getrlimit"),
            ("mmap2", "__arm64_compat_sys_aarch32_mmap2"),
            ("pread64", "__arm64_compat_sys_aarch32_pread64"),
            ("statfs64", "__arm64_compat_sys_aarch32_statfs64"),
            ("sendfile", "__arm64_compat_sys_sendfile"),
            ("sendfile64", "__arm64_sys_sendfile64"),
            (
                "arm_fadvise64_64",
                "__arm64_compat_sys_aarch32_fadvise64_64",
            ),
            (
                "arm_sync_file_range",
                "__arm64_compat_sys_aarch32_sync_file_range2",
            ),
            ("fallocate", "__arm64_compat_sys_aarch32_fallocate"),
            ("semctl", "__arm64_compat_sys_old_semctl"),
            ("futex", "__arm64_sys_futex_time32"),
            ("futex_time64", "__arm64_sys_futex"),
            ("utimes", "__arm64_sys_utimes_time32"),
            ("execveat", "__arm64_compat_sys_execveat"),
        ] {
            let candidates = candidates(Arch::ARM, name);
            assert!(
                candidates.iter().any(|candidate| candidate == function),
                "{name}: {candidates:?}"
            );
        }
    }

    #[test]
    fn no_32_bit_syscall_of_arm_has_the_stub_of_openat() {
        for name in ["openat", "openat2"] {
            let candidates = candidates(Arch::ARM, name);
            let openat = "__arm64_sys_openat".to_owned();
            assert!(!candidates.contains(&openat), "{name}: {candidates:?}");
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
    fn numbers_of_the_programs_are_those_of_the_tables() {
        let header = include_str!("../../bpf/lib/arch.bpf.h");
        for (target, native) in [
            ("__TARGET_ARCH_x86)", NativeArch::X86_64),
            ("__TARGET_ARCH_arm64)", NativeArch::Aarch64),
        ] {
            let (_, part) = header.split_once(target).unwrap();
            let (part, _) = part.split_once("static __always_inline").unwrap();
            let mut compared = 0;
            for line in part.lines() {
                let Some(define) = line.strip_prefix("#define NR_") else {
                    continue;
                };
                let mut words = define.split_whitespace();
                let (name, bits) = words.next().unwrap().rsplit_once('_').unwrap();
                let number = words.next().unwrap().parse().unwrap();
                let arch = if bits == "64" {
                    native.b64()
                } else {
                    native.b32()
                };
                let name = name.to_ascii_lowercase();
                let known = table::syscall_number(arch, name.as_bytes());
                assert_eq!(known, Some(Syscall(number)), "{name} of {arch:x}");
                compared += 1;
            }
            assert_eq!(compared, 13, "{target}");
            let enter = table::syscall_number(native.b64(), b"io_uring_enter");
            assert_eq!(enter, Some(Syscall(426)));
        }
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
