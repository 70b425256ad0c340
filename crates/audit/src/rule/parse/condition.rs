//! Parses the conditions of `-F` and `-C`: a field, an operator and a value.

use super::super::diagnostic::{Findings, escape_text};
use super::super::field::{self, FieldSpec, ListSet, OPERATORS, OpSet, ValueKind};
use super::super::lexer::Word;
use super::super::{Dialect, Field, FieldTest, List, Op, RuleHost, Value, field_pairs};
use super::{number, value};

/// A condition split at its operator.
pub(super) struct SplitCondition {
    pub(super) left: Word,
    pub(super) op: Op,
    pub(super) operator: Word,
    pub(super) right: Word,
}

/// Message of version 3 for most fields on the exclude list.
pub(super) const NOT_ON_EXCLUDE: &[u8] =
    b"Only msgtype, *uid, *gid, pid, and subj* fields can be used with exclude filter";

/// The option of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionOption {
    /// `-F`
    Field,
    /// `-C`
    Pair,
}

/// Splits `field op value`; `None` after an error.
pub(super) fn split(
    word: &Word,
    given: ConditionOption,
    findings: &mut Findings<'_>,
) -> Option<SplitCondition> {
    let find = |text: &str, op: Op| {
        let at = word
            .text
            .windows(text.len())
            .position(|part| part == text.as_bytes())?;
        Some((at, at + text.len(), op))
    };
    let found = OPERATORS.iter().find_map(|&(text, op)| find(text, op));
    let Some((start, end, op)) = found else {
        match given {
            ConditionOption::Field => {
                findings.auditctl_fails(&[b"-F missing operation for ", &word.text]);
            }
            ConditionOption::Pair => {
                findings.auditctl_fails(&[&word.text, b" only takes = or != operators"]);
            }
        }
        findings.error(
            "missing-operator",
            &word.span,
            format!("no operator in `{}`", escape_text(&word.text)),
            "write FIELD OPERATOR VALUE without spaces, such as `auid>=1000`",
        );
        return None;
    };
    if given == ConditionOption::Pair {
        refuse_pair_text(word, &find, findings);
    }
    let split = SplitCondition {
        left: word.part(0..start),
        op,
        operator: word.part(start..end),
        right: word.tail(end),
    };
    if split.left.text.is_empty() {
        findings.auditctl_fails(match given {
            ConditionOption::Field => &[b"-F missing field name before operator for "],
            ConditionOption::Pair => &[b"-C missing field name before operator for "],
        });
        findings.error(
            "missing-field",
            &word.span,
            format!(
                "no field before the operator in `{}`",
                escape_text(&word.text)
            ),
            "write FIELD OPERATOR VALUE without spaces, such as `auid>=1000`",
        );
        return None;
    }
    Some(split)
}

/// `auditctl` searches a `-C` for `!=` and `=` only: `uid>=gid` has a field `uid>`.
fn refuse_pair_text(
    word: &Word,
    find: &impl Fn(&str, Op) -> Option<(usize, usize, Op)>,
    findings: &mut Findings<'_>,
) {
    let Some((start, end, _)) = find("!=", Op::NotEqual).or_else(|| find("=", Op::Equal)) else {
        findings.auditctl_fails(&[&word.text, b" only takes = or != operators"]);
        return;
    };
    let (left, right) = (word.part(0..start).text, word.tail(end).text);
    if !left.is_empty() && !right.is_empty() && !is_field(&left) {
        findings.auditctl_fails(&[b"-C unknown field: ", &left]);
    }
}

fn is_field(name: &[u8]) -> bool {
    field::by_name(name).is_some()
        || name.eq_ignore_ascii_case(b"key")
        || name.eq_ignore_ascii_case(b"field_compare")
}

/// Parses a condition other than a key; `None` after an error that leaves no value.
///
/// The order of checks is that of `auditctl`, which stops at the first error.
pub(super) fn read(
    split: &SplitCondition,
    list: List,
    dialect: Dialect,
    host: &dyn RuleHost,
    findings: &mut Findings<'_>,
) -> Option<FieldTest> {
    if split.right.text.is_empty() {
        missing_value(ConditionOption::Field, split, findings);
    }
    let is_raw_pair = split.left.text.eq_ignore_ascii_case(b"field_compare");
    let spec = field::by_name(&split.left.text);
    if spec.is_none() && !is_raw_pair {
        findings.auditctl_fails(&[b"-F unknown field: ", &split.left.text]);
        unknown_field("unknown-field", split, findings);
        return None;
    }
    refuse_on_exclude(split, spec, list, dialect, findings);
    let Some(spec) = spec else {
        return raw_pair(split, list, findings);
    };
    check_list(spec, list, dialect, &split.left, findings);
    check_operator(spec, split, findings);
    if split.right.text.is_empty() {
        return None;
    }
    let value = value::read(spec, split.op, &split.right, dialect, host, findings)?;
    Some(FieldTest {
        field: spec.field,
        op: split.op,
        value,
    })
}

