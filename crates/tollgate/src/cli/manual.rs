//! Manual pages of section 8, `--help` and completions agree with the options.
//!
//! `make golden` writes the pages: see the crate `manual`.

use clap::{Command, CommandFactory as _, Parser as _};
use clap_complete::Shell;
use manual::Page;

use super::{Cli, completions, described};

/// Returns the visible commands by the names of their pages; a command of commands is replaced by its only one.
fn commands() -> Vec<(String, Command)> {
    let mut whole = described();
    whole.build();
    let visible = whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help");
    visible
        .map(|command| {
            let name = format!("tollgate-{}", command.get_name());
            let mut inner = command.get_subcommands();
            let inner = inner.find(|inner| inner.get_name() != "help");
            (name, inner.unwrap_or(command).clone())
        })
        .collect()
}

#[test]
fn manual_pages_are_fresh() {
    let mut whole = described();
    whole.build();
    let mut pages = vec![Page::new("tollgate", whole)];
    pages.extend(
        commands()
            .into_iter()
            .map(|(name, command)| Page::new(name, command)),
    );
    let errors: Vec<String> = pages.iter().filter_map(|page| page.check().err()).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn hand_written_pages_have_no_warnings() {
    for page in [
        "tollgate-alternatives.8",
        "tollgate-collect.toml.5",
        "tollgate-ship.toml.5",
        "tollgate.toml.5",
    ] {
        assert_eq!(
            manual::lint(&manual::directory().join(page)),
            Ok(()),
            "{page}"
        );
    }
}

#[test]
fn completions_offer_every_option() {
    let text = String::from_utf8(completions::generate(Shell::Bash)).unwrap();
    for (page, command) in commands() {
        // clap_complete lists the words of a command in `opts=` of its case label.
        let name = command.get_bin_name().unwrap();
        let label = format!(
            "{})",
            name.replacen("tollgate ", "tollgate__subcmd__", 1)
                .replace(' ', "__subcmd__")
        );
        let (_, block) = text
            .split_once(&format!("\n        {label}"))
            .unwrap_or_else(|| panic!("no completions at {label}"));
        let offered = block.lines().find(|line| line.contains("opts=")).unwrap();
        for option in manual::options(&command) {
            assert!(offered.contains(&option), "{page}: {option}");
        }
    }
}

#[test]
fn help_shows_every_option_with_one_line() {
    for (page, mut command) in commands() {
        let help = command.render_long_help().to_string();
        for option in manual::options(&command) {
            assert!(help.contains(&option), "{page}: {option}");
        }
        for argument in command.get_arguments() {
            let line = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let length = line.chars().count();
            assert!(
                (1..=96).contains(&length) && !line.ends_with('.'),
                "{page}: `{}` has the help `{line}` ({length} characters)",
                argument.get_id()
            );
        }
    }
}

/// Every example of `--help` and the manual that is a command line of tollgate is parsed.
#[test]
fn examples_are_valid_command_lines() {
    Cli::command().debug_assert();
    let mut count = 0;
    for (page, command) in commands() {
        for line in manual::example_lines(&command) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let own = words
                .split(|word| *word == "|")
                .find(|words| words[0] == "tollgate");
            if let Some(words) = own {
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{page}: {line}: {parsed:?}");
                count += 1;
            }
        }
    }
    assert!(count >= 10, "{count}");
}
