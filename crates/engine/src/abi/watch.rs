//! The keys and values of the watch maps in `bpf/wire.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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
pub(crate) struct WireNameWatch {
    pub(crate) watch: u32,
    pub(crate) sole_name: u32,
    pub(crate) led_to: [WireIdentity; 2],
}
