//! Settings of the log: those of `auditd.conf`, or only a path.

mod locked_settings;

use std::path::PathBuf;

use anyhow::Context as _;
use audit::conf::auditd::{Flush, LogFormat, NameFormat, Settings, SpaceLimit};
use bstr::{BString, ByteSlice as _};
use logs::name_service;
use nix::fcntl::OFlag;

pub(crate) use locked_settings::LockedLogSettings;

use crate::sinks::log_file::log_lock::LogLock;
use crate::sinks::log_file::{LogAccess, ReadOnlyLog};

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// Path of the log.
    pub(crate) path: PathBuf,
    /// Settings of `auditd.conf`. Without them the log has unformatted events only, and grows without limit.
    pub(crate) conf: Option<Box<Settings>>,
    /// Node name of each line.
    pub(super) node: Option<BString>,
    /// Whether the path is that of `--log`, whose directory may have other files.
    pub(super) is_named_by_option: bool,
    /// Whether `-e 2` has locked the log, and its path is not that of an `auditd.conf`, whose group then does not count.
    is_elsewhere: bool,
}

impl LogConfig {
    /// A log that is only written.
    pub(crate) const fn plain(path: PathBuf) -> Self {
        Self {
            path,
            conf: None,
            node: None,
            is_named_by_option: true,
            is_elsewhere: false,
        }
    }

    /// A log with the settings of `auditd.conf`, at `path` if given.
    ///
    /// # Errors
    /// The node name is not available.
    pub(crate) fn configured(conf: Settings, path: Option<PathBuf>) -> anyhow::Result<Self> {
        let node = node(&conf)?;
        Ok(Self {
            is_named_by_option: path.is_some(),
            path: match path {
                Some(path) => path,
                None => conf.log_file.to_path().context("`log_file`")?.to_owned(),
            },
            node,
            is_elsewhere: false,
            conf: Some(Box::new(conf)),
        })
    }

    pub(super) fn format(&self) -> LogFormat {
        self.conf
            .as_ref()
            .map_or(LogFormat::Raw, |conf| conf.log_format)
    }

    /// Whether lines are written unchanged.
    pub(super) fn is_plain(&self) -> bool {
        self.format() == LogFormat::Raw && self.node.is_none()
    }

    /// Whether a log is written at all.
    pub(crate) fn writes(&self) -> bool {
        self.conf.as_ref().is_none_or(|conf| conf.write_logs)
    }

    /// Locks the log, if one is written.
    ///
    /// # Errors
    /// As [`LogLock::take`].
    pub(crate) fn lock(&self) -> anyhow::Result<Option<LogLock>> {
        if self.writes() {
            LogLock::take(&self.path)
        } else {
            Ok(None)
        }
    }

    /// Group that may read the logs, 0 for none; `None` if the configuration does not decide it.
    pub(crate) fn group(&self) -> Option<u32> {
        let conf = self.conf.as_ref().filter(|_| !self.is_elsewhere);
        conf.map(|conf| conf.log_group)
    }

    /// Limits of the free space that have actions.
    pub(super) fn space_limits(&self) -> Vec<SpaceLimit> {
        let conf = self.conf.as_ref();
        conf.map_or_else(Vec::new, |conf| {
            vec![conf.space_left, conf.admin_space_left]
        })
    }

    pub(super) fn access(&self) -> LogAccess {
        let Some(conf) = &self.conf else {
            return LogAccess::PLAIN;
        };
        LogAccess {
            group: self.group(),
            flags: match conf.flush {
                Flush::Data => OFlag::O_DSYNC,
                Flush::Sync => OFlag::O_SYNC,
                Flush::None | Flush::Incremental | Flush::IncrementalAsync => OFlag::empty(),
            },
            closed: ReadOnlyLog::Reopen,
        }
    }
}

fn node(conf: &Settings) -> anyhow::Result<Option<BString>> {
    let hostname = || {
        let name = nix::sys::utsname::uname().context("cannot read the host name")?;
        anyhow::Ok(name.nodename().to_string_lossy().into_owned())
    };
    Ok(match conf.name_format {
        NameFormat::None => None,
        NameFormat::Hostname => Some(hostname()?.into()),
        NameFormat::User => conf.name.clone(),
        NameFormat::Numeric => Some(address(&hostname()?)?.into()),
    })
}

/// First address of the host name.
fn address(name: &str) -> anyhow::Result<String> {
    let first = name_service::address(name).with_context(|| {
        format!("cannot resolve the host name `{name}`; check name_format in auditd.conf")
    })?;
    let first = first.with_context(|| {
        format!("the host name `{name}` has no address; check name_format in auditd.conf")
    })?;
    Ok(first.to_string())
}
