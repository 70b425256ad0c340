//! Asks the daemon for its state, in a thread: an answer may take as long as the disk of the daemon is slow.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::status::{RuleCosts, Status};

/// The daemon at one time.
#[derive(Debug)]
pub(crate) struct Poll {
    /// Its state, or why there is none.
    pub(crate) status: Result<Status, String>,
    /// What its rules cost, if they were asked for.
    pub(crate) costs: Option<RuleCosts>,
    pub(crate) at: Instant,
}

/// A running poller.
#[derive(Debug)]
pub(crate) struct Poller {
    requests: Sender<Request>,
    polls: Receiver<Poll>,
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    wants_costs: bool,
}

impl Poller {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(control: Control) -> anyhow::Result<Self> {
        let (requests, taken) = channel::<Request>();
        let (answers, polls) = channel();
        thread::Builder::new()
            .name("status".to_owned())
            .spawn(move || {
                for request in taken {
                    if answers.send(poll(&control, request)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            requests,
            polls,
            is_waiting: false,
        })
    }

    /// Asks, unless an answer is still to come.
    pub(crate) fn ask(&mut self, wants_costs: bool) {
        if !self.is_waiting {
            self.is_waiting = self.requests.send(Request { wants_costs }).is_ok();
        }
    }

    /// The answer, if it has come.
    pub(crate) fn answer(&mut self) -> Option<Poll> {
        let poll = self.polls.try_recv().ok()?;
        self.is_waiting = false;
        Some(poll)
    }

    /// Waits for the answer.
    pub(crate) fn wait(&mut self, longest: Duration) -> Option<Poll> {
        let poll = self.polls.recv_timeout(longest).ok()?;
        self.is_waiting = false;
        Some(poll)
    }
}

fn poll(control: &Control, request: Request) -> Poll {
    let status = control.status().map_err(|error| format!("{error:#}"));
    let at = Instant::now();
    // A daemon of an earlier version does not know them.
    let costs = (request.wants_costs && status.is_ok())
        .then(|| control.rule_costs().ok())
        .flatten();
    Poll { status, costs, at }
}
