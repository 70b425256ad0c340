//! Copies of a stub program, one per kernel function.
//!
//! A tracing program is bound to one function when it is loaded, and libbpf loads each program of an object
//! once. The relocated instructions of the stub are read back from libbpf and loaded again for each function.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use libbpf_rs::{AsRawLibbpf as _, ProgramMut, libbpf_sys};

use crate::hooks::kernel_functions::{Function, FunctionSide};
use crate::sys::descriptor::fd_from_libbpf;

/// A copy of a stub, attached to a function. Dropping it detaches it.
#[derive(Debug)]
pub(crate) struct AttachedCopy {
    /// The program. The kernel counts recursion misses in it.
    pub(crate) program: OwnedFd,
    pub(crate) link: OwnedFd,
}

/// Attaches a copy of `stub` to a function. The program reads `cookie` by `bpf_get_attach_cookie()`.
///
/// # Errors
/// As `BPF_PROG_LOAD` and `BPF_LINK_CREATE` of `bpf(2)`.
pub(crate) fn attach(
    stub: &ProgramMut<'_>,
    function: Function,
    side: FunctionSide,
    cookie: u64,
) -> io::Result<AttachedCopy> {
    let program = load_copy(stub, function, side)?;
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    options.__bindgen_anon_1.tracing.cookie = cookie;
    // SAFETY: the descriptor is open, and the options live until after the call, which does not write to them.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            0,
            side.attach_type(),
            &raw const options,
        )
    };
    Ok(AttachedCopy {
        program,
        link: fd_from_libbpf(link)?,
    })
}

fn load_copy(stub: &ProgramMut<'_>, function: Function, side: FunctionSide) -> io::Result<OwnedFd> {
    let stub_object = stub.as_libbpf_object().as_ptr();
    // SAFETY: `stub_object` is a program of a loaded object, which `stub` borrows. libbpf keeps the relocated
    // instructions until the object is closed.
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
    // SAFETY: `instructions` has `count` elements; it, the NUL-terminated strings and the options live until
    // after the call, which does not write to them.
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
    fd_from_libbpf(program)
}
