//! Tests of parsing, comparing and planning.

use audit::record::assemble::{EventAssembler, EventRecords};

use super::parse::parse;
use crate::accounts::Accounts;

const EVENT: &str = "\
    node=web type=SYSCALL msg=audit(1.000:77): arch=c000003e syscall=257 success=no exit=-13 a0=ffffff9c a1=7f00 a2=241 \
    a3=1b6 items=2 ppid=900 pid=901 auid=4294967295 uid=0 gid=0 euid=1000 ses=3 tty=pts0 comm=\"x y\" exe=2F746D702F6120 \
    key=610162\x1dARCH=x86_64 SYSCALL=openat AUID=\"unset\" UID=\"root\" GID=\"root\" EUID=\"webadmin\"\n\
    node=web type=CWD msg=audit(1.000:77): cwd=\"/srv/www\"\n\
    node=web type=PATH msg=audit(1.000:77): item=0 name=\"../data/x.db\" inode=55 ouid=33 ogid=4 nametype=NORMAL\x1dOUID=\"www\" OGID=\"adm\"\n\
    node=web type=SOCKADDR msg=audit(1.000:77): saddr=020000500A000001\n\
    node=web type=PROCTITLE msg=audit(1.000:77): proctitle=\"x\"\n";

const LOGIN: &str = "type=USER_LOGIN msg=audit(2.000:78): pid=5 uid=0 auid=1000 ses=4 msg='op=login acct=\"bob\" \
    exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'\n";

fn accounts() -> Accounts {
    let passwd = b"root:x:0:0::/:\nalice:x:1000:1000::/:\n";
    Accounts::parse(passwd, b"root:x:0:\nadm:x:4:\n")
}

fn event(text: &str) -> EventRecords {
    let mut assembler = EventAssembler::default();
    for line in text.lines() {
        assembler.take(line.as_bytes(), 0).unwrap();
    }
    assembler.end_all();
    assembler.next_ended().unwrap()
}

/// Whether an event matches; also asserts that the plan does not exclude what matches.
fn matches(text: &str, of: &str) -> bool {
    let expression = parse(text, &accounts()).unwrap();
    let event = event(of);
    let matches = expression.matches(&event);
    if matches {
        assert!(expression.text_pattern().may_match(event.text()), "{text}");
    }
    matches
}

#[test]
fn values_are_written_by_name_or_number() {
    for text in [
        "",
        "uid=root",
        "uid=0",
        "auid=unset",
        "auid=-1",
        "euid=webadmin",
        "euid=1000",
        "ouid=www",
        "ogid=adm",
        "syscall=openat",
        "syscall=257",
        "arch=b64",
        "arch!=b32",
        "not arch=b32",
        "arch=x86_64",
        "arch=c000003e",
        "exit=EACCES",
        "exit=-13",
        "exit<0",
        "success=no",
        "key=a and key=b",
        "exe='/tmp/a '",
        "exe~/tmp/",
        "comm=\"x y\"",
        "path=/srv/data/x.db",
        "path=../data/x.db",
        "dir=/srv/data",
        "dir=/srv/",
        "dir=/",
        "dir=/tmp/..",
        "dir=//srv/./x/../data",
        "path=/srv//data/./x.db",
        "pid=901&&uid=root",
        "(pid=5||pid=901)&&uid=root",
        "file=x.db",
        "addr=10.0.0.1",
        "type=syscall",
        "type=1302",
        "a2=241",
        "a2=0x241",
        "inode=55",
        "inode>=55 and inode<=55",
        "pid=901 and ppid=900",
        "serial=77",
        "serial>70",
        "node=web",
        "text~OUID",
        "not pid=5",
        "! ( pid=5 or pid=6 )",
        "pid=5 or pid=901",
        "pid=5 || pid=901 && uid=root",
        "pid!=5",
        "exe!~/usr",
        "NOT pid=5 AND uid=root",
        "ses=3",
    ] {
        assert!(matches(text, EVENT), "{text}");
    }
    for text in [
        "uid=alice",
        // The record says that this host's alice has another name there.
        "euid=alice",
        "path=/srv/data",
        "dir=/srv/data/x.db",
        "dir=/sr",
        "dir!=/",
        "pid=901&&pid=5",
        "file=data",
        "exe=/tmp",
        "success=yes",
        "syscall=open",
        "pid!=901",
        "exe!~/tmp",
        // The event lacks the field.
        "acct!=bob",
        "acct=bob",
        "pid=901 and uid=1",
        "not (pid=901 or pid=5)",
        "type=PATH and type=USER_LOGIN",
    ] {
        assert!(!matches(text, EVENT), "{text}");
    }
    for text in [
        "acct=bob and addr=192.0.2.7",
        "success=no",
        "exe~sshd",
        "auid=alice",
        "res=failed",
        "terminal=ssh",
        "op=login",
    ] {
        assert!(matches(text, LOGIN), "{text}");
    }
    assert!(!matches("success=yes", LOGIN));
}

