//! Security labels of SELinux: syntax and comparison.
//!
//! A label is `user:role:type`, optionally with a level or a range of two levels. A level is a sensitivity and a set
//! of categories, such as `s0:c1,c5.c9`. A level dominates another if its sensitivity is not lower and it has
//! all categories of the other.

use std::collections::BTreeSet;

use crate::rule::{Field, Op};

/// Highest category of a policy. A range beyond it is invalid.
const CATEGORIES: u32 = 1024;

/// The label of a task or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelinuxLabel<'a> {
    user: &'a [u8],
    role: &'a [u8],
    kind: &'a [u8],
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

impl<'a> SelinuxLabel<'a> {
    /// Parses a label; `None` if it has fewer than three parts.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let mut parts = text.splitn(4, |&byte| byte == b':');
        let (user, role, kind) = (parts.next()?, parts.next()?, parts.next()?);
        let levels = parts.next();
        let mut ends = levels
            .into_iter()
            .flat_map(|levels| levels.splitn(2, |&byte| byte == b'-'));
        let low = ends.next();
        let high = ends.next().or(low);
        Some(Self {
            user,
            role,
            kind,
            low,
            high,
        })
    }

    /// Whether a condition on a part of the label holds.
    ///
    /// # Source
    /// `selinux_audit_rule_match()` in `security/selinux/ss/services.c`, Linux 6.12.
    #[must_use]
    pub fn satisfies(&self, field: Field, op: Op, value: &[u8]) -> bool {
        match field {
            Field::SubjUser | Field::ObjUser => equals(op, self.user == value),
            Field::SubjRole | Field::ObjRole => equals(op, self.role == value),
            Field::SubjType | Field::ObjType => equals(op, self.kind == value),
            Field::SubjSen | Field::ObjLevLow => compare(self.low, op, value),
            Field::SubjClr | Field::ObjLevHigh => compare(self.high, op, value),
            _ => false,
        }
    }
}

const fn equals(op: Op, equal: bool) -> bool {
    match op {
        Op::Equal => equal,
        Op::NotEqual => !equal,
        _ => false,
    }
}

fn compare(level: Option<&[u8]>, op: Op, value: &[u8]) -> bool {
    let (Some(level), Some(value)) = (level.and_then(Level::parse), Level::parse(value)) else {
        return false;
    };
    let equal = level == value;
    match op {
        Op::Equal => equal,
        Op::NotEqual => !equal,
        Op::Less => value.dominates(&level) && !equal,
        Op::LessOrEqual => value.dominates(&level),
        Op::Greater => level.dominates(&value) && !equal,
        Op::GreaterOrEqual => level.dominates(&value),
        Op::BitMask | Op::BitTest => false,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Level {
    sensitivity: u32,
    categories: BTreeSet<u32>,
}

impl Level {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(2, |&byte| byte == b':');
        let sensitivity = numbered(parts.next()?, b's')?;
        let mut categories = BTreeSet::new();
        if let Some(list) = parts.next() {
            for range in list.split(|&byte| byte == b',') {
                let mut ends = range.splitn(2, |&byte| byte == b'.');
                let first = numbered(ends.next()?, b'c')?;
                let last = match ends.next() {
                    Some(last) => numbered(last, b'c')?,
                    None => first,
                };
                if last >= CATEGORIES {
                    return None;
                }
                categories.extend(first..=last);
            }
        }
        Some(Self {
            sensitivity,
            categories,
        })
    }

    fn dominates(&self, other: &Self) -> bool {
        self.sensitivity >= other.sensitivity && self.categories.is_superset(&other.categories)
    }
}

/// The number in `c12`.
fn numbered(text: &[u8], letter: u8) -> Option<u32> {
    let digits = text.strip_prefix(&[letter])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn holds(label: &str, field: Field, op: Op, value: &str) -> bool {
        let label = SelinuxLabel::parse(label.as_bytes()).unwrap();
        label.satisfies(field, op, value.as_bytes())
    }

    #[test]
    fn label_parts_are_compared_as_text() {
        let label = "system_u:system_r:httpd_t:s0";
        for (field, value) in [
            (Field::SubjUser, "system_u"),
            (Field::SubjRole, "system_r"),
            (Field::SubjType, "httpd_t"),
            (Field::ObjType, "httpd_t"),
        ] {
            assert!(holds(label, field, Op::Equal, value), "{value}");
            assert!(!holds(label, field, Op::NotEqual, value), "{value}");
            assert!(holds(label, field, Op::NotEqual, "x"), "{value}");
            assert!(!holds(label, field, Op::Greater, "x"), "{value}");
        }
    }

    #[test]
    fn levels_are_compared_by_dominance() {
        let label = "u:r:t:s1:c1-s3:c0.c3,c7";
        for (field, op, value, expected) in [
            (Field::SubjSen, Op::Equal, "s1:c1", true),
            (Field::SubjSen, Op::Equal, "s1", false),
            (Field::SubjSen, Op::Greater, "s1", true),
            (Field::SubjSen, Op::Greater, "s1:c1", false),
            (Field::SubjSen, Op::GreaterOrEqual, "s1:c1", true),
            (Field::SubjSen, Op::LessOrEqual, "s2:c0.c5", true),
            (Field::SubjSen, Op::Less, "s2:c2", false),
            (Field::SubjClr, Op::Equal, "s3:c0,c1,c2,c3,c7", true),
            (Field::SubjClr, Op::NotEqual, "s3:c0", true),
            // Neither dominates the other.
            (Field::ObjLevHigh, Op::Greater, "s0:c9", false),
            (Field::ObjLevHigh, Op::Less, "s9:c9", false),
            (Field::ObjLevLow, Op::Equal, "SystemLow", false),
            (Field::ObjLevLow, Op::NotEqual, "s0:c5000", false),
        ] {
            assert_eq!(holds(label, field, op, value), expected, "{op:?} {value}");
        }
    }

    #[test]
    fn label_without_levels_matches_no_level_test() {
        assert!(!holds("u:r:t", Field::SubjSen, Op::NotEqual, "s0"));
        assert!(holds("u:r:t:s0", Field::SubjClr, Op::Equal, "s0"));
        assert_eq!(SelinuxLabel::parse(b"unconfined"), None);
    }
}
