//! The kernel's own audit, changed and put back over netlink.
//!
//! Rules are kept as the kernel lists them and given back byte for byte, so that what `auditctl -l` shows
//! afterwards is what it showed before, also for fields that no tool here knows.

use std::io;
use std::os::fd::OwnedFd;

use crate::protocol::{
    AUDIT_ADD_RULE, AUDIT_DEL_RULE, AUDIT_FILTER_TASK, AUDIT_GET, AUDIT_LIST_RULES, AUDIT_NEVER,
    AUDIT_SET, AUDIT_STATUS_PID, open, request, request_with, word,
};

/// `mask` of `struct audit_status`: the members that [`AuditSettings`] has.
const STATUS_SETTINGS: u32 = 0x01 | 0x02 | 0x08 | 0x10 | 0x20;
/// `sizeof(struct audit_rule_data)` without text.
const RULE_BYTES: usize = 1040;
/// Times that a registration which stands in the way is tried to be cleared.
const CLEARINGS: u32 = 5;

/// What an administrator sets.
///
/// # Source
/// `struct audit_status`, `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditSettings {
    /// 0 off, 1 on, 2 on and locked until the next boot.
    pub enabled: u32,
    /// What the kernel does when it cannot deliver: 0 nothing, 1 a message, 2 panic.
    pub failure: u32,
    /// Records a second; 0 is no limit.
    pub rate_limit: u32,
    /// Records that may wait for a reader.
    pub backlog_limit: u32,
    /// How long a task waits for room, in ticks.
    pub backlog_wait_time: u32,
}

/// What the kernel answers when it is asked how its audit does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditStatus {
    /// What is set.
    pub settings: AuditSettings,
    /// The process that records are sent to; 0 when there is none.
    pub pid: u32,
    /// Records that were lost since boot.
    pub lost: u32,
    /// Records that wait for a reader.
    pub backlog: u32,
}

/// A connection over which the kernel's audit is asked and changed.
#[derive(Debug)]
pub struct AuditSocket(OwnedFd);

impl AuditSocket {
    /// Connects.
    ///
    /// # Errors
    /// When the kernel has no audit.
    pub fn open() -> io::Result<Self> {
        open().map(Self)
    }

    /// Asks for settings and counters.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`.
    pub fn status(&self) -> io::Result<AuditStatus> {
        let mut status = None;
        request(&self.0, AUDIT_GET, |kind, body| {
            if kind == AUDIT_GET {
                status = read_status(body);
            }
        })?;
        status.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Changes all settings.
    ///
    /// # Errors
    /// `EPERM` also when they are locked.
    pub fn set(&self, settings: &AuditSettings) -> io::Result<()> {
        self.change(&[
            STATUS_SETTINGS,
            settings.enabled,
            settings.failure,
            0,
            settings.rate_limit,
            settings.backlog_limit,
            0,
            0,
            0,
            settings.backlog_wait_time,
        ])
    }

    /// The rules, in the kernel's order and form.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`.
    pub fn rules(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut rules = Vec::new();
        request(&self.0, AUDIT_LIST_RULES, |kind, body| {
            if kind == AUDIT_LIST_RULES {
                rules.push(body.to_vec());
            }
        })?;
        Ok(rules)
    }

    /// Adds a rule that [`Self::rules`] gave.
    ///
    /// # Errors
    /// `EEXIST` when it is there already; what it says of a rule that it does not take.
    pub fn add(&self, rule: &[u8]) -> io::Result<()> {
        request_with(&self.0, AUDIT_ADD_RULE, rule, |_, _| {})
    }

    /// Deletes a rule.
    ///
    /// # Errors
    /// `ENOENT` when it is not there.
    pub fn delete(&self, rule: &[u8]) -> io::Result<()> {
        request_with(&self.0, AUDIT_DEL_RULE, rule, |_, _| {})
    }

    /// Adds `-a never,task`, without which a task that starts while audit is or was enabled pays for
    /// audit at each call until it ends.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_never_task(&self) -> io::Result<()> {
        self.add(&never_task())
    }

    /// Deletes `-a never,task`.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub fn delete_never_task(&self) -> io::Result<()> {
        self.delete(&never_task())
    }

    /// Deletes all rules.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`, or when they are locked.
    pub fn delete_rules(&self) -> io::Result<()> {
        for rule in self.rules()? {
            self.delete(&rule)?;
        }
        Ok(())
    }

    /// Gives up the place of the process that records are sent to.
    ///
    /// # Errors
    /// `EACCES` when another process has it.
    pub fn unregister(&self) -> io::Result<()> {
        self.change(&[AUDIT_STATUS_PID, 0, 0, 0])
    }

    /// Makes the kernel forget a reader that has died without saying so.
    ///
    /// The kernel finds out when it next sends it something, and a process that wants to take its place
    /// makes it do so; then that process gives the place up.
    ///
    /// # Errors
    /// `EEXIST` when the reader is alive.
    pub fn unregister_dead_daemon(&self) -> io::Result<()> {
        let own = std::process::id();
        for attempt in 1.. {
            match self.change(&[AUDIT_STATUS_PID, 0, 0, own]) {
                Ok(()) => break,
                Err(error) if attempt == CLEARINGS => return Err(error),
                Err(_) => {}
            }
        }
        self.unregister()
    }

    fn change(&self, words: &[u32]) -> io::Result<()> {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        request_with(&self.0, AUDIT_SET, &body, |_, _| {})
    }
}

fn never_task() -> Vec<u8> {
    let mut rule = Vec::with_capacity(RULE_BYTES);
    rule.extend_from_slice(&AUDIT_FILTER_TASK.to_ne_bytes());
    rule.extend_from_slice(&AUDIT_NEVER.to_ne_bytes());
    rule.resize(RULE_BYTES, 0);
    rule
}

/// Reads `struct audit_status`; kernels before 3.14 have no wait time in it.
fn read_status(body: &[u8]) -> Option<AuditStatus> {
    Some(AuditStatus {
        settings: AuditSettings {
            enabled: word(body, 4)?,
            failure: word(body, 8)?,
            rate_limit: word(body, 16)?,
            backlog_limit: word(body, 20)?,
            backlog_wait_time: word(body, 36).unwrap_or(0),
        },
        pid: word(body, 12)?,
        lost: word(body, 24)?,
        backlog: word(body, 28)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_by_place() {
        let words: [u32; 11] = [0xff, 1, 2, 77, 5, 64, 9, 3, 0, 15_000, 4];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(
            read_status(&body),
            Some(AuditStatus {
                settings: AuditSettings {
                    enabled: 1,
                    failure: 2,
                    rate_limit: 5,
                    backlog_limit: 64,
                    backlog_wait_time: 15_000,
                },
                pid: 77,
                lost: 9,
                backlog: 3,
            })
        );
        assert_eq!(read_status(&body[..20]), None);
    }
}
