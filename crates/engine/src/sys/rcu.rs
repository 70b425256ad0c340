//! Waits for running BPF programs.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, libbpf_sys};

/// Waits until every program that runs now has ended, by the update of an array of maps.
///
/// `membarrier(2)` with `MEMBARRIER_CMD_GLOBAL` waits as well, but fails with `EINVAL` on machines with
/// `nohz_full=` and does nothing on one CPU, where a program may be preempted.
///
/// # Errors
/// When the kernel refuses the maps, or their update.
///
/// # Source
/// `maybe_wait_bpf_programs()` in `kernel/bpf/syscall.c`, v5.0: `synchronize_rcu()` after the update of a map
/// of maps. Programs that do not sleep run under `rcu_read_lock()`.
pub(crate) fn wait_for_programs() -> libbpf_rs::Result<()> {
    let inner = create(MapType::Array, None)?;
    let outer = create(MapType::ArrayOfMaps, Some(inner.as_fd()))?;
    let value = inner.as_fd().as_raw_fd().to_ne_bytes();
    outer.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)
}

/// Creates a map with one entry of four bytes.
fn create(map_type: MapType, inner: Option<BorrowedFd<'_>>) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        inner_map_fd: inner.map_or(0, |inner| inner.as_raw_fd().cast_unsigned()),
        ..Default::default()
    };
    MapHandle::create(map_type, Some("tlg_rcu"), 4, 4, 1, &options)
}
