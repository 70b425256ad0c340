//! Totals of the pipeline at the end.

use std::fmt::{self, Display};
use std::time::Duration;

use engine::{EngineStats, LossReason, Truncation};

use crate::pipeline::heartbeat::seconds;
use crate::pipeline::kernel_records::KernelRecordCounts;
use crate::sinks::queue;

/// Totals of the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PipelineTotals {
    /// Counters of the kernel side.
    pub(crate) stats: EngineStats,
    /// Events written to the log.
    pub(crate) written: u64,
    /// Events that could not be written, and the last reason.
    pub(crate) unwritten: UnwrittenEvents,
    /// Samples that could not be decoded.
    pub(crate) undecodable: u64,
    /// Events dropped by the rate limit.
    pub(crate) limited: u64,
    /// Events that the console skipped.
    pub(crate) not_printed: u64,
    /// Counters of the JSON log.
    pub(crate) json: queue::SinkStats,
    /// Time in which the BPF programs may not have run.
    pub(crate) disabled_time: Duration,
    /// Records received from the kernel's audit.
    pub(crate) kernel_records: KernelRecordCounts,
    /// Kernel records that could not be written.
    pub(crate) unwritten_kernel_records: u64,
    /// Records lost by the kernel.
    pub(crate) lost_kernel_records: u64,
}

/// Events that could not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnwrittenEvents {
    /// Number of events.
    pub(crate) events: u64,
    /// The last reason.
    pub(crate) reason: String,
}

/// Summary at the end: matched = written + lost.
pub(crate) struct Summary<'a>(pub(crate) &'a PipelineTotals);

impl Summary<'_> {
    /// Matched events that are not in the log.
    pub(crate) fn lost(&self) -> u64 {
        self.0.stats.total_lost() + self.0.unwritten.events + self.0.undecodable + self.0.limited
    }

    /// Whether every event is in the log.
    pub(crate) fn is_complete(&self) -> bool {
        self.lost() == 0 && self.0.disabled_time.is_zero() && self.lost_kernel_records() == 0
    }

    /// Kernel records that are not in the log, plus overruns of unknown size.
    fn lost_kernel_records(&self) -> u64 {
        let PipelineTotals {
            kernel_records,
            unwritten_kernel_records,
            lost_kernel_records,
            ..
        } = self.0;
        kernel_records.refused
            + kernel_records.overruns
            + unwritten_kernel_records
            + lost_kernel_records
    }
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PipelineTotals {
            stats,
            written,
            unwritten,
            undecodable,
            limited,
            not_printed,
            json,
            disabled_time,
            kernel_records,
            unwritten_kernel_records,
            lost_kernel_records,
        } = self.0;
        write!(
            f,
            "matched {}, written {written}, lost {}",
            stats.matched,
            self.lost()
        )?;
        let mut reasons = Vec::new();
        for (lost, reason) in stats.lost.iter().zip(LossReason::ALL) {
            if *lost != 0 {
                reasons.push(format!("{} {lost}", reason.as_str()));
            }
        }
        if unwritten.events != 0 {
            reasons.push(format!(
                "not written {} ({})",
                unwritten.events, unwritten.reason
            ));
        }
        if *limited != 0 {
            reasons.push(format!("rate limit {limited}"));
        }
        if *undecodable != 0 {
            reasons.push(format!("not decodable {undecodable}"));
        }
        if !reasons.is_empty() {
            write!(f, " ({})", reasons.join(", "))?;
        }
        let truncated: Vec<String> = stats
            .truncated
            .iter()
            .zip(Truncation::ALL)
            .filter(|(count, _)| **count != 0)
            .map(|(count, part)| format!("{} {count}", part.as_str()))
            .collect();
        if !disabled_time.is_zero() {
            write!(f, "; hooks disabled for {} s", seconds(*disabled_time))?;
        }
        if !truncated.is_empty() {
            write!(f, "; incomplete: {}", truncated.join(", "))?;
        }
        if *not_printed != 0 {
            write!(f, "; not printed: {not_printed}")?;
        }
        if json.unwritten != 0 {
            let queue::SinkStats {
                unwritten, reason, ..
            } = json;
            write!(f, "; missing in the JSON log: {unwritten} ({reason})")?;
        }
        if *kernel_records != KernelRecordCounts::default() || self.lost_kernel_records() != 0 {
            write!(f, "; kernel records: {}", kernel_records.received)?;
        }
        for (count, what) in [
            (*lost_kernel_records, "lost by the kernel"),
            (*unwritten_kernel_records, "not written"),
            (kernel_records.refused, "refused"),
            (kernel_records.overruns, "overruns"),
        ] {
            if count != 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::EngineStats;

    use super::*;

    #[test]
    fn clean_run_prints_one_line() {
        let outcome = PipelineTotals {
            stats: EngineStats {
                matched: 3,
                delivered: 3,
                ..EngineStats::default()
            },
            written: 3,
            ..PipelineTotals::default()
        };
        assert_eq!(
            Summary(&outcome).to_string(),
            "matched 3, written 3, lost 0"
        );
        assert!(Summary(&outcome).is_complete());
    }

    #[test]
    fn each_loss_is_listed_with_its_reason() {
        let outcome = PipelineTotals {
            stats: EngineStats {
                matched: 10,
                delivered: 6,
                lost: [3, 0, 0, 0, 1],
                truncated: [0, 2, 0, 0, 0, 0, 0, 0, 0, 0],
            },
            written: 4,
            unwritten: UnwrittenEvents {
                events: 1,
                reason: "No space left on device".into(),
            },
            undecodable: 1,
            not_printed: 5,
            ..PipelineTotals::default()
        };
        assert_eq!(
            Summary(&outcome).to_string(),
            "matched 10, written 4, lost 6 (ring full 3, program skipped by the kernel 1, \
             not written 1 (No space left on device), not decodable 1); \
             incomplete: arguments truncated 2; not printed: 5"
        );
        assert!(!Summary(&outcome).is_complete());
    }

    #[test]
    fn lost_kernel_records_are_reported() {
        let mut outcome = PipelineTotals {
            kernel_records: KernelRecordCounts {
                received: 7,
                ..KernelRecordCounts::default()
            },
            ..PipelineTotals::default()
        };
        let text = Summary(&outcome).to_string();
        assert!(text.ends_with("lost 0; kernel records: 7"), "{text}");
        assert!(Summary(&outcome).is_complete());
        outcome.lost_kernel_records = 3;
        outcome.kernel_records.refused = 1;
        let text = Summary(&outcome).to_string();
        assert!(
            text.ends_with("records: 7, 3 lost by the kernel, 1 refused"),
            "{text}"
        );
        assert!(!Summary(&outcome).is_complete());
    }

    #[test]
    fn disabled_hooks_make_the_log_incomplete() {
        let outcome = PipelineTotals {
            disabled_time: Duration::from_millis(6500),
            ..PipelineTotals::default()
        };
        assert_eq!(
            Summary(&outcome).to_string(),
            "matched 0, written 0, lost 0; hooks disabled for 7 s"
        );
        assert!(!Summary(&outcome).is_complete());
    }
}
