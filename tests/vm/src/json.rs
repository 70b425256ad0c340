//! The JSON log: paths of objects, which no record has.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::machine::{USER, make_file};
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "json",
    engine: "fentry",
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S open,mkdir,rename,rmdir,chmod,fchmod -F uid=1001 -k json\n",
    ),
    tests: &[
        ("objects_have_full_paths", objects_have_full_paths),
        (
            "event_names_parent_cgroup_and_syscall",
            event_names_parent_cgroup_and_syscall,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const FILE: &str = "/tmp/json.events";

fn prepare() -> anyhow::Result<()> {
    let real = Path::new("/tmp/work/json.real");
    fs::create_dir(real).context("cannot create a directory")?;
    chown(real, Some(USER), Some(USER)).context("cannot chown the directory")?;
    make_file(&real.join("file"), USER)?;
    symlink("json.real", "/tmp/work/json.link").context("cannot create a link")?;
    fs::write("/tmp/json.toml", format!("[json]\nfile = \"{FILE}\"\n"))
        .context("cannot write the settings")
}

/// Waits for so many events of a process.
fn events(pid: u32, count: usize) -> anyhow::Result<Vec<Value>> {
    wait_for("the events", || {
        let text = fs::read_to_string(FILE).context("cannot read the JSON log")?;
        // The last write may be partial.
        let whole = text.rfind('\n').and_then(|end| text.get(..end));
        let mut events = Vec::new();
        for line in whole.unwrap_or_default().lines() {
            let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            if event["task"]["pid"] == pid {
                events.push(event);
            }
        }
        Ok((events.len() >= count).then_some(events))
    })
}

fn objects_have_full_paths(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Program::new(Entry::Syscall)
        .call(2, args!["json.link/file", 0, 0])
        .call(90, args!["json.link/file", 0o640])
        .call(83, args!["json.link/made", 0o700])
        .call(82, args!["json.link/made", "json.link/moved"])
        .call(84, args!["json.link/moved"])
        .call(2, args!["json.link/new", 0o101, 0o600])
        .call(91, args![crate::program::Arg::Result, 0o600])
        .call(2, args!["json.link/none", 0, 0])
        .install("json")?;
    let pid = daemon.run_user(&path, &[])?;
    let found: Vec<Value> = events(pid, 8)?
        .iter()
        .map(|event| {
            let items = event["path"].as_array().into_iter().flatten();
            items
                .map(|item| json!([item["nametype"], item.get("path")]))
                .collect()
        })
        .collect();
    let directory = json!(["PARENT", "/tmp/work/json.real"]);
    let expected = [
        json!([["NORMAL", "/tmp/work/json.real/file"]]),
        json!([["NORMAL", "/tmp/work/json.real/file"]]),
        json!([directory, ["CREATE", "/tmp/work/json.real/made"]]),
        json!([
            directory,
            directory,
            ["DELETE", "/tmp/work/json.real/made"],
            ["CREATE", "/tmp/work/json.real/moved"]
        ]),
        json!([directory, ["DELETE", "/tmp/work/json.real/moved"]]),
        json!([directory, ["CREATE", "/tmp/work/json.real/new"]]),
        json!([["NORMAL", "/tmp/work/json.real/new"]]),
        json!([["UNKNOWN", null]]),
    ];
    ensure!(found == expected, "{}", json!(found));
    Ok(())
}

fn event_names_parent_cgroup_and_syscall(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Program::new(Entry::Syscall)
        .call(2, args!["json.link/file", 0, 0])
        .install("json_one")?;
    let pid = daemon.run_user(&path, &[])?;
    let event = events(pid, 1)?.remove(0);
    let comm = fs::read_to_string("/proc/self/comm").context("cannot read the own name")?;
    ensure!(event["parent"]["comm"] == comm.trim_end(), "{event}");
    ensure!(event["cgroup"] == "/", "{event}");
    ensure!(event["names"]["syscall"] == "open", "{event}");
    Ok(())
}
