//! The conditions of a rule, in order.

use std::ops::Range;

use super::super::diagnostic::Findings;
use super::super::{Field, FieldTest, Value, field};

/// Maximum number of conditions of a rule, including the key.
///
/// # Source
/// `audit_rule_fieldpair_data()` in `lib/libaudit.c` of audit-userspace 4.2, which leaves the last of the kernel's
/// `AUDIT_MAX_FIELDS` unused.
const LIMIT: usize = 63;

#[derive(Debug, Default)]
pub(super) struct FieldTests(Vec<FieldTest>);

impl FieldTests {
    pub(super) fn push(
        &mut self,
        test: FieldTest,
        span: &Range<usize>,
        findings: &mut Findings<'_>,
    ) {
        let is_object = |field| matches!(field, Field::Path | Field::Dir | Field::Inode);
        if !matches!(test.value, Value::Field(_)) {
            let other = self.0.iter().find(|other| {
                (is_object(test.field) && is_object(other.field))
                    || (test.field == Field::Exe && other.field == Field::Exe)
            });
            if let Some(other) = other {
                findings.error(
                    "two-objects",
                    span,
                    format!(
                        "`{}` in a rule that has `{}` already",
                        field::name(test.field),
                        field::name(other.field)
                    ),
                    "the kernel answers EINVAL: it accepts one of path, dir and inode, and one exe; \
                     write a rule for each",
                );
            }
        }
        if self.0.len() == LIMIT {
            report_too_many(span, findings);
        }
        self.0.push(test);
    }

    /// Replaces the value of the first condition on `field`. Returns whether there is one.
    pub(super) fn replace_value(&mut self, field: Field, value: &Value) -> bool {
        let found = self.0.iter_mut().find(|test| test.field == field);
        if let Some(test) = found {
            test.value = value.clone();
            return true;
        }
        false
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= LIMIT
    }

    pub(super) fn into_tests(self) -> Vec<FieldTest> {
        self.0
    }
}

/// Reports a condition above the limit.
pub(super) fn report_too_many(span: &Range<usize>, findings: &mut Findings<'_>) {
    findings.error(
        "too-many-fields",
        span,
        format!("more than {LIMIT} conditions in one rule"),
        "arch and key count too: split the rule",
    );
}
