//! The output of stock `auditctl` for the kernel and of tollgate's for the daemon, after the same commands.

use std::fs;

use nix::sys::signal::Signal;

use super::daemon::{Account, CommandOutput, Daemon};
use super::kernel_audit::{Lock, State, auditctl};
use super::test_dir::TestDir;

/// Commands that both accept without output and that leave the kernel's audit disabled. Their rules match no
/// existing task.
fn commands(test_dir: &TestDir) -> String {
    let (id, work) = (test_dir.id, test_dir.work.display());
    format!(
        "## of every kind\n\
         -D\n\
         -b 4321\n\
         -f 0\n\
         -r 17\n\
         --backlog_wait_time 123\n\
         -a always,exit -F arch=b64 -S openat,rmdir,socket -F a0=10 -F a1&0x40 -F a2!=-1 -F uid={id} -k first\n\
         -a always,exit -F arch=b32 -S socketcall,chown32 -F exit=-EACCES -F auid>=1000 -F auid!=unset -F uid={id} -k narrow -k second\n\
         -A never,exit -F arch=b64 -S all -F uid={id} -F exe=/bin/true\n\
         -a always,exit -S 200,39 -F pers=8 -F success=0 -F gid!=0 -F suid<={id} -F uid={id}\n\
         -a always,exit -F arch=b64 -S chown,1500 -C uid!=obj_uid -C gid=egid -F obj_gid=7 -F uid={id} -k pairs\n\
         -a always,exit -F dir={work} -F perm=wa -F uid={id} -F filetype=dir -k tree\n\
         -a always,exit -F path=/etc/hostname -F perm=r -F devmajor=8 -F devminor!=1 -F uid={id}\n\
         -a always,exit -F arch=b64 -S connect -F saddr_fam=2 -F sessionid!=unset -F uid={id} -k third\n\
         -a always,exit -F arch=b64 -S openat -F subj_type=init_t -F obj_user!=x -F uid={id}\n\
         -w {work} -p wa -k watched\n\
         -w /etc/hostname -p rxwa\n\
         -a never,user -F uid={id} -F msgtype=USER_LOGIN\n\
         -a always,exclude -F msgtype=1399 -F pid!=1\n\
         -a never,task -F uid={id} -F gid={id}\n\
         -a never,filesystem -F fstype=tracefs\n"
    )
}

/// Restores the settings of the kernel's audit and deletes its rules.
struct PutBack(State);

impl Drop for PutBack {
    fn drop(&mut self) {
        auditctl(&["-D"]);
        for (option, name) in [
            ("-b", "backlog_limit"),
            ("-f", "failure"),
            ("-r", "rate_limit"),
            ("--backlog_wait_time", "backlog_wait_time"),
        ] {
            auditctl(&[option, &self.0.number(name).to_string()]);
        }
    }
}

/// The major version of the installed `auditctl`, 3 or 4.
fn installed() -> &'static str {
    if auditctl(&["-v"]).contains(" version 3.") {
        "3"
    } else {
        "4"
    }
}

/// Lines of a status without the numbers that differ between the auditors.
fn settings(status: &str) -> Vec<String> {
    const OWN: [&str; 4] = ["pid", "lost", "backlog", "backlog_wait_time_actual"];
    let lines = status.lines().map(|line| {
        let (name, _) = line.split_once(' ').unwrap_or((line, ""));
        if OWN.contains(&name) { name } else { line }.to_owned()
    });
    lines.collect()
}

pub(crate) fn auditctl_output_matches_stock() {
    let lock = Lock::take();
    let before = PutBack(State::unused(&lock));
    let test_dir = TestDir::new();
    let file = test_dir.own.join("commands");
    fs::write(&file, commands(&test_dir)).unwrap();
    let file = file.to_str().unwrap();
    let daemon = Daemon::start(&test_dir, "");
    let version = installed();
    let ours = |words: &[&str]| {
        let CommandOutput {
            code,
            stdout: out,
            stderr: said,
        } = daemon.auditctl(&[&["--compat", version], words].concat());
        assert_eq!((code, said.as_str()), (Some(0), ""), "{words:?}: {out}");
        out
    };
    auditctl(&["-R", file]);
    ours(&["-R", file]);
    ours(&["-e", "0"]);
    let listing = auditctl(&["-l"]);
    assert_eq!(listing.lines().count(), 15, "{listing}");
    assert_eq!(ours(&["-l"]), listing);
    for key in ["narrow", "second", "third", "watch", "nothing"] {
        let words = ["-l", "-k", key];
        assert_eq!(ours(&words), auditctl(&words), "{key}");
    }
    for words in [&["-s"][..], &["-s", "-i"]] {
        let (ours, theirs) = (ours(words), auditctl(words));
        assert!(theirs.lines().count() > 7, "{theirs}");
        assert_eq!(settings(&ours), settings(&theirs), "{words:?}");
    }
    for words in [["-D", "-k", "watched"], ["-l", "-k", "watched"]] {
        assert_eq!(ours(&words), auditctl(&words), "{words:?}");
    }
    assert_eq!(ours(&["-l"]), auditctl(&["-l"]));
    drop(before);
    let Account { summary, code, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
}
