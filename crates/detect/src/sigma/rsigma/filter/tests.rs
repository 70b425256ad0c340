//! Tests of filters.

use super::*;
use crate::sigma::fields::Fields;
use crate::sigma::rsigma::Rsigma;
use crate::sigma::{Engine as _, Source};

const RULE: &str = "title: Copy\nname: copy\nid: r1\nlogsource:\n    category: process_creation\ndetection:\n    \
    sel_a:\n        Image|endswith: /cp\n    sel_b:\n        User: root\n    condition: all of sel_*\n";

fn filter(section: &str) -> String {
    format!(
        "title: F\nlogsource:\n    category: process_creation\n    product: linux\nfilter:\n{section}"
    )
}

fn matches(engine: &Rsigma, user: &str, command: &str) -> bool {
    let mut event = Fields::default();
    event.text("Image", "/bin/cp");
    event.text("User", user);
    event.text("CommandLine", command);
    let mut found = Vec::new();
    engine.find(Source::Process, &event, &mut found);
    !found.is_empty()
}

#[test]
fn filtered_events_do_not_match() {
    for (rules, condition) in [
        ("r1", "not selection"),
        ("copy", "not 1 of sel*"),
        ("Copy", "not all of them"),
        ("any", "not (selection or other)"),
    ] {
        let mut engine = Rsigma::default();
        let section = format!(
            "    rules: {rules}\n    selection:\n        CommandLine|contains: backup\n    other:\n        \
             CommandLine|endswith: backup\n    condition: {condition}\n"
        );
        engine.add_filter(&filter(&section)).unwrap();
        engine.add(RULE).unwrap();
        assert!(matches(&engine, "root", "cp x"), "{rules}");
        assert!(!matches(&engine, "root", "cp backup"), "{rules}");
        assert!(!matches(&engine, "x", "cp x"), "{rules}");
        assert_eq!(engine.filter_mistakes(), []);
    }
}

/// Names of a filter's selections must not be those that a pattern of the rule selects.
#[test]
fn patterns_of_rules_select_nothing_of_filters() {
    for condition in ["all of *", "1 of *_a and sel_b", "all of them"] {
        let mut engine = Rsigma::default();
        let section = "    rules: [r1]\n    sel_a:\n        CommandLine|contains: backup\n    condition: not sel_a\n";
        engine.add_filter(&filter(section)).unwrap();
        engine
            .add(&RULE.replace("all of sel_*", condition))
            .unwrap();
        assert!(matches(&engine, "root", "cp x"), "{condition}");
        assert!(!matches(&engine, "root", "cp backup"), "{condition}");
    }
}

#[test]
fn what_a_filter_names_must_be_and_fit() {
    let mut engine = Rsigma::default();
    let section = "    rules:\n        - r1\n        - none\n        - win\n    s:\n        User: x\n    condition: not s\n";
    let other = filter(section).replace("process_creation", "file_event");
    engine.add_filter(&other).unwrap();
    engine.add(RULE).unwrap();
    let windows = RULE.replace("id: r1", "id: win").replace(
        "category: process_creation",
        "category: process_creation\n    product: windows",
    );
    assert!(engine.add(&windows).unwrap_err().foreign.is_some());
    let found: Vec<(usize, usize, String)> = engine
        .filter_mistakes()
        .into_iter()
        .map(|(number, mistake)| (number, mistake.line, mistake.reason))
        .collect();
    let expected = |line, reason: &str| (0, line, reason.to_owned());
    assert_eq!(
        found,
        [
            expected(
                8,
                "the filter names `none`, and no rule has this id or name"
            ),
            expected(7, "the rule `r1` has another log source than its filter"),
            expected(9, "the rule `win` has another log source than its filter"),
        ]
    );
    assert!(matches(&engine, "root", "cp x"));
}

