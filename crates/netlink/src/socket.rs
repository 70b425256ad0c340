//! The control side of the kernel's own audit: settings, rules, registration.
//!
//! Rules are raw `struct audit_rule_data`: what [`AuditSocket::rules`] lists can be added again byte for
//! byte, whatever fields it uses.

use std::io;
use std::os::fd::OwnedFd;

use audit::ids::MsgType;

use crate::protocol::{
    AUDIT_ADD_RULE, AUDIT_DEL_RULE, AUDIT_FILTER_TASK, AUDIT_GET, AUDIT_LIST_RULES, AUDIT_NEVER,
    AUDIT_SET, AUDIT_STATUS_BACKLOG_LIMIT, AUDIT_STATUS_BACKLOG_WAIT_TIME, AUDIT_STATUS_ENABLED,
    AUDIT_STATUS_FAILURE, AUDIT_STATUS_PID, AUDIT_STATUS_RATE_LIMIT, change, open_socket, read_u32,
    request, to_bytes,
};

/// `mask` of `struct audit_status`: the members of [`KernelAuditSettings`].
const ALL_SETTINGS: u32 = AUDIT_STATUS_ENABLED
    | AUDIT_STATUS_FAILURE
    | AUDIT_STATUS_RATE_LIMIT
    | AUDIT_STATUS_BACKLOG_LIMIT
    | AUDIT_STATUS_BACKLOG_WAIT_TIME;
/// `sizeof(struct audit_rule_data)` without `buf`.
const RULE_BYTES: usize = 1040;
/// Attempts to replace a registered daemon that may be dead.
const REPLACE_ATTEMPTS: u32 = 5;

/// Settings of the kernel's audit.
///
/// # Source
/// `struct audit_status`, `include/uapi/linux/audit.h`, Linux 6.12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelAuditSettings {
    /// 0 off, 1 on, 2 on and locked until reboot.
    pub enabled: u32,
    /// Action on a lost record: 0 none, 1 printk, 2 panic.
    pub failure: u32,
    /// Maximum records per second; 0 is unlimited.
    pub rate_limit: u32,
    /// Maximum records in the backlog.
    pub backlog_limit: u32,
    /// Time that a task waits for room in the backlog.
    ///
    /// # Units
    /// Ticks.
    pub backlog_wait_time: u32,
}

/// Settings and counters of the kernel's audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditStatus {
    /// Settings.
    pub settings: KernelAuditSettings,
    /// The registered audit daemon, 0 for none.
    pub pid: u32,
    /// Records lost since boot.
    pub lost: u32,
    /// Records in the backlog.
    pub backlog: u32,
}

/// Netlink socket that reads and changes the kernel's audit.
#[derive(Debug)]
pub struct AuditSocket(OwnedFd);

impl AuditSocket {
    /// Opens the socket.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` when the kernel has no audit.
    pub fn open() -> io::Result<Self> {
        open_socket().map(Self)
    }

