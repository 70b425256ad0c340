//! Gates of whole events only save time, too.

use super::gates::{Random, compare_ungated};
use super::*;

/// Log sources, and tests of their fields, which some of the events below pass.
const RULES: [(&str, &[&str]); 3] = [
    (
        "process_creation",
        &[
            "Image|endswith: [/vi, /nc]",
            "Image: /usr/bin/VI",
            "Image|re: '/n[c-e]'",
            "CommandLine|contains: ' -C'",
            "CommandLine|startswith: 'sh '",
            "CommandLine|endswith: \"-c\"",
            "CommandLine|contains|all: [s, h]",
            "CommandLine|re: '-[cd] ?.*a{2,}'",
            "CommandLine|re|i: 'SH .C'",
            "CommandLine|re: '.{20,}'",
            "CommandLine|re: '[^x]{9,}$'",
            "CommandLine|re: 'ü'",
            "CommandLine: 'sh'",
            "CommandLine: ''",
            "CurrentDirectory: /a/b",
            "CurrentDirectory|contains: 'ü'",
            "User: root",
            "User: www-data",
            "LogonId: 1000",
            "ProcessId: [7, 8]",
            "ParentProcessId|contains: 7",
            "ParentImage|endswith: /vi",
            "ParentCommandLine|contains: -c",
            "ParentImage: null",
            "IntegrityLevel: High",
        ],
    ),
    (
        "file_event",
        &[
            "TargetFilename: /etc/shadow",
            "TargetFilename|startswith: /ETC/",
            "TargetFilename|endswith: [shadow, /y]",
            "TargetFilename|contains: 'ü'",
            "TargetFilename|re: '^/(a|etc)/[^/]{1,9}$'",
            "TargetFilename|re: '[^/]{30,}$'",
            "TargetFilename: '/a/*/x'",
            "Image|endswith: [/vi, /nc]",
            "User: root",
            "ProcessId: 7",
        ],
    ),
    (
        "network_connection",
        &[
            "DestinationPort: [22, 4444]",
            "DestinationPort|startswith: 44",
            "SourcePort: 22",
            "DestinationIp: 192.0.2.1",
            "DestinationIp|cidr: 192.0.2.0/24",
            "SourceIp|startswith: 192.",
            "DestinationHostname: x",
            "Initiated: 'true'",
            "Image|endswith: [/vi, /nc]",
            "User: www-data",
        ],
    ),
];

fn rules(random: &mut Random) -> Rsigma {
    let mut engine = Rsigma::default();
    for number in 0..2 {
        let (category, tests) = RULES[random.below(RULES.len())];
        let mut document = format!(
            "title: T\nid: r{number}\nlogsource:\n    product: linux\n    category: {category}\ndetection:\n"
        );
        for name in ["a", "b"] {
            let test = random.pick(tests);
            document.extend([format!("    {name}:\n        {test}\n")]);
        }
        let condition = random.pick(&["a", "a", "a and b", "a or b", "a and not b"]);
        document.extend([format!("    condition: {condition}\n")]);
        if random.below(8) == 0 {
            let keyword = random.pick(&["shadow", "' -c'", "4444", "www"]);
            document = document.replace(
                "    a:\n",
                &format!("    a:\n        - {keyword}\n    c:\n"),
            );
        }
        engine.add(&document).unwrap();
    }
    engine
}

fn log(random: &mut Random) -> String {
    let mut text = String::new();
    for serial in 1..16 {
        let exe = random.pick(&[
            "\"/usr/bin/vi\"",
            "\"/bin/nc\"",
            "2F62696E2F6E63",
            "2F62696E2F76C3BC",
            "(null)",
        ]);
        let enriched = random.pick(&["", "\u{1d}UID=\"root\" EUID=\"root\"", "\u{1d}EUID=\"\""]);
        let (pid, euid) = (7 + random.below(3), random.pick(&["0", "33", "5"]));
        let task = format!(
            "items=1 ppid=7 pid={pid} auid=1000 uid=1000 gid=0 euid={euid} ses=1 comm=\"c\" exe={exe} key=\"k\"{enriched}"
        );
        let (call, others): (&str, &[&str]) = match random.below(4) {
            0 | 1 => (
                "SYSCALL arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=5 a2=0 a3=0",
                &[
                    "EXECVE argc=2 a0=\"sh\" a1=\"-c\"",
                    "EXECVE argc=2 a0=\"sh\" a1=2D6320C3BC",
                    "EXECVE argc=3 a0=\"sh\" a1_len=8 a1[0]=2D63 a1[1]=2061 a2=\"x\"",
                    "EXECVE argc=2 a0=\"vi\" a1=\"-daaaaaaaaaaaaaaaaa\"",
                    "EXECVE argc=1 a0=\"\"",
                    "EXECVE argc=0",
                    "EXECVE argc=1 a1=\"sh\"",
                    "CWD cwd=\"/a/b\"",
                    "CWD cwd=2F61C3BC",
                    "PROCTITLE proctitle=7368002D63",
                ],
            ),
            2 => (
                random.pick(&[
                    "SYSCALL arch=c000003e syscall=257 success=yes exit=3 a0=ffffff9c a1=a a2=241 a3=0",
                    "SYSCALL arch=c000003e syscall=82 success=yes exit=0 a0=1 a1=a a2=0 a3=0",
                ]),
                &[
                    "CWD cwd=\"/a/b\"",
                    "PATH item=0 name=\"/etc/shadow\" inode=5 mode=0100644 nametype=NORMAL",
                    "PATH item=0 name=\"shadow\" inode=5 mode=0100644 nametype=CREATE",
                    "PATH item=0 name=2F6574632FC3BC inode=5 mode=0100644 nametype=CREATE",
                    "PATH item=0 name=\"/etc/\" inode=5 mode=040755 nametype=PARENT",
                    "PATH item=0 name=\"/etc/y\" inode=5 mode=040755 nametype=CREATE",
                    "PATH item=0 name=\"../y\" inode=5 nametype=CREATE",
                    "PATH item=0 name=\"/a/c/X\" inode=5 mode=0100644 nametype=CREATE",
                    "PATH item=0 name=\"/a/123456789012345678901234567890123\" inode=5 nametype=CREATE",
                    "PATH item=0 name=\"/x\" name=\"/etc/shadow\" nametype=CREATE",
                    "PATH item=0 name=(null) inode=5 nametype=CREATE",
                ],
            ),
            _ => (
                random.pick(&[
                    "SYSCALL arch=c000003e syscall=42 success=yes exit=0 a0=1 a1=a a2=0 a3=0",
                    "SYSCALL arch=c000003e syscall=43 success=yes exit=4 a0=1 a1=a a2=0 a3=0",
                ]),
                &[
                    "SOCKADDR saddr=02000016C0000201",
                    "SOCKADDR saddr=0200115CC0000201",
                    "SOCKADDR saddr=0A000016000000000000000000000000000000000000000100000000",
                    "SOCKADDR saddr=01002F",
                ],
            ),
        };
        text += &record(serial, &format!("{call} {task}"));
        for _ in 0..1 + random.below(3) {
            text += &record(serial, random.pick(others));
        }
    }
    text
}

#[test]
fn rules_of_categories_match_the_same_without_gates() {
    let mut random = Random(11);
    let count: usize = (0..600)
        .map(|_| compare_ungated(&rules(&mut random), &log(&mut random)))
        .sum();
    assert!(count > 800, "{count}");
}
