//! A status in Prometheus' text format.
//!
//! # Source
//! Prometheus' text-based exposition format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use engine::Truncation;

use crate::control::protocol::{Counts, Run, Status};
use crate::pipeline::ring_thread::loss_reasons;

/// Encodes all metrics of a daemon.
pub(super) fn of(status: &Status) -> String {
    let mut text = MetricsText::default();
    text.state(status);
    text.events(status);
    if !status.runs.is_empty() {
        text.runs(&status.runs);
    }
    text.0
}

/// Metrics text.
#[derive(Default)]
struct MetricsText(String);

/// Labels and values.
type Samples = Vec<(String, f64)>;

impl MetricsText {
    fn put(&mut self, name: &str, kind: &str, help: &str, samples: &Samples) {
        // Writing to a string cannot fail.
        let _ok = write!(
            self.0,
            "# HELP tollgate_{name} {help}\n# TYPE tollgate_{name} {kind}\n"
        );
        for (labels, value) in samples {
            let _ok = writeln!(self.0, "tollgate_{name}{labels} {value}");
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.put(name, "gauge", help, &vec![(String::new(), number(value))]);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.put(name, "counter", help, &vec![(String::new(), number(value))]);
    }

    fn counters(&mut self, name: &str, help: &str, label: &str, counts: &BTreeMap<String, u64>) {
        let samples = counts
            .iter()
            .map(|(value, count)| (labels(&[(label, value)]), number(*count)))
            .collect();
        self.put(name, "counter", help, &samples);
    }

    fn state(&mut self, status: &Status) {
        let info = labels(&[("version", &status.version), ("engine", &status.engine)]);
        self.put("info", "gauge", "Version and engine.", &vec![(info, 1.0)]);
        self.gauge(
            "uptime_seconds",
            "Time since the daemon started.",
            status.uptime_seconds,
        );
        let enabled = u64::from(status.settings.enabled);
        self.gauge(
            "enabled",
            "0 records nothing, 1 records, 2 is locked.",
            enabled,
        );
        self.gauge("rules", "Loaded rules.", status.rules);
        self.gauge("calls", "Syscalls that the rules cover.", status.calls);
        let hooks = u64::try_from(status.hooks.len()).unwrap_or(u64::MAX);
        self.gauge("hooks", "Attached hooks.", hooks);
        let help = "1 while the kernel can skip programs because it preempts itself.";
        self.gauge(
            "programs_skippable",
            help,
            status.skip_risk.is_some().into(),
        );
    }

    fn events(&mut self, status: &Status) {
        let Counts {
            matched,
            delivered,
            written,
            lost,
            incomplete,
            blind_seconds,
        } = &status.counts;
        let help = "Events matched by a rule.";
        self.counter("events_matched_total", help, *matched);
        self.counter(
            "events_delivered_total",
            "Matched events written to the ring.",
            *delivered,
        );
        self.counter(
            "events_written_total",
            "Matched events written to the log.",
            *written,
        );
        let help = "Matched events missing in the log.";
        // Each series exists before its first loss, so that its increase can be computed.
        let lost = with_zeros(loss_reasons(), lost);
        self.counters("events_lost_total", help, "reason", &lost);
        let help = "Events lost because the ring was full, by whose tasks they were.";
        let owners = status.by_owner.iter();
        let owners = owners.map(|owner| (owner.name(), owner.lost)).collect();
        self.counters("owner_events_lost_total", help, "owner", &owners);
        let help = "Events in the log with missing parts.";
        let parts = Truncation::ALL.into_iter().map(Truncation::as_str);
        let incomplete = with_zeros(parts, incomplete);
        self.counters("events_incomplete_total", help, "part", &incomplete);
        if let Some(json) = &status.json {
            let help = "Events written to the JSON log.";
            self.counter("json_events_written_total", help, json.written);
            let help = "Events missing in the JSON log.";
            self.counter("json_events_left_out_total", help, json.left_out);
        }
        let help = "Events not delivered to a plugin.";
        self.counters("plugin_events_lost_total", help, "plugin", &status.plugins);
        let help = "1 while older rules or settings are in force because files were refused.";
        self.gauge("files_refused", help, status.refused.is_some().into());
        if let Some(kernel) = &status.kernel_audit {
            let help = "Rules of other programs in the kernel's own audit.";
            self.gauge("kernel_audit_rules", help, kernel.rules);
            let help = "1 while the kernel's own audit slows every syscall.";
            self.gauge(
                "kernel_audit_slows_syscalls",
                help,
                kernel.slows_syscalls.into(),
            );
        }
        let help = "1 while the log is suspended, or writes or syncs fail.";
        self.gauge("log_suspended", help, status.suspended.is_some().into());
        let help = "Events that are not written, and that the log does not report yet.";
        let unwritten = status.suspended.as_ref().map_or(0, |log| log.events);
        self.gauge("log_suspended_events", help, unwritten);
        let help = "Events on their way to the log.";
        self.gauge("backlog_events", help, status.settings.backlog);
        let help = "Time in which the BPF programs may not have run.";
        self.counter("blind_seconds_total", help, *blind_seconds);
    }

    fn runs(&mut self, runs: &[Run]) {
        let by_hook = |value: &dyn Fn(&Run) -> f64| -> Samples {
            runs.iter()
                .map(|run| (labels(&[("hook", &run.hook)]), value(run)))
                .collect()
        };
        let counts = by_hook(&|run| number(run.runs));
        self.put(
            "hook_runs_total",
            "counter",
            "Runs of each BPF program.",
            &counts,
        );
        let seconds = by_hook(&|run| number(run.nanoseconds) / 1e9);
        self.put(
            "hook_seconds_total",
            "counter",
            "Run time of each BPF program.",
            &seconds,
        );
    }
}

/// Counts by name, with 0 for those that are missing.
fn with_zeros(
    names: impl Iterator<Item = &'static str>,
    counts: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = names.map(|name| (name.to_owned(), 0)).collect();
    all.extend(counts.clone());
    all
}

/// Prometheus samples are floating-point numbers.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts beyond 2^53 lose their last digits there, too"
)]
const fn number(count: u64) -> f64 {
    count as f64
}

