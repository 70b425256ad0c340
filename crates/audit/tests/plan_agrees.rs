//! The plan agrees with the plain evaluator, whatever the rules and whatever happened.

#[cfg(test)]
mod random;

#[cfg(test)]
mod tests {
    use audit::plan::eval::other_lists::first_operation_match;
    use audit::plan::eval::{EventFacts, first_match};
    use audit::plan::uring::URING_OPS;
    use audit::plan::verdict::Verdict;
    use audit::plan::{Plan, RuleId};
    use audit::rule::{Action, Rule};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use crate::random::{ARCHES, happening, is_covered, listed, marked};

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 500,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn same_rule_wins(rules in listed(), happenings in vec(happening(), 60)) {
            let plan = Plan::compile(rules, &ARCHES);
            let rules: Vec<Rule> = plan.rules.iter().map(|planned| planned.rule.clone()).collect();
            for happening in happenings.iter().filter(|happening| is_covered(&rules, happening)) {
                let observed = happening.observed();
                let mark = marked(&rules, &observed);
                prop_assert_eq!(plan.mark(&observed), mark, "{:?}", happening);
                let observed = EventFacts { mark, ..observed };
                let plain = first_match(&rules, &observed);
                let winner = plain.map(|index| RuleId(index.try_into().unwrap()));
                let records = plain.is_some_and(|index| rules[index].action == Action::Always);
                match plan.evaluate(&observed) {
                    Verdict::Record(id) => prop_assert_eq!(Some(id), winner, "{:?}", happening),
                    Verdict::Suppress(id) => {
                        prop_assert!(!records);
                        prop_assert_eq!(Some(id), winner, "{:?}", happening);
                    }
                    Verdict::NoMatch => prop_assert!(!records, "{:?} by {:?}", happening, plain),
                }
            }
        }

        #[test]
        fn same_rule_wins_for_operations(
            rules in listed(),
            done in vec((happening(), select(&URING_OPS)), 60),
            with_calls: bool,
        ) {
            let plan = Plan::compile(rules, &ARCHES);
            let rules: Vec<Rule> = plan.rules.iter().map(|planned| planned.rule.clone()).collect();
            for (happening, operation) in &done {
                let observed = happening.as_operation(operation);
                let mark = marked(&rules, &observed);
                let observed = EventFacts { mark, ..observed };
                let plain = first_operation_match(&rules, operation, &observed, with_calls);
                let winner = plain.map(|index| RuleId(index.try_into().unwrap()));
                let records = plain.is_some_and(|index| rules[index].action == Action::Always);
                match plan.evaluate_operation(operation, &observed, with_calls) {
                    Verdict::Record(id) => prop_assert_eq!(Some(id), winner, "{:?}", happening),
                    Verdict::Suppress(id) => {
                        prop_assert!(!records);
                        prop_assert_eq!(Some(id), winner, "{:?}", happening);
                    }
                    Verdict::NoMatch => prop_assert!(!records, "{:?} by {:?}", happening, plain),
                }
            }
        }

        #[test]
        fn nothing_is_dropped_in_silence(rules in listed()) {
            let mut lines: Vec<u32> = rules.iter().map(|listed| listed.line).collect();
            let plan = Plan::compile(rules, &ARCHES);
            let beside = [plan.exclude_list.rules(), plan.user_list.rules(), plan.filesystem_list.rules()];
            for listed in beside.into_iter().flatten() {
                lines.retain(|&line| line != listed.line);
            }
            for planned in &plan.rules {
                lines.retain(|&line| line != planned.line);
            }
            let named: Vec<u32> = plan.unsupported.iter().map(|rule| rule.line).collect();
            prop_assert_eq!(lines, named);
            for (call, planned) in &plan.syscalls {
                let last = planned.slots.last().map(|slot| slot.action);
                prop_assert_eq!(last, Some(Action::Always), "{:?} pays for nothing", call);
            }
        }
    }
}
