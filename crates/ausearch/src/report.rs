//! `tollgate report`: a picture of a log, as one page of HTML.

mod gather;
mod page;
mod timeline;

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use bstr::ByteSlice as _;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::command_line::{OptionSpec, Words};
use crate::config::Config;
use crate::events::{AtEnd, Events};
use crate::input::{self, Found};
use crate::interpret::message;
use crate::local_time::Clock;
use crate::log_file;
use crate::time_range::Bound;
use gather::Gather;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Html,
    Input,
    InputLogs,
    Start,
    End,
    Help,
}

/// Every option.
pub(crate) const OPTIONS: &[OptionSpec<Id>] = &[
    OptionSpec {
        id: Id::Html,
        names: &["--html"],
        value: "file",
        help: "Write the page to this file, and not to the standard output",
    },
    OptionSpec {
        id: Id::Input,
        names: &["-if", "--input", "--log"],
        value: "path",
        help: "Read this file or archive, or the logs and archives in this directory",
    },
    OptionSpec {
        id: Id::InputLogs,
        names: &["--input-logs"],
        value: "",
        help: "Read the logs even if the standard input is a pipe",
    },
    OptionSpec {
        id: Id::Start,
        names: &["-ts", "--start"],
        value: "date time",
        help: "Show events from this time on",
    },
    OptionSpec {
        id: Id::End,
        names: &["-te", "--end"],
        value: "date time",
        help: "Show events until this time",
    },
    OptionSpec {
        id: Id::Help,
        names: &["-h", "--help"],
        value: "",
        help: "Print this help",
    },
];

/// A command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Where the page goes; the standard output if nowhere.
    html: Option<Vec<u8>>,
    input: Option<Vec<u8>>,
    force_logs: bool,
    start: i64,
    end: i64,
}

/// Reads a command line; `None` if it asks for help.
///
/// # Errors
/// The message about a mistake.
pub(crate) fn parse(words: &mut Words, clock: &Clock) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut is_page = false;
    while let Some(word) = words.next() {
        let spec = OPTIONS
            .iter()
            .find(|option| option.names.iter().any(|name| name.as_bytes() == word));
        let Some(spec) = spec else {
            let word = word.to_str_lossy();
            return Err(format!(
                "`{word}` is an unknown option: see `tollgate report --help`\n"
            ));
        };
        match spec.id {
            Id::Html => {
                is_page = true;
                options.html = words.peek().map(<[u8]>::to_vec);
                if options.html.is_some() {
                    words.skip();
                }
            }
            Id::Input => options.input = Some(words.value(&word)?),
            Id::InputLogs => options.force_logs = true,
            Id::Start => options.start = words.time(&word, Bound::Start, clock)?,
            Id::End => options.end = words.time(&word, Bound::End, clock)?,
            Id::Help => return Ok(None),
        }
    }
    if !is_page {
        return Err("`--html` is required; for text reports use `tollgate aureport`\n".to_owned());
    }
    Ok(Some(options))
}

/// Makes the page; returns the exit status.
///
/// # Errors
/// When the output cannot be written.
pub(crate) fn run(
    options: &Options,
    clock: &Clock,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let config = Config::load();
    let mut messages = Vec::new();
    let request = input::Request {
        path: options.input.as_deref(),
        force_logs: options.force_logs,
    };
    let found = match input::find(&request, &config, &mut messages) {
        Ok(found) => found,
        Err(error) => {
            let path = options.input.as_deref().unwrap_or_default().as_bstr();
            writeln!(
                err,
                "tollgate-report: cannot open `{path}`: {error}; correct --input"
            )?;
            return Ok(1);
        }
    };
    let mut events = Events::new(
        config.timeout_seconds,
        options.start,
        options.end,
        AtEnd::All,
    );
    let mut gather = Gather::new();
    let files = match found {
        Found::Stdin => {
            events.read(input::patient_stdin()?, true, &mut gather)?;
            gather.name_source("standard input");
            Vec::new()
        }
        Found::File(file) => vec![file],
        Found::Logs(log) => input::rotated_files(&log, options.start),
    };
    for (index, file) in files.iter().enumerate() {
        let is_last = index + 1 == files.len();
        match log_file::open(file) {
            Ok(opened) => {
                events.read(opened, is_last, &mut gather)?;
                gather.name_source(&file.display().to_string());
            }
            Err(error) => {
                let (file, message) = (file.display(), error.message);
                writeln!(err, "tollgate-report: cannot open {file}: {message}")?;
                if !error.is_compressed {
                    return Ok(1);
                }
                events.has_errors = true;
                if is_last {
                    events.end(&mut gather)?;
                }
            }
        }
    }
    err.write_all(&gather.messages)?;
    let status = u8::from(events.has_errors);
    let page = page::render(&mut gather, clock);
    let Some(path) = &options.html else {
        out.write_all(page.as_bytes())?;
        return Ok(status);
    };
    let path = path.to_path_lossy();
    if let Err(error) = write_private(&path, page.as_bytes()) {
        writeln!(err, "cannot write {}: {}", path.display(), message(&error))?;
        return Ok(1);
    }
    Ok(status)
}

/// Writes a file that is as private as the log, also if it exists: another user may have made it.
///
/// # Errors
/// It cannot be written, or is not a file of this user alone.
fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits())
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() != 1 || about.uid() != geteuid().as_raw() {
        return Err(io::Error::other(
            "it is a link, not a regular file, or has another owner; give another name",
        ));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    file.write_all(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn page_is_written_to_no_file_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("old"), "longer than the page").unwrap();
        fs::set_permissions(path("old"), Permissions::from_mode(0o644)).unwrap();
        write_private(&path("old"), b"page").unwrap();
        assert_eq!(fs::read(path("old")).unwrap(), b"page");
        assert_eq!(fs::metadata(path("old")).unwrap().mode() & 0o777, 0o600);
        fs::hard_link(path("old"), path("linked")).unwrap();
        std::os::unix::fs::symlink("old", path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["old", "linked", "link", "pipe"] {
            write_private(&path(name), b"other").unwrap_err();
        }
        assert_eq!(fs::read(path("old")).unwrap(), b"page");
    }
}
