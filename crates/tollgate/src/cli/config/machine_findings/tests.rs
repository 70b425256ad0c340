//! Findings about a `tollgate.toml`, and where they are.

use std::fs;

use super::*;

/// Places and codes of the findings about a text in which `DIR` is a new directory.
fn found(text: &str) -> Vec<(u32, u32, &'static str)> {
    found_with(text, "")
}

/// The same, with more settings in `DIR/auditd.conf`.
fn found_with(text: &str, settings: &str) -> Vec<(u32, u32, &'static str)> {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("good.rules", "-w /etc/shadow -p w -k shadow\n");
    write("wrong.rules", "-w /etc/shadow -p w -k one\n-S opne\n");
    write(
        "auditd.conf",
        &format!(
            "space_left = 2\nadmin_space_left = 1\nlog_file = {}/a.log\n{settings}",
            directory.path().display()
        ),
    );
    let name = directory.path().file_name().unwrap().to_str().unwrap();
    let text = text.replace("DIRNAME", name);
    let text = text.replace("DIR", &directory.path().display().to_string());
    write("tollgate.toml", &text);
    let read = config::read_tollgate_toml(&directory.path().join("tollgate.toml")).unwrap();
    let found = find(&read).into_iter();
    // Engines depend on the machine.
    found
        .filter(|finding| finding.code != "no-engine")
        .map(|finding| (finding.line, finding.column, finding.code))
        .collect()
}

#[test]
fn missing_files_are_found_where_they_are_named() {
    let text = "# rules\nauditd_conf = \"/missing/auditd.conf\"\nrules = [\"DIR/good.rules\", '/missing/a.rules']\n\
                [json]\nfile = \"/missing/log/events.json\"\n";
    let places = found(text);
    assert_eq!(places[0], (2, 15, "missing-file"));
    assert_eq!(places[1], (5, 8, "missing-file"));
    assert_eq!((places[2].0, places[2].2), (3, "missing-file"));
    assert_eq!(places.len(), 3);
}

#[test]
fn other_mistakes_do_not_hide_findings() {
    let text = "engin = \"auto\"\nauditd_conf = \"/missing/auditd.conf\"\ndelay_ms = 1\n";
    assert_eq!(found(text), [(2, 15, "missing-file")]);
}

#[test]
fn refused_rule_files_are_errors() {
    let text =
        "rules = [\"DIR/good.rules\",\n\"DIR/wrong.rules\"]\n[on_loss]\ndeny = [\"nosuch\"]\n";
    assert_eq!(found(text), [(2, 1, "refused-rules")]);
}

#[test]
fn keys_that_no_rule_has_are_found() {
    let text = "rules = [\"DIR/good.rules\"]\n[on_loss]\ndeny = [\"shadow\", \"shado\"]\n";
    assert_eq!(found(text), [(3, 19, "unused-key")]);
}

#[test]
fn one_file_cannot_be_both_logs() {
    for name in ["a.log", "./a.log", "../DIRNAME/a.log"] {
        let text = format!("auditd_conf = \"DIR/auditd.conf\"\n[json]\nfile = \"DIR/{name}\"\n");
        assert_eq!(found(&text), [(3, 8, "same-log")], "{name}");
    }
}

#[test]
fn unusable_files_are_found() {
    for (text, expected) in [
        ("[json]\nfile = \"DIR\"\n", (2, 8, "unusable-file")),
        ("[json]\nfile = \"/\"\n", (2, 8, "unusable-file")),
        (
            "[json]\nfile = \"/proc/version/a.json\"\n",
            (2, 8, "unusable-file"),
        ),
        ("auditd_conf = \"DIR\"\n", (1, 15, "refused-file")),
        (
            "metrics = \"/missing/directory/socket\"\n",
            (1, 11, "missing-file"),
        ),
        (
            "pins = \"/missing/directory/pins\"\n",
            (1, 8, "missing-file"),
        ),
    ] {
        assert_eq!(found(text), [expected], "{text}");
    }
}

#[test]
fn relative_paths_are_warned_of() {
    let text = "[json]\nfile = \"events.json\"\n";
    assert_eq!(found(text), [(2, 8, "relative-path")]);
}

#[test]
fn compress_without_old_logs_is_warned_of() {
    let conf = "auditd_conf = \"DIR/auditd.conf\"\n";
    for (settings, is_warned) in [
        ("num_logs = 1\n", true),
        ("num_logs = 5\nmax_log_file_action = ROTATE\n", false),
        ("num_logs = 0\nmax_log_file_action = KEEP_LOGS\n", false),
        ("num_logs = 5\nmax_log_file_action = IGNORE\n", true),
    ] {
        for (compress, is_on) in [("true", true), ("false", false)] {
            let text = format!("{conf}compress = {compress}\n");
            let places = found_with(&text, settings);
            let expected = [(2, 12, "no-effect")];
            let expected = &expected[..usize::from(is_warned && is_on)];
            assert_eq!(places, expected, "{settings}");
        }
    }
}

#[test]
fn absent_group_is_a_warning_at_its_name() {
    assert_eq!(found("watch_group = \"root\"\n"), []);
    assert_eq!(
        found("watch_group = \"no-such-group\"\n"),
        [(1, 15, "no-effect")]
    );
}
