//! Metrics of a run: those of `tollgate collect status`.

use metrics::{MetricOf, MetricsText, labels, number, seconds};

use super::completeness::Completeness;
use super::progress::{HostProgress, NetworkProgress, Progress};

/// The metrics of a status.
///
/// # Errors
/// The status is damaged.
pub(super) fn text(status: &str) -> anyhow::Result<String> {
    let progress = Progress::parse(status)?;
    let mut text = MetricsText::new("tollgate_collect");
    add_run(&mut text, &progress);
    add_networks(&mut text, &progress.networks);
    add_hosts(&mut text, &progress.hosts);
    Ok(text.into_text())
}

fn add_run(text: &mut MetricsText, progress: &Progress) {
    let info = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
    text.put("info", "gauge", "Version.", &vec![(info, 1.0)]);
    let started = vec![(String::new(), seconds(progress.started_ms))];
    let help = "When the run began, since the epoch.";
    text.put("start_time_seconds", "gauge", help, &started);
    let connections = u64::try_from(progress.connections).unwrap_or(u64::MAX);
    text.gauge("connections", "Connections.", connections);
    let refused = progress.refused;
    let refused = [
        ("unknown peer", refused.unknown),
        ("unprivileged port", refused.port),
        ("too many connections", refused.limit),
        ("another protocol", refused.protocol),
        ("no TLS or certificate of a host", refused.tls),
    ];
    let refused = refused.map(|(reason, count)| (labels(&[("reason", reason)]), number(count)));
    let help = "Connections that were refused.";
    text.put("refused_total", "counter", help, &refused.into());
    let help =
        "1 while acknowledged records may not be on the disk, because a log cannot be synced.";
    text.gauge("sync_failing", help, progress.sync_error.is_some().into());
    let help = "1 while changed certificates of the listener cannot be used.";
    text.gauge("tls_failing", help, progress.tls_error.is_some().into());
}

fn add_networks(text: &mut MetricsText, networks: &[NetworkProgress]) {
    let metrics: [MetricOf<NetworkProgress>; 3] = [
        (
            "network_hosts",
            "gauge",
            "Hosts of a network that have logs.",
            |it| u64::try_from(it.hosts).ok().map(number),
        ),
        (
            "network_max_hosts",
            "gauge",
            "Most hosts of a network.",
            |it| u64::try_from(it.max_hosts).ok().map(number),
        ),
        (
            "network_refused_lines_total",
            "counter",
            "Lines that were refused with their hosts, or before their peers have written a log.",
            |it| Some(number(it.refused)),
        ),
    ];
    text.each("network", networks, |it| &it.name, &metrics);
}

fn add_hosts(text: &mut MetricsText, hosts: &[HostProgress]) {
    let metrics: [MetricOf<HostProgress>; 13] = [
        (
            "host_connections",
            "gauge",
            "Connections of a host.",
            |it| u64::try_from(it.connections).ok().map(number),
        ),
        (
            "host_failing",
            "gauge",
            "1 while the log of a host cannot be written.",
            |it| Some(number(it.error.is_some().into())),
        ),
        (
            "host_received_seconds",
            "gauge",
            "When the last record of a host came, since the epoch.",
            |it| (it.received_ms > 0).then(|| seconds(it.received_ms)),
        ),
        (
            "host_heard_seconds",
            "gauge",
            "When a record, gap or heartbeat of a host came last, since the epoch; kept over restarts of the listener.",
            |it| (it.heard_ms > 0).then(|| seconds(it.heard_ms)),
        ),
        (
            "host_record_seconds",
            "gauge",
            "Time of the last record of a host, since the epoch.",
            |it| it.last.map(|last| seconds(last.time_ms)),
        ),
        (
            "host_records_total",
            "counter",
            "Records of a host that were written to its log.",
            |it| Some(number(it.records)),
        ),
        (
            "host_bytes_total",
            "counter",
            "Bytes of a host that were written to its log.",
            |it| Some(number(it.bytes)),
        ),
        (
            "host_repeated_records_total",
            "counter",
            "Records that came again, and are in the log once.",
            |it| Some(number(it.repeated)),
        ),
        (
            "host_limited_searches_total",
            "counter",
            "Searches for records that came again that were cut short, so that some may be in the log twice.",
            |it| Some(number(it.limited_searches)),
        ),
        (
            "host_refused_lines_total",
            "counter",
            "Lines of a host that were refused.",
            |it| Some(number(it.refused)),
        ),
        (
            "host_gaps_total",
            "counter",
            "Jumps of serials that the shipper of a host has not told. None is known of a host without tollgate, or while a \
             filter of its shipper leaves out events.",
            |it| complete(it).map(|known| number(known.gaps.count)),
        ),
        (
            "host_missing_serials_total",
            "counter",
            "Serials that are missing in these jumps.",
            |it| complete(it).map(|known| number(known.gaps.missing)),
        ),
        (
            "host_log_missing_serials_total",
            "counter",
            "Serials that are missing in the log of a host, as its shipper tells.",
            |it| {
                let told = it.completeness.as_ref()?.heartbeat.as_ref();
                told.map(|told| number(told.missing))
            },
        ),
    ];
    text.each("host", hosts, |it| &it.name, &metrics);
    let lost = hosts.iter().filter_map(|it| {
        let told = it.completeness.as_ref()?.heartbeat.as_ref()?;
        Some((&*it.name, &told.lost))
    });
    let help = "Losses that the log of a host tells.";
    text.counters_of("host_log_losses_total", help, ["host", "reason"], lost);
}

