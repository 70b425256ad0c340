//! `tollgate doctor` on this kernel. What `cargo xtask kernels` records of it goes there in one line, `vm: doctor JSON`.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};

use crate::daemon::{TOLLGATE, allows_loss};
use crate::suite::{known_engines, one_line};

/// The test.
const NAME: &str = "doctor::reports_this_kernel";

/// Exit statuses: complete; limited; no engine starts.
const STATUSES: [i32; 3] = [0, 3, 1];

/// Runs the test.
pub(crate) fn run() {
    println!("vm: plan {NAME}");
    let started = Instant::now();
    let ended = reports_this_kernel();
    let seconds = started.elapsed().as_secs_f64();
    match ended {
        Ok(()) => println!("vm: ok {seconds:.2} {NAME}"),
        Err(error) => println!("vm: FAIL {seconds:.2} {NAME}: {}", one_line(&error)),
    }
    println!("vm: end");
}

/// Both forms of the output agree, and the exit status is that of the verdict.
fn reports_this_kernel() -> anyhow::Result<()> {
    let (kind, place, flags) = ("securityfs", "/sys/kernel/security", MsFlags::empty());
    mount(Some(kind), place, Some(kind), flags, None::<&str>).context("no securityfs")?;
    let (text, status) = doctor(&[])?;
    for line in text.lines() {
        println!("vm: note {line}");
    }
    let (json, again) = doctor(&["--json"])?;
    ensure!(status == again, "{status} without --json, {again} with it");
    let facts: Value = serde_json::from_str(&json).context("no JSON")?;
    let verdict = facts["verdict"].as_str().context("no verdict")?;
    let position = ["complete", "limited", "refused"]
        .iter()
        .position(|it| *it == verdict);
    let expected = position
        .and_then(|at| STATUSES.get(at))
        .context("an unknown verdict")?;
    ensure!(status == *expected, "{verdict} with status {status}");
    let record = record(&text, &facts)?;
    println!("vm: doctor {record}");
    let engines = facts["engines"].as_array().context("no engines")?;
    let starting: Vec<&str> = engines
        .iter()
        .filter(|engine| engine["starts"] == true)
        .filter_map(|engine| engine["name"].as_str())
        .collect();
    if let Some(known) = known_engines()? {
        // With `--allow-loss` the engine starts that doctor says is refused.
        let expected = if allows_loss()? { Vec::new() } else { known };
        ensure!(
            starting == expected,
            "{starting:?} start, the matrix has {expected:?}"
        );
    }
    ensure!(
        record["missing_hooks"] == 0 || starting.is_empty(),
        "hooks are missing: {text}"
    );
    Ok(())
}

/// `struct Doctor` of `xtask/src/vm/kernels.rs`.
fn record(text: &str, facts: &Value) -> anyhow::Result<Value> {
    let engine = |engine: &Value| {
        json!({
            "name": engine["name"],
            "refusal": engine["refusal"],
            "verified": engine["verified"],
        })
    };
    let engines = facts["engines"].as_array().context("no engines")?;
    let hooks = facts["hooks"].as_array().context("no hooks")?;
    let missing = hooks.iter().filter(|hook| hook["state"] == "missing");
    Ok(json!({
        "release": facts["system"]["release"],
        "preemption": facts["system"]["preemption"],
        "engine": facts["engine"],
        "engines": engines.iter().map(engine).collect::<Vec<_>>(),
        "missing_hooks": missing.count(),
        "text": text.lines().map(str::trim_end).collect::<Vec<_>>(),
    }))
}

fn doctor(options: &[&str]) -> anyhow::Result<(String, i32)> {
    let output = Command::new(TOLLGATE).arg("doctor").args(options).output();
    let output = output.context("cannot start the program")?;
    let text = String::from_utf8(output.stdout).context("no text")?;
    Ok((text, output.status.code().unwrap_or(-1)))
}
