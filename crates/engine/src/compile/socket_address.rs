//! Socket addresses: where the kernel side finds them.

use audit::plan::SyscallId;
use audit::plan::sockaddr::{SockaddrDirection, SockaddrSource, SyscallSockaddr, of};

use crate::abi::{self, WireEvent, WireTest, word};

/// Where the socket address of a call is.
pub(super) fn sockaddr_source(call: SyscallId) -> u8 {
    match of(call.arch, call.syscall) {
        None => 0,
        Some(SyscallSockaddr::SocketCall) => abi::ADDRESS_SOCKETCALL,
        Some(SyscallSockaddr::At(way, place)) => {
            let answer = match way {
                SockaddrDirection::Given => 0,
                SockaddrDirection::Answer => abi::ADDRESS_OUTPUT,
            };
            answer
                | match place {
                    SockaddrSource::Argument(4) => abi::ADDRESS_FIFTH,
                    SockaddrSource::Argument(_) => abi::ADDRESS_SECOND,
                    SockaddrSource::Message => abi::ADDRESS_MSGHDR,
                    SockaddrSource::Messages => abi::ADDRESS_MMSGHDR,
                }
        }
    }
}

/// Whether the call has had one: asked before whatever its family is compared with.
pub(super) fn has_sockaddr_test() -> WireTest {
    WireTest {
        value: 1,
        word: word!(WireEvent.argc),
        op: abi::OP_EQ,
        kind: abi::TEST_WORD,
        ..WireTest::default()
    }
}
