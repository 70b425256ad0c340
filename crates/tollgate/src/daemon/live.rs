//! The store's view of the running pipeline: orders to it, and what it says of itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use audit::ids::MsgType;
use audit::plan::Plan;
use audit::plan::hook::EngineKind;
use engine::{Attached, Cut, Lost, Runs};

use super::heartbeat::seconds;
use super::orders::{Orders, Replaced};
use super::pipeline::{Running, Started, Written};
use super::reader::Drained;
use super::store::Auditing;
use crate::control::rule::Text;
use crate::control::wire::{Confinement, Counts, Run, Status};

/// A running pipeline.
#[derive(Debug)]
pub(super) struct Live {
    orders: Orders,
    written: Arc<Written>,
    engine: EngineKind,
    /// What is attached now.
    pub(super) attached: Attached,
    log: PathBuf,
    confinement: Confinement,
}

impl Live {
    /// The pipeline that has been started, where it writes, and what the daemon has given up.
    pub(super) fn new(
        running: &Running,
        started: Started,
        log: PathBuf,
        confinement: Confinement,
    ) -> Self {
        Self {
            orders: running.orders(),
            written: running.written(),
            engine: started.engine,
            attached: started.attached,
            log,
            confinement,
        }
    }

    /// Whether the ring is drained: its thread answers only between two drains, and waits for the log.
    pub(super) fn is_alive(&self) -> bool {
        self.orders.account().is_ok()
    }

    fn counts(&self, account: &Drained) -> Counts {
        let Written { events, unwritten } = &*self.written;
        let named = |count: &u64, name: &str| (*count != 0).then(|| (name.to_owned(), *count));
        let unwritten = unwritten.load(Ordering::Relaxed);
        let others = [
            named(&unwritten, "not written"),
            named(&account.undecodable, "not decodable"),
        ];
        let lost = account.stats.lost.iter().zip(Lost::ALL);
        let cut = account.stats.cut.iter().zip(Cut::ALL);
        Counts {
            matched: account.stats.matched,
            delivered: account.stats.delivered,
            written: events.load(Ordering::Relaxed),
            lost: lost
                .filter_map(|(count, reason)| named(count, reason.reason()))
                .chain(others.into_iter().flatten())
                .collect(),
            incomplete: cut
                .filter_map(|(count, part)| named(count, part.part()))
                .collect(),
            blind_seconds: seconds(account.blind),
        }
    }
}

impl Auditing for Live {
    fn replace(&mut self, plan: Plan) -> anyhow::Result<()> {
        let Replaced { attached } = self.orders.replace(plan)?;
        self.attached = attached;
        Ok(())
    }

    fn record(&mut self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()> {
        self.orders.record(kind, body)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.orders.flush()
    }

    fn describe(&mut self, status: &mut Status) -> anyhow::Result<()> {
        use std::os::unix::ffi::OsStrExt as _;
        status.engine = self.engine.name().to_owned();
        status.hooks = self
            .attached
            .hooks
            .iter()
            .map(ToString::to_string)
            .collect();
        let absent = self.attached.absent.iter().copied();
        status.absent = absent.map(str::to_owned).collect();
        status.log = Text::new(self.log.as_os_str().as_bytes());
        status.confinement = self.confinement.clone();
        let account = self.orders.account()?;
        status.counts = self.counts(&account);
        status.runs = account
            .runs
            .into_iter()
            .map(
                |Runs {
                     hook,
                     runs,
                     time_ns,
                 }| Run {
                    hook,
                    runs,
                    nanoseconds: time_ns,
                },
            )
            .collect();
        Ok(())
    }
}
