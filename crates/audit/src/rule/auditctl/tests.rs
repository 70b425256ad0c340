//! Combinations of options, and the point where parsing stops. Messages about single rules are tested with
//! `tests/golden/auditctl/answers.tsv`.

use bstr::ByteSlice as _;

use super::super::test_host::TestHost;
use super::super::{Insertion, print};
use super::*;
use crate::ids::Arch;

fn run(line: &str, dialect: Dialect) -> Invocation {
    let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    arguments(&words, dialect, &TestHost)
}

/// Status and messages of version 4, without the general error message.
#[track_caller]
fn outcome(line: &str) -> (u8, String) {
    let mut invocation = run(line, Dialect::V4);
    if invocation.status == EXIT_FAILURE {
        let general = invocation.messages.pop().unwrap();
        assert_eq!(general, PARAMETER_ERROR);
    }
    (
        invocation.status,
        bstr::join(" / ", &invocation.messages)
            .as_bstr()
            .to_string(),
    )
}

#[track_caller]
fn requests(line: &str) -> Vec<CliRequest> {
    let invocation = run(line, Dialect::V4);
    assert_eq!(
        (invocation.status, invocation.messages.len()),
        (0, 0),
        "{line}: {invocation:?}"
    );
    invocation.requests
}

fn list(key: Option<&str>, interpret: bool) -> CliRequest {
    CliRequest::List {
        key: key.map(Into::into),
        interpret,
    }
}

#[test]
fn no_arguments_shows_usage_and_fails() {
    for dialect in [Dialect::V3, Dialect::V4] {
        let invocation = arguments(&[], dialect, &TestHost);
        assert_eq!(invocation.requests, [CliRequest::Usage]);
        assert_eq!((invocation.status, invocation.messages.len()), (1, 0));
    }
}

#[test]
fn options_become_requests() {
    use CliRequest::{Command as Does, Status};
    for (line, expected) in [
        ("-l", vec![list(None, false)]),
        ("-l -i", vec![list(None, true)]),
        ("-l -k ab", vec![list(Some("ab"), false)]),
        ("-s", vec![Status { interpret: false }]),
        ("-s -i", vec![Status { interpret: true }]),
        ("-D", vec![Does(Command::DeleteAll(None))]),
        (
            "-D -k ab",
            vec![Does(Command::DeleteAll(Some("ab".into())))],
        ),
        ("-i", vec![Does(Command::IgnoreErrors)]),
        ("-c", vec![Does(Command::ContinueOnErrors)]),
        ("-m hello", vec![CliRequest::Message("hello".into())]),
        (
            "-q /a,/b",
            vec![CliRequest::Equivalent {
                mount: "/a".into(),
                subtree: "/b".into(),
            }],
        ),
        ("-t", vec![CliRequest::Trim]),
        ("-v", vec![CliRequest::Version]),
        ("-h", vec![CliRequest::Usage]),
        ("--help", vec![CliRequest::Usage]),
        ("--reset-l", vec![CliRequest::ResetLost]),
        ("--reset_b", vec![CliRequest::ResetBacklogWait]),
        (
            "--signal usr1",
            vec![CliRequest::Signal(DaemonSignal::Rotate)],
        ),
        (
            "--signal=Reload",
            vec![CliRequest::Signal(DaemonSignal::Reload)],
        ),
        (
            "--loginuid-immutable",
            vec![Does(Command::LoginuidImmutable)],
        ),
        (
            "-b 8192 -f2 -e 1 -r 0x10 --backlog_wait_time 010",
            vec![
                Does(Command::Backlog(8192)),
                Does(Command::Failure(2)),
                Does(Command::Enabled(1)),
                Does(Command::Rate(16)),
                Does(Command::BacklogWait(8)),
            ],
        ),
        // C truncates to the low bits.
        ("-b 4294967297", vec![Does(Command::Backlog(1))]),
    ] {
        assert_eq!(requests(line), expected, "{line}");
    }
}

