//! Tests of the engine: rules, mistakes and hostile documents.

use std::time::{Duration, Instant};

use super::*;
use crate::sigma::document::{DocumentKind, MAX_FILE_BYTES, documents};
use crate::sigma::fields::Value;

const HEAD: &str = "title: T\nid: 1\nlogsource:\n    product: linux\n";

fn process(detection: &str) -> String {
    format!("{HEAD}    category: process_creation\ndetection:\n{detection}")
}

fn mistake(document: &str) -> (usize, String) {
    let error = Rsigma::default().add(document).unwrap_err();
    (error.line, error.to_string())
}

fn found(engine: &Rsigma, source: Source, fields: &[(&'static str, &'static str)]) -> Vec<Match> {
    let mut event = Fields::default();
    for &(name, value) in fields {
        event.text(name, value);
    }
    let mut found = Vec::new();
    engine.find(source, &event, &mut found);
    found
}

#[test]
fn rule_matches_events_of_its_log_source() {
    let mut engine = Rsigma::default();
    let rule = process(
        "    a:\n        Image|endswith: /nc\n        CommandLine|contains|all: [' -e ', sh]\n    condition: a\nlevel: high\n",
    );
    engine.add(&rule).unwrap();
    let event = [
        ("Image", "/usr/bin/NC"),
        ("CommandLine", "nc -e /bin/sh h 1"),
    ];
    let [matched] = found(&engine, Source::Process, &event).try_into().unwrap();
    assert_eq!(matched.rule, 0);
    let mut fields = matched.fields;
    fields.sort();
    fields.dedup();
    let mut expected = event.map(|(name, value)| (name.to_owned(), value.to_owned()));
    expected.sort();
    assert_eq!(fields, expected);
    assert_eq!(engine.rules()[0].level, Level::High);
    assert_eq!(found(&engine, Source::File, &event), []);
    assert_eq!(found(&engine, Source::Process, &event[..1]), []);
}

#[test]
fn record_meets_the_rules_of_its_type() {
    let mut engine = Rsigma::default();
    for selection in ["type: EXECVE\n        a0: [cat, nc]", "a0: cat"] {
        let id = engine.rules.len();
        let rule = format!(
            "title: T\nid: r{id}\nlogsource:\n    service: auditd\ndetection:\n    a:\n        {selection}\n    condition: a\n"
        );
        engine.add(&rule).unwrap();
    }
    let rules = |kind: &'static str| -> Vec<usize> {
        let found = found(&engine, Source::Record, &[("type", kind), ("a0", "cat")]);
        found.iter().map(|found| found.rule).collect()
    };
    assert_eq!(rules("EXECVE"), [0, 1]);
    assert_eq!(rules("SYSCALL"), [1]);
    assert_eq!(engine.by_type.len(), 1);
}

#[test]
fn all_keywords_may_be_in_several_fields() {
    let mut engine = Rsigma::default();
    let rule = format!(
        "{HEAD}    service: auditd\ndetection:\n    a:\n        type: EXECVE\n    b:\n        '|all':\n            - truncate\n            - '-s'\n            - 6\n    condition: a and b\n"
    );
    engine.add(&rule).unwrap();
    let matches = |fields: &[(&'static str, &'static str)]| {
        let fields = [&[("type", "EXECVE")], fields].concat();
        found(&engine, Source::Record, &fields).len()
    };
    assert_eq!(matches(&[("a0", "/usr/bin/truncate"), ("a1", "-s6")]), 1);
    assert_eq!(matches(&[("a0", "truncate"), ("a1", "-s")]), 0);
}

#[test]
fn any_of_several_values_matches() {
    let mut engine = Rsigma::default();
    let rule = format!(
        "{HEAD}    service: auditd\ndetection:\n    a:\n        key: sudo\n    condition: a\n"
    );
    engine.add(&rule).unwrap();
    let mut event = Fields::default();
    event.text("type", "SYSCALL");
    event.add("key", Value::Texts(vec!["exec".into(), "sudo".into()]));
    let mut found = Vec::new();
    engine.find(Source::Record, &event, &mut found);
    assert_eq!(found.len(), 1);
}

