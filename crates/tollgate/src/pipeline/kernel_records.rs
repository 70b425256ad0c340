//! Messages of the kernel's audit on their way into the stream of events.
//!
//! They come over netlink a moment after they were made, with a time and a serial of the kernel's own. Each
//! waits until the ring has given the events that are older, so that the log is in the order of time as far
//! as the two streams tell. That of a security module is joined by its call, which comes through the ring.

mod reorder_buffer;

use std::borrow::Cow;
use std::fs;

use audit::event::{Event, Task, Timestamp};
use audit::ids::{Auid, MsgType};
use audit::plan::exclude_list::ExcludeList;
use audit::plan::user_list;
use audit::record::decode;
use bstr::ByteSlice as _;
use netlink::RecordStream;
use nix::errno::Errno;

use crate::pipeline::batch::Batch;
use reorder_buffer::ReorderBuffer;

/// Messages taken between two looks at the ring.
const MAX_RECEIVE: usize = 256;
/// Text that may wait for the ring; the rest waits with the kernel.
const REORDER_LIMIT_BYTES: usize = 1 << 20;

/// What came of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelRecordCounts {
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
pub(crate) struct KernelRecords {
    stream: RecordStream,
    reorder_buffer: ReorderBuffer,
    pub(crate) counts: KernelRecordCounts,
}

impl KernelRecords {
    /// Reads from here.
    pub(crate) fn new(stream: RecordStream) -> Self {
        Self {
            stream,
            reorder_buffer: ReorderBuffer::default(),
            counts: KernelRecordCounts::default(),
        }
    }

    /// Where they come from: readable when there are some.
    pub(crate) const fn stream(&self) -> &RecordStream {
        &self.stream
    }

    /// Takes what has come; whether there was anything.
    ///
    /// # Errors
    /// When the kernel does not let them be read.
    pub(crate) fn receive(
        &mut self,
        exclude: &ExcludeList,
        user: &user_list::UserList,
    ) -> std::io::Result<bool> {
        let Self {
            stream,
            reorder_buffer,
            counts,
        } = self;
        if reorder_buffer.len() > REORDER_LIMIT_BYTES {
            return Ok(true);
        }
        let received = stream.receive(MAX_RECEIVE, |message| match message {
            Ok(message) if message.kind == MsgType::EOE => {}
            Ok(message) => reorder_buffer.take(message, exclude, user, counts),
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

    /// From now on calls come for what security modules record.
    pub(crate) fn expect_syscalls(&mut self) {
        self.reorder_buffer.expect_syscalls();
    }

    /// Takes the call of a record that has come or will come.
    pub(crate) fn add_syscall(&mut self, syscall: &Event<'_>, exclude: &ExcludeList) {
        self.reorder_buffer.add_syscall(syscall, exclude);
    }

    /// Passes on those that are not younger than an event.
    pub(crate) fn pass_until(&mut self, time: Timestamp, batch: &mut Batch) {
        self.reorder_buffer.pass(batch, Some(time));
    }

    /// Passes on all that were taken.
    pub(crate) fn pass_all(&mut self, batch: &mut Batch) {
        self.reorder_buffer.pass(batch, None);
    }

    /// Passes on the calls whose records do not come.
    pub(crate) fn pass_last(&mut self, batch: &mut Batch) {
        self.reorder_buffer.pass(batch, None);
        self.reorder_buffer.pass_last(batch);
    }
}

/// What a record tells of the task that has caused it, for the rules of the exclude list.
#[derive(Debug, Default)]
struct SenderTask {
    pid: u32,
    uid: u32,
    gid: u32,
    auid: Option<u32>,
    ses: Option<u32>,
    exe: Option<Vec<u8>>,
}

impl SenderTask {
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
