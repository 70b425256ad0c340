//! Tests of what is kept between runs.

use super::{COUNT, Tested};
use crate::sigma::Match;
use crate::sigma::correlation::EventId;
use crate::sigma::correlation::saved::{MAX_TEXT_BYTES, Saved};

/// What a run remembers is that of a run without an end between.
#[test]
fn state_that_is_saved_and_restored_matches_the_same() {
    let sections = [
        COUNT,
        "type: value_count\nrules: [a, b]\ngroup-by: [node]\ntimespan: 1m\ncondition:\n    field: [User, node]\n    gt: 2\n",
        "type: temporal\nrules: [a, b, c]\ngroup-by: [User]\ntimespan: 10s\n",
        "type: temporal_ordered\nrules: [a, b, c]\ngroup-by: [User]\ntimespan: 20s\n",
        "type: value_sum\nrules: a\ntimespan: 10s\ncondition:\n    field: LogonId\n    gt: 900\n",
    ];
    let mut state: u64 = 7;
    let mut random = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % most
    };
    let mut second = 100;
    let events: Vec<(u64, &str, &str)> = (0..2000)
        .map(|_| {
            second += random(4);
            let image = ["a", "b", "c"][usize::try_from(random(3)).unwrap()];
            let user = ["x", "y", "z", "w"][usize::try_from(random(4)).unwrap()];
            (second - random(3), image, user)
        })
        .collect();
    let mut whole = Tested::new(&sections);
    let mut parts = Tested::new(&sections);
    let mut total = 0;
    for (number, (second, image, user)) in events.iter().enumerate() {
        let expected = whole.event(*second, image, user);
        total += expected.len();
        assert_eq!(parts.event(*second, image, user), expected);
        if number % 97 == 0 {
            let text = parts.correlations.save("1:2:3:4:5".to_owned());
            let text = serde_json::to_string(&text).unwrap();
            let serial = parts.serial;
            parts = Tested::new(&sections);
            parts.serial = serial;
            let saved = Saved::parse(&text).unwrap();
            assert_eq!(parts.correlations.restore(saved), 0);
            // The reader may return the last event again.
            parts.serial -= 1;
            assert_eq!(parts.event(*second, image, user), []);
        }
    }
    assert!(total > 100, "{total}");
}

#[test]
fn state_of_other_rules_or_that_is_damaged_is_left_out() {
    let mut tested = Tested::new(&[COUNT]);
    tested.event(100, "a", "x");
    tested.event(100, "a", "y");
    let text = serde_json::to_string(&tested.correlations.save("c".to_owned())).unwrap();
    let restore = |text: &str, section: &str| {
        let mut tested = Tested::new(&[section]);
        let left_out = tested.correlations.restore(Saved::parse(text).unwrap());
        (left_out, tested.correlations.remembered().groups)
    };
    assert_eq!(restore(&text, COUNT), (0, 2));
    assert_eq!(restore(&text, &COUNT.replace("gte: 3", "gte: 4")), (2, 0));
    let many = format!("[{}[100000,1,null]]", "[100000,1,null],".repeat(10));
    for (from, to) in [
        ("\"key\":[\"x\"]", "\"key\":[\"x\",\"y\"]"),
        (
            "\"key\":[\"x\"]",
            &format!("\"key\":[\"{}\"]", "x".repeat(257)),
        ),
        ("{\"Events\":", "{\"Rules\":"),
        ("[[100000,1,\"node-1\"]]", &many),
        (
            "[[100000,1,\"node-1\"]]",
            "[[100000,1,null],[99999,2,null]]",
        ),
        ("[100000,1,", "[18446744073709551615,1,"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(restore(&changed, COUNT), (1, 1), "{from}");
    }
    Saved::parse("{}").unwrap_err();
    Saved::parse(text.get(..text.len() / 2).unwrap()).unwrap_err();
    let error = Saved::parse(&text.replace("\"version\":1", "\"version\":2")).unwrap_err();
    assert!(error.to_string().starts_with("it has version 2"), "{error}");
}

/// Users choose the values of groups, and with them how long the text is: one that is not read would make all rules begin
/// anew.
#[test]
fn text_of_the_largest_groups_is_read() {
    let names = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"];
    let section = format!(
        "type: event_count\nrules: a\ngroup-by: [{}]\ntimespan: 1h\ncondition:\n    gte: 3\n",
        names.join(", ")
    );
    let mut tested = Tested::new(&[&section]);
    for serial in 0..8000 {
        let value = format!("{}{serial:04}", "\u{1}".repeat(252));
        let context = names.map(|name| (name.to_owned(), value.clone()));
        let found = Match {
            rule: 0,
            fields: Vec::new(),
            contexts: vec![context.into()],
        };
        let event = EventId(1_790_000_000_000, serial, None);
        tested.correlations.find(&event, &[found], &mut Vec::new());
    }
    let remembered = tested.correlations.remembered();
    assert!(remembered.forgotten > 0, "{remembered:?}");
    let text = serde_json::to_string(&tested.correlations.save("c".to_owned())).unwrap();
    let bytes = u64::try_from(text.len()).unwrap();
    assert!((64 << 20..MAX_TEXT_BYTES).contains(&bytes), "{bytes}");
    let mut next = Tested::new(&[&section]);
    let left_out = next.correlations.restore(Saved::parse(&text).unwrap());
    assert_eq!(left_out, 0);
    assert_eq!(next.correlations.remembered(), remembered);
}

/// JSON has no infinite numbers.
#[test]
fn sums_of_any_numbers_are_read() {
    let section = "type: value_sum\nrules: a\ntimespan: 1h\ncondition:\n    field: f\n    gt: 5\n";
    let add = |tested: &mut Tested, serial: u32| {
        let found = Match {
            rule: 0,
            fields: Vec::new(),
            contexts: vec![vec![("f".to_owned(), "1e308".to_owned())]],
        };
        let event = EventId(1_790_000_000_000, serial, None);
        tested.correlations.find(&event, &[found], &mut Vec::new());
    };
    let mut tested = Tested::new(&[section]);
    (0..1100).for_each(|serial| add(&mut tested, serial));
    let save = |tested: &Tested| {
        let saved = tested.correlations.save("c".to_owned());
        serde_json::to_string(&saved).unwrap()
    };
    let mut next = Tested::new(&[section]);
    let saved = Saved::parse(&save(&tested)).unwrap();
    assert_eq!(next.correlations.restore(saved), 0);
    assert_eq!(save(&next), save(&tested));
    // A damaged file does not end the run.
    let many = save(&tested).replace("\"count\":1}", "\"count\":18446744073709551615}");
    let saved = Saved::parse(&many).unwrap();
    assert_eq!(next.correlations.restore(saved), 0);
    add(&mut next, 2000);
}
