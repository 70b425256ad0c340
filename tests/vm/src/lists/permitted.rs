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
    engine: Option<String>,
    calls: Option<Vec<String>>,
    exits: Option<Vec<String>>,
    sides: Option<Vec<Side>>,
    key: Option<String>,
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
    permitted.retain(|entry| entry.engine.as_deref().is_none_or(|named| named == engine));
    Ok(permitted)
}

impl PermittedCall {
    /// Whether it permits a difference under these rules.
    pub(crate) fn permits(&self, rules: &[String], difference: &CallDifference) -> bool {
        let call = &difference.call;
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
                .rules
                .iter()
                .any(|part| rules.iter().any(|line| line.contains(part)))
    }
}
