//! Code and position of each mistake.

use std::collections::BTreeSet;

use super::super::super::diagnostic_codes as explained;
use super::*;

/// Each mistake with its code and column, in the order of the modules that report them.
const MISTAKES: &[(&str, &str, u32)] = &[
    ("-a always,exit\t-S open", "tab", 15),
    ("-w /a\0b", "nul-byte", 6),
    ("-D\n-D", "newline", 3),
    ("-D\r", "carriage-return", 3),
    ("-z", "unknown-option", 1),
    ("--loginuid-immutable=1", "unwanted-value", 1),
    ("-w", "missing-value", 1),
    ("-w \"/a b\"", "relative-path", 4),
    ("-w /a b", "stray-word", 7),
    ("--", "stray-word", 1),
    ("-l", "not-in-file", 1),
    ("-R /x", "not-in-file", 1),
    ("--reset-lost", "not-in-file", 1),
    ("-q /a,/b", "unsupported", 1),
    ("-b 1 -f 1", "two-commands", 6),
    ("-D -b 1", "two-commands", 4),
    ("-D -kx", "two-commands", 4),
    ("-D -k a\u{1}b", "bad-key", 7),
    ("-i --", "stray-word", 4),
    ("-k x -D", "two-commands", 1),
    ("-a always,exit -b 1", "two-commands", 16),
    ("-e 3", "bad-setting", 4),
    ("-b abc", "bad-number", 4),
    ("-b -1", "bad-number", 4),
    ("-b 4294967296", "number-too-large", 4),
    ("-b 12k", "number-rest", 6),
    ("-S open", "missing-list", 1),
    ("-F arch=b64 -S open", "list-first", 1),
    ("-p wa", "list-first", 1),
    ("-k x", "list-first", 1),
    ("-a exit", "bad-list", 4),
    ("-a exit,always,x", "bad-list", 4),
    ("-a always,foo", "bad-list", 11),
    ("-a always,never", "bad-list", 4),
    ("-a entry,always -S open", "bad-list", 4),
    ("-a exit,possible", "deprecated-action", 9),
    ("-w /x -w /y", "two-rules", 7),
    ("-a always,exit -p wa", "perm-first", 16),
    ("-S open -w /x", "syscall-with-watch", 4),
    ("-a always,exit -w /y", "two-rules", 16),
    ("-S 18 -a always,io_uring", "list-first", 4),
    (
        "-a always,exit -F arch=b64 -S nosuch",
        "unknown-syscall",
        31,
    ),
    (
        "-a always,exit -F arch=b64 -S open,nosuch",
        "unknown-syscall",
        36,
    ),
    (
        "-a always,exit -F arch=b64 -S socketcall",
        "unknown-syscall",
        31,
    ),
    ("-a always,exit -S 9999", "unknown-syscall", 19),
    ("-a always,exit -S ,", "unknown-syscall", 19),
    ("-a always,exit -S 2047", "syscall-class", 19),
    ("-a always,io_uring -S read", "unknown-syscall", 23),
    ("-a always,exit -S execve", "arch-missing", 19),
    ("-a always,task -S open", "syscall-on-list", 19),
    ("-a always,exclude -S 1", "syscall-on-list", 22),
    ("-a always,exit -S 1 -F arch=b64", "arch-after-syscall", 24),
    ("-w /x -F arch=b64", "arch-after-syscall", 10),
    (
        "-a always,exit -F arch=b32 -F path=/x -F perm=w -F arch=b64",
        "arch-after-syscall",
        52,
    ),
    (
        "-a always,exit -F arch=aarch64 -S openat",
        "foreign-arch",
        24,
    ),
    ("-a always,exit -F arch=foo", "unknown-arch", 24),
    ("-a always,exit -F auid", "missing-operator", 19),
    ("-a always,exit -F =5", "missing-field", 19),
    ("-a always,exit -F a4=1", "unknown-field", 19),
    ("-a always,exit -F uid=", "missing-value", 19),
    ("-a always,exit -F arch>b64", "bad-operator", 23),
    ("-a always,exit -F perm!=w", "bad-operator", 23),
    ("-a always,exit -F path!=/x", "bad-operator", 23),
    ("-a always,exit -F uid&1", "bad-operator", 22),
    ("-a always,exit -F auid>unset", "bad-operator", 24),
    ("-a always,exit -F uid=unset", "unset-id", 23),
    ("-a always,exit -F gid=4294967295", "unset-id", 23),
    ("-a always,exit -F uid=4294967296", "number-too-large", 23),
    ("-a always,exit -F uid=nosuch", "unknown-user", 23),
    ("-a always,exit -F gid=-1", "unknown-group", 23),
    ("-a always,exit -F pid=abc", "bad-number", 23),
    ("-a always,exit -F a0=foo", "bad-number", 22),
    ("-a always,exit -F success=yes", "bad-number", 27),
    ("-a always,exit -F a0=0x100000001", "number-cut", 22),
    ("-a always,exit -F inode=4294967297", "number-cut", 25),
    ("-a always,exit -F exit=EFOO", "unknown-errno", 24),
    ("-a always,exit -F exit=EACCES", "positive-errno", 24),
    ("-a always,exit -F exit<0", "never-matches", 24),
    ("-a always,exclude -F msgtype=FOO", "unknown-msgtype", 30),
    ("-a always,exit -F filetype=bogus", "unknown-filetype", 28),
    ("-a never,filesystem -F fstype=ext9", "unknown-fstype", 31),
    ("-a always,exit -F perm=rz", "bad-perm", 25),
    ("-w /x -p rwxaw", "bad-perm", 10),
    ("-a always,exit -F path=x", "relative-path", 24),
    ("-a always,exit -F path=/x/", "trailing-slash", 24),
    ("-a always,exit -F exe=/x/", "trailing-slash", 23),
    ("-a always,exit -F saddr_fam=46", "number-too-large", 29),
    ("-a always,exit -F saddr_fam=inet", "not-a-number", 29),
    ("-a always,exit -F msgtype=CWD", "field-on-list", 19),
    ("-a always,exit -F fstype=tracefs", "field-on-list", 19),
    ("-a never,user -F ppid=1", "field-on-list", 18),
    ("-a never,filesystem -F uid=0", "field-on-list", 24),
    ("-a always,io_uring -F perm=w", "field-on-list", 23),
    ("-a always,io_uring -p w", "field-on-list", 20),
    ("-a never,exclude -F sessionid=3", "never-matches", 21),
    ("-a always,task -F exe=/x", "never-matches", 19),
    ("-a always,task -C uid!=euid", "field-on-list", 19),
    ("-a always,exit -C uid=gid", "bad-comparison", 19),
    ("-a always,exit -C auid>uid", "bad-operator", 23),
    ("-a always,exit -C uid=foo", "unknown-field", 23),
    ("-a always,exit -C uid=", "missing-value", 19),
    ("-a always,exit -C uid", "missing-operator", 19),
    ("-a always,exit -F field_compare=26", "bad-comparison", 33),
    ("-a always,exit -F field_compare>1", "bad-operator", 32),
    ("-a always,exit -F path=/a -F dir=/b", "two-objects", 30),
    ("-a always,exit -F exe=/a -F exe=/b", "two-objects", 29),
    ("-a always,exit -F uid=0 -k x", "key-first", 25),
    ("-a always,exit -F uid=0 -F key=x", "key-first", 32),
    ("-a always,exit -S 1 -F key=", "empty-key", 28),
    ("-w /x -p w -k \"a\"", "quoted-key", 15),
    ("-w /x -p w -k \u{201c}a\u{201d}", "quoted-key", 15),
    ("\u{feff}-w /x -p w", "byte-order-mark", 1),
    ("-a always,exit -S 1 -F key!=x", "key-operator", 27),
    ("-w /x -k a\u{1}b", "bad-key", 10),
    ("-w /a/../b", "dot-dot", 4),
    ("-w /a*", "wildcard", 4),
    ("-a always,exit -F path=/usr/bin/su*", "wildcard", 24),
    ("-a always,exit -F dir=/home/?/.ssh", "wildcard", 23),
    ("-a always,exit -F exe=/opt/*/run", "wildcard", 23),
    ("-a always,exit \u{2013}F uid=0", "pasted-dash", 16),
    ("\u{2014}w /x", "pasted-dash", 1),
    ("-w /x \u{2212}k y", "pasted-dash", 7),
];

