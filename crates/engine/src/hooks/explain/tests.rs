//! Explanations of plans of a few rules.

use audit::plan::cost::Cost;
use audit::plan::rule_list::RuleEntry;
use audit::rule::{FieldTest, Op, Rule, SyscallMask, Value};
use inputs::rules::rule_entries;
use proptest::prelude::*;

use super::*;

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::I386];

fn test(field: Field, value: u32) -> FieldTest {
    FieldTest {
        field,
        op: Op::Equal,
        value: Value::Number(value),
    }
}

/// A rule with an arch and syscalls by name; `None` and none for one without.
#[track_caller]
fn rule(arch: Option<Arch>, names: &[&str]) -> Rule {
    let mut syscalls = if names.is_empty() {
        SyscallMask::all()
    } else {
        SyscallMask::none()
    };
    for name in names {
        let number = table::syscall_number(arch.unwrap_or(Arch::X86_64), name.as_bytes());
        syscalls.insert(number.unwrap().0);
    }
    Rule {
        list: List::Exit,
        action: Action::Always,
        syscalls,
        fields: arch
            .map(|arch| test(Field::Arch, arch.0))
            .into_iter()
            .collect(),
        keys: Vec::new(),
    }
}

fn explained(rules: &[Rule]) -> Explanation {
    let listed = |(line, rule): (u32, &Rule)| RuleEntry {
        rule: rule.clone(),
        source: 0,
        line,
    };
    explain(
        &Plan::compile((1..).zip(rules).map(listed), &ARCHES),
        EngineKind::Tracepoint,
        KernelFeatures::V5_15,
    )
}

const B64: Option<Arch> = Some(Arch::X86_64);
const B32: Option<Arch> = Some(Arch::I386);

#[test]
fn no_rules_cost_nothing() {
    let explanation = explained(&[]);
    assert_eq!(explanation.price, Price::default());
    assert!(explanation.hooks.is_empty());
    assert!(explanation.common.iter().all(|&(_, pays)| !pays));
    assert_eq!(explanation.paying.len(), 1);
    assert!(explanation.paying[0].known > 300);
}

#[test]
fn the_price_is_that_of_the_hooks() {
    let price = |rules: &[Rule]| {
        let price = explained(rules).price;
        (
            price.raw,
            price.every_syscall_ns,
            price.paying_syscall_ns.unwrap_or(0),
        )
    };
    assert_eq!(price(&[rule(B64, &["openat"])]), (false, 30, 200));
    assert_eq!(price(&[rule(B64, &["execve"])]), (false, 43, 200));
    assert_eq!(price(&[rule(B32, &["open"])]), (true, 76, 100));
    assert_eq!(price(&[rule(B32, &["execve"])]), (true, 130, 100));
    assert_eq!(
        price(&[rule(B32, &["open"]), rule(B64, &["execve"])]),
        (true, 89, 100)
    );
    assert_eq!(price(&[rule(B64, &["exit_group"])]), (false, 30, 200));
}

#[test]
fn an_entry_that_must_be_raw_is_priced() {
    let price = |rules: &[Rule]| explained(rules).price.every_syscall_ns;
    assert_eq!(price(&[rule(B32, &["exit"])]), 72);
    assert_eq!(price(&[rule(B32, &["exit"]), rule(B64, &["openat"])]), 84);
    assert_eq!(
        price(&[rule(B32, &["execve"]), rule(B64, &["execve"])]),
        130
    );
}

#[test]
fn the_rule_of_a_file_says_what_it_touches() {
    let explanation = explained(&[rule(B64, &["openat", "unlink", "stat"])]);
    let [cost] = &explanation.rules[..] else {
        panic!("one rule")
    };
    let numbers: Vec<u32> = cost.scope.syscalls[&Arch::X86_64]
        .iter()
        .map(|syscall| syscall.0)
        .collect();
    assert_eq!(numbers, [4, 87, 257]);
    assert_eq!(cost.scope.cost, Cost::Medium);
    assert_eq!(
        cost.notes,
        [RuleNote::NamesFromTask(vec!["stat", "unlink"])]
    );
    assert_eq!(cost.hooks.len(), 3);
    assert_eq!(explanation.paying[0].paying, 3);
    let pays: Vec<&str> = explanation
        .common
        .iter()
        .filter(|(_, pays)| *pays)
        .map(|&(name, _)| name)
        .collect();
    assert_eq!(pays, ["stat"]);
}

