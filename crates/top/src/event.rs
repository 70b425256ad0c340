//! One event, as far as it is shown.

use std::borrow::Cow;

use audit::event::Timestamp;
use audit::ids::{Arch, Auid, Syscall};
use audit::record::decode::{self, Field, Record};
use audit::record::interpret;
use bstr::ByteSlice as _;

use crate::status::escaped;

/// The data that only viewers get; the list of records leaves it out.
const CONTEXT: &[u8] = b"type=UNKNOWN[1499] ";

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvent {
    pub(crate) time: Timestamp,
    /// The syscall, or the type of the first record.
    pub(crate) what: String,
    /// `ok`, an error, or `-`.
    pub(crate) result: String,
    pub(crate) program: String,
    pub(crate) pid: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) auid: Option<u32>,
    /// Keys, joined by `, `.
    key: String,
    /// The records, one a line, as the log has them.
    text: Vec<u8>,
}

impl SeenEvent {
    /// Reads an event from its records. `None` if they are none.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let is_syscall =
            |line: &&[u8]| line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=URINGOP ");
        let line = text.lines().find(is_syscall);
        let record = decode::line(line.or_else(|| text.lines().next())?).ok()?;
        let mut event = Self {
            time: record.time,
            what: escaped(record.kind),
            result: "-".to_owned(),
            program: String::new(),
            pid: None,
            uid: None,
            auid: None,
            key: String::new(),
            text: text.to_vec(),
        };
        let (mut arch, mut syscall, mut comm) = (None, None, String::new());
        let mut add = |field: &Field<'_>| {
            let number = || field.value.to_str().ok()?.parse::<u32>().ok();
            match field.name.as_bytes() {
                b"arch" => arch = hex(field.value),
                b"syscall" => syscall = number(),
                b"exit" => {
                    let exit = field.value.to_str().ok().and_then(|exit| exit.parse().ok());
                    event.result = match exit {
                        Some(exit) if !audit::event::succeeded(exit) => {
                            interpret::exit(exit).to_string()
                        }
                        _ => "ok".to_owned(),
                    };
                }
                b"res" => {
                    let is_ok = [&b"success"[..], b"yes", b"1"].contains(&field.value.as_bytes());
                    event.result = if is_ok { "ok" } else { "failed" }.to_owned();
                }
                b"pid" => event.pid = number(),
                b"uid" => event.uid = number(),
                b"auid" => event.auid = number().filter(|auid| *auid != Auid::UNSET.0),
                b"comm" => comm = text_of(&record, field),
                b"exe" => event.program = text_of(&record, field),
                b"key" => {
                    let keys = record.text(field).ok().flatten().unwrap_or_default();
                    let keys: Vec<String> = keys.split_str(&[1]).map(escaped).collect();
                    event.key = keys.join(", ");
                }
                _ => {}
            }
        };
        for field in record.fields().map_while(Result::ok) {
            add(&field);
            for field in record.nested_fields(&field).map_while(Result::ok) {
                add(&field);
            }
        }
        if let (Some(arch), Some(syscall)) = (arch, syscall) {
            event.what = interpret::syscall(Arch(arch), Syscall(syscall)).to_string();
        }
        if event.program.is_empty() {
            event.program = if comm.is_empty() {
                "-".to_owned()
            } else {
                comm
            };
        }
        Some(event)
    }

    /// The user that the event counts for: who has logged in, or else who runs the program.
    pub(crate) fn user(&self) -> u32 {
        self.auid.or(self.uid).unwrap_or_default()
    }

    /// The keys of the rule.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.key.split(", ").filter(|key| !key.is_empty())
    }

    /// The keys in one text.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The records, without what all of them repeat.
    pub(crate) fn records(&self) -> impl Iterator<Item = String> {
        let lines = self.text.lines().filter(|line| !line.starts_with(CONTEXT));
        lines.filter_map(|line| {
            let record = decode::line(line).ok()?;
            let mut fields = record.fields().map_while(Result::ok);
            if record.kind == "PROCTITLE"
                && let Some(field) = fields.next()
                && let Ok(Some(title)) = record.text(&field)
            {
                // The arguments are separated by NUL.
                let words = title.replace(b"\0", b" ");
                return Some(format!("PROCTITLE {}", escaped(&words)));
            }
            Some(format!(
                "{} {}",
                escaped(record.kind),
                escaped(record.body())
            ))
        })
    }
}

fn text_of(record: &Record<'_>, field: &Field<'_>) -> String {
    let text = record.text(field).ok().flatten();
    text.map_or_else(String::new, |text: Cow<'_, [u8]>| escaped(&text))
}

fn hex(value: &[u8]) -> Option<u32> {
    u32::from_str_radix(value.to_str().ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syscall_event_is_read() {
        let text = b"type=UNKNOWN[1499] msg=audit(1700000000.007:1): user_names=0\n\
            type=SYSCALL msg=audit(1700000000.007:1): arch=c000003e syscall=257 success=no exit=-13 a0=0 pid=42 \
            auid=1000 uid=0 comm=\"cat\" exe=2F746D702F0A key=610162\n\
            type=PATH msg=audit(1700000000.007:1): item=0 name=\"/etc/shadow\" nametype=NORMAL\n";
        let event = SeenEvent::read(text).unwrap();
        assert_eq!(
            (event.what.as_str(), event.result.as_str()),
            ("openat", "EACCES")
        );
        assert_eq!((event.program.as_str(), event.pid), ("/tmp/\\n", Some(42)));
        assert_eq!((event.user(), event.uid), (1000, Some(0)));
        assert_eq!(event.keys().collect::<Vec<_>>(), ["a", "b"]);
        let records: Vec<String> = event.records().collect();
        assert_eq!(records.len(), 2);
        assert_eq!(
            records[1],
            "PATH item=0 name=\"/etc/shadow\" nametype=NORMAL"
        );
    }

    #[test]
    fn login_is_read() {
        let text = b"type=USER_LOGIN msg=audit(1.000:2): pid=9 uid=0 auid=4294967295 ses=1 \
            msg='op=login id=1000 exe=\"/usr/sbin/sshd\" hostname=? res=failed'\n";
        let event = SeenEvent::read(text).unwrap();
        assert_eq!(
            (
                event.what.as_str(),
                event.result.as_str(),
                event.program.as_str()
            ),
            ("USER_LOGIN", "failed", "/usr/sbin/sshd")
        );
        assert_eq!((event.user(), event.key()), (0, ""));
        assert_eq!(SeenEvent::read(b""), None);
        assert_eq!(SeenEvent::read(b"no record\n"), None);
    }
}
