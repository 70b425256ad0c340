//! Gates only save time: which rules match is the same without them.

use super::*;

/// Rules of an engine: few, because a gate that one opens tells nothing of the others.
const RULES: usize = 2;

/// An engine without gates.
#[derive(Debug)]
pub(crate) struct Ungated<'e>(pub(crate) &'e Rsigma);

impl Engine for Ungated<'_> {
    fn add(&mut self, _document: &str) -> Result<(), Mistake> {
        unreachable!()
    }

    fn add_filter(&mut self, _document: &str) -> Result<(), Mistake> {
        unreachable!()
    }

    fn filter_mistakes(&self) -> Vec<(usize, Mistake)> {
        self.0.filter_mistakes()
    }

    fn want(&mut self, _rule: usize, _fields: Vec<String>) {
        unreachable!()
    }

    fn rules(&self) -> &[Rule] {
        self.0.rules()
    }

    fn needs(&self) -> &[Need] {
        self.0.needs()
    }

    fn has_rules(&self, source: Source) -> bool {
        self.0.has_rules(source)
    }

    fn record_fields(&self, kind: &[u8]) -> Option<Interest<'_>> {
        self.0.record_fields(kind)
    }

    fn event_fields(&self, source: Source) -> Interest<'_> {
        self.0.event_fields(source)
    }

    fn shared_fields(&self) -> Interest<'_> {
        self.0.shared_fields()
    }

    fn version(&self) -> u64 {
        0
    }

    fn record_gate(&self, _kind: &[u8]) -> Gate<'_> {
        Gate::OPEN
    }

    fn event_gate(&self, _source: Source) -> Gate<'_> {
        Gate::OPEN
    }

    fn syscall_gate(&self, _kind: &[u8]) -> SyscallGate<'_> {
        SyscallGate::OPEN
    }

    fn find(&self, source: Source, event: &Fields<'_>, found: &mut Vec<Match>) {
        self.0.assert_search_finds_all(source, event);
        self.0.find(source, event, found);
    }
}

/// Numbers that look random.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 40).unwrap() % limit
    }

    pub(super) fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }
}

/// Parts of rules: each field has tests that some of the events below pass.
const TESTS: [&str; 78] = [
    "type: SYSCALL",
    "type: PATH",
    "type: EXECVE",
    "type: [EXECVE, CWD]",
    "type: USER_CMD",
    "SYSCALL: execve",
    "SYSCALL: [openat, connect]",
    "syscall: 257",
    "euid: 33",
    "auid: [1000, 0]",
    "comm: c",
    "comm|contains: o",
    "exe|endswith: [/vi, '/nc']",
    "exe|startswith: /usr",
    "exe: '*local*'",
    "key: audit",
    "key: [b, c]",
    "name: /etc/shadow",
    "name|startswith: /ETC/",
    "name|contains: 'ü'",
    "name|re: '^/etc/s'",
    "nametype: CREATE",
    "cwd|endswith: b",
    "a0: sh",
    "a1|contains: '-c'",
    "a2|startswith: 'long'",
    "proctitle|contains: 'sh -c'",
    "UID: www",
    "acct: root",
    "success: 'no'",
    "a1|contains: 'c a'",
    "a1: c",
    "OUID: www",
    "comm|cased: C",
    "comm|contains|cased: 'O'",
    "comm: null",
    "comm: ''",
    "comm: 'K'",
    "comm|contains: 'K'",
    "exe|contains|all: [usr, '/vi']",
    "exe|startswith: '/us?/b'",
    "exe|endswith: 'bin/*c'",
    "exe: ['*/vi', null]",
    "exe|exists: false",
    "key|exists: true",
    "key|startswith: B",
    "key|endswith: c",
    "key: ['a*b', 7]",
    "key|fieldref: comm",
    "cwd|fieldref: name",
    "euid|lt: 34",
    "auid|gte: 1000",
    "uid: 1000.0",
    "ses: [1, x]",
    "a1|re: '^-c'",
    "a1|windash|contains: '/c'",
    "a2|base64: long",
    "a2|contains: ''",
    "a0: 1",
    "argc: [2, '3']",
    "a1: '*'",
    "a3: '0'",
    "name: ['*shadow', '*?/x']",
    "name: '/etc/\\*'",
    "inode: 5",
    "saddr|startswith: '0200'",
    "laddr|cidr: 192.0.2.0/24",
    "lport: 22",
    "SADDR|contains: inet",
    "type|contains: PA",
    "type|cased: EXECVE",
    "type: ['PATH', 'S*L']",
    "res: success",
    "cmd|startswith: s",
    "uring_op: 18",
    "exit|startswith: '-'",
    "items: 1",
    "ARCH: x86_64",
];

/// Texts without a field.
const KEYWORDS: [&str; 6] = [
    "        - local\n        - ' -c'\n",
    "        - cwd\n        - syscall\n",
    "        - 'USER_C?D'\n",
    "        - uringop\n",
    "        '|all':\n            - shadow\n            - path\n",
    "        - 7\n        - 'h x'\n",
];