#[test]
fn each_mistake_has_code_and_column() {
    for &(line, code, column) in MISTAKES {
        let (command, findings) = parse_line(line.as_bytes(), &TestHost);
        let first = &findings[0];
        assert!(explained::explain(first.code).is_some(), "{}", first.code);
        assert_eq!(
            (first.code, first.column, first.line),
            (code, column, 1),
            "{line}"
        );
        let failed = findings
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        assert!(!failed || command.is_none(), "{line}");
        for finding in &findings {
            let text = &finding.message;
            assert!(
                !text.ends_with('.') && !finding.advice.is_empty(),
                "{line}: {finding:?}"
            );
        }
    }
}

#[test]
fn limits_are_enforced() {
    let many = |count: u32| {
        let tests: Vec<String> = (0..count).map(|id| format!(" -F uid!={id}")).collect();
        format!("-a always,exit -F arch=b64 -S openat{}", tests.concat())
    };
    assert_eq!(rule(&many(62)).fields.len(), 63);
    assert_eq!(codes(many(63).as_bytes())[0].1, "too-many-fields");
    assert_eq!(
        codes(format!("{} -k x", many(62)).as_bytes())[0].1,
        "too-many-fields"
    );

    let key = "x".repeat(256);
    assert_eq!(
        rule(&format!("-w /x -k {key}")).keys,
        [BString::from(key.as_str())]
    );
    assert_eq!(
        codes(format!("-w /x -k {key}x").as_bytes())[0].1,
        "key-too-long"
    );
    assert_eq!(
        codes(format!("-w /x -k {} -k y", "x".repeat(255)).as_bytes())[0].1,
        "key-too-long"
    );

    let path = |bytes: usize| {
        format!(
            "-a always,exit -F path=/{}",
            "d/".repeat(bytes / 2 - 1) + "d"
        )
    };
    assert!(codes(path(4096).as_bytes()).is_empty());
    assert_eq!(codes(path(4098).as_bytes())[0].1, "value-too-long");
    let name = format!("-w /{}", "n".repeat(256));
    assert_eq!(codes(name.as_bytes())[0].1, "value-too-long");
    let watch = format!("-w {}", "/d".repeat(2048));
    assert_eq!(codes(watch.as_bytes())[0].1, "value-too-long");
}