#[test]
fn filters_that_would_make_rules_silent_are_refused() {
    let mut engine = Rsigma::default();
    let s = "    s:\n        User: x\n    condition: ";
    for (section, line, reason) in [
        (format!("    rules: [r1]\n{s}s\n"), 9, "is not negated"),
        (
            format!("    rules: [r1]\n{s}not not s\n"),
            9,
            "is not negated",
        ),
        (
            format!("    rules: [r1]\n{s}not 2 of s*\n"),
            9,
            "is counted",
        ),
        (
            format!("    rules: [r1]\n{s}not t\n"),
            9,
            "the condition names `t`",
        ),
        (format!("{s}not s\n"), 5, "has no list `rules`"),
        (
            format!("    rules: [1]\n{s}not s\n"),
            5,
            "has no list `rules`",
        ),
        (format!("    rules: []\n{s}not s\n"), 5, "names no rule"),
        ("    rules: [r1]\n".to_owned(), 1, ""),
        (
            "    rules: any\n    s: {}\n    condition: not s\n".to_owned(),
            5,
            "must not be empty",
        ),
        (
            "    rules: any\n    s:\n        User|cidr: x\n    condition: not s\n".to_owned(),
            5,
            "invalid CIDR",
        ),
        (
            "    rules: any\n    s:\n        User|gt: x\n    condition: not s\n".to_owned(),
            5,
            "expected numeric value",
        ),
    ] {
        let mistake = engine.add_filter(&filter(&section)).unwrap_err();
        assert!(mistake.reason.contains(reason), "{section}: {mistake}");
        assert_eq!(mistake.line, line, "{section}: {mistake}");
    }
    let section = format!("    rules: [r1]\n{s}not s\n");
    let windows = filter(&section).replace("linux", "windows");
    let mistake = engine.add_filter(&windows).unwrap_err();
    assert_eq!(mistake.foreign.as_deref(), Some("windows/process_creation"));
    let without = filter(&section).replace(
        "logsource:\n    category: process_creation\n    product: linux\n",
        "",
    );
    let mistake = engine.add_filter(&without).unwrap_err();
    assert_eq!(mistake.reason, "the filter has no log source");
    // None of them is joined with a rule.
    engine.add(RULE).unwrap();
    assert!(matches(&engine, "root", "cp x"));
}

/// Documents have at most 2000 operators.
#[test]
fn deep_conditions_end() {
    let mut engine = Rsigma::default();
    for (deep, reason) in [
        ("not ".repeat(1991) + "s", "more than 64 levels"),
        ("not (".repeat(1991) + "s" + &")".repeat(1991), ""),
    ] {
        let section = format!("    rules: any\n    s:\n        User: x\n    condition: {deep}\n");
        let mistake = engine.add_filter(&filter(&section)).unwrap_err();
        assert!(mistake.reason.contains(reason), "{mistake}");
    }
    engine.add(RULE).unwrap();
    assert!(matches(&engine, "root", "cp x"));
}

#[test]
fn many_filters_are_bounded() {
    let mut engine = Rsigma::default();
    let section = "    rules: any\n    s:\n        User: x\n    condition: not s\n";
    for _ in 0..MAX_FILTERS {
        engine.add_filter(&filter(section)).unwrap();
    }
    let mistake = engine.add_filter(&filter(section)).unwrap_err();
    assert!(
        mistake.reason.contains("only the first 1000 filters"),
        "{mistake}"
    );
    let mut engine = Rsigma::default();
    let values = "x, ".repeat(2000);
    let section =
        format!("    rules: any\n    s:\n        User: [{values}]\n    condition: not s\n");
    engine.add_filter(&filter(&section)).unwrap();
    for number in 0..MAX_JOINED / 2000 {
        let rule = RULE.replace("id: r1", &format!("id: n{number}"));
        engine.add(&rule).unwrap();
    }
    let mistake = engine.add(RULE).unwrap_err();
    assert!(
        mistake.reason.contains("more than 200000 values"),
        "{mistake}"
    );
}
