//! Random questions over logs of many blocks, with and without an index: the answers are the same bytes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bstr::ByteSlice as _;

use crate::logs::{self, Damage};
use crate::questions;
use crate::random::Random;
use crate::tools::{Answer, answer, first_difference, ours};

/// What disturbs a log. Each happens once in so many events; never if 0.
#[derive(Clone, Copy, Debug)]
struct Disorder {
    /// Records are swapped, or written up to 300 lines later.
    interleaved: usize,
    /// The clock goes back.
    back: usize,
    /// The clock goes far ahead for one event.
    ahead: usize,
    /// Lines of the hostile logs.
    hostile: usize,
    /// Two nodes, which often use the same stamps.
    nodes: bool,
    /// Records that the index reads otherwise than the stock tools: a block with one is always read.
    odd: bool,
    /// Events have an end record.
    ends: bool,
    enriched: bool,
}

/// Events as the kernel writes them, with many values, of which some are rare.
fn log(random: &mut Random, events: usize, disorder: Disorder) -> Vec<u8> {
    let hostile = Damage {
        once_in: 3,
        interleaved: true,
        enriched: disorder.enriched,
        nodes: disorder.nodes,
    };
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut later: Vec<(usize, Vec<u8>)> = Vec::new();
    let once = |random: &mut Random, times: usize| times != 0 && random.once_in(times);
    let mut ms = 1_700_000_000_000_u64;
    for serial in 1..=events {
        ms += u64::try_from(random.below(30)).unwrap();
        if random.once_in(300) {
            ms += u64::try_from(random.below(60_000)).unwrap();
        }
        if once(random, disorder.back) {
            ms -= u64::try_from(random.below(9000)).unwrap();
        }
        let mut at = ms;
        if once(random, disorder.ahead) {
            at += u64::try_from(random.below(200_000)).unwrap();
        }
        let (mut serial, mut node) = (serial, "");
        if disorder.nodes {
            node = random.pick(&["node=web1 ", "node=web2 "]);
            serial -= random.below(3).min(serial);
            at -= at % 8;
        }
        let stamp = format!("msg=audit({}.{:03}:{serial}): ", at / 1000, at % 1000);
        let mut records = event(random, disorder.odd);
        if disorder.ends {
            records.push("EOE ".to_owned());
        }
        for record in records {
            let (kind, body) = record.split_once(' ').unwrap();
            let mut line = format!("{node}type={kind} {stamp}{body}");
            if disorder.enriched && kind == "SYSCALL" {
                line += "\x1dARCH=x86_64 SYSCALL=openat AUID=\"root\" UID=\"root\"";
            }
            let line = (line + "\n").into_bytes();
            if once(random, disorder.interleaved) {
                let most = *random.pick(&[&2, &20, &300]);
                let delay = 1 + random.below(most);
                later.push((lines.len() + delay, line));
            } else {
                lines.push(line);
            }
        }
        while let Some(at) = later.iter().position(|(at, _)| *at <= lines.len()) {
            lines.push(later.remove(at).1);
        }
        if once(random, disorder.hostile) {
            let text = logs::log(random, 1, hostile);
            // Of the time of the log, or of another.
            let now = format!("audit({}.", ms / 1000);
            let text = match random.once_in(2) {
                true => text.replace("audit(1700000000.", now),
                false => text,
            };
            lines.extend(text.lines_with_terminator().map(<[u8]>::to_vec));
        }
    }
    lines.extend(later.into_iter().map(|(_, line)| line));
    lines.concat()
}

/// A name as the kernel writes it in hex.
fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02X}")).collect()
}

/// A name with many components.
fn long_path(random: &mut Random) -> String {
    let number = random.below(40);
    let (few, many) = (number % 7, number * 9);
    match random.below(8) {
        0 | 1 => format!("/home/user{few}/src/file{many}.c"),
        2 => format!("/home/user{few}/my notes/page{number}.txt"),
        3 => format!("./src//deep{number}/../file{many}"),
        4 => format!("../share//deeper{number}/file"),
        5 => format!("relative{number}/share/longer-name-than-sixteen-{number}/"),
        6 => format!("/var/lib/some/other/directory{number}/with/a/file{many}"),
        _ => format!("/work/dir{few}"),
    }
}

