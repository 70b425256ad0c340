//! Operations of `io_uring` that do what a syscall does, so that a rule about the call is about them too.

use crate::ids::Arch;
use crate::table;

use super::Call;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number.
    pub op: u8,
    /// The syscall that does the same.
    pub syscall: &'static str,
    /// The kernel's function that does it.
    pub function: &'static str,
}

/// Those that make, remove, open or connect something.
///
/// # Source
/// `enum io_uring_op` in `include/uapi/linux/io_uring.h` and `io_issue_defs` in `io_uring/opdef.c`, Linux
/// 6.12. `io_openat` ends in `io_openat2`.
pub const OPERATIONS: [Operation; 11] = [
    operation(13, "accept4", "io_accept"),
    operation(16, "connect", "io_connect"),
    operation(18, "openat", "io_openat2"),
    operation(28, "openat2", "io_openat2"),
    operation(35, "renameat2", "io_renameat"),
    operation(36, "unlinkat", "io_unlinkat"),
    operation(37, "mkdirat", "io_mkdirat"),
    operation(38, "symlinkat", "io_symlinkat"),
    operation(39, "linkat", "io_linkat"),
    operation(56, "bind", "io_bind"),
    operation(9, "sendmsg", "io_sendmsg"),
];

const fn operation(op: u8, syscall: &'static str, function: &'static str) -> Operation {
    Operation {
        op,
        syscall,
        function,
    }
}

/// The operation that does what a call does. Operations have no 32-bit form: rules for 64-bit calls are
/// about them.
#[must_use]
pub fn operation_of(call: Call) -> Option<&'static Operation> {
    if call.arch != Arch::X86_64 {
        return None;
    }
    let name = table::syscall_name(call.arch, call.syscall)?;
    OPERATIONS
        .iter()
        .find(|operation| operation.syscall == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stands_for_a_call() {
        for operation in &OPERATIONS {
            let arch = Arch::X86_64;
            let syscall = table::syscall_number(arch, operation.syscall.as_bytes()).unwrap();
            assert_eq!(operation_of(Call { arch, syscall }), Some(operation));
        }
    }

    #[test]
    fn calls_of_32_bits_have_no_operation() {
        let arch = Arch::I386;
        let syscall = table::syscall_number(arch, b"openat").unwrap();
        assert_eq!(operation_of(Call { arch, syscall }), None);
    }
}
