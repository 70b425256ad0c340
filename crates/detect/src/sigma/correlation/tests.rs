//! Tests of correlation rules.

mod mistakes;
mod model;
mod saved;

use std::time::{Duration, Instant};

use super::*;
use crate::sigma::fields::Fields;
use crate::sigma::rsigma::Rsigma;
use crate::sigma::{Engine as _, Mistake, Source};

/// Rules `a`, `b` and `c` of programs with these names.
fn engine() -> Rsigma {
    let mut engine = Rsigma::default();
    for name in ["a", "b", "c"] {
        let rule = format!(
            "title: T{name}\nid: id-{name}\nname: {name}\nlogsource:\n    category: process_creation\n\
             detection:\n    s:\n        Image: /{name}\n    condition: s\nlevel: low\n"
        );
        engine.add(&rule).unwrap();
    }
    engine
}

fn correlation(section: &str) -> String {
    let lines: Vec<String> = section
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    format!(
        "title: Correlated\nid: corr\nlevel: high\ncorrelation:\n{}",
        lines.concat()
    )
}

/// Correlation rules with their engine.
struct Tested {
    engine: Rsigma,
    correlations: Correlations,
    serial: u32,
}

impl Tested {
    #[track_caller]
    fn new(sections: &[&str]) -> Self {
        let (tested, mistakes) = Self::with_mistakes(sections);
        assert!(mistakes.iter().all(Option::is_none), "{mistakes:?}");
        tested
    }

    fn with_mistakes(sections: &[&str]) -> (Self, Vec<Option<Mistake>>) {
        let numbered = sections.iter().enumerate().map(|(number, section)| {
            let text = correlation(section);
            match number {
                0 => text,
                number => {
                    text.replace("id: corr", &format!("id: corr{number}\nname: corr{number}"))
                }
            }
        });
        let documents: Vec<String> = numbered.collect();
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let mut engine = engine();
        let (correlations, mistakes) = resolve(&mut engine, &documents);
        let tested = Self {
            engine,
            correlations,
            serial: 0,
        };
        (tested, mistakes)
    }

    /// Correlations that match an event at a second.
    fn event(&mut self, second: u64, image: &str, user: &str) -> Vec<Correlated> {
        self.serial += 1;
        let mut event = Fields::default();
        event.text("Image", format!("/{image}"));
        event.text("User", user.to_owned());
        event.text("LogonId", self.serial.to_string());
        let mut found = Vec::new();
        self.engine.find(Source::Process, &event, &mut found);
        let mut matched = Vec::new();
        let event = EventId(second * 1000, self.serial, Some("node-1".into()));
        self.correlations.find(&event, &found, &mut matched);
        matched
    }

    /// Numbers of the events, from 1, with which a correlation matches.
    #[track_caller]
    fn matching(&mut self, events: &[(u64, &str, &str)]) -> Vec<u32> {
        let mut matching = Vec::new();
        for (second, image, user) in events {
            if !self.event(*second, image, user).is_empty() {
                matching.push(self.serial);
            }
        }
        matching
    }
}

const COUNT: &str =
    "type: event_count\nrules: [a]\ngroup-by: [User]\ntimespan: 10s\ncondition:\n    gte: 3\n";

#[test]
fn events_are_counted_by_group_within_the_timespan() {
    let mut tested = Tested::new(&[COUNT]);
    let events = [
        (100, "a", "x"),
        (101, "a", "y"),
        (102, "a", "x"),
        (103, "b", "x"),
        (110, "a", "x"), // three of x within ten seconds
        (111, "a", "x"), // again, but the condition held all the time
        (125, "a", "x"),
        (126, "a", "x"),
        (127, "a", "x"),
    ];
    assert_eq!(tested.matching(&events), [5, 9]);
    let mut tested = Tested::new(&[COUNT]);
    let late = [
        (100, "a", "x"),
        (111, "a", "x"),
        (112, "a", "x"),
        (113, "a", "y"),
    ];
    assert_eq!(tested.matching(&late), [0; 0]);
    // An event that comes late is counted at its time.
    assert_eq!(tested.matching(&[(109, "a", "x")]), [5]);
}