/// A part of a name that the log may have.
fn part_of_path(random: &mut Random) -> String {
    let number = random.below(400);
    let mut path = match random.below(8) {
        0 => format!("/srv/www/page{number}"),
        1 => format!("/etc/file{number}"),
        2 => format!("/run/dir/sock{number}"),
        3 => "/usr/bin/python3".to_owned(),
        _ => long_path(random),
    };
    if random.once_in(8) {
        path += random.pick(&[".c", "/", "/x"]);
    }
    // Names are ASCII.
    let start = match random.once_in(3) {
        true => 0,
        false => random.below(path.len() - 1),
    };
    let end = match random.once_in(2) {
        true => path.len(),
        false => start + 1 + random.below(path.len() - start),
    };
    path.get(start..end).unwrap().to_owned()
}

/// Records of an event, without the stamp.
fn event(random: &mut Random, is_odd: bool) -> Vec<String> {
    let name = |random: &mut Random| {
        let number = random.below(400);
        match random.below(16) {
            0 => format!("\"/etc/file{number}\""),
            12..16 => {
                let path = long_path(random);
                match path.contains(' ') || random.once_in(4) {
                    true => hex(&path),
                    false => format!("\"{path}\""),
                }
            }
            1 => "\"/etc/passwd\"".to_owned(),
            2 => format!("\"../data{number}\""),
            3 => "2F746D702F612062".to_owned(),
            4 => "(null)".to_owned(),
            5 => random
                .pick(&["\"..\"", "\"./data\"", "\".hidden\""])
                .to_owned(),
            _ => format!("\"/srv/www/page{number}\""),
        }
    };
    let cwd = |random: &mut Random| match random.below(30) {
        number @ 0..9 => format!("\"/work/dir{number}\""),
        9 => hex("/work/my dir/data7"),
        _ => "\"/root\"".to_owned(),
    };
    let users = ["0", "33", "1000", "4294967295", "4242"];
    let pid = random.below(900);
    let uid = users[random.below(40).min(4) % 5];
    let key = match random.below(400) {
        0 => "\"identity\"",
        1 => "6964656E746974790170636901",
        2..50 => "(null)",
        _ => "\"usual\"",
    };
    let exe = random.pick(&[
        "\"/usr/bin/cat\"",
        "\"/usr/bin/bash\"",
        "\"/usr/sbin/rare\"",
    ]);
    let (exit, success) =
        *random.pick(&[&("-13", "no"), &("3", "yes"), &("140737488355328", "yes")]);
    let address = random.pick(&["192.0.2.7", "198.51.100.9", "?"]);
    let syscall = format!(
        "SYSCALL arch=c000003e syscall={} success={success} exit={exit} a0=3 a1=7f a2=0 a3=0 items=1 \
         ppid={} pid={pid} auid={uid} uid={uid} gid=0 euid={uid} suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 \
         tty=pts0 ses={} comm=\"cat\" exe={exe} key={key}",
        [2, 59, 257, 257, 257][random.below(5)],
        random.below(50),
        random.below(20),
    );
    let login = format!(
        "pid={pid} uid={uid} auid={uid} ses=7 msg='op=login acct=\"alice\" exe=\"/usr/sbin/sshd\" \
         hostname={address} addr={address} terminal=ssh res=success'"
    );
    match random.below(20) {
        0 => vec![format!("USER_LOGIN {login}")],
        1 => vec![format!("USER_START {login}")],
        2 => vec![
            "CONFIG_CHANGE auid=0 ses=1 op=add_rule key=\"pci\" list=4 res=1".to_owned(),
            syscall,
        ],
        6 => vec![
            syscall,
            format!("SOCKADDR saddr=0100{}00", hex(&format!("/run/dir/sock{}", random.below(300)))),
        ],
        7 => vec![format!(
            "AVC avc:  denied  {{ read }} for  pid={pid} comm=\"cat\" path={} dev=\"sda1\" ino=1 \
             scontext=a:b:c tcontext=a:b:c tclass=file",
            name(random)
        )],
        8 => vec![format!(
            "USER_CMD pid={pid} uid={uid} auid={uid} ses=7 msg='cwd={} cmd=6C73 exe=\"/usr/bin/sudo\" \
             terminal=pts/0 res=success'",
            cwd(random)
        )],
        3 => vec![
            syscall,
            "SOCKADDR saddr=020000357F0000010000000000000000".to_owned(),
        ],
        4 if is_odd => vec![syscall, "SOCKADDR saddr=0200".to_owned()],
        5 => vec!["NETFILTER_CFG table=filter family=2 entries=0 op=register pid=2 subj=x comm=\"iptables\"".to_owned()],
        _ => vec![
            syscall,
            format!("CWD cwd={}", cwd(random)),
            format!("PATH item=0 name={} inode=1 nametype=NORMAL", name(random)),
            "PROCTITLE proctitle=\"x\"".to_owned(),
        ],
    }
}

