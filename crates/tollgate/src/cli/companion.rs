//! Companions: `tollgate NAME` executes the program `tollgate-NAME` beside this one, as git and cargo do.
//!
//! Only the directory of the running executable is searched, never `PATH` or the working directory, because
//! root runs this program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use anyhow::Context as _;
use clap::error::ErrorKind;

/// Prefix of the file names of companions.
const PREFIX: &str = "tollgate-";

/// Programs with this prefix that are not companions.
const NOT_COMPANIONS: [&str; 1] = ["alternatives"];

/// Returns the names of the installed companions, sorted; none if the directory cannot be read.
pub(super) fn installed() -> Vec<String> {
    directory().map_or_else(|_| Vec::new(), |directory| in_directory(&directory))
}

/// Replaces this process with the companion that the first word names; the other words are its arguments.
///
/// # Errors
/// When the companion cannot be executed. An unknown name is a usage error, which is printed.
pub(super) fn execute(words: &[OsString], mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let Some((name, arguments)) = words.split_first() else {
        return Ok(ExitCode::FAILURE);
    };
    let directory = directory().context("cannot find the directory of this program")?;
    let Some(program) = find(&directory, name) else {
        let error = command.error(
            ErrorKind::InvalidSubcommand,
            unknown(&name.to_string_lossy(), &command, &directory),
        );
        error.print()?;
        return Ok(ExitCode::from(2));
    };
    let error = process::Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot execute `{}`", program.display()))
}

/// Returns the directory of the running executable, with links resolved.
fn directory() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    Ok(program.parent().map(Path::to_owned).unwrap_or_default())
}

/// Finds the executable of the companion `name` in a directory.
fn find(directory: &Path, name: &OsStr) -> Option<PathBuf> {
    let name = name.to_str().filter(|name| is_name(name))?;
    let program = directory.join(format!("{PREFIX}{name}"));
    is_executable(&program).then_some(program)
}

fn in_directory(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let file_name = entry.ok()?.file_name();
            let name = file_name.to_str()?.strip_prefix(PREFIX)?.to_owned();
            find(directory, OsStr::new(&name)).map(|_| name)
        })
        .collect();
    names.sort();
    names
}

/// Whether a name consists of lower-case letters, digits and hyphens: not an option, a path or a build artifact.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(is_allowed)
        && !NOT_COMPANIONS.contains(&name)
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Returns the message about a name that is neither a command nor a companion.
fn unknown(name: &str, command: &clap::Command, directory: &Path) -> String {
    let commands: Vec<&str> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    let installed = in_directory(directory);
    let companions = match installed.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let known = commands.iter().copied();
    let known = known.chain(installed.iter().map(String::as_str));
    let suggestion = match audit::spelling::nearest(name.as_bytes(), known) {
        Some(nearest) => format!(": did you mean `{nearest}`?"),
        None => String::new(),
    };
    format!(
        "`{name}` is neither a command nor an installed companion{suggestion}\n\n  commands: {}\n  companions in `{}`: \
         {companions}",
        commands.join(", "),
        directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with one companion and other files.
    fn example() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, mode) in [
            ("tollgate", 0o755),
            ("tollgate-bench", 0o755),
            ("tollgate-alternatives", 0o755),
            ("tollgate-data", 0o644),
            ("tollgate-bench.d", 0o755),
            ("tollgate-", 0o755),
            ("other-search", 0o755),
        ] {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(directory.path().join("tollgate-directory")).unwrap();
        directory
    }

    #[test]
    fn executables_beside_the_program_are_companions() {
        let directory = example();
        assert_eq!(in_directory(directory.path()), ["bench"]);
        assert_eq!(
            find(directory.path(), OsStr::new("bench")),
            Some(directory.path().join("tollgate-bench"))
        );
    }

    #[test]
    fn other_names_are_not_executed() {
        let directory = example();
        for name in [
            "data",
            "directory",
            "names",
            "",
            "-bench",
            "../tollgate-bench",
            "Bench",
            "gone",
        ] {
            assert_eq!(find(directory.path(), OsStr::new(name)), None, "{name}");
        }
    }

    #[test]
    fn unknown_name_lists_installed_companions() {
        let directory = example();
        let command = clap::Command::new("tollgate").subcommand(clap::Command::new("check"));
        let message = unknown("chekc", &command, directory.path());
        assert!(message.contains("`chekc`"), "{message}");
        assert!(message.contains("did you mean `check`?"), "{message}");
        assert!(message.contains("commands: check\n"), "{message}");
        assert!(message.ends_with(": bench"), "{message}");
    }
}
