//! A start at which files have errors: the last good rules and settings are used instead, and everybody is told.

use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use bstr::BString;

use super::DaemonConfig;
use crate::control::change_records::Requester;
use crate::control::protocol::AuditSettings;
use crate::control::rule_store::RuleStore;
use crate::daemon::last_good::LastGoodFile;
use crate::daemon::pipeline_handle::PipelineHandle;
use crate::host::Planner;
use crate::messages::{count, info, utc, warn};
use crate::rule_files::{self, CompiledRules, Refused, RuleText};
use crate::sinks::audit_log::LogConfig;

/// What to do after correcting a file.
const ADVICE: &str =
    "correct the file, then run `systemctl reload tollgate` or `tollgate augenrules --load`";
/// Index of the source of last good rules: they are not from a file of this start.
const SOURCE: usize = 0;

/// A file that was refused: why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RefusedFile {
    /// A rule file.
    Rules(String),
    /// tollgate.toml or auditd.conf.
    Configuration(String),
}

impl RefusedFile {
    fn reason(&self) -> &str {
        let (Self::Rules(reason) | Self::Configuration(reason)) = self;
        reason
    }
}

/// The files of a start.
pub(super) struct StartFiles {
    /// Rule files, as they were read.
    pub(super) rules: Vec<RuleText>,
    pub(super) refused: Vec<RefusedFile>,
    /// Where the rules and settings of a successful start are kept.
    pub(super) last_good: Option<LastGoodFile>,
}

impl StartFiles {
    /// Those of these settings.
    pub(super) fn of(settings: &DaemonConfig) -> Self {
        Self {
            rules: settings.texts.clone(),
            refused: settings.refused.clone(),
            last_good: settings.last_good.clone(),
        }
    }

    /// The pipeline could not start: the next start uses the last good rules, if it was because of these.
    pub(super) fn mark_failed(&self, store: &RuleStore, error: &anyhow::Error) {
        if let Some(file) = &self.last_good
            && self.refused.is_empty()
        {
            file.mark_failed(store, error);
        }
    }

    /// Completes the start once the rules are in force: they become the last good ones, or the refusal is recorded.
    pub(super) fn report(&self, store: &mut RuleStore, pipeline_handle: &mut PipelineHandle) {
        let file = self.last_good.as_ref();
        if self.refused.is_empty() {
            // Without rule files, the rules arrive over the control socket.
            if let Some(file) = file
                && !self.rules.is_empty()
            {
                file.save(&self.rules, store.stored_settings(), store);
            }
            return;
        }
        let are_rules = |file: &RefusedFile| matches!(file, RefusedFile::Rules(_));
        if self.refused.iter().any(are_rules) {
            store.record_failed_load(&Requester::this(), pipeline_handle);
        }
        let reasons: Vec<&str> = self.refused.iter().map(RefusedFile::reason).collect();
        let good = file.and_then(LastGoodFile::read);
        store.set_refused_files(reasons.join("; "), good.map(|good| good.loaded));
    }
}

/// The last good rules.
pub(super) struct LastGoodRules {
    pub(super) rules: RuleList,
    pub(super) settings: AuditSettings,
    pub(super) deny: Vec<BString>,
}

/// Returns the last good rules instead of rule files that were refused. `None` if there are none, which is reported.
///
/// # Errors
/// They are not rules that this version accepts.
pub(super) fn rules(
    settings: &mut DaemonConfig,
    reason: String,
) -> anyhow::Result<Option<LastGoodRules>> {
    let Some(file) = &settings.last_good else {
        return Ok(None);
    };
    let Some(good) = file.read() else {
        warn(&format!(
            "{}: there are no last good rules to start with",
            rule_files::NOTHING_ATTACHED
        ));
        return Ok(None);
    };
    warn(&format!(
        "starting with the last good rules: {}, loaded from files at {}; {ADVICE}",
        count(good.rule_count(), "rule"),
        utc(good.loaded)
    ));
    for path in good.files() {
        info(&format!(
            "`diff {} {}` shows what has changed since",
            file.text_path(&path).display(),
            path.display()
        ));
    }
    if good.locks() {
        info("`-e 2` of the last good rules is not applied, so that corrected rules can be loaded");
    }
    settings.refused.push(RefusedFile::Rules(reason));
    Ok(Some(LastGoodRules {
        rules: good.rule_list(SOURCE)?,
        settings: good.settings(),
        deny: good.deny(),
    }))
}

/// Refuses rules without errors with which the daemon could not start before.
///
/// # Errors
/// Why it could not start.
pub(super) fn refuse_failed(
    compiled: CompiledRules,
    planner: &Planner,
    settings: &DaemonConfig,
) -> Result<CompiledRules, Refused> {
    let file = settings.last_good.as_ref();
    match file.and_then(|file| file.failure(&compiled.rules, planner.denies())) {
        None => Ok(compiled),
        Some(reason) => {
            warn(&format!("the rule files are refused: {reason}"));
            Err(Refused(reason))
        }
    }
}

/// Reports last good rules that this kernel or this version does not support: they are not in force.
pub(super) fn report_unsupported(plan: &Plan) {
    for rule in &plan.unsupported {
        warn(&format!("last good rule {}: {}", rule.line, rule.reason));
    }
}

/// Reads the settings of the log: those of `auditd.conf`, or the last good ones if it has errors. `None` if there are
/// none, which has been reported.
///
/// # Errors
/// `auditd.conf` cannot be read, and there are no last good settings.
pub(super) fn log_config(settings: &mut DaemonConfig) -> anyhow::Result<Option<LogConfig>> {
    let refused = match settings.log.log_config() {
        Ok(Ok(log_config)) => return Ok(Some(log_config)),
        Ok(Err(Refused(reason))) => Ok(reason),
        Err(error) => Err(error),
    };
    let good = settings.last_good.as_ref().and_then(LastGoodFile::read);
    let text = good.and_then(|good| good.auditd_conf());
    let Some(log_config) = text.and_then(|text| settings.log.parse(&text)) else {
        return refused.map(|_reported| None);
    };
    let reason = refused.unwrap_or_else(|error| format!("{error:#}"));
    warn(&format!(
        "starting with the last good auditd.conf: {reason}; {ADVICE}"
    ));
    settings.refused.push(RefusedFile::Configuration(reason));
    Ok(Some(log_config))
}

/// Status text for the service manager.
pub(in crate::daemon) fn status_text(status: &str, store: &RuleStore) -> String {
    match store.refused_files() {
        None => status.to_owned(),
        Some(refused) => format!(
            "{status}; FILES REFUSED, older rules or settings are in force: {}",
            refused.reason
        ),
    }
}
