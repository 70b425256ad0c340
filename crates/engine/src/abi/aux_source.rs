//! `enum wire_aux_source` of `bpf/wire.h`: what a syscall's auxiliary record is read from when it ends.

pub(crate) const PIPE: u8 = 1;
pub(crate) const SOCKETPAIR: u8 = 2;
pub(crate) const SOCKETCALL: u8 = 3;
pub(crate) const MMAP: u8 = 4;
pub(crate) const OLD_MMAP: u8 = 5;
pub(crate) const OPENAT2: u8 = 6;
pub(crate) const CAPSET: u8 = 7;
pub(crate) const TARGET_FIRST: u8 = 8;
pub(crate) const TARGET_SECOND: u8 = 9;
pub(crate) const TARGET_FIRST_EARLY: u8 = 10;
pub(crate) const TARGET_SECOND_EARLY: u8 = 11;
pub(crate) const TRACED: u8 = 12;
pub(crate) const LOADED_PROGRAM: u8 = 13;