#[test]
fn costs_are_ordered_by_how_often_programs_call() {
    let cost = |names: &[&str]| explained(&[rule(B64, names)]).rules[0].scope.cost;
    assert_eq!(cost(&["mount"]), Cost::Low);
    assert_eq!(cost(&["mount", "openat"]), Cost::Medium);
    assert_eq!(cost(&["openat", "read"]), Cost::High);
    assert_eq!(cost(&[]), Cost::Everything);
    assert!(Cost::Low < Cost::Medium && Cost::High < Cost::Everything);
}

#[test]
fn a_rule_for_everything_says_so() {
    let explanation = explained(&[rule(B64, &[])]);
    assert_eq!(
        explanation.rules[0].notes[0],
        RuleNote::EverySyscall(Arch::X86_64)
    );
    assert_eq!(explanation.paying[0].paying, explanation.paying[0].known);
    assert!(explanation.common.iter().all(|&(_, pays)| pays));
}

#[test]
fn calls_of_32_bits_are_pointed_out() {
    let notes = |arch| explained(&[rule(arch, &["getpid"])]).rules[0].notes.clone();
    assert_eq!(notes(B64), []);
    assert_eq!(notes(B32), [RuleNote::Compat]);
    let unasked = notes(None);
    assert!(unasked.contains(&RuleNote::CompatUnasked));
    assert!(
        unasked
            .iter()
            .any(|note| note.to_string().contains("-F arch=b64"))
    );
}

/// `auditctl` refuses `-w` with `-F`.
#[test]
fn watches_are_not_told_to_name_an_arch() {
    let watch = |field| {
        let object = FieldTest {
            field,
            op: Op::Equal,
            value: Value::Text("/etc/x".into()),
        };
        Rule {
            fields: vec![object, test(Field::Perm, 2)],
            ..rule(None, &[])
        }
    };
    let with_condition = Rule {
        fields: [watch(Field::Path).fields, vec![test(Field::Uid, 0)]].concat(),
        ..watch(Field::Path)
    };
    let notes = |rule: Rule| explained(&[rule]).rules[0].notes.clone();
    for field in [Field::Path, Field::Dir] {
        let notes = notes(watch(field));
        assert!(notes.contains(&RuleNote::CompatWatch), "{notes:?}");
        let text = RuleNote::CompatWatch.to_string();
        assert!(text.contains("`-w` takes no arch") && !text.contains("add `-F arch=b64`"));
    }
    assert!(notes(with_condition).contains(&RuleNote::CompatUnasked));
}

#[test]
fn rules_that_need_no_hook_say_why() {
    let never = Rule {
        action: Action::Never,
        ..rule(B64, &["openat"])
    };
    let nothing = Rule {
        fields: vec![test(Field::Exit, 0)],
        ..rule(None, &["exit_group"])
    };
    let b64 = test(Field::Arch, Arch::X86_64.0);
    let nothing = Rule {
        fields: vec![b64, nothing.fields[0].clone()],
        ..nothing
    };
    let root = test(Field::Uid, 0);
    let never = Rule {
        fields: vec![never.fields[0].clone(), root],
        ..never
    };
    let explanation = explained(&[
        never,
        rule(B64, &["openat"]),
        nothing,
        rule(B64, &["openat"]),
    ]);
    let notes: Vec<&[RuleNote]> = explanation
        .rules
        .iter()
        .map(|cost| &cost.notes[..])
        .collect();
    assert_eq!(notes[0], [RuleNote::OnlySuppresses]);
    assert_eq!(notes[1], []);
    assert_eq!(notes[2], [RuleNote::MatchesNothing]);
    assert_eq!(
        notes[3],
        [RuleNote::MatchesNothing],
        "the second rule takes all"
    );
    for index in [0, 2, 3] {
        assert_eq!(explanation.rules[index].scope.cost, Cost::Nothing);
        assert!(explanation.rules[index].hooks.is_empty());
    }
}

