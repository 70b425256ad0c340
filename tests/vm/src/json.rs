//! The JSON log: paths of objects, which no record has.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::machine::{PROGRAMS, USER, make_file};
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
        ("objects_have_their_paths", objects_have_their_paths),
        ("the_parent_is_named", the_parent_is_named),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const FILE: &str = "/tmp/json.events";

fn prepare() -> anyhow::Result<()> {
    let real = Path::new("/tmp/work/json.real");
    fs::create_dir(real).context("cannot make a directory")?;
    chown(real, Some(USER), Some(USER)).context("cannot give it away")?;
    make_file(&real.join("file"), USER)?;
    symlink("json.real", "/tmp/work/json.link").context("cannot make a link")?;
    fs::write("/tmp/json.toml", format!("[json]\nfile = \"{FILE}\"\n"))
        .context("cannot write the settings")
}

/// Waits for so many events of a process.
fn events(pid: u32, count: usize) -> anyhow::Result<Vec<Value>> {
    wait_for("the events", || {
        let text = fs::read_to_string(FILE).context("cannot read the JSON log")?;
        let mut events = Vec::new();
        // The daemon can be in the middle of a write.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in complete.lines() {
            let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            if event["task"]["pid"] == pid {
                events.push(event);
            }
        }
        Ok((events.len() >= count).then_some(events))
    })
}

fn objects_have_their_paths(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Path::new(PROGRAMS).join("json");
    Program::new(Entry::Syscall)
        .call(2, args!["json.link/file", 0, 0])
        .call(90, args!["json.link/file", 0o640])
        .call(83, args!["json.link/made", 0o700])
        .call(82, args!["json.link/made", "json.link/moved"])
        .call(84, args!["json.link/moved"])
        .call(2, args!["json.link/new", 0o101, 0o600])
        .call(91, args![crate::program::Arg::Result, 0o600])
        .call(2, args!["json.link/none", 0, 0])
        .write(&path)
        .context("cannot write a program")?;
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

fn the_parent_is_named(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Path::new(PROGRAMS).join("json_one");
    Program::new(Entry::Syscall)
        .call(2, args!["json.link/file", 0, 0])
        .write(&path)
        .context("cannot write a program")?;
    let pid = daemon.run_user(&path, &[])?;
    let event = events(pid, 1)?.remove(0);
    let comm = fs::read_to_string("/proc/self/comm").context("cannot read the own name")?;
    ensure!(event["parent"]["comm"] == comm.trim_end(), "{event}");
    ensure!(event["cgroup"] == "/", "{event}");
    ensure!(event["names"]["syscall"] == "open", "{event}");
    Ok(())
}
