//! Netlink messages of the audit family: header, requests, acknowledgements.
//!
//! ```text
//! u32 length, u16 type, u16 flags, u32 sequence, u32 port; then the body
//! ```

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
/// Bits of `mask` in `struct audit_status`: the members to set.
pub(crate) const AUDIT_STATUS_ENABLED: u32 = 0x01;
pub(crate) const AUDIT_STATUS_FAILURE: u32 = 0x02;
pub(crate) const AUDIT_STATUS_PID: u32 = 0x04;
pub(crate) const AUDIT_STATUS_RATE_LIMIT: u32 = 0x08;
pub(crate) const AUDIT_STATUS_BACKLOG_LIMIT: u32 = 0x10;
pub(crate) const AUDIT_STATUS_BACKLOG_WAIT_TIME: u32 = 0x20;
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
/// Receive buffer; no audit message is longer.
pub(crate) const MESSAGE_BYTES: usize = 16 << 10;
const REPLY_TIMEOUT_SECONDS: i64 = 2;

/// Opens an audit netlink socket.
///
/// # Errors
/// `EPROTONOSUPPORT` when the kernel has no audit.
pub(crate) fn open_socket() -> io::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkAudit,
    )?;
    let timeout = TimeVal::seconds(REPLY_TIMEOUT_SECONDS);
    setsockopt(&socket, sockopt::ReceiveTimeout, &timeout)?;
    Ok(socket)
}

/// Sends a request, passes type and body of each reply to `on_reply`, and waits for the acknowledgement.
///
/// # Errors
/// The errno in the kernel's acknowledgement; `EAGAIN` when the kernel does not reply in time.
pub(crate) fn request(
    socket: &OwnedFd,
    kind: u16,
    body: &[u8],
    mut on_reply: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    send(socket, kind, body)?;
    let mut buffer = vec![0; MESSAGE_BYTES];
    // The acknowledgement may precede the reply. `NLMSG_DONE` ends a list; a change has no reply.
    let mut acknowledged = false;
    let mut replied = !matches!(kind, AUDIT_GET | AUDIT_LIST_RULES | AUDIT_GET_FEATURE);
    while !(acknowledged && replied) {
        let len = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = buffer.get(..len).unwrap_or_default();
        while let Some((kind, body, next)) = split_message(rest) {
            rest = next;
            match kind {
                NLMSG_ERROR => {
                    parse_ack(body)?;
                    acknowledged = true;
                }
                NLMSG_DONE => replied = true,
                kind => {
                    on_reply(kind, body);
                    replied |= matches!(kind, AUDIT_GET | AUDIT_GET_FEATURE);
                }
            }
        }
    }
    Ok(())
}

/// Sends a change and waits for the acknowledgement.
///
/// # Errors
/// As [`request`].
pub(crate) fn change(socket: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<()> {
    request(socket, kind, body, |_, _| {})
}

/// Sends a message that the kernel acknowledges.
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

/// Result in the body of an `NLMSG_ERROR` message.
///
/// # Errors
/// The errno in it.
pub(crate) fn parse_ack(body: &[u8]) -> io::Result<()> {
    match read_u32(body, 0).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Type and body of the first message, and the bytes after it; `None` at the end and when malformed.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = usize::try_from(read_u32(bytes, 0)?).ok()?;
    let kind = message_type(bytes)?;
    let body = bytes.get(HEADER_BYTES..len)?;
    Some((
        kind,
        body,
        bytes.get(len.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

/// `nlmsg_type` of a message.
pub(crate) fn message_type(message: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes([*message.get(4)?, *message.get(5)?]))
}

/// The `u32` at an offset, in native byte order.
pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// `u32`s as bytes, in native byte order.
pub(crate) fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_split_into_messages(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            while let Some((_, body, next)) = split_message(rest) {
                prop_assert!(body.len() < rest.len() && next.len() < rest.len());
                rest = next;
            }
        }
    }
}
