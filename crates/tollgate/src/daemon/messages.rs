//! Messages of the kernel's audit on their way into the stream of events.
//!
//! They come over netlink a moment after they were made, with a time and a serial of the kernel's own. Each
//! waits until the ring has given the events that are older, so that the log is in the order of time as far
//! as the two streams tell.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs;

use audit::event::{Task, Time};
use audit::ids::{Auid, MsgType, Serial};
use audit::plan::exclude::Exclude;
use audit::plan::{eval, message};
use audit::record::{decode, encode};
use bstr::ByteSlice as _;
use engine::{Message, MessageStream};
use nix::errno::Errno;

use super::pipeline::Batch;

/// Messages taken between two looks at the ring.
const AT_ONCE: usize = 256;
/// Text that may wait for the ring; the rest waits with the kernel.
const HELD_BYTES: usize = 1 << 20;

/// What came of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageCounts {
    /// Records that the kernel has sent.
    pub(crate) received: u64,
    /// Of them, those that the exclude list or the user list keeps out.
    pub(crate) excluded: u64,
    /// Datagrams that were no records of the kernel's.
    pub(crate) refused: u64,
    /// Times that the kernel says that it could not send some; how many, it does not.
    pub(crate) overruns: u64,
}

/// Reads messages and holds them.
#[derive(Debug)]
pub(super) struct Messages {
    stream: MessageStream,
    held: Held,
    pub(super) counts: MessageCounts,
}

/// Lines that wait for the ring.
#[derive(Debug, Default)]
struct Held {
    lines: Vec<u8>,
    /// Bytes of the lines that were passed on.
    passed: usize,
    /// Stamp of each line that was not, and where it ends.
    waiting: VecDeque<(Time, Serial, usize)>,
}

impl Messages {
    /// Reads from here.
    pub(super) fn new(stream: MessageStream) -> Self {
        Self {
            stream,
            held: Held::default(),
            counts: MessageCounts::default(),
        }
    }

    /// Where they come from: readable when there are some.
    pub(super) const fn stream(&self) -> &MessageStream {
        &self.stream
    }

