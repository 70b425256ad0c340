//! Socket addresses: the syscalls that pass or return one, and its position.

use crate::ids::{Arch, Syscall};
use crate::table;

/// Direction of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SockaddrDirection {
    /// Passed to the syscall.
    Given,
    /// Returned by the syscall on success.
    Answer,
}

/// Position of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SockaddrSource {
    /// The argument with this index. The next argument is its length or a pointer to it.
    Argument(u8),
    /// The `struct msghdr` of the second argument.
    Msghdr,
    /// The last processed element of the `struct mmsghdr` array of the second argument.
    Mmsghdr,
}

/// Address of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallSockaddr {
    /// At a fixed position.
    At(SockaddrDirection, SockaddrSource),
    /// Depends on the first argument of `socketcall`.
    SocketCall,
}

/// Returns the address of a syscall; `None` for syscalls without one.
///
/// # Source
/// `audit_sockaddr()` is called by `move_addr_to_kernel()` and `move_addr_to_user()` in `net/socket.c`,
/// Linux 6.12.
#[must_use]
pub fn of(arch: Arch, syscall: Syscall) -> Option<SyscallSockaddr> {
    table::syscall_name(arch, syscall).and_then(by_name)
}

/// As [`of`], by the name of the syscall.
#[must_use]
pub fn by_name(name: &str) -> Option<SyscallSockaddr> {
    Some(match name {
        "bind" | "connect" => {
            SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Argument(1))
        }
        "sendto" => SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Argument(4)),
        "sendmsg" => SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Msghdr),
        "sendmmsg" => SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Mmsghdr),
        "accept" | "accept4" | "getsockname" | "getpeername" => {
            SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Argument(1))
        }
        "recvfrom" => SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Argument(4)),
        "recvmsg" => SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Msghdr),
        "recvmmsg" | "recvmmsg_time64" => {
            SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Mmsghdr)
        }
        "socketcall" => SyscallSockaddr::SocketCall,
        _ => return None,
    })
}
