//! What the kernel's audit sends of its own accord: messages of users, logins, denials and the like.
//!
//! ```text
//! u32 length, u16 type, u16 flags, u32 sequence, u32 port; then text: audit(SEC.MMM:SERIAL): BODY
//! ```
//!
//! One message a datagram. To the registered reader the length is that of the text alone, to a group that
//! of header and text.
//!
//! # Source
//! `audit_log_end`, `kauditd_send_multicast_skb` and `audit_receive_msg` in `kernel/audit.c`, Linux 6.12.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use audit::ids::MsgType;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recvmsg, setsockopt, sockopt};

use crate::protocol::{
    AUDIT_SET, AUDIT_STATUS_PID, HEADER_BYTES, MESSAGE_BYTES, NLMSG_ERROR, open, send, word,
};

/// Group that everybody may listen to who has `CAP_AUDIT_READ`: the first, as a mask.
const GROUP_READLOG: u32 = 1;
/// Room in the socket; what does not fit waits with the kernel.
const ROOM_BYTES: usize = 8 << 20;
/// Times that a registration is tried: the first may only show that the reader before is dead.
const REGISTRATIONS: u32 = 2;
/// Types below are what programs ask and the kernel answers, but for two.
const FIRST_RECORD: u16 = 1100;
const USER: u16 = 1005;
const LOGIN: u16 = 1006;
/// Asks the registered reader whether it is alive.
const REPLACE: u16 = 1329;
const MORE_THAN_HEADER: usize = HEADER_BYTES + 1;

/// One record that the kernel has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRecord<'a> {
    /// Its type.
    pub kind: MsgType,
    /// Its text, from `audit(` on.
    pub text: &'a [u8],
}

/// Why a datagram is no message of the kernel's audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Another process has sent it.
    #[error("it comes from port {0} and not from the kernel")]
    Sender(u32),
    /// It was longer than any message is.
    #[error("it is longer than {MESSAGE_BYTES} bytes")]
    TooLong,
    /// There is no room for a header and text.
    #[error("its {0} bytes are too few")]
    TooShort(usize),
    /// The length that it says is not the one that it has.
    #[error("it says that it has {said} bytes, and has {len}")]
    Length {
        /// What it says.
        said: u32,
        /// What it has.
        len: usize,
    },
}

/// Reads what the kernel's audit sends.
#[derive(Debug)]
pub struct RecordStream {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Datagrams that came before the answer to the registration.
    early: Vec<Vec<u8>>,
}

impl RecordStream {
    /// Becomes the process that the kernel's audit sends its records to. It stays so until
    /// [`crate::AuditSocket::unregister`], or until it dies and the kernel notices.
    ///
    /// # Errors
    /// `EEXIST` when another process is that, `EPERM` without `CAP_AUDIT_CONTROL`, `ECONNREFUSED` outside
    /// the first namespaces.
    pub fn register() -> io::Result<Self> {
        let mut stream = Self::new(open()?);
        let own = std::process::id();
        let body = [AUDIT_STATUS_PID, 0, 0, own].map(u32::to_ne_bytes).concat();
        for attempt in 1.. {
            send(&stream.socket, AUDIT_SET, &body)?;
            match stream.answer() {
                Err(error) if attempt < REGISTRATIONS && is_taken(&error) => {}
                answer => return answer.map(|()| stream),
            }
        }
        Ok(stream)
    }

    /// Listens to what is sent to everybody, beside the registered reader.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_READ`.
    pub fn join() -> io::Result<Self> {
        let stream = Self::new(open()?);
        bind(
            stream.socket.as_raw_fd(),
            &NetlinkAddr::new(0, GROUP_READLOG),
        )?;
        Ok(stream)
    }

    fn new(socket: OwnedFd) -> Self {
        // Without the right to so much room there is the usual room, and the kernel keeps what waits.
        let _usual = setsockopt(&socket, sockopt::RcvBufForce, &ROOM_BYTES);
        Self {
            socket,
            buffer: vec![0; MESSAGE_BYTES],
            early: Vec::new(),
        }
    }

    /// Waits for the answer to a request; what comes before it is kept.
    fn answer(&mut self) -> io::Result<()> {
        loop {
            let Some((datagram, _)) = receive(&self.socket, &mut self.buffer, MsgFlags::empty())?
            else {
                continue;
            };
            if kind(datagram) != Some(NLMSG_ERROR) {
                self.early.push(datagram.to_vec());
                continue;
            }
            return match word(datagram, HEADER_BYTES).map(u32::cast_signed) {
                Some(0) => Ok(()),
                Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
                None => Err(io::ErrorKind::InvalidData.into()),
            };
        }
    }