    /// Takes what has come; whether there was anything.
    ///
    /// # Errors
    /// When the kernel does not let them be read.
    pub(super) fn receive(
        &mut self,
        exclude: &Exclude,
        user: &message::Messages,
    ) -> std::io::Result<bool> {
        let Self {
            stream,
            held,
            counts,
        } = self;
        if held.lines.len() > HELD_BYTES {
            return Ok(true);
        }
        let received = stream.receive(AT_ONCE, |message| match message {
            Ok(message) if message.kind == MsgType::EOE => {}
            Ok(message) => held.take(message, exclude, user, counts),
            Err(_no_message) => counts.refused += 1,
        });
        match received {
            Ok(count) => Ok(count != 0),
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                counts.overruns += 1;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Passes on those that are not younger than an event.
    pub(super) fn up_to(&mut self, time: Time, batch: &mut Batch) {
        self.held.pass(batch, |of_message| of_message <= time);
    }

    /// Passes on all that were taken.
    pub(super) fn all(&mut self, batch: &mut Batch) {
        self.held.pass(batch, |_| true);
    }
}

impl Held {
    fn take(
        &mut self,
        message: Message<'_>,
        exclude: &Exclude,
        user: &message::Messages,
        counts: &mut MessageCounts,
    ) {
        let start = self.lines.len();
        encode::relayed(message.kind, message.text, &mut self.lines);
        let line = self.lines.get(start..).unwrap_or_default();
        let Ok(record) = decode::line(line) else {
            self.lines.truncate(start);
            counts.refused += 1;
            return;
        };
        counts.received += 1;
        let (time, serial) = (record.time, record.serial);
        let asked = user.asks_about(message.kind);
        if asked || !exclude.is_empty() {
            let sender = Sender::of(&record);
            let task = sender.task();
            let sent = eval::other::Sender { task, label: None };
            if asked && !user.keeps(message.kind, &sent) {
                self.lines.truncate(start);
            }
            exclude.strike(&sent.task, &mut self.lines, start);
            if self.lines.len() == start {
                counts.excluded += 1;
                return;
            }
        }
        self.waiting.push_back((time, serial, self.lines.len()));
    }

    fn pass(&mut self, batch: &mut Batch, is_due: impl Fn(Time) -> bool) {
        while let Some(&(time, serial, end)) = self.waiting.front()
            && is_due(time)
        {
            let line = self.lines.get(self.passed..end).unwrap_or_default();
            batch.message(line, (time, serial));
            self.passed = end;
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            self.lines.clear();
            self.passed = 0;
        }
    }
}

/// What a record tells of the task that has caused it, for the rules of the exclude list.
#[derive(Debug, Default)]
struct Sender {
    pid: u32,
    uid: u32,
    gid: u32,
    auid: Option<u32>,
    ses: Option<u32>,
    exe: Option<Vec<u8>>,
}

impl Sender {
    /// Reads a record; what does not stand in it the task itself is asked, if it still lives.
    fn of(record: &decode::Record<'_>) -> Self {
        let mut sender = Self::default();
        let mut gid = None;
        for field in record.fields().map_while(Result::ok) {
            let number = || field.value.to_str().ok()?.parse::<u32>().ok();
            match field.name.as_bytes() {
                b"pid" => sender.pid = number().unwrap_or_default(),
                b"uid" => sender.uid = number().unwrap_or_default(),
                b"gid" => gid = number(),
                b"auid" => sender.auid = number(),
                b"ses" => sender.ses = number(),
                b"exe" => {
                    let text = record.text(&field).ok().flatten();
                    sender.exe = text.map(Cow::into_owned);
                }
                _ => {}
            }
        }
        let about = format!("/proc/{}", sender.pid);
        sender.gid = gid.or_else(|| real_gid(&about)).unwrap_or_default();
        if sender.exe.is_none() {
            let exe = fs::read_link(about + "/exe").ok();
            sender.exe = exe.map(|path| path.into_os_string().into_encoded_bytes());
        }
        sender
    }

    fn task(&self) -> Task<'_> {
        let &Self { pid, uid, gid, .. } = self;
        Task {
            ppid: 0,
            pid,
            auid: self.auid.map_or(Auid::UNSET, Auid),
            uid,
            gid,
            euid: uid,
            suid: uid,
            fsuid: uid,
            egid: gid,
            sgid: gid,
            fsgid: gid,
            ses: self.ses.unwrap_or(u32::MAX),
            tty: b"",
            comm: b"",
            exe: self.exe.as_deref(),
            subj: None,
        }
    }
}

fn real_gid(about: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("{about}/status")).ok()?;
    let gids = status.lines().find_map(|line| line.strip_prefix("Gid:"))?;
    gids.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use audit::ids::Arch;
    use audit::plan::Plan;
    use audit::plan::list::RuleList;
    use audit::rule::parse_file;

    use super::*;
    use crate::host::ThisMachine;

    const USER: MsgType = MsgType::USER;
    const LOGIN: MsgType = MsgType(1006);

    fn time(milli: u16) -> Time {
        Time { sec: 5, milli }
    }

    fn plan(rules: &str) -> Plan {
        let (lines, _) = parse_file(rules.as_bytes(), &ThisMachine);
        let mut list = RuleList::default();
        for line in lines {
            list.obey(0, line.number, line.command).unwrap();
        }
        Plan::compile(list.into_rules(), &[Arch::X86_64])
    }

    fn held(rules: &str, messages: &[(MsgType, &str)]) -> (Held, MessageCounts) {
        let (mut held, mut counts) = (Held::default(), MessageCounts::default());
        let Plan {
            exclude,
            messages: user,
            ..
        } = plan(rules);
        for &(kind, text) in messages {
            let text = text.as_bytes();
            held.take(Message { kind, text }, &exclude, &user, &mut counts);
        }
        (held, counts)
    }

