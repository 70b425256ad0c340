//! Socket addresses of syscalls: direction and location.

use crate::ids::{Arch, Syscall};
use crate::table;

/// Direction of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SockaddrDirection {
    /// Passed to the kernel.
    Given,
    /// Returned by the kernel when the syscall succeeds.
    Answer,
}

/// Location of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SockaddrSource {
    /// In the argument with this index; the next argument is its length or a pointer to it.
    Argument(u8),
    /// In the `struct msghdr` that the second argument points to.
    Message,
    /// In the array of `struct mmsghdr` that the second argument points to: that of the last message processed.
    Messages,
}

/// The address of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallSockaddr {
    /// Direction and location are known.
    At(SockaddrDirection, SockaddrSource),
    /// The first argument of `socketcall` selects the syscall.
    SocketCall,
}

/// The address that a syscall may have; `None` for a syscall that never has one.
///
/// # Source
/// `audit_sockaddr()` is called by `move_addr_to_kernel()` and `move_addr_to_user()` in `net/socket.c`,
/// Linux 6.12.
#[must_use]
pub fn of(arch: Arch, syscall: Syscall) -> Option<SyscallSockaddr> {
    table::syscall_name(arch, syscall).and_then(by_name)
}

/// The same, by the name of the syscall.
#[must_use]
pub fn by_name(name: &str) -> Option<SyscallSockaddr> {
    Some(match name {
        "bind" | "connect" => {
            SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Argument(1))
        }
        "sendto" => SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Argument(4)),
        "sendmsg" => SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Message),
        "sendmmsg" => SyscallSockaddr::At(SockaddrDirection::Given, SockaddrSource::Messages),
        "accept" | "accept4" | "getsockname" | "getpeername" => {
            SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Argument(1))
        }
        "recvfrom" => SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Argument(4)),
        "recvmsg" => SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Message),
        "recvmmsg" | "recvmmsg_time64" => {
            SyscallSockaddr::At(SockaddrDirection::Answer, SockaddrSource::Messages)
        }
        "socketcall" => SyscallSockaddr::SocketCall,
        _ => return None,
    })
}
