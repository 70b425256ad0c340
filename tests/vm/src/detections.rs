//! The Sigma rules of the package find techniques of ATT&CK that are done for real. [`TECHNIQUES`] has the commands.

mod exercise;
pub(crate) mod own_daemon;
pub(crate) mod sigmahq;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use support::wait::wait_for;

use crate::daemon::{Daemon, TOLLGATE};
use crate::machine::STRANGER;
use crate::program::{Entry, Program, args};
use crate::suite::{FENTRY, Rules, Session};
use exercise::Exercise;

/// The tests. The engine is one that starts on all kernels.
pub(crate) const SESSION: Session = Session {
    name: "detections",
    engine: FENTRY,
    prepare: || Ok(()),
    rules: Rules::Made(audit_rules),
    tests: &[
        (
            "techniques_raise_their_alerts",
            techniques_raise_their_alerts,
        ),
        ("daemon_has_what_run_lacks", daemon_has_what_run_lacks),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Commands, with the technique and the Sigma rule that must match; its first lines tell the format.
const TECHNIQUES: &str = include_str!("detections/techniques.txt");

/// The Sigma rules of the package.
const RULES: &str = "/usr/share/tollgate/sigma";

/// Directory of the commands, their logs and the cases.
const PLACE: &str = "/srv/attack";

/// Sigma rules about what `tollgate run` does not record, or does not let happen, with their titles.
const DAEMON: [(&str, &str); 3] = [
    (
        "/usr/share/tollgate/sigma/kernel-module-loaded.yml",
        "Kernel Module Loaded In A Login Session",
    ),
    (
        "/usr/share/tollgate/sigma/ptrace-of-another-user.yml",
        "Program Of Another User Traced",
    ),
    (
        "/usr/share/tollgate/sigma/root-shell-by-set-uid.yml",
        "Root Shell By Set-Uid",
    ),
];

/// Loads a kernel module that depends on no other, and lets a user execute a set-uid shell; [`END`] is executed at last.
const DAEMON_SCRIPT: &str = "set -e
insmod /modules/$(uname -r)/00-xor.*
rmmod xor
cp /bin/bash rootsh/bash
chmod 4755 rootsh/bash
su -s /bin/sh www-data -c 'rootsh/bash -p -c id'
./trace
/usr/bin/true end-of-detections
";
const END: &str = "end-of-detections";

/// A technique that is done.
#[derive(Debug, PartialEq, Eq)]
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

impl Technique {
    fn exercise(&self) -> Exercise {
        Exercise {
            name: self.id,
            rule: self.rule.to_owned(),
            script: self.script.clone(),
        }
    }
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

/// What the rules of [`DAEMON`] need, without the calls that `tollgate run` makes in the other test.
fn audit_rules() -> String {
    let files = DAEMON.map(|(file, _)| file);
    let made = exercise::audit_rules(&files).unwrap_or_default();
    format!("-a never,exit -F arch=b64 -S ptrace -F exe={TOLLGATE}\n{made}")
}

/// A module, a trace and a set-uid shell, which the daemon records.
fn daemon_has_what_run_lacks(daemon: &Daemon) -> anyhow::Result<()> {
    const PLACE: &str = "/srv/daemon";
    exercise::prepare()?;
    fs::create_dir_all(format!("{PLACE}/rootsh")).context("cannot make a directory")?;
    let mut traced = Command::new("/usr/bin/sleep")
        .arg("600")
        .uid(STRANGER)
        .spawn()
        .context("cannot start a program")?;
    // PTRACE_SEIZE, whose data are no options.
    let trace = Program::new(Entry::Syscall)
        .call(101, args![0x4206, i64::from(traced.id()), 0, 0])
        .call(60, args![0]);
    let written = trace.write(Path::new("/srv/daemon/trace"));
    written.context("cannot write a program")?;
    let done = exercise::in_session(PLACE, &["bash", "-c", DAEMON_SCRIPT]);
    traced.kill().context("cannot end a program")?;
    traced.wait().context("cannot wait for a program")?;
    done?;
    let log = wait_for("the last event", || {
        let log = daemon.log_text()?;
        Ok(log.contains_str(END).then_some(log))
    })?;
    let log = String::from_utf8_lossy(&log);
    let exercises = DAEMON.map(|(_, title)| Exercise {
        name: title,
        rule: title.to_owned(),
        script: String::new(),
    });
    let silent = exercise::without_match(PLACE, RULES, &exercises, &[&*log; DAEMON.len()])?;
    ensure!(silent.is_empty(), "{silent:?}");
    Ok(())
}

/// Does each technique, and fails unless its rule matches what was recorded of it.
fn techniques_raise_their_alerts(_daemon: &Daemon) -> anyhow::Result<()> {
    let techniques = techniques(TECHNIQUES)?;
    exercise::prepare()?;
    for technique in techniques.iter().filter(|technique| technique.is_stand_in) {
        let mut words = technique.script.split_whitespace();
        let program = words.next().context("a technique without commands")?;
        exercise::stand_in(&Path::new(exercise::PROGRAMS).join(program))?;
    }
    let exercises: Vec<Exercise> = techniques.iter().map(Technique::exercise).collect();
    let silent = exercise::silent(PLACE, RULES, &exercises)?;
    ensure!(silent.is_empty(), "{silent:?}");
    let ids: BTreeSet<&str> = techniques.iter().map(|technique| technique.id).collect();
    let stand_ins = techniques.iter().filter(|it| it.is_stand_in).count();
    println!(
        "vm: note {} commands of {} techniques raise their alerts, {stand_ins} of them by a stand-in",
        techniques.len(),
        ids.len()
    );
    Ok(())
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