/// What is known of the serials of a host.
fn complete(host: &HostProgress) -> Option<&Completeness> {
    let known = host.completeness.as_ref();
    known.filter(|known| !known.is_filtered())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn host(name: &str, completeness: &Value) -> Value {
        json!({
            "name": name, "address": null, "connections": 1, "records": 10, "bytes": 900, "repeated": 2, "limited_searches": 6,
            "refused": 0, "refusal": null, "received_ms": 1_700_000_000_000_u64, "heard_ms": 1_700_000_060_000_u64,
            "last": {"time_ms": 1_700_000_000_000_u64, "serial": 9}, "completeness": completeness, "error": null,
        })
    }

    fn known(sent: u64) -> Value {
        json!({
            "boots": [],
            "gaps": {"count": 2, "missing": 5, "last": null},
            "new_gaps": {"count": 0, "missing": 0, "last": null},
            "heartbeat": {"received_ms": 1, "events": 8, "sent": sent, "gaps": 1, "missing": 4, "lost": {"events: full": 3}},
            "is_filtered": sent < 8,
        })
    }

    #[test]
    fn hosts_have_their_gaps_unless_a_filter_makes_them() {
        let status = json!({
            "version": 1, "started_ms": 1_700_000_000_000_u64, "listen": [], "directory": "/d", "connections": 3,
            "refused": {"unknown": 1, "port": 0, "limit": 0, "protocol": 0, "tls": 0},
            "sync_error": "no", "tls_error": null, "tls_refusal": null,
            "networks": [{"name": "lab", "hosts": 1, "max_hosts": 9, "refused": 0, "refusal": null}],
            "hosts": [host("whole", &known(8)), host("filtered", &known(7)), host("stock", &Value::Null)],
        });
        let text = text(&status.to_string()).unwrap();
        for line in [
            "tollgate_collect_connections 3",
            "tollgate_collect_refused_total{reason=\"unknown peer\"} 1",
            "tollgate_collect_sync_failing 1",
            "tollgate_collect_network_max_hosts{network=\"lab\"} 9",
            "tollgate_collect_host_received_seconds{host=\"stock\"} 1700000000",
            "tollgate_collect_host_heard_seconds{host=\"stock\"} 1700000060",
            "tollgate_collect_host_limited_searches_total{host=\"stock\"} 6",
            "tollgate_collect_host_gaps_total{host=\"whole\"} 2",
            "tollgate_collect_host_missing_serials_total{host=\"whole\"} 5",
            "tollgate_collect_host_log_missing_serials_total{host=\"filtered\"} 4",
            "tollgate_collect_host_log_losses_total{host=\"whole\",reason=\"events: full\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        for absent in ["filtered", "stock"] {
            let series = format!("tollgate_collect_host_gaps_total{{host=\"{absent}\"}}");
            assert!(!text.contains(&series), "{text}");
        }
    }
}
