//! Every command in README.md works.
//!
//! Commands of this repository run in a directory of the test. Commands that would install a package or
//! start a service are checked as far as the tree allows: the target of `make`, the script, the unit or the
//! package exists. `scripts/test-deb.sh` runs those on a Debian of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::daemon::{CommandOutput, program};
use super::test_dir::TestDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

pub(crate) fn every_command_works() {
    let dir = TestDir::new();
    let readme = readme();
    assert!(
        readme.lines().count() <= 100,
        "it is to be read in a minute"
    );
    let commands = commands(&readme).unwrap();
    for line in &commands {
        assert_eq!(check(line, &dir), Ok(()), "`{line}`");
    }
    assert!(commands.len() >= 18, "{commands:?}");
}

/// A README with a wrong command, option, file, package or unit fails [`every_command_works`]: each word of each
/// command is misspelled in turn.
pub(crate) fn a_wrong_command_is_found() {
    let commands = commands(&readme()).unwrap();
    let dir = TestDir::new();
    for line in &commands {
        assert_eq!(check(line, &dir), Ok(()), "`{line}`");
        // What `echo` writes is checked by the commands that read it, and the key has any name.
        if line.starts_with("echo ") {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        for (index, &word) in words.iter().enumerate() {
            let mut wrong: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            wrong[index] = match word.strip_suffix('\'') {
                Some(quoted) => format!("{quoted}~'"),
                None => format!("{word}~"),
            };
            let wrong = wrong.join(" ");
            assert!(check(&wrong, &dir).is_err(), "`{wrong}` is not found");
        }
    }
}

/// The output below the commands of the first rule is what they print, but for time, process and user.
pub(crate) fn shown_output_is_real() {
    let readme = readme();
    let (before, rest) = readme.split_once("```text\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let start = before.rfind("```sh").unwrap();
    let block = before.get(start..).unwrap();
    let dir = TestDir::new();
    let mut printed = Vec::new();
    for line in commands(block).unwrap() {
        let output = CommandOutput::of(&mut shell(&line, &dir));
        assert_eq!(output.code, Some(0), "{line}: {output:?}");
        printed = output.stderr.lines().map(masked).collect();
    }
    let shown: Vec<String> = shown.lines().map(masked).collect();
    printed.retain(|line| !line.starts_with("tollgate: "));
    assert_eq!(printed, shown);
}

/// A line without the time of day, process IDs and the user.
fn masked(line: &str) -> String {
    let is_time = |word: &&str| word.ends_with('Z') && word.contains(':');
    let Some(time) = line.split(' ').next().filter(is_time) else {
        return line.to_owned();
    };
    let event = line.trim_start_matches(time);
    let (call, rest) = event.split_once('[').unwrap_or_default();
    let (_, key) = rest.rsplit_once("  [").unwrap_or_default();
    format!("{call}[PID]  USER  [{key}")
}

/// Shell lines that would not be checked are an error, whatever they are hidden in.
pub(crate) fn no_command_is_overlooked() {
    for hidden in [
        "```\nmake run\n```\n",
        "```console\n$ make run\n```\n",
        "```bash\nmake run\n```\n",
        "~~~sh\nmake run\n~~~\n",
        "    make run\n",
        "\tmake run\n",
        "  ```sh\n  make run\n  ```\n",
        "```text\n$ make run\n```\n",
        "```text\nmake run\n```\n",
        "```sh\nmake \\\n  run\n```\n",
        "```sh\nmake run\n",
        "<pre>make run</pre>\n",
    ] {
        assert!(commands(hidden).is_err(), "{hidden}");
    }
    for (readme, found) in [
        ("```sh\nmake run # now\n\n# later\n```\n", vec!["make run"]),
        (
            "```sh\nmake run && make deb; id\n```\n",
            vec!["make run", "make deb", "id"],
        ),
        ("```sh\nsh -c 'a && b'\n```\n", vec!["sh -c 'a && b'"]),
        (
            "Run `make run` or `sudo tollgate bench`.\n",
            vec!["make run", "sudo tollgate bench"],
        ),
        ("See `auditctl` and `--engine auto`.\n", vec![]),
        (
            "Then `systemctl stop auditd && auditctl -D`.\n",
            vec!["systemctl stop auditd", "auditctl -D"],
        ),
        ("```text\nok execve\n```\n", vec![]),
    ] {
        assert_eq!(commands(readme).unwrap(), found, "{readme}");
    }
}

fn readme() -> String {
    fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap()
}

/// Returns the lines of `sh` blocks without comments, and the commands in the text.
///
/// # Errors
/// A line that may be a command, where this function does not look for commands.
fn commands(readme: &str) -> Result<Vec<String>, String> {
    let mut commands = Vec::new();
    let mut block = None;
    for line in readme.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            block = match (block, line) {
                (None, "```sh") => Some("sh"),
                (None, "```text") => Some("text"),
                (Some(_), "```") => None,
                _ => return Err(format!("`{line}`: blocks are ```sh or ```text")),
            };
            continue;
        }
        match block {
            Some("sh") => {
                if line.ends_with('\\') {
                    return Err(format!("`{line}` goes on in the next line"));
                }
                commands.extend(split(line));
            }
            Some(_) => {
                if line.starts_with(['$', '#']) || is_command(line.trim()) {
                    return Err(format!("`{line}`: commands belong into ```sh blocks"));
                }
            }
            None => {
                if line.starts_with(['\t', '<']) || line.starts_with("    ") {
                    return Err(format!("`{line}`: blocks are ```sh or ```text"));
                }
                let code = line.split('`').skip(1).step_by(2);
                commands.extend(code.filter(|code| is_command(code)).flat_map(split));
            }
        }
    }
    match block {
        None => Ok(commands),
        Some(_) => Err("a block without end".to_owned()),
    }
}

