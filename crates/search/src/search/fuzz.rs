//! Fuzz test: any text is an expression or refused, and the index and the text filter exclude no event that matches.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use audit::record::assemble::{EventAssembler, EventRecords};
use inputs::fuzz::{files, fuzz};
use logs::accounts::Accounts;
use logs::expression::parse::parse;
use logs::index::LogIndex;
use logs::index::store::{self, Extent};
use logs::log_file::LogFile;

use super::{Query, TimeRange};
use crate::mistake;

/// Events of all kinds, one on each element; some as no known writer writes them.
const EVENTS: [&str; 8] = [
    "node=web type=SYSCALL msg=audit(1.000:77): arch=c000003e syscall=257 success=no exit=-13 a0=ffffff9c a1=7f00 a2=241 \
     items=2 ppid=900 pid=901 auid=4294967295 uid=0 euid=1000 ses=3 tty=pts0 comm=\"x y\" exe=2F746D702F6120 \
     key=610162\x1dARCH=x86_64 SYSCALL=openat AUID=\"unset\" UID=\"root\" GID=\"root\" EUID=\"webadmin\"\n\
     node=web type=CWD msg=audit(1.000:77): cwd=\"/srv/www\"\n\
     node=web type=PATH msg=audit(1.000:77): item=0 name=\"../data/x.db\" inode=55 ouid=33 ogid=4 nametype=NORMAL\x1dOUID=\"www\" OGID=\"adm\"\n\
     node=web type=SOCKADDR msg=audit(1.000:77): saddr=020000500A000001\n\
     node=web type=PROCTITLE msg=audit(1.000:77): proctitle=\"x\"\n",
    "type=USER_LOGIN msg=audit(2.000:78): pid=5 uid=0 auid=1000 ses=4 msg='op=login acct=626F6f \
     exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'\n",
    "type=SYSCALL msg=audit(3.000:1): syscall=0257 success=yes exit=+0 a2=0241 pid=0000901 ppid=-1 uid=+0 euid=-1 ses=-1 \
     auid=00 key=(null) exe=\"/bin/a\" exit=-00 arch=0c000003e\n",
    "type=SYSCALL msg=audit(4.000:2): syscall=2 success=1 exit=-0 pid=901x uid=\"root\" key=\"a\" comm=x\x1dUID=root oUid=x\n\
     type=PATH msg=audit(4.000:2): item=0 name=2f7372762f782e6462 inode=055 ouid=0033 ogid=+4\x1dOuid=www OGID=adm\n",
    "type=AVC msg=audit(5.000:3): avc:  denied  { read } for  pid=901 comm=\"x\" path=\"/srv/data/x.db\" res=1 success=no\n",
    "type=UNKNOWN[1999] msg=audit(6.000:4): success=failed res=0 addr=\"10.0.0.1\" path=/srv//./data/../x.db\n",
    "type=SOCKADDR msg=audit(7.000:5): saddr=01002F7372762F782E646200\ntype=EXECVE msg=audit(7.000:5): argc=2 a0=6C73 a1=\"241\"\n",
    "type=CWD msg=audit(8.000:6): cwd=2F737276\ntype=PATH msg=audit(8.000:6): name=\"./x.db/\"\n\
     type=PATH msg=audit(8.000:6): name=\"/srv/./\"\ntype=EOE msg=audit(8.000:6): \n",
];

