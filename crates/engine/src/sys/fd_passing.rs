//! Messages over a Unix socket, each with an optional descriptor (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Sends a message over a `SOCK_SEQPACKET` Unix socket.
///
/// # Errors
/// As `sendmsg(2)`.
pub fn send_with_fd(
    socket: impl AsFd,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let raw = descriptor.map(|descriptor| descriptor.as_raw_fd());
    let passed: &[RawFd] = raw.as_slice();
    let control = [ControlMessage::ScmRights(passed)];
    let control = if passed.is_empty() {
        &[]
    } else {
        control.as_slice()
    };
    sendmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &[IoSlice::new(message)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Receives a message. Its length is 0 when the peer has closed the socket.
///
/// # Errors
/// As `recvmsg(2)`; also when the message does not fit into the buffer.
pub fn recv_with_fd(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = nix::cmsg_space!(RawFd);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut descriptor = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(passed) = control {
            for raw in passed {
                // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
                descriptor = Some(unsafe { OwnedFd::from_raw_fd(raw) });
            }
        }
    }
    if message.flags.contains(MsgFlags::MSG_TRUNC) {
        return Err(io::Error::other("a message that is too long"));
    }
    Ok((message.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use nix::unistd::pipe;

    use super::*;

    #[test]
    fn descriptor_is_received_with_its_message() {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (one, other) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let (reads, writes) = pipe().unwrap();
        send_with_fd(&one, b"first", Some(writes.as_fd())).unwrap();
        send_with_fd(&one, b"second", None).unwrap();
        drop((one, writes));
        let mut buffer = [0; 6];
        let (length, descriptor) = recv_with_fd(&other, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"first");
        std::fs::File::from(descriptor.unwrap())
            .write_all(b"through")
            .unwrap();
        let mut text = String::new();
        std::fs::File::from(reads)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "through");
        let (length, descriptor) = recv_with_fd(&other, &mut buffer).unwrap();
        assert_eq!(
            (&buffer[..length], descriptor.is_none()),
            (&b"second"[..], true)
        );
        assert_eq!(recv_with_fd(&other, &mut buffer).unwrap().0, 0);
    }
}
