//! Rules and messages of `--offline`.

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Status, messages, and what is printed.
type TestOutcome = (u8, Vec<String>, String);

#[track_caller]
fn outcome(offline: &Offline, messages: &[BString], status: u8) -> TestOutcome {
    let mut out = Vec::new();
    offline.print(&mut out).unwrap();
    let messages = messages.iter().map(ToString::to_string).collect();
    (status, messages, String::from_utf8(out).unwrap())
}

fn line(line: &str, dialect: Dialect) -> TestOutcome {
    let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    let mut offline = Offline::new(dialect);
    let (messages, status) = offline.run(auditctl::arguments(&words, dialect, &ThisMachine));
    outcome(&offline, &messages, status)
}

fn file(text: &str) -> TestOutcome {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rules");
    fs::write(&path, text).unwrap();
    let mut offline = Offline::new(Dialect::V4);
    let (messages, status) = offline.read_file(&path);
    let place = format!(" of {}", path.display());
    let (status, messages, out) = outcome(&offline, &messages, status);
    let messages = messages
        .iter()
        .map(|text| text.replace(&place, ""))
        .collect();
    (status, messages, out)
}

fn own(words: &[&str]) -> anyhow::Result<(bool, Dialect, usize)> {
    let mut words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let own = own_options(&mut words)?;
    Ok((own.offline, own.dialect, words.len()))
}

#[test]
fn rule_is_listed_as_loaded() {
    let rule = "-a exit,always -F arch=b64 -F path=/x -F perm=x -k a -k b";
    let listing = |syscalls| {
        format!("-a always,exit -F arch=b64 -S {syscalls} -F path=/x -F perm=x -F key=a -F key=b\n")
    };
    assert_eq!(
        line(rule, Dialect::V4),
        (0, vec![], listing("execve,execveat"))
    );
    assert_eq!(line(rule, Dialect::V3), (0, vec![], listing("all")));
}

#[test]
fn requests_without_rules_print_nothing() {
    for asks in ["-l", "-D", "-s", "-e 1", "-t", "-d never,task"] {
        assert_eq!(
            line(asks, Dialect::V4),
            (0, vec![], String::new()),
            "{asks}"
        );
    }
    let (status, messages, out) = line("-e 7", Dialect::V3);
    assert_eq!((status, out.as_str()), (255, ""));
    assert_eq!(messages, ["Enable must be 0, 1, or 2 was 7"]);
}

#[test]
fn usage_and_version_are_shown() {
    let (status, _, out) = line("-h", Dialect::V4);
    assert_eq!((status, out.as_str()), (0, usage::TEXT));
    let (_, _, out) = line("-v", Dialect::V3);
    assert!(
        out.starts_with("auditctl version 3.0.9 (tollgate "),
        "{out}"
    );
}

#[test]
fn usage_names_every_option() {
    for option in auditctl::options() {
        let named = usage::TEXT.lines().any(|line| {
            line.split([' ', ','])
                .take_while(|word| word.is_empty() || word.starts_with('-'))
                .any(|word| word == option)
        });
        assert!(named, "{option}");
    }
}

#[test]
fn rules_of_a_file_are_listed_list_by_list() {
    let text = "## comment\n-D\n-b 8192\n-a always,exit -F arch=b64 -S open\n\
                -A always,exit -F arch=b64 -S close\n-a never,task\n-e 2\n";
    let listing = "-a never,task\n-a always,exit -F arch=b64 -S close\n\
                   -a always,exit -F arch=b64 -S open\n";
    assert_eq!(file(text), (0, vec![], listing.to_owned()));
}

#[test]
fn reading_stops_at_the_first_error() {
    let rule = "-a always,exit -F arch=b64 -S open\n";
    assert_eq!(
        file(&format!("{rule}-z\n-a never,task\n")),
        (
            1,
            vec![
                "Option -z on line 2 is invalid".into(),
                "There was an error in line 2".into()
            ],
            rule.to_owned()
        )
    );
}

#[test]
fn errors_are_ignored_after_i_and_fail_at_the_end_after_c() {
    for (option, status) in [("-i", 0), ("-c", 1)] {
        let (found, messages, out) = file(&format!("{option}\n-z\n-a never,task\n"));
        assert_eq!(
            (found, out.as_str()),
            (status, "-a never,task\n"),
            "{option}"
        );
        assert_eq!(messages.len(), 2, "{option}");
    }
    // Errors before the option still fail.
    assert_eq!(file("-z\n-i\n").0, 1);
}

#[test]
fn duplicate_missing_and_locked_rules_are_refused() {
    let rule = "-a never,task\n";
    for (text, message) in [
        (
            format!("{rule}{rule}"),
            "Error sending add rule data request (Rule exists)",
        ),
        (
            format!("-D\n{rule}-d always,task\n"),
            "Error sending delete rule data request (No such file or directory)",
        ),
        (
            format!("{rule}-e 2\n-a always,task\n"),
            "Error sending add rule data request (Operation not permitted)",
        ),
    ] {
        let (status, messages, out) = file(&text);
        assert_eq!((status, out.as_str()), (1, rule), "{text}");
        assert_eq!(messages[0], message, "{text}");
    }
    // The rule may exist since before the file was loaded.
    assert_eq!(file("-d always,task\n").0, 0);
}

#[test]
fn unreadable_files_are_reported_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rules");
    let read = |path: &Path| {
        let (messages, status) = Offline::new(Dialect::V4).read_file(path);
        assert_eq!(status, 1);
        messages[0].to_string()
    };
    let shown = path.display().to_string();
    assert_eq!(
        read(&path),
        format!("audit rules file {shown} doesn't exist")
    );
    fs::write(&path, "-D\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(read(&path), format!("Error - {shown} is world writable"));
    assert!(read(directory.path()).ends_with("is not a regular file"));
    assert!(read(&path.join("x")).ends_with("(Not a directory)"));
}

#[test]
fn own_options_precede_those_of_auditctl() {
    use Dialect::{V3, V4};
    assert_eq!(own(&["--offline", "-l"]).unwrap(), (true, V4, 1));
    assert_eq!(own(&["--compat", "3", "--offline"]).unwrap(), (true, V3, 0));
    assert_eq!(
        own(&["--offline", "--compat=4", "-D", "--offline"]).unwrap(),
        (true, V4, 2)
    );
    assert_eq!(own(&["-l", "--offline"]).unwrap(), (false, V4, 2));
    assert_eq!(own(&["-l", "--control=/s"]).unwrap(), (false, V4, 1));
    assert_eq!(
        own(&["--signal", "resume", "--control", "/s"]).unwrap(),
        (false, V4, 2)
    );
    for wrong in [["--compat", "5"].as_slice(), &["--compat"], &["--compat="]] {
        let error = own(wrong).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("takes 3 or 4"), "{error}");
    }
}

#[test]
fn help_and_version_need_no_daemon() {
    let needs = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        !needs_no_daemon(&auditctl::arguments(&words, Dialect::V4, &ThisMachine))
    };
    assert!(!needs("-h") && !needs("-v"));
    assert!(needs("-l") && needs("-a never,task") && needs("-z"));
}
