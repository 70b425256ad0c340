//! The main thread's loop: signals, the control socket and timers.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;

use crate::control::change_records::Requester;
use crate::control::protocol::{Answer, Refusal, Request};
use crate::control::rule_store::RuleStore;
use crate::control::server::{EndingServer, Peer, Reply, Server, poll_timeout};
use crate::control::watch::{self, WatchRequest};
use crate::daemon::last_good::LastGoodFile;
use crate::daemon::log_controller::LogController;
use crate::daemon::pipeline_handle::PipelineHandle;
use crate::daemon::start::rules::LoadedFiles;
use crate::daemon::start::{ReloadRules, RuleSource, fallback, rules};
use crate::daemon::systemd::ServiceManager;
use crate::messages::warn;
use crate::rule_files::{self, Refused};
use crate::sinks::audit_log::SignalSender;
use crate::sinks::viewers::NewViewer;

/// Signal numbers, as `ssi_signo` of `signalfd_siginfo` has them.
const HANGUP: u32 = Signal::SIGHUP as u32;
const QUIT: u32 = Signal::SIGQUIT as u32;

/// Time between two collections of the status for clients that are not root.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// Why files are still refused after a reload without errors.
const NEEDS_RESTART: &str =
    "settings of tollgate.toml that differ from those in force need `systemctl restart tollgate`";

/// State of the main thread while the pipeline runs.
pub(super) struct EventLoop {
    pub(super) signals: SignalFd,
    /// Readable when the pipeline has ended.
    pub(super) ended: Arc<EventFd>,
    pub(super) server: Option<Server>,
    pub(super) reload_rules: ReloadRules,
    pub(super) store: RuleStore,
    pub(super) pipeline: PipelineHandle,
    pub(super) log_controller: LogController,
    pub(super) manager: ServiceManager,
    /// Status text for the service manager.
    pub(super) status: String,
    /// The last good rules of this daemon; `None` for a trial.
    pub(super) last_good: Option<LastGoodFile>,
    /// The last status that a client other than root got.
    pub(super) last_status: Option<(Instant, Answer)>,
}

impl EventLoop {
    /// Runs until a signal or the end of the pipeline. Returns whether BPF objects stay pinned for the next daemon.
    ///
    /// # Errors
    /// A descriptor cannot be polled or read.
    pub(super) fn run(&mut self) -> anyhow::Result<bool> {
        loop {
            let due = [
                self.log_controller.next_poll(),
                self.pipeline.next_poll(),
                self.manager.next_poll(),
            ];
            self.wait(due.into_iter().flatten().min())?;
            if let Some(Refused(reason)) = self.log_controller.poll() {
                self.store.set_refused_files(reason, None);
            }
            self.pipeline.poll();
            self.manager.poll(|| self.pipeline.is_alive());
            let signal = self.signals.read_signal().context("cannot read signals")?;
            match signal {
                Some(signal) if signal.ssi_signo == HANGUP => {
                    // Read the sender's audit IDs at once: the process may end at any time.
                    let author = Requester::from_signal(&signal);
                    // Every failure has been reported.
                    let _outcome = self.reload(author);
                }
                Some(signal) if self.log_controller.handle_signal(&signal) => {}
                // Locked programs stay attached: the next daemon continues.
                Some(end) => return Ok(end.ssi_signo == QUIT || self.store.is_locked()),
                None if self.ended.read().is_ok() => return Ok(false),
                None => {}
            }
            self.pipeline.set_log_path(self.log_controller.log());
            if let Some(mut server) = self.server.take() {
                server.serve(&mut |peer, request| self.reply(peer, request));
                self.server = Some(server);
            }
        }
    }

    /// Handles a request.
    fn reply(&mut self, peer: Peer, request: Request) -> Reply {
        match request {
            Request::Watch(wanted) => self.watch(peer, &wanted),
            Request::Reload => Reply::Answer(self.answer_reload(peer)),
            Request::Status if !peer.is_root() => Reply::Answer(self.shared_status(peer)),
            request => Reply::Answer(self.store.handle(peer, request, &mut self.pipeline)),
        }
    }

    /// Gives the connection to the thread that serves viewers.
    fn watch(&self, peer: Peer, wanted: &WatchRequest) -> Reply {
        let filter = match wanted.filter() {
            Ok(filter) => filter,
            Err(error) => {
                let refusal = Refusal::with_reason(Errno::EINVAL, format!("{error:#}"));
                return Reply::Answer(Answer::Refused(refusal));
            }
        };
        let (viewers, sample) = (self.pipeline.viewers.clone(), wanted.sample);
        Reply::HandOver(Box::new(move |stream| {
            viewers.add(NewViewer {
                stream,
                pid: peer.pid,
                is_root: peer.is_root(),
                filter,
                sample,
                welcome: watch::welcome(),
                refusal: watch::refusal,
            });
        }))
    }

