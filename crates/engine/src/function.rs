//! Programs on the kernel's own functions: one small copy of a stub for each function.
//!
//! A program on a function is bound to it when it is loaded, so libbpf, which loads each program of an
//! object once, cannot put one on many functions. The stub that it has loaded, with maps and kernel
//! types resolved, is taken back as instructions and loaded again for each function.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::ReferencesType as _;
use libbpf_rs::btf::types::{Func, FuncProto};
use libbpf_rs::{AsRawLibbpf as _, MapCore as _, MapFlags, MapMut, ProgramMut, libbpf_sys};

/// A function of the kernel that does the work of a syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    id: u32,
    /// Its type, and with it the stub that fits.
    pub(crate) kind: Kind,
}

/// The two types that functions of syscalls have; see `bpf/syscall.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As `__x64_sys_close`.
    Call,
    /// As `__do_sys_getpid`.
    Bare,
}

/// The kernel's functions for syscalls.
pub(crate) struct Functions {
    kernel: Btf<'static>,
    call: u32,
    bare: u32,
}

impl Functions {
    /// Reads the kernel's types; `None` when it has not the functions that the stubs are made for.
    ///
    /// # Errors
    /// When the kernel has no type information.
    pub(crate) fn read() -> libbpf_rs::Result<Option<Self>> {
        let kernel = Btf::from_vmlinux()?;
        let types = (
            proto(&kernel, "__x64_sys_close"),
            proto(&kernel, "__do_sys_getpid"),
        );
        Ok(match types {
            (Some((_, call)), Some((_, bare))) => Some(Self { kernel, call, bare }),
            _ => None,
        })
    }

    /// Looks a function up by name; `None` when this kernel has none, or one of that name that does not
    /// take the registers: the inner part of a call, which the compiler may have taken apart.
    pub(crate) fn find(&self, name: &str) -> Option<Function> {
        let (id, proto) = proto(&self.kernel, name)?;
        let kind = match proto {
            proto if proto == self.call => Kind::Call,
            proto if proto == self.bare => Kind::Bare,
            _ => return None,
        };
        Some(Function { id, kind })
    }
}

/// Numbers of a function and of its type.
fn proto(kernel: &Btf<'_>, name: &str) -> Option<(u32, u32)> {
    let function: Func<'_> = kernel.type_by_name(name)?;
    let proto: FuncProto<'_> = function.referenced_type().try_into().ok()?;
    Some((u32::from(function.type_id()), u32::from(proto.type_id())))
}

/// Which end of a function a program runs at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before its first instruction.
    Enter,
    /// After it has returned.
    Exit,
}

impl Side {
    const fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Enter => libbpf_sys::BPF_TRACE_FENTRY,
            Self::Exit => libbpf_sys::BPF_TRACE_FEXIT,
        }
    }
}

/// A copy of a stub on its function. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The copy: the kernel counts on it what it skips.
    pub(crate) program: OwnedFd,
    _link: OwnedFd,
}

/// Puts a copy of `stub` on a function.
pub(crate) fn attach(stub: &ProgramMut<'_>, function: Function, side: Side) -> io::Result<Placed> {
    let program = load_copy(stub, function, side)?;
    // SAFETY: only numbers are passed; a null pointer means no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, side.attach_type(), std::ptr::null())
    };
    Ok(Placed {
        program,
        _link: owned(link)?,
    })
}

fn load_copy(stub: &ProgramMut<'_>, function: Function, side: Side) -> io::Result<OwnedFd> {
    let stub_object = stub.as_libbpf_object().as_ptr();
    // SAFETY: the program belongs to a loaded object that outlives this call.
    let instructions = unsafe { libbpf_sys::bpf_program__insns(stub_object) };
    // SAFETY: as above.
    let count = unsafe { libbpf_sys::bpf_program__insn_cnt(stub_object) };
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: side.attach_type(),
        attach_btf_id: function.id,
        ..Default::default()
    };
    let name = CString::new(stub.name().as_encoded_bytes()).map_err(io::Error::other)?;
    let license: &CStr = c"GPL";
    // SAFETY: the instructions are `count` long and, like the strings and options, outlive the call.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            name.as_ptr(),
            license.as_ptr(),
            instructions,
            count,
            (&raw const options).cast_mut(),
        )
    };
    owned(program)
}

/// Makes `body` what the stubs jump to.
pub(crate) fn set_body(jump: &MapMut<'_>, body: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    let fd = body.as_fd().as_raw_fd();
    jump.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
