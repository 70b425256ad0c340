//! What the daemon says: one line when it has attached, and the account at the end.

use std::fmt::{self, Display};
use std::time::Duration;

use engine::{EngineStats, LossReason, Truncation};

use crate::pipeline::heartbeat::seconds;
use crate::pipeline::kernel_records::KernelRecordCounts;
use crate::sinks::queue as outlet;

/// What the pipeline did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Counters of the kernel side.
    pub(crate) stats: EngineStats,
    /// Events written to the log.
    pub(crate) written: u64,
    /// Events that could not be written, and the last reason.
    pub(crate) unwritten: Unwritten,
    /// Samples that were no events, and what was wrong with the last.
    pub(crate) undecodable: u64,
    /// Events that the rate limit kept out.
    pub(crate) limited: u64,
    /// Events that the view left out.
    pub(crate) unshown: u64,
    /// What became of events for the JSON log.
    pub(crate) json: outlet::SinkStats,
    /// How long the engine may have seen nothing.
    pub(crate) blind: Duration,
    /// Messages of the kernel's audit that were taken.
    pub(crate) messages: KernelRecordCounts,
    /// Messages that could not be written.
    pub(crate) unwritten_messages: u64,
    /// Messages that the kernel has lost.
    pub(crate) lost_messages: u64,
}

/// Events that could not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unwritten {
    /// How many.
    pub(crate) events: u64,
    /// Why, the last time.
    pub(crate) reason: String,
}

/// The account at the end: matched is written plus lost.
pub(crate) struct Summary<'a>(pub(crate) &'a Outcome);

impl Summary<'_> {
    /// Events that were chosen and are not in the log.
    pub(crate) fn lost(&self) -> u64 {
        self.0.stats.total_lost() + self.0.unwritten.events + self.0.undecodable + self.0.limited
    }

    /// Whether every event that should have been chosen is in the log.
    pub(crate) fn is_whole(&self) -> bool {
        self.lost() == 0 && self.0.blind.is_zero() && self.lost_messages() == 0
    }

    /// Messages of the kernel's audit that are not in the log, or times that an unknown number is not.
    fn lost_messages(&self) -> u64 {
        let Outcome {
            messages,
            unwritten_messages,
            lost_messages,
            ..
        } = self.0;
        messages.refused + messages.overruns + unwritten_messages + lost_messages
    }
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome {
            stats,
            written,
            unwritten,
            undecodable,
            limited,
            unshown,
            json,
            blind,
            messages,
            unwritten_messages,
            lost_messages,
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
        if !blind.is_zero() {
            write!(f, "; blind for {} s", seconds(*blind))?;
        }
        if !truncated.is_empty() {
            write!(f, "; incomplete: {}", truncated.join(", "))?;
        }
        if *unshown != 0 {
            write!(f, "; left out of the view: {unshown}")?;
        }
        if json.unwritten != 0 {
            let outlet::SinkStats {
                unwritten, reason, ..
            } = json;
            write!(f, "; left out of the JSON log: {unwritten} ({reason})")?;
        }
        if *messages != KernelRecordCounts::default() || self.lost_messages() != 0 {
            write!(f, "; messages of the kernel: {}", messages.received)?;
        }
        for (count, what) in [
            (*lost_messages, "lost by it"),
            (*unwritten_messages, "not written"),
            (messages.refused, "refused"),
            (messages.overruns, "times more than could be read"),
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
    fn a_clean_run_is_one_short_line() {
        let outcome = Outcome {
            stats: EngineStats {
                matched: 3,
                delivered: 3,
                ..EngineStats::default()
            },
            written: 3,
            ..Outcome::default()
        };
        assert_eq!(
            Summary(&outcome).to_string(),
            "matched 3, written 3, lost 0"
        );
        assert!(Summary(&outcome).is_whole());
    }

    #[test]
    fn every_loss_has_its_reason() {
        let outcome = Outcome {
            stats: EngineStats {
                matched: 10,
                delivered: 6,
                lost: [3, 0, 0, 0, 1],
                truncated: [0, 2, 0, 0, 0, 0, 0, 0],
            },
            written: 4,
            unwritten: Unwritten {
                events: 1,
                reason: "No space left on device".into(),
            },
            undecodable: 1,
            unshown: 5,
            ..Outcome::default()
        };
        assert_eq!(
            Summary(&outcome).to_string(),
            "matched 10, written 4, lost 6 (ring full 3, program skipped by the kernel 1, \
             not written 1 (No space left on device), not decodable 1); \
             incomplete: arguments truncated 2; left out of the view: 5"
        );
        assert!(!Summary(&outcome).is_whole());
    }

    #[test]
    fn messages_that_are_missing_are_told() {
        let mut outcome = Outcome {
            messages: KernelRecordCounts {
                received: 7,
                ..KernelRecordCounts::default()
            },
            ..Outcome::default()
        };
        let text = Summary(&outcome).to_string();
        assert!(
            text.ends_with("lost 0; messages of the kernel: 7"),
            "{text}"
        );
        assert!(Summary(&outcome).is_whole());
        outcome.lost_messages = 3;
        outcome.messages.refused = 1;
        let text = Summary(&outcome).to_string();
        assert!(
            text.ends_with("kernel: 7, 3 lost by it, 1 refused"),
            "{text}"
        );
        assert!(!Summary(&outcome).is_whole());
    }

    #[test]
    fn what_was_never_seen_is_told_and_makes_the_log_incomplete() {
        let outcome = Outcome {
            blind: Duration::from_millis(6500),
            ..Outcome::default()
        };
        assert_eq!(
            Summary(&outcome).to_string(),
            "matched 0, written 0, lost 0; blind for 7 s"
        );
        assert!(!Summary(&outcome).is_whole());
    }
}
