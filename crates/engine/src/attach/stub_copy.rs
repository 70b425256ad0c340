//! Copies of a stub, one for each kernel function.
//!
//! A program on a function is bound to it when it is loaded, so libbpf, which loads each program of an
//! object once, cannot put one on many functions. The stub that it has loaded, with maps and kernel
//! types resolved, is taken back as instructions and loaded again for each function.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use libbpf_rs::{AsRawLibbpf as _, ProgramMut, libbpf_sys};

use crate::hooks::kernel_functions::{Function, FunctionSide};
use crate::sys::descriptor::fd_from_libbpf;

/// A copy of a stub on its function. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct AttachedCopy {
    /// The copy: the kernel counts on it what it skips.
    pub(crate) program: OwnedFd,
    pub(crate) link: OwnedFd,
}

/// Puts a copy of `stub` on a function.
pub(crate) fn attach(
    stub: &ProgramMut<'_>,
    function: Function,
    side: FunctionSide,
) -> io::Result<AttachedCopy> {
    let program = load_copy(stub, function, side)?;
    // SAFETY: only numbers are passed; a null pointer means no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, side.attach_type(), std::ptr::null())
    };
    Ok(AttachedCopy {
        program,
        link: fd_from_libbpf(link)?,
    })
}

fn load_copy(stub: &ProgramMut<'_>, function: Function, side: FunctionSide) -> io::Result<OwnedFd> {
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
    fd_from_libbpf(program)
}
