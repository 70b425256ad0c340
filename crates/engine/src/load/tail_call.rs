//! Tail calls: the maps through which a stub reaches the program that does its work.

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapMut, ProgramMut};

/// The kernel's number of what the stubs jump to.
pub(crate) fn body(jump: &MapMut<'_>) -> Option<u32> {
    let found = jump.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    found.try_into().ok().map(u32::from_ne_bytes)
}

/// Makes `body` what the stubs jump to.
pub(crate) fn set_body(jump: &MapMut<'_>, body: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let fd = body.as_fd().as_raw_fd();
    jump.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}
