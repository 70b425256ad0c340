//! Advice about errors of `tollgate run`: names the setting that prevents auditing.

use std::fs;

use nix::errno::Errno;
use trace::RunError;

/// Ptrace restriction of the security module Yama.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Returns advice about an error, if there is any.
pub(super) fn advice(error: &RunError) -> Option<String> {
    match error {
        RunError::Trace(Errno::EPERM | Errno::EACCES) | RunError::Read(Errno::EPERM) => {
            Some(trace_advice(ptrace_scope()))
        }
        RunError::Filter(Errno::EBUSY) => Some(
            "a supervisor already listens to the seccomp filter of this process, and only one can: \
             omit --no-result"
                .to_owned(),
        ),
        RunError::Filter(Errno::EINVAL | Errno::ENOSYS) => Some(
            "this kernel lacks CONFIG_SECCOMP_FILTER, or is older than 5.9".to_owned(),
        ),
        RunError::Filter(Errno::EPERM | Errno::EACCES) => Some(
            "the sandbox of this process forbids seccomp(2): allow it in the container's profile"
                .to_owned(),
        ),
        _ => None,
    }
}

fn ptrace_scope() -> Option<u32> {
    fs::read_to_string(YAMA).ok()?.trim().parse().ok()
}

fn trace_advice(scope: Option<u32>) -> String {
    match scope {
        Some(scope @ 2..) => format!(
            "kernel.yama.ptrace_scope is {scope}, which forbids tracing child processes; as root, \
             `sysctl kernel.yama.ptrace_scope=1` allows it"
        ),
        _ => "the sandbox of this process forbids ptrace(2) or process_vm_readv(2), or another program \
              traces it: allow them in the container's seccomp profile, or add CAP_SYS_PTRACE"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_setting() {
        for scope in [2, 3] {
            let text = trace_advice(Some(scope));
            assert!(text.contains(&format!("kernel.yama.ptrace_scope is {scope}")));
        }
        for scope in [None, Some(0), Some(1)] {
            assert!(trace_advice(scope).contains("seccomp profile"));
        }
        assert!(
            advice(&RunError::Filter(Errno::EBUSY))
                .unwrap()
                .contains("--no-result")
        );
        assert!(advice(&RunError::Wait(Errno::EIO)).is_none());
    }
}
