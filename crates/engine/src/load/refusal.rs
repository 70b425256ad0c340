//! Why the kernel refuses programs, as far as this process can find out.

use std::fs;

use crate::engine_kind::EngineKind;
use crate::preemption::parse_release;

/// Bits of `CapEff` that loading programs needs, with their names. The daemon has dropped `CAP_SYS_ADMIN` before it
/// loads them: to name that would be wrong.
const CAPABILITIES: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
/// `uid_map` of the initial user namespace.
const INITIAL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// What decides whether this process may load programs.
#[derive(Debug, Default)]
struct Permissions {
    /// Effective capabilities; `None` if they cannot be read.
    capabilities: Option<u64>,
    is_initial_user_namespace: bool,
    /// The active lockdown mode, if there is one.
    lockdown: Option<String>,
}

/// What the verifier writes last when it has checked a program, whether it accepts it or not.
///
/// # Source
/// `print_verification_stats` in `kernel/bpf/verifier.c`, Linux 6.12.
const VERIFIED: &str = "processed ";

/// Oldest release whose BPF has all that the programs of an engine need: `bpf_loop()`, and for `fentry` cookies of
/// functions. Distributions take BPF over into older ones: only a refusal tells that a kernel lacks it.
const fn oldest(kind: EngineKind) -> (u32, u32) {
    match kind {
        EngineKind::Tracepoint => (5, 17),
        EngineKind::Fentry => (5, 19),
        EngineKind::Lsm => (7, 0),
    }
}

/// Describes why the kernel of a release refused programs of an engine. `is_denied`: the error is `EPERM` or `EACCES`.
/// The verifier refuses an access to memory with `EACCES` too, and writes to its log then.
pub(super) fn reason(kind: EngineKind, release: &str, is_denied: bool, libbpf_log: &str) -> String {
    if is_denied && libbpf_log.contains(VERIFIED) {
        "the verifier of this kernel does not accept them: report this with the output of `tollgate doctor --json`"
            .to_owned()
    } else if is_denied {
        Permissions::read().denial()
    } else if parse_release(release) < oldest(kind) {
        let (major, minor) = oldest(kind);
        format!("they need Linux {major}.{minor}; `tollgate run` audits a command without them")
    } else {
        format!("the kernel lacks {}", requirement(kind))
    }
}

impl Permissions {
    fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        Self {
            capabilities: status.lines().find_map(|line| {
                let hex = line.strip_prefix("CapEff:")?.trim();
                u64::from_str_radix(hex, 16).ok()
            }),
            is_initial_user_namespace: users.split_whitespace().eq(INITIAL_USERS),
            lockdown: active_lockdown(&lockdown).map(str::to_owned),
        }
    }

    fn denial(&self) -> String {
        let lacks = |bit: u32| self.capabilities.is_some_and(|held| held >> bit & 1 == 0);
        let missing: Vec<&str> = CAPABILITIES
            .iter()
            .filter(|(bit, _)| lacks(*bit))
            .map(|(_, name)| *name)
            .collect();
        if !missing.is_empty() {
            return format!("this process lacks {}", missing.join(", "));
        }
        if !self.is_initial_user_namespace {
            return "this process is in a user namespace, as in an unprivileged container"
                .to_owned();
        }
        match &self.lockdown {
            Some(mode) if mode == "confidentiality" => {
                "kernel lockdown is active (`cat /sys/kernel/security/lockdown`: confidentiality)".to_owned()
            }
            _ => "a security policy of this host or of its hypervisor forbids it, although capabilities and lockdown \
                  allow it"
                .to_owned(),
        }
    }
}

/// The mode in brackets, unless it is `none`.
fn active_lockdown(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    (mode != "none").then_some(mode)
}

/// Kernel feature that an engine requires.
const fn requirement(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Fentry => {
            "programs on kernel functions (fentry and fexit, v5.5; CONFIG_FUNCTION_TRACER)"
        }
        EngineKind::Lsm => "kprobes, LSM programs or task work for programs (v7.0)",
        EngineKind::Tracepoint => "programs on tracepoints and raw tracepoints",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Permissions {
        Permissions {
            capabilities: Some(u64::MAX),
            is_initial_user_namespace: true,
            lockdown: None,
        }
    }

    #[test]
    fn denial_names_what_is_missing() {
        let without = |bits: u64| Permissions {
            capabilities: Some(!bits),
            ..root()
        };
        assert_eq!(without(1 << 38).denial(), "this process lacks CAP_PERFMON");
        assert_eq!(
            without(1 << 39 | 1 << 38).denial(),
            "this process lacks CAP_BPF, CAP_PERFMON"
        );
        let daemon = without(1 << 21).denial();
        assert!(
            daemon.starts_with("a security policy of this host"),
            "{daemon}"
        );
        let contained = Permissions {
            is_initial_user_namespace: false,
            ..root()
        };
        assert!(contained.denial().contains("user namespace"));
        let locked = |mode: &str| Permissions {
            lockdown: Some(mode.to_owned()),
            ..root()
        };
        assert!(
            locked("confidentiality")
                .denial()
                .contains("lockdown is active")
        );
        // Integrity forbids no tracing programs.
        for permissions in [locked("integrity"), root()] {
            assert!(
                permissions
                    .denial()
                    .starts_with("a security policy of this host")
            );
        }
    }

    #[test]
    fn missing_features_are_not_blamed_on_privileges() {
        let text = reason(EngineKind::Fentry, "6.1.0-56-cloud-amd64", false, "");
        assert!(
            text.contains("CONFIG_FUNCTION_TRACER") && !text.contains("CAP_"),
            "{text}"
        );
    }

    #[test]
    fn old_kernels_are_told_by_their_release() {
        let on = |kind, release| reason(kind, release, false, "");
        let tracepoint = |release| on(EngineKind::Tracepoint, release);
        assert!(tracepoint("5.10.0-32-cloud-amd64").starts_with("they need Linux 5.17"));
        assert!(tracepoint("5.17.1").starts_with("the kernel lacks programs"));
        assert!(on(EngineKind::Fentry, "5.17.1").starts_with("they need Linux 5.19"));
    }

    #[test]
    fn verifier_is_not_taken_for_a_security_policy() {
        let log = "invalid access to memory; processed 120 insns (limit 1000000)";
        let text = reason(EngineKind::Tracepoint, "5.10.0", true, log);
        assert!(text.starts_with("the verifier"), "{text}");
    }

    #[test]
    fn lockdown_mode_is_the_one_in_brackets() {
        assert_eq!(active_lockdown("[none] integrity confidentiality\n"), None);
        assert_eq!(
            active_lockdown("none [integrity] confidentiality\n"),
            Some("integrity")
        );
        assert_eq!(active_lockdown(""), None);
    }
}
