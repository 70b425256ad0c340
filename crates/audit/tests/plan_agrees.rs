//! The plan agrees with an evaluator that tries all rules in order, for random rules and events.

#[cfg(test)]
mod tests {
    use audit::plan::eval::other_lists::first_operation_match;
    use audit::plan::eval::{EventFacts, first_match};
    use audit::plan::uring::URING_OPS;
    use audit::plan::verdict::Verdict;
    use audit::plan::{Plan, RuleId};
    use audit::rule::{Action, Rule};
    use inputs::rules::{ARCHES, is_covered, random_event, rule_entries, task_state};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 500,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn plan_and_evaluator_agree(rules in rule_entries(), random_events in vec(random_event(), 60)) {
            let plan = Plan::compile(rules, &ARCHES);
            let rules: Vec<Rule> = plan.rules.iter().map(|planned| planned.rule.clone()).collect();
            for random_event in random_events.iter().filter(|random_event| is_covered(&rules, random_event)) {
                let event_facts = random_event.event_facts();
                let task_state = task_state(&rules, &event_facts);
                prop_assert_eq!(plan.task_state(&event_facts), task_state, "{:?}", random_event);
                let event_facts = EventFacts { task_state, ..event_facts };
                let plain = first_match(&rules, &event_facts);
                let winner = plain.map(|index| RuleId(index.try_into().unwrap()));
                let records = plain.is_some_and(|index| rules[index].action == Action::Always);
                match plan.evaluate(&event_facts) {
                    Verdict::Record(id) => prop_assert_eq!(Some(id), winner, "{:?}", random_event),
                    Verdict::Suppress(id) => {
                        prop_assert!(!records);
                        prop_assert_eq!(Some(id), winner, "{:?}", random_event);
                    }
                    Verdict::NoMatch => prop_assert!(!records, "{:?} by {:?}", random_event, plain),
                }
            }
        }

        #[test]
        fn plan_and_evaluator_agree_for_uring_ops(
            rules in rule_entries(),
            done in vec((random_event(), select(&URING_OPS)), 60),
            with_syscalls: bool,
        ) {
            let plan = Plan::compile(rules, &ARCHES);
            let rules: Vec<Rule> = plan.rules.iter().map(|planned| planned.rule.clone()).collect();
            for (random_event, operation) in &done {
                let event_facts = random_event.as_uring_op(operation);
                let task_state = task_state(&rules, &event_facts);
                let event_facts = EventFacts { task_state, ..event_facts };
                let plain = first_operation_match(&rules, operation, &event_facts, with_syscalls);
                let winner = plain.map(|index| RuleId(index.try_into().unwrap()));
                let records = plain.is_some_and(|index| rules[index].action == Action::Always);
                match plan.evaluate_operation(operation, &event_facts, with_syscalls) {
                    Verdict::Record(id) => prop_assert_eq!(Some(id), winner, "{:?}", random_event),
                    Verdict::Suppress(id) => {
                        prop_assert!(!records);
                        prop_assert_eq!(Some(id), winner, "{:?}", random_event);
                    }
                    Verdict::NoMatch => prop_assert!(!records, "{:?} by {:?}", random_event, plain),
                }
            }
        }

        #[test]
        fn every_rule_is_planned_or_reported(rules in rule_entries()) {
            let mut lines: Vec<u32> = rules.iter().map(|entry| entry.line).collect();
            let plan = Plan::compile(rules, &ARCHES);
            let not_compiled = [plan.exclude_list.rules(), plan.user_list.rules(), plan.filesystem_list.rules()];
            for entry in not_compiled.into_iter().flatten() {
                lines.retain(|&line| line != entry.line);
            }
            for planned in &plan.rules {
                lines.retain(|&line| line != planned.line);
            }
            let reported: Vec<u32> = plan.unsupported.iter().map(|rule| rule.line).collect();
            prop_assert_eq!(lines, reported);
            for (syscall_id, planned) in &plan.syscalls {
                let last = planned.slots.last().map(|slot| slot.action);
                prop_assert_eq!(last, Some(Action::Always), "{:?} has overhead without effect", syscall_id);
            }
        }
    }
}