#[test]
fn match_names_its_events_and_its_group() {
    let mut tested = Tested::new(&[COUNT]);
    tested.event(100, "a", "x");
    tested.event(101, "a", "x");
    let matched = tested.event(102, "a", "x").remove(0);
    assert_eq!(tested.correlations.rules()[0].title, "Correlated");
    assert_eq!(matched.rule, 3);
    assert_eq!(matched.group, [("User".to_owned(), "x".to_owned())]);
    let events = ["100.000:1:node-1", "101.000:2:node-1", "102.000:3:node-1"];
    assert_eq!(matched.events, events);
    assert_eq!(matched.measure, ("event_count".to_owned(), "3".to_owned()));
    assert!(tested.correlations.is_silent(0) && !tested.correlations.is_silent(1));
    assert!(!tested.correlations.is_silent(3));
    assert_eq!(tested.correlations.needed_by(3), [0]);
}

/// Long attacks are told once in each timespan.
#[test]
fn condition_that_holds_is_told_again_after_a_timespan() {
    let mut tested = Tested::new(&[COUNT]);
    let events: Vec<(u64, &str, &str)> = (100..135).map(|second| (second, "a", "x")).collect();
    assert_eq!(tested.matching(&events), [3, 14, 25]);
}

#[test]
fn values_are_counted_once() {
    let mut tested = Tested::new(&[
        "type: value_count\nrules: [a, b]\ntimespan: 1m\ncondition:\n    field: User\n    gt: 2\n",
    ]);
    let events = [
        (100, "a", "x"),
        (101, "a", "x"),
        (102, "b", "y"),
        (103, "a", "x"),
        (104, "c", "z"),
        (105, "a", "z"), // the third value
    ];
    assert_eq!(tested.matching(&events), [6]);
    assert_eq!(tested.matching(&[(190, "a", "z"), (191, "a", "w")]), [0; 0]);
}

#[test]
fn temporal_needs_all_rules_in_any_order() {
    let section = "type: temporal\nrules: [a, b, c]\ngroup-by: [User]\ntimespan: 10s\n";
    let mut tested = Tested::new(&[section]);
    let events = [
        (100, "c", "x"),
        (101, "a", "x"),
        (101, "b", "y"),
        (105, "b", "x"), // all three of x
        (112, "a", "x"),
        (113, "c", "x"), // c had expired
        (140, "a", "x"),
        (141, "b", "x"),
        (151, "c", "x"), // a has expired
    ];
    assert_eq!(tested.matching(&events), [4, 6]);
    let some = section.to_owned() + "condition:\n    gte: 2\n";
    let mut tested = Tested::new(&[&some]);
    assert_eq!(tested.matching(&[(100, "c", "x"), (101, "a", "x")]), [2]);
}

#[test]
fn temporal_ordered_needs_their_order() {
    let section = "type: temporal_ordered\nrules: [a, b, c]\ngroup-by: [User]\ntimespan: 10s\n";
    let of = |events: &[(u64, &str, &str)]| Tested::new(&[section]).matching(events);
    assert_eq!(of(&[(1, "a", "x"), (2, "b", "x"), (3, "c", "x")]), [3]);
    assert_eq!(of(&[(1, "b", "x"), (2, "a", "x"), (3, "c", "x")]), [0; 0]);
    assert_eq!(
        of(&[
            (1, "c", "x"),
            (2, "b", "x"),
            (3, "a", "x"),
            (4, "b", "x"),
            (5, "c", "x")
        ]),
        [5]
    );
    assert_eq!(of(&[(1, "a", "x"), (2, "b", "x"), (12, "c", "x")]), [0; 0]);
    // Records of an event come when its syscall ends.
    assert_eq!(of(&[(2, "b", "x"), (3, "c", "x"), (1, "a", "x")]), [3]);
    // No number of events hides those before them.
    let mut many = vec![(1, "a", "x"), (2, "b", "x")];
    many.extend((0..5000).map(|_| (3, "a", "x")));
    many.push((4, "c", "x"));
    assert_eq!(of(&many), [5003]);
    // An event does not come before itself.
    let twice = "type: temporal_ordered\nrules: [a, a]\ntimespan: 10s\n";
    let mut tested = Tested::new(&[twice]);
    assert_eq!(tested.matching(&[(1, "a", "x"), (2, "a", "x")]), [2]);
}

