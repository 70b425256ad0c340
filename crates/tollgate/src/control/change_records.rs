//! Records of changes of rules and settings (`CONFIG_CHANGE` and others).
//!
//! Only the text after the stamp, without the `subj=` field of a security module.

use std::fs;

use audit::ids::Auid;
use audit::record::quote;
use audit::rule::Rule;
use bstr::{BString, ByteSlice as _};
use nix::sys::signalfd::siginfo;
use nix::unistd::{getpid, getuid};

use crate::control::server::Peer;

/// Audit identity of the process that requested a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) peer: Peer,
    pub(crate) auid: u32,
    pub(crate) ses: u32,
}

impl Requester {
    /// Reads the login UID and session of a process. Best done while the process waits for its answer.
    pub(crate) fn from_peer(peer: Peer) -> Self {
        let number = |file: &str| {
            let text = fs::read_to_string(format!("/proc/{}/{file}", peer.pid)).ok()?;
            text.trim().parse().ok()
        };
        Self {
            peer,
            auid: number("loginuid").unwrap_or(Auid::UNSET.0),
            ses: number("sessionid").unwrap_or(u32::MAX),
        }
    }

    /// This process.
    pub(crate) fn this() -> Self {
        Self::from_peer(Peer {
            pid: getpid().as_raw(),
            uid: getuid().as_raw(),
        })
    }

    /// Identity of the sender of a signal.
    pub(crate) fn from_signal(signal: &siginfo) -> Self {
        Self::from_peer(Peer {
            // 0 if the kernel sent the signal.
            pid: signal.ssi_pid.cast_signed(),
            uid: signal.ssi_uid,
        })
    }

    /// # Source
    /// `audit_log_session_info()` in `kernel/audit.c`, Linux 6.12.
    fn session(&self) -> String {
        format!("auid={} ses={}", self.auid, self.ses)
    }

    /// # Source
    /// `audit_log_common_recv_msg()` in `kernel/audit.c`, Linux 6.12.
    fn sender(&self) -> String {
        let Peer { pid, uid } = self.peer;
        format!("pid={pid} uid={uid} {}", self.session())
    }
}

/// A rule was added or removed, or the attempt failed.
///
/// # Source
/// `audit_log_rule_change()` in `kernel/auditfilter.c`, Linux 6.12.
pub(crate) fn rule(author: &Requester, op: &str, rule: &Rule, done: bool) -> Vec<u8> {
    let mut body = format!("{} op={op} key=", author.session()).into_bytes();
    if rule.keys.is_empty() {
        body.extend(b"(null)");
    } else {
        quote::untrusted(&bstr::join([1], &rule.keys), &mut body);
    }
    let list = rule.list.number();
    body.extend(format!(" list={list} res={}", u8::from(done)).bytes());
    body
}

/// A change of rules was refused because they are locked.
///
/// # Source
/// `audit_receive_msg()` in `kernel/audit.c`, Linux 6.12.
pub(crate) fn locked(author: &Requester, op: &str) -> Vec<u8> {
    format!("{} op={op} audit_enabled=2 res=0", author.sender()).into_bytes()
}

/// No rule of the rule files was added.
///
/// # Source
/// As `audit_receive_msg()` in `kernel/audit.c`, Linux 6.12, writes it for locked rules, without `audit_enabled=2`.
pub(crate) fn rules_not_added(author: &Requester) -> Vec<u8> {
    format!("{} op=add_rule res=0", author.sender()).into_bytes()
}

/// A setting was changed.
pub(crate) fn setting(author: &Requester, name: &str, new: u64, old: u64) -> Vec<u8> {
    setting_attempt(author, name, new, old, true)
}

/// A setting was changed, or the attempt failed.
///
/// # Source
/// `audit_log_config_change()` in `kernel/audit.c`, Linux 6.12.
pub(crate) fn setting_attempt(
    author: &Requester,
    name: &str,
    new: u64,
    old: u64,
    done: bool,
) -> Vec<u8> {
    let (session, done) = (author.session(), u8::from(done));
    format!("op=set {name}={new} old={old} {session} res={done}").into_bytes()
}

/// Watched directories were resolved again.
///
/// # Source
/// `audit_receive_msg()` in `kernel/audit.c`, Linux 6.12, of `AUDIT_TRIM`.
pub(crate) fn trim(author: &Requester) -> Vec<u8> {
    format!("{} op=trim res=1", author.sender()).into_bytes()
}

/// A mount was added to a watched directory.
///
/// # Source
/// `audit_receive_msg()` in `kernel/audit.c`, Linux 6.12, of `AUDIT_MAKE_EQUIV`.
pub(crate) fn equivalent(author: &Requester, mount: &BString, subtree: &BString) -> Vec<u8> {
    let mut body = format!("{} op=make_equiv old=", author.sender()).into_bytes();
    quote::untrusted(mount.as_bytes(), &mut body);
    body.extend(b" new=");
    quote::untrusted(subtree.as_bytes(), &mut body);
    body.extend(b" res=1");
    body
}

/// A user message.
///
/// # Source
/// `audit_receive_msg()` in `kernel/audit.c`, Linux 6.12, of `AUDIT_USER`.
pub(crate) fn message(author: &Requester, text: &BString) -> Vec<u8> {
    let mut body = format!("{} msg='", author.sender()).into_bytes();
    body.extend_from_slice(text);
    body.push(b'\'');
    body
}

#[cfg(test)]
mod tests {
    use audit::rule::{Action, List, SyscallMask};

    use super::*;

    const AUTHOR: Requester = Requester {
        peer: Peer { pid: 7, uid: 0 },
        auid: 1000,
        ses: 3,
    };

    #[test]
    fn change_records_match_the_kernel() {
        let mut changed = Rule {
            list: List::Exit,
            action: Action::Always,
            syscalls: SyscallMask::all(),
            fields: Vec::new(),
            keys: vec!["k".into()],
        };
        let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
        assert_eq!(
            text(rule(&AUTHOR, "add_rule", &changed, true)),
            "auid=1000 ses=3 op=add_rule key=\"k\" list=4 res=1"
        );
        changed.keys = vec!["a".into(), "b".into()];
        assert_eq!(
            text(rule(&AUTHOR, "remove_rule", &changed, false)),
            "auid=1000 ses=3 op=remove_rule key=610162 list=4 res=0"
        );
        assert_eq!(
            text(setting(&AUTHOR, "audit_enabled", 1, 0)),
            "op=set audit_enabled=1 old=0 auid=1000 ses=3 res=1"
        );
        assert_eq!(
            text(locked(&AUTHOR, "add_rule")),
            "pid=7 uid=0 auid=1000 ses=3 op=add_rule audit_enabled=2 res=0"
        );
        assert_eq!(
            text(rules_not_added(&AUTHOR)),
            "pid=7 uid=0 auid=1000 ses=3 op=add_rule res=0"
        );
        assert_eq!(
            text(equivalent(&AUTHOR, &"/a".into(), &"/b c".into())),
            "pid=7 uid=0 auid=1000 ses=3 op=make_equiv old=\"/a\" new=2F622063 res=1"
        );
        assert_eq!(
            text(message(&AUTHOR, &"text=hello res=success".into())),
            "pid=7 uid=0 auid=1000 ses=3 msg='text=hello res=success'"
        );
    }
}