#[test]
fn mistakes_have_line_reason_and_advice() {
    let selection = "    a:\n        Image: /x\n";
    for (document, line, start) in [
        ("a: [1\nb: 2\n".to_owned(), 2, "YAML parse error"),
        (
            process(&format!("{selection}    condition: a and b\n")),
            9,
            "the condition names `b`",
        ),
        (
            process(&format!("{selection}    condition: 1 of x*\n")),
            9,
            "no name in the detection is like `x*`",
        ),
        (
            process(&format!("{selection}    condition: a and\n")),
            9,
            "Condition parse error",
        ),
        (
            process("sigma-version: 3\n    a:\n        Image[any]: /x\n    condition: a\n")
                .replace("detection:\nsigma-version: 3\n", "detection:\n")
                + "sigma-version: 3\n",
            7,
            "`a` matches members of arrays",
        ),
        (
            process("    a:\n        Image|wrong: /x\n    condition: a\n"),
            8,
            "Unknown modifier 'wrong'",
        ),
        (
            process("    a:\n        Image|re: 'a(?=b)'\n    condition: a\n"),
            8,
            "the regular expression cannot be used",
        ),
        (
            process("    a:\n        Image|re: '(a{500}){500}'\n    condition: a\n"),
            8,
            "the regular expression cannot be used",
        ),
        (
            process("    a:\n        Image|expand: '%x%'\n    condition: a\n"),
            8,
            "the placeholder `%x%` has no values",
        ),
        (
            process(&format!("{selection}    timeframe: 5m\n    condition: a\n")),
            9,
            "`timeframe` and aggregations",
        ),
        (
            format!("{HEAD}    service: sshd\ndetection:\n{selection}    condition: a\n"),
            3,
            "log source `linux/sshd` is not in audit logs",
        ),
        ("title: T\n".to_owned(), 1, ""),
        ("- a\n".to_owned(), 1, ""),
        (
            process(&format!("{selection}    condition: a\nstatus: wrong\n")),
            10,
            "invalid status",
        ),
    ] {
        let (at, text) = mistake(&document);
        assert!(text.starts_with(start), "{document}: {text}");
        assert!(text.contains("; "), "{text}");
        assert_eq!(at, line, "{document}: {text}");
    }
}

#[test]
fn fields_that_no_event_has_are_named() {
    let mut engine = Rsigma::default();
    let rule = process(
        "    a:\n        Hashes: x\n        Image: /x\n    b:\n        - Hashes: y\n    condition: 1 of them\n",
    );
    engine.add(&rule).unwrap();
    assert_eq!(engine.rules()[0].absent_fields, ["Hashes"]);
    assert_eq!(engine.rules()[0].level, Level::Medium);
}

/// Reads a file as `check` does.
#[track_caller]
fn load(text: &str) -> Vec<Mistake> {
    let started = Instant::now();
    let mut engine = Rsigma::default();
    let mut mistakes = Vec::new();
    match documents(text) {
        Ok(documents) => {
            for document in documents {
                let result = document.check().and_then(|()| engine.add(document.text));
                mistakes.extend(result.err());
            }
        }
        Err(mistake) => mistakes.push(mistake),
    }
    let elapsed = started.elapsed();
    assert!(
        elapsed < Duration::from_secs(20),
        "{elapsed:?}: {:?}",
        text.get(..100)
    );
    mistakes
}

#[test]
fn hostile_files_end_in_bounded_time() {
    let fill = |text: &str| text.repeat(MAX_FILE_BYTES / text.len());
    let aliases = (1..10).fold("a0: &a0 [x, x]\n".to_owned(), |text, number| {
        let alias = format!("*a{},", number - 1).repeat(9);
        format!("{text}a{number}: &a{number} [{alias}]\n")
    });
    let indented = |depth: usize| format!("{}a:\n", " ".repeat(depth));
    let detection = |selection: &str| process(&format!("    a:\n{selection}    condition: a\n"));
    let condition = |condition: &str| {
        process(&format!(
            "    a:\n        Image: x\n    condition: {condition}\n"
        ))
    };
    for text in [
        fill("["),
        fill("{a: "),
        fill("- "),
        fill("? "),
        fill("---\n"),
        fill("---\na: 1\n"),
        fill("\"["),
        fill("'\n["),
        fill("a: b\r  - "),
        fill("!x "),
        fill("&a "),
        fill("a: "),
        fill("k: v\n"),
        fill("x"),
        fill("a\u{2028}- "),
        (0..500).map(indented).collect(),
        aliases,
        format!(
            "a: &a [{}]\nb: [{}]\n",
            "x,".repeat(50_000),
            "*a,".repeat(20_000)
        ),
        (1..200).fold("a: &a [x, x]\n".to_owned(), |text, number| {
            format!("{text}a{number}: &a [*a, *a]\n")
        }),
        detection(&format!("        Image: '{}'\n", "*a?".repeat(60_000))),
        detection(&format!("        Image|re: '{}'\n", "(".repeat(60_000))),
        detection(&format!(
            "        Image|re:\n{}",
            "            - '(a{90}){90}'\n".repeat(7000)
        )),
        detection(&format!(
            "        Image|windash|contains: '{}'\n",
            " -a".repeat(1000)
        )),
        condition(&format!("{}a", "not ".repeat(50_000))),
        condition(&format!("{}a", "not ".repeat(16_001))),
        condition(&format!("{}a", "NOT ".repeat(1990))),
        condition(&format!("{}a{}", "not (".repeat(1990), ")".repeat(1990))),
        condition(&format!("{}a", "(".repeat(50_000))),
        condition(&format!("a{}", " and a".repeat(10_000))),
        condition(&format!("a{}", " OR a".repeat(MAX_FILE_BYTES / 5 - 100))),
        condition(&format!("\"a{}\"", " \\x61nd a".repeat(1900))),
    ] {
        for mistake in load(&text) {
            assert!(mistake.to_string().len() < 1000, "{mistake}");
        }
    }
}

