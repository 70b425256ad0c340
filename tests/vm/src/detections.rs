//! The Sigma rules of the package find techniques of ATT&CK that are done for real under `tollgate run`, with the audit
//! rules that `tollgate detect explain` makes for them. [`TECHNIQUES`] has the commands.
//!
//! Each program of `busybox` is a link of its own in `/usr/bin`, so that records have its path as that of the program, as
//! on other systems. The commands run in a session of a user who has logged in.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use serde_json::Value;

use crate::daemon::{Daemon, TOLLGATE};
use crate::program::{Entry, Program, args};

/// Commands, with the technique and the Sigma rule that must match; its first lines tell the format.
const TECHNIQUES: &str = include_str!("detections/techniques.txt");

/// The program that evaluates the rules.
const DETECT: &str = "/bin/tollgate-detect";
/// The rules of the package.
const RULES: &str = "/usr/share/tollgate/sigma";

/// Directory of the commands, their logs and the cases.
const PLACE: &str = "/srv/attack";
const PROGRAMS: &str = "/usr/bin";
const BUSYBOX: &str = "/bin/busybox";
const BASH: &str = "/bin/bash";

/// Sets the login uid, as the login of user 1000 does, and then its arguments.
const LOGIN: &str = "echo 1000 >/proc/self/loginuid && exec \"$@\"";

/// Executes all scripts, each in its directory and by its own shell, and [`MARK`] before each.
const ALL: &str = "for script in *.sh; do cd \"${script%.sh}\" && /usr/bin/true \"$script\" && bash -es <\"../$script\" && cd .. \
    || { echo \"$script fails\" >&2; exit 1; }; done";
const MARK: &str = "/usr/bin/true";

/// A technique that is done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Technique {
    /// Its id in ATT&CK.
    id: &'static str,
    /// Whether a program that does nothing stands for the real one.
    is_stand_in: bool,
    /// Title of the Sigma rule.
    rule: &'static str,
    /// Input of the shell.
    script: String,
}

/// Parses [`TECHNIQUES`].
fn techniques(text: &'static str) -> anyhow::Result<Vec<Technique>> {
    let mut found: Vec<Technique> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(command) = line.strip_prefix("    ") {
            let technique = found.last_mut().context("a command without a technique")?;
            technique.script.push_str(command);
            technique.script.push('\n');
        } else if let Some((head, rule)) = line.split_once(": ") {
            let (id, kind) = head.split_once(' ').context("a technique has a kind")?;
            ensure!(matches!(kind, "real" | "stand-in"), "{line}");
            found.push(Technique {
                id,
                is_stand_in: kind == "stand-in",
                rule,
                script: String::new(),
            });
        } else {
            ensure!(line.is_empty(), "{line}");
        }
    }
    Ok(found)
}

/// Does each technique, and fails unless its rule matches what was recorded of it.
pub(crate) fn techniques_raise_their_alerts(_daemon: &Daemon) -> anyhow::Result<()> {
    let techniques = techniques(TECHNIQUES)?;
    prepare(&techniques)?;
    for (number, technique) in techniques.iter().enumerate() {
        let path = format!("{PLACE}/{}", name(number));
        fs::create_dir_all(&path).context("cannot make a directory")?;
        fs::write(path + ".sh", &technique.script).context("cannot write a script")?;
    }
    let log = run()?;
    let logs = split(&log);
    ensure!(logs.len() == techniques.len(), "{} parts", logs.len());
    let cases = Path::new(PLACE).join("cases");
    fs::create_dir(&cases).context("cannot make a directory")?;
    for (number, (technique, log)) in techniques.iter().zip(logs).enumerate() {
        let (name, rule) = (name(number), technique.rule);
        let case = format!(
            "# {}\nrules = [\"{RULES}\"]\nlog = \"{name}.log\"\n[expect]\nat_least = [\"{rule}\"]\n",
            technique.id
        );
        for (ending, text) in [("log", log), ("toml", &case)] {
            let path = cases.join(format!("{name}.{ending}"));
            fs::write(path, text).context("cannot write a case")?;
        }
    }
    let missed = failed_cases(&cases, &techniques)?;
    ensure!(missed.is_empty(), "{}", missed.join("; "));
    let ids: BTreeSet<&str> = techniques.iter().map(|technique| technique.id).collect();
    let stand_ins = techniques.iter().filter(|it| it.is_stand_in).count();
    println!(
        "vm: note {} commands of {} techniques raise their alerts, {stand_ins} of them by a stand-in",
        techniques.len(),
        ids.len()
    );
    Ok(())
}

/// Name of the directory, script and case of a technique.
fn name(number: usize) -> String {
    format!("{number:03}")
}

