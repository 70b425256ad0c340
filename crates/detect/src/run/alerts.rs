//! Evaluates events and prints alerts.

use std::io::{self, Write as _};

use anyhow::Context as _;
use audit::record::assemble::EventRecords;
use logs::escaped::EscapedJson;

use super::progress::{OutputCounts, Progress, now_ms};
use super::syslog::Syslog;
use super::throttle::Throttle;
use super::{Format, now_secs};
use crate::alert::{Alert, ecs, ocsf, text};
use crate::mapping::Mapping;
use crate::on_alert::OnAlert;
use crate::output::info;
use crate::rule_files::RuleFiles;
use crate::sigma::correlation::{Correlated, EventId};
use crate::sigma::{Level, Match, Rule};
use crate::silence::{Asked, Silences};

/// Evaluates events and prints alerts.
pub(super) struct Alerts {
    pub(super) rules: RuleFiles,
    pub(super) silences: Option<Silences>,
    pub(super) progress: Progress,
    pub(super) mapping: Mapping,
    pub(super) least: Level,
    pub(super) format: Format,
    pub(super) syslog: Option<Syslog>,
    pub(super) on_alert: Option<OnAlert>,
    pub(super) throttle: Throttle,
    /// Time of the last event.
    pub(super) last_secs: u64,
    pub(super) found: Vec<Match>,
    pub(super) correlated: Vec<Correlated>,
    pub(super) show: Vec<Alert>,
}

impl Alerts {
    pub(super) fn take(&mut self, event: &EventRecords) -> anyhow::Result<()> {
        let engine = &*self.rules.engine;
        self.last_secs = event.time().sec;
        self.progress.event(event);
        self.mapping.find(engine, event, &mut self.found);
        let correlations = &mut self.rules.correlations;
        correlations.find(&EventId::of(event), &self.found, &mut self.correlated);
        correlations.warning().into_iter().for_each(info);
        for matched in std::mem::take(&mut self.found) {
            if let Some(rule) = self.rule_of_alerts(matched.rule) {
                let alert = Alert::new(event, rule, matched, &self.mapping);
                self.add(alert);
            }
        }
        for correlated in std::mem::take(&mut self.correlated) {
            if let Some(rule) = self.rule_of_alerts(correlated.rule) {
                let alert = Alert::correlated(event, rule, correlated, &self.mapping);
                self.add(alert);
            }
        }
        self.print()
    }

    /// A rule, if its matches are alerts: its level is printed, and it is not only there for correlation rules.
    fn rule_of_alerts(&self, number: usize) -> Option<&Rule> {
        let rule = self.rules.rule(number)?;
        let is_alert = rule.level >= self.least && !self.rules.correlations.is_silent(number);
        is_alert.then_some(rule)
    }

    /// Counts an alert, and passes it on unless it is silenced.
    fn add(&mut self, alert: Alert) {
        self.progress.matched(&alert.rule);
        let silences = self.silences.as_ref();
        match silences.is_some_and(|silences| silences.apply_to(&alert)) {
            true => self.progress.silenced(&alert.rule),
            false => self.throttle.take(alert, &mut self.show),
        }
    }

    /// Reads the silences again if their file changed or SIGHUP came, and tells which have expired.
    pub(super) fn reread_silences(&mut self, asked: Asked) {
        match self
            .silences
            .as_mut()
            .and_then(|silences| silences.reread(asked))
        {
            Some(Ok(count)) => {
                info(format_args!("{count} silences are read"));
                self.tell_about_silences();
            }
            Some(Err(error)) => info(format_args!("the old silences stay: {error}")),
            None => self.expire_silences(),
        }
    }

    pub(super) fn tell_about_silences(&mut self) {
        let silences = self.silences.iter();
        let unknown = silences.flat_map(|silences| silences.without_rule(&self.rules.rules()));
        unknown.for_each(info);
        let absent = self.silences.iter().filter_map(Silences::absent);
        absent.for_each(info);
        self.expire_silences();
    }

    fn expire_silences(&mut self) {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        let now = jiff::Timestamp::from_millisecond(now).unwrap_or(jiff::Timestamp::MAX);
        if let Some(silences) = &mut self.silences {
            silences.expire(now).into_iter().for_each(info);
            self.progress.silences(silences.active());
        }
    }

    /// Ends windows by the time of this machine: while no events come, or none of them is an alert.
    pub(super) fn expire(&mut self) -> anyhow::Result<()> {
        self.throttle.expire(now_secs(), &mut self.show);
        self.print()
    }

    /// Whether events are read as they come, and not those of an old log.
    pub(super) fn is_live(&self) -> bool {
        const MOST_SECS: u64 = 60;
        now_secs().abs_diff(self.last_secs) <= MOST_SECS
    }

    pub(super) fn summarise(&mut self) -> anyhow::Result<()> {
        self.throttle.summarise(&mut self.show);
        self.print()
    }

    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.throttle.end(&mut self.show);
        let printed = self.print();
        self.syslog.iter_mut().for_each(Syslog::end);
        printed
    }

    /// Tries again to send alerts that the syslog daemon did not take.
    pub(super) fn flush(&mut self) {
        self.syslog.iter_mut().for_each(Syslog::flush);
    }

    /// Notes what correlation rules remember, and what became of alerts.
    pub(super) fn note_counts(&mut self) {
        self.progress.correlations(&self.rules.correlations);
        let syslog = self.syslog.as_ref().map(Syslog::counts);
        let on_alert = self.on_alert.as_mut().map(OnAlert::counts);
        let on_alert = on_alert.unwrap_or_default();
        self.progress.outputs(OutputCounts {
            programs_started: on_alert.started,
            programs_failed: on_alert.failed,
            programs_left_out: on_alert.left_out,
            syslog_sent: syslog.map_or(0, |counts| counts.sent),
            syslog_lost: syslog.map_or(0, |counts| counts.lost),
        });
    }

    fn print(&mut self) -> anyhow::Result<()> {
        if self.show.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        for alert in self.show.drain(..) {
            self.progress.printed(&alert);
            let line = match self.format {
                Format::Text => text::lines(&alert),
                Format::Ocsf => EscapedJson(&ocsf::finding(&alert)).to_string(),
                Format::Ecs => EscapedJson(&ecs::document(&alert)).to_string(),
            };
            writeln!(out, "{line}").context("cannot write an alert")?;
            if let Some(on_alert) = &mut self.on_alert {
                on_alert.send(&alert);
            }
            if let Some(syslog) = &mut self.syslog {
                match self.format {
                    Format::Text => syslog.send(&alert, &text::one_line(&alert)),
                    Format::Ocsf | Format::Ecs => syslog.send(&alert, &line),
                }
            }
        }
        out.flush().context("cannot write an alert")
    }
}
