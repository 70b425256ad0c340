//! The terminal: the loop of keys and intervals. The terminal is restored however the program ends.
//!
//! Panics restore it by the hook of [`ratatui::init`]. Signals that end programs are blocked, and a thread that waits
//! for them sets a flag: the loop sees it within [`LATENCY`], or at the next key. A closed terminal ends the loop by an
//! error. This program waits for input itself, because crossterm waits in vain, and busily, if the terminal is closed.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::control::Control;
use crate::model::Model;
use crate::poller::Poller;
use crate::stream::{Sample, Stream};
use crate::ui::{Action, Ui};
use crate::users::Users;
use crate::view;

/// Longest wait for a key before signals and answers are looked at.
const LATENCY: Duration = Duration::from_millis(200);

/// How long the loop may take to end after a signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shows the daemon until the user or a signal ends the program.
///
/// # Errors
/// The terminal fails, or has been closed.
pub(crate) fn run(control: &Control, interval: Duration, sample: u32) -> anyhow::Result<()> {
    let has_ended = end_flag().context("cannot wait for signals")?;
    let screen = Screen {
        control: control.clone(),
        interval,
        sample,
        poller: Poller::start(control.clone())?,
        stream: Stream::start(control.clone(), crate::control::Filter::default(), sample)?,
        records: None,
        model: Model::new(Users::read()),
        ui: Ui::default(),
        last: None,
    };
    let mut terminal = ratatui::try_init().context("cannot set the terminal up")?;
    let ended = screen.run(&mut terminal, &has_ended);
    ratatui::restore();
    ended.context("the terminal fails")
}

/// A flag that a signal sets.
fn end_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let signals: SigSet = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ]
    .into_iter()
    .collect();
    // Before any other thread starts: all of them inherit it.
    signals.thread_block()?;
    let flag = Arc::new(AtomicBool::new(false));
    let of_thread = Arc::clone(&flag);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let signal = signals.wait();
            of_thread.store(true, Ordering::Release);
            // The loop ends the program, unless it is stuck in a terminal that has been closed.
            thread::park_timeout(PATIENCE);
            if let Ok(signal) = signal {
                let _unblocked = signals.thread_unblock();
                let _raised = raise(signal);
            }
        })?;
    Ok(flag)
}

/// Waits for a key.
fn wait_for_input(longest: Duration) -> anyhow::Result<()> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX);
    match poll(&mut input, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    let found = input.iter().filter_map(PollFd::revents);
    ensure!(
        !found.into_iter().any(|found| found.intersects(gone)),
        "it has been closed"
    );
    Ok(())
}

struct Screen {
    control: Control,
    interval: Duration,
    sample: u32,
    poller: Poller,
    stream: Stream,
    /// The stream of the list of records.
    records: Option<Stream>,
    model: Model,
    ui: Ui,
    /// When the daemon was last asked, and its state was taken over.
    last: Option<Instant>,
}

impl Screen {
    fn run(mut self, terminal: &mut DefaultTerminal, end: &AtomicBool) -> anyhow::Result<()> {
        let mut due = Instant::now();
        self.draw(terminal)?;
        while !end.load(Ordering::Acquire) {
            let now = Instant::now();
            if now >= due {
                due = (due + self.interval).max(now);
                self.poller.ask(self.model.lacks_costs());
            }
            let has_news = self.take_answer();
            let has_records = self.take_records();
            if has_news || has_records {
                self.draw(terminal)?;
            }
            let left = due.saturating_duration_since(Instant::now());
            wait_for_input(left.min(LATENCY))?;
            // Also sees a change of the size.
            if event::poll(Duration::ZERO)? && !self.handle(terminal)? {
                break;
            }
        }
        Ok(())
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
        terminal.draw(|frame| view::draw(frame, &self.model, &self.ui))?;
        Ok(())
    }

    /// Takes over the state of the daemon if it has answered. Returns whether there is something new to show.
    fn take_answer(&mut self) -> bool {
        let Some(poll) = self.poller.answer() else {
            return false;
        };
        let sample = self.stream.take();
        if self.ui.is_paused {
            return false;
        }
        // After a pause the rates are those of the whole pause.
        let passed = self.last.map_or(self.interval, |last| poll.at - last);
        self.last = Some(poll.at);
        if let Some(costs) = poll.costs {
            self.model.costs = costs;
        }
        match poll.status {
            Ok(status) => {
                self.model.update(status, passed);
                self.model.add_sample(sample, passed);
            }
            Err(error) => self.model.error = Some(error),
        }
        true
    }

    /// Takes over the events of the list of records.
    fn take_records(&mut self) -> bool {
        let (Some(stream), Some(list)) = (&self.records, &mut self.ui.records) else {
            return false;
        };
        let error = stream.error();
        let sample = stream.take();
        if self.ui.is_paused || (sample == Sample::default() && list.error == error) {
            return false;
        }
        list.error = error;
        list.add(sample);
        true
    }

    /// Handles an event of the terminal. Returns false if the program ends.
    fn handle(&mut self, terminal: &mut DefaultTerminal) -> anyhow::Result<bool> {
        let action = match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.ui.key(key, &self.model),
            Event::Resize(..) => Action::Draw,
            _ => return Ok(true),
        };
        match action {
            Action::Draw => {}
            Action::Quit => return Ok(false),
            Action::Suspend => {
                ratatui::restore();
                raise(Signal::SIGSTOP).context("cannot stop this program")?;
                *terminal = ratatui::try_init()?;
                terminal.clear()?;
            }
            Action::Open(filter) => {
                let stream = Stream::start(self.control.clone(), filter, self.sample)?;
                self.records = Some(stream);
            }
            Action::Close => self.records = None,
        }
        self.draw(terminal)?;
        Ok(true)
    }
}
