//! The active security modules of the kernel.

/// `lsm_list_modules(2)`, v6.8.
const LSM_LIST_MODULES: libc::c_long = 461;
/// `LSM_ID_BPF` of `include/uapi/linux/lsm.h`, v6.8. 110 is Landlock.
const BPF: u64 = 109;
/// More than the kernel has.
const MAX_MODULES: usize = 64;

/// Whether the module `bpf` is active; false on kernels that do not tell.
pub(crate) fn has_bpf() -> bool {
    let mut ids = [0_u64; MAX_MODULES];
    let Ok(mut bytes) = u32::try_from(size_of_val(&ids)) else {
        return false;
    };
    let no_flags = 0_u32;
    // SAFETY: the kernel writes at most `bytes` bytes to `ids`, and the number of bytes to `bytes`.
    let count =
        unsafe { libc::syscall(LSM_LIST_MODULES, ids.as_mut_ptr(), &raw mut bytes, no_flags) };
    count > 0 && ids.contains(&BPF)
}
