//! Random questions.

use crate::public::Values;
use crate::random::Random;

/// Options of `ausearch` with values.
const FILTERS: &[(&[&str], &[&str])] = &[
    (
        &["-a", "--event"],
        &["1", "2", "3", "7", "15", "99999", "x", "-5", "4294967295"],
    ),
    (
        &["--arch"],
        &["b64", "b32", "x86_64", "i386", "aarch64", "c000003e", "vax"],
    ),
    (
        &["-c", "--comm"],
        &["cat", "systemd", "my prog", "a", "zz", "unended"],
    ),
    (
        &["-e", "--exit"],
        &[
            "0", "-13", "ENOENT", "-EACCES", "EACCES", "3", "0x3", "zz", "-2",
        ],
    ),
    (
        &["-f", "--file"],
        &[
            "/etc",
            "passwd",
            "/etc/passwd",
            "/tmp/a b",
            "x",
            "/run/a",
            "abc",
            "/",
        ],
    ),
    (
        &["-ga", "--gid-all"],
        &["0", "root", "33", "www-data", "nobodyhere", "4294967295"],
    ),
    (&["-ge", "--gid-effective"], &["0", "33", "x1"]),
    (&["-gi", "--gid"], &["0", "33", "4242", "root"]),
    (
        &["-hn", "--host"],
        &["192.0.2.7", "web1", "127.0.0.1", "::1", "?"],
    ),
    (
        &["-k", "--key"],
        &["identity", "pci", "a", "a key", "(null)"],
    ),
    (
        &["-m", "--message"],
        &[
            "SYSCALL",
            "USER_LOGIN",
            "LOGIN,USER_AUTH",
            "ALL",
            "1305",
            "avc",
            "NOSUCH",
            "PATH,",
        ],
    ),
    (&["-n", "--node"], &["web1", "web2", "web3"]),
    (&["-o", "--object"], &["unconfined", "init_t", "root"]),
    (&["-p", "--pid"], &["777", "4242", "1", "x", "0"]),
    (&["-pp", "--ppid"], &["777", "1"]),
    (
        &["-sc", "--syscall"],
        &["openat", "59", "connect", "0", "execve", "nosuch", "close"],
    ),
    (&["-se", "--context"], &["init_t", "unconfined"]),
    (&["--session"], &["1", "77", "-1", "x", "4294967295", "-2"]),
    (&["-su", "--subject"], &["init_t", "unconfined", "u:r"]),
    (&["-sv", "--success"], &["yes", "no", "maybe", "nope"]),
    (&["-tm", "--terminal"], &["pts0", "ssh", "pts", "(none)"]),
    (
        &["-ua", "--uid-all"],
        &["0", "33", "root", "www-data", "nosuchuser", "4294967295"],
    ),
    (&["-ue", "--uid-effective"], &["0", "33", "root"]),
    (&["-ui", "--uid"], &["0", "1", "33", "daemon", "root", "x1"]),
    (
        &["-ul", "--loginuid"],
        &["0", "33", "-1", "unset", "4294967295", "root"],
    ),
    (&["-uu", "--uuid"], &["0123", "x"]),
    (&["-vm", "--vm-name"], &["cat", "my"]),
    (
        &["-x", "--executable"],
        &["cat", "/usr/bin/cat", "bash", "systemd", "/"],
    ),
    (
        &["-ts", "--start"],
        &[
            "11/14/23",
            "11/14/23 22:13:40",
            "22:13:30",
            "11/14/2x",
            "11/20/03",
            "today",
        ],
    ),
    (
        &["-te", "--end"],
        // Not a date alone: that is the time of day of the question.
        &[
            "11/14/23 22:16:00",
            "11/14/23 22:14:40",
            "11/14/23 22:20",
            "now",
            "25:00",
        ],
    ),
    (&["--eoe-timeout"], &["1", "5", "0", "x"]),
];

