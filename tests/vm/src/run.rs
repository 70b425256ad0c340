//! `tollgate run` without root, on kernels that lack its preferred features, and with each setting of the Yama
//! LSM.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use support::event::{self, Event, expect};

use crate::daemon::{Daemon, TOLLGATE};
use crate::machine::{PROGRAMS, STRANGER, make_directory, make_file};
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests. They do not use the session's daemon.
pub(crate) const SESSION: Session = Session {
    name: "run",
    engine: "tracepoint",
    prepare,
    rules: Rules::Text("-a always,exit -F arch=b64 -S acct -F uid=1001 -k unused\n"),
    tests: &[
        ("calls_of_both_abis", calls_of_both_abis),
        ("calls_without_results", calls_without_results),
        ("yama_scopes_0_to_2", yama_scopes_0_to_2),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Owned by the user.
const PLACE: &str = "/tmp/run";
const RULES: &str = "/tmp/run/rules";
const LOG: &str = "/tmp/run/log";
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

fn prepare() -> anyhow::Result<()> {
    make_directory(Path::new(PLACE), STRANGER)?;
    make_file(Path::new("/tmp/run/file"), STRANGER)?;
    let rules = "-a always,exit -F arch=b32 -S open,unlink -k narrow\n\
                 -a always,exit -F arch=b64 -S open,unlink,exit -k wide\n";
    fs::write(RULES, rules).context("cannot write the rules")?;
    programs()
}

fn programs() -> anyhow::Result<()> {
    for (name, entry, [open, unlink, exit]) in [
        ("run_wide", Entry::Syscall, [2, 87, 60]),
        ("run_interrupt", Entry::Int80, [5, 10, 1]),
        ("run_narrow", Entry::I386, [5, 10, 1]),
    ] {
        Program::new(entry)
            .call(open, args!["file", 0, 0])
            .call(unlink, args!["missing"])
            .call(exit, args![7])
            .install(name)?;
    }
    Ok(())
}

/// Runs a program under tollgate; returns its events.
fn run(name: &str, options: &[&str]) -> anyhow::Result<(Output, Vec<Event>)> {
    let output = Command::new(TOLLGATE)
        .args(["run", "--rules", RULES, "--log", LOG])
        .args(options)
        .arg("--")
        .arg(Path::new(PROGRAMS).join(name))
        .uid(STRANGER)
        .gid(STRANGER)
        .current_dir(PLACE)
        .stdin(Stdio::null())
        .output()
        .context("cannot start tollgate")?;
    let log = fs::read(LOG).unwrap_or_default();
    // The next run starts a new log.
    let _none = fs::remove_file(LOG);
    Ok((output, event::parse(&log)?))
}

fn calls_of_both_abis(_daemon: &Daemon) -> anyhow::Result<()> {
    for (name, abi) in [
        ("run_wide", "c000003e"),
        ("run_interrupt", "40000003"),
        ("run_narrow", "40000003"),
    ] {
        let (output, events) = run(name, &[])?;
        ensure!(output.status.code() == Some(7), "{name}: {output:?}");
        let mut expected = vec!["open=3 NORMAL:file", "unlink=-2 PARENT:/tmp/run"];
        if name == "run_wide" {
            expected.push("exit");
        }
        expect(&events, &expected).context(name)?;
        for event in &events {
            let field = |field| event.field("SYSCALL", field);
            ensure!(field("arch") == abi, "{event:?}");
            ensure!(field("uid") == STRANGER.to_string(), "{event:?}");
            ensure!(field("gid") == STRANGER.to_string(), "{event:?}");
            ensure!(field("comm") == name, "{event:?}");
            ensure!(field("exe").ends_with(name), "{event:?}");
        }
    }
    Ok(())
}

fn calls_without_results(_daemon: &Daemon) -> anyhow::Result<()> {
    for name in ["run_wide", "run_interrupt", "run_narrow"] {
        let (output, events) = run(name, &["--no-result"])?;
        ensure!(output.status.code() == Some(7), "{name}: {output:?}");
        ensure!(
            output.stderr.is_empty(),
            "{name}: {}",
            output.stderr.as_bstr()
        );
        let mut expected = vec!["open NORMAL:file", "unlink PARENT:/tmp/run"];
        if name == "run_wide" {
            expected.push("exit");
        }
        expect(&events, &expected).context(name)?;
    }
    Ok(())
}

fn yama_scopes_0_to_2(_daemon: &Daemon) -> anyhow::Result<()> {
    (0..=2).try_for_each(yama_scope)?;
    fs::write(YAMA, "1").context("cannot set ptrace_scope")
}

/// The setting cannot be reverted: ptrace is disabled until reboot.
pub(crate) fn yama_scope_3_is_named(_daemon: &Daemon) -> anyhow::Result<()> {
    prepare()?;
    yama_scope(3)
}

fn yama_scope(scope: u8) -> anyhow::Result<()> {
    fs::write(YAMA, scope.to_string()).context("cannot set ptrace_scope")?;
    for options in [&[][..], &["--no-result"]] {
        let (output, events) = run("run_wide", options)?;
        let said = output.stderr.as_bstr();
        if scope < 2 {
            ensure!(output.status.code() == Some(7), "{scope}: {said}");
            ensure!(events.len() == 3, "{scope}: {events:?}");
        } else {
            let named = format!("kernel.yama.ptrace_scope is {scope}");
            ensure!(output.status.code() == Some(125), "{scope}: {output:?}");
            ensure!(said.contains_str(&named), "{scope}: {said}");
            ensure!(events.is_empty(), "{scope}: {events:?}");
        }
    }
    Ok(())
}
