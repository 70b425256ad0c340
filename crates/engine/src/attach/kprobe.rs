//! Kprobes: programs at the entry of a function by its name, opened as perf events.

use std::cell::OnceCell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::{Btf, TypeId};
use libbpf_rs::{ProgramMut, libbpf_sys};

use super::{AttachedLink, attach_perf_event, open_perf_event};
use crate::error::EngineError;
use crate::hooks::kernel_functions::Function;
use crate::sys::descriptor::fd_from_libbpf;
use crate::sys::kprobes::Kprobes;

/// Attaches a program at the entry of a function. The program reads `cookie` by `bpf_get_attach_cookie()`.
///
/// # Errors
/// [`EngineError::PerfEvent`], [`EngineError::Attach`].
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    kprobes: Kprobes,
    function: &str,
    cookie: u64,
) -> Result<AttachedLink, EngineError> {
    let hook = || format!("kprobe:{function}");
    let event = open(kprobes, function).map_err(|source| EngineError::PerfEvent {
        hook: hook(),
        source,
    })?;
    attach_perf_event(program, event, cookie).map_err(|source| EngineError::Attach {
        program: program.name().to_string_lossy().into_owned(),
        hook: hook(),
        source: source.into(),
    })
}

/// Attaches a program to a function without a perf event, at both ends if it was loaded for a session. The program reads
/// `cookie` by `bpf_get_attach_cookie()`.
///
/// # Errors
/// As `BPF_LINK_CREATE` of `bpf(2)`.
pub(crate) fn attach_multi(
    program: &ProgramMut<'_>,
    function: &str,
    cookie: u64,
) -> io::Result<AttachedLink> {
    let name = CString::new(function).map_err(io::Error::other)?;
    let mut names = [name.as_ptr()];
    let mut cookies = [cookie];
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    options.__bindgen_anon_1.kprobe_multi.cnt = 1;
    options.__bindgen_anon_1.kprobe_multi.syms = names.as_mut_ptr();
    options.__bindgen_anon_1.kprobe_multi.cookies = cookies.as_mut_ptr();
    let no_target = 0;
    // SAFETY: the descriptor is open; the options, the name and the cookie live until after the call, which does not
    // write to them.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            no_target,
            program.attach_type() as u32,
            &raw const options,
        )
    };
    Ok(AttachedLink {
        link: fd_from_libbpf(link)?,
        event: None,
        copy: None,
    })
}

fn open(kprobes: Kprobes, function: &str) -> io::Result<OwnedFd> {
    let kind = kprobes.event_type().ok_or(io::ErrorKind::Unsupported)?;
    let name = CString::new(function).map_err(io::Error::other)?;
    let mut attr = libbpf_sys::perf_event_attr {
        type_: kind,
        ..Default::default()
    };
    // The kernel copies the name before the system call returns.
    let address = u64::try_from(name.as_ptr().addr()).map_err(io::Error::other)?;
    attr.__bindgen_anon_3.kprobe_func = address;
    open_perf_event(attr)
}

/// Names of functions of the kernel. Its types, some megabytes, are read with the first one.
#[derive(Debug, Default)]
pub(crate) struct FunctionNames {
    kernel: OnceCell<Option<Btf<'static>>>,
}

impl FunctionNames {
    /// # Errors
    /// [`EngineError::NoSyscallFunctions`] if the kernel does not tell it.
    pub(super) fn find(&self, function: Function) -> Result<String, EngineError> {
        let kernel = self.kernel.get_or_init(|| Btf::from_vmlinux().ok());
        let found = kernel
            .as_ref()
            .and_then(|kernel| kernel.type_by_id::<Func<'_>>(TypeId::from(function.id)));
        let name = found.as_ref().and_then(|found| found.name());
        let name = name.ok_or(EngineError::NoSyscallFunctions)?;
        Ok(name.to_string_lossy().into_owned())
    }
}
