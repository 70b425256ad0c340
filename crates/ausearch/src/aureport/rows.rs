//! The lines of a report, one for each event.

use bstr::ByteSlice as _;

use super::context::{NULL, belongs, result, syscall, user};
use super::options::Options;
use super::titles::Report;
use crate::event::Event;
use crate::fields::{Avc, AvcResult, FAILED, Found, NO_ID};
use crate::interpret::{Interpreter, keystrokes};
use crate::local_time::Clock;
use crate::record_type as ty;

/// Prints the lines of a report.
pub(super) struct Rows<'a> {
    pub(super) options: &'a Options,
    pub(super) clock: &'a Clock,
    /// Number of the last line.
    pub(super) line: u32,
}

/// A line being written.
struct Row<'a> {
    options: &'a Options,
    interpreter: &'a mut Interpreter,
    out: &'a mut Vec<u8>,
}

impl Row<'_> {
    /// A text as it is, and a blank.
    fn raw(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.out.extend_from_slice(text.as_ref());
        self.out.push(b' ');
        self
    }

    /// A text that a task chose, and a blank.
    fn safe(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.interpreter.escape.push(text.as_ref(), self.out);
        self.out.push(b' ');
        self
    }

    /// A user, and a blank.
    fn user(&mut self, uid: u32) -> &mut Self {
        let name = user(self.options, self.interpreter, uid);
        self.safe(name)
    }

    /// The end of the line, over the last blank.
    fn end(&mut self) {
        if self.out.last() == Some(&b' ') {
            self.out.pop();
        }
        self.out.push(b'\n');
    }
}

impl Rows<'_> {
    /// Appends the lines of an event; whether there are any.
    pub(super) fn event(
        &mut self,
        event: &Event,
        found: &Found<'_>,
        interpreter: &mut Interpreter,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.is_listed(event, found) {
            return false;
        }
        let date = self.clock.date_time(event.id.seconds.cast_signed());
        if self.options.report == Report::Avc {
            self.checks(event, found, &date, interpreter, out);
            return true;
        }
        self.line += 1;
        out.extend_from_slice(format!("{}. {date} ", self.line).as_bytes());
        let mut row = Row {
            options: self.options,
            interpreter,
            out,
        };
        self.row(event, found, &mut row);
        true
    }

    fn is_listed(&self, event: &Event, found: &Found<'_>) -> bool {
        match self.options.report {
            Report::Mac => event.has_any(&ty::MAC_CONFIG) || event.has_any(&ty::LSPP),
            Report::File => found.files.is_some(),
            Report::Host => found.host.is_some(),
            Report::Pid => found.pid >= 0,
            Report::Syscall => found.syscall != 0,
            Report::Terminal => found.terminal.is_some(),
            Report::User => found.uid.id != NO_ID,
            Report::Executable => found.exe.is_some(),
            Report::Comm => found.comm.is_some(),
            Report::Key => first_key(found).is_some_and(|key| key != NULL),
            Report::Tty => matches!(event.kind, ty::TTY | ty::USER_TTY),
            Report::Time | Report::Summary => false,
            report => belongs(report, event, found),
        }
    }

    /// Appends a line for each access vector check of an event.
    fn checks(
        &mut self,
        event: &Event,
        found: &Found<'_>,
        date: &str,
        interpreter: &mut Interpreter,
        out: &mut Vec<u8>,
    ) {
        let avcs = found.avcs.as_deref().unwrap_or_default();
        let decided: Vec<&Avc<'_>> = avcs
            .iter()
            .filter(|avc| avc.result != AvcResult::Unset)
            .collect();
        // Without a decision, the last label stands for one.
        let listed = if decided.is_empty() {
            avcs.last().into_iter().collect()
        } else {
            decided
        };
        for avc in listed {
            self.line += 1;
            out.extend_from_slice(format!("{}. {date} ", self.line).as_bytes());
            let mut row = Row {
                options: self.options,
                interpreter,
                out,
            };
            row.safe(found.comm.as_deref().unwrap_or(b"?"))
                .raw(avc.subject.unwrap_or(NULL))
                .raw(syscall(self.options, found))
                .raw(avc.class.unwrap_or(NULL))
                .raw(avc.permission.unwrap_or(NULL))
                .raw(avc.object.unwrap_or(NULL))
                .raw(match avc.result {
                    AvcResult::Unset => "unset",
                    AvcResult::Denied => "denied",
                    AvcResult::Granted => "granted",
                })
                .raw(event.id.serial.to_string())
                .end();
        }
    }

    fn row(&self, event: &Event, found: &Found<'_>, row: &mut Row<'_>) {
        let options = self.options;
        let or = |text: &Option<std::borrow::Cow<'_, [u8]>>, absent: &'static [u8]| {
            text.as_deref().unwrap_or(absent).to_vec()
        };
        let serial = event.id.serial.to_string();
        let kind = ty::name(event.kind).map_or(NULL, str::as_bytes);
        let success = result(found.success);
        let (auid, host, terminal) = (found.auid.id, &found.host, &found.terminal);
        let (exe, comm, account) = (&found.exe, &found.comm, &found.account);
        match options.report {
            Report::Config => {
                let name = user(options, row.interpreter, auid);
                row.raw(kind).raw(name).raw(success).raw(serial).end();
            }
            Report::Auth => {
                // The kernel's user is the one that asks; the account is the one that is asked for.
                match account {
                    Some(account) => row.safe(account),
                    None => row.user(found.uid.id),
                };
                row.raw(or(host, NULL))
                    .raw(or(terminal, NULL))
                    .raw(or(exe, NULL));
                row.raw(success).raw(serial).end();
            }
            Report::Login => {
                match account {
                    Some(account) if found.success == FAILED => row.safe(account),
                    _ => row.user(auid),
                };
                row.raw(or(host, NULL))
                    .raw(or(terminal, NULL))
                    .raw(or(exe, NULL));
                row.raw(success).raw(serial).end();
            }
            Report::Accounts => {
                row.user(auid).raw(or(host, b"?")).raw(or(terminal, b"?"));
                row.raw(or(exe, b"?"))
                    .raw(or(account, b"?"))
                    .raw(success)
                    .raw(serial)
                    .end();
            }
            Report::Event => {
                row.raw(serial).raw(kind).user(auid).raw(success).end();
            }
            Report::File => {
                row.safe(listed_file(found))
                    .raw(syscall(options, found))
                    .raw(success);
                row.safe(or(exe, b"?")).user(auid).raw(serial).end();
            }
            Report::Host => {
                row.raw(or(host, NULL))
                    .raw(syscall(options, found))
                    .user(auid)
                    .raw(serial)
                    .end();
            }
            Report::Pid => {
                row.raw(found.pid.to_string()).safe(or(exe, b"?"));
                row.raw(syscall(options, found))
                    .user(auid)
                    .raw(serial)
                    .end();
            }
            Report::Syscall => {
                row.raw(syscall(options, found))
                    .raw(found.pid.cast_unsigned().to_string());
                row.safe(or(comm, b"?")).user(auid).raw(serial).end();
            }
            Report::Terminal => {
                row.raw(or(terminal, NULL))
                    .raw(or(host, NULL))
                    .safe(or(exe, NULL));
                row.user(auid).raw(serial).end();
            }
            Report::User => {
                row.user(auid).raw(or(terminal, b"?")).raw(or(host, b"?"));
                row.safe(or(exe, b"?")).raw(serial).end();
            }
            Report::Executable | Report::Comm => {
                let name = if options.report == Report::Comm {
                    comm
                } else {
                    exe
                };
                row.safe(or(name, b"?"))
                    .raw(or(terminal, b"?"))
                    .raw(or(host, b"?"));
                row.user(auid).raw(serial).end();
            }
            Report::Anomaly => {
                row.raw(kind)
                    .safe(or(if exe.is_some() { exe } else { comm }, b"?"));
                row.raw(or(terminal, b"?"))
                    .raw(or(host, b"?"))
                    .user(auid)
                    .raw(serial)
                    .end();
            }
            Report::Response | Report::Integrity | Report::Virt => {
                row.raw(kind).raw(success).raw(serial).end();
            }
            Report::Mac => {
                let name = user(options, row.interpreter, auid);
                row.raw(name).raw(kind).raw(success).raw(serial).end();
            }
            Report::Crypto => {
                row.user(auid).raw(kind).raw(success).raw(serial).end();
            }
            Report::Key => {
                row.raw(first_key(found).unwrap_or(NULL)).raw(success);
                row.safe(or(exe, b"?")).user(auid).raw(serial).end();
            }
            Report::Tty => typed(event, found, row),
            Report::Avc | Report::Time | Report::Summary => {}
        }
    }
}

