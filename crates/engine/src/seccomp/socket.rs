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

/// The name of a socket in the file system that is in an address.
///
/// # Source
/// `unix(7)`.
pub(super) fn file_name(address: &[u8]) -> Option<&[u8]> {
    let family = u16::try_from(libc::AF_UNIX).ok()?.to_ne_bytes();
    let path = address.strip_prefix(family.as_slice())?;
    let end = path.iter().position(|&byte| byte == 0);
    path.get(..end.unwrap_or(path.len()))
        .filter(|path| !path.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_with_a_path_have_a_name() {
        for (address, name) in [
            (
                b"\x01\x00/run/x\0rest".as_slice(),
                Some(b"/run/x".as_slice()),
            ),
            (b"\x01\x00x", Some(b"x")),
            (b"\x01\x00\0abstract", None),
            (b"\x01\x00", None),
            (b"\x02\x00\x00\x09\x7f\0\0\x01", None),
            (b"", None),
        ] {
            assert_eq!(file_name(address), name);
        }
    }
}
