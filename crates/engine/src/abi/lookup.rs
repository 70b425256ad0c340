//! `enum wire_lookup` of `bpf/wire.h`: how the arguments of a syscall identify an object.

pub(crate) const PATH: u8 = 1;
pub(crate) const AT: u8 = 2;
pub(crate) const FD: u8 = 3;
pub(crate) const OPENED: u8 = 4;
pub(crate) const OPENED_AT: u8 = 5;
pub(crate) const EXEC: u8 = 6;
pub(crate) const EXEC_AT: u8 = 7;
pub(crate) const TEXT: u8 = 8;
pub(crate) const HOOKED: u8 = 9;
pub(crate) const AT_NAMED: u8 = 10;
pub(crate) const RETURNED: u8 = 11;
pub(crate) const CWD: u8 = 12;
pub(crate) const AT_OR_CWD: u8 = 13;
pub(crate) const AT_OR_NULL: u8 = 14;
