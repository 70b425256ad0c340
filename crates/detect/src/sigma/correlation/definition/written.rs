//! A correlation rule as YAML.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A document. Metadata that is not used is skipped.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) title: String,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) author: Option<String>,
    pub(super) level: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    #[serde(default)]
    pub(super) generate: bool,
    pub(super) correlation: Section,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Section {
    pub(super) r#type: String,
    pub(super) rules: Words,
    #[serde(default)]
    pub(super) group_by: Words,
    /// `timeframe` is its name in some tools.
    #[serde(alias = "timeframe")]
    pub(super) timespan: String,
    pub(super) condition: Option<Bounds>,
    #[serde(default)]
    pub(super) aliases: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) generate: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    pub(super) gt: Option<f64>,
    pub(super) gte: Option<f64>,
    pub(super) lt: Option<f64>,
    pub(super) lte: Option<f64>,
    pub(super) eq: Option<f64>,
    pub(super) neq: Option<f64>,
    #[serde(default)]
    pub(super) field: Words,
}

/// One text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    List(Vec<String>),
}

impl Default for Words {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Words {
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::List(words) => words,
        }
    }
}