fn first_key<'f>(found: &'f Found<'_>) -> Option<&'f [u8]> {
    found.keys.as_ref()?.first().map(Vec::as_slice)
}

/// The file that stands for an event: the first that is no parent directory.
fn listed_file(found: &Found<'_>) -> Vec<u8> {
    let files = found.files.as_deref().unwrap_or_default();
    let is_parent = |kind: Option<&[u8]>| kind == Some(b"PARENT");
    let skipped = files
        .iter()
        .take_while(|file| files.len() > 1 && is_parent(file.kind))
        .count();
    files
        .get(skipped)
        .map(|file| file.name.to_vec())
        .unwrap_or_default()
}

/// Writes what was typed. A record without it leaves the line unfinished, as the stock tool does.
fn typed(event: &Event, found: &Found<'_>, row: &mut Row<'_>) {
    let text = event
        .records()
        .next()
        .map(|record| record.text)
        .unwrap_or_default();
    let Some((_, data)) = text.split_once_str(b"data=") else {
        return;
    };
    let data = match data.rfind_byte(b' ') {
        Some(end) => data.get(..end).unwrap_or_default(),
        None => data,
    };
    row.raw(event.id.serial.to_string()).user(found.auid.id);
    row.raw(found.terminal.as_deref().unwrap_or(b"?"))
        .raw(found.session.to_string());
    row.safe(found.comm.as_deref().unwrap_or(b"?"));
    match keystrokes(data) {
        Some(typed) => row.out.extend_from_slice(&typed),
        None => row
            .out
            .extend_from_slice(&[b"conversion error(", data, b")"].concat()),
    }
    row.out.push(b'\n');
}
