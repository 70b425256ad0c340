//! Netlink messages of the audit family: header, requests, acknowledgements.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

/// Message types of `include/uapi/linux/audit.h`, Linux 6.12.
pub(crate) const AUDIT_GET: u16 = 1000;
pub(crate) const AUDIT_SET: u16 = 1001;
pub(crate) const AUDIT_ADD_RULE: u16 = 1011;
pub(crate) const AUDIT_DEL_RULE: u16 = 1012;
pub(crate) const AUDIT_LIST_RULES: u16 = 1013;
pub(crate) const AUDIT_SET_FEATURE: u16 = 1018;
pub(crate) const AUDIT_GET_FEATURE: u16 = 1019;
/// `mask` of `struct audit_status`: the member `pid` is set.
pub(crate) const AUDIT_STATUS_PID: u32 = 0x04;
/// `flags` of `struct audit_rule_data`: the filter list `task`.
pub(crate) const AUDIT_FILTER_TASK: u32 = 1;
/// `action` of `struct audit_rule_data`.
pub(crate) const AUDIT_NEVER: u32 = 0;

pub(crate) const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// `sizeof(struct nlmsghdr)`.
pub(crate) const HEADER_BYTES: usize = 16;
/// No audit message is longer.
pub(crate) const MESSAGE_BYTES: usize = 16 << 10;

pub(crate) fn open() -> io::Result<OwnedFd> {
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
pub(crate) fn request(socket: &OwnedFd, kind: u16, take: impl FnMut(u16, &[u8])) -> io::Result<()> {
    request_with(socket, kind, &[], take)
}

/// Sends a request and hands every message of the answer to `take`.
pub(crate) fn request_with(
    socket: &OwnedFd,
    kind: u16,
    body: &[u8],
    mut take: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    send(socket, kind, body)?;
    let mut answer = vec![0; MESSAGE_BYTES];
    // The acknowledgement may come before the answer; a list ends with a message of its own, and what
    // only asks for a change has no other answer.
    let mut acknowledged = false;
    let mut answered = !matches!(kind, AUDIT_GET | AUDIT_LIST_RULES | AUDIT_GET_FEATURE);
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
                    answered |= matches!(kind, AUDIT_GET | AUDIT_GET_FEATURE);
                }
            }
        }
    }
    Ok(())
}

/// Sends a request that is to be acknowledged.
pub(crate) fn send(socket: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<()> {
    let bytes = HEADER_BYTES + body.len();
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
    let body = bytes.get(HEADER_BYTES..len)?;
    Some((
        kind,
        body,
        bytes.get(len.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
