//! What a destination is: it takes frames, and tells how many of them it has confirmed.

use std::fmt;
use std::time::{Duration, Instant};

use crate::frame::Frame;
use crate::transport::Transport;
use crate::unconfirmed::Unconfirmed;

/// Bytes that are sent at once.
const BATCH_BYTES: usize = 256 << 10;

/// A destination. Frames count from the last [`Sink::connect`].
pub(crate) trait Sink: Send {
    /// Connects, and forgets what was put before.
    ///
    /// # Errors
    /// The destination cannot be reached.
    fn connect(&mut self) -> anyhow::Result<()>;

    /// Takes a frame, to be sent by the next [`Sink::flush`].
    ///
    /// # Errors
    /// The frame cannot be encoded or written.
    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()>;

    /// Whether so much was put that it should be sent.
    fn is_full(&self) -> bool;

    /// Sends what was put.
    ///
    /// # Errors
    /// The destination is gone, or takes nothing for too long.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Whether the last [`Sink::flush`] has confirmed all frames, so that the position is worth saving at once.
    fn is_checkpoint(&self) -> bool {
        false
    }

    /// Number of frames that are confirmed: the destination has them, and the next run need not send them.
    ///
    /// # Errors
    /// The destination is gone.
    fn confirmed(&mut self) -> anyhow::Result<u64>;

    /// Ends in order: after it, all frames are confirmed.
    ///
    /// # Errors
    /// The destination has not confirmed all of them.
    fn finish(&mut self) -> anyhow::Result<()>;

    /// Disconnects, whatever was put.
    fn disconnect(&mut self);

    /// What the destination has refused for ever, also in part, since the last call. It is confirmed, too: it must not be
    /// sent again.
    fn take_refusal(&mut self) -> Option<Refusal> {
        None
    }
}

/// Records that a destination does not want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Number of records that it does not want.
    pub(crate) records: u64,
    /// Number of records that it has without their ends, since it takes no longer ones.
    pub(crate) cut: u64,
    /// Why, of the last ones; only a warning if there are none.
    pub(crate) reason: String,
}

/// The error of a destination that wants to be left alone for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Later {
    pub(crate) after: Duration,
    /// What it says.
    pub(crate) text: String,
}

impl fmt::Display for Later {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after.as_secs() {
            0 => write!(to, "{}", self.text),
            seconds => write!(
                to,
                "{}: it wants no request for {seconds} seconds",
                self.text
            ),
        }
    }
}

impl std::error::Error for Later {}

/// Encodes frames for a stream of bytes.
pub(crate) trait Encode: Send {
    /// Appends a frame.
    ///
    /// # Errors
    /// The frame cannot be encoded.
    fn encode(&mut self, frame: &Frame<'_>, to: &mut Vec<u8>) -> anyhow::Result<()>;
}

/// A destination without acknowledgements: a stream of bytes.
///
/// A frame is confirmed when the peer's kernel or program has taken its bytes and the connection has lived for `resend`
/// since then: a peer that reads what it has got within that time, and then ends, gets nothing less than once.
pub(crate) struct StreamSink<E, T> {
    encoder: E,
    transport: T,
    resend: Duration,
    buffer: Vec<u8>,
    /// Frames that were put.
    frames: u64,
    /// Bytes that were sent.
    bytes: u64,
    /// What was sent and is not confirmed.
    sent: Unconfirmed<Sent>,
    confirmed: u64,
}

/// Bytes that were sent.
struct Sent {
    /// All bytes until then.
    bytes: u64,
    /// All frames until then.
    frames: u64,
    last: Instant,
}

impl<E: Encode, T: Transport> StreamSink<E, T> {
    pub(crate) const fn new(encoder: E, transport: T, resend: Duration) -> Self {
        Self {
            encoder,
            transport,
            resend,
            buffer: Vec::new(),
            frames: 0,
            bytes: 0,
            sent: Unconfirmed::new(),
            confirmed: 0,
        }
    }
}

impl<E: Encode, T: Transport> Sink for StreamSink<E, T> {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.disconnect();
        self.transport.connect()
    }

    fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.encoder.encode(frame, &mut self.buffer)?;
        self.frames += 1;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.buffer.len() >= BATCH_BYTES
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.transport.write_all(&self.buffer)?;
        self.bytes += length(&self.buffer);
        self.buffer.clear();
        self.sent.push(Sent {
            bytes: self.bytes,
            frames: self.frames,
            last: Instant::now(),
        });
        Ok(())
    }

    fn confirmed(&mut self) -> anyhow::Result<u64> {
        let not_taken = self.transport.not_taken(self.bytes)?;
        let taken = self.bytes.saturating_sub(not_taken);
        let is_over = |sent: &Sent| sent.bytes <= taken && sent.last.elapsed() >= self.resend;
        while let Some(sent) = self.sent.pop_if(is_over) {
            self.confirmed = sent.frames;
        }
        Ok(self.confirmed)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.transport.finish()
    }

    fn disconnect(&mut self) {
        self.transport.disconnect();
        // A destination that is away holds no memory.
        self.buffer = Vec::new();
        self.sent.clear();
        (self.frames, self.bytes, self.confirmed) = (0, 0, 0);
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::frame::{Gap, Reason, Record, Time};
    use crate::json_lines::JsonLines;

    /// What the peer has not taken.
    struct Peer(Arc<Mutex<u64>>);

    impl Transport for Peer {
        fn connect(&mut self) -> anyhow::Result<()> {
            Ok(())
        }
        fn write_all(&mut self, _: &[u8]) -> anyhow::Result<()> {
            Ok(())
        }
        fn not_taken(&mut self, _: u64) -> anyhow::Result<u64> {
            Ok(*self.0.lock().unwrap())
        }
        fn finish(&mut self) -> anyhow::Result<()> {
            Ok(())
        }
        fn disconnect(&mut self) {}
    }

    #[test]
    fn frames_are_confirmed_when_they_were_taken_and_the_time_is_over() {
        let not_taken = Arc::new(Mutex::new(1));
        let put = |sink: &mut StreamSink<JsonLines, Peer>| {
            let gap = Gap {
                reason: Reason::Absent,
                time: Time::default(),
                after: 1,
                before: 3,
                missing: Some(1),
            };
            let record = Record::Gap(&gap);
            let frame = Frame {
                host: "h",
                boot: "b",
                record,
            };
            sink.put(&frame).unwrap();
            sink.flush().unwrap();
        };
        let peer = || Peer(Arc::clone(&not_taken));
        let mut sink = StreamSink::new(JsonLines, peer(), Duration::ZERO);
        sink.connect().unwrap();
        put(&mut sink);
        put(&mut sink);
        assert_eq!(sink.confirmed().unwrap(), 0);
        *not_taken.lock().unwrap() = 0;
        assert_eq!(sink.confirmed().unwrap(), 2);
        put(&mut sink);
        sink.connect().unwrap();
        assert_eq!(sink.confirmed().unwrap(), 0);
        let mut sink = StreamSink::new(JsonLines, peer(), Duration::from_secs(60));
        sink.connect().unwrap();
        put(&mut sink);
        assert_eq!(sink.confirmed().unwrap(), 0);
    }
}