/// A question whose answer is a small part of the log.
fn question(random: &mut Random) -> Vec<String> {
    const FILTERS: &[(&str, &[&str])] = &[
        ("-p", &["7", "100", "777", "899", "2"]),
        ("-pp", &["7", "49"]),
        ("-k", &["identity", "pci", "dent", "usual", "nokey"]),
        (
            "-f",
            &[
                "/etc/file1",
                "passwd",
                "/etc/file99",
                "data7",
                "a b",
                "/root",
                "/../",
                "dir3/",
                "/work/dir3/",
                "/root/.",
                "nofile",
            ],
        ),
        ("-ui", &["4242", "33", "root", "0", "4294967295"]),
        ("-ue", &["4242", "1000"]),
        ("-ul", &["4242", "-1", "1000", "root"]),
        ("-ua", &["4242", "33"]),
        ("-x", &["rare", "sshd", "/usr/bin/cat"]),
        ("-c", &["cat", "iptables", "systemd"]),
        ("-a", &["17", "1200", "2400"]),
        (
            "-m",
            &[
                "USER_LOGIN",
                "NETFILTER_CFG",
                "SOCKADDR,CWD",
                "EOE",
                "DAEMON_START",
                "AVC",
            ],
        ),
        ("-sc", &["59", "execve", "0"]),
        ("--session", &["7", "19", "77"]),
        ("-e", &["-13", "3", "140737488355328"]),
        ("-hn", &["192.0.2.7", "9", "127.0.0.1", "::1"]),
        ("-sv", &["no"]),
        ("-n", &["web1"]),
    ];
    let mut words = vec![random.pick(&["--raw", "-i", "--format=", ""]).to_owned()];
    if words[0] == "--format=" {
        words = vec!["--format".to_owned(), "csv".to_owned()];
    }
    words.retain(|word| !word.is_empty());
    for _ in 0..=random.below(3) {
        let (name, values) = FILTERS[random.below(FILTERS.len())];
        words.extend([name.to_owned(), random.pick(values).to_owned()]);
    }
    if random.once_in(4) {
        words.extend(["-f".to_owned(), part_of_path(random)]);
    }
    for (name, seconds) in [("-ts", 0), ("-te", 40)] {
        if random.once_in(4) {
            let second = seconds + random.below(100);
            let time = format!("22:{}:{:02}", 13 + (20 + second) / 60, (20 + second) % 60);
            words.extend([name.to_owned(), "11/14/23".to_owned(), time]);
        }
    }
    for (word, times) in [("-w", 5), ("--just-one", 12)] {
        if random.once_in(times) {
            words.push(word.to_owned());
        }
    }
    if random.once_in(8) {
        words.extend([
            "--eoe-timeout".to_owned(),
            random.pick(&["1", "5"]).to_owned(),
        ]);
    }
    words
}

fn ask(directory: &Path, words: &[String], block: &str) -> Answer {
    let mut command = Command::new(ours("ausearch"));
    command
        .args(words)
        .args(["-if", "."])
        .current_dir(directory)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("TOLLGATE_INDEX_BLOCK", block);
    answer(command.stdin(Stdio::null()).output().unwrap())
}

/// Writes a log as three files, cut anywhere: in an event, and often in a line.
fn write(directory: &Path, random: &mut Random, text: &[u8]) {
    let third = text.len() / 3;
    let mut cuts = [third, 2 * third];
    for cut in &mut cuts {
        *cut += random.below(500);
        if random.once_in(2) {
            *cut += text[*cut..].find_byte(b'\n').unwrap() + 1;
        }
    }
    let cuts = [0, cuts[0], cuts[1], text.len()];
    for (cut, name) in cuts
        .windows(2)
        .zip(["audit.log.2", "audit.log.1", "audit.log"])
    {
        fs::write(directory.join(name), &text[cut[0]..cut[1]]).unwrap();
    }
}

fn disorder(random: &mut Random) -> Disorder {
    // The index leaves out the most of an ordered log.
    if random.once_in(3) {
        return Disorder {
            interleaved: 0,
            back: 0,
            ahead: 0,
            hostile: 0,
            nodes: false,
            odd: false,
            ends: random.once_in(2),
            enriched: random.once_in(2),
        };
    }
    Disorder {
        odd: random.once_in(2),
        interleaved: *random.pick(&[&0, &4, &40, &400]),
        back: *random.pick(&[&0, &0, &200, &2000]),
        ahead: *random.pick(&[&0, &0, &0, &1500]),
        hostile: *random.pick(&[&0, &0, &100, &900]),
        nodes: random.once_in(5),
        ends: random.once_in(3),
        enriched: random.once_in(3),
    }
}

