//! Formats numeric fields for people. Strings that a task chose are not interpreted.
//!
//! The caller provides users and groups as [`AccountNames`]. Unknown values print as numbers.

use std::fmt::{self, Display};

use crate::event::{Event, reported_exit, succeeded};
use crate::ids::{Arch, Syscall};
use crate::table;

/// Users and groups of the host that the events come from.
pub trait AccountNames {
    /// Name of a user.
    fn user(&self, uid: u32) -> Option<&str>;
    /// Name of a group.
    fn group(&self, gid: u32) -> Option<&str>;
}

/// Formats a uid: its name, `unset` for 4294967295, `unknown(N)` for a uid without a name.
pub fn user(names: &dyn AccountNames, uid: u32) -> impl Display {
    fmt::from_fn(move |f| account(names.user(uid), uid, f))
}

/// Formats a gid; see [`user`].
pub fn group(names: &dyn AccountNames, gid: u32) -> impl Display {
    fmt::from_fn(move |f| account(names.group(gid), gid, f))
}

/// Formats a syscall as its name, or its number.
pub fn syscall(arch: Arch, syscall: Syscall) -> impl Display {
    fmt::from_fn(move |f| match table::syscall_name(arch, syscall) {
        Some(name) => f.pad(name),
        None => syscall.0.fmt(f),
    })
}

/// Formats a return value: the errno name or the number.
pub fn exit(raw: i64) -> impl Display {
    fmt::from_fn(move |f| {
        let exit = reported_exit(raw);
        let errno = (!succeeded(exit))
            .then(|| i32::try_from(exit.unsigned_abs()).ok())
            .flatten();
        match errno.and_then(table::errno_name) {
            Some(name) => f.pad(name),
            None => exit.fmt(f),
        }
    })
}

/// Formats the flags of `open` and `openat`; `None` for other syscalls. `openat2` passes its flags in memory.
pub fn open_flags<'e>(event: &'e Event<'_>) -> Option<impl Display + use<'e>> {
    let [_, a1, a2, _] = event.args;
    let flags = match table::syscall_name(event.arch, event.syscall)? {
        "open" => a1,
        "openat" => a2,
        _ => return None,
    };
    Some(flag_names(event.arch, low_32_bits(flags)))
}

/// Formats file type and permissions as `ls -l` does.
///
/// # Source
/// `S_IF*` in `include/uapi/linux/stat.h`, Linux 6.12.
#[must_use]
pub fn mode(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o010_000 => 'p',
        0o020_000 => 'c',
        0o040_000 => 'd',
        0o060_000 => 'b',
        0o100_000 => '-',
        0o120_000 => 'l',
        0o140_000 => 's',
        _ => '?',
    };
    let letter = move |bit: u32, name: char| if mode & bit != 0 { name } else { '-' };
    let execute = move |bit: u32, special: u32, name: char| match (mode & bit, mode & special) {
        (_, 0) => letter(bit, 'x'),
        (0, _) => name.to_ascii_uppercase(),
        _ => name,
    };
    String::from_iter([
        kind,
        letter(0o400, 'r'),
        letter(0o200, 'w'),
        execute(0o100, 0o4000, 's'),
        letter(0o040, 'r'),
        letter(0o020, 'w'),
        execute(0o010, 0o2000, 's'),
        letter(0o004, 'r'),
        letter(0o002, 'w'),
        execute(0o001, 0o1000, 't'),
    ])
}

/// Whether relative names in an event are relative to its working directory: false if the syscall of this name, with
/// these first arguments, passed another directory.
#[must_use]
pub fn starts_at_cwd(name: &str, [a0, a1, a2]: [u64; 3]) -> bool {
    const AT_FDCWD: i32 = -100;
    let cwd = |arg: u64| low_32_bits(arg).cast_signed() == AT_FDCWD;
    match name {
        "symlinkat" => cwd(a1),
        "renameat" | "renameat2" | "linkat" | "move_mount" => cwd(a0) && cwd(a2),
        // The position of the directory argument depends on how the ABI passes a 64-bit mask.
        "fanotify_mark" => false,
        _ => !takes_dirfd(name) || cwd(a0),
    }
}

/// Whether the first argument of a syscall is the directory descriptor for relative names.
fn takes_dirfd(name: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "faccessat2",
        "fchmodat2",
        "file_getattr",
        "file_setattr",
        "fspick",
        "fstatat64",
        "mount_setattr",
        "name_to_handle_at",
        "open_tree",
        "open_tree_attr",
        "openat2",
        "statx",
    ];
    let at = name.ends_with("at") && !name.ends_with("stat") && name != "creat" && name != "shmat";
    at || OTHERS.contains(&name)
}

fn account(name: Option<&str>, id: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match name {
        Some(name) => f.pad(name),
        None if id == u32::MAX => f.pad("unset"),
        None => write!(f, "unknown({id})"),
    }
}

