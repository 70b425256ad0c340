//! What a syscall changes or reads of an object without opening it, as `enum wire_attribute`.

use audit::plan::SyscallId;

use crate::hooks::internal_hook::InternalHook;
use crate::hooks::syscall_hooks::object_hooks;

/// The attribute of a syscall; 0 if it has none. Kernel functions of other attributes show no object of it: an
/// overlay reads extended attributes while `chmod` looks up a name.
pub(crate) fn wire_attribute(syscall: SyscallId) -> u8 {
    object_hooks(syscall)
        .iter()
        .find_map(|hook| {
            Some(match hook {
                InternalHook::AttrChmod => 1,
                InternalHook::AttrChown => 2,
                InternalHook::AttrTruncate => 3,
                InternalHook::AttrUtimes => 4,
                InternalHook::AttrSetxattr => 5,
                InternalHook::AttrRmxattr => 6,
                InternalHook::AttrGetxattr => 7,
                InternalHook::AttrListxattr => 8,
                InternalHook::AttrChdir => 9,
                InternalHook::AttrChroot => 10,
                InternalHook::AttrMount => 11,
                InternalHook::AttrUmount => 12,
                _ => return None,
            })
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use audit::ids::Arch;
    use audit::table;

    use super::*;

    #[test]
    fn attributes_match_wire_h() {
        let header = include_str!("../../bpf/wire.h");
        let declared = header.split("enum wire_attribute {").nth(1).unwrap();
        let declared: Vec<&str> = declared
            .lines()
            .map(str::trim)
            .take_while(|line| *line != "};")
            .filter_map(|line| line.strip_prefix("WIRE_ATTRIBUTE_"))
            .map(|line| line.trim_end_matches(','))
            .collect();
        for (name, attribute) in [
            ("unlink", "NONE"),
            ("openat", "NONE"),
            ("fchmodat", "MODE"),
            ("lchown", "OWNER"),
            ("truncate", "LENGTH"),
            ("utimensat", "TIMES"),
            ("fsetxattr", "SET_XATTR"),
            ("removexattr", "REMOVE_XATTR"),
            ("lgetxattr", "GET_XATTR"),
            ("listxattr", "LIST_XATTR"),
            ("chdir", "CWD"),
            ("chroot", "ROOT"),
            ("mount", "MOUNT"),
            ("umount2", "UMOUNT"),
        ] {
            let arch = Arch::X86_64;
            let syscall = table::syscall_number(arch, name.as_bytes()).unwrap();
            let value = wire_attribute(SyscallId { arch, syscall });
            assert_eq!(declared[usize::from(value)], attribute, "{name}");
        }
        assert_eq!(declared.len(), 13);
    }
}
