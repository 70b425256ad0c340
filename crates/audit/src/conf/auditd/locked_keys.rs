//! Settings that `-e 2` locks, as text for [`super::parse`].

use std::fmt::Display;

use bstr::BString;

use super::{Action, MaxLogFileAction, Settings, SpaceLimit};

impl Settings {
    /// The keys that decide whether records are kept, with their values as text.
    #[must_use]
    pub fn locked_keys(&self) -> [(&'static str, BString); 10] {
        let write_logs = if self.write_logs { "yes" } else { "no" };
        let number = |number: &dyn Display| BString::from(number.to_string());
        [
            ("write_logs", write_logs.into()),
            ("num_logs", number(&self.num_logs)),
            ("max_log_file", number(&self.max_log_file)),
            ("max_log_file_action", self.max_log_file_action.text()),
            ("space_left", self.space_left.text()),
            ("space_left_action", self.space_left_action.text()),
            ("admin_space_left", self.admin_space_left.text()),
            (
                "admin_space_left_action",
                self.admin_space_left_action.text(),
            ),
            ("disk_full_action", self.disk_full_action.text()),
            ("disk_error_action", self.disk_error_action.text()),
        ]
    }

    /// Returns these settings with the locked keys of `other`.
    #[must_use]
    pub fn with_locked_keys_of(self, other: Self) -> Self {
        Self {
            write_logs: other.write_logs,
            num_logs: other.num_logs,
            max_log_file: other.max_log_file,
            max_log_file_action: other.max_log_file_action,
            space_left: other.space_left,
            space_left_action: other.space_left_action,
            admin_space_left: other.admin_space_left,
            admin_space_left_action: other.admin_space_left_action,
            disk_full_action: other.disk_full_action,
            disk_error_action: other.disk_error_action,
            ..self
        }
    }
}

impl MaxLogFileAction {
    fn text(&self) -> BString {
        match self {
            Self::Ignore => "ignore".into(),
            Self::Syslog => "syslog".into(),
            Self::Exec(program) => exec(program),
            Self::Suspend => "suspend".into(),
            Self::Rotate => "rotate".into(),
            Self::KeepLogs => "keep_logs".into(),
        }
    }
}

impl Action {
    fn text(&self) -> BString {
        match self {
            Self::Ignore => "ignore".into(),
            Self::Syslog => "syslog".into(),
            Self::Rotate => "rotate".into(),
            Self::Email => "email".into(),
            Self::Exec(program) => exec(program),
            Self::Suspend => "suspend".into(),
            Self::Single => "single".into(),
            Self::Halt => "halt".into(),
        }
    }
}

impl SpaceLimit {
    fn text(self) -> BString {
        match self {
            Self::Mebibytes(space) => space.to_string().into(),
            Self::Percent(space) => format!("{space}%").into(),
        }
    }
}

fn exec(program: &BString) -> BString {
    [b"exec ", program.as_slice()].concat().into()
}
