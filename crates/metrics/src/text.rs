//! Prometheus' text format.
//!
//! # Source
//! Prometheus' text-based exposition format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Metrics whose names begin with the same words.
#[derive(Clone, Debug)]
pub struct MetricsText {
    prefix: &'static str,
    text: String,
}

/// Labels, as of [`labels`], and values.
pub type Samples = Vec<(String, f64)>;

/// Name, kind and help of a metric that each of some things has, such as hosts, and its value; `None` if it is not known.
pub type MetricOf<T> = (
    &'static str,
    &'static str,
    &'static str,
    fn(&T) -> Option<f64>,
);

impl MetricsText {
    /// No metrics; the names of all begin with `prefix`.
    #[must_use]
    pub const fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            text: String::new(),
        }
    }

    /// Adds a metric of a kind, `gauge` or `counter`.
    pub fn put(&mut self, name: &str, kind: &str, help: &str, samples: &Samples) {
        let prefix = self.prefix;
        // Writing to a string cannot fail.
        let _written = write!(
            self.text,
            "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}\n"
        );
        for (labels, value) in samples {
            let _written = writeln!(self.text, "{prefix}_{name}{labels} {value}");
        }
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.put(name, "gauge", help, &vec![(String::new(), number(value))]);
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.put(name, "counter", help, &vec![(String::new(), number(value))]);
    }

    /// Adds a counter for each value of a label.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: &BTreeMap<String, u64>,
    ) {
        let samples = counts
            .iter()
            .map(|(value, count)| (labels(&[(label, value)]), number(*count)))
            .collect();
        self.put(name, "counter", help, &samples);
    }

    /// Adds metrics of things that have names, which are the values of a label. What is not known has no sample.
    pub fn each<T>(
        &mut self,
        label: &str,
        things: &[T],
        name_of: impl Fn(&T) -> &str,
        metrics: &[MetricOf<T>],
    ) {
        for (name, kind, help, value) in metrics {
            let sample = |thing: &T| {
                let labels = labels(&[(label, name_of(thing))]);
                value(thing).map(|value| (labels, value))
            };
            self.put(
                name,
                kind,
                help,
                &things.iter().filter_map(sample).collect(),
            );
        }
    }

    /// Adds a counter for each pair of the values of two labels.
    pub fn counters_of<'a>(
        &mut self,
        name: &str,
        help: &str,
        [first, second]: [&str; 2],
        counts: impl Iterator<Item = (&'a str, &'a BTreeMap<String, u64>)>,
    ) {
        let sample = |thing: &'a str, value: &'a String, count: u64| {
            (labels(&[(first, thing), (second, value)]), number(count))
        };
        let samples = counts.flat_map(|(thing, counts)| {
            let counts = counts.iter();
            counts.map(move |(value, count)| sample(thing, value, *count))
        });
        self.put(name, "counter", help, &samples.collect());
    }

    /// The text of all.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Prometheus samples are floating-point numbers.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts beyond 2^53 lose their last digits there, too"
)]
#[must_use]
pub const fn number(count: u64) -> f64 {
    count as f64
}

/// Milliseconds as seconds, the unit of times and durations in Prometheus.
#[must_use]
pub const fn seconds(ms: u64) -> f64 {
    number(ms) / 1000.0
}

/// Labels with their values, which are escaped.
#[must_use]
pub fn labels(labels: &[(&str, &str)]) -> String {
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

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = MetricsText::new("x");
        let counts = [("a\"b\\\n".to_owned(), 1)].into();
        text.counters("lost_total", "Lost.", "reason", &counts);
        assert_eq!(
            text.into_text(),
            "# HELP x_lost_total Lost.\n# TYPE x_lost_total counter\nx_lost_total{reason=\"a\\\"b\\\\\\n\"} 1\n"
        );
    }
}
