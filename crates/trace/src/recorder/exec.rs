//! Execs: the arguments and interpreters of the new program, and warnings about set-uid bits.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;

use audit::event::Inode;
use audit::ids::Arch;
use audit::plan::SyscallPlan;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, stat};
use nix::unistd::{Pid, getegid, geteuid};

use super::object::{self, NamedObject, PathLookup, inode};
use super::{Observer, Recorder, SyscallEntry, TracedSyscall, coarse_time};
use crate::backend::ResultCapture;
use crate::task::Thread;
use crate::task::memory::Memory;

impl<O: Observer> Recorder<'_, O> {
    /// Warns once that the kernel ignored the set-uid or set-gid bit of a program, because of
    /// `PR_SET_NO_NEW_PRIVS`.
    fn warn_setuid(&mut self, program: Option<Inode>) {
        const S_ISUID: u32 = 0o4000;
        const S_ISGID_AND_GROUP_EXECUTE: u32 = 0o2010;
        let has_effect = program.is_some_and(|Inode { mode, uid, gid, .. }| {
            (mode & S_ISUID != 0 && uid != geteuid().as_raw())
                || (mode & S_ISGID_AND_GROUP_EXECUTE == S_ISGID_AND_GROUP_EXECUTE
                    && gid != getegid().as_raw())
        });
        if has_effect && !std::mem::replace(&mut self.warned_setuid, true) {
            self.warn(
                "set-uid and set-gid bits are ignored: an unprivileged seccomp filter requires \
                 no-new-privs",
            );
        }
    }

    /// Handles a completed exec: the process runs another program.
    pub(crate) fn exec_completed(&mut self, pid: Pid) {
        self.tasks.drop_image(pid);
        let program = stat(format!("/proc/{pid}/exe").as_str());
        self.warn_setuid(program.ok().map(inode));
    }

    /// Handles an exec about to be made, whether or not a rule names it.
    pub(crate) fn exec_attempted(&mut self, stop: SyscallEntry) {
        let SyscallEntry { tid, call, args } = stop;
        let traits = TracedSyscall::of(call, &SyscallPlan::default(), ResultCapture::IfTested);
        let named = object::named_objects(traits.objects, traits.name, &args, Memory(tid));
        let mut program = None;
        if let (Ok(mut named), Ok(thread)) =
            (named, self.tasks.thread(tid, coarse_time(), self.execs))
            && let Some(object) = named.first_mut()
        {
            object.look_up_before(thread, PathLookup::Unneeded, false);
            program = object.inode;
        }
        self.tasks.exec_attempted(tid, coarse_time());
        self.warn_setuid(program);
    }
}

/// A file that the kernel opened to execute another one.
#[derive(Clone, Debug)]
pub(crate) struct Interpreter {
    pub(crate) name: Vec<u8>,
    pub(crate) path: Vec<u8>,
    pub(crate) inode: Option<Inode>,
}

/// Arguments of a program: their number, and their bytes, each with its NUL.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExecArgs {
    pub(crate) count: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Maximum size of the arguments that are read before an exec whose result is not awaited.
const MAX_ARGV_BYTES: usize = 4 << 20;

/// The arguments of a program that has just started, from its stack, which only the kernel has written.
pub(crate) fn args_from_process(thread: &Thread, stack: u64, arch: Arch) -> Option<ExecArgs> {
    let bytes = thread.arguments()?;
    let count = Memory(thread.tid).pointer(stack, arch)?;
    let [a, b, c, d, ..] = count.to_le_bytes();
    Some(ExecArgs {
        count: u32::from_le_bytes([a, b, c, d]),
        bytes,
    })
}

/// The arguments of an exec that is about to start, from the memory of the caller.
pub(crate) fn args_from_caller(memory: Memory, array: u64, arch: Arch) -> Option<ExecArgs> {
    let (count, bytes) = memory.strings(array, arch, MAX_ARGV_BYTES)?;
    Some(ExecArgs { count, bytes })
}