/// Number of logs; more with `TOLLGATE_INDEXED_LOGS`.
fn count() -> u64 {
    let count = std::env::var("TOLLGATE_INDEXED_LOGS").ok();
    count.map_or(5, |count| count.parse().unwrap())
}

#[test]
fn answers_with_an_index_equal_those_without() {
    const QUESTIONS: usize = 20;
    let first = std::env::var("TOLLGATE_FIRST").map_or(0, |first| first.parse().unwrap());
    let mut found = 0;
    for seed in first..first + count() {
        let random = &mut Random::new(seed);
        let place = tempfile::tempdir().unwrap();
        let disorder = disorder(random);
        let text = log(random, 2000, disorder);
        write(place.path(), random, &text);
        let block = random.pick(&["2000", "8000", "30000"]);
        for number in 0..QUESTIONS {
            let words = match number % 5 {
                0 => questions::search(random, None),
                1 | 2 => ["--raw", "-f", &part_of_path(random)]
                    .map(str::to_owned)
                    .to_vec(),
                _ => question(random),
            };
            let plain = ask(place.path(), &words, "0");
            let indexed = ask(place.path(), &words, block);
            found += usize::from(!indexed.out.is_empty());
            if plain != indexed {
                let out = first_difference(&plain.out, &indexed.out);
                let err = first_difference(&plain.err, &indexed.err);
                if let Ok(path) = std::env::var("TOLLGATE_KEEP") {
                    fs::rename(place.path(), path).unwrap();
                }
                panic!("seed {seed} {disorder:?} block {block}: {words:?}\n{out}{err}");
            }
        }
        assert!(place.path().join(".tollgate-index").is_dir());
    }
    assert!(found > 25, "{found}");
}

/// An event that began in a block that is not asked for holds back others, which then leave in the order of their stamps.
#[test]
fn an_open_event_before_the_block_decides_about_the_order() {
    let login = |ms: usize, pid: usize| {
        format!(
            "type=USER_LOGIN msg=audit(1700000000.{ms:03}:{ms}): pid={pid} uid=0 auid=0 ses=1 msg='op=login \
             exe=\"/x\" hostname=? addr=? terminal=? res=success'\n"
        )
    };
    let mut old = String::from("type=CWD msg=audit(1700000000.001:1): cwd=\"/\"\n");
    old.extend((100..300).map(|ms| login(ms, 5)));
    let early = "type=USER_LOGIN msg=audit(1699999990.000:1): pid=5 uid=0 \n";
    let (first, second) = (login(400, 7), login(350, 7));
    let text = format!("{early}{old}{first}{second}");
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("audit.log.1"), text).unwrap();
    let end = "type=USER_LOGIN msg=audit(1700000009.000:1): pid=5 uid=0 \n";
    fs::write(place.path().join("audit.log"), end).unwrap();
    let words = ["-p", "7", "--raw"].map(str::to_owned);
    for block in ["0", "2000"] {
        let answer = ask(place.path(), &words, block);
        let expected = [second.as_str(), &first].concat();
        assert_eq!(
            answer.out.as_bstr(),
            expected.as_bytes().as_bstr(),
            "{block}"
        );
    }
}

/// A name that begins with a dot is joined with the working directory: the slash between them is in no record.
#[test]
fn names_are_found_at_the_slash_that_joins_them() {
    let event = |serial: usize, cwd: &str, name: &str| {
        let stamp = format!("msg=audit({}.000:{serial}): ", 1_700_000_000 + 5 * serial);
        format!(
            "type=CWD {stamp}cwd=\"{cwd}\"\n\
             type=PATH {stamp}item=0 name=\"{name}\" inode=1 nametype=NORMAL\n\
             type=PROCTITLE {stamp}proctitle=\"x\"\n"
        )
    };
    let mut text: String = (1..200)
        .map(|serial| event(serial, "/root", "/etc/x"))
        .collect();
    text += &event(200, "/var/spool", "./x");
    text += &event(201, "/var/spool", "..");
    text.extend((202..400).map(|serial| event(serial, "/root", "/etc/x")));
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("audit.log"), text).unwrap();
    for (word, lines) in [
        ("/var/spool/", 6),
        ("spool/", 6),
        ("/var/spool/.", 6),
        ("/var/spool/./", 3),
        ("/var/spool/x", 0),
    ] {
        for block in ["0", "600"] {
            let words = ["-f", word, "--raw"].map(str::to_owned);
            let answer = ask(place.path(), &words, block);
            assert_eq!(answer.out.lines().count(), lines, "{word} {block}");
        }
    }
    assert!(place.path().join(".tollgate-index").is_dir());
}
