//! A configuration that a case is measured in.

use super::place::Placement;
use super::state::State;

/// Where an auditor puts events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outlet {
    /// A file on disk.
    #[default]
    Log,
    /// A plugin that reads them and does nothing.
    Plugin,
    /// Both.
    Both,
}

impl Outlet {
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
    pub(crate) state: State,
    /// With these rules, in the language of `auditctl`.
    pub(crate) rules: String,
    /// To here.
    pub(crate) outlet: Outlet,
    /// Where its daemon may run.
    pub(crate) daemon: Placement,
}

impl Variant {
    /// A variant that is called as its state is.
    pub(crate) fn plain(state: State, rules: &str) -> Self {
        Self::named(state.name(), state, rules)
    }

    /// A variant with a name of its own.
    pub(crate) fn named(name: &str, state: State, rules: &str) -> Self {
        Self {
            name: name.to_owned(),
            state,
            rules: rules.to_owned(),
            outlet: Outlet::Log,
            daemon: Placement::Free,
        }
    }
}
