//! Sigma rules of `SigmaHQ` match what commands do for real. The rules are no part of this repository: `cargo xtask vm` packs
//! those of the directory in `TOLLGATE_SIGMAHQ`. [`COMMANDS`] has the commands.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::exercise::{self, Exercise};
use crate::daemon::Daemon;
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session, Skipped};

/// The test. It does not use the session's daemon.
pub(crate) const SESSION: Session = Session {
    name: "sigmahq",
    rules: Rules::Text("-a always,exit -F arch=b64 -S acct -F uid=1001 -k unused\n"),
    tests: &[("rules_match_real_commands", rules_match_real_commands)],
    ..super::SESSION
};

/// Commands with the name of the Sigma rule that must match; its first lines tell the format.
const COMMANDS: &str = include_str!("sigmahq.txt");
/// What the commands are written with.
const FUNCTIONS: &str = include_str!("sigmahq.sh");

/// The packed rules, each in a file of its name.
const RULES: &str = "/sigmahq";

/// Directory of the commands, their logs and the cases.
const PLACE: &str = "/srv/sigmahq";

/// A rule with its command, or the reason why it has none.
#[derive(Debug, PartialEq, Eq)]
struct RuleCommand {
    name: &'static str,
    command: Result<&'static str, &'static str>,
}

/// Parses [`COMMANDS`].
fn commands(text: &'static str) -> anyhow::Result<Vec<RuleCommand>> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (head, value) = line.split_once(": ").context("a rule without a command")?;
            Ok(match head.strip_prefix("- ") {
                Some(name) => RuleCommand {
                    name,
                    command: Err(value),
                },
                None => RuleCommand {
                    name: head,
                    command: Ok(value),
                },
            })
        })
        .collect()
}

/// Executes the commands, prints which rules match, and fails if one does not that has a command.
fn rules_match_real_commands(_daemon: &Daemon) -> anyhow::Result<()> {
    if !Path::new(RULES).is_dir() {
        return Err(Skipped("no rules of SigmaHQ: TOLLGATE_SIGMAHQ was not set").into());
    }
    exercise::prepare()?;
    exercise::stand_in(Path::new("/usr/bin/nothing"))?;
    // Calls that no program of the machine makes: socket(AF_ALG, SOCK_SEQPACKET, 0), and mknod itself.
    for (name, number, args) in [
        ("open_af_alg", 41, args![38, 5, 0]),
        ("make_node", 133, args!["node", 0o10644, 0]),
    ] {
        let program = Program::new(Entry::Syscall)
            .call(number, args)
            .call(60, args![0]);
        let written = program.write(&Path::new(exercise::PROGRAMS).join(name));
        written.with_context(|| format!("cannot write {name}"))?;
    }
    let rules = commands(COMMANDS)?;
    let mut exercises = Vec::new();
    for rule in &rules {
        if let Ok(command) = rule.command {
            exercises.push(Exercise {
                name: rule.name,
                rule: id(rule.name)?,
                // The result of a command tells nothing: many lack the network.
                script: format!("{FUNCTIONS}set +e\n{{ {command}\n}} </dev/null\ntrue\n"),
            });
        }
    }
    let silent = exercise::silent(PLACE, RULES, &exercises)?;
    for RuleCommand { name, command } in &rules {
        let reason = silent.iter().find(|(silent, _)| silent == name);
        match (command, reason) {
            (Err(reason), _) => println!("vm: note cannot   {name}: {reason}"),
            (_, Some((_, reason))) => println!("vm: note DOES NOT {name}: {reason}"),
            (Ok(command), None) => println!("vm: note matches  {name}: {command}"),
        }
    }
    println!(
        "vm: note {} of {} rules match a real command",
        exercises.len() - silent.len(),
        rules.len()
    );
    ensure!(silent.is_empty(), "{} rules do not match", silent.len());
    Ok(())
}

/// The id in the file of a rule.
fn id(name: &str) -> anyhow::Result<String> {
    let path = format!("{RULES}/{name}.yml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let id = text.lines().find_map(|line| line.strip_prefix("id: "));
    Ok(id
        .with_context(|| format!("{path} has no id"))?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nearly_all_rules_have_a_command() {
        let commands = commands(COMMANDS).unwrap();
        let names: BTreeSet<&str> = commands.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), commands.len());
        let without = commands.iter().filter(|rule| rule.command.is_err());
        assert_eq!((commands.len(), without.count()), (221, 5));
    }

    #[test]
    fn mistakes_in_the_table_are_found() {
        assert!(commands("rule").is_err());
        let expected = [
            RuleCommand {
                name: "a",
                command: Ok("id: x"),
            },
            RuleCommand {
                name: "b",
                command: Err("why"),
            },
        ];
        assert_eq!(commands("# x\na: id: x\n\n- b: why\n").unwrap(), expected);
    }
}