/// Low 32 bits of an argument: the value of an `int`.
const fn low_32_bits(arg: u64) -> u32 {
    let [a, b, c, d, ..] = arg.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Formats open flags, joined by `|`, with unknown bits in octal at the end.
fn flag_names(arch: Arch, flags: u32) -> impl Display {
    const O_ACCMODE: u32 = 3;
    fmt::from_fn(move |f| {
        f.write_str(match flags & O_ACCMODE {
            0 => "O_RDONLY",
            1 => "O_WRONLY",
            2 => "O_RDWR",
            _ => "O_ACCMODE",
        })?;
        let mut rest = flags & !O_ACCMODE;
        for (bits, name) in arch_flags(arch).into_iter().chain(FLAGS) {
            if rest & bits == bits {
                rest &= !bits;
                write!(f, "|{name}")?;
            }
        }
        if rest == 0 {
            Ok(())
        } else {
            write!(f, "|{rest:#o}")
        }
    })
}

/// Open flags that are the same on all supported archs. Flags of several bits precede their parts.
///
/// # Source
/// `include/uapi/asm-generic/fcntl.h`, Linux 6.12.
const FLAGS: [(u32, &str); 13] = [
    (0o4_010_000, "O_SYNC"),
    (0o100, "O_CREAT"),
    (0o200, "O_EXCL"),
    (0o400, "O_NOCTTY"),
    (0o1000, "O_TRUNC"),
    (0o2000, "O_APPEND"),
    (0o4000, "O_NONBLOCK"),
    (0o10_000, "O_DSYNC"),
    (0o20_000, "O_ASYNC"),
    (0o1_000_000, "O_NOATIME"),
    (0o2_000_000, "O_CLOEXEC"),
    (0o10_000_000, "O_PATH"),
    (0o20_000_000, "__O_TMPFILE"),
];

/// Open flags that differ between archs.
///
/// # Source
/// `fcntl.h` in `arch/arm`, `arch/arm64` and `arch/powerpc` under `include/uapi/asm`, Linux 6.12.
const fn arch_flags(arch: Arch) -> [(u32, &'static str); 5] {
    let (directory, nofollow, direct, largefile) = match arch {
        Arch::ARM | Arch::AARCH64 => (0o40_000, 0o100_000, 0o200_000, 0o400_000),
        Arch::PPC | Arch::PPC64 | Arch::PPC64LE => (0o40_000, 0o100_000, 0o400_000, 0o200_000),
        _ => (0o200_000, 0o400_000, 0o40_000, 0o100_000),
    };
    [
        (0o20_000_000 | directory, "O_TMPFILE"),
        (directory, "O_DIRECTORY"),
        (nofollow, "O_NOFOLLOW"),
        (direct, "O_DIRECT"),
        (largefile, "O_LARGEFILE"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestAccounts;

    impl AccountNames for TestAccounts {
        fn user(&self, uid: u32) -> Option<&str> {
            (uid == 0).then_some("root")
        }

        fn group(&self, gid: u32) -> Option<&str> {
            (gid == 4).then_some("adm")
        }
    }

    #[test]
    fn accounts_without_a_name_are_unset_or_unknown() {
        assert_eq!(user(&TestAccounts, 0).to_string(), "root");
        assert_eq!(user(&TestAccounts, 4).to_string(), "unknown(4)");
        assert_eq!(user(&TestAccounts, u32::MAX).to_string(), "unset");
        assert_eq!(group(&TestAccounts, 4).to_string(), "adm");
    }

    #[test]
    fn modes_print_as_in_ls() {
        for (bits, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o104_755, "-rwsr-xr-x"),
            (0o102_644, "-rw-r-Sr--"),
            (0o041_777, "drwxrwxrwt"),
            (0o041_776, "drwxrwxrwT"),
            (0o120_777, "lrwxrwxrwx"),
            (0o020_620, "crw--w----"),
            (0, "?---------"),
        ] {
            assert_eq!(mode(bits).to_string(), text);
        }
    }

    #[test]
    fn open_flags_depend_on_the_arch() {
        for (arch, flags, text) in [
            (Arch::X86_64, 0, "O_RDONLY"),
            (Arch::X86_64, 0o1101, "O_WRONLY|O_CREAT|O_TRUNC"),
            (Arch::X86_64, 0o2_200_000, "O_RDONLY|O_DIRECTORY|O_CLOEXEC"),
            (Arch::AARCH64, 0o2_040_000, "O_RDONLY|O_DIRECTORY|O_CLOEXEC"),
            (Arch::X86_64, 0o20_200_002, "O_RDWR|O_TMPFILE"),
            (Arch::X86_64, 0o4_010_000, "O_RDONLY|O_SYNC"),
            (Arch::X86_64, 0o10_000, "O_RDONLY|O_DSYNC"),
            (Arch::X86_64, 0o40_000_003, "O_ACCMODE|0o40000000"),
        ] {
            assert_eq!(flag_names(arch, flags).to_string(), text);
        }
    }

    #[test]
    fn exit_prints_errno_name_or_value() {
        assert_eq!(exit(3).to_string(), "3");
        assert_eq!(exit(-2).to_string(), "ENOENT");
        assert_eq!(exit(-512).to_string(), "EINTR");
        assert_eq!(exit(-4000).to_string(), "-4000");
    }

    #[test]
    fn syscalls_with_dirfd_are_known() {
        for name in [
            "openat",
            "openat2",
            "newfstatat",
            "fstatat64",
            "unlinkat",
            "statx",
        ] {
            assert!(takes_dirfd(name), "{name}");
        }
        for name in [
            "open", "creat", "stat", "lstat", "oldfstat", "ustat", "shmat", "rename",
        ] {
            assert!(!takes_dirfd(name), "{name}");
        }
    }

    #[test]
    fn syscall_prints_name_or_number() {
        assert_eq!(syscall(Arch::X86_64, Syscall(257)).to_string(), "openat");
        assert_eq!(syscall(Arch::X86_64, Syscall(99_999)).to_string(), "99999");
    }
}