/// Splits a shell line at `&&` and `;` outside quotes, and removes its comment.
fn split(line: &str) -> Vec<String> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut is_quoted = false;
    for word in line.split_whitespace() {
        if !is_quoted && word.starts_with('#') {
            break;
        }
        is_quoted ^= word.matches('\'').count() % 2 == 1;
        let ends = !is_quoted && (word == "&&" || word.ends_with(';'));
        if word != "&&" || is_quoted {
            words.push(word.trim_end_matches(if ends { ";" } else { "" }));
        }
        if ends {
            commands.push(words.join(" "));
            words.clear();
        }
    }
    commands.push(words.join(" "));
    commands.retain(|command| !command.is_empty());
    commands
}

/// Whether inline code is a command line, and not an option or a name.
fn is_command(code: &str) -> bool {
    const PROGRAMS: [&str; 12] = [
        "make",
        "tollgate",
        "tollgate-alternatives",
        "auditctl",
        "augenrules",
        "ausearch",
        "aureport",
        "systemctl",
        "apt",
        "cargo",
        "sh",
        "service",
    ];
    let mut words = code.split(' ').filter(|word| *word != "sudo");
    words.next().is_some_and(|first| PROGRAMS.contains(&first)) && words.next().is_some()
}

fn check(line: &str, dir: &TestDir) -> Result<(), String> {
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["make", target] => contains("Makefile", &format!("\n{target}:")),
        ["sh", script, words @ ..] if script.starts_with("scripts/") => {
            words.iter().try_for_each(|word| contains(script, word))
        }
        ["sh", "-c", ..] => {
            let rules = dir.own.join("rules.d");
            fs::create_dir_all(&rules).unwrap();
            fs::copy(
                Path::new(ROOT).join("examples/first.rules"),
                rules.join("first.rules"),
            )
            .unwrap();
            let here = line.replace("/etc/audit/rules.d", &rules.to_string_lossy());
            run(&here, dir, "0 errors")
        }
        ["apt", "install" | "remove", package] => {
            let package = package.rsplit('/').next().unwrap_or_default();
            let name = package.trim_end_matches("_*.deb");
            contains("scripts/deb.sh", &format!("Package: {name}\n"))
        }
        ["systemctl", "enable", "--now", "auditd"] | ["systemctl", "disable", "auditd"] => Ok(()),
        ["systemctl", "enable", "--now", unit] => {
            contains(&format!("packaging/{unit}.service"), "ExecStart=")
        }
        ["tollgate-alternatives", action] => {
            contains("packaging/tollgate-alternatives", &format!("\n{action})"))
        }
        ["auditctl", words @ ..] => {
            let line = format!("tollgate auditctl --offline {}", words.join(" "));
            run(&line, dir, "")
        }
        ["ausearch", ..] => {
            let log = dir.own.join("readme.log");
            let record = format!("tollgate run --log {} -- id", log.display());
            run(&record, dir, "uid=")?;
            run(&format!("{line} -if {}", log.display()), dir, "execve")
        }
        // Without a daemon the command fails, but not as a usage error.
        ["tollgate", "status"] => {
            let line = "tollgate status --control /nonexistent/control 2>&1 || test $? = 1";
            run(line, dir, "/nonexistent/control")
        }
        ["tollgate", "watch" | "top", ..] => run(&format!("{line} --help"), dir, "Usage"),
        ["tollgate", "bench"] => run("tollgate bench --list", dir, "syscalls"),
        [
            "tollgate",
            "run" | "explain" | "check" | "collect" | "convert" | "detect" | "doctor" | "search"
            | "ship",
        ] => run(&format!("{line} --help"), dir, "Usage"),
        ["tollgate", "run", ..] => run(&format!("{line} 2>&1"), dir, "[exec]"),
        ["tollgate", "explain", ..] => run(line, dir, "execve"),
        ["tollgate", "check", ..] => run(line, dir, "1 rule, "),
        ["echo", ..] => run(line, dir, ""),
        _ => Err("no check for this command: add one to `readme.rs`".to_owned()),
    }
}

/// Runs a shell command in the directory of the test, with the program under test first in `PATH`.
fn run(line: &str, dir: &TestDir, expected: &str) -> Result<(), String> {
    let output = CommandOutput::of(&mut shell(line, dir));
    if output.code == Some(0) && output.stdout.contains(expected) {
        Ok(())
    } else {
        Err(format!("{output:?}"))
    }
}

fn shell(line: &str, dir: &TestDir) -> Command {
    let directory = program().parent().unwrap().display().to_string();
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(&dir.own)
        .env("PATH", format!("{directory}:/usr/sbin:/usr/bin:/sbin:/bin"));
    command
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
