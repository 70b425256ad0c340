//! Records of the kernel's own audit on their way into the event stream.
//!
//! They arrive over netlink slightly late, with the kernel's own time and serial. Each waits until older events of
//! the ring have passed, so that the log is ordered by time as far as the two streams allow. A record of a security
//! module is joined with its syscall, which arrives through the ring.

pub(crate) mod own_programs;
mod program_record;
mod reorder_buffer;

use std::borrow::Cow;
use std::fs;

use audit::event::{Event, Task, Timestamp};
use audit::ids::{Auid, MsgType, Serial};
use audit::plan::exclude_list::ExcludeList;
use audit::plan::user_list;
use audit::record::decode;
use bstr::ByteSlice as _;
use netlink::RecordStream;
use nix::errno::Errno;

use crate::pipeline::batch::Batch;
use own_programs::OwnPrograms;
use reorder_buffer::ReorderBuffer;

/// Records received between two drains of the ring.
const MAX_RECEIVE: usize = 256;
/// Limit of text that waits for the ring; the rest waits in the kernel.
const REORDER_LIMIT_BYTES: usize = 1 << 20;

/// Counters of kernel records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelRecordCounts {
    /// Records received.
    pub(crate) received: u64,
    /// Records dropped by the exclude list or the user list, or about the BPF programs of the daemon.
    pub(crate) excluded: u64,
    /// Datagrams that are not valid kernel records.
    pub(crate) refused: u64,
    /// Receive buffer overruns. The kernel does not tell how many records each lost.
    pub(crate) overruns: u64,
}

/// Reads and buffers kernel records.
#[derive(Debug)]
pub(crate) struct KernelRecords {
    stream: RecordStream,
    reorder_buffer: ReorderBuffer,
    pub(crate) counts: KernelRecordCounts,
    pub(crate) own_programs: OwnPrograms,
}

impl KernelRecords {
    /// Reads from this stream.
    pub(crate) fn new(stream: RecordStream) -> Self {
        Self {
            stream,
            reorder_buffer: ReorderBuffer::default(),
            counts: KernelRecordCounts::default(),
            own_programs: OwnPrograms::default(),
        }
    }

    /// The stream; readable when records wait.
    pub(crate) const fn stream(&self) -> &RecordStream {
        &self.stream
    }

    /// Receives waiting records. Returns whether there were any.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub(crate) fn receive(
        &mut self,
        exclude: &ExcludeList,
        user: &user_list::UserList,
    ) -> std::io::Result<bool> {
        let Self {
            stream,
            reorder_buffer,
            counts,
            own_programs,
        } = self;
        if reorder_buffer.len() > REORDER_LIMIT_BYTES {
            return Ok(true);
        }
        let received = stream.receive(MAX_RECEIVE, |message| match message {
            Ok(message) if message.kind == MsgType::EOE => {}
            Ok(message) if own_programs.has_record(message) => {
                counts.received += 1;
                counts.excluded += 1;
            }
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

    /// From now on syscalls arrive for records of security modules.
    pub(crate) fn expect_syscalls(&mut self) {
        self.reorder_buffer.expect_syscalls();
    }

    /// Adds the syscall of a record that has arrived or will arrive.
    pub(crate) fn add_syscall(&mut self, syscall: &Event<'_>, exclude: &ExcludeList) {
        self.reorder_buffer.add_syscall(syscall, exclude);
    }

    /// Passes on the records to which an event belongs, and older ones. Returns whether they have arrived.
    pub(crate) fn pass_through(
        &mut self,
        time: Timestamp,
        serial: Serial,
        batch: &mut Batch,
    ) -> bool {
        self.reorder_buffer.pass_through((time, serial), batch)
    }

    /// As [`Self::pass_through`], for an event at `time` that has loaded a BPF program: the stamp of its record, once that
    /// has arrived.
    pub(crate) fn pass_load(
        &mut self,
        program: u32,
        time: Timestamp,
        batch: &mut Batch,
    ) -> Option<(Timestamp, Serial)> {
        self.reorder_buffer.pass_load(program, time, batch)
    }

    /// Passes on records that are not newer than an event.
    pub(crate) fn pass_until(&mut self, time: Timestamp, batch: &mut Batch) {
        self.reorder_buffer.pass(batch, Some(time));
    }

    /// Passes on all records.
    pub(crate) fn pass_all(&mut self, batch: &mut Batch) {
        self.reorder_buffer.pass(batch, None);
    }

    /// Passes on syscalls whose record has not arrived.
    pub(crate) fn pass_last(&mut self, batch: &mut Batch) {
        self.reorder_buffer.pass(batch, None);
        self.reorder_buffer.pass_last(batch);
    }
}

/// The task that caused a record, for the exclude list.
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
    /// Reads the task from a record, and missing fields from `/proc` if the task still lives.
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
