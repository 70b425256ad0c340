//! What a collector gets of a log.

use std::fs;

use serde_json::{Value, json};

use super::place;
use super::server::{Reply, Server};
use crate::place::{FIRST, event};

/// The records of a log, without heartbeats.
fn taken(text: &str) -> Vec<Value> {
    let server = Server::new(|_| Reply::Take);
    let place = place(&server, "");
    place.append(text);
    let output = place.once();
    assert!(output.status.success(), "{output:?}");
    let mut taken = server.taken();
    taken.retain(|record| record["name"] != "audit.heartbeat");
    taken
}

#[test]
fn event_of_a_call_has_attributes_and_the_text_of_the_log() {
    let stamp = "msg=audit(1700000000.123:4): ";
    let lines = [
        format!(
            "type=SYSCALL {stamp}arch=c000003e syscall=59 success=no exit=-13 a0=1 ppid=1 pid=42 auid=1000 uid=1000 \
             gid=4294967295 euid=0 suid=0 fsuid=0 tty=(none) ses=3 comm=\"a b\" exe=\"/usr/bin/id\" subj=unconfined \
             key=610162\x1dARCH=x86_64 SYSCALL=execve AUID=\"alice\" UID=\"alice\" EUID=\"root\" SUID=\"root\""
        ),
        format!("type=EXECVE {stamp}argc=2 a0=\"id\" a1=C3A4FF"),
        format!("type=CWD {stamp}cwd=\"/root\""),
        format!("type=PATH {stamp}item=0 name=\"/root/x\" inode=1 nametype=PARENT"),
        format!("type=PATH {stamp}item=1 name=\"x/../y\" inode=2 nametype=CREATE"),
        format!("type=PATH {stamp}item=2 name=(null) inode=3 nametype=NORMAL"),
        format!("type=PROCTITLE {stamp}proctitle=69640078"),
    ];
    let text = lines.join("\n");
    let taken = taken(&format!("{text}\n"));
    assert_eq!(
        taken[0],
        json!({
            // Events from before the first known boot have no id.
            "resource": {"service.name": "tollgate", "host.name": "h", "os.type": "linux"},
            "time": 1_700_000_000_123_000_000_u64, "severity": [9, "INFO"],
            "name": "audit.event", "body": text, "dropped": 0,
            "attributes": {
                "audit.serial": 4, "audit.type": "SYSCALL", "audit.arch": "c000003e", "audit.syscall": "execve",
                "audit.success": false, "audit.exit": -13, "audit.a0": "1", "process.parent_pid": 1, "process.pid": 42,
                "user.id": "1000", "user.name": "alice", "process.real_user.id": 1000,
                "process.real_user.name": "alice", "process.user.id": 0, "process.user.name": "root",
                "process.saved_user.id": 0, "process.saved_user.name": "root", "audit.fsuid": 0, "audit.ses": 3,
                "audit.comm": "a b", "process.executable.path": "/usr/bin/id", "audit.subj": "unconfined",
                "audit.key": ["a", "b"], "process.args_count": 2, "process.command_args": ["id", "\u{e4}\u{fffd}"],
                "process.working_directory": "/root", "process.title": "id x", "file.path": "/root/y",
                "audit.paths": ["/root/x", "x/../y"],
            },
        })
    );
}

#[test]
fn other_records_and_sockets_have_attributes() {
    let taken = taken(
        "type=USER_LOGIN msg=audit(1700000001.000:5): pid=7 uid=0 auid=4294967295 ses=4294967295 msg='op=login \
         acct=\"root\" exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'\n\
         type=SYSCALL msg=audit(1700000002.000:6): arch=c000003e syscall=42 success=yes pid=7 pid=8 bad{name=1\n\
         type=SOCKADDR msg=audit(1700000002.000:6): saddr=020001BBC00002070000000000000000\n\
         type=PROCTITLE msg=audit(1700000002.000:6): proctitle=\"curl\"\n\
         type=SYSCALL msg=audit(1700000003.000:7): arch=c000003e syscall=49 success=yes exit=0\n\
         type=SOCKADDR msg=audit(1700000003.000:7): saddr=01002F72756E2F78002F79\n\
         type=EOE msg=audit(1700000003.000:7): \n\
         node=n type=ANOM_ABEND msg=audit(1700000004.000:8): auid=1000 pid=9 sig=11 res=1\n",
    );
    assert_eq!(
        taken[0]["attributes"],
        json!({
            "audit.serial": 5, "audit.type": "USER_LOGIN", "process.pid": 7, "process.real_user.id": 0,
            "audit.op": "login", "audit.acct": "root", "process.executable.path": "/usr/sbin/sshd",
            "source.address": "192.0.2.7", "audit.terminal": "ssh", "audit.success": false,
        })
    );
    // Names come once, and only plain ones.
    assert_eq!(taken[1]["dropped"], 2);
    assert_eq!(
        taken[1]["attributes"],
        json!({
            "audit.serial": 6, "audit.type": "SYSCALL", "audit.arch": "c000003e", "audit.syscall": "connect",
            "audit.success": true, "process.pid": 7, "network.peer.address": "192.0.2.7", "network.peer.port": 443,
            "process.title": "curl",
        })
    );
    assert_eq!(taken[2]["attributes"]["network.local.address"], "/run/x");
    assert_eq!(taken[3]["severity"], json!([13, "WARN"]));
    assert_eq!(taken[3]["attributes"]["audit.node"], "n");
}

#[test]
fn gaps_and_heartbeats_are_records_and_requests_have_headers() {
    let server = Server::new(|_| Reply::Take);
    let place = place(
        &server,
        "[otlp.c.headers]\nauthorization = { file = \"DIR/token\" }\nx-scope-orgid = \"audit\"\n",
    );
    fs::write(place.path("token"), "Bearer s3cret\n").unwrap();
    place.append(&(event(FIRST) + &event(FIRST + 4)));
    let output = place.once();
    assert!(output.status.success(), "{output:?}");
    let taken = server.taken();
    let names: Vec<&str> = taken
        .iter()
        .map(|record| record["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "audit.heartbeat",
            "audit.event",
            "audit.gap",
            "audit.event",
            "audit.heartbeat"
        ]
    );
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for record in &taken {
        assert_eq!(record["resource"]["host.boot.id"], boot.trim_end());
    }
    let gap = &taken[2];
    assert_eq!(gap["severity"], json!([13, "WARN"]));
    assert_eq!(
        gap["attributes"],
        json!({
            "audit.reason": "absent", "audit.after": FIRST, "audit.before": FIRST + 4, "audit.missing": 3,
        })
    );
    let counts = &taken[4]["attributes"];
    assert_eq!(
        (
            &counts["audit.serial"],
            &counts["audit.sent"],
            &counts["audit.gaps"]
        ),
        (&json!(FIRST + 4), &json!(2), &json!(1))
    );
    let head = &server.requests()[0].head;
    assert_eq!(head[0], "POST /v1/logs HTTP/1.1");
    for line in [
        format!("Host: 127.0.0.1:{}", server.port),
        format!("User-Agent: tollgate-ship/{}", env!("CARGO_PKG_VERSION")),
        "Content-Encoding: gzip".to_owned(),
        "authorization: Bearer s3cret".to_owned(),
        "x-scope-orgid: audit".to_owned(),
    ] {
        assert!(head.contains(&line), "{line}: {head:?}");
    }
}
