//! Whether the kernel's own audit slows down syscalls that tollgate does not audit.

use std::io;

use crate::protocol::{
    AUDIT_FILTER_TASK, AUDIT_GET, AUDIT_LIST_RULES, AUDIT_NEVER, open_socket, read_u32, request,
};

/// Offsets in `struct audit_rule_data`: `field_count`, and `fields`, which follows a mask of 64 words.
const FIELD_COUNT: usize = 8;
const FIELDS: usize = 12 + 64 * 4;
const AUDIT_FILTERKEY: u32 = 210;

/// State of the kernel's own audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditSummary {
    /// Audit is enabled: tasks started since then have an audit context.
    pub enabled: bool,
    /// Number of loaded rules, without `-a never,task`.
    pub rules: usize,
    /// The rule `-a never,task` without conditions is loaded: new tasks get no audit context.
    pub never_task: bool,
    /// The registered audit daemon, 0 for none.
    pub pid: u32,
}

impl AuditSummary {
    /// Reads the state from the kernel.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL` or outside the initial PID namespace; `ECONNREFUSED` outside the
    /// initial user namespace; `EPROTONOSUPPORT` when the kernel has no audit.
    pub fn query() -> io::Result<Self> {
        let socket = open_socket()?;
        let mut summary = Self::default();
        request(&socket, AUDIT_GET, &[], |kind, body| {
            if kind == AUDIT_GET {
                summary.enabled = read_u32(body, 4).is_some_and(|enabled| enabled != 0);
                summary.pid = read_u32(body, 12).unwrap_or_default();
            }
        })?;
        request(&socket, AUDIT_LIST_RULES, &[], |kind, body| {
            if kind == AUDIT_LIST_RULES {
                if is_never_task(body) {
                    summary.never_task = true;
                } else {
                    summary.rules += 1;
                }
            }
        })?;
        Ok(summary)
    }

    /// Whether tasks enter audit at every syscall.
    #[must_use]
    pub const fn slows_syscalls(&self) -> bool {
        self.rules != 0 || (self.enabled && !self.never_task)
    }
}

/// Whether a rule is `-a never,task` for all tasks. A key is not a condition.
fn is_never_task(rule: &[u8]) -> bool {
    let fields = read_u32(rule, FIELD_COUNT).and_then(|count| usize::try_from(count).ok());
    read_u32(rule, 0) == Some(AUDIT_FILTER_TASK)
        && read_u32(rule, 4) == Some(AUDIT_NEVER)
        && fields.is_some_and(|count| {
            (0..count).all(|index| read_u32(rule, FIELDS + 4 * index) == Some(AUDIT_FILTERKEY))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::to_bytes;

    #[test]
    fn only_never_task_makes_enabled_audit_free() {
        let summary = |enabled, rules, never_task| AuditSummary {
            enabled,
            rules,
            never_task,
            pid: 0,
        };
        assert!(!summary(false, 0, false).slows_syscalls());
        assert!(!summary(true, 0, true).slows_syscalls());
        assert!(summary(true, 0, false).slows_syscalls());
        assert!(summary(true, 1, true).slows_syscalls());
    }

    #[test]
    fn never_task_with_a_condition_does_not_count() {
        const AUDIT_UID: u32 = 1;
        let rule = |list: u32, fields: &[u32]| {
            let mut words = vec![list, AUDIT_NEVER, u32::try_from(fields.len()).unwrap()];
            words.extend([0; 64]);
            words.extend(fields);
            words.resize(3 + 4 * 64 + 1, 0);
            to_bytes(&words)
        };
        assert!(is_never_task(&rule(AUDIT_FILTER_TASK, &[])));
        assert!(is_never_task(&rule(AUDIT_FILTER_TASK, &[AUDIT_FILTERKEY])));
        assert!(!is_never_task(&rule(AUDIT_FILTER_TASK, &[AUDIT_UID])));
        let both = [AUDIT_FILTERKEY, AUDIT_UID];
        assert!(!is_never_task(&rule(AUDIT_FILTER_TASK, &both)));
        assert!(!is_never_task(&rule(AUDIT_FILTER_TASK + 3, &[])));
        assert!(!is_never_task(&[]));
    }
}
