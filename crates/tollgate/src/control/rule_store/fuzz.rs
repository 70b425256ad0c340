//! Fuzz test: requests of arbitrary bytes.
//!
//! The corpus in `tests/fuzz/control` keeps every input that once failed.

use inputs::fuzz::{files, fuzz};

use super::tests::Daemon;
use super::*;
use crate::control::protocol;

/// Words of the protocol, mixed into inputs.
const WORDS: &[&str] = &[
    "\n",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "0",
    "1",
    "2",
    "4294967295",
    "-1",
    "1e9",
    "[]",
    "\"version\":1",
    "\"request\":",
    "\"rules\"",
    "\"status\"",
    "\"flush\"",
    "\"change\"",
    "\"steps\"",
    "\"forgive_from\"",
    "\"append\"",
    "\"prepend\"",
    "\"delete\"",
    "\"delete_all\"",
    "\"enabled\"",
    "\"hex\"",
    "\"ff\"",
    "\"all\"",
    "\"exit\"",
    "\"io_uring\"",
    "\"filesystem\"",
    "\"exclude\"",
    "\"always\"",
    "\"never\"",
    "\"field\"",
    "\"op\"",
    "\"value\"",
    "\"keys\"",
    "\"syscalls\"",
    "\"=\"",
    "\"!=\"",
    "\"&=\"",
    "\"path\"",
    "\"exe\"",
    "\"inode\"",
    "\"perm\"",
    "\"obj_gid\"",
    "\"/\"",
    "\"\\u0000\"",
    "\\u0001",
];

/// Each request is answered, and the loaded rules can be listed, locked and loaded again.
fn control_request(bytes: &[u8]) {
    let mut daemon = Daemon::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(request) = protocol::request(line) else {
            continue;
        };
        let call = protocol::Envelope {
            version: protocol::VERSION,
            request: request.clone(),
        };
        let mut again = protocol::line(&call).unwrap();
        again.pop();
        assert_eq!(protocol::request(&again).unwrap(), request);
        let answer = protocol::line(&daemon.ask(request)).unwrap();
        serde_json::from_slice::<Answer>(&answer).unwrap();
    }
    let Answer::Rules(forms) = daemon.ask(Request::Rules) else {
        panic!("no rules");
    };
    for form in forms {
        let rule = form.rule().unwrap();
        assert_eq!(RuleJson::new(&rule).rule(), Ok(rule));
    }
    assert!(daemon.settings().enabled <= IMMUTABLE);
}

#[test]
fn fuzz_control_request() {
    fuzz(
        "control_request",
        &files("fuzz/control"),
        WORDS,
        1000,
        control_request,
    );
}
