//! Memory of a stopped task. Its contents are untrusted and can change while they are read.

use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use audit::ids::Arch;

/// `PATH_MAX` of `include/uapi/linux/limits.h`.
const PATH_MAX: usize = 4096;
const PAGE: usize = 4096;
/// Length of the first read of a string; most names are shorter.
const FIRST_READ: usize = 256;
/// `MAX_ARG_STRLEN` of `include/uapi/linux/binfmts.h`.
const MAX_ARG_STRLEN: usize = 32 * PAGE;

/// Memory of one task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory(pub(crate) Pid);

impl Memory {
    /// Reads bytes at an address; fewer than requested when the mapping ends before.
    ///
    /// # Errors
    /// As `process_vm_readv(2)`, when no byte can be read.
    pub(crate) fn read(self, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let base = usize::try_from(at).map_err(|_wide| Errno::EFAULT)?;
        let remote = RemoteIoVec {
            base,
            len: into.len(),
        };
        process_vm_readv(self.0, &mut [IoSliceMut::new(into)], &[remote])
    }

    /// Appends the string at an address, without its NUL.
    ///
    /// # Errors
    /// As [`Self::read`]; `ENAMETOOLONG` when the string has more than `longest` bytes.
    fn string(self, at: u64, longest: usize, into: &mut Vec<u8>) -> Result<(), Errno> {
        let start = into.len();
        let mut wanted = FIRST_READ;
        let mut at = at;
        loop {
            let in_page = PAGE - usize::try_from(at).unwrap_or(0) % PAGE;
            let from = into.len();
            into.resize(from + wanted.min(in_page), 0);
            let free = into.get_mut(from..).unwrap_or_default();
            let read = match self.read(at, free) {
                Ok(0) => Err(Errno::EFAULT),
                other => other,
            };
            let Ok(read) = read else {
                into.truncate(start);
                return read.map(|_bytes| ());
            };
            into.truncate(from + read);
            let new = into.get(from..).unwrap_or_default();
            if let Some(end) = memchr(new) {
                into.truncate(from + end);
                return Ok(());
            }
            if into.len() - start >= longest {
                into.truncate(start);
                return Err(Errno::ENAMETOOLONG);
            }
            at = at.wrapping_add(u64::try_from(read).unwrap_or(0));
            wanted = PAGE;
        }
    }

    /// Reads the path name at an address.
    ///
    /// # Errors
    /// As [`Self::read`]; `ENAMETOOLONG` when it has more than `PATH_MAX` bytes.
    pub(crate) fn name(self, at: u64) -> Result<Vec<u8>, Errno> {
        let mut name = Vec::new();
        self.string(at, PATH_MAX, &mut name)?;
        Ok(name)
    }

    /// Reads a 64-bit word.
    pub(crate) fn word(self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let read = self.read(at, &mut bytes).ok()?;
        (read == bytes.len()).then(|| u64::from_ne_bytes(bytes))
    }

    /// Reads a pointer of an ABI.
    pub(crate) fn pointer(self, at: u64, arch: Arch) -> Option<u64> {
        let mut bytes = [0; 8];
        let size = pointer_bytes(arch);
        let short = bytes.get_mut(..size)?;
        let read = self.read(at, short).ok()?;
        (read == size).then(|| u64::from_le_bytes(bytes))
    }

    /// Reads the strings of a null-terminated array of pointers: their number, and their bytes, each with its
    /// NUL. `None` when they cannot be read, or have more than `longest` bytes.
    pub(crate) fn strings(self, array: u64, arch: Arch, longest: usize) -> Option<(u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut count = 0;
        let step = u64::try_from(pointer_bytes(arch)).unwrap_or(8);
        loop {
            let slot = array.checked_add(u64::from(count).checked_mul(step)?)?;
            match self.pointer(slot, arch)? {
                0 => return Some((count, all)),
                at => self.string(at, MAX_ARG_STRLEN, &mut all).ok()?,
            }
            all.push(0);
            count += 1;
            if all.len() > longest {
                return None;
            }
        }
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == 0)
}

const fn pointer_bytes(arch: Arch) -> usize {
    if arch.is_64_bit() { 8 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Memory {
        Memory(nix::unistd::getpid())
    }

    fn address<T: ?Sized>(of: &T) -> u64 {
        u64::try_from(std::ptr::from_ref(of).cast::<u8>().addr()).unwrap()
    }

    #[test]
    fn name_ends_at_nul_and_may_cross_pages() {
        let long = [vec![b'x'; 4000], b"\0rest".to_vec()].concat();
        assert_eq!(
            own().name(address(long.as_slice())).unwrap(),
            vec![b'x'; 4000]
        );
        assert_eq!(own().name(address(b"ab\0c".as_slice())).unwrap(), b"ab");
        assert_eq!(own().name(address(b"\0".as_slice())).unwrap(), b"");
    }

    #[test]
    fn unreadable_or_too_long_name_is_an_error() {
        assert_eq!(own().name(0), Err(Errno::EFAULT));
        assert_eq!(own().name(u64::MAX), Err(Errno::EFAULT));
        let endless = vec![b'x'; 3 * PATH_MAX];
        assert_eq!(
            own().name(address(endless.as_slice())),
            Err(Errno::ENAMETOOLONG)
        );
    }

    #[test]
    fn string_array_is_read_whole_or_not_at_all() {
        let (one, two) = (b"one\0", b"two words\0");
        let array = [address(one), address(two), 0];
        let at = address(array.as_slice());
        assert_eq!(
            own().strings(at, Arch::X86_64, 100),
            Some((2, b"one\0two words\0".to_vec()))
        );
        assert_eq!(own().strings(at, Arch::X86_64, 5), None);
        assert_eq!(own().strings(0, Arch::X86_64, 100), None);
    }
}