#[test]
fn numbers_are_summed_and_averaged() {
    let section = |kind: &str, bound: &str| {
        format!(
            "type: {kind}\nrules: a\ntimespan: 10s\ncondition:\n    field: LogonId\n    {bound}\n"
        )
    };
    let events: Vec<(u64, &str, &str)> = (0..6).map(|second| (second, "a", "x")).collect();
    let mut tested = Tested::new(&[&section("value_sum", "gt: 9")]);
    assert_eq!(tested.matching(&events), [4]);
    let mut tested = Tested::new(&[&section("value_avg", "gte: 2.5")]);
    assert_eq!(tested.matching(&events), [4]);
}

#[test]
fn correlations_refer_to_others_and_generate() {
    let outer = "type: temporal_ordered\nrules: [corr1, b]\ngroup-by: [who]\ntimespan: 1m\naliases:\n    who:\n        \
                 corr1: User\n        b: User\n";
    let inner = format!("{COUNT}generate: true\n");
    let mut tested = Tested::new(&[outer, &inner]);
    assert!(!tested.correlations.is_silent(0), "generate");
    assert!(tested.correlations.is_silent(1));
    assert!(tested.correlations.is_silent(4));
    assert_eq!(tested.correlations.needed_by(3), [0, 1]);
    let events = [
        (100, "a", "x"),
        (101, "a", "x"),
        (102, "a", "x"), // the inner one
        (103, "b", "y"),
        (104, "b", "x"), // the outer one
    ];
    assert_eq!(tested.matching(&events), [3, 5]);
}

/// A long attack is told once in each timespan, and the login after it is what the outer rule is for.
#[test]
fn attack_that_goes_on_is_followed_by_what_an_outer_order_waits_for() {
    let outer = "type: temporal_ordered\nrules: [corr1, b]\ngroup-by: [User]\ntimespan: 5s\n";
    for length in 3..40 {
        let mut tested = Tested::new(&[outer, COUNT]);
        for second in 0..length {
            tested.event(100 + second, "a", "x");
        }
        let matched = tested.event(100 + length, "b", "x");
        assert_eq!(matched.len(), 1, "{length}");
        assert_eq!(matched[0].rule, 3);
        // The last failure is the one before.
        assert_eq!(matched[0].events.len(), 2);
        assert!(matched[0].events[0].starts_with(&format!("{}.", 99 + length)));
    }
    // Counts are of the matches.
    let count = "type: event_count\nrules: [corr1]\ntimespan: 1m\ncondition:\n    gte: 2\n";
    let mut tested = Tested::new(&[count, COUNT]);
    let events: Vec<(u64, &str, &str)> = (100..115).map(|second| (second, "a", "x")).collect();
    let matched = events
        .iter()
        .map(|(second, image, user)| tested.event(*second, image, user));
    assert_eq!(
        matched
            .map(|matched| matched.len())
            .collect::<Vec<_>>()
            .iter()
            .sum::<usize>(),
        3
    );
}

/// Whatever the order of the documents is.
#[test]
fn inner_rules_that_match_with_the_same_event_follow_each_other() {
    let count = |least: u32| {
        format!("type: event_count\nrules: [a]\ntimespan: 10s\ncondition:\n    gte: {least}\n")
    };
    let events: Vec<(u64, &str, &str)> = (100..104).map(|second| (second, "a", "x")).collect();
    let (two, four) = (count(2), count(4));
    for (first, second, rules) in [
        (&two, &four, "[corr1, corr2]"),
        (&four, &two, "[corr2, corr1]"),
    ] {
        let outer = format!("type: temporal_ordered\nrules: {rules}\ntimespan: 10s\n");
        let mut tested = Tested::new(&[&outer, first, second]);
        let mut matched = Vec::new();
        for (second, image, user) in &events {
            matched.extend(tested.event(*second, image, user));
        }
        let outer = matched.iter().filter(|matched| matched.rule == 3);
        assert_eq!(outer.count(), 1, "{rules}");
    }
}