#[test]
fn flags_of_openat2_are_pointed_out_where_perm_asks() {
    let with_perm = Rule {
        fields: vec![test(Field::Arch, Arch::X86_64.0), test(Field::Perm, 2)],
        ..rule(B64, &["openat2"])
    };
    let explanation = explained(&[with_perm, rule(B64, &["openat2"])]);
    assert_eq!(explanation.rules[0].notes, [RuleNote::FlagsFromTask]);
    assert_eq!(explanation.rules[1].notes, []);
}

#[test]
fn operations_are_priced_where_they_are_seen() {
    let mut openat = rule(None, &[]);
    openat.list = List::IoUring;
    openat.syscalls = SyscallMask::none();
    openat.syscalls.insert(18);
    let rules = [rule(B64, &["openat", "close"]), openat];
    let listed = |(line, rule): (u32, &Rule)| RuleEntry {
        rule: rule.clone(),
        source: 0,
        line,
    };
    let plan = Plan::compile((1..).zip(&rules).map(listed), &ARCHES);
    let names = |cost: &RuleCost| -> Vec<&str> {
        cost.scope
            .operations
            .iter()
            .map(|operation| operation.name)
            .collect()
    };

    let fentry = explain(&plan, EngineKind::Fentry, KernelFeatures::ALL);
    assert_eq!(names(&fentry.rules[0]), ["close"], "the other takes all");
    assert_eq!(names(&fentry.rules[1]), ["openat"]);
    assert_eq!(fentry.rules[1].notes, []);
    assert_eq!(fentry.rules[1].scope.cost, Cost::Medium);
    let function = Hook::UringExit("io_openat2");
    assert!(fentry.rules[1].hooks.contains(&function));
    assert!(fentry.missed.is_empty());

    let tracepoint = explain(&plan, EngineKind::Tracepoint, KernelFeatures::ALL);
    assert_eq!(names(&tracepoint.rules[0]), [""; 0]);
    assert_eq!(tracepoint.rules[1].notes, [RuleNote::EveryOperation]);
    assert_eq!(tracepoint.rules[1].scope.cost, Cost::High);
    let hooks = BTreeSet::from([Hook::UringComplete]);
    assert_eq!(tracepoint.rules[1].hooks, hooks);
    assert_eq!(tracepoint.missed, ["close"]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_plan_can_be_explained(rules in rule_entries()) {
        let plan = Plan::compile(rules, &ARCHES);
        let explanation = explain(&plan, EngineKind::Tracepoint, KernelFeatures::V5_15);
        prop_assert_eq!(explanation.rules.len(), plan.rules.len());
        let hooks = plan_hooks(&plan, EngineKind::Fentry, KernelFeatures::V5_15);
        prop_assert_eq!(hooks.is_empty(), !plan.records() && plan.task_slots.is_empty());
    }
}

#[test]
fn results_of_tracepoints_are_unproven() {
    assert!(explained(&[rule(B64, &["mkdir"])]).unproven);
    assert!(!explained(&[rule(B64, &["exit_group"])]).unproven);
    let entry = RuleEntry {
        rule: rule(B64, &["mkdir"]),
        source: 0,
        line: 1,
    };
    let plan = Plan::compile([entry], &ARCHES);
    let on_functions = explain(&plan, EngineKind::Fentry, KernelFeatures::ALL);
    assert!(!on_functions.unproven);
}

#[test]
fn conditions_on_unseen_objects_are_noted() {
    let notes = |arch, names: &[&str], field| {
        let mut rule = rule(arch, names);
        rule.fields.push(test(field, 0));
        let notes = explained(&[rule]).rules.remove(0).notes;
        let names = notes.into_iter().find_map(|note| match note {
            RuleNote::UnseenObjects(names) => Some(names),
            _ => None,
        });
        names.unwrap_or_default()
    };
    let some = [
        "openat",
        "bpf",
        "fanotify_mark",
        "mq_timedsend",
        "read",
        "bind",
    ];
    assert_eq!(notes(B64, &some, Field::ObjUid), ["bpf", "read"]);
    assert_eq!(notes(B64, &["bpf"], Field::Uid), [""; 0]);
    let whole = notes(B64, &[], Field::Inode);
    assert!(
        whole.contains(&"mq_open") && !whole.contains(&"read"),
        "{whole:?}"
    );
}
