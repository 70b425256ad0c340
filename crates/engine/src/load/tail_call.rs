//! Tail-call maps: program arrays with one entry, through which a stub calls its target.

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapMut, ProgramMut};

/// Id of the program in the map.
pub(crate) fn target_id(map: &MapMut<'_>) -> Option<u32> {
    let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    found.try_into().ok().map(u32::from_ne_bytes)
}

/// Sets the program in the map.
pub(crate) fn set_target(map: &MapMut<'_>, target: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let fd = target.as_fd().as_raw_fd();
    map.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}