/// Files that the kernel opened after the named file: the interpreter of a script, and the ELF interpreter of a
/// dynamically linked program.
pub(crate) fn interpreters(
    thread: &Thread,
    named: &NamedObject,
    arguments: &ExecArgs,
) -> Vec<Interpreter> {
    let mut found = Vec::new();
    let running = thread.stat(b"exe", AtFlags::empty()).ok().map(inode);
    let same = |a: Option<Inode>, b: Option<Inode>| match (a, b) {
        (Some(a), Some(b)) => (a.ino, a.dev) == (b.ino, b.dev),
        _ => true,
    };
    if !same(running, named.inode) {
        // The first argument is the interpreter as written in the script.
        let name = arguments.bytes.split(|&byte| byte == 0).next();
        found.push(Interpreter {
            name: name.unwrap_or_default().to_vec(),
            path: thread.link("exe").unwrap_or_default(),
            inode: running,
        });
    }
    if let Some(name) = elf_interpreter(thread) {
        let place = [b"root".as_slice(), &name].concat();
        found.push(Interpreter {
            inode: thread.stat(&place, AtFlags::empty()).ok().map(inode),
            path: name.clone(),
            name,
        });
    }
    found
}

/// The ELF interpreter (`PT_INTERP`) of a running program.
///
/// # Source
/// `elf(5)`.
fn elf_interpreter(thread: &Thread) -> Option<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = openat(&thread.dir, OsStr::from_bytes(b"exe"), flags, Mode::empty()).ok()?;
    elf_interpreter_of(&File::from(file))
}

fn elf_interpreter_of(file: &File) -> Option<Vec<u8>> {
    const PT_INTERP: u64 = 3;
    const MAX_PROGRAM_HEADERS: u64 = 64;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    let wide = match head.get(..5)? {
        [0x7f, b'E', b'L', b'F', 2] => true,
        [0x7f, b'E', b'L', b'F', 1] => false,
        _ => return None,
    };
    let (table, size, count) = if wide {
        (
            read_le(&head, 32, 8)?,
            read_le(&head, 54, 2)?,
            read_le(&head, 56, 2)?,
        )
    } else {
        (
            read_le(&head, 28, 4)?,
            read_le(&head, 42, 2)?,
            read_le(&head, 44, 2)?,
        )
    };
    for header in 0..count.min(MAX_PROGRAM_HEADERS) {
        let mut bytes = [0; 56];
        let short = bytes.get_mut(..if wide { 56 } else { 32 })?;
        file.read_exact_at(short, table.checked_add(header * size)?)
            .ok()?;
        if read_le(&bytes, 0, 4)? != PT_INTERP {
            continue;
        }
        let (at, len) = if wide {
            (read_le(&bytes, 8, 8)?, read_le(&bytes, 32, 8)?)
        } else {
            (read_le(&bytes, 4, 4)?, read_le(&bytes, 16, 4)?)
        };
        let len = usize::try_from(len).ok().filter(|&len| len <= 4096)?;
        let mut name = vec![0; len];
        file.read_exact_at(&mut name, at).ok()?;
        let end = name.iter().position(|&byte| byte == 0)?;
        name.truncate(end);
        return Some(name);
    }
    None
}

/// A little-endian number of `len` bytes.
fn read_le(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(len)?)?;
    let fold = |read_le: u64, &byte: &u8| (read_le << 8) | u64::from(byte);
    Some(field.iter().rev().fold(0, fold))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dynamic_program_has_elf_interpreter() {
        let name = elf_interpreter_of(&File::open("/bin/true").unwrap()).unwrap();
        assert!(name.starts_with(b"/") && !name.contains(&0));
    }

    proptest! {
        #[test]
        fn any_file_parses_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut file = tempfile::tempfile().unwrap();
            let mut text = b"\x7fELF\x02".to_vec();
            text.extend(bytes);
            file.write_all(&text).unwrap();
            let _name = elf_interpreter_of(&file);
        }
    }
}
