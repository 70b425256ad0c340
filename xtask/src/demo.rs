//! `cargo xtask demo`: runs `tollgate run` on a small command and writes the terminal picture of the README.
//!
//! The picture is the output of the release build in a real session, with its colours, as SVG.

use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anstyle_svg::Term;

use crate::Outcome;
use crate::repository::Repository;

/// Path of the picture.
const PICTURE: &str = "docs/demo.svg";

/// The command line of the session.
const TYPED: &str =
    "tollgate run --print --interpret -- sh -c 'cp /etc/passwd x; mv x y; cat /etc/shadow; rm y'";

/// The audited shell command: the last argument of [`TYPED`].
const AUDITED: &str = "cp /etc/passwd x; mv x y; cat /etc/shadow; rm y";

/// User and group `nobody`: the demo shows what works without root.
const NOBODY: u32 = 65534;

/// Runs the session with the named program, or with a release build, and writes the picture.
///
/// # Errors
/// If the build or the session fails, or the picture cannot be written.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let program = match arguments {
        [program] => Path::new(program).canonicalize()?,
        [] => {
            if !crate::vm::build(repository)? {
                return Ok(ExitCode::FAILURE);
            }
            repository.target().join("release/tollgate")
        }
        _ => return Err("expected at most one argument: the program to show".into()),
    };
    let output = session(&program)?;
    let terminal = format!("\x1b[32m$\x1b[0m \x1b[1m{TYPED}\x1b[0m\n{output}");
    let path = repository.root.join(PICTURE);
    let picture = Term::new().render_svg(&terminal);
    if fs::read_to_string(&path).is_ok_and(|old| masked(&old) == masked(&picture)) {
        println!("{PICTURE}: unchanged except for times, process IDs and the order of lines");
        return Ok(ExitCode::SUCCESS);
    }
    fs::write(&path, picture)?;
    println!("{PICTURE}: {} lines", terminal.lines().count());
    Ok(ExitCode::SUCCESS)
}

/// The sorted lines of a picture without times of day (`09:16:28.750Z`), process IDs (`[24612]`) and vertical
/// positions. The order of lines varies: a command and tollgate write to one terminal.
fn masked(picture: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = picture;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit() || c == '[') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let is_masked = |c: char| c.is_ascii_digit() || "[]:.Z".contains(c);
        let token = from.find(|c| !is_masked(c)).unwrap_or(from.len());
        let (token, after) = from.split_at(token);
        let is_time = token.len() == 13 && token.ends_with('Z');
        let is_process = token.starts_with('[') && token.ends_with(']');
        let is_position = before.ends_with(" y=\"");
        let is_variable = is_time || is_process || is_position;
        text.push_str(if is_variable { "_" } else { token });
        rest = after;
    }
    text.push_str(rest);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Standard error and output of the session, in the order in which a terminal shows them.
fn session(program: &Path) -> Result<String, Box<dyn Error>> {
    let directory = std::env::temp_dir().join("tollgate-demo");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir(&directory)?;
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec \"$0\" run --print --interpret -- sh -c \"$1\" 2>&1",
        ])
        .arg(program)
        .arg(AUDITED)
        .current_dir(&directory)
        // Cargo's LD_LIBRARY_PATH would show as failed opens.
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("CLICOLOR_FORCE", "1")
        .stdin(Stdio::null());
    if fs::metadata("/proc/self")?.uid() == 0 {
        std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY))?;
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output()?;
    fs::remove_dir_all(&directory)?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() || !text.contains("unlinkat") {
        return Err(format!("the session failed with {}:\n{text}", output.status).into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_process_ids_and_positions_are_masked() {
        let old = masked("09:18:41.114Z sh[31] lost 0");
        assert_eq!(old, masked("10:01:02.001Z sh[4567] lost 0"));
        assert_ne!(old, masked("09:18:41.114Z cp[31] lost 0"));
        assert_ne!(old, masked("09:18:41.114Z sh[31] lost 7"));
        let one = "<tspan x=\"10px\" y=\"28px\">a\n<tspan x=\"10px\" y=\"46px\">b";
        let other = "<tspan x=\"10px\" y=\"28px\">b\n<tspan x=\"10px\" y=\"46px\">a";
        assert_eq!(masked(one), masked(other));
        assert_ne!(masked(one), masked("<tspan x=\"10px\" y=\"28px\">a"));
    }

    #[test]
    fn picture_shows_this_session() {
        assert!(TYPED.ends_with(&format!("'{AUDITED}'")));
        let picture = include_str!("../../docs/demo.svg");
        for word in ["tollgate", "run", "renameat2", "EACCES", "lost 0"] {
            assert!(picture.contains(word), "{PICTURE} lacks {word}");
        }
    }
}