const WORDS: &[&str] = &[
    "and",
    "or",
    "not",
    "(",
    ")",
    "!",
    "=",
    "!=",
    "~",
    "!~",
    "<=",
    "pid",
    "uid=root",
    "euid=webadmin",
    "ouid=www",
    "ouid=33",
    "ogid=adm",
    "ogid=4",
    "auid=0",
    "key=a",
    "exe~/tmp",
    "path=/srv/data/x.db",
    "path=/srv/x.db",
    "path~x.db",
    "dir=/srv",
    "file=x.db",
    "'",
    "\"",
    " ",
    "\t",
    "syscall=openat",
    "exit=EACCES",
    "exit=0",
    "exit<0",
    "exit<=-1",
    "pid=901",
    "ses=unset",
    "success=no",
    "success=yes",
    "res=1",
    "addr=10.0.0.1",
    "a2=241",
    "a1=241",
    "inode=55",
    "\u{e9}",
    "unset",
    "99999999999999999999",
    "0x",
    "type=",
    "serial>1",
    "acct=boo",
    "acct~oo",
    "exit!=0",
    "exit>-14",
    "pid>900",
    "pid!=901",
    "ppid<0",
    "uid!=root",
    "uid>=1000",
    "auid!=unset",
    "ses!=unset",
    "ouid!=33",
    "a2>240",
    "a2!=241",
    "inode<=55",
    "inode!=55",
    "path~/srv/data",
    "path~data/x",
    "dir~v/dat",
];

/// Logs of one event each, with their indexes, and a log of all.
struct Logs {
    events: Vec<(EventRecords, LogIndex)>,
    all: [PathBuf; 2],
    _directory: tempfile::TempDir,
}

impl Logs {
    fn get() -> &'static Self {
        static LOGS: OnceLock<Logs> = OnceLock::new();
        LOGS.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            let mut assembler = EventAssembler::default();
            let mut events = Vec::new();
            for (number, text) in EVENTS.into_iter().enumerate() {
                for line in text.lines() {
                    assembler.take(line.as_bytes(), 0).unwrap();
                }
                assembler.end_all();
                let event = assembler.next_ended().unwrap();
                assert!(assembler.is_idle(), "{text}");
                let path = directory.path().join(format!("event{number}"));
                fs::write(&path, text).unwrap();
                let mut file = LogFile::open(&path).unwrap();
                let index = store::open(&mut file, Extent::Whole, |_| ()).unwrap();
                assert_eq!(index.blocks().count(), 1);
                events.push((event, index));
            }
            let all = ["all", "none"].map(|name| directory.path().join(name));
            fs::write(&all[0], EVENTS.concat()).unwrap();
            fs::write(&all[1], "").unwrap();
            Self {
                events,
                all,
                _directory: directory,
            }
        })
    }
}

fn expression(bytes: &[u8]) {
    let accounts = Accounts::parse(
        b"root:x:0:0::/:\nalice:x:1000:1000::/:\n",
        b"root:x:0:\nadm:x:4:\n",
    );
    let text = String::from_utf8_lossy(bytes);
    let expression = match parse(&text, &accounts) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            mistake::draw("expression", &text, &error);
            return;
        }
    };
    let logs = Logs::get();
    let (condition, pattern) = (expression.condition(), expression.text_pattern());
    let mut matching = Vec::new();
    for (event, index) in &logs.events {
        if expression.matches(event) {
            matching.push(event.text().to_vec());
            assert!(pattern.may_match(event.text()), "{text}: {pattern:?}");
            assert_eq!(
                index.candidates(&condition).len(),
                1,
                "{text}: {condition:?} {}",
                String::from_utf8_lossy(event.text())
            );
        }
    }
    let query = Query {
        expression: expression.clone(),
        range: TimeRange::parse(None, None).unwrap(),
    };
    let mut found = Vec::new();
    let all = crate::logs_arg::Logs::new("fuzz", logs.all.to_vec());
    query
        .for_each(&all, |event| {
            found.push(event.text().to_vec());
            Ok(())
        })
        .unwrap();
    assert!(!all.have_errors());
    // In a log of all, events end in another order.
    found.sort_unstable();
    matching.sort_unstable();
    assert!(found == matching, "{text}");
}

#[test]
fn fuzz_expression() {
    let words = WORDS.iter().map(|word| word.as_bytes().to_vec());
    let corpus: Vec<Vec<u8>> = files("fuzz/expression").into_iter().chain(words).collect();
    fuzz("fuzz_expression", &corpus, WORDS, 2000, expression);
}
