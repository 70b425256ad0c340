//! Where btrfs keeps the device number of a subvolume.
//!
//! CO-RE relocation finds the types of modules with `CAP_SYS_ADMIN` only, which the daemon does not keep. sysfs
//! shows them to all.

use std::ffi::CStr;
use std::ptr::NonNull;

use libbpf_rs::libbpf_sys::{self, btf, btf_member, btf_type};

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubvolumeOffsets {
    /// Of the pointer to `struct btrfs_root`, from the `struct inode` inside of `struct btrfs_inode`.
    pub(crate) root: i64,
    /// Of `anon_dev` in `struct btrfs_root`.
    pub(crate) dev: i64,
}

/// The offsets on this kernel; `None` if it has no btrfs, or does not show its types.
pub(crate) fn subvolume_offsets() -> Option<SubvolumeOffsets> {
    // SAFETY: the function takes nothing.
    let vmlinux = Types::new(unsafe { libbpf_sys::btf__load_vmlinux_btf() })?;
    // SAFETY: both pointers are valid, and the base outlives the module's types.
    let module = unsafe { libbpf_sys::btf__load_module_btf(c"btrfs".as_ptr(), vmlinux.0.as_ptr()) };
    let module = Types::new(module);
    let types = module.as_ref().unwrap_or(&vmlinux);
    let at = |structure, member| types.offset(structure, member);
    Some(SubvolumeOffsets {
        root: at(c"btrfs_inode", c"root")? - at(c"btrfs_inode", c"vfs_inode")?,
        dev: at(c"btrfs_root", c"anon_dev")?,
    })
}

/// Type information; released when dropped.
struct Types(NonNull<btf>);

impl Types {
    fn new(types: *mut btf) -> Option<Self> {
        NonNull::new(types).map(Self)
    }

    /// Offset of a member of a structure, in bytes.
    fn offset(&self, structure: &CStr, member: &CStr) -> Option<i64> {
        let types = self.0.as_ptr();
        let kind = libbpf_sys::BTF_KIND_STRUCT;
        // SAFETY: the types are valid, and the name is a string.
        let id = unsafe { libbpf_sys::btf__find_by_name_kind(types, structure.as_ptr(), kind) };
        // SAFETY: as above; a number of no type gives a null pointer.
        let found = unsafe { libbpf_sys::btf__type_by_id(types, u32::try_from(id).ok()?) };
        let found = NonNull::new(found.cast_mut())?;
        // SAFETY: the type is valid for as long as the types are.
        let info = unsafe { found.as_ref() }.info;
        let (members, bit_fields) = (info & 0xffff, info >> 31 != 0);
        // SAFETY: the members of a structure follow it.
        let first = unsafe { found.as_ptr().cast::<btf_type>().add(1) }.cast::<btf_member>();
        for index in 0..usize::try_from(members).ok()? {
            // SAFETY: there are so many members.
            let at = unsafe { first.add(index) };
            // SAFETY: as above.
            let at = unsafe { at.read() };
            // SAFETY: the offset is that of a name, or nothing is there and the pointer is null.
            let name = unsafe { libbpf_sys::btf__name_by_offset(types, at.name_off) };
            // SAFETY: a name is a string that is valid for as long as the types are.
            if !name.is_null() && unsafe { CStr::from_ptr(name) } == member {
                let bits = if bit_fields {
                    at.offset & 0xff_ffff
                } else {
                    at.offset
                };
                return Some(i64::from(bits / 8));
            }
        }
        None
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        // SAFETY: the types are ours, and nothing of them is used any more.
        unsafe { libbpf_sys::btf__free(self.0.as_ptr()) };
    }
}
