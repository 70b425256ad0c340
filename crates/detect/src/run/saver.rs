//! Saves the state on a thread of its own: a disk that is slow to write must not delay alerts.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use anyhow::{Context as _, anyhow};
use logs::cursor::Cursor;

use super::state::State;
use crate::sigma::correlation::saved::Saved;

/// What is saved.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// Where the next run continues, if an event was read.
    pub(super) cursor: Option<Cursor>,
    /// What correlation rules remember there, if there are some.
    pub(super) windows: Option<Saved>,
    /// The status, if it changed.
    pub(super) status: Option<String>,
}

/// Saves one state after another.
#[derive(Debug)]
pub(super) struct Saver {
    snapshots: Sender<Snapshot>,
    results: Receiver<anyhow::Result<()>>,
    /// A result has not come yet.
    is_busy: bool,
    /// The cursor that was saved last, or is being saved.
    cursor: Option<Cursor>,
}

impl Saver {
    /// Starts the thread, which is confined as this one is.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(mut state: State) -> anyhow::Result<Self> {
        let (snapshots, next) = channel::<Snapshot>();
        let (done, results) = channel();
        thread::Builder::new()
            .name("tlg-saver".to_owned())
            .spawn(move || {
                for snapshot in next {
                    if done.send(state.save(snapshot)).is_err() {
                        break;
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(Self {
            snapshots,
            results,
            is_busy: false,
            cursor: None,
        })
    }

    /// Whether this cursor is saved, or will be.
    pub(super) fn has(&self, cursor: Option<Cursor>) -> bool {
        self.cursor == cursor
    }

    /// How the last state was saved, once.
    pub(super) fn result(&mut self) -> Option<anyhow::Result<()>> {
        match self.results.try_recv() {
            Ok(result) => Some(self.ended(Some(result))),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(self.ended(None)),
        }
    }

    /// Waits until the last state is saved.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        match self.is_busy {
            true => {
                let result = self.results.recv();
                self.ended(result.ok())
            }
            false => Ok(()),
        }
    }

    fn ended(&mut self, result: Option<anyhow::Result<()>>) -> anyhow::Result<()> {
        self.is_busy = false;
        let no_thread = || Err(anyhow!("the thread that saves the state has ended"));
        let result = result.unwrap_or_else(no_thread);
        if result.is_err() {
            self.cursor = None;
        }
        result
    }

    /// Whether a state can be saved now.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_busy
    }

    /// Begins to save a state, if none is being saved.
    pub(super) fn save(&mut self, snapshot: Snapshot) {
        let cursor = snapshot.cursor;
        if self.is_idle() {
            // Without a thread, there will be no result either.
            let _sent = self.snapshots.send(snapshot);
            self.is_busy = true;
            self.cursor = cursor;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn state_that_cannot_be_written_is_an_error_and_not_taken_for_saved() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        fs::create_dir(&path).unwrap();
        let mut saver = Saver::start(State::open(&path).unwrap()).unwrap();
        let cursor = Some("1:2:3:4:5".parse().unwrap());
        let snapshot = || Snapshot {
            cursor,
            ..Snapshot::default()
        };
        saver.save(snapshot());
        assert!(saver.has(cursor) && !saver.is_idle());
        saver.wait().unwrap();
        assert!(saver.has(cursor) && saver.is_idle() && saver.result().is_none());
        fs::remove_dir_all(&path).unwrap();
        let next = Some("1:2:3:5:6".parse().unwrap());
        saver.save(Snapshot {
            cursor: next,
            ..Snapshot::default()
        });
        let error = format!("{:#}", saver.wait().unwrap_err());
        assert!(error.contains("cannot write"), "{error}");
        assert!(!saver.has(next) && saver.is_idle());
    }
}
