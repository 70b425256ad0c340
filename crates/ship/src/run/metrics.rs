//! Metrics of a run: those of `tollgate ship status`.

use metrics::{MetricsText, Samples, labels, number, seconds};

use super::progress::{ConnectionState, DestinationProgress, Progress};

/// A number of a destination.
type Value = fn(&DestinationProgress) -> u64;

/// The metrics of a status.
///
/// # Errors
/// The status is damaged.
pub(super) fn text(status: &str) -> anyhow::Result<String> {
    let progress = Progress::parse(status)?;
    let mut text = MetricsText::new("tollgate_ship");
    let version = env!("CARGO_PKG_VERSION");
    let info = labels(&[("version", version), ("host", &progress.host)]);
    let help = "Version, and name of this machine in the fleet.";
    text.put("info", "gauge", help, &vec![(info, 1.0)]);
    let started = vec![(String::new(), seconds(progress.started_ms))];
    let help = "When the run began, since the epoch.";
    text.put("start_time_seconds", "gauge", help, &started);

    let gauges: [(&str, &str, Value); 3] = [
        (
            "connected",
            "1 while the destination takes events.",
            |destination| u64::from(destination.state == ConnectionState::Connected),
        ),
        (
            "failures",
            "Failures since the destination worked.",
            |destination| destination.failures.into(),
        ),
        (
            "unconfirmed_events",
            "Events that were sent and are not confirmed.",
            |destination| destination.unconfirmed,
        ),
    ];
    for (name, help, value) in gauges {
        let samples = of_each(&progress, |it| Some(number(value(it))));
        text.put(name, "gauge", help, &samples);
    }
    let samples = of_each(&progress, |it| it.behind(&progress.log).ok().map(number));
    let help = "Bytes of the log that the destination has not confirmed.";
    text.put("behind_bytes", "gauge", help, &samples);
    let samples = of_each(&progress, |it| {
        let ms = it.position.time.ms;
        (ms > 0).then(|| seconds(ms))
    });
    let help = "Time of the last event that the destination has confirmed, since the epoch.";
    text.put("position_seconds", "gauge", help, &samples);

    let counters: [(&str, &str, Value); 7] = [
        (
            "events_read_total",
            "Events of the log up to the position.",
            |it| it.position.counts.events,
        ),
        (
            "events_sent_total",
            "Events that the filter has accepted, and the destination has confirmed.",
            |it| it.position.counts.sent,
        ),
        (
            "records_rejected_total",
            "Records that the destination has refused for ever.",
            |it| it.position.counts.rejected,
        ),
        (
            "records_cut_total",
            "Records that the destination has without their ends.",
            |it| it.position.counts.cut,
        ),
        (
            "lines_malformed_total",
            "Lines of the log that are no records.",
            |it| it.position.counts.malformed,
        ),
        ("gaps_total", "Gaps of serials in the log.", |it| {
            it.position.counts.gaps
        }),
        (
            "missing_serials_total",
            "Serials that are missing in gaps.",
            |it| it.position.counts.missing,
        ),
    ];
    for (name, help, value) in counters {
        let samples = of_each(&progress, |it| Some(number(value(it))));
        text.put(name, "counter", help, &samples);
    }
    let mut lost = Samples::new();
    for destination in &progress.destinations {
        for (reason, count) in &destination.position.counts.lost {
            let labels = labels(&[("destination", &destination.name), ("reason", reason)]);
            lost.push((labels, number(*count)));
        }
    }
    let help = "Losses that the log tells.";
    text.put("log_losses_total", "counter", help, &lost);
    Ok(text.into_text())
}

/// A sample of each destination that has a value.
fn of_each(
    progress: &Progress<DestinationProgress>,
    value: impl Fn(&DestinationProgress) -> Option<f64>,
) -> Samples {
    let sample = |destination: &DestinationProgress| {
        let labels = labels(&[("destination", &destination.name)]);
        value(destination).map(|value| (labels, value))
    };
    progress.destinations.iter().filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_destination_has_its_position_and_losses() {
        let position = |serial: u32, ms: u64| {
            json!({
                "version": 1, "cursor": null, "boot": "b", "time": {"ms": ms},
                "tollgate": {"last": serial, "time": {"ms": ms}},
                "kernel": {"last": null, "time": {"ms": 0}},
                "counts": {
                    "events": 7, "sent": 5, "rejected": 1, "cut": 0, "malformed": 0, "gaps": 1, "missing": 3,
                    "lost": {"events: ring \"full\"": 2},
                },
            })
        };
        let destination = |name: &str, state: &str| {
            json!({
                "name": name, "description": "", "state": state, "error": null, "failures": 4,
                "position": position(0x8000_0009, 1_700_000_000_500), "unconfirmed": 6,
            })
        };
        let status = json!({
            "version": 1, "started_ms": 1_700_000_000_000_u64, "log": "/nonexistent", "host": "web1",
            "destinations": [destination("a", "connected"), destination("b", "waiting")],
        });
        let text = text(&status.to_string()).unwrap();
        for line in [
            "tollgate_ship_start_time_seconds 1700000000",
            "tollgate_ship_connected{destination=\"a\"} 1",
            "tollgate_ship_connected{destination=\"b\"} 0",
            "tollgate_ship_failures{destination=\"b\"} 4",
            "tollgate_ship_unconfirmed_events{destination=\"a\"} 6",
            "tollgate_ship_position_seconds{destination=\"a\"} 1700000000.5",
            "tollgate_ship_events_read_total{destination=\"a\"} 7",
            "tollgate_ship_missing_serials_total{destination=\"b\"} 3",
            "tollgate_ship_log_losses_total{destination=\"a\",reason=\"events: ring \\\"full\\\"\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        // Of a log that is not there nothing is known, and 0 would be good news.
        assert!(!text.contains("tollgate_ship_behind_bytes{"), "{text}");
    }
}
