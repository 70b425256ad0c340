//! A client of the port at which the emulator serves a debugger.
//!
//! # Source
//! "Remote Serial Protocol" in the manual of gdb; `gdbstub.c` of QEMU 7.2.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// After this time without a packet, the emulator has said all that it says of a stop.
const QUIET: Duration = Duration::from_millis(300);
/// The longest wait for an answer, on a slow and busy host.
const ANSWER: Duration = Duration::from_secs(60);

/// `rip` among the registers of x86-64.
const INSTRUCTION_POINTER: u8 = 0x10;

/// A stopped machine.
#[derive(Debug)]
pub(super) struct Debugger {
    port: UnixStream,
    unread: Vec<u8>,
}

impl Debugger {
    /// Connects and stops the machine.
    ///
    /// # Errors
    /// If there is no such port, or it does not answer.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let mut port = UnixStream::connect(path)?;
        // A machine that is being stopped drops a packet, and may report the stop twice.
        port.set_read_timeout(Some(QUIET))?;
        drop_packets(&mut port);
        port.write_all(packet("?").as_bytes())?;
        drop_packets(&mut port);
        port.set_read_timeout(Some(ANSWER))?;
        let mut debugger = Self {
            port,
            unread: Vec::new(),
        };
        // Single registers can be read by whoever has asked for their names.
        debugger.ask("qXfer:features:read:target.xml:0,ffb")?;
        Ok(debugger)
    }

    /// Stops the machine whenever it comes to an address.
    ///
    /// # Errors
    /// If the emulator does not do it.
    pub(super) fn break_at(&mut self, address: u64) -> io::Result<()> {
        self.order(&format!("Z0,{address:x},1"))
    }

    /// Stops it there no more.
    ///
    /// # Errors
    /// If the emulator does not do it.
    pub(super) fn pass(&mut self, address: u64) -> io::Result<()> {
        self.order(&format!("z0,{address:x},1"))
    }

    /// Lets the machine run until it stops.
    ///
    /// # Errors
    /// If it does not stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        self.ask("c").map(|_reason| ())
    }

    /// Executes one instruction, without interrupts; returns the address of the next one.
    ///
    /// # Errors
    /// If the emulator does not answer.
    pub(super) fn step(&mut self) -> io::Result<u64> {
        self.ask("s")?;
        self.position()
    }

    /// Address of the next instruction.
    ///
    /// # Errors
    /// If the emulator does not tell it.
    pub(super) fn position(&mut self) -> io::Result<u64> {
        let bytes = self.ask(&format!("p{INSTRUCTION_POINTER:x}"))?;
        let swapped = u64::from_str_radix(&bytes, 16).map_err(io::Error::other)?;
        Ok(swapped.swap_bytes())
    }

    /// Lets the machine run for good.
    ///
    /// # Errors
    /// If the emulator does not answer.
    pub(super) fn leave(mut self) -> io::Result<()> {
        self.ask("D").map(|_answer| ())
    }

    fn order(&mut self, request: &str) -> io::Result<()> {
        match self.ask(request)?.as_str() {
            "OK" => Ok(()),
            answer => Err(io::Error::other(format!(
                "the emulator answers `{answer}` to `{request}`"
            ))),
        }
    }

    fn ask(&mut self, request: &str) -> io::Result<String> {
        self.port.write_all(packet(request).as_bytes())?;
        loop {
            if let Some((answer, bytes)) = first_packet(&self.unread) {
                self.unread.drain(..bytes);
                return Ok(answer);
            }
            let mut part = [0; 4096];
            let size = self.port.read(&mut part)?;
            if size == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.unread.extend(part.iter().take(size));
        }
    }
}

/// Reads until nothing comes for a while.
fn drop_packets(port: &mut UnixStream) {
    let mut dropped = [0; 4096];
    while matches!(port.read(&mut dropped), Ok(1..)) {}
}

/// `$DATA#CHECKSUM`.
fn packet(data: &str) -> String {
    let sum = data.bytes().fold(0_u8, u8::wrapping_add);
    format!("${data}#{sum:02x}")
}

/// The data of the first whole packet, and where it ends. `+`, the receipt of a packet, may stand before it.
fn first_packet(bytes: &[u8]) -> Option<(String, usize)> {
    const CHECKSUM: usize = 2;
    let start = bytes.iter().position(|&byte| byte == b'$')? + 1;
    let end = start + bytes.get(start..)?.iter().position(|&byte| byte == b'#')?;
    let whole = end + 1 + CHECKSUM;
    let data = bytes.get(start..end)?;
    (bytes.len() >= whole).then(|| (String::from_utf8_lossy(data).into_owned(), whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_sum_of_their_bytes() {
        assert_eq!(packet("?"), "$?#3f");
        assert_eq!(packet("vCont;c"), "$vCont;c#a8");
    }

    #[test]
    fn packets_are_found_whole() {
        let bytes = b"+$T05thread:01;#07$OK#9a";
        let (answer, end) = first_packet(bytes).unwrap();
        assert_eq!((answer.as_str(), end), ("T05thread:01;", 18));
        assert_eq!(first_packet(&bytes[end..]), Some(("OK".to_owned(), 6)));
        for end in 0..18 {
            assert_eq!(first_packet(&bytes[..end]), None, "{end}");
        }
    }
}
