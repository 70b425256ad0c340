//! Records that the kernel's audit sends: user messages, logins, denials and others.
//!
//! ```text
//! u32 length, u16 type, u16 flags, u32 sequence, u32 port; then text: audit(SEC.MMM:SERIAL): BODY
//! ```
//!
//! Each datagram holds one record. The length is that of the text when sent to the registered daemon, and
//! that of header and text when sent to the multicast group.
//!
//! # Source
//! `audit_log_end`, `kauditd_send_multicast_skb` and `audit_receive_msg` in `kernel/audit.c`, Linux 6.12.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use audit::ids::MsgType;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recvmsg, setsockopt, sockopt};

use crate::protocol::{
    AUDIT_SET, AUDIT_STATUS_PID, HEADER_BYTES, MESSAGE_BYTES, NLMSG_ERROR, message_type,
    open_socket, parse_ack, read_u32, send, to_bytes,
};

/// The multicast group `AUDIT_NLGRP_READLOG`, as a mask.
const GROUP_READLOG: u32 = 1;
/// Receive buffer of the socket. What does not fit stays in the kernel's backlog.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// Attempts to register: the first may only make the kernel notice that the previous daemon is dead.
const REGISTER_ATTEMPTS: u32 = 2;
/// `AUDIT_FIRST_USER_MSG`. Types below are requests and replies, except `AUDIT_USER` and `AUDIT_LOGIN`.
const AUDIT_FIRST_USER_MSG: u16 = 1100;
const AUDIT_USER: u16 = 1005;
const AUDIT_LOGIN: u16 = 1006;
/// Asks the registered daemon whether it is alive.
const AUDIT_REPLACE: u16 = 1329;
/// Header and at least one byte of text.
const MIN_BYTES: usize = HEADER_BYTES + 1;

/// A record from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRecord<'a> {
    /// Record type.
    pub kind: MsgType,
    /// Text, from `audit(` on.
    pub text: &'a [u8],
}

/// Why a datagram is not a record from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Another process sent it.
    #[error("sent by port {0}, not by the kernel")]
    Sender(u32),
    /// It does not fit into the receive buffer.
    #[error("longer than {MESSAGE_BYTES} bytes")]
    TooLong,
    /// It has no room for header and text.
    #[error("{0} bytes are too short for a record")]
    TooShort(usize),
    /// The length in its header is wrong.
    #[error("length {in_header} in the header of a datagram of {len} bytes")]
    Length {
        /// Length in the header.
        in_header: u32,
        /// Length of the datagram.
        len: usize,
    },
}

/// Receives records from the kernel's audit.
#[derive(Debug)]
pub struct RecordStream {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Datagrams that arrived before the acknowledgement of the registration.
    early: Vec<Vec<u8>>,
}

impl RecordStream {
    /// Registers this process as the audit daemon. It stays registered until
    /// [`crate::AuditSocket::unregister`], or until it is dead and the kernel notices.
    ///
    /// # Errors
    /// `EEXIST` when another process is registered; `EPERM` without `CAP_AUDIT_CONTROL` or outside the
    /// initial PID namespace; `ECONNREFUSED` outside the initial user namespace.
    pub fn register() -> io::Result<Self> {
        let mut stream = Self::new(open_socket()?);
        let pid = std::process::id();
        let body = to_bytes(&[AUDIT_STATUS_PID, 0, 0, pid]);
        for attempt in 1.. {
            send(&stream.socket, AUDIT_SET, &body)?;
            match stream.wait_for_ack() {
                Err(error) if attempt < REGISTER_ATTEMPTS && is_eexist(&error) => {}
                result => return result.map(|()| stream),
            }
        }
        Ok(stream)
    }

    /// Joins the multicast group, beside the registered daemon.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_READ`.
    pub fn join_multicast() -> io::Result<Self> {
        let stream = Self::new(open_socket()?);
        bind(
            stream.socket.as_raw_fd(),
            &NetlinkAddr::new(0, GROUP_READLOG),
        )?;
        Ok(stream)
    }

    fn new(socket: OwnedFd) -> Self {
        let stream = Self {
            socket,
            buffer: vec![0; MESSAGE_BYTES],
            early: Vec::new(),
        };
        // Without CAP_NET_ADMIN the socket keeps its default buffer, and the kernel's backlog holds more.
        let _default = stream.set_socket_buffer(SOCKET_BUFFER_BYTES);
        stream
    }