/// Each layer refers twice to each of the one before.
#[test]
fn chains_with_many_ways_take_no_time() {
    let layers = 100;
    let mut sections = vec!["type: temporal\nrules: [a]\ntimespan: 1m\n".to_owned(); 2];
    for layer in 1..layers {
        let (left, right) = (layer * 2 - 2, layer * 2 - 1);
        let section = format!("type: temporal\nrules: [c{left}, c{right}]\ntimespan: 1m\n");
        sections.extend([section.clone(), section]);
    }
    let documents = sections.iter().enumerate();
    let documents: Vec<String> = documents
        .map(|(number, section)| {
            correlation(section).replace("id: corr", &format!("id: c{number}"))
        })
        .collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let mut engine = engine();
    let (correlations, mistakes) = resolve(&mut engine, &documents);
    assert!(mistakes.iter().all(Option::is_none), "{mistakes:?}");
    let mut tested = Tested {
        engine,
        correlations,
        serial: 0,
    };
    let begun = Instant::now();
    assert_eq!(tested.event(100, "a", "x").len(), layers * 2);
    assert_eq!(tested.event(101, "a", "x").len(), 0);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Users choose the values of groups.
#[test]
fn memory_is_bounded_and_what_is_forgotten_is_counted() {
    let mut tested = Tested::new(&[COUNT, COUNT]);
    let begun = Instant::now();
    for number in 0..100_000 {
        tested.event(100, "a", &format!("{number}{}", "x".repeat(300)));
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    let remembered = tested.correlations.remembered();
    assert!(
        remembered.groups > 1000 && remembered.groups < 50_000,
        "{remembered:?}"
    );
    assert!(remembered.forgotten > 1000, "{remembered:?}");
    let warning = tested.correlations.warning().unwrap();
    assert!(
        warning.starts_with("correlation rule `Correlated` has too many groups"),
        "{warning}"
    );
    assert_eq!(tested.correlations.warning(), None);
    let text = serde_json::to_string(&tested.correlations.save("c".to_owned())).unwrap();
    assert!(text.len() < 32 << 20, "{}", text.len());
    // Another rule, and the groups that are used, are not forgotten.
    tested.event(101, "a", "y");
    tested.event(101, "a", "y");
    for number in 0..1000 {
        tested.event(101, "a", &number.to_string());
    }
    assert_eq!(tested.event(102, "a", "y").len(), 2);
    // Groups go with their time.
    tested.event(200, "a", "y");
    assert_eq!(tested.correlations.remembered().groups, 2);
}

#[test]
fn many_correlations_are_bounded() {
    let texts: Vec<String> = (0..10_000)
        .map(|number| correlation(COUNT).replace("id: corr", &format!("id: c{number}")))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut engine = engine();
    let (correlations, mistakes) = resolve(&mut engine, &texts);
    assert_eq!(correlations.rules().len(), 1000);
    assert_eq!(mistakes.iter().flatten().count(), 9000);
    let large: Vec<String> = (0..100)
        .map(|number| {
            let text = correlation(&COUNT.replace("gte: 3", "gte: 10000"));
            text.replace("id: corr", &format!("id: c{number}"))
        })
        .collect();
    let large: Vec<&str> = large.iter().map(String::as_str).collect();
    let (correlations, mistakes) = resolve(&mut engine, &large);
    assert!(correlations.rules().len() > 5);
    let told = mistakes.iter().flatten().next().unwrap();
    assert!(told.reason.contains("are too large"), "{told}");
}

#[test]
fn clock_that_is_set_back_stops_no_correlation() {
    let mut tested = Tested::new(&[COUNT]);
    tested.event(100_000, "a", "x");
    let events = [(100, "a", "x"), (101, "a", "x"), (102, "a", "x")];
    assert_eq!(tested.matching(&events), [4]);
    assert_eq!(tested.correlations.remembered().late, 3);
}

/// The time of an event is that of the begin of its call, and a task can let calls sleep: an open of a FIFO does until
/// another one opens it.
#[test]
fn event_that_comes_late_ends_no_window() {
    let mut tested = Tested::new(&[COUNT]);
    let mut events = Vec::new();
    for second in 0..3 {
        events.extend([(1000 + second, "a", "x"), (100 + second * 50, "a", "x")]);
    }
    assert_eq!(tested.matching(&events), [5]);
    assert_eq!(tested.correlations.remembered().late, 3);
    // Both groups are kept between runs.
    let text = serde_json::to_string(&tested.correlations.save("c".to_owned())).unwrap();
    let mut next = Tested::new(&[COUNT]);
    assert_eq!(
        next.correlations
            .restore(super::saved::Saved::parse(&text).unwrap()),
        0
    );
    assert_eq!(
        next.correlations.remembered(),
        tested.correlations.remembered()
    );
}
