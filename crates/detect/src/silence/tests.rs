//! Tests of silences.

use std::fs;

use audit::event::Timestamp as EventTime;

use super::*;
use crate::alert::{Kind, Subject};
use crate::sigma::{Level, Source};

const SILENCE: &str = "[[silence]]\nrule = \"Shell\"\nuser = \"root\"\nprogram = \"/opt/*\"\nuntil = 2030-01-01T00:00:00+01:00\nreason = \"test\"\n";

/// 31 December 2029, 23:00 UTC.
const UNTIL: u64 = 1_893_452_400;

fn silences(text: &str) -> Result<Silences, String> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("silences.toml");
    fs::write(&path, text).unwrap();
    let prefix = format!("{}:", path.display());
    Silences::read(&path).map_err(|error| error.to_string().replace(&prefix, ""))
}

fn alert(sec: u64, user: (u32, &str), image: &str) -> Alert {
    Alert {
        correlated: None,
        id: "x".to_owned(),
        kind: Kind::New,
        time: EventTime { sec, milli: 0 },
        serial: 1,
        node: None,
        rule: Rule {
            name: None,
            id: "shell-1".to_owned(),
            title: "Shell".to_owned(),
            author: None,
            level: Level::High,
            tags: Vec::new(),
            source: Some(Source::Process),
            absent_fields: Vec::new(),
        },
        subject: Subject {
            user: Some((user.0, user.1.to_owned())),
            image: image.to_owned(),
            ..Subject::default()
        },
        ancestors: Vec::new(),
        fields: Vec::new(),
    }
}

#[test]
fn silence_applies_to_what_all_of_its_fields_match_until_its_time() {
    let root = (0, "root");
    let mut found = silences(SILENCE).unwrap();
    assert!(found.apply_to(&alert(1, root, "/opt/x")));
    assert!(!found.apply_to(&alert(1, root, "/bin/x")));
    assert!(!found.apply_to(&alert(1, (1, "daemon"), "/opt/x")));
    assert!(found.apply_to(&alert(UNTIL - 1, root, "/opt/x")));
    assert!(!found.apply_to(&alert(UNTIL, root, "/opt/x")));
    let until = |sec: u64| Timestamp::from_second(sec.try_into().unwrap()).unwrap();
    assert_eq!(found.expire(until(UNTIL - 1)), [""; 0]);
    let told = found.expire(until(UNTIL));
    assert_eq!(told.len(), 1);
    assert!(
        told[0]
            .contains(":1: the silence of `Shell` until 2029-12-31T23:00:00Z (test) has expired"),
        "{told:?}"
    );
    assert_eq!(found.expire(until(UNTIL + 1)), [""; 0]);
    assert!(!found.apply_to(&alert(1, root, "/opt/x")));
    assert_eq!(found.active(), 0);
    let by_number = SILENCE
        .replace("\"root\"", "\"0\"")
        .replace("Shell", "shell-1");
    assert!(
        silences(&by_number)
            .unwrap()
            .apply_to(&alert(1, root, "/opt/x"))
    );
    let other_rule = silences(&SILENCE.replace("Shell", "Shel")).unwrap();
    assert!(!other_rule.apply_to(&alert(1, root, "/opt/x")));
    let rules = [alert(1, root, "").rule];
    assert_eq!(other_rule.without_rule(&rules.iter()).len(), 1);
    assert_eq!(
        silences(SILENCE).unwrap().without_rule(&rules.iter()),
        [""; 0]
    );
    assert_eq!(silences("").unwrap().active(), 0);
}

#[test]
fn mistakes_have_line_and_column() {
    let time = "2030-01-01T00:00:00+01:00";
    for (text, expected) in [
        (
            SILENCE.replace(time, "2030-01-01T00:00:00"),
            "5:9: `2030-01-01T00:00:00` is not a time with an offset; write it as",
        ),
        (
            SILENCE.replace(time, "\"soon\""),
            "5:9: `soon` is not a time with an offset; write it as",
        ),
        (
            SILENCE.replace(time, "5"),
            "5:9: `until` is of type integer; write it as",
        ),
        (
            SILENCE.replace("\"test\"", "\" \""),
            "6:10: `reason` is empty; ",
        ),
        (
            SILENCE.replace("/opt/*", "/opt/*/x"),
            "4:11: a `*` is in the middle; ",
        ),
        (
            SILENCE.replace("reason = \"test\"\n", ""),
            "1:1: missing field `reason`; see SILENCES",
        ),
        (
            SILENCE.replace("user", "usr"),
            "3:1: unknown field `usr`, expected",
        ),
        (SILENCE.replace("[[silence]]", "[[silence]"), "1:"),
        (
            "#\n".repeat(200_000),
            "1:1: the file has more than 262144 bytes",
        ),
        (
            SILENCE.repeat(1001),
            "1:1: there are more than 1000 silences",
        ),
    ] {
        let error = silences(&text).unwrap_err();
        assert!(error.starts_with(expected), "{error}: {expected}");
    }
}

#[test]
fn file_is_read_again_when_it_changed_and_mistakes_leave_the_old_silences() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("silences.toml");
    fs::write(&path, SILENCE).unwrap();
    let mut found = Silences::read(&path).unwrap();
    assert_eq!(found.reread(Asked::No), None);
    assert_eq!(found.reread(Asked::Yes), Some(Ok(1)));
    fs::write(&path, "x").unwrap();
    assert!(found.reread(Asked::No).unwrap().is_err());
    // It is told once.
    assert_eq!(found.reread(Asked::No), None);
    assert_eq!(found.active(), 1);
    let new = place.path().join("new");
    fs::write(&new, SILENCE.repeat(2)).unwrap();
    fs::rename(&new, &path).unwrap();
    assert_eq!(found.reread(Asked::No), Some(Ok(2)));
    assert_eq!(found.absent(), None);
    fs::remove_file(&path).unwrap();
    assert_eq!(found.reread(Asked::No), Some(Ok(0)));
    assert_eq!((found.reread(Asked::No), found.active()), (None, 0));
    assert!(found.absent().unwrap().contains("does not exist"));
    fs::write(&path, SILENCE).unwrap();
    assert_eq!(found.reread(Asked::No), Some(Ok(1)));
    // A directory that cannot be read is not one without the file.
    let below = path.join("file");
    Silences::read(&below).unwrap_err();
}

#[test]
fn example_of_the_guide_is_read() {
    let guide = include_str!("../../../../docs/detect.md");
    let (_, example) = guide.split_once("```toml\n[[silence]]").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let found = silences(&format!("[[silence]]{example}")).unwrap();
    assert_eq!(found.active(), 1);
}
