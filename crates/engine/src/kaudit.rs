//! The kernel's own audit, asked over netlink: is something else making every syscall pay?
//!
//! [`control`] changes it and puts it back, [`feature`] is what holds without it, [`stream`] takes what it
//! sends.

mod control;
mod feature;
mod stream;

use std::io;

pub use control::{AuditSocket, AuditSettings, AuditStatus};
pub use feature::LoginuidImmutable;
pub use stream::{Message, RecordError, RecordStream};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Message types of `include/uapi/linux/audit.h`, Linux 6.12.
const AUDIT_GET: u16 = 1000;
const AUDIT_LIST_RULES: u16 = 1013;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const HEADER: usize = 16;
const ANSWER_BYTES: usize = 16 << 10;
/// `struct audit_rule_data` starts with flags, which hold the list, and the action.
const AUDIT_FILTER_TASK: u32 = 1;
const AUDIT_NEVER: u32 = 0;
/// Its number of fields follows, then the mask of calls of 64 words, then the fields.
const FIELD_COUNT: usize = 8;
const FIELDS: usize = 12 + 64 * 4;
const AUDIT_FILTERKEY: u32 = 210;

/// State of the kernel's own audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelAudit {
    /// Whether it is enabled: every task started since then carries an audit context.
    pub enabled: bool,
    /// Rules loaded, `-a never,task` left out.
    pub rules: usize,
    /// Whether `-a never,task`, without conditions, keeps all new tasks free of it.
    pub never_task: bool,
    /// Process that reads its records as `auditd` does, 0 for none.
    pub reader: u32,
}

impl KernelAudit {
    /// Asks the kernel.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`, `EPROTONOSUPPORT` or `ECONNREFUSED` when the kernel has no
    /// audit or this is not its first user namespace.
    pub fn ask() -> io::Result<Self> {
        let socket = open()?;
        let mut state = Self::default();
        request(&socket, AUDIT_GET, |kind, body| {
            if kind == AUDIT_GET {
                state.enabled = word(body, 4).is_some_and(|enabled| enabled != 0);
                state.reader = word(body, 12).unwrap_or_default();
            }
        })?;
        request(&socket, AUDIT_LIST_RULES, |kind, body| {
            if kind == AUDIT_LIST_RULES {
                if is_never_task(body) {
                    state.never_task = true;
                } else {
                    state.rules += 1;
                }
            }
        })?;
        Ok(state)
    }

    /// Whether syscalls that nobody asked about pay for it.
    #[must_use]
    pub const fn is_armed(&self) -> bool {
        self.rules != 0 || (self.enabled && !self.never_task)
    }
}

/// Whether a rule is `-a never,task` for all tasks: a key is no condition.
fn is_never_task(rule: &[u8]) -> bool {
    let fields = word(rule, FIELD_COUNT).and_then(|count| usize::try_from(count).ok());
    word(rule, 0) == Some(AUDIT_FILTER_TASK)
        && word(rule, 4) == Some(AUDIT_NEVER)
        && fields.is_some_and(|count| {
            (0..count).all(|at| word(rule, FIELDS + 4 * at) == Some(AUDIT_FILTERKEY))
        })
}

fn open() -> io::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkAudit,
    )?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(2))?;
    Ok(socket)
}

/// Sends a request without a body and hands every message of the answer to `take`.
fn request(socket: &OwnedFd, kind: u16, take: impl FnMut(u16, &[u8])) -> io::Result<()> {
    request_with(socket, kind, &[], take)
}

/// Sends a request and hands every message of the answer to `take`.
fn request_with(
    socket: &OwnedFd,
    kind: u16,
    body: &[u8],
    mut take: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    send(socket, kind, body)?;
    let mut answer = vec![0; ANSWER_BYTES];
    // The acknowledgement may come before the answer; a list ends with a message of its own, and what
    // only asks for a change has no other answer.
    let mut acknowledged = false;
    let mut answered = !matches!(
        kind,
        AUDIT_GET | AUDIT_LIST_RULES | feature::AUDIT_GET_FEATURE
    );
    while !(acknowledged && answered) {
        let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let mut rest = answer.get(..len).unwrap_or_default();
        while let Some((kind, body, next)) = next_message(rest) {
            rest = next;
            match kind {
                NLMSG_ERROR => match word(body, 0).map(u32::cast_signed) {
                    Some(0) => acknowledged = true,
                    Some(errno) => return Err(io::Error::from_raw_os_error(-errno)),
                    None => return Err(io::ErrorKind::InvalidData.into()),
                },
                NLMSG_DONE => answered = true,
                kind => {
                    take(kind, body);
                    answered |= matches!(kind, AUDIT_GET | feature::AUDIT_GET_FEATURE);
                }
            }
        }
    }
    Ok(())
}

/// Sends a request that is to be acknowledged.
fn send(socket: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<()> {
    let bytes = HEADER + body.len();
    let length = u32::try_from(bytes).map_err(|_too_long| io::ErrorKind::InvalidInput)?;
    let mut message = Vec::with_capacity(bytes);
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message.extend_from_slice(&1_u32.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(body);
    sendto(
        socket.as_raw_fd(),
        &message,
        &NetlinkAddr::new(0, 0),
        MsgFlags::empty(),
    )?;
    Ok(())
}

/// Type and body of the first message, and the bytes after it; `None` at the end, or at bytes that are
/// no message.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = usize::try_from(word(bytes, 0)?).ok()?;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(HEADER..len)?;
    Some((
        kind,
        body,
        bytes.get(len.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_never_task_keeps_unasked_calls_free() {
        let audit = |enabled, rules, never_task| KernelAudit {
            enabled,
            rules,
            never_task,
            reader: 0,
        };
        assert!(!audit(false, 0, false).is_armed());
        assert!(!audit(true, 0, true).is_armed());
        assert!(audit(true, 0, false).is_armed());
        assert!(audit(true, 1, true).is_armed());
    }

    #[test]
    fn a_condition_leaves_tasks_that_are_not_free() {
        const AUDIT_UID: u32 = 1;
        let rule = |list: u32, fields: &[u32]| {
            let mut words = vec![list, AUDIT_NEVER, u32::try_from(fields.len()).unwrap()];
            words.extend([0; 64]);
            words.extend(fields);
            words.resize(3 + 4 * 64 + 1, 0);
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<u8>>()
        };
        assert!(is_never_task(&rule(AUDIT_FILTER_TASK, &[])));
        assert!(is_never_task(&rule(AUDIT_FILTER_TASK, &[AUDIT_FILTERKEY])));
        assert!(!is_never_task(&rule(AUDIT_FILTER_TASK, &[AUDIT_UID])));
        let both = [AUDIT_FILTERKEY, AUDIT_UID];
        assert!(!is_never_task(&rule(AUDIT_FILTER_TASK, &both)));
        assert!(!is_never_task(&rule(AUDIT_FILTER_TASK + 3, &[])));
        assert!(!is_never_task(&[]));
    }

    proptest! {
        #[test]
        fn any_bytes_end_as_messages(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            while let Some((_, body, next)) = next_message(rest) {
                prop_assert!(body.len() < rest.len() && next.len() < rest.len());
                rest = next;
            }
        }
    }
}
