//! Sample logs for tests of the schemas.

use std::fmt::Write as _;

use audit::record::assemble::{EventAssembler, EventRecords};
use serde_json::{Map, Value};

use super::records;

const EXEC: &str = "\
type=SYSCALL msg=audit(1700000000.007:1): arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=2 a2=3 a3=4 items=1 ppid=1 pid=42 auid=1000 uid=1000 gid=1000 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=3 comm=\"cat\" exe=\"/usr/bin/cat\" subj=unconfined key=\"exec\"\n\
type=EXECVE msg=audit(1700000000.007:1): argc=2 a0=\"cat\" a1=\"/etc/shadow\"\n\
type=CWD msg=audit(1700000000.007:1): cwd=\"/home\"\n\
type=PATH msg=audit(1700000000.007:1): item=0 name=\"/usr/bin/cat\" inode=9 dev=08:01 mode=0100755 ouid=0 ogid=0 rdev=00:00 nametype=NORMAL cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0\n\
type=PROCTITLE msg=audit(1700000000.007:1): proctitle=\"cat\"\n";

/// Task fields of a sample syscall.
const TASK: &str = "ppid=1 pid=42 auid=4294967295 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=(none) ses=4294967295 comm=\"x\" exe=\"/bin/x\" key=(null)";

/// Syscall numbers, outcomes and name types.
const CALLS: [(u32, &str, &[&str]); 13] = [
    (231, "", &[]),
    (105, "success=yes exit=0", &[]),
    (257, "success=no exit=-2", &["PARENT", "UNKNOWN"]),
    (257, "success=yes exit=3", &["NORMAL"]),
    (85, "success=yes exit=3", &["PARENT", "CREATE"]),
    (87, "success=yes exit=0", &["PARENT", "DELETE"]),
    (
        82,
        "success=yes exit=0",
        &["PARENT", "PARENT", "DELETE", "CREATE"],
    ),
    (90, "success=yes exit=0", &["NORMAL"]),
    (188, "success=no exit=-1", &["NORMAL"]),
    (165, "success=yes exit=0", &["NORMAL"]),
    (42, "success=no exit=-111", &[]),
    (170, "success=no exit=-1", &[]),
    (999, "success=no exit=-38", &[]),
];

/// Records without a syscall.
const TOLD: [&str; 5] = [
    "type=USER_LOGIN msg=audit(1700000001.000:90): pid=7 uid=0 auid=1000 ses=3 msg='op=login id=1000 exe=\"/usr/sbin/sshd\" hostname=? addr=10.0.0.1 terminal=ssh res=success'\n",
    "type=ADD_USER msg=audit(1700000001.000:91): pid=7 uid=0 auid=1000 ses=3 msg='op=add-user id=1001 res=success'\n",
    "node=web1 type=CONFIG_CHANGE msg=audit(1700000001.000:92): auid=1000 ses=3 op=add_rule key=\"k\" list=4 res=1\n",
    "type=DAEMON_START msg=audit(1700000001.000:93): op=start ver=0.1.0 res=success\n",
    "type=AVC msg=audit(1700000001.000:94): apparmor=\"DENIED\" operation=\"open\" name=\"/x\" pid=3 comm=\"y\"\n",
];

/// Objects of all samples.
pub(super) fn all() -> Vec<Map<String, Value>> {
    let mut log = EXEC.to_owned();
    // Writing to a string cannot fail.
    for (number, &(call, outcome, items)) in CALLS.iter().enumerate() {
        let stamp = format!("msg=audit(1700000000.100:{}):", number + 10);
        let _ok = writeln!(
            log,
            "node=web1 type=SYSCALL {stamp} arch=c000003e syscall={call} {outcome} a0=0 a1=0 a2=0 a3=0 \
             items={} {TASK}\nnode=web1 type=CWD {stamp} cwd=\"/etc\"",
            items.len()
        );
        for (item, nametype) in items.iter().enumerate() {
            let _ok = writeln!(
                log,
                "node=web1 type=PATH {stamp} item={item} name=61FF inode=9 dev=08:01 mode=0100640 ouid=0 \
                 ogid=42 rdev=00:00 nametype={nametype}"
            );
        }
        let _ok = writeln!(log, "node=web1 type=PROCTITLE {stamp} proctitle=\"x\"");
    }
    objects(&(log + &TOLD.concat()))
}

/// Object of a program start.
pub(super) fn exec() -> Map<String, Value> {
    objects(EXEC).remove(0)
}

fn objects(log: &str) -> Vec<Map<String, Value>> {
    let mut assembler = EventAssembler::default();
    let mut objects = Vec::new();
    let mut keep = |event: &EventRecords| {
        objects.push(records::object(event, |error| panic!("{error}")));
    };
    for line in log.split_inclusive('\n') {
        assembler.take(line.as_bytes(), 0).unwrap();
    }
    assembler.end_all();
    assembler.drain_ended(&mut keep);
    objects
}
