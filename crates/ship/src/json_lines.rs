//! JSON lines: one object on a line.
//!
//! Each has `kind` (`event`, `gap` or `heartbeat`), `host` and `boot`. The other members of an event are those of the
//! daemon's JSON log (docs/json.md).

use serde::Serialize;

use crate::frame::{Frame, Record};
use crate::sink::Encode;

/// The encoder.
#[derive(Debug)]
pub(crate) struct JsonLines;

/// The members of every object.
#[derive(Serialize)]
struct Object<'a, T> {
    kind: &'static str,
    host: &'a str,
    boot: &'a str,
    #[serde(flatten)]
    rest: T,
}

impl Encode for JsonLines {
    fn encode(&mut self, frame: &Frame<'_>, to: &mut Vec<u8>) -> anyhow::Result<()> {
        match frame.record {
            Record::Event(event) => {
                // Invalid parts of a record are left out, as in the daemon's JSON log.
                let mut members = logs::json::object(event, |_| ());
                // No record of this host has them.
                OWN.iter().for_each(|name| members.remove(name));
                write(frame, "event", &members, to)
            }
            Record::Gap(gap) => write(frame, "gap", gap, to),
            Record::Heartbeat(heartbeat) => write(frame, "heartbeat", heartbeat, to),
        }
    }
}

/// Members that are not those of an event.
const OWN: [&str; 3] = ["kind", "host", "boot"];

/// An object and its newline.
fn write<T: Serialize>(
    frame: &Frame<'_>,
    kind: &'static str,
    rest: &T,
    to: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let object = Object {
        kind,
        host: frame.host,
        boot: frame.boot,
        rest,
    };
    serde_json::to_writer(&mut *to, &object)?;
    to.push(b'\n');
    Ok(())
}
