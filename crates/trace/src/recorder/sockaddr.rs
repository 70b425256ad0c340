//! Socket addresses that a syscall passes or returns.

use audit::ids::Arch;
use audit::plan::sockaddr::{self, SockaddrDirection, SockaddrSource, SyscallSockaddr};

use crate::task::memory::Memory;

/// `sizeof(struct sockaddr_storage)`; no address is longer.
const SOCKADDR_STORAGE_BYTES: usize = 128;

/// `sizeof(struct mmsghdr)`.
const MMSGHDR_BYTES: u64 = 64;
const COMPAT_MMSGHDR_BYTES: u64 = 32;

/// A syscall that can have a socket address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SockaddrArgs {
    pub(crate) address: SyscallSockaddr,
    pub(crate) arch: Arch,
    pub(crate) args: [u64; 6],
    pub(crate) memory: Memory,
}

impl SockaddrArgs {
    /// The address that is passed to the kernel. The address of `sendmmsg` is read at exit.
    pub(crate) fn read_given(self) -> Option<Vec<u8>> {
        match self.resolved()? {
            (call, SockaddrDirection::Given, SockaddrSource::Argument(at)) => {
                call.bytes(call.arg(at), low_u32(call.arg(at + 1)))
            }
            (call, SockaddrDirection::Given, SockaddrSource::Msghdr) => call.message(0),
            _ => None,
        }
    }

    /// The address that the kernel returned, or that of the last message sent.
    pub(crate) fn read_result(self, result: i64) -> Option<Vec<u8>> {
        let result = u64::try_from(result).ok()?;
        match self.resolved()? {
            (call, SockaddrDirection::Answer, SockaddrSource::Argument(at)) => {
                call.bytes(call.arg(at), low_u32(call.memory.word(call.arg(at + 1))?))
            }
            (call, SockaddrDirection::Answer, SockaddrSource::Msghdr) => call.message(0),
            (call, _, SockaddrSource::Mmsghdr) => call.message(result.saturating_sub(1)),
            _ => None,
        }
    }

    /// Location of the address. For `socketcall`, replaces the arguments by those of the socket operation.
    fn resolved(mut self) -> Option<(Self, SockaddrDirection, SockaddrSource)> {
        if let SyscallSockaddr::At(way, place) = self.address {
            return Some((self, way, place));
        }
        let name = match self.arg(0) {
            2 => "bind",
            3 => "connect",
            5 => "accept",
            6 => "getsockname",
            7 => "getpeername",
            11 => "sendto",
            12 => "recvfrom",
            16 => "sendmsg",
            17 => "recvmsg",
            18 => "accept4",
            19 => "recvmmsg",
            20 => "sendmmsg",
            _ => return None,
        };
        let mut words = [0; 24];
        let read = self.memory.read(self.arg(1), &mut words).ok()?;
        let (words, _) = words.get(..read)?.as_chunks::<4>();
        for (arg, word) in self.args.iter_mut().zip(words) {
            *arg = u32::from_le_bytes(*word).into();
        }
        self.address = sockaddr::by_name(name)?;
        match self.address {
            SyscallSockaddr::At(way, place) => Some((self, way, place)),
            SyscallSockaddr::SocketCall => None,
        }
    }

    fn arg(&self, index: u8) -> u64 {
        let arg = self.args.get(usize::from(index)).copied();
        let arg = arg.unwrap_or_default();
        if !self.arch.is_64_bit() {
            low_u32(arg)
        } else {
            arg
        }
    }

    /// The address in the message header at `index` of the array that the second argument points to.
    fn message(&self, index: u64) -> Option<Vec<u8>> {
        let (size, after) = if !self.arch.is_64_bit() {
            (COMPAT_MMSGHDR_BYTES, 4)
        } else {
            (MMSGHDR_BYTES, 8)
        };
        let header = self.arg(1).checked_add(index.checked_mul(size)?)?;
        let at = self.memory.pointer(header, self.arch)?;
        self.bytes(at, low_u32(self.memory.word(header.checked_add(after)?)?))
    }

    fn bytes(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        if at == 0 || len == 0 {
            return None;
        }
        let len = usize::try_from(len).ok()?.min(SOCKADDR_STORAGE_BYTES);
        let mut bytes = vec![0; len];
        let read = self.memory.read(at, &mut bytes).ok()?;
        bytes.truncate(read);
        Some(bytes)
    }
}

/// The family of an address.
pub(crate) fn family(address: &[u8]) -> Option<u32> {
    let family = address.first_chunk().copied().map(u16::from_ne_bytes);
    family.map(u32::from)
}

/// The path in a Unix socket address.
///
/// # Source
/// `unix(7)`.
pub(crate) fn file_name(address: &[u8]) -> Option<&[u8]> {
    let family = u16::try_from(libc::AF_UNIX).ok()?.to_ne_bytes();
    let path = address.strip_prefix(family.as_slice())?;
    let end = path.iter().position(|&byte| byte == 0);
    path.get(..end.unwrap_or(path.len()))
        .filter(|path| !path.is_empty())
}

const fn low_u32(word: u64) -> u64 {
    word & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unix_sockets_with_path_have_file_name() {
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

    #[test]
    fn sockaddr_is_read_from_argument_or_message() {
        const UNIX: [u8; 4] = [1, 0, b'/', b'x'];
        const INET: [u8; 4] = [2, 0, 0, 9];
        let at = |bytes: &[u8]| u64::try_from(bytes.as_ptr().addr()).unwrap();
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let call = |name, args| SockaddrArgs {
            address: sockaddr::by_name(name).unwrap(),
            arch: Arch::X86_64,
            args,
            memory: Memory(nix::unistd::getpid()),
        };
        let [unix, inet] = [&UNIX, &INET].map(|bytes| at(bytes));

        let connect = call("connect", [3, unix, 4, 0, 0, 0]);
        assert_eq!(connect.read_given().as_deref(), Some(UNIX.as_slice()));
        assert_eq!(connect.read_result(0), None);
        let sendto = call("sendto", [3, 0, 0, 0, inet, 4]);
        assert_eq!(
            sendto.read_given().as_deref().and_then(family),
            Some(2),
            "of {INET:?}"
        );

        let len = words(&[4]);
        let accept = call("accept4", [3, unix, at(&len), 0, 0, 0]);
        assert_eq!(accept.read_given(), None);
        assert_eq!(accept.read_result(-11), None);
        assert_eq!(accept.read_result(5).as_deref(), Some(UNIX.as_slice()));

        let header = |name| [name, 4, 0, 0, 0, 0, 0, 0];
        let headers = words(&[header(unix), header(inet)].concat());
        let sendmsg = call("sendmsg", [3, at(&headers), 0, 0, 0, 0]);
        assert_eq!(sendmsg.read_given().as_deref(), Some(UNIX.as_slice()));
        let sendmmsg = call("sendmmsg", [3, at(&headers), 2, 0, 0, 0]);
        assert_eq!(sendmmsg.read_result(1).as_deref(), Some(UNIX.as_slice()));
        assert_eq!(sendmmsg.read_result(2).as_deref(), Some(INET.as_slice()));
    }
}
