//! Tail calls: the maps through which a stub reaches the program that does its work.

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapMut, ProgramMut};

/// The kernel's number of what the stubs map to.
pub(crate) fn target_id(map: &MapMut<'_>) -> Option<u32> {
    let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    found.try_into().ok().map(u32::from_ne_bytes)
}

/// Makes `target` what the stubs map to.
pub(crate) fn set_target(map: &MapMut<'_>, target: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let fd = target.as_fd().as_raw_fd();
    map.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}