#[test]
fn parsing_stops_at_the_first_error() {
    for (line, status, text) in [
        ("-e 1 -f 3 -r x", 255, "Failure must be 0, 1, or 2 was 3"),
        ("-z", 255, "Option -z is invalid"),
        ("-a always,exit -z", 255, "Option -z is invalid"),
        // `getopt` names the previous word for an unknown letter that is not the last of its word.
        ("-a always,exit -zD", 255, "Option always,exit is invalid"),
        ("-zD", 255, "Option   is invalid"),
        ("-w", 255, "Option -w is invalid"),
        ("--backlog", 255, "Option --backlog is invalid"),
        ("--reset", 255, "Option --reset is invalid"),
        ("--help=x", 255, "Option --help=x is invalid"),
        ("-b 99999999999999999999", 255, "Error converting backlog"),
        ("-i -D", 255, "parameter passed without an option given"),
        (
            "-D x",
            255,
            "Wrong number of options for Delete all request",
        ),
        ("-D -b 1", 255, "Only the -k option is allowed"),
        (
            "-l a b c d",
            255,
            "Wrong number of options for list request",
        ),
        ("-s -i -i", 255, "Too many options for status command"),
        ("-R /x -i", 255, "Error - nested rule files not supported"),
        ("-q /a", 255, "Error parsing equivalent parts"),
        ("-q /a,", 255, "Error parsing equivalent parts"),
        ("-q /a,/b,/c", 255, "Error parsing equivalent parts"),
        ("-m \u{1}", 255, "Illegal character in audit event"),
        ("-S open", 255, "Error - no list specified"),
        ("-i x", 255, "parameter passed without an option given"),
        ("x", 255, ""),
        ("-- x", 255, "parameter passed without an option given"),
        ("--signal x", 1, "x is an unsupported signal"),
        (
            "-a exit,possible x",
            0,
            "Append rule - possible is deprecated",
        ),
        (
            "-d exit,possible",
            0,
            "Delete rule - possible is deprecated",
        ),
        (
            "-a possible,exit",
            255,
            "Append rule - bad keyword possible,exit",
        ),
        ("-A foo,exit", 255, "Add rule - bad keyword foo,exit"),
        (
            "-d exit,Always",
            255,
            "Delete rule - bad keyword exit,Always",
        ),
        (
            "-a always,exit -a always,exit",
            255,
            "Multiple rule insert/delete operations are not allowed",
        ),
        // Keys are checked last, even after an error.
        (
            "-a always,exit -F key=x -F a4=1",
            255,
            "-F unknown field: a4 / Key field needs a watch, syscall or exe path given prior to it",
        ),
        (
            "-C uid!=euid",
            255,
            "uid can only be used with exit filter list",
        ),
        (
            "-C uid=foo",
            255,
            "-C unknown right hand value for comparison with: uid",
        ),
        ("-a always,exit -C uid>=gid", 255, "-C unknown field: uid>"),
        (
            "-a always,exit -F field_compare=x",
            255,
            "-F value should be number for field_compare",
        ),
        (
            "-a always,exit -F key!=a -S open",
            255,
            "Key field needs a watch, syscall or exe path given prior to it",
        ),
        // Deleting a rule gives no warning about 32-bit syscall numbers.
        ("-d always,exit -S open", 0, ""),
        (
            "-w /x -S 2",
            0,
            "Old style watch rules are slower / \
             WARNING - 32/64 bit syscall mismatch, you should specify an arch",
        ),
        ("-a always,exit -F arch=b64 -S ,", 0, ""),
        (
            "-w /x -p z",
            255,
            "Old style watch rules are slower / Permission z isn't supported",
        ),
    ] {
        assert_eq!(outcome(line), (status, text.to_owned()), "{line}");
    }
}

#[test]
fn requests_before_an_error_are_kept() {
    let invocation = run("-b 1 -e 9", Dialect::V4);
    assert_eq!(
        invocation.requests,
        [CliRequest::Command(Command::Backlog(1))]
    );
    assert_eq!(invocation.status, EXIT_FAILURE);
}

