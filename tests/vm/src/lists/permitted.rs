//! Permitted differences between the events that the kernel's audit and tollgate record:
//! `tests/differential/lists.toml`, which documents the fields.

use serde::Deserialize;
use support::permitted::{Permitted, names};

use super::recorded_call::{CallDifference, Side};

const TABLE: &str = include_str!("../../../differential/lists.toml");

/// One permitted difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermittedCall {
    engines: Option<Vec<String>>,
    calls: Option<Vec<String>>,
    exits: Option<Vec<String>>,
    sides: Option<Vec<Side>>,
    key: Option<String>,
    beside: Option<Vec<String>>,
    rules: Vec<String>,
    /// The reason.
    pub(crate) reason: String,
}

/// The entries for one engine. A run need not use every entry.
///
/// # Errors
/// The file is malformed.
pub(crate) fn for_engine(engine: &str) -> anyhow::Result<Permitted<PermittedCall>> {
    let mut permitted = Permitted::<PermittedCall>::parse("tests/differential/lists.toml", TABLE)?;
    permitted.retain(|entry| names(entry.engines.as_deref(), engine));
    Ok(permitted)
}

impl PermittedCall {
    /// Whether it permits a difference under these rules, in a program with these calls.
    pub(crate) fn permits(
        &self,
        rules: &[String],
        program: &[&str],
        difference: &CallDifference,
    ) -> bool {
        let call = &difference.call;
        let is_in_program = |name: &String| program.contains(&name.as_str());
        names(self.calls.as_deref(), &call.call)
            && self.key.as_ref().is_none_or(|key| *key == difference.key)
            && self
                .sides
                .as_ref()
                .is_none_or(|sides| sides.contains(&difference.side))
            && self
                .exits
                .as_ref()
                .is_none_or(|exits| exits.iter().any(|exit| Some(exit) == call.exit.as_ref()))
            && self
                .beside
                .as_ref()
                .is_none_or(|calls| calls.iter().any(is_in_program))
            && self
                .rules
                .iter()
                .any(|part| rules.iter().any(|line| line.contains(part)))
    }
}
