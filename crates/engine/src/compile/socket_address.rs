//! The location of the socket address of a syscall, as `WIRE_ADDRESS_*`.

use audit::plan::SyscallId;
use audit::plan::sockaddr::{SockaddrDirection, SockaddrSource, SyscallSockaddr, of};

use crate::abi::{self, WireEvent, WireTest, word};

/// Location of the socket address of a syscall; 0 when it has none.
pub(super) fn sockaddr_source(syscall_id: SyscallId) -> u8 {
    match of(syscall_id.arch, syscall_id.syscall) {
        None => 0,
        Some(SyscallSockaddr::SocketCall) => abi::ADDRESS_SOCKETCALL,
        Some(SyscallSockaddr::At(way, place)) => {
            let answer = match way {
                SockaddrDirection::Given => 0,
                SockaddrDirection::Answer => abi::ADDRESS_OUTPUT,
            };
            let early = match syscall_id.name() {
                Some("connect") => abi::ADDRESS_EARLY, // __sys_connect(), net/socket.c, v5.5
                _ => 0,
            };
            answer
                | early
                | match place {
                    SockaddrSource::Argument(4) => abi::ADDRESS_FIFTH,
                    SockaddrSource::Argument(_) => abi::ADDRESS_SECOND,
                    SockaddrSource::Msghdr => abi::ADDRESS_MSGHDR,
                    SockaddrSource::Mmsghdr => abi::ADDRESS_MMSGHDR,
                }
        }
    }
}

/// A test that the syscall had a socket address, which precedes each test of its family.
pub(super) fn has_sockaddr_test() -> WireTest {
    WireTest {
        value: 1,
        word: word!(WireEvent.argc),
        op: abi::OP_EQ,
        kind: abi::TEST_WORD,
        ..WireTest::default()
    }
}
