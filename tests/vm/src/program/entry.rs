//! The ways into the kernel, and the linked `program.c` for each.

use audit::ids::{Arch, NativeArch};

use super::{WORD_BYTES, size};

/// The way a program enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A 64-bit program that uses `syscall`.
    Syscall,
    /// A 64-bit program that uses `int $0x80`, and so the 32-bit syscall table.
    Int80,
    /// A 32-bit program.
    I386,
}

impl Entry {
    /// The table of its syscalls.
    pub(crate) const fn arch(self) -> Arch {
        match self {
            Self::Syscall => NativeArch::BUILD.b64(),
            Self::Int80 | Self::I386 => NativeArch::BUILD.b32(),
        }
    }

    /// The linked `program.c`, up to the end of its segment.
    pub(super) fn interpreter(self) -> Vec<u8> {
        let elf: &[u8] = match self {
            Self::Syscall => include_bytes!(concat!(env!("OUT_DIR"), "/program-syscall")),
            #[cfg(target_arch = "x86_64")]
            Self::Int80 => include_bytes!(concat!(env!("OUT_DIR"), "/program-int80")),
            // Other machines have one entry for 32-bit syscalls.
            #[cfg(not(target_arch = "x86_64"))]
            Self::Int80 => include_bytes!(concat!(env!("OUT_DIR"), "/program-narrow")),
            Self::I386 => include_bytes!(concat!(env!("OUT_DIR"), "/program-narrow")),
        };
        let (at, bytes) = self.segment_size_field();
        let mut word = [0; WORD_BYTES];
        for (to, from) in word.iter_mut().zip(elf.iter().skip(at).take(bytes)) {
            *to = *from;
        }
        let size = usize::try_from(u64::from_le_bytes(word)).unwrap_or(elf.len());
        elf.iter().copied().take(size).collect()
    }

    /// Extends the segment to the end of the file, and in memory by so many zero bytes.
    pub(super) fn set_segment_size(self, file: &mut [u8], zeros: u64) {
        let (at, bytes) = self.segment_size_field();
        let in_file = size(file.len());
        let sizes = [in_file, in_file + zeros];
        let words = sizes
            .into_iter()
            .flat_map(|size| size.to_le_bytes().into_iter().take(bytes));
        for (to, from) in file.iter_mut().skip(at).zip(words) {
            *to = from;
        }
    }

    /// Offset and width of `p_filesz`, which `p_memsz` follows, in the one program header.
    const fn segment_size_field(self) -> (usize, usize) {
        match self {
            Self::Syscall => (64 + 32, 8),
            Self::Int80 if cfg!(target_arch = "x86_64") => (64 + 32, 8),
            Self::Int80 | Self::I386 => (52 + 16, 4),
        }
    }
}