const FORMATS: &[&[&str]] = &[
    &[],
    &["--raw"],
    &["-r"],
    &["-i"],
    &["-i"],
    &["--interpret"],
    &["--format", "raw"],
    &["--format", "default"],
    &["--format", "interpret"],
    &["--format", "csv"],
    &[
        "--format",
        "csv",
        "--extra-keys",
        "--extra-labels",
        "--extra-obj2",
        "--extra-time",
    ],
    &["--format", "csv", "--extra-labels"],
    &["--format", "text"],
    &["--format", "text"],
    &["--format", "xml"],
    &["-i", "--escape", "shell"],
    &["-i", "--escape", "shell_quote"],
    &["-i", "--escape", "raw"],
    &["--escape", "none"],
    &["--extra-keys"],
    &["-i", "--raw"],
];

/// A question to `ausearch`, without its input. Most of its values are those of the log, if it is given.
pub(crate) fn search(random: &mut Random, log: Option<&Values>) -> Vec<String> {
    let mut words: Vec<String> = random
        .pick(FORMATS)
        .iter()
        .map(|&word| word.to_owned())
        .collect();
    for _ in 0..random.below(4) {
        let (names, values) = &FILTERS[random.below(FILTERS.len())];
        words.push(random.pick(names).to_owned());
        let of_log = log.and_then(|log| log.pick(names[0], random));
        let value = of_log.unwrap_or_else(|| random.pick(values));
        // A date and a time are two words; other values may have blanks.
        if names.contains(&"-ts") || names.contains(&"-te") {
            words.extend(value.split(' ').map(str::to_owned));
        } else {
            words.push(value.to_owned());
        }
    }
    for (word, times) in [
        ("-w", 4),
        ("--just-one", 12),
        ("-l", 10),
        ("--debug", 15),
        ("--word", 15),
    ] {
        if random.once_in(times) {
            words.push(word.to_owned());
        }
    }
    words
}

const REPORTS: &[&str] = &[
    "-a",
    "--avc",
    "-au",
    "--auth",
    "--comm",
    "-c",
    "--config",
    "-cr",
    "--crypto",
    "-e",
    "--event",
    "-f",
    "--file",
    "-h",
    "--host",
    "--integrity",
    "-k",
    "--key",
    "-l",
    "--login",
    "-m",
    "--mods",
    "-ma",
    "--mac",
    "-n",
    "--anomaly",
    "-p",
    "--pid",
    "-r",
    "--response",
    "-s",
    "--syscall",
    "-t",
    "--log",
    "-tm",
    "--terminal",
    "--tty",
    "-u",
    "--user",
    "--virt",
    "-x",
    "--executable",
    "",
    "",
];

/// A question to `aureport`, without its input.
pub(crate) fn report(random: &mut Random, log: Option<&Values>) -> Vec<String> {
    let mut words = Vec::new();
    let report = random.pick(REPORTS);
    if !report.is_empty() {
        words.push(report.to_owned());
    }
    for (word, times) in [
        ("-i", 2),
        ("--summary", 3),
        ("--failed", 5),
        ("--success", 5),
        ("-nc", 10),
        ("--add", 10),
        ("--delete", 10),
        ("--debug", 15),
        ("-k", 40),
    ] {
        if random.once_in(times) {
            words.push(word.to_owned());
        }
    }
    let with_value: &[&[&str]] = &[
        &["--node", "web1"],
        &["-ts", "11/14/23", "22:14:00"],
        &["-te", "11/14/23", "22:20:00"],
        &["-ts", "x"],
        &["--escape", "shell"],
        &["--eoe-timeout", "5"],
    ];
    if random.once_in(4) {
        words.extend(random.pick(with_value).iter().map(|&word| word.to_owned()));
    }
    if let Some(log) = log
        && random.once_in(4)
    {
        let name = random.pick(&["-ts", "-te"]);
        if let Some(value) = log.pick(name, random) {
            words.push(name.to_owned());
            words.extend(value.split(' ').map(str::to_owned));
        }
    }
    words
}