    /// Sets the receive buffer of the socket.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_socket_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(setsockopt(&self.socket, sockopt::RcvBufForce, &bytes)?)
    }

    /// Waits for the acknowledgement of a request, and keeps records that arrive before it.
    fn wait_for_ack(&mut self) -> io::Result<()> {
        loop {
            let Some((datagram, _)) =
                receive_datagram(&self.socket, &mut self.buffer, MsgFlags::empty())?
            else {
                continue;
            };
            if message_type(datagram) == Some(NLMSG_ERROR) {
                return parse_ack(datagram.get(HEADER_BYTES..).unwrap_or_default());
            }
            self.early.push(datagram.to_vec());
        }
    }

    /// Passes at most `limit` waiting datagrams to `on_record`, without blocking. Returns their number.
    ///
    /// # Errors
    /// `ENOBUFS` once when the multicast group lost records because they were not received in time.
    pub fn receive(
        &mut self,
        limit: usize,
        mut on_record: impl FnMut(Result<KernelRecord<'_>, RecordError>),
    ) -> io::Result<usize> {
        let mut pass = |parsed: Result<Option<KernelRecord<'_>>, RecordError>| {
            if let Some(record) = parsed.transpose() {
                on_record(record);
            }
        };
        for datagram in std::mem::take(&mut self.early) {
            pass(parse(&datagram));
        }
        for count in 0..limit {
            match receive_datagram(&self.socket, &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(Some((datagram, port))) => pass(parse_from(port, datagram)),
                Ok(None) => pass(Err(RecordError::TooLong)),
                Err(Errno::EAGAIN) => return Ok(count),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(limit)
    }
}

impl AsFd for RecordStream {
    /// Readable when a datagram waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_eexist(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EEXIST as i32)
}

/// One datagram and the port of its sender; `None` for a truncated one.
fn receive_datagram<'b>(
    socket: &OwnedFd,
    buffer: &'b mut [u8],
    flags: MsgFlags,
) -> nix::Result<Option<(&'b [u8], u32)>> {
    let (len, port, truncated) = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg::<NetlinkAddr>(socket.as_raw_fd(), &mut parts, None, flags) {
            Ok(got) => {
                // A sender without address is not the kernel, which has port 0.
                let port = got.address.map_or(u32::MAX, |address| address.pid());
                break (got.bytes, port, got.flags.contains(MsgFlags::MSG_TRUNC));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    Ok(match buffer.get(..len) {
        Some(datagram) if !truncated => Some((datagram, port)),
        _ => None,
    })
}

/// Parses a datagram from `port`, which must be the kernel's.
fn parse_from(port: u32, datagram: &[u8]) -> Result<Option<KernelRecord<'_>>, RecordError> {
    match port {
        0 => parse(datagram),
        port => Err(RecordError::Sender(port)),
    }
}

/// Parses a datagram; `None` when it is a reply or another message that is not a record.
fn parse(datagram: &[u8]) -> Result<Option<KernelRecord<'_>>, RecordError> {
    let len = datagram.len();
    let (Some(in_header), Some(kind)) = (read_u32(datagram, 0), message_type(datagram)) else {
        return Err(RecordError::TooShort(len));
    };
    let is_record =
        matches!(kind, AUDIT_USER | AUDIT_LOGIN | AUDIT_FIRST_USER_MSG..) && kind != AUDIT_REPLACE;
    if !is_record {
        return Ok(None);
    }
    if len < MIN_BYTES {
        return Err(RecordError::TooShort(len));
    }
    let bytes = usize::try_from(in_header).unwrap_or(usize::MAX);
    let end = if bytes == len - HEADER_BYTES {
        len
    } else if (MIN_BYTES..=len).contains(&bytes) && bytes.next_multiple_of(4) >= len {
        bytes
    } else {
        return Err(RecordError::Length { in_header, len });
    };
    let text = datagram.get(HEADER_BYTES..end).unwrap_or_default();
    Ok(Some(KernelRecord {
        kind: MsgType(kind),
        text: text.split(|&byte| byte == 0).next().unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"audit(1700000000.123:42): pid=1 uid=0 auid=0 ses=1 msg='op=x'";

    fn datagram(in_header: usize, kind: u16, text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(in_header).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(text);
        bytes
    }

    /// One record as Linux 6.18 sent it to the registered daemon and to the multicast group.
    const RECORDED: [&[u8]; 2] = [
        b"6\0\0\0\x36\x05\0\0\0\0\0\0\0\0\0\0audit(1795207015.105:7355487): prog-id=27746 op=UNLOAD",
        b"F\0\0\0\x36\x05\0\0\0\0\0\0\0\0\0\0audit(1795207015.105:7355487): prog-id=27746 op=UNLOAD",
    ];

    #[test]
    fn records_to_daemon_and_group_are_parsed() {
        for bytes in RECORDED {
            let text = b"audit(1795207015.105:7355487): prog-id=27746 op=UNLOAD";
            let kind = MsgType(1334);
            assert_eq!(parse(bytes), Ok(Some(KernelRecord { kind, text })));
        }
        // The datagram may be padded to 4 bytes; text ends at a NUL.
        let padded = datagram(HEADER_BYTES + 5, AUDIT_USER, b"a\0bcd\0\0\0");
        assert_eq!(parse(&padded).unwrap().unwrap().text, b"a");
    }

    #[test]
    fn other_messages_are_skipped() {
        for kind in [0, 2, 3, 1000, 1013, 1019, AUDIT_REPLACE] {
            let bytes = datagram(HEADER_BYTES + TEXT.len(), kind, TEXT);
            assert_eq!(parse(&bytes), Ok(None), "{kind}");
        }
    }

    #[test]
    fn malformed_datagrams_are_reported() {
        let len = HEADER_BYTES + TEXT.len();
        for in_header in [
            0,
            1,
            HEADER_BYTES,
            len - 4,
            len + 1,
            usize::try_from(u32::MAX).unwrap(),
        ] {
            let found = parse(&datagram(in_header, AUDIT_USER, TEXT)).unwrap_err();
            let in_header = u32::try_from(in_header).unwrap();
            assert_eq!(found, RecordError::Length { in_header, len });
        }
        for short in [0, 5, 6, HEADER_BYTES - 1, HEADER_BYTES] {
            let bytes = &datagram(len, AUDIT_USER, TEXT)[..short];
            let found = parse(bytes).unwrap_err();
            assert_eq!(found, RecordError::TooShort(short));
        }
        let bytes = datagram(len, AUDIT_USER, TEXT);
        assert_eq!(parse_from(77, &bytes), Err(RecordError::Sender(77)));
        assert!(matches!(parse_from(0, &bytes), Ok(Some(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(record)) = parse(&bytes) {
                prop_assert!(record.text.len() <= bytes.len() - HEADER_BYTES);
            }
        }
    }
}
