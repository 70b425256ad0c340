//! Batches that a destination refuses: they are sent again in halves, so that it takes the other records.
//!
//! A record that is refused alone is rejected. A destination that takes no event between refusals refuses everything: that
//! is a failure, and nothing more is passed over.

use std::ops::Range;

use anyhow::anyhow;

use crate::record_buffer::RecordBuffer;
use crate::sink::Refusal;

/// Records that may be refused alone without an event between them that is taken.
const MOST_REFUSED: u32 = 64;

/// What happens to records that were sent together.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The destination has them, but for some that it rejects.
    Taken(Rejected),
    /// It does not take all of them together, and tells why.
    Refused { told: String, is_too_large: bool },
}

/// Records that a destination rejects, and why; also a warning without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) records: u64,
    pub(crate) message: String,
}

/// How much a destination takes at once, and what it has refused.
#[derive(Debug)]
pub(crate) struct Halves {
    /// Bytes that are sent at once on a new connection.
    most: usize,
    /// Bytes that the destination takes at once.
    limit: usize,
    /// It has taken something on this connection.
    has_taken: bool,
    /// Records of former batches that were refused alone since an event was taken.
    refused: u32,
    refusal: Option<Refusal>,
}

impl Halves {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            most,
            limit: most,
            has_taken: false,
            refused: 0,
            refusal: None,
        }
    }

    /// Bytes that should be sent at once.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Forgets what is of a connection.
    pub(crate) fn disconnect(&mut self) {
        self.limit = self.most;
        self.has_taken = false;
        self.refusal = None;
    }

    /// What was refused for ever since the last call.
    pub(crate) const fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// Sends records with `post`; in halves, if they are refused.
    ///
    /// # Errors
    /// As of `post`; the destination refuses everything.
    pub(crate) fn send<T>(
        &mut self,
        all: &RecordBuffer<T>,
        mut post: impl FnMut(Range<usize>) -> anyhow::Result<Verdict>,
    ) -> anyhow::Result<()> {
        let every = 0..all.len();
        let mut left = vec![every];
        // Refused alone since an event of the batch was taken.
        let mut refused = 0;
        let mut last = String::new();
        // Bytes of the parts into which a batch was divided last; no limit if a record was refused, whatever its parts.
        let mut parts = Some(self.limit);
        while let Some(records) = left.pop() {
            match post(records.clone())? {
                Verdict::Taken(mut rejected) => {
                    // A number of the destination is not trusted: it cannot reject more than it got.
                    rejected.records = rejected.records.min(u64::try_from(records.len())?);
                    self.has_taken = true;
                    if all.has_events(&records) {
                        (self.refused, refused) = (0, 0);
                    }
                    self.note(rejected);
                }
                Verdict::Refused { is_too_large, .. } if records.len() > 1 => {
                    let half = all.bytes_of(&records).len() / 2;
                    parts = parts.map(|_| half);
                    if is_too_large {
                        self.limit = self.limit.min(half);
                    }
                    let middle = records.start + records.len() / 2;
                    left.push(middle..records.end);
                    left.push(records.start..middle);
                }
                Verdict::Refused { told, .. } if !self.has_taken => return Err(anyhow!(told)),
                Verdict::Refused { told, .. } => {
                    refused += 1;
                    parts = None;
                    self.note(Rejected {
                        records: 1,
                        message: told.clone(),
                    });
                    last = told;
                    if refused > MOST_REFUSED {
                        break;
                    }
                }
            }
        }
        if self.refused + refused > MOST_REFUSED {
            return Err(anyhow!(
                "{last}: it has refused {MOST_REFUSED} events one after another; no more are left out"
            ));
        }
        if let Some(parts) = parts {
            // Some destinations do not tell what is too large from what is wrong.
            self.limit = self.limit.min(parts);
        }
        self.refused += refused;
        Ok(())
    }

    /// Remembers what the destination has rejected, for the worker.
    fn note(&mut self, rejected: Rejected) {
        if rejected == Rejected::default() {
            return;
        }
        let refusal = self.refusal.get_or_insert_default();
        refusal.records += rejected.records;
        refusal.reason = match rejected.message {
            reason if reason.is_empty() => "it does not tell why".to_owned(),
            reason => reason,
        };
    }
}
