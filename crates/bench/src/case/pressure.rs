//! Two loaders on two CPUs: the daemon gets CPU time by its priority alone.

use std::path::Path;

use anyhow::Context as _;

use super::loader::{RULES, to_f64};
use super::{Case, FigureSpec, HeadlineSpec, Sample, mib, with_audit};
use crate::Options;
use crate::audit_log::{CallFilter, LogCounts};
use crate::auditor::EventCounts;
use crate::report::Bound;
use crate::variant::{AuditMode, Variant};
use crate::work_dir::{BackgroundCommand, CpuAffinity, WorkDir, parse_value};
use crate::workload::OPEN_CLOSE;

#[derive(Debug)]
pub(crate) struct Pressure;

/// Of each loader.
const PAIRS: u32 = 1_000_000;
/// With the kernel's audit; takes as long.
const KERNEL_PAIRS: u32 = 50_000;
const BRIEF_PAIRS: u32 = 500;

const EVERY_CALL: &[HeadlineSpec] =
    &[HeadlineSpec::new("one rule records every call, on two CPUs").in_picture()];

impl Case for Pressure {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn about(&self) -> &'static str {
        "two loaders on two CPUs, shared with the daemon: 1,000,000 pairs of open and close each, 50,000 with the kernel's audit; all recorded to disk"
    }

    fn origin(&self) -> &'static str {
        "eAudit, IEEE S&P 2024, section 6: loss under a saturating load"
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::less("open and close", "ns").headlines(EVERY_CALL),
                FigureSpec::more("recorded", "%").goals(&[("tollgate", Bound::ValueAtLeast(98.0))]),
                FigureSpec::less("lost", "events"),
                FigureSpec::less("daemon CPU per event", "us").relative_to("kernel"),
                FigureSpec::less("daemon memory without the ring", "MiB")
                    .relative_to("kernel")
                    .goals(&[("tollgate", Bound::ValueAtMost(32.0))]),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        options
            .against
            .iter()
            .map(|&mode| Variant {
                affinity: CpuAffinity::FirstAndLastCpu,
                ..Variant::plain(mode, if mode == AuditMode::Off { "" } else { RULES })
            })
            .collect()
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let pairs = match (brief, variant.mode) {
            (true, _) => BRIEF_PAIRS,
            (_, AuditMode::Kernel) => KERNEL_PAIRS,
            _ => PAIRS,
        };
        let (printed, spent) = with_audit(work_dir, variant, || {
            let mut loaders = Vec::new();
            for placement in [CpuAffinity::First, CpuAffinity::Last] {
                let words = [OPEN_CLOSE, &pairs.to_string()];
                let mut command = work_dir.workload_command(placement, &words)?;
                loaders.push(BackgroundCommand::start(&mut command)?);
            }
            loaders
                .into_iter()
                .map(BackgroundCommand::output)
                .collect::<anyhow::Result<Vec<_>>>()
        })?;
        let mut slowest: f64 = 0.0;
        let mut wanted = Vec::new();
        for printed in &printed {
            slowest = slowest.max(parse_value(printed, "elapsed_ns")?);
            wanted.push(CallFilter::parse(printed)?);
        }
        let mut sample = Sample {
            values: vec![("open and close", slowest / f64::from(pairs))],
            startup_line: spent.startup_line,
            ..Sample::default()
        };
        if variant.mode == AuditMode::Off {
            return Ok(sample);
        }
        let events = u64::from(pairs) * 4;
        let counts =
            LogCounts::from_log(&work_dir.log(), &wanted).context("cannot read the log")?;
        let cpu_us = spent.cpu.as_secs_f64() * 1e6;
        sample.values.extend([
            ("recorded", to_f64(counts.found) * 100.0 / to_f64(events)),
            ("lost", to_f64(spent.lost)),
            ("daemon CPU per event", cpu_us / to_f64(events)),
            ("daemon memory without the ring", mib(spent.resident_bytes)),
        ]);
        if let Some(event_counts) = spent.event_counts {
            sample.failures = failures(counts, events, event_counts);
        }
        Ok(sample)
    }
}

/// Missing events that are not accounted for.
fn failures(counts: LogCounts, events: u64, event_counts: EventCounts) -> Vec<String> {
    let EventCounts {
        matched,
        written,
        lost,
    } = event_counts;
    let mut failures = Vec::new();
    let mut unless = |holds: bool, failure: String| {
        if !holds {
            failures.push(failure);
        }
    };
    unless(
        matched == written + lost,
        format!("matched {matched} is not the sum of written {written} and lost {lost}"),
    );
    unless(
        counts.events == written,
        format!("the log has {} events, not {written}", counts.events),
    );
    unless(
        counts.reported_lost == lost,
        format!(
            "the log reports {} lost events, not {lost}",
            counts.reported_lost
        ),
    );
    let missing = events.saturating_sub(counts.found);
    unless(
        missing <= lost && counts.found <= events,
        format!(
            "{} of {events} events are in the log, and {lost} are lost",
            counts.found
        ),
    );
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_events_must_be_counted_and_reported() {
        let counts = LogCounts {
            events: 12,
            found: 9,
            reported_lost: 1,
        };
        let event_counts = EventCounts {
            matched: 13,
            written: 12,
            lost: 1,
        };
        assert_eq!(failures(counts, 10, event_counts), [""; 0]);
        assert_eq!(
            failures(counts, 11, event_counts).len(),
            1,
            "two are missing"
        );
        assert_eq!(
            failures(counts, 8, event_counts).len(),
            1,
            "one is too many"
        );
        let counted = |matched, written, lost| EventCounts {
            matched,
            written,
            lost,
        };
        assert_eq!(failures(counts, 10, counted(14, 12, 1)).len(), 1);
        assert_eq!(failures(counts, 10, counted(14, 13, 1)).len(), 1);
        assert_eq!(failures(counts, 10, counted(14, 12, 2)).len(), 1);
    }
}