#[test]
fn version_3_messages_differ() {
    for (line, status, text) in [
        ("-e 3", 255, "Enable must be 0, 1, or 2 was 3"),
        ("--signal x", 255, "x is an unsupported signal"),
        ("--signal stop", 255, "stop is an unsupported signal"),
        ("--help", 255, "Option --help is invalid"),
        ("-h", 255, ""),
        ("-w /x", 0, ""),
        (
            "-a always,EXIT",
            255,
            "Append rule - bad keyword always,EXIT",
        ),
        (
            "-a always,io_uring",
            255,
            "Append rule - bad keyword always,io_uring",
        ),
        (
            "-A exit,possible x",
            0,
            "Append rule - possible is deprecated",
        ),
        (
            "-a always,exclude -F ppid=1",
            255,
            "Only msgtype, *uid, *gid, pid, and subj* fields can be used with exclude filter",
        ),
    ] {
        let invocation = run(line, Dialect::V3);
        let found = bstr::join(" / ", &invocation.messages);
        assert_eq!(
            (invocation.status, found.as_bstr()),
            (status, text.into()),
            "{line}"
        );
    }
}

#[test]
fn rules_have_their_insertion() {
    for (line, insertion) in [
        ("-a never,task", Insertion::Append),
        ("-A never,task", Insertion::Prepend),
    ] {
        let found = requests(line);
        let [
            CliRequest::Command(Command::Add {
                rule,
                insertion: found,
            }),
        ] = found.as_slice()
        else {
            panic!("{line}: {found:?}")
        };
        assert_eq!(*found, insertion);
        assert_eq!(print(rule, Arch::X86_64, Dialect::V4), "-a never,task");
    }
}

#[test]
fn only_version_4_adds_syscalls_of_perm() {
    for (dialect, listing) in [
        (
            Dialect::V3,
            "-a always,exit -F arch=b64 -S all -F path=/x -F perm=x",
        ),
        (
            Dialect::V4,
            "-a always,exit -F arch=b64 -S execve,execveat -F path=/x -F perm=x",
        ),
    ] {
        let invocation = run("-a always,exit -F arch=b64 -F path=/x -F perm=x", dialect);
        let [CliRequest::Command(Command::Add { rule, .. })] = invocation.requests.as_slice()
        else {
            panic!("{invocation:?}")
        };
        assert_eq!(print(rule, Arch::X86_64, dialect), listing);
    }
}

#[test]
fn file_messages_have_line_numbers() {
    let outcome = |text: &str| {
        let invocation = line(text.as_bytes(), 7, Dialect::V4, &TestHost).unwrap();
        (invocation.status, invocation.messages)
    };
    assert_eq!(
        outcome("-z"),
        (EXIT_FAILURE, vec!["Option -z on line 7 is invalid".into()])
    );
    assert_eq!(
        outcome("-a always,exit -S execve"),
        (
            0,
            vec![
                "WARNING - 32/64 bit syscall mismatch in line 7, you should specify an arch".into()
            ]
        )
    );
    assert_eq!(
        outcome("-R /x").1,
        ["Error - nested rule files not supported"]
    );
    for idle in ["", "   ", "# -z", "  #"] {
        assert_eq!(line(idle.as_bytes(), 1, Dialect::V4, &TestHost), None);
    }
}

#[test]
fn file_words_are_split_at_spaces_only() {
    let key = |text: &[u8]| {
        let invocation = line(text, 1, Dialect::V4, &TestHost).unwrap();
        match invocation.requests.into_iter().next() {
            Some(CliRequest::Command(Command::Add { rule, .. })) => rule.keys,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(key(b"-w /x -k a\tb"), ["a\tb"]);
    assert_eq!(key(br"-w /x -k a\ b\\"), [r"a b\"]);
    assert_eq!(key(b"-w /x -k \"a\""), ["\"a\""]);
    assert_eq!(key(b"-w /x -k a\r"), ["a\r"]);
}

#[test]
fn long_lines_are_split() {
    let mut text = vec![b'a'; 6143 * 2 + 1];
    text.extend(b"\nb\0c\n\nd");
    let found: Vec<usize> = lines(&text).map(<[u8]>::len).collect();
    assert_eq!(found, [6143, 6143, 1, 1, 0, 1]);
    assert_eq!(lines(b"").count(), 0);
    assert_eq!(lines(b"a\n").collect::<Vec<_>>(), [b"a"]);
}
