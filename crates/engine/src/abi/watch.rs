//! The keys and values of the watch maps in `bpf/wire.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const WATCH_SET: u32 = 0x40000;
pub(crate) const WATCH_SETS: u32 = 1024;
pub(crate) const SET_WATCHES: usize = 15;

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq, Hash,
)]
#[repr(C)]
pub(crate) struct WireInodeKey {
    pub(crate) ino: u64,
    pub(crate) dev: u32,
    pub(crate) half: u32,
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq,
)]
#[repr(C)]
pub(crate) struct WireIdentity {
    pub(crate) ino: u64,
    pub(crate) dev: u32,
    pub(crate) generation: u32,
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq,
)]
#[repr(C)]
pub(crate) struct WireInodeWatch {
    pub(crate) watch: u32,
    pub(crate) sole_name: u32,
    pub(crate) generation: u32,
    pub(crate) _pad: u32,
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq,
)]
#[repr(C)]
pub(crate) struct WireWatchSet {
    pub(crate) count: u32,
    pub(crate) watch: [u32; SET_WATCHES],
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq,
)]
#[repr(C)]
pub(crate) struct WireNameWatch {
    pub(crate) watch: u32,
    pub(crate) sole_name: u32,
    pub(crate) led_to: [WireIdentity; 2],
}