/// Version 3 accepts few fields on the exclude list.
fn refuse_on_exclude(
    split: &SplitCondition,
    spec: Option<FieldSpec>,
    list: List,
    dialect: Dialect,
    findings: &mut Findings<'_>,
) {
    let evaluated = spec.is_some_and(|spec| field::evaluated_for_messages(spec.field));
    if dialect == Dialect::V3 && list == List::Exclude && !evaluated {
        findings.auditctl_fails(&[NOT_ON_EXCLUDE]);
        findings.error(
            "field-on-list",
            &split.left.span,
            format!(
                "`{}` is not valid on the exclude list",
                escape_text(&split.left.text)
            ),
            "auditctl 3 takes msgtype, uid, gid, auid, pid, exe and subj_* there",
        );
    }
}

/// Parses an inter-field comparison, `-C`; `None` after an error.
pub(super) fn read_pair(
    split: &SplitCondition,
    list: Option<List>,
    findings: &mut Findings<'_>,
) -> Option<FieldTest> {
    if split.right.text.is_empty() {
        missing_value(ConditionOption::Pair, split, findings);
        return None;
    }
    let side = |word: &Word, refusal: &[u8], findings: &mut Findings<'_>| {
        let spec = field::by_name(&word.text);
        if spec.is_none() {
            if !is_field(&word.text) {
                findings.auditctl_fails(&[refusal, &split.left.text]);
            }
            let known = comparable_fields().map(field::name);
            let otherwise = "`-C` compares the fields of the uid and gid families";
            findings.unknown("unknown-field", "field", word, known, otherwise);
        }
        spec.map(|spec| spec.field)
    };
    let (left, right) = (
        side(&split.left, b"-C unknown field: ", findings),
        side(
            &split.right,
            b"-C unknown right hand value for comparison with: ",
            findings,
        ),
    );
    check_pair(split, list, ConditionOption::Pair, findings);
    let (left, right) = (left?, right?);
    let Some((one, other)) = field_pairs::find(left, right) else {
        findings.auditctl_fails(&[b"-C incompatible comparison ", &split.left.text]);
        findings.error(
            "bad-comparison",
            &(split.left.span.start..split.right.span.end),
            format!(
                "`{}` and `{}` cannot be compared",
                field::name(left),
                field::name(right)
            ),
            "compare two different fields of the same kind: user ids, or group ids",
        );
        return None;
    };
    Some(FieldTest {
        field: one,
        op: split.op,
        value: Value::Field(other),
    })
}

/// Parses `-F field_compare=NUMBER`: a pair by its number in the kernel ABI.
fn raw_pair(split: &SplitCondition, list: List, findings: &mut Findings<'_>) -> Option<FieldTest> {
    check_pair(split, Some(list), ConditionOption::Field, findings);
    if split.right.text.is_empty() {
        return None;
    }
    let wide = number::OversizeNumber::Refuse;
    let number = number::field("field_compare", &split.right, wide, findings)?;
    let index = number
        .checked_sub(1)
        .and_then(|index| usize::try_from(index).ok());
    let Some(&(one, other)) = index.and_then(|index| field_pairs::ALL.get(index)) else {
        findings.error(
            "bad-comparison",
            &split.right.span,
            format!("no comparison has number {number}"),
            format!(
                "the kernel has comparisons 1 to {}; `-C` is clearer",
                field_pairs::ALL.len()
            ),
        );
        return None;
    };
    Some(FieldTest {
        field: one,
        op: split.op,
        value: Value::Field(other),
    })
}

/// Checks the list and the operator. `auditctl` checks those of `-C` and leaves the raw form to the kernel.
fn check_pair(
    split: &SplitCondition,
    list: Option<List>,
    given: ConditionOption,
    findings: &mut Findings<'_>,
) {
    if list != Some(List::Exit) && given == ConditionOption::Pair {
        findings.auditctl_fails(&[&split.left.text, b" can only be used with exit filter list"]);
    }
    // A missing list is already reported.
    if let Some(list) = list.filter(|&list| list != List::Exit) {
        findings.error(
            "field-on-list",
            &split.left.span,
            format!(
                "the {} list does not accept comparisons of fields",
                list.name()
            ),
            "use the exit list",
        );
    }
    if !OpSet::Equality.contains(split.op) {
        bad_operator(
            "a comparison of fields",
            "the kernel",
            OpSet::Equality,
            split,
            findings,
        );
    }
}