#[test]
fn wildcards_match_any_characters_at_the_right_end() {
    for (selection, matching, others) in [
        (
            "Image: '/a*c'",
            &["/aXc", "/a\nc", "/AC"][..],
            &["x/ac", "/acx"][..],
        ),
        ("Image: '*a?c*'", &["abc", "x\na\nc\nx"], &["ac"]),
        (
            "Image|startswith: '/home/*/bin/'",
            &["/home/x/bin/y", "/HOME/\n/bin/"],
            &["x/home/x/bin/"],
        ),
        (
            "Image|endswith: '/bin/*/x'",
            &["/y/bin/z/x"],
            &["/bin/z/x/y"],
        ),
        ("Image|contains: 'a*c'", &["xabcx", "xa\ncx"], &["xcax"]),
        (
            "Image|contains|all: ['a*c', '1']",
            &["1a\nc"],
            &["abc", "1"],
        ),
        ("Image|cased: 'A*c'", &["Abc"], &["abc"]),
        (
            "Image|windash|contains: ' -a*-b'",
            &[" /ax\u{2014}b"],
            &[" +a-b"],
        ),
        (
            "Image: ['*.x?', 7, 'a\\*b']",
            &["a.xy", "7", "A*B"],
            &["77", "axb"],
        ),
    ] {
        let mut engine = Rsigma::default();
        let document = process(&format!("    a:\n        {selection}\n    condition: a\n"));
        engine.add(&document).unwrap();
        for (values, count) in [(matching, 1), (others, 0)] {
            for value in values {
                let found = found(&engine, Source::Process, &[("Image", value)]);
                assert_eq!(found.len(), count, "{selection} {value:?}");
            }
        }
    }
    let mut engine = Rsigma::default();
    let other = "    a:\n        Image: [null, 'a*c']\n        User: x\n    condition: a\n";
    engine.add(&process(other)).unwrap();
    for (fields, count) in [
        (&[("User", "x"), ("Image", "a\nc")][..], 1),
        (&[("User", "x")], 1),
        (&[("User", "x"), ("Image", "b")], 0),
        (&[("User", "y")], 0),
    ] {
        assert_eq!(
            found(&engine, Source::Process, fields).len(),
            count,
            "{fields:?}"
        );
    }
    let mut engine = Rsigma::default();
    let keywords = "    a:\n        - 'curl*sh'\n        - plain\n        - 6\n    condition: a\n";
    engine.add(&process(keywords)).unwrap();
    for value in ["x curl y\n| sh z", "a plain text", "init 6", "sh curl"] {
        let found = found(&engine, Source::Process, &[("CommandLine", value)]);
        assert_eq!(found.len(), usize::from(value != "sh curl"), "{value:?}");
    }
}

/// Each of these patterns is allowed, and a file of them takes gigabytes, or seconds for each event.
#[test]
fn patterns_of_all_rules_are_bounded() {
    let values = |count: usize, value: &str| {
        let line = |number| {
            let value = value.replace('N', &format!("n{number}"));
            format!("            - '{value}'\n")
        };
        (0..count).map(line).collect::<String>()
    };
    let windash = values(1000, " -a -b -c -d -e -f -g -N");
    let wildcards = values(150, &"?N".repeat(250));
    for selection in [
        format!("        CommandLine|re:\n{}", values(2, "aNb\\w{5}")),
        format!("        CommandLine|windash|contains:\n{windash}"),
        format!("        CommandLine|contains:\n{wildcards}"),
        format!("        - '{}'\n", "?N".repeat(40_000)),
        // Small, but an event of 7 kB takes a second.
        format!("        Image: '{}'\n", "a*".repeat(1000)),
        format!("        - '{}'\n", "a*".repeat(1000)),
    ] {
        let mut engine = Rsigma {
            bytes: (64 << 20) - (256 << 10),
            ..Rsigma::default()
        };
        let document = process(&format!("    a:\n{selection}    condition: a\n"));
        let mistake = engine.add(&document).unwrap_err();
        assert!(mistake.reason.contains("are too large"), "{mistake}");
        let one = process("    a:\n        CommandLine|re: 'b\\w{5}'\n    condition: a\n");
        engine.add(&one).unwrap();
        assert_eq!(engine.bytes, 64 << 20);
    }
}

