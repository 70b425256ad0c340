//! Executes commands under `tollgate run`, with the audit rules that `tollgate detect explain` makes for Sigma rules, and
//! tells which Sigma rules do not match what was recorded.
//!
//! Each program of `busybox` is a link of its own in `/usr/bin`, so that records have its path as that of the program, as
//! on other systems. The commands run in a session of a user who has logged in.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use serde_json::Value;

use crate::daemon::TOLLGATE;
use crate::program::{Entry, Program, args};

/// The program that evaluates the rules.
const DETECT: &str = "/bin/tollgate-detect";

/// Programs of the commands.
pub(super) const PROGRAMS: &str = "/usr/bin";
const BUSYBOX: &str = "/bin/busybox";
const BASH: &str = "/bin/bash";

/// Sets the login uid, as the login of user 1000 does, and executes its arguments.
const LOGIN: &str = "echo 1000 >/proc/self/loginuid && exec \"$@\"";

/// Executes all scripts, each in its directory and by its own shell, and [`MARK`] before each.
const ALL: &str = "for script in *.sh; do cd \"${script%.sh}\" && /usr/bin/true \"$script\" && bash -es <\"../$script\" && cd .. \
    || { echo \"$script fails\" >&2; exit 1; }; done";
const MARK: &str = "/usr/bin/true";

/// Commands, and the Sigma rule that must match what they do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exercise {
    pub(super) name: &'static str,
    /// Title or id of the Sigma rule.
    pub(super) rule: String,
    /// Input of the shell.
    pub(super) script: String,
}

/// Executes the commands; returns the names of those whose rule does not match, with the reason.
///
/// # Errors
/// A command fails, or the rules cannot be loaded.
pub(super) fn silent(
    place: &str,
    rules: &str,
    exercises: &[Exercise],
) -> anyhow::Result<Vec<(&'static str, String)>> {
    for (number, exercise) in exercises.iter().enumerate() {
        let path = format!("{place}/{}", file_name(number));
        fs::create_dir_all(&path).context("cannot make a directory")?;
        fs::write(path + ".sh", &exercise.script).context("cannot write a script")?;
    }
    let log = run(place, rules)?;
    let logs = split(&log);
    ensure!(logs.len() == exercises.len(), "{} parts", logs.len());
    without_match(place, rules, exercises, &logs)
}

/// Returns the names of those exercises whose rule does not match their log, with the reason.
///
/// # Errors
/// The rules cannot be loaded.
pub(super) fn without_match(
    place: &str,
    rules: &str,
    exercises: &[Exercise],
    logs: &[&str],
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let cases = Path::new(place).join("cases");
    fs::create_dir_all(&cases).context("cannot make a directory")?;
    for (number, (exercise, &log)) in exercises.iter().zip(logs).enumerate() {
        let (name, rule) = (file_name(number), &exercise.rule);
        let case = format!(
            "rules = [\"{rules}\"]\nlog = \"{name}.log\"\n[expect]\nat_least = [\"{rule}\"]\n"
        );
        for (ending, text) in [("log", log), ("toml", &case)] {
            let path = cases.join(format!("{name}.{ending}"));
            fs::write(path, text).context("cannot write a case")?;
        }
    }
    failed(&cases, exercises)
}

/// Name of the directory, script and case of an exercise.
fn file_name(number: usize) -> String {
    format!("{number:03}")
}

/// Makes the programs of `busybox` and the shell available, and the files and the network that any system has.
///
/// # Errors
/// A file cannot be created.
pub(super) fn prepare() -> anyhow::Result<()> {
    for directory in [PROGRAMS, "/root", "/dev/shm"] {
        fs::create_dir_all(directory).context(directory)?;
    }
    let applets = output(Command::new(BUSYBOX).arg("--list"))?;
    for applet in applets.lines() {
        // The shell of busybox executes its own programs under the path of the shell.
        if applet != "sh" {
            link(BUSYBOX, &format!("{PROGRAMS}/{applet}"))?;
        }
    }
    for shell in ["/usr/bin/bash", "/usr/bin/sh", "/bin/sh"] {
        link(BASH, shell)?;
    }
    fs::write("/etc/shadow", "root:!:1::::::\nwww-data:*:1::::::\n")
        .context("cannot write /etc/shadow")?;
    output(Command::new(BUSYBOX).args(["ifconfig", "lo", "127.0.0.1", "up"])).map(drop)
}

