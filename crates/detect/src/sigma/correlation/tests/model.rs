//! Windows that keep only what decides match as a model that keeps every event.

use std::collections::{BTreeSet, HashMap};

use super::Tested;

/// All events of a group: time in milliseconds, serial, rule, and a value.
#[derive(Default)]
struct Group {
    events: Vec<(u64, u32, usize, String)>,
    latest_ms: u64,
    matched_ms: Option<u64>,
    holds: bool,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Events,
    Values,
    Rules,
    Order,
}

fn measure(kind: Kind, events: &[&(u64, u32, usize, String)]) -> usize {
    match kind {
        Kind::Events => events.len(),
        Kind::Values => events
            .iter()
            .map(|event| &event.3)
            .collect::<BTreeSet<_>>()
            .len(),
        Kind::Rules => events
            .iter()
            .map(|event| event.2)
            .collect::<BTreeSet<_>>()
            .len(),
        Kind::Order => {
            let mut sorted = events.to_vec();
            sorted.sort_by_key(|event| (event.0, event.1));
            // The earliest event of each rule leaves most for those behind it.
            sorted.iter().fold(0, |next, event| match event.2 == next {
                true => next + 1,
                false => next,
            })
        }
    }
}

#[test]
fn windows_match_as_a_model_that_forgets_nothing() {
    let mut state: u64 = 11;
    let mut random = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % most
    };
    let mut total = 0;
    for (name, kind, field) in [
        ("event_count", Kind::Events, ""),
        ("value_count", Kind::Values, "    field: LogonId\n"),
        ("temporal", Kind::Rules, ""),
        ("temporal_ordered", Kind::Order, ""),
    ] {
        for (bounds, holds) in [
            ("gte: 3", (|count| count >= 3) as fn(usize) -> bool),
            ("eq: 2", |count| count == 2),
            ("gt: 1\n    lte: 2", |count| count > 1 && count <= 2),
        ] {
            let section = format!(
                "type: {name}\nrules: [a, b, c]\ngroup-by: [User]\ntimespan: 20s\ncondition:\n{field}    {bounds}\n"
            );
            let mut tested = Tested::new(&[&section]);
            let mut groups: HashMap<&str, Group> = HashMap::new();
            let mut second = 1000;
            for serial in 1..3000 {
                second += random(6);
                // Events of an order come late by the lengths of their syscalls only.
                let late = if kind == Kind::Order { 1 } else { 5 };
                let at = second - random(late);
                let rule = usize::try_from(random(3)).unwrap();
                let user = ["x", "y", "z"][usize::try_from(random(3)).unwrap()];
                let matched = tested.event(at, ["a", "b", "c"][rule], user);
                let group = groups.entry(user).or_default();
                let ms = at * 1000;
                group.events.push((ms, serial, rule, serial.to_string()));
                group.latest_ms = group.latest_ms.max(ms);
                let begin = group.latest_ms.saturating_sub(20_000);
                let window = group.events.iter().filter(|event| event.0 >= begin);
                let does_hold = holds(measure(kind, &window.collect::<Vec<_>>()));
                let is_again = group
                    .matched_ms
                    .is_none_or(|matched| group.latest_ms - matched > 20_000);
                let expected = does_hold && (!group.holds || is_again);
                group.holds = does_hold;
                if expected {
                    group.matched_ms = Some(group.latest_ms);
                    total += 1;
                }
                assert_eq!(
                    !matched.is_empty(),
                    expected,
                    "{section}{serial}: {user} at {at}"
                );
            }
        }
    }
    assert!(total > 1000, "{total}");
}
