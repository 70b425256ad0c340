//! Tests of what is shown and what is counted.

use audit::event::Timestamp;

use super::*;
use crate::alert::Subject;
use crate::sigma::{Level, Rule, Source};

fn alert(rule: &str, image: &str, sec: u64) -> Alert {
    Alert {
        correlated: None,
        id: format!("{rule}:{sec}"),
        kind: Kind::New,
        time: Timestamp { sec, milli: 0 },
        serial: 1,
        node: None,
        rule: Rule {
            name: None,
            id: rule.to_owned(),
            title: rule.to_owned(),
            author: None,
            level: Level::High,
            tags: Vec::new(),
            source: Some(Source::Record),
            absent_fields: Vec::new(),
        },
        subject: Subject {
            image: image.to_owned(),
            ..Subject::default()
        },
        ancestors: Vec::new(),
        fields: Vec::new(),
    }
}

fn throttle(window_secs: u64, per_minute: usize) -> Throttle {
    Throttle::new(Limits {
        window_secs,
        per_minute,
    })
}

fn shown(show: &mut Vec<Alert>) -> Vec<(String, Kind)> {
    let shown = show.drain(..);
    shown.map(|alert| (alert.id, alert.kind)).collect()
}

#[test]
fn repeated_events_are_counted_within_their_window() {
    let mut throttle = throttle(100, 1000);
    let mut show = Vec::new();
    for (rule, image, sec) in [
        ("a", "/x", 1000),
        ("a", "/x", 1010),
        ("a", "/x", 1099),
        ("b", "/x", 1099),
        ("a", "/y", 1099),
    ] {
        throttle.take(alert(rule, image, sec), &mut show);
    }
    let new = |id: &str| (id.to_owned(), Kind::New);
    assert_eq!(
        shown(&mut show),
        [new("a:1000"), new("b:1099"), new("a:1099")]
    );
    throttle.take(alert("a", "/x", 1100), &mut show);
    assert_eq!(
        shown(&mut show),
        [("a:1000".to_owned(), Kind::Repeated(2)), new("a:1100")]
    );
    throttle.take(alert("a", "/x", 1101), &mut show);
    throttle.end(&mut show);
    assert_eq!(shown(&mut show), [("a:1100".to_owned(), Kind::Repeated(1))]);
    assert!(throttle.entities.is_empty());
}

#[test]
fn without_a_window_each_event_is_an_alert() {
    let mut throttle = throttle(0, 1000);
    let mut show = Vec::new();
    for _ in 0..3 {
        throttle.take(alert("a", "/x", 1000), &mut show);
    }
    assert_eq!(show.len(), 3);
}

#[test]
fn rate_limit_leaves_out_and_tells_how_many() {
    let mut throttle = throttle(0, 2);
    let mut show = Vec::new();
    for second in 0..6 {
        throttle.take(alert(["a", "b"][second % 2], "/x", 600), &mut show);
    }
    assert_eq!(show.len(), 2);
    assert!(throttle.has_left_out());
    show.clear();
    throttle.summarise(&mut show);
    assert_eq!(show[0].kind, Kind::LeftOut(4));
    assert_eq!(
        show[0].fields,
        [("a", "2"), ("b", "2")].map(|(rule, count)| (rule.to_owned(), count.to_owned()))
    );
    assert!(!throttle.has_left_out());
    show.clear();
    // The next minute; and one of an older event, as of another node.
    throttle.take(alert("a", "/x", 660), &mut show);
    throttle.take(alert("a", "/x", 600), &mut show);
    throttle.take(alert("a", "/x", 600), &mut show);
    assert_eq!(show.len(), 2);
}

#[test]
fn many_alerts_of_a_rule_hide_no_other_rule_and_user() {
    let mut throttle = throttle(300, 3);
    let mut show = Vec::new();
    for number in 0..100 {
        throttle.take(alert("decoy", &number.to_string(), 600), &mut show);
    }
    let user = |rule: &str, uid| {
        let mut alert = alert(rule, "/x", 601);
        alert.subject.user = Some((uid, "name".to_owned()));
        alert
    };
    for alert in [user("real", 1), user("real", 1), user("decoy", 2)] {
        throttle.take(alert, &mut show);
    }
    let rules: Vec<&str> = show.iter().map(|alert| &*alert.rule.id).collect();
    assert_eq!(rules, ["decoy", "decoy", "decoy", "real", "decoy"]);
    show.clear();
    throttle.summarise(&mut show);
    assert_eq!(show[0].kind, Kind::LeftOut(97));
}

/// Names and arguments have up to 4,096 characters, and each alert those of 16 processes.
#[test]
fn long_texts_are_bounded_too() {
    let mut throttle = throttle(300, 100_000);
    let mut show = Vec::new();
    for number in 0..4000 {
        let mut alert = alert("a", &number.to_string(), 600);
        let long = "x".repeat(4096);
        alert.fields = vec![("CommandLine".to_owned(), long); 20];
        throttle.take(alert, &mut show);
        show.clear();
    }
    let kept = throttle.entities.values();
    let bytes: usize = kept.map(|entity| entity.first.text_bytes()).sum();
    assert_eq!(bytes, throttle.bytes);
    assert!(
        bytes <= MAX_BYTES && throttle.entities.len() > 100,
        "{bytes}"
    );
    throttle.end(&mut show);
    assert_eq!(throttle.bytes, 0);
}

#[test]
fn memory_is_bounded_and_what_is_forgotten_is_told() {
    let mut throttle = throttle(1_000_000, 100_000);
    let mut show = Vec::new();
    for number in 0..10_000 {
        for _ in 0..2 {
            throttle.take(alert("a", &number.to_string(), 1000), &mut show);
        }
    }
    assert_eq!(throttle.entities.len(), MAX_ENTITIES);
    assert_eq!(throttle.order.len(), MAX_ENTITIES);
    throttle.end(&mut show);
    let total: u64 = show.iter().map(|alert| alert.kind.count()).sum();
    assert_eq!(total, 20_000);
    for number in 0..200_000_u32 {
        throttle.take(alert(&number.to_string(), "/x", 2000), &mut show);
        show.clear();
    }
    assert!(throttle.by_rule.len() <= MAX_SUMMARY + 1);
}