    /// Reads settings and counters.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`.
    pub fn status(&self) -> io::Result<AuditStatus> {
        let mut status = None;
        request(&self.0, AUDIT_GET, &[], |kind, body| {
            if kind == AUDIT_GET {
                status = parse_status(body);
            }
        })?;
        status.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Changes all settings.
    ///
    /// # Errors
    /// `EPERM`, also when the settings are locked.
    pub fn set_settings(&self, settings: &KernelAuditSettings) -> io::Result<()> {
        self.set_status(&[
            ALL_SETTINGS,
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

    /// Lists the rules, in the kernel's order and encoding.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`.
    pub fn rules(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut rules = Vec::new();
        request(&self.0, AUDIT_LIST_RULES, &[], |kind, body| {
            if kind == AUDIT_LIST_RULES {
                rules.push(body.to_vec());
            }
        })?;
        Ok(rules)
    }

    /// Adds a rule, encoded as `struct audit_rule_data`.
    ///
    /// # Errors
    /// `EEXIST` when it is loaded already; `EINVAL` and others when the kernel rejects it.
    pub fn add_rule(&self, rule: &[u8]) -> io::Result<()> {
        change(&self.0, AUDIT_ADD_RULE, rule)
    }

    /// Deletes a rule.
    ///
    /// # Errors
    /// `ENOENT` when it is not loaded.
    pub fn delete_rule(&self, rule: &[u8]) -> io::Result<()> {
        change(&self.0, AUDIT_DEL_RULE, rule)
    }

    /// Adds `-a never,task`. Without it, a task that starts while audit is enabled, or after it was once
    /// enabled, enters audit at every syscall until it ends.
    ///
    /// # Errors
    /// As [`Self::add_rule`].
    pub fn add_never_task(&self) -> io::Result<()> {
        self.add_rule(&never_task())
    }

    /// Deletes `-a never,task`.
    ///
    /// # Errors
    /// As [`Self::delete_rule`].
    pub fn delete_never_task(&self) -> io::Result<()> {
        self.delete_rule(&never_task())
    }

    /// Deletes all rules.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`, or when the rules are locked.
    pub fn delete_rules(&self) -> io::Result<()> {
        for rule in self.rules()? {
            self.delete_rule(&rule)?;
        }
        Ok(())
    }

    /// Unregisters this process as audit daemon.
    ///
    /// # Errors
    /// `EACCES` when another process is registered.
    pub fn unregister(&self) -> io::Result<()> {
        self.set_status(&[AUDIT_STATUS_PID, 0, 0, 0])
    }

    /// Unregisters an audit daemon that died without unregistering.
    ///
    /// The kernel notices a dead daemon when it next sends it a message. An attempt to register makes it
    /// send one; the attempt after that succeeds, and this process unregisters again.
    ///
    /// # Errors
    /// `EEXIST` when the daemon is alive.
    pub fn unregister_dead_daemon(&self) -> io::Result<()> {
        let pid = std::process::id();
        for attempt in 1.. {
            match self.set_status(&[AUDIT_STATUS_PID, 0, 0, pid]) {
                Ok(()) => break,
                Err(error) if attempt == REPLACE_ATTEMPTS => return Err(error),
                Err(_) => {}
            }
        }
        self.unregister()
    }

    /// Sends a user message, which the kernel turns into a record of the same type.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_WRITE`; `EINVAL` when `record_type` is not a user message type.
    pub fn send_user_message(&self, record_type: MsgType, text: &str) -> io::Result<()> {
        // The kernel overwrites the last byte with a NUL.
        change(&self.0, record_type.0, format!("{text}\0").as_bytes())
    }

    /// Sets members of `struct audit_status`; the first word is `mask`.
    fn set_status(&self, words: &[u32]) -> io::Result<()> {
        change(&self.0, AUDIT_SET, &to_bytes(words))
    }
}

/// The rule `-a never,task`.
fn never_task() -> Vec<u8> {
    let mut rule = to_bytes(&[AUDIT_FILTER_TASK, AUDIT_NEVER]);
    rule.resize(RULE_BYTES, 0);
    rule
}

/// Parses `struct audit_status`; before Linux 3.14 it has no `backlog_wait_time`.
fn parse_status(body: &[u8]) -> Option<AuditStatus> {
    Some(AuditStatus {
        settings: KernelAuditSettings {
            enabled: read_u32(body, 4)?,
            failure: read_u32(body, 8)?,
            rate_limit: read_u32(body, 16)?,
            backlog_limit: read_u32(body, 20)?,
            backlog_wait_time: read_u32(body, 36).unwrap_or(0),
        },
        pid: read_u32(body, 12)?,
        lost: read_u32(body, 24)?,
        backlog: read_u32(body, 28)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_status_is_parsed_by_offset() {
        let body = to_bytes(&[0xff, 1, 2, 77, 5, 64, 9, 3, 0, 15_000, 4]);
        assert_eq!(
            parse_status(&body),
            Some(AuditStatus {
                settings: KernelAuditSettings {
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
        assert_eq!(parse_status(&body[..20]), None);
    }
}
