//! Runs `auditctl` 3.0.9 of Debian 12 on rule lines and records its answers.
//!
//! Needs root. Adds each rule to the kernel's audit, lists it, and deletes it. Refuses to run unless audit is
//! disabled and has no rules.

use std::process::{Command, Stdio};

use bstr::{BString, ByteSlice as _};

const AUDITCTL: &str = "/usr/sbin/auditctl";

/// Records the answers to the rules of a file: line number, exit status, listing and messages, separated by
/// tabs. Messages have ` / ` between them.
pub(crate) fn record(rules: &[u8]) -> Vec<u8> {
    assert_idle();
    let mut out =
        b"# Answers of auditctl 3.0.9-1 of Debian on x86_64: line, status, listing, messages.\n"
            .to_vec();
    for (number, line) in (1..).zip(rules.lines()) {
        if !is_rule(line) {
            continue;
        }
        let words = line
            .split(|&byte| byte == b' ')
            .map(|word| word.to_str().unwrap());
        let (status, messages, _) = run(words);
        let (_, _, listing) = run(["-l"]);
        run(["-D"]);
        let listing = match listing.trim() {
            b"No rules" => b"",
            listing => listing,
        };
        out.extend(format!("{number}\t{status}\t").into_bytes());
        out.extend_from_slice(listing);
        out.push(b'\t');
        out.extend_from_slice(&messages);
        out.push(b'\n');
    }
    out
}

/// Whether a line adds a rule.
pub(crate) fn is_rule(line: &[u8]) -> bool {
    [b"-a ", b"-A ", b"-w "]
        .iter()
        .any(|option| line.starts_with(*option))
}

fn assert_idle() {
    let (_, _, version) = run(["-v"]);
    assert!(
        version.contains_str("3.0.9"),
        "{AUDITCTL} is not version 3.0.9: {version}"
    );
    let (_, messages, status) = run(["-s"]);
    assert!(
        status.starts_with(b"enabled 0"),
        "audit is enabled, or root is needed: {status}{messages}"
    );
    let (_, _, rules) = run(["-l"]);
    assert_eq!(rules.trim(), b"No rules", "the kernel has rules");
}

/// Exit status, messages and standard output.
fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> (i32, BString, BString) {
    let output = Command::new(AUDITCTL)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let messages = bstr::join(
        " / ",
        output
            .stderr
            .lines()
            .map(<[u8]>::trim)
            .filter(|line| !line.is_empty()),
    );
    (
        output.status.code().unwrap(),
        messages.into(),
        output.stdout.into(),
    )
}
