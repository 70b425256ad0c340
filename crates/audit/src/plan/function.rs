//! What the kernel's functions behind a syscall are called: where the fentry engine looks for them.
//!
//! 64-bit calls follow one rule. 32-bit calls do not: their table names a function of its own for each,
//! with a dozen spellings for what is old, 16-bit, 32-bit or shared with the 64-bit ABI. A program on one
//! function too many does no harm, for calls are told apart by their number; one too few would be a blind
//! spot. So every name that may be meant is tried.

use super::SyscallId;
use super::hook::tracepoint_name;
use crate::table;

/// Names under which the kernel may have the functions of a call.
///
/// Of a 64-bit call the first that exists does its work; of a 32-bit call all that exist may. Names in
/// `__do_sys_` are those of calls without arguments, which both ABIs share; the same names exist for the
/// inner parts of other calls, which are of another type.
///
/// # Source
/// `arch/x86/include/asm/syscall_wrapper.h` and `arch/x86/entry/syscalls/syscall_32.tbl`, Linux 6.12.
/// Compared with the functions of Debian's 6.1.192 and 6.12.117: what is not found there is not built.
#[must_use]
pub fn candidates(call: SyscallId) -> Vec<String> {
    if let Some(name) = tracepoint_name(call) {
        return vec![format!("__do_sys_{name}"), format!("__x64_sys_{name}")];
    }
    let Some(name) = table::syscall_name(call.arch, call.syscall) else {
        return Vec::new();
    };
    let mut names: Vec<String> = stems(name)
        .iter()
        .flat_map(|stem| forms(stem))
        .flat_map(|form| PREFIXES.map(|prefix| format!("{prefix}{form}")))
        .chain(odd(name).iter().map(|&name| name.to_owned()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The function of the same call without arguments, when `name` is only another name of it: one address
/// takes one program.
#[must_use]
pub fn shared_with(name: &str) -> Option<String> {
    let stem = name.strip_prefix("__ia32_sys_")?;
    Some(format!("__do_sys_{stem}"))
}

const PREFIXES: [&str; 4] = [
    "__ia32_compat_sys_",
    "__ia32_sys_",
    "__do_compat_sys_",
    "__do_sys_",
];

/// The name itself, and without what the table adds to tell widths and generations apart.
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

/// Names that follow from nothing.
fn odd(name: &str) -> &'static [&'static str] {
    match name {
        "_newselect" => &["__ia32_compat_sys_select"],
        "oldstat" => &["__ia32_sys_stat"],
        "oldlstat" => &["__ia32_sys_lstat"],
        "oldfstat" => &["__ia32_sys_fstat"],
        "oldolduname" => &["__ia32_sys_olduname"],
        "olduname" => &["__ia32_sys_uname"],
        "ugetrlimit" => &["__ia32_compat_sys_getrlimit"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Arch, Syscall};

    #[track_caller]
    fn of(arch: Arch, name: &str) -> Vec<String> {
        let syscall = table::syscall_number(arch, name.as_bytes()).unwrap();
        candidates(SyscallId { arch, syscall })
    }

    #[test]
    fn a_64_bit_call_has_one_function_or_shares_one() {
        assert_eq!(
            of(Arch::X86_64, "stat"),
            ["__do_sys_newstat", "__x64_sys_newstat"]
        );
    }

    #[test]
    fn entry_points_of_the_32_bit_table_are_among_the_candidates() {
        // Right column of syscall_32.tbl, Linux 6.12.
        for (name, function) in [
            ("open", "__ia32_compat_sys_open"),
            ("close", "__ia32_sys_close"),
            ("chown", "__ia32_sys_chown16"),
            ("chown32", "__ia32_sys_chown"),
            ("setresuid32", "__ia32_sys_setresuid"),
            ("getuid32", "__do_sys_getuid"),
            ("stat", "__ia32_compat_sys_newstat"),
            ("stat64", "__ia32_compat_sys_ia32_stat64"),
            ("truncate64", "__ia32_compat_sys_ia32_truncate64"),
            ("mmap", "__ia32_compat_sys_ia32_mmap"),
            ("mmap2", "__ia32_sys_mmap_pgoff"),
            ("umount2", "__ia32_sys_umount"),
            ("select", "__ia32_compat_sys_old_select"),
            ("_newselect", "__ia32_compat_sys_select"),
            ("_llseek", "__ia32_sys_llseek"),
            ("clock_gettime", "__ia32_sys_clock_gettime32"),
            ("clock_gettime64", "__ia32_sys_clock_gettime"),
            ("futex", "__ia32_sys_futex_time32"),
            ("futex_time64", "__ia32_sys_futex"),
            ("sendfile", "__ia32_compat_sys_sendfile"),
            ("fork", "__do_sys_fork"),
            ("execve", "__ia32_compat_sys_execve"),
            ("oldstat", "__ia32_sys_stat"),
        ] {
            let candidates = of(Arch::I386, name);
            assert!(
                candidates.iter().any(|candidate| candidate == function),
                "{name}: {candidates:?}"
            );
        }
    }

    #[test]
    fn a_number_without_a_name_has_no_function() {
        let call = SyscallId {
            arch: Arch::X86_64,
            syscall: Syscall(1500),
        };
        assert!(candidates(call).is_empty());
    }

    #[test]
    fn a_call_without_arguments_has_two_names_for_one_function() {
        assert_eq!(
            shared_with("__ia32_sys_getuid16").as_deref(),
            Some("__do_sys_getuid16")
        );
        assert_eq!(shared_with("__ia32_compat_sys_open"), None);
    }
}
