//! Denial: rules whose syscalls fail when they cannot be recorded.
//!
//! The keys of a rule select it for denial. Its conditions are evaluated while the syscall can still fail, as if
//! the syscall succeeded, so they must not depend on the result.

use bstr::{BStr, BString};

use crate::rule::{Action, Field, List, field};

use super::{Operand, Plan, RuleId, SyscallId, SyscallPlan, Test, UnsupportedRule};

impl Plan {
    /// Marks rules that have one of `keys`: their syscalls fail when they cannot be recorded. Rules for which
    /// that is not possible become [`Plan::unsupported`]; `is_deniable` tells whether a syscall can fail.
    pub fn deny(&mut self, keys: &[BString], is_deniable: impl Fn(SyscallId) -> bool) {
        for at in 0..self.rules.len() {
            let Some(planned) = self.rules.get_mut(at) else {
                break;
            };
            let Some(key) = planned.denied_by(keys) else {
                continue;
            };
            planned.denies = true;
            let (source, line) = (planned.source, planned.line);
            if let Err(reason) = self.check_denial(at, &is_deniable) {
                let key = BStr::new(&key);
                self.unsupported.push(UnsupportedRule {
                    source,
                    line,
                    loses_records: true,
                    reason: format!(
                        "its syscalls cannot be denied, as `[on_loss] deny` requires for key `{key}`: {reason}"
                    ),
                });
            }
        }
    }

    /// Whether some rule of a syscall or an operation denies it.
    #[must_use]
    pub fn denies(&self, rules: &SyscallPlan) -> bool {
        rules.slots.iter().any(|slot| self.is_denied(slot.rule))
    }

    /// How many rules deny.
    #[must_use]
    pub fn denying(&self) -> usize {
        self.rules.iter().filter(|planned| planned.denies).count()
    }

    /// Whether a rule denies.
    #[must_use]
    pub fn is_denied(&self, RuleId(rule): RuleId) -> bool {
        let planned = self.rules.get(usize::from(rule));
        planned.is_some_and(|planned| planned.denies)
    }

    /// Checks that a rule can deny: its conditions are known before the syscall ends, and some of its syscalls can
    /// fail.
    fn check_denial(
        &self,
        at: usize,
        is_deniable: impl Fn(SyscallId) -> bool,
    ) -> Result<(), String> {
        let list = self.rules.get(at).map(|planned| planned.rule.list);
        if list != Some(List::Exit) {
            return Err("it is not on the exit list".to_owned());
        }
        let slots = self.syscalls.iter().filter_map(|(syscall_id, rules)| {
            let slot = rules
                .slots
                .iter()
                .find(|slot| usize::from(slot.rule.0) == at)?;
            Some((*syscall_id, slot))
        });
        let mut any = false;
        for (syscall_id, slot) in slots {
            if let Some(late) = slot.tests.iter().find_map(known_late) {
                return Err(format!("`{late}` is known only after the syscall"));
            }
            any |= is_deniable(syscall_id);
        }
        if any {
            Ok(())
        } else {
            Err("the kernel has no hook to refuse them".to_owned())
        }
    }
}

impl super::PlannedRule {
    /// The first key of the rule that is in `keys`.
    fn denied_by(&self, keys: &[BString]) -> Option<BString> {
        let mut keys_of_rule = self.rule.keys.iter();
        let is_always = self.rule.action == Action::Always;
        keys_of_rule
            .find(|key| is_always && keys.contains(key))
            .cloned()
    }
}

/// The field of a condition that is known only when the syscall has ended.
fn known_late(test: &Test) -> Option<&'static str> {
    let is_late = |&field: &Field| {
        matches!(
            field,
            Field::Exit
                | Field::Success
                | Field::ObjUid
                | Field::ObjGid
                | Field::Inode
                | Field::DevMajor
                | Field::DevMinor
                | Field::FileType
                | Field::SaddrFam
        )
    };
    let late = match &test.operand {
        Operand::Field(field) => is_late(field).then_some(*field),
        Operand::Fields(left, right) => [*left, *right].into_iter().find(is_late),
        _ => None,
    };
    late.map(field::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::planned;

    fn denied(lines: &[&str]) -> Plan {
        let mut plan = planned(lines);
        let is_deniable = |syscall: SyscallId| !matches!(syscall.name(), Some("getpid" | "read"));
        plan.deny(&["deny".into()], is_deniable);
        plan
    }

    #[test]
    fn any_key_selects_a_rule() {
        let plan = denied(&[
            "-a always,exit -F arch=b64 -S openat -F path=/a -k other -k deny",
            "-a always,exit -F arch=b64 -S openat -F path=/b -k other",
            "-a never,exit -F arch=b64 -S openat -F path=/c -k deny",
        ]);
        assert_eq!(plan.unsupported, []);
        let denies: Vec<bool> = plan.rules.iter().map(|rule| rule.denies).collect();
        assert_eq!(denies, [true, false, false]);
        assert!(plan.denying() == 1 && plan.syscalls.values().all(|rules| plan.denies(rules)));
    }

    #[test]
    fn rules_that_cannot_deny_are_unsupported() {
        for (rule, word) in [
            (
                "-a always,exit -F arch=b64 -S openat -F success=1 -k deny",
                "success",
            ),
            (
                "-a always,exit -F arch=b64 -S unlink -F obj_uid=0 -k deny",
                "obj_uid",
            ),
            (
                "-a always,exit -F arch=b64 -S chmod -C uid!=obj_uid -k deny",
                "obj_uid",
            ),
            ("-a always,exit -F arch=b64 -S getpid -k deny", "no hook"),
        ] {
            let plan = denied(&[rule]);
            let [refused] = plan.unsupported.as_slice() else {
                panic!("{rule}: {:?}", plan.unsupported);
            };
            assert!(
                refused.loses_records && refused.reason.contains(word),
                "{refused:?}"
            );
        }
    }
}
