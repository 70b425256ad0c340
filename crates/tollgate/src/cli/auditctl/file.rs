//! Rule files as `auditctl -R` treats them: messages, and what happens after an error.

use std::io;
use std::path::Path;

use audit::rule::Command;
use bstr::BString;

use crate::rule_files::ReadError;

/// What to do after an error in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorPolicy {
    /// Do not read the rest.
    Stop,
    /// Read the rest and succeed: `-i`.
    Ignore,
    /// Read the rest and fail at the end: `-c`.
    Continue,
}

impl ErrorPolicy {
    /// Returns the policy after a command.
    pub(super) fn after(self, command: &Command) -> Self {
        match (self, command) {
            (_, Command::ContinueOnErrors) => Self::Continue,
            (Self::Stop, Command::IgnoreErrors) => Self::Ignore,
            _ => self,
        }
    }
}

/// Returns the message with the line of an error.
pub(super) fn error_line(line: u32, path: &Path) -> BString {
    format!("There was an error in line {line} of {}", path.display()).into()
}

/// Returns the message of `auditctl` about a file that cannot be read.
pub(super) fn read_error(path: &Path, error: &ReadError) -> BString {
    let shown = path.display();
    match error {
        ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("audit rules file {shown} doesn't exist")
        }
        ReadError::Io(error) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            format!("Error opening {shown} ({text})")
        }
        ReadError::NotRegular => format!("Error - {shown} is not a regular file"),
        ReadError::WorldWritable => format!("Error - {shown} is world writable"),
        ReadError::TooLarge => format!("Error - {shown}: {error}"),
    }
    .into()
}
