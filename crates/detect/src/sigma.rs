//! Sigma rules: what a rule is to this program, and the engine that matches events with rules.
//!
//! [`Engine`] is all that the program knows of the engine; [`rsigma::Rsigma`] is the one that it uses. Documents are
//! untrusted: [`document`] bounds what the parser of YAML gets.
//!
//! # Source
//! Sigma specification 2.0.0, "Sigma Rules", "Sigma Modifiers" and "Sigma Taxonomy".

mod anywhere;
mod bucket;
pub(crate) mod budget;
pub mod correlation;
pub mod document;
pub mod fields;
pub mod gate;
pub(crate) mod literals;
mod mistake;
pub mod need;
pub mod placeholder;
mod regex_texts;
pub(crate) mod requirement;
pub mod rsigma;
pub mod search;
mod trie;

use std::fmt;

pub use mistake::Mistake;
pub(crate) use mistake::one_line;

use fields::{Fields, Interest};
use gate::{Gate, SyscallGate};
use need::Need;

/// How much a match matters.
///
/// # Source
/// Sigma specification 2.0.0, attribute `level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Enriches other matches.
    Informational,
    /// Notable, rarely an incident.
    Low,
    /// Worth a look; also a rule without a level.
    Medium,
    /// Worth an alert.
    High,
    /// An incident.
    Critical,
}

impl Level {
    /// All levels, least first.
    pub const ALL: [Self; 5] = [
        Self::Informational,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::Critical,
    ];

    /// Name of the level in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Informational => "informational",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A log source of rules that audit events feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `service: auditd`: a record.
    Record,
    /// `category: process_creation`: a program that was executed.
    Process,
    /// `category: file_event`: a file that was created, or opened to be written.
    File,
    /// `category: network_connection`: a connection to or from a host.
    Network,
}

impl Source {
    /// All log sources.
    pub const ALL: [Self; 4] = [Self::Record, Self::Process, Self::File, Self::Network];

    /// Name of the log source in rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "auditd",
            Self::Process => "process_creation",
            Self::File => "file_event",
            Self::Network => "network_connection",
        }
    }

    /// Fields that events of the log source can have, in their order; `None` if any name can be one.
    #[must_use]
    pub const fn fields(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Record => None,
            Self::Process => Some(&[
                "Image",
                "User",
                "LogonId",
                "ProcessId",
                "CommandLine",
                "CurrentDirectory",
                "ParentProcessId",
                "ParentImage",
                "ParentCommandLine",
            ]),
            Self::File => Some(&["Image", "User", "LogonId", "ProcessId", "TargetFilename"]),
            Self::Network => Some(&[
                "Image",
                "User",
                "LogonId",
                "ProcessId",
                "Initiated",
                "DestinationIp",
                "DestinationPort",
                "SourceIp",
                "SourcePort",
            ]),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of a loaded rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `id` of the rule, or its title if it has none: the name of the rule in alerts.
    pub id: String,
    /// Name by which correlation rules can refer to it.
    pub name: Option<String>,
    /// Title.
    pub title: String,
    /// Author, whom the Detection Rule License wants named.
    pub author: Option<String>,
    /// Level; [`Level::Medium`] if the rule has none.
    pub level: Level,
    /// Tags, such as `attack.t1059.004`.
    pub tags: Vec<String>,
    /// Log source; `None` for a correlation rule.
    pub source: Option<Source>,
    /// Fields of the rule that no event has: tests of them never match. Those of a correlation are empty in groups, and
    /// have no values.
    pub absent_fields: Vec<String>,
}

impl Rule {
    /// Name of the log source, or `correlation`.
    #[must_use]
    pub fn source_name(&self) -> &'static str {
        self.source.map_or("correlation", Source::name)
    }
}

/// Names of fields with their values.
pub type Context = Vec<(String, String)>;

/// A rule that matched an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Number of the rule in [`Engine::rules`].
    pub rule: usize,
    /// Fields whose tests matched, with their values in the event.
    pub fields: Vec<(String, String)>,
    /// For each record or file of the event that matches: the fields that [`Engine::want`] names for the rule, with their
    /// values, those that it has. None if no fields were named.
    pub contexts: Vec<Context>,
}

/// An engine that matches events with Sigma rules.
pub trait Engine: fmt::Debug {
    /// Adds the rule in a YAML document.
    ///
    /// # Errors
    /// The rule cannot be used: [`Mistake`] tells why, and on which line of the document.
    fn add(&mut self, document: &str) -> Result<(), Mistake>;

    /// Adds the filter in a YAML document: the rules that it names and that are added after it match only events that
    /// meet its condition too.
    ///
    /// # Errors
    /// The filter cannot be used.
    fn add_filter(&mut self, document: &str) -> Result<(), Mistake>;

    /// Rules that filters name and that were not added, or have another log source, with the number of the filter.
    fn filter_mistakes(&self) -> Vec<(usize, Mistake)>;

    /// Makes matches of a rule have the values of some fields too.
    fn want(&mut self, rule: usize, fields: Vec<String>);

    /// The rules that were added, in their order.
    fn rules(&self) -> &[Rule];

    /// What events must have so that each of [`Engine::rules`] can match them.
    fn needs(&self) -> &[Need];

    /// Whether a rule of a log source was added.
    fn has_rules(&self, source: Source) -> bool;

    /// Fields that rules for records of a type look at; `None` if no rule can match such a record.
    fn record_fields(&self, kind: &[u8]) -> Option<Interest<'_>>;

    /// Fields that rules of a log source other than [`Source::Record`] look at.
    fn event_fields(&self, source: Source) -> Interest<'_>;

    /// Fields that any rule for records looks at.
    fn shared_fields(&self) -> Interest<'_>;

    /// A number that no other engine has, and that changes when a rule is added: what was learned of its gates is void.
    fn version(&self) -> u64;

    /// First look at records of a type, without the fields of their event's syscall.
    fn record_gate(&self, kind: &[u8]) -> Gate<'_>;

    /// First look at events of a log source other than [`Source::Record`].
    fn event_gate(&self, source: Source) -> Gate<'_>;

    /// First look at the record of a syscall, which is of a type.
    fn syscall_gate(&self, kind: &[u8]) -> SyscallGate<'_>;

    /// Appends the rules of a log source that match an event.
    fn find(&self, source: Source, event: &Fields<'_>, found: &mut Vec<Match>);
}
