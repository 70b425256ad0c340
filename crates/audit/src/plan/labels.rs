//! Security modules, and the conditions on labels that they evaluate.
//!
//! The kernel passes such a condition to the security modules when a rule is loaded. A condition that no module
//! accepts never matches, regardless of its operator, and neither does its rule.
//!
//! # Source
//! `audit_data_to_entry` in `kernel/auditfilter.c` and `audit_filter_rules` in `kernel/auditsc.c`, Linux
//! 6.12: `lsm_rule` stays NULL, and `result` 0. The same in 6.1 and 6.18.

use crate::rule::{Action, Field, List, Rule, field};

use super::rule_list::RuleEntry;
use super::{Plan, UnsupportedRule};

/// A security module that compares labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityModule {
    /// `AppArmor`.
    AppArmor,
    /// `SELinux`.
    Selinux,
    /// Smack.
    Smack,
}

impl SecurityModule {
    /// All modules.
    pub const ALL: [Self; 3] = [Self::AppArmor, Self::Selinux, Self::Smack];

    /// Name of the module.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AppArmor => "AppArmor",
            Self::Selinux => "SELinux",
            Self::Smack => "Smack",
        }
    }

    /// Whether the module accepts a condition on this field.
    ///
    /// # Source
    /// `aa_audit_rule_init`, `selinux_audit_rule_init` and `smack_audit_rule_init`, Linux 6.12.
    const fn compares(self, field: Field) -> bool {
        match self {
            Self::AppArmor => matches!(field, Field::SubjRole),
            Self::Selinux => is_label(field),
            Self::Smack => matches!(field, Field::SubjUser | Field::ObjUser),
        }
    }
}

/// Whether a field is part of a security label.
#[must_use]
pub const fn is_label(field: Field) -> bool {
    matches!(
        field,
        Field::SubjUser
            | Field::SubjRole
            | Field::SubjType
            | Field::SubjSen
            | Field::SubjClr
            | Field::ObjUser
            | Field::ObjRole
            | Field::ObjType
            | Field::ObjLevLow
            | Field::ObjLevHigh
    )
}

/// Returns the field name of the first condition on a security label.
#[must_use]
pub fn condition(rule: &Rule) -> Option<&'static str> {
    let test = rule.fields.iter().find(|test| is_label(test.field))?;
    Some(field::name(test.field))
}

impl Plan {
    /// Refuses rules with conditions that an active module compares, because tollgate does not read labels. Other
    /// rules with conditions on labels match nothing, as in the kernel.
    pub fn refuse_label_rules(&mut self, module: SecurityModule) {
        let compared = |rule: &Rule| {
            let test = rule
                .fields
                .iter()
                .find(|test| module.compares(test.field))?;
            Some(format!(
                "`{}` is not supported: tollgate does not read labels of {}",
                field::name(test.field),
                module.name()
            ))
        };
        let planned = self
            .rules
            .iter()
            .map(|planned| (&planned.rule, planned.source, planned.line));
        let beside = [self.exclude_list.rules(), self.user_list.rules()]
            .into_iter()
            .flatten()
            .map(|RuleEntry { rule, source, line }| (rule, *source, *line));
        let refused: Vec<UnsupportedRule> = planned
            .chain(beside)
            .filter_map(|(rule, source, line)| {
                Some(UnsupportedRule {
                    source,
                    line,
                    loses_records: rule.action == Action::Always && rule.list != List::Exclude,
                    reason: compared(rule)?,
                })
            })
            .collect();
        self.unsupported.extend(refused);
    }

    /// Returns the rules of the exit and task lists that match nothing because no module compares their labels: each
    /// with its source, line and field.
    pub fn unmatchable_label_rules(&self) -> impl Iterator<Item = (usize, u32, &'static str)> {
        self.rules.iter().filter_map(|planned| {
            let (source, line) = (planned.source, planned.line);
            let mut refused = self.unsupported.iter();
            let is_refused = refused.any(|rule| (rule.source, rule.line) == (source, line));
            let field = condition(&planned.rule).filter(|_| !is_refused)?;
            Some((source, line, field))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::planned;

    const RULES: [&str; 6] = [
        "-a always,exit -F arch=b64 -S openat -F subj_type=init_t -k a",
        "-a always,exit -F arch=b64 -S openat -F obj_role!=x -k b",
        "-a never,exit -F arch=b64 -S openat -F subj_user=x",
        "-a always,exit -F arch=b64 -S openat -F subj_role!=x -k c",
        "-a always,exclude -F msgtype=CWD -F subj_type=init_t",
        "-a always,exit -F arch=b64 -S openat -F uid=0 -k d",
    ];

    #[test]
    fn label_conditions_never_hold_without_a_module() {
        let plan = planned(&RULES);
        assert_eq!(plan.unsupported, []);
        let slots = plan.syscalls.values().flat_map(|planned| &planned.slots);
        let rules: Vec<u16> = slots.map(|slot| slot.rule.0).collect();
        assert_eq!(rules, [4], "the exclude list is not among them");
        let found: Vec<_> = plan
            .unmatchable_label_rules()
            .map(|(_, line, _)| line)
            .collect();
        assert_eq!(found, [1, 2, 3, 4]);
    }

    #[test]
    fn conditions_of_an_active_module_are_refused() {
        for (module, expected) in [
            (SecurityModule::AppArmor, vec![(4, true)]),
            (SecurityModule::Smack, vec![(3, false)]),
            (
                SecurityModule::Selinux,
                vec![(1, true), (2, true), (3, false), (4, true), (5, false)],
            ),
        ] {
            let mut plan = planned(&RULES);
            plan.refuse_label_rules(module);
            let refused = plan.unsupported.iter();
            let refused: Vec<_> = refused
                .map(|rule| (rule.line, rule.loses_records))
                .collect();
            assert_eq!(refused, expected, "{}", module.name());
            assert!(plan.unsupported[0].reason.contains(module.name()));
        }
    }
}
