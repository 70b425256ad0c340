//! Events that are no syscall: logins, messages of programs, changes of the configuration, denials.
//!
//! ```text
//! 22:13:20.007Z ok       USER_LOGIN   /usr/sbin/sshd[4322]  root (login alice)  op=login id=1000 hostname=gate
//! ```

use std::borrow::Cow;
use std::fmt::{self, Display};

use audit::ids::Auid;
use audit::record::assemble::EventRecords;
use audit::record::decode::{Field, Record};
use audit::record::interpret::{self, AccountNames};
use audit::table;
use bstr::ByteSlice as _;

use super::{BAD, BOLD, DIM, GOOD, KEY, ODD, clock};
use crate::escaped::Escaped;

/// First record type of security modules, anomalies and integrity checks. Those below belong to syscalls.
///
/// # Source
/// `AUDIT_AVC` in `include/uapi/linux/audit.h`, Linux 6.12.
const FIRST_OF_DENIALS: u16 = 1400;

/// Prints an event without a syscall.
pub(super) struct Message<'a> {
    pub(super) event: &'a EventRecords,
    pub(super) names: Option<&'a dyn AccountNames>,
}

/// Prints the records of an event that are not about its syscall.
pub(super) struct Denials<'a>(pub(super) &'a EventRecords);

impl Display for Denials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in self.0.records() {
            let number = table::msg_type_number(record.kind);
            if number.is_some_and(|number| number.0 >= FIRST_OF_DENIALS) {
                let (kind, body) = (Escaped(record.kind), record.body());
                writeln!(f, "    {BAD}{kind}{BAD:#}  {}", Line(body))?;
            }
        }
        Ok(())
    }
}

impl Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut records = self.event.records();
        let Some(first) = records.next() else {
            return Ok(());
        };
        self.header(&first, f)?;
        for record in records.filter(|record| record.kind != "EOE") {
            let (kind, body) = (Escaped(record.kind), record.body());
            writeln!(f, "    {DIM}{kind}{DIM:#}  {}", Line(body))?;
        }
        Ok(())
    }
}

/// What the header shows in a place of its own.
#[derive(Default)]
struct Facts<'a> {
    pid: Option<u32>,
    uid: Option<u32>,
    auid: Option<u32>,
    exe: Option<Cow<'a, [u8]>>,
    key: Option<Cow<'a, [u8]>>,
    result: Option<&'static str>,
    others: Vec<(&'a [u8], Cow<'a, [u8]>)>,
}

impl<'a> Facts<'a> {
    fn read(record: &Record<'a>) -> Self {
        let mut facts = Self::default();
        for field in record.fields().map_while(Result::ok) {
            let mut nested = record
                .nested_fields(&field)
                .map_while(Result::ok)
                .peekable();
            if nested.peek().is_none() {
                facts.add(record, field);
            } else {
                nested.for_each(|field| facts.add(record, field));
            }
        }
        facts
    }

    fn add(&mut self, record: &Record<'a>, field: Field<'a>) {
        let number = || field.value.to_str().ok()?.parse().ok();
        let text = || record.text(&field).ok().flatten();
        match field.name.as_bytes() {
            b"pid" => self.pid = number(),
            b"uid" => self.uid = number(),
            b"auid" => self.auid = number(),
            b"ses" | b"subj" => {}
            b"exe" => self.exe = text(),
            b"key" => self.key = text(),
            b"res" => {
                self.result = match field.value.as_bytes() {
                    b"success" | b"yes" | b"1" => Some("ok"),
                    b"failed" | b"no" | b"0" => Some("failed"),
                    _ => None,
                }
            }
            name => self
                .others
                .push((name, text().unwrap_or(Cow::Borrowed(field.value)))),
        }
    }
}

impl Message<'_> {
    fn header(&self, record: &Record<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = Facts::read(record);
        write!(f, "{DIM}{}{DIM:#} ", clock(record.time))?;
        match facts.result {
            Some(result @ "ok") => write!(f, "{GOOD}{result:<8}{GOOD:#}")?,
            Some(result) => write!(f, "{BAD}{result:<8}{BAD:#}")?,
            None => write!(f, "{ODD}{:<8}{ODD:#}", "-")?,
        }
        write!(
            f,
            " {BOLD}{:<12}{BOLD:#} ",
            Escaped(record.kind).to_string()
        )?;
        match &facts.exe {
            Some(exe) => write!(f, "{}", Escaped(exe))?,
            None => write!(f, "-")?,
        }
        if let Some(pid) = facts.pid {
            write!(f, "{DIM}[{pid}]{DIM:#}")?;
        }
        if let Some(uid) = facts.uid {
            write!(f, "  {}", self.user(uid))?;
        }
        match facts.auid {
            Some(login) if login != Auid::UNSET.0 && Some(login) != facts.uid => {
                write!(f, " (login {})", self.user(login))?;
            }
            _ => {}
        }
        if let Some(key) = &facts.key {
            write!(f, "  {KEY}[{}]{KEY:#}", Escaped(key))?;
        }
        f.write_str(" ")?;
        for word in words(record.body()) {
            write!(f, " {}", Line(word))?;
        }
        for (name, value) in &facts.others {
            write!(f, " {}={}", Line(name), Escaped(value))?;
        }
        writeln!(f)
    }

    fn user(&self, uid: u32) -> impl Display {
        fmt::from_fn(move |f| match self.names {
            None => write!(f, "uid {uid}"),
            Some(names) => write!(f, "{}", interpret::user(names, uid)),
        })
    }
}

