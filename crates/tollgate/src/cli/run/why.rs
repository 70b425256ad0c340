//! Why a command cannot be audited on this machine: the setting that forbids it, by name.

use std::fs;

use nix::errno::Errno;
use trace::RunError;

/// Setting of the security module Yama.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// What to do about an error, where more is known than its text says.
pub(super) fn advice(error: &RunError) -> Option<String> {
    match error {
        RunError::Trace(Errno::EPERM | Errno::EACCES) | RunError::Read(Errno::EPERM) => {
            Some(not_traceable(scope()))
        }
        RunError::Filter(Errno::EBUSY) => Some(
            "a supervisor outside already has a listener for these processes, and there can be one: \
             leave --no-result out"
                .to_owned(),
        ),
        RunError::Filter(Errno::EINVAL | Errno::ENOSYS) => Some(
            "this kernel lacks CONFIG_SECCOMP_FILTER, or is older than 5.9".to_owned(),
        ),
        RunError::Filter(Errno::EPERM | Errno::EACCES) => Some(
            "the sandbox that this runs in forbids seccomp(2): allow it in the container's profile"
                .to_owned(),
        ),
        _ => None,
    }
}

fn scope() -> Option<u32> {
    fs::read_to_string(YAMA).ok()?.trim().parse().ok()
}

fn not_traceable(scope: Option<u32>) -> String {
    match scope {
        Some(scope @ 2..) => format!(
            "kernel.yama.ptrace_scope is {scope}, which forbids to look at one's own children; \
             `sysctl kernel.yama.ptrace_scope=1`, by root, allows that and no more"
        ),
        _ => "the sandbox that this runs in forbids ptrace(2) or process_vm_readv(2): allow them in the \
              container's seccomp profile, or give it CAP_SYS_PTRACE; or something already traces \
              this process tree"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_named() {
        for scope in [2, 3] {
            let text = not_traceable(Some(scope));
            assert!(text.contains(&format!("kernel.yama.ptrace_scope is {scope}")));
        }
        for scope in [None, Some(0), Some(1)] {
            assert!(not_traceable(scope).contains("seccomp profile"));
        }
        assert!(
            advice(&RunError::Filter(Errno::EBUSY))
                .unwrap()
                .contains("--no-result")
        );
        assert!(advice(&RunError::Wait(Errno::EIO)).is_none());
    }
}