    /// The status for a client that is not root: such clients cannot make the daemon collect it more often than
    /// [`STATUS_INTERVAL`].
    fn shared_status(&mut self, peer: Peer) -> Answer {
        let recent = self.last_status.take();
        let recent = recent.filter(|(time, _)| time.elapsed() < STATUS_INTERVAL);
        let (_, answer) = self.last_status.insert(recent.unwrap_or_else(|| {
            let answer = self.store.handle(peer, Request::Status, &mut self.pipeline);
            (Instant::now(), answer)
        }));
        answer.clone()
    }

    /// Handles the request to reload.
    fn answer_reload(&mut self, peer: Peer) -> Answer {
        match self.reload(Requester::from_peer(peer)) {
            Ok(()) => Answer::Done,
            Err(Refused(reason)) => Answer::Refused(Refusal::with_reason(Errno::EINVAL, reason)),
        }
    }

    /// Reads auditd.conf, the plugins, tollgate.toml and the rules again, and tells the service manager.
    fn reload(&mut self, author: Requester) -> Result<(), Refused> {
        self.manager.reloading();
        let source = (self.reload_rules)();
        let needs_restart = source.as_ref().is_ok_and(|source| source.needs_restart);
        let outcome = self.apply_files(source, author);
        match &outcome {
            Ok(files) => {
                // After a start with the last good tollgate.toml its settings, other than rules, stay in force.
                if needs_restart && self.store.refused_files().is_some() {
                    self.store.set_refused_files(NEEDS_RESTART.to_owned(), None);
                } else {
                    self.store.clear_refused_files();
                }
                if let Some(file) = &self.last_good {
                    file.save(&files.texts, files.settings.clone(), &self.store);
                }
            }
            // The files do not matter until the next boot.
            Err(_) if self.store.is_locked() => {}
            Err(Refused(reason)) => self.store.set_refused_files(reason.clone(), None),
        }
        self.manager
            .ready(&fallback::status_text(&self.status, &self.store));
        outcome.map(drop)
    }

    /// Applies all files, or none if one has errors. Rules that `-e 2` has locked do not keep auditd.conf from being
    /// applied.
    fn apply_files(
        &mut self,
        source: Result<RuleSource, Refused>,
        author: Requester,
    ) -> Result<LoadedFiles, Refused> {
        let rules = source.and_then(|source| rules::read(&source, &self.store));
        let is_refused = rules.as_ref().err().filter(|_| !self.store.is_locked());
        let Requester { peer, .. } = author;
        let sender = SignalSender::of(peer.pid.cast_unsigned(), peer.uid);
        let log = self.log_controller.reload(sender, is_refused.cloned());
        if let (Ok(_), Err(_)) = (&rules, &log) {
            let unchanged = rule_files::RULES_UNCHANGED;
            warn(&format!("{unchanged}, too: auditd.conf is refused"));
        }
        let loaded = rules.and_then(|rules| {
            log?;
            rules::put_in_force(rules, author, &mut self.store, &mut self.pipeline)
        });
        if loaded.is_err() {
            self.store.record_failed_load(&author, &mut self.pipeline);
        }
        loaded
    }

    /// Tells the service manager that the daemon stops, and refuses requests from here on.
    ///
    /// # Errors
    /// There are no resources for a thread.
    pub(super) fn end(
        mut self,
    ) -> anyhow::Result<(PipelineHandle, LogController, Option<EndingServer>)> {
        self.manager.stopping();
        let refusing = self.server.take().map(EndingServer::start).transpose()?;
        Ok((self.pipeline, self.log_controller, refusing))
    }

    /// Waits for a signal, the end of the pipeline or a client, at most `longest`.
    fn wait(&self, longest: Option<Duration>) -> anyhow::Result<()> {
        let server = self.server.as_ref();
        let mut wakers = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.ended.as_fd(), PollFlags::POLLIN),
        ];
        wakers.extend(server.map(|server| PollFd::new(server.as_fd(), PollFlags::POLLIN)));
        let client_time = server.and_then(Server::time_left);
        let shortest = client_time.into_iter().chain(longest).min();
        match poll(&mut wakers, poll_timeout(shortest)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait for signals"),
        }
    }
}
