//! Counts what a page shows.

use std::collections::HashMap;
use std::io;

use bstr::ByteSlice as _;

use super::timeline::Timeline;
use crate::accounts::Accounts;
use crate::ctext;
use crate::event::Event;
use crate::events::{Sink, Step};
use crate::fields::{FAILED, NO_LOGIN, Reader, Wanted};
use crate::interpret::Machine;
use crate::record_type as ty;

/// Most different texts of a kind, and most bytes of them; later ones count as others. A hostile log cannot fill the
/// memory.
const MOST_TEXTS: usize = 100_000;
const MOST_TEXT_BYTES: usize = 16 << 20;

/// Texts and how often each was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    counts: HashMap<Vec<u8>, u64>,
    /// Bytes of the texts.
    bytes: usize,
    others: u64,
}

impl Ranking {
    pub(super) fn add(&mut self, text: &[u8]) {
        if let Some(count) = self.counts.get_mut(text) {
            *count += 1;
        } else if self.counts.len() < MOST_TEXTS && self.bytes + text.len() <= MOST_TEXT_BYTES {
            self.bytes += text.len();
            self.counts.insert(text.to_vec(), 1);
        } else {
            self.others += 1;
        }
    }

    /// The most frequent, and how many events all others have.
    pub(super) fn top(&self, most: usize) -> (Vec<(&[u8], u64)>, u64) {
        let mut ranked: Vec<(&[u8], u64)> = self
            .counts
            .iter()
            .map(|(text, count)| (&text[..], *count))
            .collect();
        ranked.sort_unstable_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        let others: u64 = ranked.iter().skip(most).map(|&(_, count)| count).sum();
        ranked.truncate(most);
        (ranked, others + self.others)
    }
}

/// A loss that the log reports.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) seconds: u64,
    pub(super) events: u64,
    pub(super) reason: String,
}

/// A time without a daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blind {
    pub(super) from: u64,
    pub(super) to: u64,
    /// No record tells that the daemon ended: `from` is the last event before.
    pub(super) was_killed: bool,
}

/// What a page shows.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) accounts: Accounts,
    pub(super) sources: Vec<String>,
    pub(super) events: u64,
    pub(super) failed: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) timeline: Timeline,
    /// Keys in the order in which they were seen; the first is that of events without one.
    pub(super) keys: Vec<Vec<u8>>,
    key_index: HashMap<Vec<u8>, usize>,
    pub(super) by_key: Vec<u64>,
    pub(super) programs: Ranking,
    pub(super) users: Ranking,
    pub(super) files: Ranking,
    pub(super) addresses: Ranking,
    pub(super) failures: Ranking,
    pub(super) losses: Vec<Loss>,
    pub(super) blind: Vec<Blind>,
    /// For the standard error.
    pub(super) messages: Vec<u8>,
    /// The daemons, by node.
    daemons: HashMap<Option<Vec<u8>>, DaemonTimes>,
}

/// What is known of the daemon of a node.
///
/// # Units
/// Seconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct DaemonTimes {
    /// When it ended, if it has not started again.
    ended: Option<u64>,
    /// The last event, unless it ended.
    last: Option<u64>,
}

/// Most bytes of messages.
const MOST_MESSAGE_BYTES: usize = 1 << 16;
/// Most keys with a colour or a row of their own in memory.
const MOST_KEYS: usize = 1000;
/// Most losses and blind times.
const MOST_LOSSES: usize = 200;
/// Most nodes.
const MOST_NODES: usize = 1000;

impl Gather {
    pub(super) fn new() -> Self {
        Self {
            accounts: Accounts::default(),
            sources: Vec::new(),
            events: 0,
            failed: 0,
            first: 0,
            last: 0,
            timeline: Timeline::new(),
            keys: vec![b"(no key)".to_vec()],
            key_index: HashMap::new(),
            by_key: vec![0],
            programs: Ranking::default(),
            users: Ranking::default(),
            files: Ranking::default(),
            addresses: Ranking::default(),
            failures: Ranking::default(),
            losses: Vec::new(),
            blind: Vec::new(),
            messages: Vec::new(),
            daemons: HashMap::new(),
        }
    }

    pub(super) fn name_source(&mut self, name: &str) {
        self.sources.push(name.to_owned());
    }

    fn key(&mut self, key: Option<&Vec<u8>>) -> usize {
        let Some(key) = key.filter(|key| *key != b"(null)") else {
            return 0;
        };
        if let Some(&index) = self.key_index.get(key) {
            return index;
        }
        if self.keys.len() >= MOST_KEYS {
            return 0;
        }
        let index = self.keys.len();
        self.keys.push(key.clone());
        self.by_key.push(0);
        self.key_index.insert(key.clone(), index);
        index
    }

    /// Takes losses and blind times from a record of the daemon or the kernel.
    fn note_losses(&mut self, event: &Event) {
        let seconds = event.id.seconds;
        for record in event.records() {
            if let Some(lost) =
                value(record.text, " lost=").or_else(|| value(record.text, " audit_lost="))
            {
                let reason = value(record.text, " reason=").unwrap_or(b"the kernel's queue");
                let events = ctext::unsigned(lost, 10).value;
                if self.losses.len() < MOST_LOSSES && events != 0 {
                    self.losses.push(Loss {
                        seconds,
                        events,
                        reason: reason
                            .trim_with(|byte| byte == '"')
                            .to_str_lossy()
                            .into_owned(),
                    });
                }
            }
        }
        self.note_daemon(event);
    }

