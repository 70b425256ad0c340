//! `tollgate doctor` on this kernel. Its text goes to `cargo xtask kernels` in lines `vm: doctor TEXT`, the instructions
//! that the verifier processed in lines `vm: verified N PROGRAM`.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::daemon::TOLLGATE;
use crate::suite::one_line;

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
    let (text, status) = doctor(&[])?;
    for line in text.lines() {
        println!("vm: doctor {line}");
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
    for engine in facts["engines"].as_array().context("no engines")? {
        for (program, number) in engine["verified"].as_object().into_iter().flatten() {
            println!(
                "vm: verified {number} {}/{program}",
                engine["name"].as_str().unwrap_or_default()
            );
        }
    }
    let missing = facts["hooks"].as_array().context("no hooks")?;
    let missing: Vec<&Value> = missing
        .iter()
        .filter(|hook| hook["state"] == "missing")
        .collect();
    ensure!(missing.is_empty(), "hooks are missing: {missing:?}");
    Ok(())
}

fn doctor(options: &[&str]) -> anyhow::Result<(String, i32)> {
    let output = Command::new(TOLLGATE).arg("doctor").args(options).output();
    let output = output.context("cannot start the program")?;
    let text = String::from_utf8(output.stdout).context("no text")?;
    Ok((text, output.status.code().unwrap_or(-1)))
}
