//! Operations of `io_uring` that an exec of their task runs, because it cancels what they wait for.

use std::path::Path;

use anyhow::{Context as _, ensure};

use super::recorded;
use crate::daemon::Daemon;
use crate::program::{Entry, Program};
use crate::suite::Session;
use crate::uring_ops::URING_OPS;

/// Each test loads its rules.
pub(crate) const SESSION: Session = Session {
    name: "exec_operations",
    tests: &[
        ("exec_is_recorded_ext4", |daemon| {
            exec_is_recorded(daemon, "ext4", "exec_cancelled", "")
        }),
        ("exec_is_recorded_tmpfs", |daemon| {
            exec_is_recorded(daemon, "tmpfs", "exec_cancelled", "")
        }),
        ("exec_with_named_operation_is_recorded", |daemon| {
            exec_is_recorded(daemon, "tmpfs", "exec_cancelled", DENIED)
        }),
        ("exec_with_openat2_is_recorded", |daemon| {
            exec_is_recorded(daemon, "tmpfs", "exec_cancelled_2", DENIED)
        }),
        ("exec_has_its_result", exec_has_its_result),
        ("exec_beside_watches_is_recorded", |daemon| {
            let rule = "-w /tmp/failed_opens/ext4/readable -p wa -k readable\n";
            exec_is_recorded(daemon, "tmpfs", "exec_cancelled_2", rule)
        }),
        ("exec_of_watched_file_is_not_made_up_ext4", |daemon| {
            exec_is_not_made_up(daemon, "ext4")
        }),
        ("exec_of_watched_file_is_not_made_up_tmpfs", |daemon| {
            exec_is_not_made_up(daemon, "tmpfs")
        }),
        ("failed_exec_is_recorded", failed_exec_is_recorded),
    ],
    ..super::SESSION
};

const DENIED: &str = "-a always,exit -F arch=b64 -S openat -F exit=-EPERM -k denied\n";

/// The calls and results of events.
fn results(events: &[String]) -> Vec<&str> {
    let words = events.iter().map(|event| event.split(' ').next());
    words.map(Option::unwrap_or_default).collect()
}

/// A rule suppresses the execs of a program; an operation that is refused that file, inside the exec of another
/// program, does not suppress it.
fn exec_is_recorded(
    daemon: &Daemon,
    file_system: &str,
    mode: &str,
    rule: &str,
) -> anyhow::Result<()> {
    let quiet = format!("/tmp/failed_opens/{file_system}/quiet");
    let rules = format!(
        "-a never,exit -F arch=b64 -S execve -F path={quiet}\n\
         -a always,exit -F arch=b64 -S execve -F uid=1001 -F a2=0 -k execs\n{rule}"
    );
    let plain = Program::new(Entry::Syscall).install("plain")?;
    let plain = plain.to_str().context("no text")?;
    let run = || daemon.run_user(Path::new(URING_OPS), &[mode, &quiet, plain]);
    let [ours, kernel] = recorded(daemon, &rules, "execs", &run)?;
    ensure!(
        results(&ours) == ["execve=0"],
        "recorded {ours:?}, the kernel {kernel:?}"
    );
    ensure!(
        ours.iter().all(|event| !event.contains("NORMAL:(null)")),
        "{ours:?}"
    );
    Ok(())
}

/// The operations run in the middle of the exec, and the kernel with them what else waits for the end of the call.
fn exec_has_its_result(daemon: &Daemon) -> anyhow::Result<()> {
    let rules = "-a always,exit -F arch=b64 -S execve -F uid=1001 -F a2=0 -F success=1 -k execs\n";
    let quiet = "/tmp/failed_opens/ext4/quiet";
    let plain = Program::new(Entry::Syscall).install("plain")?;
    let plain = plain.to_str().context("no text")?;
    let run = || daemon.run_user(Path::new(URING_OPS), &["exec_cancelled", quiet, plain]);
    let [ours, kernel] = recorded(daemon, rules, "execs", &run)?;
    ensure!(
        ours.len() == 1
            && ours
                .iter()
                .all(|event| event.starts_with("execve=0 (word)")),
        "recorded {ours:?}, the kernel {kernel:?}"
    );
    Ok(())
}

/// The exec of another program is no exec of a watched program that the user may not read.
fn exec_is_not_made_up(daemon: &Daemon, file_system: &str) -> anyhow::Result<()> {
    let tool = format!("/tmp/failed_opens/{file_system}/tool");
    let rules = format!("-w {tool} -p x -k execs\n");
    let plain = Program::new(Entry::Syscall).install("plain")?;
    let plain = plain.to_str().context("no text")?;
    let run = || daemon.run_user(Path::new(URING_OPS), &["exec_cancelled", &tool, plain]);
    let [ours, kernel] = recorded(daemon, &rules, "execs", &run)?;
    ensure!(ours.is_empty(), "recorded {ours:?}, the kernel {kernel:?}");
    Ok(())
}

/// An operation at the end of an exec that fails does not suppress the next one.
fn failed_exec_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    let quiet = "/tmp/failed_opens/ext4/quiet";
    let rules = format!(
        "-a never,exit -F arch=b64 -S execve -F path={quiet}\n\
         -a always,exit -F arch=b64 -S execve -F uid=1001 -F a2=0 -k execs\n"
    );
    let words = [
        "failed_exec",
        "/tmp/failed_opens/ext4/text",
        quiet,
        "/tmp/failed_opens/ext4/missing",
    ];
    let run = || daemon.run_user(Path::new(URING_OPS), &words);
    let [ours, kernel] = recorded(daemon, &rules, "execs", &run)?;
    ensure!(
        results(&ours) == ["execve=-8", "execve=-2"],
        "recorded {ours:?}, the kernel {kernel:?}"
    );
    Ok(())
}