    /// Takes times without a daemon. One that was killed wrote no record at its end, but it wrote events before.
    fn note_daemon(&mut self, event: &Event) {
        let seconds = event.id.seconds;
        let is_known = self.daemons.contains_key(&event.id.node);
        if !is_known && self.daemons.len() >= MOST_NODES {
            return;
        }
        let daemon = self.daemons.entry(event.id.node.clone()).or_default();
        match event.kind {
            DAEMON_END | ty::DAEMON_ABORT => {
                daemon.ended = Some(seconds);
                daemon.last = None;
            }
            ty::DAEMON_START => {
                let killed = daemon.last.filter(|&last| last < seconds);
                let ended = daemon.ended.take();
                daemon.last = Some(seconds);
                if let Some(from) = ended.or(killed).filter(|_| self.blind.len() < MOST_LOSSES) {
                    self.blind.push(Blind {
                        from,
                        to: seconds,
                        was_killed: ended.is_none(),
                    });
                }
            }
            _ if daemon.ended.is_none() => daemon.last = daemon.last.max(Some(seconds)),
            _ => {}
        }
    }
}

/// # Source
/// `AUDIT_DAEMON_END` in `lib/audit-records.h`, audit-userspace 4.2.1.
const DAEMON_END: i32 = 1201;

/// The name of the login user that an enriched event has itself: the host that wrote it knew it at that time.
fn login_name(event: &Event) -> Option<&[u8]> {
    let names = event.records().find_map(|record| record.names)?;
    let (_, name) = names.split_once_str("AUID=\"")?;
    let name = name.split(|&byte| byte == b'"').next()?;
    (name != b"unset" && !name.starts_with(b"unknown(")).then_some(name)
}

/// The word behind `name`.
fn value<'t>(text: &'t [u8], name: &str) -> Option<&'t [u8]> {
    let (_, rest) = text.split_once_str(name)?;
    rest.split(|&byte| byte == b' ').next()
}

impl Sink for Gather {
    fn event(&mut self, event: &Event) -> io::Result<Step> {
        let wanted = Wanted::FILE
            | Wanted::HOST
            | Wanted::EXE
            | Wanted::KEY
            | Wanted::AUID
            | Wanted::SUCCESS
            | Wanted::EXIT
            | Wanted::ARCH;
        if self.events == 0 {
            self.first = event.id.seconds;
        }
        self.events += 1;
        self.last = self.last.max(event.id.seconds);
        self.note_losses(event);
        let mut reader = Reader::new(wanted, &mut self.accounts);
        let found = reader.event(event);
        let Some(found) = found else {
            self.timeline.add(event.id.seconds, 0);
            self.by_key[0] += 1;
            return Ok(Step::Next);
        };
        let key = self.key(found.keys.as_ref().and_then(|keys| keys.first()));
        self.timeline.add(event.id.seconds, key);
        if let Some(count) = self.by_key.get_mut(key) {
            *count += 1;
        }
        if let Some(exe) = &found.exe {
            self.programs.add(exe);
        }
        if found.auid.id != NO_LOGIN {
            let of_host = || self.accounts.exact_user(found.auid.id);
            let name = login_name(event).map(<[u8]>::to_vec).or_else(of_host);
            self.users
                .add(&name.unwrap_or_else(|| found.auid.id.to_string().into_bytes()));
        }
        for file in found.files.iter().flatten() {
            self.files.add(&file.name);
        }
        if let Some(host) = found.host.as_ref().filter(|host| ***host != *b"?") {
            self.addresses.add(host);
        }
        if found.success == FAILED {
            self.failed += 1;
            let syscall = Machine::of_arch(found.arch).syscall_name(found.syscall);
            let what = syscall.or_else(|| ty::name(event.kind)).unwrap_or("event");
            let errno = found
                .exit
                .and_then(|exit| i32::try_from(exit.checked_neg()?).ok());
            let why = errno.and_then(audit::table::errno_name).unwrap_or("failed");
            self.failures.add(format!("{what} {why}").as_bytes());
        }
        Ok(Step::Next)
    }

    fn message(&mut self, message: &[u8]) -> io::Result<()> {
        // A log of bad lines has no end.
        if self.messages.len() < MOST_MESSAGE_BYTES {
            self.messages.extend_from_slice(message);
        }
        Ok(())
    }

    fn pause(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_hostile_log_do_not_fill_the_memory() {
        let mut ranking = Ranking::default();
        let long = vec![b'x'; 1 << 20];
        for number in 0..40_u32 {
            ranking.add(&[&long, &number.to_le_bytes()[..]].concat());
        }
        assert!(ranking.bytes <= MOST_TEXT_BYTES);
        let (top, others) = ranking.top(3);
        assert_eq!((top.len(), others), (3, 37));
    }
}
