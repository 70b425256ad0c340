//! Socket addresses: where the kernel side finds them.

use audit::plan::Call;
use audit::plan::address::{Address, Place, Way, of};

use crate::abi::{self, WireEvent, WireTest, word};

/// Where the socket address of a call is.
pub(super) fn location(call: Call) -> u8 {
    match of(call.arch, call.syscall) {
        None => 0,
        Some(Address::SocketCall) => abi::ADDRESS_SOCKETCALL,
        Some(Address::At(way, place)) => {
            let answer = match way {
                Way::Given => 0,
                Way::Answer => abi::ADDRESS_OUTPUT,
            };
            answer
                | match place {
                    Place::Argument(4) => abi::ADDRESS_FIFTH,
                    Place::Argument(_) => abi::ADDRESS_SECOND,
                    Place::Message => abi::ADDRESS_MSGHDR,
                    Place::Messages => abi::ADDRESS_MMSGHDR,
                }
        }
    }
}

/// Whether the call has had one: asked before whatever its family is compared with.
pub(super) fn presence_test() -> WireTest {
    WireTest {
        value: 1,
        word: word!(WireEvent.argc),
        op: abi::OP_EQ,
        kind: abi::TEST_WORD,
        ..WireTest::default()
    }
}