fn labels(labels: &[(&str, &String)]) -> String {
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    format!("{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{JsonCounts, KernelAuditStatus, LogSuspension};

    /// Prometheus' `increase()` of a series that begins at 1 is 0: the first loss would raise no alert.
    #[test]
    fn losses_have_their_series_before_the_first() {
        let text = of(&Status::default());
        for series in [
            "tollgate_events_lost_total{reason=\"ring full\"} 0",
            "tollgate_events_lost_total{reason=\"rate limit\"} 0",
            "tollgate_events_lost_total{reason=\"not written\"} 0",
            "tollgate_events_incomplete_total{part=\"path truncated\"} 0",
        ] {
            assert!(text.lines().any(|line| line == series), "{series}: {text}");
        }
    }

    /// Names of metrics in a text.
    fn metrics(text: &str) -> std::collections::BTreeSet<&str> {
        let is_name = |char: char| char.is_ascii_lowercase() || char == '_';
        let words = text.split(|char| !is_name(char));
        words.filter(|word| word.starts_with("tollgate_")).collect()
    }

    /// The alerts and the dashboard in `examples` use metrics that the daemon has.
    #[test]
    fn examples_use_metrics_that_exist() {
        let (alerts, dashboard) = (
            include_str!("../../../../examples/prometheus-alerts.yml"),
            include_str!("../../../../examples/grafana-dashboard.json"),
        );
        let text = of(&full());
        let known = metrics(&text);
        for (name, example) in [("alerts", alerts), ("dashboard", dashboard)] {
            let used = metrics(example);
            let unknown: Vec<_> = used.difference(&known).collect();
            assert_eq!(unknown, Vec::<&&str>::new(), "{name}");
            assert!(
                used.contains("tollgate_events_lost_total"),
                "{name}: {used:?}"
            );
        }
        let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(parsed["panels"].as_array().unwrap().len() >= 6);
        let count = |word: &str| {
            alerts
                .lines()
                .filter(|line| line.trim_start().starts_with(word))
                .count()
        };
        assert_eq!(count("- alert: "), count("expr: "));
        assert_eq!(count("- alert: "), count("summary: "));
    }

    fn full() -> Status {
        Status {
            version: "0.1.0".into(),
            engine: "fentry".into(),
            skip_risk: Some("preempt=full".into()),
            suspended: Some(LogSuspension {
                events: 9,
                ..LogSuspension::default()
            }),
            kernel_audit: Some(KernelAuditStatus {
                rules: 12,
                slows_syscalls: true,
                ..KernelAuditStatus::default()
            }),
            plugins: [("a.conf".to_owned(), 3)].into(),
            json: Some(JsonCounts::default()),
            counts: Counts {
                matched: 10,
                delivered: 8,
                written: 7,
                lost: [("ring full".to_owned(), 2), ("a\"b\\\n".to_owned(), 1)].into(),
                ..Counts::default()
            },
            runs: vec![Run {
                hook: "sys_exit_tp".into(),
                runs: 3,
                nanoseconds: 1_500_000_000,
            }],
            ..Status::default()
        }
    }

    #[test]
    fn each_metric_is_declared_once_with_its_type() {
        let text = of(&full());
        assert!(text.ends_with('\n'));
        for line in [
            "tollgate_info{version=\"0.1.0\",engine=\"fentry\"} 1",
            "# TYPE tollgate_events_lost_total counter",
            "tollgate_programs_skippable 1",
            "tollgate_files_refused 0",
            "tollgate_kernel_audit_rules 12",
            "tollgate_kernel_audit_slows_syscalls 1",
            "tollgate_log_suspended 1",
            "tollgate_log_suspended_events 9",
            "tollgate_events_lost_total{reason=\"ring full\"} 2",
            "tollgate_events_lost_total{reason=\"a\\\"b\\\\\\n\"} 1",
            "tollgate_events_written_total 7",
            "tollgate_plugin_events_lost_total{plugin=\"a.conf\"} 3",
            "tollgate_hook_runs_total{hook=\"sys_exit_tp\"} 3",
            "tollgate_hook_seconds_total{hook=\"sys_exit_tp\"} 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let mut kinds: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let all = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), all);
        // A sample belongs to the metric declared before it.
        let mut declared = "";
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                declared = kind.split(' ').next().unwrap();
            } else if !line.starts_with('#') {
                assert_eq!(line.split(['{', ' ']).next(), Some(declared), "{line}");
            }
        }
    }
}