fn rules(random: &mut Random) -> Rsigma {
    let mut engine = Rsigma::default();
    for number in 0..RULES {
        let mut document = format!(
            "title: T\nid: r{number}\nlogsource:\n    product: linux\n    service: auditd\ndetection:\n"
        );
        for name in ["a", "b"] {
            let count = 1 + random.below(3);
            let mut tests: Vec<&str> = (0..count).map(|_| random.pick(&TESTS)).collect();
            tests.sort_by_key(|test| test.split(':').next().unwrap());
            tests.dedup_by_key(|test| test.split(':').next().unwrap());
            let tests = tests.join("\n        ");
            document.extend([format!("    {name}:\n        {tests}\n")]);
        }
        let condition = random.pick(&["a", "a and b", "a or b", "a and not b", "all of *"]);
        document.extend([format!("    condition: {condition}\n")]);
        if random.below(6) == 0 {
            let keywords = random.pick(&KEYWORDS);
            document = document.replace("    a:\n", &format!("    a:\n{keywords}    c:\n"));
        }
        engine.add(&document).unwrap();
    }
    engine
}

fn log(random: &mut Random) -> String {
    let mut text = String::new();
    for serial in 1..20 {
        let exe = random.pick(&[
            "\"/usr/bin/vi\"",
            "\"/bin/nc\"",
            "2F7573722F62696E2F7669",
            "2F62696E2F6E630A",
            "FF2F7669",
            "2F7573722F6C6F63616C2F76C3BC",
            "(null)",
        ]);
        let key = random.pick(&[
            "(null)",
            "\"audit\"",
            "610162",
            "\"x\"",
            "630142",
            "\"\"",
            "63",
        ]);
        let comm = random.pick(&[
            "\"c\"", "\"foo\"", "C3BC", "63", "E284AA", "\"\"", "(null)", "C4B0",
        ]);
        let enriched = random.pick(&[
            "",
            "\u{1d}ARCH=x86_64 SYSCALL=openat UID=\"www\"",
            "\u{1d}UID=\"root\"",
        ]);
        let call = match random.below(4) {
            0 => format!("URINGOP uring_op=18 success=yes exit=0 items=1 ppid=1 pid={}", random.below(4)),
            1 => "SYSCALL arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=5 a2=0 a3=0 items=1 ppid=1 pid=7".to_owned(),
            2 => "SYSCALL arch=40000003 syscall=5 success=no exit=-2 a0=1 a1=c a2=0 a3=0 items=1 ppid=1 pid=8".to_owned(),
            _ => "SYSCALL arch=c000003e syscall=257 success=no exit=-13 a0=1 a1=a a2=0 a3=0 items=1 ppid=1 pid=9".to_owned(),
        };
        let euid = random.pick(&["33", "0"]);
        let task = format!(
            "auid=1000 uid=1000 gid=0 euid={euid} tty=pts0 ses=1 comm={comm} exe={exe} key={key}{enriched}"
        );
        if random.below(8) > 0 {
            text += &record(serial, &format!("{call} {task}"));
        }
        let others = [
            "EXECVE argc=2 a0=\"sh\" a1=2D63",
            "EXECVE argc=3 a0=\"sh\" a1_len=8 a1[0]=2D63 a1[1]=2061",
            "EXECVE a2=\"longer\"",
            "CWD cwd=\"/a/b\"",
            "CWD cwd=2F61C3BC",
            "PATH item=0 name=\"/etc/shadow\" inode=5 nametype=NORMAL",
            "PATH item=0 name=2F6574632FC3BC inode=5 nametype=CREATE",
            "PATH item=0 name=\"/srv/x\" inode=5 nametype=CREATE OUID=\"www\"",
            "PROCTITLE proctitle=7368002D63",
            "EXECVE argc=3 a0=\"\" a1=\"x\" a2=6C6F6E670A",
            "EXECVE a1[1]=6320612D63",
            "EXECVE argc=2 a1=2D63 a0=\"sh\"",
            "EXECVE argc=1 a0=2D6",
            "PATH item=1 name=(null) inode=5 nametype=UNKNOWN",
            "PATH item=1 name=\"/etc/*\" inode=5 nametype=NORMAL",
            "PATH item=1 name=2F6574632F736861646F770A inode=5 nametype=DELETE cap_fp=0",
            "PROCTITLE proctitle=\"sh\"",
            "SOCKADDR saddr=02000016C0000201\u{1d}SADDR={ saddr_fam=inet laddr=192.0.2.1 lport=22 }",
            "SOCKADDR saddr=01002F\u{1d}SADDR={ saddr_fam=local path=/a } laddr=192.0.2.1 lport=22 }",
            "SYSCALL arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=2 a2=3 a3=0 items=2 ppid=1 pid=7 auid=0 uid=0 gid=0 euid=0 ses=1 comm=\"c\" exe=\"/bin/nc\" key=\"b\"",
            "URINGOP uring_op=18 success=yes exit=0 items=1 ppid=1 pid=3 uid=33 euid=33 key=\"c\"",
            "AVC avc:  denied  { read } for  pid=7 comm=\"c\" name=\"shadow\" scontext=a tcontext=b",
            "CONFIG_CHANGE auid=1000 ses=1 op=remove_rule key=\"audit\" list=4 res=1",
            "USER_LOGIN pid=1 uid=0 auid=1000 ses=1 msg='op=login acct=726F6F74 exe=\"/usr/bin/vi\" res=failed'\u{1d}UID=\"root\"",
            "USER_CMD pid=1 uid=0 auid=1000 msg='cwd=\"/b\" cmd=\"sh\" exe=\"/usr/local/nc\" acct=\"root\" res=success'",
        ];
        for _ in 0..random.below(4) {
            text += &record(serial, random.pick(&others));
        }
    }
    text
}

