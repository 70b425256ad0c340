//! Metrics of the daemon; not served unless `tollgate.toml` has an address.
//!
//! The thread of the server sends the request of `tollgate status` to the control socket, so it exposes nothing more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use engine::Truncation;
use metrics::{MetricsAddress, MetricsText, Samples, Server, labels, number};

use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Counts, Request, Run, Status};
use crate::messages::warn;
use crate::pipeline::ring_thread::loss_reasons;

/// The server, and the path of the control socket.
#[derive(Debug)]
pub(crate) struct Metrics {
    server: Server,
    control: PathBuf,
}

impl Metrics {
    /// Listens at `address`, unless another process has it; status requests go to `control`.
    ///
    /// # Errors
    /// As of [`Server::listen`].
    pub(crate) fn listen(address: &MetricsAddress, control: &Path) -> anyhow::Result<Option<Self>> {
        let server = Server::listen(address, |warning| warn(&warning))?;
        Ok(server.map(|server| Self {
            server,
            control: control.to_owned(),
        }))
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(self) -> anyhow::Result<()> {
        let path = self.control;
        let make = move || match Client::connect(&path)?.ask(Request::Status)? {
            Answer::Status(status) => Ok(text(&status)),
            Answer::Refused(refusal) => bail!(refusal.reason),
            _ => bail!(control::INVALID_REPLY),
        };
        self.server.start(make, |error| {
            warn(&format!(
                "metrics are no longer served: {error}; run `systemctl restart tollgate`"
            ));
        })
    }
}

/// All metrics of a daemon.
fn text(status: &Status) -> String {
    let mut text = MetricsText::new("tollgate");
    add_state(&mut text, status);
    add_events(&mut text, status);
    if !status.runs.is_empty() {
        add_runs(&mut text, &status.runs);
    }
    text.into_text()
}

fn add_state(text: &mut MetricsText, status: &Status) {
    let info = labels(&[("version", &status.version), ("engine", &status.engine)]);
    text.put("info", "gauge", "Version and engine.", &vec![(info, 1.0)]);
    text.gauge(
        "uptime_seconds",
        "Time since the daemon started.",
        status.uptime_seconds,
    );
    let enabled = u64::from(status.settings.enabled);
    text.gauge(
        "enabled",
        "0 records nothing, 1 records, 2 is locked.",
        enabled,
    );
    text.gauge("rules", "Loaded rules.", status.rules);
    text.gauge("calls", "Syscalls that the rules cover.", status.calls);
    let hooks = u64::try_from(status.hooks.len()).unwrap_or(u64::MAX);
    text.gauge("hooks", "Attached hooks.", hooks);
    let help = "1 while the kernel can skip programs because it preempts itself.";
    text.gauge(
        "programs_skippable",
        help,
        status.skip_risk.is_some().into(),
    );
}

fn add_events(text: &mut MetricsText, status: &Status) {
    let Counts {
        matched,
        delivered,
        written,
        lost,
        incomplete,
        blind_seconds,
    } = &status.counts;
    let help = "Events matched by a rule.";
    text.counter("events_matched_total", help, *matched);
    text.counter(
        "events_delivered_total",
        "Matched events written to the ring.",
        *delivered,
    );
    text.counter(
        "events_written_total",
        "Matched events written to the log.",
        *written,
    );
    let help = "Matched events missing in the log.";
    // Each series exists before its first loss, so that its increase can be computed.
    let lost = with_zeros(loss_reasons(), lost);
    text.counters("events_lost_total", help, "reason", &lost);
    let help = "Events lost because the ring was full, by whose tasks they were.";
    let owners = status.by_owner.iter();
    let owners = owners.map(|owner| (owner.name(), owner.lost)).collect();
    text.counters("owner_events_lost_total", help, "owner", &owners);
    let help = "Events in the log with missing parts.";
    let parts = Truncation::ALL.into_iter().map(Truncation::as_str);
    let incomplete = with_zeros(parts, incomplete);
    text.counters("events_incomplete_total", help, "part", &incomplete);
    if let Some(json) = &status.json {
        let help = "Events written to the JSON log.";
        text.counter("json_events_written_total", help, json.written);
        let help = "Events missing in the JSON log.";
        text.counter("json_events_left_out_total", help, json.left_out);
    }
    let help = "Events not delivered to a plugin.";
    text.counters("plugin_events_lost_total", help, "plugin", &status.plugins);
    let help = "1 while older rules or settings are in force because files were refused.";
    text.gauge("files_refused", help, status.refused.is_some().into());
    if let Some(kernel) = &status.kernel_audit {
        let help = "Rules of other programs in the kernel's own audit.";
        text.gauge("kernel_audit_rules", help, kernel.rules);
        let help = "1 while the kernel's own audit slows every syscall.";
        text.gauge(
            "kernel_audit_slows_syscalls",
            help,
            kernel.slows_syscalls.into(),
        );
    }
    let help = "1 while the log is suspended, or writes or syncs fail.";
    text.gauge("log_suspended", help, status.suspended.is_some().into());
    let help = "Events that are not written, and that the log does not report yet.";
    let unwritten = status.suspended.as_ref().map_or(0, |log| log.events);
    text.gauge("log_suspended_events", help, unwritten);
    let help = "Events on their way to the log.";
    text.gauge("backlog_events", help, status.settings.backlog);
    let help = "Time in which the BPF programs may not have run.";
    text.counter("blind_seconds_total", help, *blind_seconds);
}

fn add_runs(text: &mut MetricsText, runs: &[Run]) {
    let by_hook = |value: &dyn Fn(&Run) -> f64| -> Samples {
        runs.iter()
            .map(|run| (labels(&[("hook", &run.hook)]), value(run)))
            .collect()
    };
    let counts = by_hook(&|run| number(run.runs));
    text.put(
        "hook_runs_total",
        "counter",
        "Runs of each BPF program.",
        &counts,
    );
    let seconds = by_hook(&|run| number(run.nanoseconds) / 1e9);
    text.put(
        "hook_seconds_total",
        "counter",
        "Run time of each BPF program.",
        &seconds,
    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{JsonCounts, KernelAuditStatus, LogSuspension};

    /// Prometheus' `increase()` of a series that begins at 1 is 0: the first loss would raise no alert.
    #[test]
    fn losses_have_their_series_before_the_first() {
        let text = text(&Status::default());
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
            include_str!("../../../examples/prometheus-alerts.yml"),
            include_str!("../../../examples/grafana-dashboard.json"),
        );
        let text = text(&full());
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
        let text = text(&full());
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
