//! The text before a position, by which a log is recognised that was cut off and has grown again.

use crate::line_buffer::len;
use crate::log_file::{LogError, LogFile};

/// Text before the position by which a log is recognised that was cut off there and has grown again.
///
/// # Units
/// Bytes.
const REMEMBERED: usize = 4096;

/// The last text before an offset as it was read, at most [`REMEMBERED`] bytes.
#[derive(Default)]
pub(super) struct TextBefore(Vec<u8>);

impl TextBefore {
    /// Text of the log before an offset; `None` if the log is shorter.
    pub(super) fn read(log: &mut LogFile, offset: u64) -> Result<Option<Self>, LogError> {
        let count = offset.min(len(REMEMBERED));
        let mut text = vec![0; usize::try_from(count).unwrap_or(REMEMBERED)];
        let is_whole = log.fill_at(&mut text, offset - count)? == text.len();
        Ok(is_whole.then_some(Self(text)))
    }

    /// Adds text.
    pub(super) fn push(&mut self, text: &[u8]) {
        let rest = text.len().saturating_sub(REMEMBERED);
        let text = text.get(rest..).unwrap_or_default();
        let excess = (self.0.len() + text.len()).saturating_sub(REMEMBERED);
        self.0.drain(..excess.min(self.0.len()));
        self.0.extend_from_slice(text);
    }

    /// Whether the log still has it before the offset.
    pub(super) fn is_in(&self, log: &mut LogFile, offset: u64) -> Result<bool, LogError> {
        let mut text = [0; REMEMBERED];
        let text = text.get_mut(..self.0.len()).unwrap_or_default();
        let start = offset.saturating_sub(len(text.len()));
        Ok(log.fill_at(text, start)? == text.len() && text == self.0)
    }
}
