//! Socket addresses that a call gives or gets, as the kernel's audit keeps them.

use audit::ids::Arch;

use super::memory::Memory;

/// `struct sockaddr_storage`: no address is longer.
const LONGEST: usize = 128;

/// Where a call has an address.
enum Place {
    /// Address and length are arguments with these indices.
    Given(usize, usize),
    /// In the `struct msghdr` that the second argument points to.
    Message,
    /// Address and pointer to length, filled by the call.
    Returned(usize, usize),
}

/// Whether a call may have an address.
pub(super) fn has_address(call: &str) -> bool {
    place(call).is_some()
}

/// The address of a call. Before the call ends, `result` is `None`, and there is only one that was given.
///
/// # Source
/// `audit_sockaddr()` is called by `move_addr_to_kernel()` and `move_addr_to_user()` in `net/socket.c`,
/// Linux 6.12.
pub(super) fn address(
    call: &str,
    arch: Arch,
    args: &[u64; 6],
    memory: Memory,
    result: Option<i64>,
) -> Option<Vec<u8>> {
    let arg = |index: usize| args.get(index).copied().unwrap_or(0);
    let (at, len) = match (place(call)?, result) {
        (Place::Given(at, len), None) => (arg(at), arg(len)),
        (Place::Message, None) => {
            let header = arg(1);
            let name = memory.pointer(header, arch)?;
            let after = if arch == Arch::I386 { 4 } else { 8 };
            (name, low(memory.word(header.checked_add(after)?)?))
        }
        (Place::Returned(at, len), Some(0..)) => (arg(at), low(memory.word(arg(len))?)),
        _ => return None,
    };
    if at == 0 || len == 0 {
        return None;
    }
    let len = usize::try_from(len).ok()?.min(LONGEST);
    let mut bytes = vec![0; len];
    let read = memory.read(at, &mut bytes).ok()?;
    bytes.truncate(read);
    Some(bytes)
}

const fn low(word: u64) -> u64 {
    word & 0xffff_ffff
}

fn place(name: &str) -> Option<Place> {
    Some(match name {
        "bind" | "connect" => Place::Given(1, 2),
        "sendto" => Place::Given(4, 5),
        "sendmsg" => Place::Message,
        "accept" | "accept4" | "getsockname" | "getpeername" => Place::Returned(1, 2),
        "recvfrom" => Place::Returned(4, 5),
        _ => return None,
    })
}