#[test]
fn mistakes_show_the_place_and_advice() {
    for (text, message) in [
        ("key", "expected an operator after `key`"),
        ("key=", "expected a value"),
        ("key=a b", "expected `and` or `or` between two tests"),
        ("(key=a", "this parenthesis is not closed"),
        ("key=a)", "no parenthesis is open here"),
        ("key='a", "this quote is not closed"),
        ("pid=x", "`pid` is a number, not `x`"),
        ("pid~1", "`pid` is not text"),
        ("key<a", "`key` is not a number"),
        ("exit=EFOO", "`EFOO` is neither a number nor an error"),
        ("syscall=opn", "no syscall is called `opn`"),
        ("type=FOO", "no record type is called `FOO`"),
        ("success=maybe", "`success` is yes or no, not `maybe`"),
        ("a1=xyz", "`a1` is hexadecimal, not `xyz`"),
        ("and", "expected an operator after"),
        ("key=a and", "expected a test"),
        ("\u{e9}=1", "expected a test"),
    ] {
        let mistake = parse(text, &accounts()).unwrap_err();
        let found = mistake.message;
        let message = message.replace("expected an operator after`", "");
        let is_expected =
            found.contains(&message) || text == "and" && found.contains("unknown field");
        assert!(is_expected, "{text}: {found}");
        assert!(!mistake.advice.is_empty(), "{text}");
    }
}

#[test]
fn deep_and_long_expressions_are_refused() {
    let deep = "(".repeat(100_000);
    assert_eq!(
        parse(&deep, &accounts()).unwrap_err().message,
        "the expression is too long"
    );
    let deep = "(".repeat(1000) + "pid=1";
    assert_eq!(
        parse(&deep, &accounts()).unwrap_err().message,
        "too many parentheses"
    );
    let not = "! ".repeat(1000) + "pid=1";
    assert_eq!(
        parse(&not, &accounts()).unwrap_err().message,
        "too many parentheses"
    );
}

#[test]
fn unknown_accounts_are_listed() {
    let unknown = |text: &str| {
        let expression = parse(text, &accounts()).unwrap();
        expression
            .unknown_accounts()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        unknown("uid=nobody1 or not (gid=nogroup1 and auid=alice and euid=7)"),
        ["nobody1", "nogroup1"]
    );
    assert!(unknown("key=nobody1").is_empty());
}

#[test]
fn arguments_of_a_title_are_separated_by_blanks() {
    let title = "type=PROCTITLE msg=audit(1.000:77): proctitle=63686D6F64003634300071\n";
    for text in [
        "proctitle=\"chmod 640 q\"",
        "proctitle~'chmod 640'",
        "proctitle~' 640 '",
    ] {
        assert!(matches(text, title), "{text}");
    }
    assert!(!matches("proctitle~'chmod  640'", title));
}
