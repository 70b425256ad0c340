//! Rule files as `auditctl -R` treats them: which it reads, and what it does after a mistake.

use std::io;
use std::path::Path;

use audit::rule::Command;
use bstr::BString;

use crate::rule_files::ReadError;

/// What happens to a rule file after a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistakes {
    /// The rest is not read.
    Stop,
    /// The rest is read, and all is well: `-i`.
    Forgiven,
    /// The rest is read, and the status tells: `-c`.
    Remembered,
}

impl Mistakes {
    /// What holds after a command.
    pub(super) fn after(self, command: &Command) -> Self {
        match (self, command) {
            (_, Command::ContinueOnErrors) => Self::Remembered,
            (Self::Stop, Command::IgnoreErrors) => Self::Forgiven,
            _ => self,
        }
    }
}

/// Where a mistake is.
pub(super) fn place(line: u32, path: &Path) -> BString {
    format!("There was an error in line {line} of {}", path.display()).into()
}

/// What `auditctl` says of a file that it does not read.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> BString {
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