/// Reports a list on which the kernel refuses `perm`. `auditctl` does not check the list of `-p`.
pub(super) fn check_perm_list(list: List, at: &Word, findings: &mut Findings<'_>) {
    if let Some(spec) = field::spec(Field::Perm)
        && !spec.lists.contains(list)
    {
        not_on_list(spec, list, at, findings);
    }
}

fn check_list(
    spec: FieldSpec,
    list: List,
    dialect: Dialect,
    at: &Word,
    findings: &mut Findings<'_>,
) {
    let by_auditctl = field::auditctl_lists(spec.field, dialect);
    let refused = by_auditctl.is_some_and(|lists| !lists.contains(&list));
    if refused {
        let text = at.text.as_slice();
        match spec.field {
            Field::MsgType => findings.auditctl_fails(&[
                b"msgtype field can only be used with exclude or user filter list",
            ]),
            Field::FsType => {
                findings.auditctl_fails(&[text, b" field is not valid for the filter"]);
            }
            Field::SessionId => {
                findings
                    .auditctl_fails(&[text, b" must be used with exclude, user, or exit filter"]);
            }
            _ => findings.auditctl_fails(&[text, b" can only be used with exit filter list"]),
        }
    }
    if refused || !spec.lists.contains(list) {
        not_on_list(spec, list, at, findings);
        return;
    }
    if matches!(list, List::User | List::Exclude) && !field::evaluated_for_messages(spec.field) {
        findings.warning(
            "never-matches",
            &at.span,
            format!(
                "the kernel does not evaluate `{}` on the {} list",
                spec.name,
                list.name()
            ),
            "the kernel stops at this rule and keeps the record: the rules after it have no effect",
        );
    }
    if list == List::Task && spec.field == Field::Exe {
        findings.warning(
            "never-matches",
            &at.span,
            "`exe` on the task list is compared with no program",
            "`=` never matches there and `!=` always does: use the exit list",
        );
    }
}

fn not_on_list(spec: FieldSpec, list: List, at: &Word, findings: &mut Findings<'_>) {
    findings.error(
        "field-on-list",
        &at.span,
        format!("`{}` is not valid on the {} list", spec.name, list.name()),
        if spec.lists == ListSet::NotFilesystem {
            "the kernel accepts only `fstype` and a key there".to_owned()
        } else {
            format!("it is valid on {}", spec.lists.describe())
        },
    );
}

fn check_operator(spec: FieldSpec, split: &SplitCondition, findings: &mut Findings<'_>) {
    let name = format!("`{}`", spec.name);
    if !spec.parser_ops.contains(split.op) {
        let left = split.left.text.as_slice();
        match spec.parser_ops {
            OpSet::Equal => findings.auditctl_fails(&[left, b" only takes = operator"]),
            _ => findings.auditctl_fails(&[left, b" only takes = or != operators"]),
        }
    }
    for (who, ops) in [
        ("auditctl", spec.parser_ops),
        ("the kernel", spec.kernel_ops),
    ] {
        if !ops.contains(split.op) {
            bad_operator(&name, who, ops, split, findings);
            return;
        }
    }
}

fn bad_operator(
    what: &str,
    who: &str,
    ops: OpSet,
    split: &SplitCondition,
    findings: &mut Findings<'_>,
) {
    findings.error(
        "bad-operator",
        &split.operator.span,
        format!(
            "operator `{}` is not valid for {what}",
            field::operator(split.op)
        ),
        format!("{who} accepts only {}", ops.describe()),
    );
}

fn unknown_field(code: &'static str, split: &SplitCondition, findings: &mut Findings<'_>) {
    let known = field::all().map(|spec| spec.name).chain(["key"]);
    findings.unknown(
        code,
        "field",
        &split.left,
        known,
        "auditctl(8) lists the fields",
    );
}

fn missing_value(given: ConditionOption, split: &SplitCondition, findings: &mut Findings<'_>) {
    let left = split.left.text.as_slice();
    match given {
        ConditionOption::Field => {
            findings.auditctl_fails(&[b"-F missing value after operation for ", left]);
        }
        ConditionOption::Pair => {
            findings.auditctl_fails(&[b"-C missing value after operation for  ", left]);
        }
    }
    findings.error(
        "missing-value",
        &(split.left.span.start..split.operator.span.end),
        format!("no value for `{}`", escape_text(&split.left.text)),
        "put the value right after the operator, without a space",
    );
}

fn comparable_fields() -> impl Iterator<Item = Field> {
    field::all()
        .filter(|spec| matches!(spec.kind, ValueKind::User | ValueKind::Group))
        .map(|spec| spec.field)
}
