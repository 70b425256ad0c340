//! Socket addresses: which calls are given one or give one, and where it is.

use crate::ids::{Arch, Syscall};
use crate::table;

/// Which way an address goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SockaddrDirection {
    /// The call is given it.
    Given,
    /// The call fills it in when it succeeds.
    Answer,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SockaddrSource {
    /// In the argument with this index; its length, or where that is, in the next.
    Argument(u8),
    /// In the `struct msghdr` that the second argument points to.
    Message,
    /// In the array of `struct mmsghdr` that the second argument points to: of the last one that was dealt
    /// with.
    Messages,
}

/// The address of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallSockaddr {
    /// There is one at this place.
    At(SockaddrDirection, SockaddrSource),
    /// The first argument of `socketcall` says which call is made.
    SocketCall,
}

/// The address that a call may have; `None` for calls that never have one.
///
/// # Source
/// `audit_sockaddr()` is called by `move_addr_to_kernel()` and `move_addr_to_user()` in `net/socket.c`,
/// Linux 6.12.
#[must_use]
pub fn of(arch: Arch, syscall: Syscall) -> Option<SyscallSockaddr> {
    table::syscall_name(arch, syscall).and_then(by_name)
}

/// The same by the name of the call.
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
