//! State of the kernel's own audit, as far as it decides whether unaudited syscalls pay for it.

use std::io;

use crate::protocol::{
    AUDIT_FILTER_TASK, AUDIT_GET, AUDIT_LIST_RULES, AUDIT_NEVER, open, request, word,
};

/// Offsets in `struct audit_rule_data`: `field_count`, and `fields` behind the mask of 64 words.
const FIELD_COUNT: usize = 8;
const FIELDS: usize = 12 + 64 * 4;
const AUDIT_FILTERKEY: u32 = 210;

/// State of the kernel's own audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditSummary {
    /// Whether it is enabled: every task started since then carries an audit context.
    pub enabled: bool,
    /// Rules loaded, `-a never,task` left out.
    pub rules: usize,
    /// Whether `-a never,task`, without conditions, keeps all new tasks free of it.
    pub never_task: bool,
    /// Process that reads its records as `auditd` does, 0 for none.
    pub reader: u32,
}

impl AuditSummary {
    /// Asks the kernel.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`, `EPROTONOSUPPORT` or `ECONNREFUSED` when the kernel has no
    /// audit or this is not its first user namespace.
    pub fn ask() -> io::Result<Self> {
        let socket = open()?;
        let mut state = Self::default();
        request(&socket, AUDIT_GET, |kind, body| {
            if kind == AUDIT_GET {
                state.enabled = word(body, 4).is_some_and(|enabled| enabled != 0);
                state.reader = word(body, 12).unwrap_or_default();
            }
        })?;
        request(&socket, AUDIT_LIST_RULES, |kind, body| {
            if kind == AUDIT_LIST_RULES {
                if is_never_task(body) {
                    state.never_task = true;
                } else {
                    state.rules += 1;
                }
            }
        })?;
        Ok(state)
    }

    /// Whether syscalls that nobody asked about pay for it.
    #[must_use]
    pub const fn slows_syscalls(&self) -> bool {
        self.rules != 0 || (self.enabled && !self.never_task)
    }
}

/// Whether a rule is `-a never,task` for all tasks: a key is no condition.
fn is_never_task(rule: &[u8]) -> bool {
    let fields = word(rule, FIELD_COUNT).and_then(|count| usize::try_from(count).ok());
    word(rule, 0) == Some(AUDIT_FILTER_TASK)
        && word(rule, 4) == Some(AUDIT_NEVER)
        && fields.is_some_and(|count| {
            (0..count).all(|at| word(rule, FIELDS + 4 * at) == Some(AUDIT_FILTERKEY))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_never_task_keeps_unasked_calls_free() {
        let audit = |enabled, rules, never_task| AuditSummary {
            enabled,
            rules,
            never_task,
            reader: 0,
        };
        assert!(!audit(false, 0, false).slows_syscalls());
        assert!(!audit(true, 0, true).slows_syscalls());
        assert!(audit(true, 0, false).slows_syscalls());
        assert!(audit(true, 1, true).slows_syscalls());
    }

    #[test]
    fn a_condition_leaves_tasks_that_are_not_free() {
        const AUDIT_UID: u32 = 1;
        let rule = |list: u32, fields: &[u32]| {
            let mut words = vec![list, AUDIT_NEVER, u32::try_from(fields.len()).unwrap()];
            words.extend([0; 64]);
            words.extend(fields);
            words.resize(3 + 4 * 64 + 1, 0);
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<u8>>()
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
