//! What fails again and again: it is told once, and tried again.

use std::thread;
use std::time::Duration;

use anyhow::bail;

use crate::output::info;
use crate::sigma::one_line;

/// How often what fails is tried again, one second after each other.
const MOST_TRIES: u32 = 60;

/// Failures of one kind.
#[derive(Debug, Default)]
pub(super) struct Failures {
    last: String,
    tries: u32,
}

impl Failures {
    /// Takes a result, and tells an error that is another one than the last.
    pub(super) fn note(&mut self, result: anyhow::Result<()>) {
        let Err(error) = result else {
            return self.end();
        };
        self.tries += 1;
        let text = one_line(&format!("{error:#}"));
        if text != self.last {
            info(&text);
            self.last = text;
        }
    }

    /// What failed works again.
    pub(super) fn end(&mut self) {
        if self.tries > 0 {
            *self = Self::default();
        }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// It was tried so often that only a new start may help: a directory that was replaced is not the one that is
    /// watched and that Landlock lets this program read.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        if self.tries >= MOST_TRIES {
            bail!("gave up after {} tries: {}", self.tries, self.last);
        }
        thread::park_timeout(Duration::from_secs(1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_end_by_a_success_or_after_many_tries() {
        let mut failures = Failures::default();
        for _ in 0..MOST_TRIES - 1 {
            failures.note(Err(anyhow::anyhow!("no log")));
        }
        failures.note(Ok(()));
        assert_eq!((failures.tries, &*failures.last), (0, ""));
        for _ in 0..MOST_TRIES {
            failures.note(Err(anyhow::anyhow!("no log")));
        }
        let error = failures.wait().unwrap_err().to_string();
        assert_eq!(error, "gave up after 60 tries: no log");
    }
}
