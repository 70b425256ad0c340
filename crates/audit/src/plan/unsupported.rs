//! Rules that this version does not support.
//!
//! Refusing a recording rule loses records. Refusing a suppressing rule loses none: tollgate records more.

use bstr::BStr;

use crate::rule::{Action, Field, FieldTest, Op, Rule, Value, field};

use super::labels::is_label;

/// The reason for refusing a rule, and whether the refusal can lose records.
#[derive(Debug)]
pub(super) struct UnsupportedReason {
    pub(super) loses_records: bool,
    pub(super) reason: String,
}

/// Checks whether a rule is supported.
///
/// # Errors
/// The reason.
pub(super) fn check(rule: &Rule) -> Result<(), UnsupportedReason> {
    rule.fields
        .iter()
        .try_for_each(check_field)
        .map_err(|reason| UnsupportedReason::of(rule, reason))
}

impl UnsupportedReason {
    /// Refusal of a rule.
    pub(super) fn of(rule: &Rule, reason: String) -> Self {
        Self {
            loses_records: rule.action == Action::Always,
            reason,
        }
    }
}

/// Checks whether a condition is supported.
fn check_field(test: &FieldTest) -> Result<(), String> {
    let name = field::name(test.field);
    let equality = matches!(test.op, Op::Equal | Op::NotEqual);
    match test.field {
        Field::FsType | Field::MsgType => {
            return Err(format!("`{name}` has no meaning on this list"));
        }
        _ => {}
    }
    match (test.field, &test.value) {
        (Field::Path | Field::Dir, Value::Text(_)) if test.op == Op::Equal => Ok(()),
        (Field::Path | Field::Dir, Value::Text(_)) => Err(format!("`{name}` only takes `=`")),
        (Field::Exe, Value::Text(_)) | (Field::Perm | Field::FileType, Value::Number(_)) => {
            if equality {
                Ok(())
            } else {
                Err(format!("`{name}` only takes `=` and `!=`"))
            }
        }
        (left, &Value::Field(right)) if !is_pair(left, right) => Err(format!(
            "`{name}` cannot be compared with `{}`",
            field::name(right)
        )),
        (_, Value::Field(_)) if !equality => {
            Err("a comparison of fields only takes `=` and `!=`".into())
        }
        (_, Value::Field(_)) => Ok(()),
        (label, _) if is_label(label) => Ok(()),
        (Field::Path | Field::Dir | Field::Exe, Value::Number(_)) => {
            Err(format!("`{name}` takes a path"))
        }
        (_, Value::Text(text)) => Err(format!(
            "`{name}` takes a number, not `{}`",
            BStr::new(text)
        )),
        (_, Value::Number(_)) => Ok(()),
    }
}

/// Whether `-C` supports the pair, in either order.
///
/// # Source
/// `AUDIT_COMPARE_*` in `include/uapi/linux/audit.h`, Linux 6.12: any two of the users, any two of
/// the groups, but never two owners of objects.
fn is_pair(left: Field, right: Field) -> bool {
    use Field::{Auid, Egid, Euid, Fsgid, Fsuid, Gid, ObjGid, ObjUid, Sgid, Suid, Uid};
    let users = [Uid, Euid, Auid, Suid, Fsuid, ObjUid];
    let groups = [Gid, Egid, Sgid, Fsgid, ObjGid];
    let both = |family: &[Field]| family.contains(&left) && family.contains(&right);
    left != right && (both(&users) || both(&groups))
}
