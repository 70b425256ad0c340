//! Metrics of a run: those of `tollgate ship status`.

use metrics::{MetricOf, MetricsText, labels, number, seconds};

use super::progress::{ConnectionState, DestinationProgress, Progress};

/// A destination, and how many bytes it is behind the log, if that is known.
type Shown<'a> = (&'a DestinationProgress, Option<u64>);

/// Metrics of each destination.
const fn metrics<'a>() -> [MetricOf<Shown<'a>>; 12] {
    [
        (
            "connected",
            "gauge",
            "1 while the destination takes events.",
            |(it, _)| Some(number((it.state == ConnectionState::Connected).into())),
        ),
        (
            "failures",
            "gauge",
            "Failures since the destination worked.",
            |(it, _)| Some(number(it.failures.into())),
        ),
        (
            "unconfirmed_events",
            "gauge",
            "Events that were sent and are not confirmed.",
            |(it, _)| Some(number(it.unconfirmed)),
        ),
        (
            "behind_bytes",
            "gauge",
            "Bytes of the log that the destination has not confirmed.",
            |(_, behind)| behind.map(number),
        ),
        (
            "position_seconds",
            "gauge",
            "Time of the last event that the destination has confirmed, since the epoch.",
            |(it, _)| {
                let ms = it.position.time.ms;
                (ms > 0).then(|| seconds(ms))
            },
        ),
        (
            "events_read_total",
            "counter",
            "Events of the log up to the position.",
            |(it, _)| Some(number(it.position.counts.events)),
        ),
        (
            "events_sent_total",
            "counter",
            "Events that the filter has accepted, and the destination has confirmed.",
            |(it, _)| Some(number(it.position.counts.sent)),
        ),
        (
            "records_rejected_total",
            "counter",
            "Records that the destination has refused for ever.",
            |(it, _)| Some(number(it.position.counts.rejected)),
        ),
        (
            "records_cut_total",
            "counter",
            "Records that the destination has without their ends.",
            |(it, _)| Some(number(it.position.counts.cut)),
        ),
        (
            "lines_malformed_total",
            "counter",
            "Lines of the log that are no records.",
            |(it, _)| Some(number(it.position.counts.malformed)),
        ),
        (
            "gaps_total",
            "counter",
            "Gaps of serials in the log.",
            |(it, _)| Some(number(it.position.counts.gaps)),
        ),
        (
            "missing_serials_total",
            "counter",
            "Serials that are missing in gaps.",
            |(it, _)| Some(number(it.position.counts.missing)),
        ),
    ]
}

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

    let destinations = progress.destinations.iter();
    let destinations: Vec<Shown<'_>> = destinations
        .map(|it| (it, it.behind(&progress.log).ok()))
        .collect();
    text.each("destination", &destinations, |it| &it.0.name, &metrics());
    let lost = progress.destinations.iter();
    let lost = lost.map(|it| (&*it.name, &it.position.counts.lost));
    let help = "Losses that the log tells.";
    text.counters_of("log_losses_total", help, ["destination", "reason"], lost);
    Ok(text.into_text())
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