#[test]
fn line_of_100_000_bytes_is_refused() {
    let mut line = b"-a always,exit -S open -k ".to_vec();
    line.resize(100_000, b'x');
    assert_eq!(codes(&line), [(Severity::Error, "line-too-long", 1)]);
    line.truncate(lexer::LINE_LIMIT_BYTES);
    assert!(
        codes(&line)
            .iter()
            .all(|&(_, code, _)| code != "line-too-long")
    );
}

#[test]
fn all_mistakes_of_a_line_are_reported() {
    let line = b"-a always,exit -F arch=b64 -S opne,nosuch -F foo=1 -F uid=nosuch -C uid=gid x";
    let found: Vec<_> = codes(line).into_iter().map(|(_, code, _)| code).collect();
    let expected = [
        "unknown-syscall",
        "unknown-syscall",
        "unknown-field",
        "unknown-user",
        "bad-comparison",
        "stray-word",
    ];
    assert_eq!(found, expected);
}

#[test]
fn unknown_names_get_a_suggestion() {
    for (line, name) in [
        ("-a always,exit -F arch=b64 -S opneat", "openat"),
        ("-a always,exit -F audi=0", "auid"),
        ("-a always,exit -F exit=-EACCESS", "EACCES"),
        ("-a alway,exit", "always"),
        ("-a always,exit -F filetype=files", "file"),
        ("-a always,exit -F arch=x86-64", "x86_64"),
        ("--loginuid_immutable", "loginuid-immutable"),
        ("-a always,exit -F success=no", "success=0"),
    ] {
        let (_, findings) = parse_line(line.as_bytes(), &TestHost);
        assert!(
            findings[0].advice.contains(&format!("`{name}`")),
            "{line}: {findings:?}"
        );
    }
    let (_, findings) = parse_line(b"-a always,exit -F arch=b64 -S socketcall", &TestHost);
    assert_eq!(findings[0].advice, "i386 has it, x86_64 does not");
}

#[test]
fn codes_are_words_with_hyphens() {
    let all: BTreeSet<&str> = MISTAKES.iter().map(|&(_, code, _)| code).collect();
    for code in all {
        assert!(
            code.bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_lowercase()),
            "{code}"
        );
    }
}
