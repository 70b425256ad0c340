//! The summary at the end of `tollgate run`: events matched, written and lost.

use std::fmt::{self, Display};

use trace::RunStats;

use crate::messages::info;
use crate::sinks::queue::SinkStats;

/// Counters of the destinations.
pub(super) struct SinkCounters {
    pub(super) log: Option<SinkStats>,
    pub(super) view: Option<SinkStats>,
}

impl SinkCounters {
    /// Prints the summary if events are printed, or if some are lost or incomplete.
    pub(super) fn report(&self, counts: RunStats) {
        let summary = Summary {
            counts,
            counters: self,
        };
        if self.view.is_some() || !summary.is_complete() {
            info(&summary.to_string());
        }
    }

    /// Returns the counters of the log, or of the console if there is no log.
    fn primary(&self) -> SinkStats {
        let main = self.log.as_ref().or(self.view.as_ref());
        main.cloned().unwrap_or_default()
    }
}

struct Summary<'a> {
    counts: RunStats,
    counters: &'a SinkCounters,
}

impl Summary<'_> {
    fn is_complete(&self) -> bool {
        let RunStats {
            lost, incomplete, ..
        } = self.counts;
        lost + incomplete + self.counters.primary().unwritten == 0
    }
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts;
        let main = self.counters.primary();
        write!(
            f,
            "stopped: matched {}, written {}, lost {}",
            counts.matched + counts.lost,
            main.events,
            counts.lost + main.unwritten
        )?;
        if counts.lost != 0 {
            write!(f, "; tasks that could not be inspected: {}", counts.lost)?;
        }
        if main.unwritten != 0 {
            write!(f, "; not written: {} ({})", main.unwritten, main.reason)?;
        }
        if counts.incomplete != 0 {
            write!(
                f,
                "; incomplete, memory of the caller not readable: {}",
                counts.incomplete
            )?;
        }
        match (&self.counters.log, &self.counters.view) {
            (Some(_), Some(view)) if view.unwritten != 0 => {
                write!(f, "; not printed: {}", view.unwritten)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: u64, unwritten: u64) -> SinkStats {
        SinkStats {
            events,
            unwritten,
            reason: "full".into(),
        }
    }

    #[test]
    fn matched_is_the_sum_of_written_and_lost() {
        let counters = SinkCounters {
            log: Some(written(5, 2)),
            view: Some(written(4, 3)),
        };
        let counts = RunStats {
            stopped: 20,
            matched: 7,
            lost: 1,
            incomplete: 2,
        };
        let summary = Summary {
            counts,
            counters: &counters,
        };
        assert_eq!(
            summary.to_string(),
            "stopped: matched 8, written 5, lost 3; tasks that could not be inspected: 1; \
             not written: 2 (full); incomplete, memory of the caller not readable: 2; \
             not printed: 3"
        );
        assert!(!summary.is_complete());
    }

    #[test]
    fn summary_without_losses_is_short() {
        let counters = SinkCounters {
            log: None,
            view: Some(written(5, 0)),
        };
        let counts = RunStats {
            matched: 5,
            ..RunStats::default()
        };
        let summary = Summary {
            counts,
            counters: &counters,
        };
        assert_eq!(summary.to_string(), "stopped: matched 5, written 5, lost 0");
        assert!(summary.is_complete());
    }
}
