//! What a run has done, for `tollgate detect status`: the file `status` in the state directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use audit::record::assemble::EventRecords;
use logs::cursor::Cursor;
use serde::{Deserialize, Serialize};

use crate::alert::{Alert, Kind};
use crate::rule_files::RuleFiles;
use crate::sigma::Rule;
use crate::sigma::correlation::Correlations;

/// Version of the file: another one cannot be read.
const VERSION: u32 = 1;

/// What a run has done. Times are in milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    version: u32,
    pub(crate) pid: u32,
    /// When the process began, in the clock ticks of `/proc`: another process has another.
    pub(crate) began_ticks: u64,
    pub(crate) started_ms: u64,
    /// The log.
    pub(crate) log: String,
    pub(crate) cursor: Option<String>,
    /// Time and serial of the last event.
    pub(crate) last_event: Option<(u64, u32)>,
    pub(crate) rules: RuleCounts,
    /// Events that were evaluated.
    pub(crate) events: u64,
    /// Alerts that the rate limit left out.
    pub(crate) left_out: u64,
    /// Silences that apply.
    pub(crate) silences: u64,
    #[serde(default)]
    pub(crate) correlations: CorrelationCounts,
    #[serde(default)]
    pub(crate) outputs: OutputCounts,
    /// By the id of the rule; rules without a match are not in it.
    pub(crate) by_rule: BTreeMap<String, RuleProgress>,
    /// Whether something changed since it was written.
    #[serde(skip)]
    is_new: bool,
}

/// Numbers of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleCounts {
    pub(crate) loaded: u64,
    /// Rules and files that cannot be loaded.
    pub(crate) refused: u64,
    pub(crate) other_log_sources: u64,
}

/// Numbers of correlation rules and of what they remember.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CorrelationCounts {
    pub(crate) rules: u64,
    pub(crate) groups: u64,
    /// Groups that were forgotten before their time.
    pub(crate) forgotten: u64,
    /// Events that came after others of their group that were more than a timespan later.
    pub(crate) late: u64,
}

/// What became of alerts beside being printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OutputCounts {
    pub(crate) syslog_sent: u64,
    /// Alerts that the socket of syslog did not take.
    pub(crate) syslog_lost: u64,
    pub(crate) programs_started: u64,
    /// Programs that could not be started, failed, or took too long.
    pub(crate) programs_failed: u64,
    /// Alerts for which there were too many programs.
    pub(crate) programs_left_out: u64,
}

/// What became of the matches of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleProgress {
    pub(crate) title: String,
    pub(crate) level: String,
    /// Events that it matched.
    pub(crate) events: u64,
    /// Alerts that were printed.
    pub(crate) alerts: u64,
    /// Events that a silence left out.
    pub(crate) silenced: u64,
}

impl Progress {
    /// A run of this process that begins.
    pub(super) fn new(log: &Path, rules: &RuleFiles) -> Self {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let refused = rules.mistakes().count();
        let pid = process::id();
        Self {
            version: VERSION,
            pid,
            began_ticks: began_ticks(pid).unwrap_or(0),
            started_ms: now_ms(),
            log: absolute(log),
            rules: RuleCounts {
                loaded: number(rules.places.len()),
                refused: number(refused),
                other_log_sources: number(rules.problems.len() - refused),
            },
            is_new: true,
            ..Self::default()
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let progress: Self = serde_json::from_str(text)?;
        anyhow::ensure!(
            progress.version == VERSION,
            "it has version {}, and this program reads {VERSION}: use the version of the run",
            progress.version
        );
        Ok(progress)
    }

    /// Counts an event.
    pub(super) fn event(&mut self, event: &EventRecords) {
        let time = event.time();
        let ms = time
            .sec
            .saturating_mul(1000)
            .saturating_add(time.milli.into());
        self.last_event = Some((ms, event.serial().0));
        self.events += 1;
        self.is_new = true;
    }

    /// Counts a match of a rule whose level is printed.
    pub(super) fn matched(&mut self, rule: &Rule) {
        self.rule(rule).events += 1;
    }

    /// Counts an event that a silence left out.
    pub(super) fn silenced(&mut self, rule: &Rule) {
        self.rule(rule).silenced += 1;
    }

    /// Notes the number of silences that apply.
    pub(super) fn silences(&mut self, active: usize) {
        let active = u64::try_from(active).unwrap_or(u64::MAX);
        self.is_new |= self.silences != active;
        self.silences = active;
    }

    /// Notes what correlation rules remember.
    pub(super) fn correlations(&mut self, correlations: &Correlations) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let remembered = correlations.remembered();
        let counts = CorrelationCounts {
            rules: number(correlations.rules().len()),
            groups: number(remembered.groups),
            forgotten: remembered.forgotten,
            late: remembered.late,
        };
        self.is_new |= self.correlations != counts;
        self.correlations = counts;
    }