/// Compares what an engine finds in each event with and without its gates; returns the number of matches.
pub(super) fn compare_ungated(engine: &Rsigma, log: &str) -> usize {
    let mut count = 0;
    let (mut gated, mut plain) = (mapping(), mapping());
    for event in events(log) {
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        gated.find(engine, &event, &mut found);
        plain.find(&Ungated(engine), &event, &mut expected);
        let text = String::from_utf8_lossy(event.text());
        assert_eq!(found, expected, "{text}");
        count += found.len();
    }
    count
}

#[test]
fn rules_match_the_same_without_gates() {
    let mut random = Random(7);
    let count: usize = (0..400)
        .map(|_| compare_ungated(&rules(&mut random), &log(&mut random)))
        .sum();
    assert!(count > 800, "{count}");
}

fn matches(rule: &str, record: &str) -> usize {
    let mut engine = Rsigma::default();
    engine.add(rule).unwrap();
    let mut found = Vec::new();
    for event in events(&super::record(1, record)) {
        mapping().find(&engine, &event, &mut found);
    }
    found.len()
}

/// Logs that people write for tests, and old kernels, have fields in another order, or others.
#[test]
fn fields_decide_wherever_they_are() {
    let rule = |source: &str, detection: &str| {
        format!(
            "title: T\nid: r\nlogsource:\n    {source}\ndetection:\n    a:\n{detection}    condition: a\n"
        )
    };
    let call = "SYSCALL arch=c000003e syscall=59 success=yes exit=0";
    let exe = rule(
        "service: auditd",
        "        type: SYSCALL\n        exe: /bin/x\n",
    );
    let process = rule("category: process_creation", "        Image: /bin/x\n");
    for rest in [
        "a0=1 exe=\"/bin/x\" ppid=1 pid=2",
        "ppid=1 pid=2 a0=1 a1=2 exe=\"/bin/x\"",
        "pid=2 exe=\"/bin/x\"",
        "items=1 ppid=1 pid=2 exe=\"/bin/x\"",
        "a0=1 a1=2 a2=3 a3=4 items=1 ppid=1 pid=2 exe=\"/bin/x\" subj=a a0=1 pid=9",
    ] {
        let record = format!("{call} {rest}");
        assert_eq!(matches(&exe, &record), 1, "{rest}");
        let is_caller = !rest.starts_with("a0=1 exe");
        assert_eq!(matches(&process, &record), usize::from(is_caller), "{rest}");
    }
    let old = rule(
        "service: auditd",
        "        type: PATH\n        objtype: CREATE\n",
    );
    assert_eq!(matches(&old, "PATH item=0 name=\"/x\" objtype=CREATE"), 1);
    let many: String = (0..39)
        .map(|number| format!("        - type: EXECVE\n          a{number}: zz\n"))
        .collect();
    let many = rule("service: auditd", &many);
    let args: Vec<String> = (0..39)
        .map(|number| format!("a{number}=\"{}\"", if number == 38 { "zz" } else { "x" }))
        .collect();
    assert_eq!(
        matches(&many, &format!("EXECVE argc=39 {}", args.join(" "))),
        1
    );
}

/// What is remembered of a caller is void when rules are added.
#[test]
fn callers_are_forgotten_with_the_rules_that_let_them_through() {
    let rule = |id: &str, comm: &str| {
        format!(
            "title: T\nid: {id}\nlogsource:\n    service: auditd\ndetection:\n    a:\n        type: SYSCALL\n        comm: {comm}\n    condition: a\n"
        )
    };
    let mut engine = Rsigma::default();
    engine.add(&rule("r1", "other")).unwrap();
    let mut mapping = mapping();
    let [event] = events(&syscall(1, 59, "success=yes exit=0 ppid=1 pid=7"))
        .try_into()
        .unwrap();
    let mut found = Vec::new();
    mapping.find(&engine, &event, &mut found);
    assert_eq!(found, []);
    engine.add(&rule("r2", "c")).unwrap();
    mapping.find(&engine, &event, &mut found);
    assert_eq!(found.len(), 1);
}
