//! Tests: both auditors accept the lists.

use audit::ids::Arch;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::{Severity, parse_file};

use super::*;
use crate::differential::kernel::NoHost;

#[test]
fn one_seed_gives_one_list() {
    let list = |seed, number| list(&mut Random::of(seed, number), &ListWorkload::new(number));
    assert_eq!(list(1, 7), list(1, 7));
    assert_ne!(list(1, 7), list(2, 7));
}

#[test]
fn lists_are_accepted_and_planned() {
    let lists = (0..1000)
        .flat_map(|number| list(&mut Random::of(1, number), &ListWorkload::new(number)))
        .map(|line| line + "\n");
    let text: String = lists.collect();
    let (lines, findings) = parse_file(text.as_bytes(), &NoHost);
    let wrong: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| {
            (
                text.lines().nth(finding.line as usize - 1),
                &finding.message,
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut loaded = RuleList::default();
    assert_eq!(loaded.load(0, lines), []);
    let plan = Plan::compile(loaded.into_rules(), &[Arch::X86_64, Arch::I386]);
    assert_eq!(plan.unsupported, []);
    let calls = plan.syscalls.len();
    assert!(
        calls <= 250,
        "the fentry engine does not take {calls} calls"
    );
}
