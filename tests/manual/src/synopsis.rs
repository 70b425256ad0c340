//! SYNOPSIS of a page: every option with its value, alternatives in one pair of brackets.

use clap::{Arg, Command};

use super::escape;

/// Renders SYNOPSIS.
pub(super) fn render(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut text = format!(".SH SYNOPSIS\n.SY \"{}\"\n", escape(name));
    let mut done: Vec<&Arg> = Vec::new();
    for option in command.get_opts().filter(|option| !option.is_hide_set()) {
        append_option(command, option, &mut done, &mut text);
    }
    for flag in flags(command) {
        append_option(command, flag, &mut done, &mut text);
    }
    for positional in command.get_positionals() {
        let name = value(positional);
        text.extend([if positional.is_required_set() {
            format!("{name}\\&\n")
        } else {
            format!("[{name}]\\&\n")
        }]);
    }
    let has_commands = command
        .get_subcommands()
        .any(|command| command.get_name() != "help");
    if has_commands {
        text += "\\fICOMMAND\\fR [\\fIARGUMENT\\fR...]\\&\n";
    }
    text + ".YS\n"
}

/// Flags of the command other than those that every command has.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let shown = command.get_arguments().filter(|flag| {
        !flag.is_hide_set() && !flag.is_positional() && !flag.get_action().takes_values()
    });
    shown.filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version"))
}

/// Appends an option and the options that exclude it.
fn append_option<'a>(
    command: &'a Command,
    option: &'a Arg,
    done: &mut Vec<&'a Arg>,
    text: &mut String,
) {
    if done.contains(&option) {
        return;
    }
    let conflicts = command.get_arguments().filter(|other| {
        let excludes =
            |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
        *other != option
            && !other.is_hide_set()
            && !other.is_positional()
            && (excludes(option, other) || excludes(other, option))
    });
    let group: Vec<&Arg> = std::iter::once(option)
        .chain(conflicts)
        .filter(|option| !done.contains(option))
        .collect();
    let alternatives: Vec<String> = group.iter().map(|option| shown(option)).collect();
    text.extend([format!("[{}]\\&\n", alternatives.join("\\ |\\ "))]);
    done.extend(group);
}

/// An option with its value.
fn shown(option: &Arg) -> String {
    let name = option.get_long().unwrap_or_default();
    let name = format!("\\fB{}\\fR", escape(&format!("--{name}")));
    if !option.get_action().takes_values() {
        return name;
    }
    let is_optional = option
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0);
    if is_optional {
        format!("{name}[=\\fI{}\\fR]", value_names(option))
    } else {
        format!("{name}\\ {}", value(option))
    }
}

/// The value of an option or argument, with dots if it may be repeated.
fn value(argument: &Arg) -> String {
    let dots = if matches!(argument.get_action(), clap::ArgAction::Append) {
        "..."
    } else {
        ""
    };
    format!("\\fI{}\\fR{dots}", value_names(argument))
}

fn value_names(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    names.join(" ")
}
