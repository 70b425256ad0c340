//! The plan agrees with an evaluator that tries all rules in order, for random rules and events.

#[cfg(test)]
mod tests {
    use audit::plan::eval::other_lists::{first_completion_match, first_operation_match};
    use audit::plan::eval::{EventFacts, first_match};
    use audit::plan::uring::URING_OPS;
    use audit::plan::verdict::Verdict;
    use audit::plan::{Plan, RuleId};
    use audit::rule::{Action, Rule};
    use inputs::rules::{ARCHES, RandomEvent, is_covered, random_event, rule_entries, task_state};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::TestCaseError;

    /// Fails unless the plan decides as the rule that matches first.
    fn agree(
        rules: &[Rule],
        first: Option<usize>,
        verdict: Verdict,
        random_event: &RandomEvent,
    ) -> Result<(), TestCaseError> {
        let winner = first.map(|index| RuleId(index.try_into().unwrap()));
        let records = first.is_some_and(|index| rules[index].action == Action::Always);
        match verdict {
            Verdict::Record(id) => prop_assert_eq!(Some(id), winner, "{:?}", random_event),
            Verdict::Suppress(id) => {
                prop_assert!(!records);
                prop_assert_eq!(Some(id), winner, "{:?}", random_event);
            }
            Verdict::NoMatch => prop_assert!(!records, "{:?} by {:?}", random_event, first),
        }
        Ok(())
    }

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
                agree(&rules, plain, plan.evaluate(&event_facts), random_event)?;
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
                agree(&rules, plain, plan.evaluate_operation(operation, &event_facts, with_syscalls), random_event)?;
            }
        }

        #[test]
        fn plan_and_evaluator_agree_for_completions(
            rules in rule_entries(),
            done in vec((random_event(), select(&URING_OPS), option::of(select(&ARCHES[..]))), 60),
        ) {
            let plan = Plan::compile(rules, &ARCHES);
            let rules: Vec<Rule> = plan.rules.iter().map(|planned| planned.rule.clone()).collect();
            for (random_event, operation, uring_enter) in &done {
                let event_facts = random_event.as_completion(operation, *uring_enter);
                let task_state = task_state(&rules, &event_facts);
                let event_facts = EventFacts { task_state, ..event_facts };
                let plain = first_completion_match(&rules, operation, &event_facts);
                let verdict = plan.evaluate_completion(operation, &event_facts);
                agree(&rules, plain, verdict, random_event)?;
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
