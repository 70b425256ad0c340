//! The account at the end of `tollgate run`: matched is written plus lost.

use std::fmt::{self, Display};

use trace::RunStats;

use crate::messages::info;
use crate::sinks::queue::SinkStats;

/// What became of the events.
pub(super) struct Account {
    pub(super) log: Option<SinkStats>,
    pub(super) view: Option<SinkStats>,
}

impl Account {
    /// Says what is missing; to who watches, also what there was.
    pub(super) fn tell(&self, counts: RunStats) {
        let summary = Summary {
            counts,
            account: self,
        };
        if self.view.is_some() || !summary.is_whole() {
            info(&summary.to_string());
        }
    }

    /// What was wanted first: the log, or else the view.
    fn main(&self) -> SinkStats {
        let main = self.log.as_ref().or(self.view.as_ref());
        main.cloned().unwrap_or_default()
    }
}

struct Summary<'a> {
    counts: RunStats,
    account: &'a Account,
}

impl Summary<'_> {
    fn is_whole(&self) -> bool {
        let RunStats {
            lost, incomplete, ..
        } = self.counts;
        lost + incomplete + self.account.main().unwritten == 0
    }
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts;
        let main = self.account.main();
        write!(
            f,
            "stopped: matched {}, written {}, lost {}",
            counts.matched + counts.lost,
            main.events,
            counts.lost + main.unwritten
        )?;
        if counts.lost != 0 {
            write!(f, "; by tasks that could not be looked at: {}", counts.lost)?;
        }
        if main.unwritten != 0 {
            write!(f, "; not written: {} ({})", main.unwritten, main.reason)?;
        }
        if counts.incomplete != 0 {
            write!(
                f,
                "; incomplete, since the memory of the caller could not be read: {}",
                counts.incomplete
            )?;
        }
        match (&self.account.log, &self.account.view) {
            (Some(_), Some(view)) if view.unwritten != 0 => {
                write!(f, "; left out of the view: {}", view.unwritten)
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
    fn matched_is_written_and_lost() {
        let account = Account {
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
            account: &account,
        };
        assert_eq!(
            summary.to_string(),
            "stopped: matched 8, written 5, lost 3; by tasks that could not be looked at: 1; \
             not written: 2 (full); incomplete, since the memory of the caller could not be read: 2; \
             left out of the view: 3"
        );
        assert!(!summary.is_whole());
    }

    #[test]
    fn a_whole_account_is_short() {
        let account = Account {
            log: None,
            view: Some(written(5, 0)),
        };
        let counts = RunStats {
            matched: 5,
            ..RunStats::default()
        };
        let summary = Summary {
            counts,
            account: &account,
        };
        assert_eq!(summary.to_string(), "stopped: matched 5, written 5, lost 0");
        assert!(summary.is_whole());
    }
}
