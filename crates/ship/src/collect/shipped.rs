//! What `tollgate-ship` sends, by syslog or OTLP: records, each with its boot and number, and JSON about gaps and heartbeats.
//! What other programs send is taken as records.

/// Longest id of a boot.
pub(super) const MAX_BOOT: usize = 64;

/// A message: one record, gap or heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShippedMessage<'a> {
    /// The host that it names.
    pub(super) host: Option<&'a [u8]>,
    pub(super) kind: Kind,
    /// Id of the boot; empty if it is not known.
    pub(super) boot: &'a str,
    /// Which record of which event it is, if it is told.
    pub(super) number: Option<RecordNumber>,
    pub(super) text: &'a [u8],
}

/// What the text of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Record,
    Gap,
    Heartbeat,
}

/// Which record of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordNumber {
    pub(super) serial: u32,
    /// From 1.
    pub(super) n: u32,
    /// Number of records of the event.
    pub(super) of: u32,
}

/// The id of a boot; `None` if it cannot be one.
pub(super) fn boot_id(text: &[u8]) -> Option<&str> {
    let is_plain = text.len() <= MAX_BOOT && text.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(text).ok().filter(|_| is_plain)
}
