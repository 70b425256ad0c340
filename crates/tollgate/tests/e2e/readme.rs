//! Every command in README.md works.
//!
//! Commands of this repository run in a directory of the test. Commands that would install a package or
//! start a service are checked as far as the tree allows: the target of `make`, the script, the unit or the
//! package exists. `scripts/test-deb.sh` runs those on a Debian of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::daemon::{CommandOutput, program};
use super::place::Place;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

pub(crate) fn every_command_works() {
    let place = Place::new();
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let mut checked = 0;
    for line in commands(&readme) {
        let result = check(&line, &place);
        assert_eq!(result, Ok(()), "`{line}`");
        checked += 1;
    }
    assert!(checked >= 18, "{checked} commands found");
}

/// Returns the lines of `sh` blocks without comments, and commands in the text.
fn commands(readme: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut block = None;
    for line in readme.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some("sh")) => {
                let command = line.split("  #").next().unwrap_or_default().trim();
                if !command.is_empty() {
                    commands.push(command.to_owned());
                }
            }
            (None, Some(_)) => {}
            (None, None) => commands.extend(
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .filter(|code| is_command(code))
                    .flat_map(|code| code.split(" && "))
                    .map(str::to_owned),
            ),
        }
    }
    commands
}

/// Whether inline code is a command line, and not an option or a name.
fn is_command(code: &str) -> bool {
    let mut words = code.split(' ').filter(|word| *word != "sudo");
    matches!(words.next(), Some("make" | "tollgate")) && words.next().is_some()
}

fn check(line: &str, place: &Place) -> Result<(), String> {
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["make", target] => contains("Makefile", &format!("\n{target}:")),
        ["sh", script, words @ ..] if script.starts_with("scripts/") => {
            words.iter().try_for_each(|word| contains(script, word))
        }
        ["sh", "-c", ..] => {
            let rules = place.own.join("rules.d");
            fs::create_dir_all(&rules).unwrap();
            fs::copy(
                Path::new(ROOT).join("examples/first.rules"),
                rules.join("first.rules"),
            )
            .unwrap();
            let here = line.replace("/etc/audit/rules.d", &rules.to_string_lossy());
            run(&here, place, "0 errors")
        }
        ["apt", "install" | "remove", package] => {
            let package = package.rsplit('/').next().unwrap_or_default();
            let name = package.trim_end_matches("_*.deb");
            contains("scripts/deb.sh", &format!("Package: {name}\n"))
        }
        ["systemctl", "enable", "--now", "auditd"] => Ok(()),
        ["systemctl", "enable", "--now", unit] => {
            contains(&format!("packaging/{unit}.service"), "ExecStart=")
        }
        ["tollgate-alternatives", action] => {
            contains("packaging/tollgate-alternatives", &format!("\n{action})"))
        }
        ["auditctl", words @ ..] => {
            let line = format!("tollgate auditctl --offline {}", words.join(" "));
            run(&line, place, "")
        }
        ["ausearch", ..] => {
            let log = place.own.join("readme.log");
            let record = format!("tollgate run --log {} -- id", log.display());
            run(&record, place, "uid=")?;
            run(&format!("{line} -if {}", log.display()), place, "execve")
        }
        // Without a daemon the command fails, but not as a usage error.
        ["tollgate", "status"] => {
            let line = "tollgate status --control /nonexistent/control 2>&1 || test $? = 1";
            run(line, place, "/nonexistent/control")
        }
        ["tollgate", "bench"] => run("tollgate bench --list", place, "syscalls"),
        ["tollgate", "run" | "explain" | "check"] => run(&format!("{line} --help"), place, "Usage"),
        ["tollgate", "run", ..] => run(&format!("{line} 2>&1"), place, "[exec]"),
        ["tollgate", "explain", ..] => run(line, place, "execve"),
        ["tollgate", "check", ..] => run(line, place, "1 rule, "),
        ["echo", ..] => run(line, place, ""),
        _ => Err("no check for this command: add one to `readme.rs`".to_owned()),
    }
}

/// Runs a shell command in the directory of the test, with the program under test first in `PATH`.
fn run(line: &str, place: &Place, expected: &str) -> Result<(), String> {
    let directory = program().parent().unwrap().display().to_string();
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(&place.own)
        .env("PATH", format!("{directory}:/usr/sbin:/usr/bin:/sbin:/bin"));
    let output = CommandOutput::of(&mut command);
    if output.code == Some(0) && output.stdout.contains(expected) {
        Ok(())
    } else {
        Err(format!("{output:?}"))
    }
}

fn contains(file: &str, text: &str) -> Result<(), String> {
    let content = fs::read_to_string(Path::new(ROOT).join(file))
        .map_err(|error| format!("{file}: {error}"))?;
    if content.contains(text) {
        Ok(())
    } else {
        Err(format!("{file} lacks `{text}`"))
    }
}