/// Writes a program that does nothing.
///
/// # Errors
/// It cannot be written.
pub(super) fn stand_in(path: &Path) -> anyhow::Result<()> {
    let nothing = Program::new(Entry::Syscall).call(60, args![0]);
    let written = nothing.write(path);
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a program available at another path.
fn link(program: &str, path: &str) -> anyhow::Result<()> {
    if Path::new(path).exists() {
        return Ok(());
    }
    fs::hard_link(program, path).with_context(|| format!("cannot link {path}"))
}

/// The audit rules that Sigma rules need.
///
/// # Errors
/// They cannot be loaded.
pub(super) fn audit_rules(rules: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(DETECT);
    output(command.arg("explain").args(rules).arg("--audit-rules"))
}

/// Executes all scripts under `tollgate run`; returns the log.
fn run(place: &str, rules: &str) -> anyhow::Result<String> {
    let (file, log) = (format!("{place}/audit.rules"), format!("{place}/audit.log"));
    fs::write(&file, audit_rules(&[rules])?).context("cannot write the audit rules")?;
    let run = [TOLLGATE, "run", "--rules", &file, "--log", &log, "--"];
    in_session(place, &[&run[..], &["bash", "-c", ALL]].concat())?;
    fs::read_to_string(log).context("cannot read the log")
}

/// Executes a command in a session of a user who has logged in.
///
/// # Errors
/// It fails.
pub(super) fn in_session(directory: &str, command: &[&str]) -> anyhow::Result<()> {
    let mut session = Command::new(BASH);
    session
        .args(["-c", LOGIN, "login"])
        .args(command)
        .env_clear()
        .env("PATH", format!("/usr/sbin:{PROGRAMS}:/bin"))
        .env("HOME", "/root")
        .current_dir(directory);
    output(&mut session).map(drop)
}

/// The parts of a log that begin with the events of [`MARK`].
fn split(log: &str) -> Vec<&str> {
    let mark = format!(" a0=\"{MARK}\" a1=");
    let mut starts = Vec::new();
    let (mut event, mut at) = (0, 0);
    for line in log.split_inclusive('\n') {
        if line.starts_with("type=SYSCALL") {
            event = at;
        } else if line.contains(&mark) {
            starts.push(event);
        }
        at += line.len();
    }
    let ends = starts.iter().copied().skip(1).chain([log.len()]);
    let parts = starts.iter().zip(ends);
    parts
        .filter_map(|(&start, end)| log.get(start..end))
        .collect()
}

/// Evaluates the cases of a directory; returns the names of those that fail, with the reason.
fn failed(cases: &Path, exercises: &[Exercise]) -> anyhow::Result<Vec<(&'static str, String)>> {
    let output = Command::new(DETECT)
        .arg("test")
        .arg(cases)
        .arg("--json")
        .stdin(Stdio::null())
        .output()
        .context("cannot start tollgate-detect")?;
    let result: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| output.stderr.to_str_lossy().into_owned())?;
    let reports = result["cases"].as_array().context("no cases")?;
    ensure!(reports.len() == exercises.len(), "{} cases", reports.len());
    // Cases are evaluated in the order of their names.
    let reports = reports.iter().zip(exercises);
    let failed = reports.filter(|(report, _)| report["result"] != "passed");
    Ok(failed
        .map(|(report, exercise)| (exercise.name, report["reasons"].to_string()))
        .collect())
}

/// Standard output of a command that succeeds.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start a command")?;
    let said = output.stderr.as_bstr();
    ensure!(
        output.status.success(),
        "{command:?}: {}: {said}",
        output.status
    );
    String::from_utf8(output.stdout).context("the output is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_split_at_marks() {
        let mark = "type=SYSCALL 1\ntype=EXECVE argc=2 a0=\"/usr/bin/true\" a1=\"000.sh\"\n";
        let id = "type=SYSCALL 2\ntype=EXECVE argc=1 a0=\"id\"\n";
        let log = format!("{id}{mark}{id}{mark}");
        assert_eq!(split(&log), [format!("{mark}{id}").as_str(), mark]);
    }
}
