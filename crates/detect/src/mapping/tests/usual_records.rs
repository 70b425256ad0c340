//! Records as the kernel writes them are read at their places, and tell what all others tell.

use super::gates::Random;
use super::*;
use crate::mapping::record::{any_passes, usual_passes};
use crate::mapping::usual::UsualPath;
use crate::mapping::whole::{any_command_line, usual_command_line, written_name};
use crate::sigma::budget::Budget;
use crate::sigma::literals::{Literal, Place};
use crate::sigma::search::Search;

const PATHS: [&str; 6] = [
    "item=0 name=\"/etc/shadow\" inode=5 dev=08:01 mode=0100644 ouid=0 nametype=NORMAL cap_fp=0",
    "item=10 name=\"b\" inode=5 mode=040755 nametype=CREATE",
    "item=1 name=\"\" nametype=PARENT",
    "item=1 name=(null) mode=0100644 nametype=CREATE",
    "item=1 name=2F6574632F736861646F77 mode=0100644 nametype=CREATE",
    "item=1 name=\"/x\" name=\"/etc/shadow\" mode=0100644 nametype=CREATE",
];

const ARGUMENTS: [&str; 7] = [
    "argc=3 a0=\"sh\" a1=\"-c\" a2=\"/etc/shadow\"",
    "argc=12 a0=\"b\" a1=\"b\" a2=\"b\" a3=\"b\" a4=\"b\" a5=\"b\" a6=\"b\" a7=\"b\" a8=\"b\" a9=\"b\" a10=\"SH\" a11=\"x\"",
    "argc=1 a0=\"\"",
    "argc=0",
    "argc=2 a0=\"sh\" a1=2D63",
    "argc=2 a0=\"sh\" a1_len=4 a1[0]=2D63",
    "a0=\"sh\" a1=\"-c\"",
];

/// What other writers of logs, and who chooses a name, may put anywhere.
const PARTS: [&str; 20] = [
    "",
    "\"",
    " ",
    "=",
    "0",
    "a",
    "name=",
    " a1=",
    " name=\"/etc/shadow\"",
    "_len=",
    "[0]",
    "\u{1d}",
    "\u{1d}a1=\"sh\"",
    "ü",
    "msg='",
    "'",
    "\" a0=\"sh",
    "A",
    "item=0",
    " nametype=CREATE",
];

/// A text with some bytes replaced or added.
fn damaged(random: &mut Random, text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..random.below(4) {
        let at = random.below(text.len() + 1);
        if text.is_char_boundary(at) {
            let end = (at + random.below(3)).min(text.len());
            let end = if text.is_char_boundary(end) { end } else { at };
            text.replace_range(at..end, random.pick(&PARTS));
        }
    }
    text
}

fn decoded(lines: &[String]) -> Vec<Record<'_>> {
    let records = lines
        .iter()
        .map(|line| audit::record::decode::header(line.as_bytes()));
    records.collect::<Result<_, _>>().unwrap()
}

fn search(random: &mut Random) -> Search {
    let fields = ["name", "name", "a0", "a1", "a10", "argc", "nametype", ""];
    let texts = ["sh", "/etc/shadow", "b", "-c", "execve", "1", "shadow", "c"];
    let only_names = random.below(2) == 0;
    let mut literal = || {
        let field = if only_names {
            "name"
        } else {
            random.pick(&fields)
        };
        let is_anchored = |random: &mut Random| !field.is_empty() && random.below(2) == 0;
        Literal {
            field: (!field.is_empty()).then(|| field.to_owned()),
            text: random.pick(&texts).to_owned(),
            place: Place {
                at_start: is_anchored(random),
                at_end: is_anchored(random),
            },
            least_bytes: 0,
        }
    };
    let literals = [literal(), literal()];
    Search::new(
        literals.iter().map(|literal| (literal, 0)),
        &Budget::default(),
    )
    .unwrap()
}

#[test]
fn usual_records_pass_as_any_do() {
    let mut random = Random(3);
    let (mut usual, mut passed) = (0, 0);
    for _ in 0..40_000 {
        let (kind, texts) = match random.below(2) {
            0 => ("PATH", &PATHS[..]),
            _ => ("EXECVE", &ARGUMENTS[..]),
        };
        let text = random.pick(texts);
        let line = format!(
            "type={kind} msg=audit(1.000:1): {}",
            damaged(&mut random, text)
        );
        let Ok(record) = audit::record::decode::header(line.as_bytes()) else {
            continue;
        };
        let search = search(&mut random);
        let gate = Gate {
            search: Some(&search),
            ends_early: kind == "PATH",
            is_open: false,
        };
        if let Some(passes) = usual_passes(&record, &gate, &search) {
            let is_joined = kind == "EXECVE" && line.contains("_len=");
            let expected = any_passes(&record, &gate, &search);
            assert!(
                passes == expected || is_joined && expected,
                "{line} {search:?}"
            );
            usual += 1;
            passed += usize::from(passes);
        }
    }
    assert!(usual > 5000 && passed > 500, "{usual} {passed}");
}

#[test]
fn usual_command_lines_are_those_of_all_records() {
    let mut random = Random(5);
    let mut usual = 0;
    for _ in 0..20_000 {
        let text = random.pick(&ARGUMENTS);
        let mut lines = vec![format!(
            "type=EXECVE msg=audit(1.000:1): {}",
            damaged(&mut random, text)
        )];
        if random.below(8) == 0 {
            lines.push("type=EXECVE msg=audit(1.000:1):  a3=\"more\"".to_owned());
        }
        lines.push("type=PROCTITLE msg=audit(1.000:1): proctitle=7368".to_owned());
        let records = decoded(&lines);
        if let Some(text) = usual_command_line(&records) {
            assert_eq!(text, any_command_line(&records), "{lines:?}");
            usual += 1;
        }
    }
    assert!(usual > 2000, "{usual}");
}

/// A name behind which the kernel wrote nothing else that matters.
#[test]
fn usual_names_are_those_of_all_records() {
    let mut random = Random(9);
    let mut named = 0;
    for _ in 0..20_000 {
        let text = random.pick(&PATHS);
        let text = damaged(&mut random, text);
        // The kernel writes a name that hides the type of the name, as it has blanks, in hex.
        let is_hidden = |path: UsualPath<'_>| path.name.contains_str("nametype=");
        if UsualPath::of(format!(" {text}").as_bytes()).is_some_and(is_hidden) {
            continue;
        }
        let header = "type=PATH msg=audit(1.000:1):";
        // A field before, and none of the kernel's, is no usual record.
        let lines = [format!("{header} {text}"), format!("{header} x=1 {text}")];
        let records = decoded(&lines);
        for writes in [false, true] {
            let [usual, any] = [0, 1].map(|number| written_name(&records[number], writes));
            assert_eq!(usual, any, "{text}");
            named += usize::from(usual.is_some());
        }
    }
    assert!(named > 4000, "{named}");
}
