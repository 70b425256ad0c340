//! The task list: what is decided about a task when it is made.

use super::daemon::Daemon;
use super::place::Place;

/// Numbers of `execve` and `exit_group`, as records have them.
const EXECVE: &str = "59";
const EXIT_GROUP: &str = "231";
/// A shell that makes one task, which starts a program.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "/bin/true; exit 0"];

pub(crate) fn a_task_that_is_never_audited_stays_so() {
    let place = Place::new();
    let id = place.id;
    let exec = format!("-a always,exit -F arch=b64 -S execve -F uid={id} -k run\n");
    let never = format!("-a never,task -F uid={id}\n{exec}");
    let daemon = Daemon::start(&place, &never);
    // Root has made the shell, so that only the task that the shell makes is of the user.
    let spared = place.workload().program(&SHELL);
    assert!(daemon.replace(&exec));
    let whole = place.workload().program(&SHELL);
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

pub(crate) fn every_call_of_a_task_is_recorded() {
    let place = Place::new();
    let id = place.id;
    // The exit list has nothing to say about such a task.
    let daemon = Daemon::start(
        &place,
        &format!(
            "-a always,task -F uid={id}\n\
             -a never,exit -F arch=b64 -S execve -F uid={id}\n"
        ),
    );
    let shell = place.workload().program(&SHELL).to_string();
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
