//! What this kernel offers, asked of its type information and not of its version.

use std::collections::HashSet;
use std::fs;

use libbpf_rs::btf::types::{Func, FuncProto, Ptr, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType as _};

use audit::plan::hook::Kernel;
use audit::plan::inner::Inner;

/// Looks at the kernel's BTF.
///
/// # Errors
/// When the kernel has none (`CONFIG_DEBUG_INFO_BTF`).
pub fn kernel() -> libbpf_rs::Result<Kernel> {
    let btf = Btf::from_vmlinux()?;
    let wanted: HashSet<&str> = Inner::ALL.iter().map(|inner| inner.function()).collect();
    let found: HashSet<&str> = btf
        .type_by_kind::<Func<'_>>()
        .filter_map(|function| wanted.get(function.name()?.to_str()?).copied())
        .collect();
    let has = |inner: &Inner| found.contains(inner.function());
    Ok(Kernel {
        exec_prepare: arguments(&btf, "btf_trace_sched_prepare_exec").is_some(),
        // The tracepoint got its second argument when it moved before exit_mm(), in v6.16.
        early_task_exit: arguments(&btf, "btf_trace_sched_process_exit") == Some(2),
        inner: Inner::ALL.iter().copied().filter(has).collect(),
        uring: true,
    })
}

/// Whether AppArmor gives labels to tasks.
#[must_use]
pub(crate) fn apparmor() -> bool {
    fs::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with(b"Y"))
}

/// How many arguments a tracepoint has; `None` when there is no such tracepoint.
fn arguments(btf: &Btf<'_>, typedef: &str) -> Option<usize> {
    let typedef: Typedef<'_> = btf.type_by_name(typedef)?;
    let pointer: Ptr<'_> = typedef.referenced_type().try_into().ok()?;
    let proto: FuncProto<'_> = pointer.referenced_type().try_into().ok()?;
    proto.len().checked_sub(1) // the first is the attachment's own data
}
