//! Raw syscalls through either ABI, with exactly the number and arguments of a test.
//!
//! All `unsafe` code of the tests is here. A C library turns `open` into `openat` and cannot make 32-bit calls.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use audit::ids::{Arch, Syscall};
use audit::table;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};

/// The number of a syscall.
#[track_caller]
pub(crate) fn number(arch: Arch, name: &str) -> u32 {
    let Some(Syscall(number)) = table::syscall_number(arch, name.as_bytes()) else {
        panic!("`{name}` is no call of {arch:?}");
    };
    number
}

/// Makes a syscall; returns its result or the negative error number. The 32-bit entry takes five arguments.
///
/// Memory that the arguments point to must stay valid: callers pass numbers, descriptors and addresses in an
/// [`Arena`].
pub(crate) fn call(arch: Arch, number: u32, args: [u64; 6]) -> i64 {
    match arch {
        Arch::I386 => call_32(number, args),
        _ => call_64(number, args),
    }
}

fn call_64(number: u32, args: [u64; 6]) -> i64 {
    // SAFETY: the addresses among the arguments point into an arena, which is never freed.
    let result = unsafe {
        libc::syscall(
            i64::from(number),
            args[0],
            args[1],
            args[2],
            args[3],
            args[4],
            args[5],
        )
    };
    if result == -1 {
        -i64::from(nix::errno::Errno::last_raw())
    } else {
        result
    }
}

#[cfg(target_arch = "x86_64")]
fn call_32(number: u32, args: [u64; 6]) -> i64 {
    let result: u64;
    // SAFETY: as for `call_64`; the entry preserves all registers except rax and r8 to r11, and the code restores
    // rbx, which the compiler reserves.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {first}",
            "int 0x80",
            "xchg rbx, {first}",
            first = inout(reg) args[0] => _,
            inlateout("rax") u64::from(number) => result,
            in("rcx") args[1],
            in("rdx") args[2],
            in("rsi") args[3],
            in("rdi") args[4],
            lateout("r8") _,
            lateout("r9") _,
            lateout("r10") _,
            lateout("r11") _,
        );
    }
    i64::from(u32::try_from(result & 0xffff_ffff).unwrap().cast_signed())
}

#[cfg(not(target_arch = "x86_64"))]
fn call_32(_: u32, _: [u64; 6]) -> i64 {
    -i64::from(libc::ENOSYS)
}

/// Memory below 4 GiB, which 32-bit calls can address; never freed.
pub(crate) struct Arena {
    left: &'static mut [u8],
}

impl Arena {
    /// Maps so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let len = NonZeroUsize::new(bytes).unwrap();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_32BIT;
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no other memory.
        let start = unsafe { mmap_anonymous(None, len, protection, flags) }.unwrap();
        // SAFETY: the mapping is private, has `bytes` zeroed bytes, and is never unmapped.
        let left = unsafe { std::slice::from_raw_parts_mut(start.cast().as_ptr(), bytes) };
        Self { left }
    }

    /// Copies bytes; returns their address, a multiple of eight.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> u64 {
        let left = std::mem::take(&mut self.left);
        let (kept, left) = left.split_at_mut(bytes.len().next_multiple_of(8));
        self.left = left;
        kept[..bytes.len()].copy_from_slice(bytes);
        u64::try_from(kept.as_mut_ptr().expose_provenance()).unwrap()
    }

    /// Copies a string and its NUL.
    pub(crate) fn keep_text(&mut self, text: &[u8]) -> u64 {
        self.keep(&[text, b"\0"].concat())
    }
}

const BPF_OBJ_GET: u64 = 7;
const BPF_PROG_GET_NEXT_ID: u64 = 11;
const BPF_TASK_FD_QUERY: u64 = 20;

/// Whether a BPF program with this ID is loaded.
pub(crate) fn has_program(id: u32) -> bool {
    let mut arena = Arena::new(4096);
    let mut attr = [0; 48];
    attr[..4].copy_from_slice(&(id - 1).to_ne_bytes());
    let answer = bpf(&mut arena, BPF_PROG_GET_NEXT_ID, &attr);
    answer.is_some_and(|answer| answer[4..8] == id.to_ne_bytes())
}

/// Writes a word into a pinned, mappable array map; returns the previous word.
#[track_caller]
pub(crate) fn poke(pin: &Path, offset: usize, word: u32) -> u32 {
    let mut arena = Arena::new(8192);
    let path = arena.keep_text(pin.as_os_str().as_bytes());
    let attr = arena.keep(&[path.to_ne_bytes(), [0; 8], [0; 8]].concat());
    let map = call_64(
        number(Arch::X86_64, "bpf"),
        [BPF_OBJ_GET, attr, 24, 0, 0, 0],
    );
    // SAFETY: the kernel has just returned this descriptor; nothing else owns it.
    let map = unsafe { OwnedFd::from_raw_fd(i32::try_from(map).unwrap()) };
    let page = NonZeroUsize::new(4096).unwrap();
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel overlaps no other memory.
    let start = unsafe { mmap(None, page, protection, MapFlags::MAP_SHARED, &map, 0) }.unwrap();
    // SAFETY: tests pass an offset within the page that is a multiple of four.
    let at = unsafe { start.cast::<u8>().add(offset) }.cast::<u32>();
    // SAFETY: as above.
    let before = unsafe { at.read_volatile() };
    // SAFETY: as above.
    unsafe { at.write_volatile(word) };
    before
}

/// Sorted names of the tracepoints to which a process has attached programs.
pub(crate) fn attached(pid: u32) -> Vec<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let fd: RawFd = entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .parse()
            .unwrap();
        names.extend(tracepoint(pid, fd));
    }
    names.into_iter().collect()
}

/// The tracepoint of a descriptor that attaches a program.
fn tracepoint(pid: u32, fd: RawFd) -> Option<String> {
    let mut arena = Arena::new(4096);
    let name = arena.keep(&[0; 256]);
    let mut attr = Vec::new();
    for word in [pid, fd.cast_unsigned(), 0, 255] {
        attr.extend_from_slice(&word.to_ne_bytes());
    }
    attr.extend_from_slice(&name.to_ne_bytes());
    attr.resize(48, 0);
    bpf(&mut arena, BPF_TASK_FD_QUERY, &attr)?;
    let name = bytes_at(name, 256);
    let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Calls bpf(2); returns the attributes as written by the kernel if the call succeeds.
fn bpf(arena: &mut Arena, command: u64, attr: &[u8]) -> Option<Vec<u8>> {
    let at = arena.keep(attr);
    let len = u64::try_from(attr.len()).unwrap();
    let result = call_64(number(Arch::X86_64, "bpf"), [command, at, len, 0, 0, 0]);
    (result == 0).then(|| bytes_at(at, attr.len()))
}

/// Bytes in an arena.
fn bytes_at(address: u64, len: usize) -> Vec<u8> {
    let at = std::ptr::with_exposed_provenance::<u8>(usize::try_from(address).unwrap());
    // SAFETY: `Arena::keep` returned this address for so many bytes, which are never freed, and no running
    // syscall writes them.
    unsafe { std::slice::from_raw_parts(at, len) }.to_vec()
}
