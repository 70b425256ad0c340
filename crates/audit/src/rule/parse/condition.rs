//! `-F` and `-C`: a field, an operator, and what it is compared with.

use super::super::diag::{Findings, shown};
use super::super::field::{self, Kind, Lists, OPERATORS, Spec};
use super::super::lex::Word;
use super::super::{Field, FieldTest, Host, List, Op, Value, pair};
use super::{number, value};

/// Text before and after an operator.
pub(super) struct Split {
    pub(super) left: Word,
    pub(super) op: Op,
    pub(super) operator: Word,
    pub(super) right: Word,
}

/// Splits `field op value`; `None` after an error.
pub(super) fn split(word: &Word, findings: &mut Findings<'_>) -> Option<Split> {
    let found = OPERATORS.iter().find_map(|&(text, op)| {
        let at = word
            .text
            .windows(text.len())
            .position(|part| part == text.as_bytes())?;
        Some((at, at + text.len(), op))
    });
    let Some((start, end, op)) = found else {
        findings.error(
            "missing-operator",
            &word.span,
            format!("no operator in `{}`", shown(&word.text)),
            "write FIELD OPERATOR VALUE without spaces, such as `auid>=1000`",
        );
        return None;
    };
    let split = Split {
        left: word.part(0..start),
        op,
        operator: word.part(start..end),
        right: word.tail(end),
    };
    if split.left.text.is_empty() {
        findings.error(
            "missing-field",
            &word.span,
            format!("no field before the operator in `{}`", shown(&word.text)),
            "write FIELD OPERATOR VALUE without spaces, such as `auid>=1000`",
        );
        return None;
    }
    Some(split)
}

/// Reads a condition other than a key; `None` after an error.
pub(super) fn read(
    split: &Split,
    list: List,
    host: &dyn Host,
    findings: &mut Findings<'_>,
) -> Option<FieldTest> {
    if split.left.text.eq_ignore_ascii_case(b"field_compare") {
        return raw_pair(split, list, findings);
    }
    let Some(spec) = field::by_name(&split.left.text) else {
        unknown_field("unknown-field", split, findings);
        return None;
    };
    let mut fits = check_list(spec, list, &split.left, findings);
    fits &= check_operator(spec, split, findings);
    if split.right.text.is_empty() {
        missing_value(split, findings);
        return None;
    }
    let value = value::read(spec, split.op, &split.right, host, findings)?;
    fits.then_some(FieldTest {
        field: spec.field,
        op: split.op,
        value,
    })
}

/// Reads an inter-field comparison, `-C`; `None` after an error.
pub(super) fn read_pair(
    split: &Split,
    list: List,
    findings: &mut Findings<'_>,
) -> Option<FieldTest> {
    let fits = check_pair(split, list, findings);
    if split.right.text.is_empty() {
        missing_value(split, findings);
        return None;
    }
    let side = |word: &Word, findings: &mut Findings<'_>| {
        let spec = field::by_name(&word.text);
        if spec.is_none() {
            let known = compared().map(field::name);
            let otherwise = "`-C` compares the fields of the uid and gid families";
            findings.unknown("unknown-field", "field", word, known, otherwise);
        }
        spec.map(|spec| spec.field)
    };
    let (left, right) = (side(&split.left, findings), side(&split.right, findings));
    let (left, right) = (left?, right?);
    let Some((one, other)) = pair::find(left, right) else {
        findings.error(
            "bad-comparison",
            &(split.left.span.start..split.right.span.end),
            format!(
                "`{}` and `{}` cannot be compared",
                field::name(left),
                field::name(right)
            ),
            "compare two different fields of one family: user ids, or group ids",
        );
        return None;
    };
    fits.then_some(FieldTest {
        field: one,
        op: split.op,
        value: Value::Field(other),
    })
}