/// The words before the first field: `avc:  denied  { read } for`.
fn words(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = body.split(|&byte| byte == b' ');
    words
        .take_while(|word| !word.contains(&b'='))
        .filter(|word| !word.is_empty())
}

/// Text of a record, which is one line: bytes that a terminal could obey are escaped.
struct Line<'a>(&'a [u8]);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '"' | '\'' | '\\' => write!(f, "{char}")?,
                // Also those that change the text direction.
                char => write!(f, "{}", char.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;

    use crate::accounts::Accounts;
    use crate::console::Interpret;
    use crate::console::tests::on_screen;

    fn shown(lines: &str) -> String {
        let names = Accounts::parse(b"root:x:0:0::/:\nalice:x:1000:1000::/:\n", b"");
        let mut assembler = EventAssembler::default();
        for line in lines.lines() {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        assembler.end_all();
        on_screen(Interpret::Names(names), |console| {
            assembler.drain_ended(|event| console.records(event).unwrap());
        })
    }

    #[test]
    fn login_has_a_header_line() {
        assert_eq!(
            shown(
                "type=USER_LOGIN msg=audit(1700000000.007:9): pid=4322 uid=0 auid=1000 ses=3 subj=unconfined \
                 msg='op=login id=1000 exe=\"/usr/sbin/sshd\" hostname=gate terminal=ssh res=success'"
            ),
            "22:13:20.007Z ok       USER_LOGIN   /usr/sbin/sshd[4322]  root (login alice)  \
             op=login id=1000 hostname=gate terminal=ssh\n"
        );
        assert_eq!(
            shown(
                "type=CONFIG_CHANGE msg=audit(1700000000.007:9): auid=1000 op=add_rule key=\"k\" list=4 res=0"
            ),
            "22:13:20.007Z failed   CONFIG_CHANGE - (login alice)  [k]  op=add_rule list=4\n"
        );
    }

    #[test]
    fn words_before_the_fields_are_shown() {
        let text = shown(
            "type=AVC msg=audit(1700000000.001:7): avc:  denied  { read write } for  pid=42 name=2F612062\n\
             type=USER msg=audit(1700000000.001:8): free text\n",
        );
        assert!(
            text.contains("avc: denied { read write } for name='/a b'"),
            "{text}"
        );
        assert!(text.contains("free text"), "{text}");
    }

    #[test]
    fn names_of_the_task_are_marked_and_denials_are_shown() {
        let text = shown(
            "type=UNKNOWN[1499] msg=audit(1700000000.007:9): user_names=0\n\
             type=AVC msg=audit(1700000000.007:9): apparmor=\"DENIED\" name=\"/x\"\n\
             type=SYSCALL msg=audit(1700000000.007:9): arch=c000003e syscall=2 success=no exit=-13 a0=0 pid=7 \
             auid=1000 uid=1000 euid=1000 comm=\"cat\" exe=\"/bin/cat\" key=\"k\"\n\
             type=CWD msg=audit(1700000000.007:9): cwd=\"/\"\n\
             type=PATH msg=audit(1700000000.007:9): item=0 name=\"/x\" nametype=UNKNOWN\n\
             type=PROCTITLE msg=audit(1700000000.007:9): proctitle=\"cat\"",
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "22:13:20.007Z EACCES   open         /bin/cat[7]  alice  [k]"
        );
        assert!(lines[1].starts_with("    name~ /x"), "{text}");
        assert_eq!(lines[2], "    AVC  apparmor=\"DENIED\" name=\"/x\"");
        assert_eq!(lines.len(), 3, "{text}");
    }

    /// A name that a stranger typed at a login.
    #[test]
    fn value_cannot_look_like_other_fields() {
        assert_eq!(
            shown(
                "type=USER_LOGIN msg=audit(1700000000.007:9): pid=4322 uid=0 auid=1000 ses=3 subj=unconfined \
                 msg='op=login acct=6120616464723D31302E302E302E31 exe=\"/usr/sbin/sshd\" addr=192.0.2.7 res=failed'"
            ),
            "22:13:20.007Z failed   USER_LOGIN   /usr/sbin/sshd[4322]  root (login alice)  \
             op=login acct='a addr=10.0.0.1' addr=192.0.2.7\n"
        );
    }

    #[test]
    fn records_cannot_control_the_terminal() {
        let text = shown("type=USER msg=audit(1.000:9): pid=1 msg='text=\u{202e}\u{9b}31m'");
        assert!(!text.contains(['\u{202e}', '\u{9b}']), "{text:?}");
    }
}
