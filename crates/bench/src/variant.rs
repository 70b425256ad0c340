//! A configuration that a case is measured in.

use std::str::FromStr;

use super::work_dir::CpuAffinity;

/// What audits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditMode {
    /// Nothing.
    Off,
    /// tollgate.
    Tollgate,
    /// The kernel's own audit, with auditd.
    Kernel,
    /// Nothing any more: the kernel's audit was enabled and is disabled.
    KernelDisabled,
}

impl AuditMode {
    /// Those that `--against` names, in the order in which they are shown.
    pub(crate) const SELECTABLE: [Self; 3] = [Self::Off, Self::Tollgate, Self::Kernel];

    /// The word for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tollgate => "tollgate",
            Self::Kernel => "kernel",
            Self::KernelDisabled => "kernel, disabled again",
        }
    }
}

impl FromStr for AuditMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::SELECTABLE
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| "it is none of off, kernel, tollgate".to_owned())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for mode in AuditMode::SELECTABLE {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("kernel, disabled again".parse::<AuditMode>().is_err());
    }
}