/// Creates the programs that the commands need, and the files that exist on any system.
fn prepare(techniques: &[Technique]) -> anyhow::Result<()> {
    for directory in [PROGRAMS, PLACE, "/root", "/dev/shm"] {
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
    let nothing = Program::new(Entry::Syscall).call(60, args![0]);
    for technique in techniques.iter().filter(|technique| technique.is_stand_in) {
        let word = technique
            .script
            .split_whitespace()
            .next()
            .unwrap_or_default();
        nothing
            .write(&Path::new(PROGRAMS).join(word))
            .with_context(|| word.to_owned())?;
    }
    fs::write("/etc/shadow", "root:!:1::::::\nwww-data:*:1::::::\n")
        .context("cannot write /etc/shadow")?;
    output(Command::new(BUSYBOX).args(["ifconfig", "lo", "127.0.0.1", "up"])).map(drop)
}

/// Makes a program available at another path.
fn link(program: &str, path: &str) -> anyhow::Result<()> {
    if Path::new(path).exists() {
        return Ok(());
    }
    fs::hard_link(program, path).with_context(|| format!("cannot link {path}"))
}

/// Executes all scripts under `tollgate run`; returns the log.
fn run() -> anyhow::Result<String> {
    let (audit_rules, log) = (format!("{PLACE}/audit.rules"), format!("{PLACE}/audit.log"));
    let made = output(Command::new(DETECT).args(["explain", RULES, "--audit-rules"]))?;
    fs::write(&audit_rules, made).context("cannot write the audit rules")?;
    let mut command = Command::new(BASH);
    command
        .args(["-c", LOGIN, "login", TOLLGATE, "run"])
        .args(["--rules", &audit_rules, "--log", &log])
        .args(["--", "bash", "-c", ALL])
        .env_clear()
        .env("PATH", format!("/usr/sbin:{PROGRAMS}:/bin"))
        .env("HOME", "/root")
        .current_dir(PLACE);
    output(&mut command)?;
    fs::read_to_string(log).context("cannot read the log")
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

/// Evaluates the cases of a directory; returns what was expected and is not so.
fn failed_cases(cases: &Path, techniques: &[Technique]) -> anyhow::Result<Vec<String>> {
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
    ensure!(reports.len() == techniques.len(), "{} cases", reports.len());
    // Cases are evaluated in the order of their names.
    let reports = reports.iter().zip(techniques);
    let failed = reports.filter(|(report, _)| report["result"] != "passed");
    Ok(failed
        .map(|(report, technique)| format!("{}: {}", technique.id, report["reasons"]))
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

    /// Title of each rule of the package, with its tags.
    fn rules() -> Vec<(String, String)> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/sigma");
        let entries = fs::read_dir(directory).unwrap();
        let texts = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        let value = |text: &str, key: &str| {
            let mut lines = text.lines();
            lines
                .find_map(|line| Some(line.strip_prefix(key)?.to_owned()))
                .unwrap()
        };
        texts
            .map(|text| (value(&text, "title: "), value(&text, "tags: ")))
            .collect()
    }

    #[test]
    fn each_technique_is_a_tag_of_its_rule() {
        let rules = rules();
        for technique in techniques(TECHNIQUES).unwrap() {
            let rule = rules.iter().find(|(title, _)| title == technique.rule);
            let (title, tags) = rule.expect(technique.rule);
            let tag = format!("attack.{}", technique.id.to_lowercase());
            let tags: Vec<&str> = tags.trim_matches(['[', ']']).split(", ").collect();
            assert!(tags.contains(&tag.as_str()), "{title}: {tag}");
            assert!(!technique.script.is_empty(), "{technique:?}");
        }
    }

    #[test]
    fn most_techniques_are_done_by_real_programs() {
        let techniques = techniques(TECHNIQUES).unwrap();
        let real = techniques.iter().filter(|technique| !technique.is_stand_in);
        let ids: BTreeSet<&str> = real.map(|technique| technique.id).collect();
        assert!(ids.len() >= 75, "{}", ids.len());
    }

    #[test]
    fn log_is_split_at_marks() {
        let mark = "type=SYSCALL 1\ntype=EXECVE argc=2 a0=\"/usr/bin/true\" a1=\"000.sh\"\n";
        let id = "type=SYSCALL 2\ntype=EXECVE argc=1 a0=\"id\"\n";
        let log = format!("{id}{mark}{id}{mark}");
        assert_eq!(split(&log), [format!("{mark}{id}").as_str(), mark]);
    }

    #[test]
    fn mistakes_in_the_table_are_found() {
        for text in ["    id", "T1 real", "T1 done: Rule", "T1: Rule"] {
            assert!(techniques(text).is_err(), "{text}");
        }
        let expected = Technique {
            id: "T1",
            is_stand_in: true,
            rule: "Rule",
            script: "id\nid\n".to_owned(),
        };
        let text = "# x\n\nT1 stand-in: Rule\n    id\n    id\n";
        assert_eq!(techniques(text).unwrap(), [expected]);
    }
}