    /// Takes what has come, without waiting: at most `limit` datagrams. Returns how many there were.
    ///
    /// # Errors
    /// `ENOBUFS` once when messages to everybody were lost, because they were not taken in time.
    pub fn receive(
        &mut self,
        limit: usize,
        mut take: impl FnMut(Result<KernelRecord<'_>, RecordError>),
    ) -> io::Result<usize> {
        let mut give = |found: Result<Option<KernelRecord<'_>>, RecordError>| {
            if let Some(found) = found.transpose() {
                take(found);
            }
        };
        for datagram in std::mem::take(&mut self.early) {
            give(message(&datagram));
        }
        for count in 0..limit {
            match receive(&self.socket, &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(Some((datagram, sender))) => give(checked(datagram, sender)),
                Ok(None) => give(Err(RecordError::TooLong)),
                Err(Errno::EAGAIN) => return Ok(count),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(limit)
    }
}

impl AsFd for RecordStream {
    /// Readable when something has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EEXIST as i32)
}

/// One datagram and the port of its sender; `None` for one that does not fit.
fn receive<'b>(
    socket: &OwnedFd,
    buffer: &'b mut [u8],
    flags: MsgFlags,
) -> nix::Result<Option<(&'b [u8], u32)>> {
    let (len, sender, cut) = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg::<NetlinkAddr>(socket.as_raw_fd(), &mut parts, None, flags) {
            Ok(got) => {
                // Who has no address is not the kernel.
                let sender = got.address.map_or(u32::MAX, |address| address.pid());
                break (got.bytes, sender, got.flags.contains(MsgFlags::MSG_TRUNC));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    Ok(match buffer.get(..len) {
        Some(datagram) if !cut => Some((datagram, sender)),
        _ => None,
    })
}

/// The message of a datagram from this port.
fn checked(datagram: &[u8], sender: u32) -> Result<Option<KernelRecord<'_>>, RecordError> {
    match sender {
        0 => message(datagram),
        port => Err(RecordError::Sender(port)),
    }
}

/// The message of a datagram; `None` when it is something else that the kernel may say.
fn message(datagram: &[u8]) -> Result<Option<KernelRecord<'_>>, RecordError> {
    let len = datagram.len();
    let (Some(said), Some(kind)) = (word(datagram, 0), kind(datagram)) else {
        return Err(RecordError::TooShort(len));
    };
    let is_record = matches!(kind, USER | LOGIN | FIRST_RECORD..) && kind != REPLACE;
    if !is_record {
        return Ok(None);
    }
    if len < MORE_THAN_HEADER {
        return Err(RecordError::TooShort(len));
    }
    let bytes = usize::try_from(said).unwrap_or(usize::MAX);
    let end = if bytes == len - HEADER_BYTES {
        len
    } else if (MORE_THAN_HEADER..=len).contains(&bytes) && bytes.next_multiple_of(4) >= len {
        bytes
    } else {
        return Err(RecordError::Length { said, len });
    };
    let text = datagram.get(HEADER_BYTES..end).unwrap_or_default();
    Ok(Some(KernelRecord {
        kind: MsgType(kind),
        text: text.split(|&byte| byte == 0).next().unwrap_or_default(),
    }))
}

fn kind(datagram: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes([*datagram.get(4)?, *datagram.get(5)?]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"audit(1700000000.123:42): pid=1 uid=0 auid=0 ses=1 msg='op=x'";

    fn datagram(said: usize, kind: u16, text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(said).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(text);
        bytes
    }

    /// What a kernel of Linux 6.18 has sent to its registered reader and, of the same event, to the group.
    const RECORDED: [&[u8]; 2] = [
        b"6\0\0\0\x36\x05\0\0\0\0\0\0\0\0\0\0audit(1795207015.105:7355487): prog-id=27746 op=UNLOAD",
        b"F\0\0\0\x36\x05\0\0\0\0\0\0\0\0\0\0audit(1795207015.105:7355487): prog-id=27746 op=UNLOAD",
    ];

    #[test]
    fn a_record_is_read_from_either_kind_of_datagram() {
        for bytes in RECORDED {
            let Ok(Some(message)) = message(bytes) else {
                panic!("{:?}", message(bytes));
            };
            assert_eq!(message.kind, MsgType(1334));
            let text = b"audit(1795207015.105:7355487): prog-id=27746 op=UNLOAD";
            assert_eq!(message.text, text);
        }
        // What asks has its bytes padded; text ends at a NUL.
        let padded = datagram(HEADER_BYTES + 5, USER, b"a\0bcd\0\0\0");
        assert_eq!(message(&padded).unwrap().unwrap().text, b"a");
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        for kind in [0, 2, 3, 1000, 1013, 1019, REPLACE] {
            let bytes = datagram(HEADER_BYTES + TEXT.len(), kind, TEXT);
            assert_eq!(message(&bytes), Ok(None), "{kind}");
        }
    }

    #[test]
    fn what_is_malformed_is_named() {
        let len = HEADER_BYTES + TEXT.len();
        for said in [
            0,
            1,
            HEADER_BYTES,
            len - 4,
            len + 1,
            usize::try_from(u32::MAX).unwrap(),
        ] {
            let found = message(&datagram(said, USER, TEXT)).unwrap_err();
            let said = u32::try_from(said).unwrap();
            assert_eq!(found, RecordError::Length { said, len });
        }
        for short in [0, 5, 6, HEADER_BYTES - 1, HEADER_BYTES] {
            let bytes = &datagram(len, USER, TEXT)[..short];
            let found = message(bytes).unwrap_err();
            assert_eq!(found, RecordError::TooShort(short));
        }
        let bytes = datagram(len, USER, TEXT);
        assert_eq!(checked(&bytes, 77), Err(RecordError::Sender(77)));
        assert!(matches!(checked(&bytes, 0), Ok(Some(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(message)) = message(&bytes) {
                prop_assert!(message.text.len() <= bytes.len() - HEADER_BYTES);
            }
        }
    }
}