#[test]
fn documents_are_split_with_their_lines() {
    let text = "# head\n---\na: 1\n---   # x\n\nb: 2\n--- c: 3\n---\n";
    let found = documents(text).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|found| (found.lines_before, found.text))
        .collect();
    assert_eq!(
        found,
        [(1, "\na: 1\n"), (3, "   # x\n\nb: 2\n"), (6, " c: 3\n")]
    );
}

#[test]
fn documents_have_rules_or_filters() {
    let kind = |text: &str| documents(text).unwrap()[0].kind();
    assert_eq!(kind("title: T\ndetection:\n"), Ok(DocumentKind::Rule));
    assert_eq!(kind("a:\n    filter: x\n"), Ok(DocumentKind::Rule));
    assert_eq!(kind("title: T\nfilter:\n"), Ok(DocumentKind::Filter));
    let mistake = kind("\ntitle: T\naction: global\n").unwrap_err();
    assert_eq!(mistake.line, 3);
    assert!(mistake.reason.contains("`action`"), "{mistake}");
    let correlation = kind("title: T\ncorrelation:\n");
    assert_eq!(correlation, Ok(DocumentKind::Correlation));
    let both = kind("title: T\ndetection:\nfilter:\n").unwrap_err();
    assert_eq!(both.line, 2, "{both}");
}

/// Which rules are evaluated must not change which match.
#[test]
fn search_for_texts_finds_what_all_rules_find() {
    let selections = [
        "Image|endswith: [/sh, /Bash]",
        "CommandLine|contains|all: [' -e ', sh]",
        "CommandLine: 'n*c ?'",
        "CommandLine|re: 'a+b'",
        "Image|cased: /bin/SH",
        "- Image: /x\n        - CommandLine|contains: nc",
        "CommandLine|contains: '\u{fc}'",
        "Image: null",
        "Image|startswith: /bin\n        CommandLine|endswith: K",
        "- nc\n        - ' -e'",
        "Image|fieldref: CommandLine",
        "Image|exists: true\n        CommandLine|contains: sh",
    ];
    let conditions = [
        "a",
        "not a",
        "a and not b",
        "a or b",
        "1 of *",
        "all of them",
    ];
    let mut engine = Rsigma::default();
    for (number, selection) in selections.iter().enumerate() {
        for (form, condition) in conditions.iter().enumerate() {
            let rule = process(&format!(
                "    a:\n        {selection}\n    b:\n        CommandLine|contains: e\n    condition: '{condition}'\n"
            ));
            let id = format!("id: r{number}-{form}");
            engine.add(&rule.replace("id: 1", &id)).unwrap();
        }
    }
    let bucket = &engine.by_source[&Source::Process];
    let parts = [
        "/bin", "/", "sh", "SH", "Bash", "nc", " -e ", "x", "aab", "\u{212a}", "\u{fc}", " ", "c",
        "k",
    ];
    let mut random = 1_u64;
    let mut matched = 0;
    for _ in 0..2000 {
        let mut text = || {
            let mut text = String::new();
            for _ in 0..4 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                text.push_str(parts[usize::try_from(random >> 40).unwrap() % parts.len()]);
            }
            text
        };
        let mut event = Fields::default();
        event.text("Image", text());
        event.text("CommandLine", text());
        let mut found = Vec::new();
        engine.find(Source::Process, &event, &mut found);
        let found: HashSet<usize> = found.iter().map(|found| found.rule).collect();
        assert_eq!(found, bucket.all_matches(&event), "{event:?}");
        matched += found.len();
    }
    assert!(matched > 10_000, "{matched}");
}

/// A rule is kept for each of its record types: a file of 200 kB took gigabytes.
#[test]
fn rules_with_many_types_and_values_are_refused() {
    let list = |count: usize| (0..count).map(|number| format!("T{number}"));
    let rule = |types: usize, values: usize| {
        let [types, values] =
            [types, values].map(|count| list(count).collect::<Vec<_>>().join(", "));
        let selection = format!("        type: [{types}]\n        x|contains: [{values}]\n");
        format!(
            "title: T\nlogsource:\n    service: auditd\ndetection:\n    a:\n{selection}    condition: a\n"
        )
    };
    let mistake = Rsigma::default().add(&rule(16_000, 7000)).unwrap_err();
    assert!(
        mistake.to_string().contains("names 16000 record types"),
        "{mistake}"
    );
    assert_eq!(mistake.line, 6);
    let mut engine = Rsigma::default();
    engine.add(&rule(200, 20)).unwrap();
    engine
        .add(&rule(4, 5000).replace("title: T", "title: U"))
        .unwrap();
}
