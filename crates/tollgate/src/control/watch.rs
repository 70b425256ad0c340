//! The request `watch`: which events the client wants. After the answer `watching`, the connection carries records.

use anyhow::{Context as _, ensure};
use bstr::BString;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::protocol::{self, Answer, Refusal};
use crate::json_bytes::JsonBytes;
use crate::sinks::viewers::{EventFilter, EventResult};

/// Maximum number of values of one kind.
const MAX_VALUES: usize = 64;
/// Maximum length of a value: the longest path.
const MAX_VALUE_BYTES: usize = 4096;

/// Events that a viewer wants; see [`EventFilter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WatchRequest {
    pub(crate) keys: Vec<JsonBytes>,
    pub(crate) users: Vec<u32>,
    pub(crate) programs: Vec<JsonBytes>,
    pub(crate) result: Option<WatchedResult>,
    /// Maximum number of events a second, chosen at random; `None` for all.
    pub(crate) sample: Option<u32>,
}

/// Result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WatchedResult {
    /// The event succeeded.
    Success,
    /// The event failed.
    Failure,
}

/// A notice among the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Notice {
    /// Events that this viewer did not get since the last notice.
    Missed {
        /// It was too slow.
        lost: u64,
        /// Left out by `sample`.
        skipped: u64,
    },
}

impl WatchRequest {
    /// The filter.
    ///
    /// # Errors
    /// A list or a value is too long, or not valid.
    pub(crate) fn filter(&self) -> anyhow::Result<EventFilter> {
        ensure!(
            self.users.len() <= MAX_VALUES,
            "more than {MAX_VALUES} users"
        );
        Ok(EventFilter {
            keys: values(&self.keys, "keys")?,
            users: self.users.clone(),
            programs: values(&self.programs, "programs")?,
            result: self.result.map(|result| match result {
                WatchedResult::Success => EventResult::Success,
                WatchedResult::Failure => EventResult::Failure,
            }),
        })
    }
}

fn values(list: &[JsonBytes], what: &str) -> anyhow::Result<Vec<BString>> {
    ensure!(list.len() <= MAX_VALUES, "more than {MAX_VALUES} {what}");
    let bytes = list.iter().map(|value| {
        let bytes = value.bytes().context("malformed hexadecimal digits")?;
        ensure!(
            bytes.len() <= MAX_VALUE_BYTES,
            "a value of more than {MAX_VALUE_BYTES} bytes"
        );
        Ok(bytes)
    });
    bytes.collect()
}

/// The line that admits a viewer.
pub(crate) fn welcome() -> Vec<u8> {
    line(&Answer::Watching)
}

/// The line that refuses a viewer.
pub(crate) fn refusal(reason: String) -> Vec<u8> {
    line(&Answer::Refused(Refusal::with_reason(Errno::EBUSY, reason)))
}

fn line(answer: &Answer) -> Vec<u8> {
    // These answers can be encoded.
    protocol::line(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_bounded() {
        let text = JsonBytes::new(b"x");
        let request = WatchRequest {
            keys: vec![text.clone(); MAX_VALUES],
            ..WatchRequest::default()
        };
        assert_eq!(request.filter().unwrap().keys.len(), MAX_VALUES);
        for request in [
            WatchRequest {
                keys: vec![text; MAX_VALUES + 1],
                ..WatchRequest::default()
            },
            WatchRequest {
                programs: vec![JsonBytes::new(&[b'x'; MAX_VALUE_BYTES + 1])],
                ..WatchRequest::default()
            },
            WatchRequest {
                users: vec![0; MAX_VALUES + 1],
                ..WatchRequest::default()
            },
            WatchRequest {
                keys: vec![JsonBytes::Bytes {
                    hex: "0".to_owned(),
                }],
                ..WatchRequest::default()
            },
        ] {
            request.filter().unwrap_err();
        }
    }

    #[test]
    fn notice_has_the_form_that_viewers_get() {
        let notice = Notice::Missed {
            lost: 3,
            skipped: 0,
        };
        assert_eq!(
            serde_json::to_string(&notice).unwrap(),
            r#"{"missed":{"lost":3,"skipped":0}}"#
        );
        assert_eq!(welcome(), b"\"watching\"\n");
        assert!(refusal("full".to_owned()).starts_with(br#"{"refused":{"errno":16,"#));
    }
}
