//! A configuration that a case is measured in.

use super::audit_mode::AuditMode;
use super::work_dir::CpuAffinity;

/// Where an auditor puts events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A file on disk.
    #[default]
    Log,
    /// A plugin that reads them and does nothing.
    Plugin,
    /// Both.
    Both,
}

impl Destination {
    /// Whether there is a log file.
    pub(crate) const fn has_log(self) -> bool {
        matches!(self, Self::Log | Self::Both)
    }

    /// Whether there is a plugin.
    pub(crate) const fn has_plugin(self) -> bool {
        matches!(self, Self::Plugin | Self::Both)
    }
}

/// One of the configurations that are measured in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// How it is called in the report.
    pub(crate) name: String,
    /// What audits.
    pub(crate) mode: AuditMode,
    /// With these rules, in the language of `auditctl`.
    pub(crate) rules: String,
    /// To here.
    pub(crate) destination: Destination,
    /// Where its daemon may run.
    pub(crate) affinity: CpuAffinity,
}

impl Variant {
    /// A variant that is called as its state is.
    pub(crate) fn plain(mode: AuditMode, rules: &str) -> Self {
        Self::named(mode.name(), mode, rules)
    }

    /// A variant with a name of its own.
    pub(crate) fn named(name: &str, mode: AuditMode, rules: &str) -> Self {
        Self {
            name: name.to_owned(),
            mode,
            rules: rules.to_owned(),
            destination: Destination::Log,
            affinity: CpuAffinity::Any,
        }
    }
}