    /// Notes what became of alerts beside being printed.
    pub(super) fn outputs(&mut self, counts: OutputCounts) {
        self.is_new |= self.outputs != counts;
        self.outputs = counts;
    }

    /// Counts what is printed.
    pub(super) fn printed(&mut self, alert: &Alert) {
        self.is_new = true;
        match alert.kind {
            Kind::New => self.rule(&alert.rule).alerts += 1,
            Kind::Repeated(_) => {}
            Kind::LeftOut(count) => self.left_out += count,
        }
    }

    fn rule(&mut self, rule: &Rule) -> &mut RuleProgress {
        let new = || RuleProgress {
            title: rule.title.clone(),
            level: rule.level.name().to_owned(),
            ..RuleProgress::default()
        };
        self.by_rule.entry(rule.id.clone()).or_insert_with(new)
    }

    /// Text of the file; `None` if nothing changed since the last one.
    pub(super) fn text(&mut self, cursor: Option<Cursor>) -> Option<String> {
        let cursor = cursor.map(|cursor| cursor.to_string());
        self.is_new |= self.cursor != cursor;
        self.cursor = cursor;
        std::mem::take(&mut self.is_new)
            .then(|| serde_json::to_string(self).ok())
            .flatten()
    }

    /// Whether the run still runs.
    pub(crate) fn is_alive(&self) -> bool {
        began_ticks(self.pid).is_some_and(|ticks| ticks == self.began_ticks)
    }
}

/// Name of a log that does not depend on the working directory.
pub(crate) fn absolute(log: &Path) -> String {
    let absolute = std::path::absolute(log);
    absolute
        .as_deref()
        .unwrap_or(log)
        .to_string_lossy()
        .into_owned()
}

/// When a process began, in clock ticks since the boot; `None` if there is none.
///
/// # Source
/// `proc_pid_stat(5)`, field 22; the name of the program before can have blanks and parentheses.
fn began_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sigma::placeholder::Placeholders;

    #[test]
    fn file_is_written_when_something_changed() {
        let rules = RuleFiles::load(&[], &Placeholders::default());
        let mut progress = Progress::new(Path::new("/x/audit.log"), &rules);
        let text = progress.text(None).unwrap();
        let read = Progress::parse(&text).unwrap();
        assert_eq!(
            (read.log.as_str(), read.pid),
            ("/x/audit.log", process::id())
        );
        assert!(read.is_alive());
        assert_eq!(progress.text(None), None);
        let cursor: Cursor = "1:2:3:4:5".parse().unwrap();
        assert!(
            progress
                .text(Some(cursor))
                .unwrap()
                .contains("\"cursor\":\"1:2:3:4:5\"")
        );
        assert_eq!(progress.text(Some(cursor)), None);
        let other = Progress {
            began_ticks: read.began_ticks + 1,
            ..read
        };
        assert!(!other.is_alive());
        let error = Progress::parse(&text.replace("\"version\":1", "\"version\":2")).unwrap_err();
        assert!(error.to_string().starts_with("it has version 2"), "{error}");
        assert!(Progress::parse("{}").is_err());
    }
}
