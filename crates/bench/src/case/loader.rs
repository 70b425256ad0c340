//! A loop that opens and closes one file; every call is recorded.

use std::path::Path;

use super::{Case, FigureSpec, HeadlineSpec, RECORDED, Sample, with_audit};
use crate::Options;
use crate::audit_log::{CallFilter, LogMatches};
use crate::programs::{AUSEARCH, Program};
use crate::report::Bound;
use crate::variant::AuditMode;
use crate::variant::{Destination, Variant};
use crate::work_dir::{CpuAffinity, WorkDir, parse_value};
use crate::workload::OPEN_CLOSE;

#[derive(Debug)]
pub(crate) struct Loader;

pub(super) const RULES: &str = "-a always,exit -F arch=b64 -S open,openat,close -F uid=65534\n";
const PAIRS: u32 = 50_000;
const BRIEF_PAIRS: u32 = 500;

const EVERY_CALL: &[HeadlineSpec] =
    &[HeadlineSpec::new("one rule records every call").in_picture()];

impl Case for Loader {
    fn name(&self) -> &'static str {
        "loader"
    }

    fn about(&self) -> &'static str {
        "50,000 pairs of open and close, all recorded: to disk, to a plugin, to both; `off` has no rules"
    }

    fn origin(&self) -> &'static str {
        "https://lore.kernel.org/all/9DBA79E0CE64AA42B07DEDAAD0F7DB914165A49A@G4W3222.americas.hpqcorp.net/T/"
    }

    fn programs(&self) -> &'static [Program] {
        &[AUSEARCH]
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::less("open and close", "ns")
                    .headlines(EVERY_CALL)
                    .goals(&[("tollgate", Bound::RatioAtMost(1.9))]),
                FigureSpec::more("pairs", "/s")
                    .relative_to("kernel")
                    .goals(&[("tollgate, disk and plugin", Bound::RatioAtLeast(1.0))]),
                FigureSpec::less("without run-queue wait", "ns").headlines(RECORDED),
                FigureSpec::more("recorded", "%").goals(&[
                    ("tollgate", Bound::Exactly(100.0)),
                    ("tollgate, disk and plugin", Bound::Exactly(100.0)),
                ]),
                FigureSpec::less("daemon CPU per event", "us")
                    .relative_to("kernel")
                    .goals(&[("tollgate", Bound::RatioAtMost(0.05))]),
                FigureSpec::less("log", "B/event"),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let mut variants = Vec::new();
        for &mode in &options.against {
            variants.push(match mode {
                AuditMode::Off => Variant::plain(mode, ""),
                _ => Variant::plain(mode, RULES),
            });
        }
        for (mode, name, destination) in [
            (
                AuditMode::Tollgate,
                "tollgate, plugin only",
                Destination::Plugin,
            ),
            (
                AuditMode::Tollgate,
                "tollgate, disk and plugin",
                Destination::Both,
            ),
            (
                AuditMode::Kernel,
                "kernel, plugin only",
                Destination::Plugin,
            ),
            (
                AuditMode::Kernel,
                "kernel, disk and plugin",
                Destination::Both,
            ),
        ] {
            if options.against.contains(&mode) {
                variants.push(Variant {
                    destination,
                    ..Variant::named(name, mode, RULES)
                });
            }
        }
        variants
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let pairs = if brief { BRIEF_PAIRS } else { PAIRS };
        let (printed, spent) = with_audit(work_dir, variant, || {
            work_dir.workload(CpuAffinity::First, &[OPEN_CLOSE, &pairs.to_string()])
        })?;
        let elapsed = parse_value(&printed, "elapsed_ns")?;
        let waited = parse_value(&printed, "waited_ns")?;
        let count = f64::from(pairs);
        let mut sample = Sample {
            values: vec![
                ("open and close", elapsed / count),
                ("pairs", count * 1e9 / elapsed),
                ("without run-queue wait", (elapsed - waited) / count),
            ],
            startup_line: spent.startup_line,
            ..Sample::default()
        };
        if variant.mode == AuditMode::Off {
            return Ok(sample);
        }
        let events = count * 2.0;
        let mut recorded = f64::INFINITY;
        if variant.destination.has_log() {
            let wanted = CallFilter::parse(&printed)?;
            let scratch = work_dir.work.join("log/part");
            let found = LogMatches::from_log(&work_dir.log(), &scratch, wanted)?;
            recorded = to_f64(found.opens + found.closes);
            if variant.mode == AuditMode::Tollgate {
                sample.failures = failures(found, pairs, spent.lost);
            }
        }
        if let Some(given) = spent.plugin_events {
            // The plugin also gets events of starting and ending the workload.
            recorded = recorded.min(to_f64(given).min(events));
        }
        sample.values.extend([
            ("recorded", recorded * 100.0 / events),
            (
                "daemon CPU per event",
                spent.cpu.as_secs_f64() * 1e6 / events,
            ),
        ]);
        if variant.destination.has_log() {
            sample.values.push(("log", to_f64(spent.bytes) / events));
        }
        Ok(sample)
    }
}

/// Missing and lost events.
fn failures(found: LogMatches, pairs: u32, lost: u64) -> Vec<String> {
    let pairs = u64::from(pairs);
    let mut failures = Vec::new();
    if (found.opens, found.closes, found.names) != (pairs, pairs, pairs) || found.repeated != 0 {
        failures.push(format!(
            "{pairs} pairs, but ausearch finds {} opens, {} closes, {} names, {} events twice",
            found.opens, found.closes, found.names, found.repeated
        ));
    }
    if lost != 0 {
        failures.push(format!("the auditor reports {lost} lost events"));
    }
    failures
}

/// Converts a count; counts are far below 2^32.
pub(super) fn to_f64(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lost_and_duplicate_events_are_failures() {
        let found = LogMatches {
            opens: 10,
            closes: 10,
            names: 10,
            repeated: 0,
            events: 25,
        };
        assert_eq!(failures(found, 10, 0), [""; 0]);
        assert_eq!(failures(found, 11, 0).len(), 1);
        assert!(failures(found, 10, 3)[0].contains("reports 3 lost events"));
        let twice = LogMatches {
            repeated: 1,
            ..found
        };
        assert!(failures(twice, 10, 0)[0].contains("1 events twice"));
    }

    #[test]
    fn only_variants_that_audit_have_rules() {
        let options = Options {
            cases: Vec::new(),
            against: vec![AuditMode::Off, AuditMode::Tollgate, AuditMode::Kernel],
            rules: None,
            runs: 1,
            engine: "auto".into(),
            eaudit: None,
            brief: true,
            fifo: false,
        };
        let variants = Loader.variants(&options, Path::new("/w"));
        assert_eq!(variants.len(), 7);
        for variant in variants {
            assert_eq!(variant.rules.is_empty(), variant.mode == AuditMode::Off);
        }
    }
}
