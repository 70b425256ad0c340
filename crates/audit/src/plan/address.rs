//! Socket addresses: which calls are given one or give one, and where it is.

use crate::ids::{Arch, Syscall};
use crate::table;

/// Which way an address goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The call is given it.
    Given,
    /// The call fills it in when it succeeds.
    Answer,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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
pub enum Address {
    /// There is one at this place.
    At(Way, Place),
    /// The first argument of `socketcall` says which call is made.
    SocketCall,
}

/// The address that a call may have; `None` for calls that never have one.
///
/// # Source
/// `audit_sockaddr()` is called by `move_addr_to_kernel()` and `move_addr_to_user()` in `net/socket.c`,
/// Linux 6.12.
#[must_use]
pub fn of(arch: Arch, syscall: Syscall) -> Option<Address> {
    table::syscall_name(arch, syscall).and_then(by_name)
}

/// The same by the name of the call.
#[must_use]
pub fn by_name(name: &str) -> Option<Address> {
    Some(match name {
        "bind" | "connect" => Address::At(Way::Given, Place::Argument(1)),
        "sendto" => Address::At(Way::Given, Place::Argument(4)),
        "sendmsg" => Address::At(Way::Given, Place::Message),
        "sendmmsg" => Address::At(Way::Given, Place::Messages),
        "accept" | "accept4" | "getsockname" | "getpeername" => {
            Address::At(Way::Answer, Place::Argument(1))
        }
        "recvfrom" => Address::At(Way::Answer, Place::Argument(4)),
        "recvmsg" => Address::At(Way::Answer, Place::Message),
        "recvmmsg" | "recvmmsg_time64" => Address::At(Way::Answer, Place::Messages),
        "socketcall" => Address::SocketCall,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Call;
    use crate::plan::inner::{self, Inner};

    #[test]
    fn where_hooks_see_addresses_there_is_one() {
        for arch in [Arch::X86_64, Arch::I386] {
            for syscall in (0..1024).map(Syscall) {
                let seen = inner::of(Call { arch, syscall });
                let hooked =
                    seen.contains(&Inner::SockaddrKernel) || seen.contains(&Inner::SockaddrUser);
                assert_eq!(of(arch, syscall).is_some(), hooked, "{syscall:?}");
            }
        }
    }
}