/// `-F field_compare=NUMBER`: a pair by its number in the kernel ABI.
fn raw_pair(split: &Split, list: List, findings: &mut Findings<'_>) -> Option<FieldTest> {
    let fits = check_pair(split, list, findings);
    if split.right.text.is_empty() {
        missing_value(split, findings);
        return None;
    }
    let wide = number::Wide::Refuse;
    let number = number::unsigned("field_compare", &split.right, wide, findings)?;
    let index = number
        .checked_sub(1)
        .and_then(|index| usize::try_from(index).ok());
    let Some(&(one, other)) = index.and_then(|index| pair::ALL.get(index)) else {
        findings.error(
            "bad-comparison",
            &split.right.span,
            format!("no comparison has number {number}"),
            format!(
                "the kernel knows 1 to {}: better write `-C`",
                pair::ALL.len()
            ),
        );
        return None;
    };
    fits.then_some(FieldTest {
        field: one,
        op: split.op,
        value: Value::Field(other),
    })
}

fn check_pair(split: &Split, list: List, findings: &mut Findings<'_>) -> bool {
    let mut fits = true;
    if list != List::Exit {
        fits = false;
        findings.error(
            "field-on-list",
            &split.left.span,
            format!(
                "the {} list takes no comparison of fields",
                field::list_name(list)
            ),
            "use the exit list",
        );
    }
    if !field::Ops::Equality.contains(split.op) {
        fits = false;
        bad_operator(
            "a comparison of fields",
            "auditctl",
            field::Ops::Equality,
            split,
            findings,
        );
    }
    fits
}

/// Whether a list takes `field`; says so when not.
pub(super) fn check_field_list(
    field: Field,
    list: List,
    at: &Word,
    findings: &mut Findings<'_>,
) -> bool {
    field::spec(field).is_some_and(|spec| check_list(spec, list, at, findings))
}

fn check_list(spec: Spec, list: List, at: &Word, findings: &mut Findings<'_>) -> bool {
    if !spec.lists.contains(list) {
        findings.error(
            "field-on-list",
            &at.span,
            format!(
                "`{}` is not for the {} list",
                spec.name,
                field::list_name(list)
            ),
            if spec.lists == Lists::NotFilesystem {
                "the kernel takes only `fstype` and a key there".to_owned()
            } else {
                format!("it is for {}", spec.lists.describe())
            },
        );
        return false;
    }
    if matches!(list, List::User | List::Exclude) && !field::evaluated_for_messages(spec.field) {
        findings.warning(
            "never-matches",
            &at.span,
            format!(
                "`{}` is not looked at on the {} list",
                spec.name,
                field::list_name(list)
            ),
            "the kernel stops at this rule and keeps the message: rules after it count for nothing",
        );
    }
    if list == List::Task && spec.field == Field::Exe {
        findings.warning(
            "never-matches",
            &at.span,
            "`exe` on the task list looks at no program",
            "`=` never holds there and `!=` always does: use the exit list",
        );
    }
    true
}

fn check_operator(spec: Spec, split: &Split, findings: &mut Findings<'_>) -> bool {
    let name = format!("`{}`", spec.name);
    for (who, ops) in [
        ("auditctl", spec.parser_ops),
        ("the kernel", spec.kernel_ops),
    ] {
        if !ops.contains(split.op) {
            bad_operator(&name, who, ops, split, findings);
            return false;
        }
    }
    true
}

fn bad_operator(
    what: &str,
    who: &str,
    ops: field::Ops,
    split: &Split,
    findings: &mut Findings<'_>,
) {
    findings.error(
        "bad-operator",
        &split.operator.span,
        format!("operator `{}` is not for {what}", field::operator(split.op)),
        format!("{who} takes only {}", ops.describe()),
    );
}

fn unknown_field(code: &'static str, split: &Split, findings: &mut Findings<'_>) {
    let known = field::all().map(|spec| spec.name).chain(["key"]);
    findings.unknown(
        code,
        "field",
        &split.left,
        known,
        "auditctl(8) lists the fields",
    );
}

fn missing_value(split: &Split, findings: &mut Findings<'_>) {
    findings.error(
        "missing-value",
        &(split.left.span.start..split.operator.span.end),
        format!("no value for `{}`", shown(&split.left.text)),
        "put the value right after the operator, without a space",
    );
}

fn compared() -> impl Iterator<Item = Field> {
    field::all()
        .filter(|spec| matches!(spec.kind, Kind::User | Kind::Group))
        .map(|spec| spec.field)
}
