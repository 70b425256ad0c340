//! The task list: rules that are decided when a task is created.

use super::daemon::Daemon;
use super::test_dir::TestDir;

/// Numbers of `execve` and `exit_group` in records.
const EXECVE: &str = "59";
const EXIT_GROUP: &str = "231";
/// A shell that forks one task, which executes a program.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "/bin/true; exit 0"];

pub(crate) fn never_task_rule_lasts_for_the_task() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let exec = format!("-a always,exit -F arch=b64 -S execve -F uid={id} -k run\n");
    let never = format!("-a never,task -F uid={id}\n{exec}");
    let daemon = Daemon::start(&test_dir, &never);
    // Root created the shell; only the task that the shell forks belongs to the user.
    let spared = test_dir.workload().program(&SHELL);
    assert!(daemon.replace(&exec));
    let whole = test_dir.workload().program(&SHELL);
    let stopped = daemon.stop();
    let pids: Vec<&str> = stopped
        .events
        .iter()
        .map(|event| event.syscall("pid"))
        .collect();
    let [first, second, third] = pids[..] else {
        panic!("three programs: {pids:?}")
    };
    assert_eq!([first, second], [spared, whole].map(|pid| pid.to_string()));
    assert_ne!(third, second);
    assert_eq!((stopped.summary.lost, stopped.code), (0, Some(0)));
}

pub(crate) fn always_task_rule_records_every_syscall() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    // Rules of the exit list do not apply to such a task.
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,task -F uid={id}\n\
             -a never,exit -F arch=b64 -S execve -F uid={id}\n"
        ),
    );
    let shell = test_dir.workload().program(&SHELL).to_string();
    let stopped = daemon.stop();
    let calls: Vec<&str> = stopped
        .events
        .iter()
        .map(|event| {
            assert_ne!(event.syscall("pid"), shell, "{event}");
            assert_eq!(event.key(), None, "{event}");
            event.syscall("syscall")
        })
        .collect();
    assert!(calls.len() > 10, "{calls:?}");
    assert!(calls.contains(&EXECVE), "{calls:?}");
    assert_eq!(calls.last(), Some(&EXIT_GROUP));
    assert_eq!((stopped.summary.lost, stopped.code), (0, Some(0)));
}
