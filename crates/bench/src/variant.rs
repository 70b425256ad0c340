//! The configurations that are measured: what audits, with which rules, to where.

use std::str::FromStr;

use super::work_dir::CpuAffinity;

/// What audits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditMode {
    /// No auditing.
    Off,
    /// tollgate.
    Tollgate,
    /// The kernel's own audit with auditd.
    Kernel,
    /// No auditing, after the kernel's audit was enabled once.
    KernelDisabled,
    /// eAudit.
    Eaudit,
}

impl AuditMode {
    /// The modes of `--against`, in display order.
    pub(crate) const SELECTABLE: [Self; 3] = [Self::Off, Self::Tollgate, Self::Kernel];

    /// The name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tollgate => "tollgate",
            Self::Kernel => "kernel",
            Self::KernelDisabled => "kernel, disabled again",
            Self::Eaudit => "eaudit",
        }
    }
}

impl FromStr for AuditMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::SELECTABLE
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| "use off, kernel or tollgate; --eaudit adds eAudit".to_owned())
    }
}

/// Where events are written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A log file.
    #[default]
    Log,
    /// A plugin that reads events and discards them.
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

/// A configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Its name in the report.
    pub(crate) name: String,
    /// What audits.
    pub(crate) mode: AuditMode,
    /// Rules in the syntax of `auditctl`.
    pub(crate) rules: String,
    /// Where events are written to.
    pub(crate) destination: Destination,
    /// CPUs of the daemon.
    pub(crate) affinity: CpuAffinity,
}

impl Variant {
    /// A variant with the name of its mode.
    pub(crate) fn plain(mode: AuditMode, rules: &str) -> Self {
        Self::named(mode.name(), mode, rules)
    }

    /// A variant with another name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_names_round_trip() {
        for mode in AuditMode::SELECTABLE {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("kernel, disabled again".parse::<AuditMode>().is_err());
        assert!("eaudit".parse::<AuditMode>().is_err());
    }
}
