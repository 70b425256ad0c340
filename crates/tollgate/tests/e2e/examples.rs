//! The files in `examples/`: commands that they name exist, and prices of rules are current.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::daemon::{CommandOutput, program};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn tollgate(words: &[&str]) -> CommandOutput {
    CommandOutput::of(Command::new(program()).args(words))
}

/// The line above each rule is what `tollgate explain` prints about it, and `tollgate check` finds nothing.
pub(crate) fn rules_have_current_prices() {
    let path = format!("{EXAMPLES}/cis.rules");
    let explained = tollgate(&["explain", "--engine", "fentry", "--json", &path]);
    let explained: Value = serde_json::from_str(&explained.stdout).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let rules = explained["rules"].as_array().unwrap();
    let written = lines.iter().filter(|line| line.starts_with("-a "));
    assert_eq!(rules.len(), written.count());
    for rule in rules {
        let line = usize::try_from(rule["line"].as_u64().unwrap()).unwrap();
        let abis = rule["syscalls"].as_object().unwrap().values();
        let syscalls: usize = abis.map(|names| names.as_array().unwrap().len()).sum();
        let plural = if syscalls == 1 { "" } else { "s" };
        let cost = rule["cost"].as_str().unwrap();
        let price = format!("#   {cost}, {syscalls} syscall{plural}");
        assert_eq!(lines[line - 2], price, "above line {line} of {path}");
    }
    let checked = tollgate(&["check", &path]);
    let summary = format!("{} rules, 0 warnings, 0 errors\n", rules.len());
    assert!(checked.stdout.ends_with(&summary), "{checked:?}");
}

/// Each command `tollgate NAME` of an example is known, with its options.
pub(crate) fn commands_exist() {
    let mut commands = BTreeSet::new();
    for entry in fs::read_dir(EXAMPLES).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let found = text.lines().flat_map(commands_of);
        commands.extend(found);
    }
    assert!(commands.len() >= 6, "{commands:?}");
    for words in &commands {
        let subcommands = if words[0] == "config" { 2 } else { 1 };
        let mut command = Command::new(program());
        let help = CommandOutput::of(command.args(&words[..subcommands]).arg("--help"));
        assert_eq!(help.code, Some(0), "{words:?}: {help:?}");
        for option in words.iter().filter(|word| word.starts_with('-')) {
            assert!(help.stdout.contains(option), "{words:?}");
        }
    }
    let directory = Path::new(EXAMPLES).join("../packaging");
    assert!(directory.join("tollgate-alternatives").exists());
}

/// The commands in a line: subcommands and options. A file or a quote ends a command.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let after = line.split("tollgate ").skip(1);
    let commands = after.map(|rest| {
        let words = rest.split([' ', '`', ';']);
        let is_word = |word: &&str| {
            let word = word.trim_start_matches('-');
            !word.is_empty()
                && word
                    .chars()
                    .all(|char| char.is_ascii_lowercase() || char == '-')
        };
        words.take_while(is_word).map(str::to_owned).collect()
    });
    let known = |words: &Vec<String>| {
        const NAMES: [&str; 6] = [
            "augenrules",
            "auditctl",
            "check",
            "config",
            "explain",
            "status",
        ];
        words
            .first()
            .is_some_and(|first| NAMES.contains(&first.as_str()))
    };
    commands.filter(known).collect()
}