    #[test]
    fn user_list_is_asked_about_what_programs_send() {
        let text = "audit(5.000:1): pid=7 uid=3 auid=3 ses=1 msg='op=x'";
        let rules = "-a never,user -F uid=3\n";
        let (sent, counts) = held(
            rules,
            &[
                (MsgType(1112), text),
                (MsgType(2100), text),
                (MsgType(1005), text),
            ],
        );
        assert_eq!((counts.received, counts.excluded), (3, 3));
        assert!(sent.lines.is_empty());
        let (_, of_kernel) = held(rules, &[(MsgType(1701), text)]);
        assert_eq!((of_kernel.received, of_kernel.excluded), (1, 0));
        let other = "audit(5.000:1): pid=7 uid=4 auid=3 ses=1 msg='op=x'";
        let (_, others) = held(rules, &[(MsgType(1112), other)]);
        assert_eq!((others.received, others.excluded), (1, 0));
    }

    #[test]
    fn messages_wait_for_what_is_older() {
        let (mut held, counts) = held(
            "",
            &[
                (USER, "audit(5.100:1): pid=1 uid=0 auid=0 ses=1 msg='a'"),
                (LOGIN, "audit(5.200:2): pid=1 uid=0 "),
                (MsgType(1423), "audit(5.200:2): domain=1"),
                (MsgType(4000), "audit(5.300:3): x=1"),
            ],
        );
        assert_eq!((counts.received, counts.refused), (4, 0));
        let mut batch = Batch::default();
        held.pass(&mut batch, |of| of <= time(99));
        assert!(batch.text.is_empty());
        held.pass(&mut batch, |of| of <= time(200));
        assert_eq!(
            batch.text.as_bstr(),
            "type=USER msg=audit(5.100:1): pid=1 uid=0 auid=0 ses=1 msg='a'\n\
             type=LOGIN msg=audit(5.200:2): pid=1 uid=0\n\
             type=LANDLOCK_ACCESS msg=audit(5.200:2): domain=1\n"
        );
        assert_eq!(batch.origins.len(), 2, "records of one event count once");
        held.pass(&mut batch, |_| true);
        assert!(
            batch
                .text
                .ends_with(b"type=UNKNOWN[4000] msg=audit(5.300:3): x=1\n")
        );
        assert!(held.lines.is_empty());
    }

    #[test]
    fn text_that_is_no_record_is_counted_and_left_out() {
        let (held, counts) = held(
            "",
            &[
                (USER, ""),
                (USER, "audit(5:1): x"),
                (USER, "audit(5.100:99999999999): x"),
                (USER, "audit(5.100:1) x"),
            ],
        );
        assert_eq!((counts.received, counts.refused), (0, 4));
        assert!(held.lines.is_empty() && held.waiting.is_empty());
    }

    #[test]
    fn nothing_that_a_program_says_makes_another_line() {
        let (held, counts) = held(
            "",
            &[(
                USER,
                "audit(5.100:1): msg='a\ntype=USER msg=audit(1.1:1): \x1dUID=\"root\"'",
            )],
        );
        assert_eq!((counts.received, counts.refused), (1, 0));
        assert_eq!(held.lines.iter().filter(|&&byte| byte == b'\n').count(), 1);
        assert!(!held.lines.contains(&0x1d));
    }

    #[test]
    fn the_exclude_list_holds_for_messages() {
        let messages = [
            (
                USER,
                "audit(5.100:1): pid=0 uid=7 auid=1000 ses=1 msg='uid=0'",
            ),
            (
                LOGIN,
                "audit(5.100:2): pid=0 uid=0 old-auid=4294967295 auid=5",
            ),
        ];
        for (rule, left) in [
            ("-a always,exclude -F msgtype=LOGIN\n", 1),
            ("-a always,exclude -F uid=7\n", 1),
            ("-a always,exclude -F auid=5\n", 1),
            ("-a always,exclude -F uid=0 -F auid=1000\n", 2),
            ("-a always,exclude -F msgtype>=USER\n", 0),
        ] {
            let (held, counts) = held(rule, &messages);
            assert_eq!(held.waiting.len(), left, "{rule}");
            assert_eq!(counts.excluded, u64::try_from(2 - left).unwrap(), "{rule}");
        }
    }
}
