//! Parses ring bytes into events. Any bytes give an event or an error.

mod aux_records;
pub(crate) mod path_items;
pub(crate) mod repeated;
pub(crate) mod rule_keys;

use audit::event::{Argv, Event, Task, TaskContext, Timestamp, UringEnter, reported_exit};
use audit::ids::{Arch, Auid, NativeArch, Serial, Syscall};
use audit::plan::uring::UringOp;
use audit::record::{decode, encode};
use smallvec::SmallVec;
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::abi::{self, WireAux, WireEvent, WireObject};
use crate::epoch::Epoch;

use path_items::{DecodedObject, ItemContext};
use rule_keys::RuleKeys;

/// Why a sample cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The sample is shorter than its parts.
    #[error("event sample of {have} bytes ends within its {part}")]
    Short {
        /// Length of the sample.
        have: usize,
        /// The part that is incomplete.
        part: &'static str,
    },
    /// Programs of another version wrote the sample.
    #[error("event sample has version {0}, this program reads {ours}", ours = abi::VERSION)]
    Version(u16),
    /// The event belongs to a kernel record but lacks its stamp.
    #[error("event sample has no stamp of a kernel record")]
    Stamp,
    /// The rule that the event names is not in the plan.
    #[error("event sample names rule {0}, which the plan does not have")]
    Rule(u32),
}

/// Data of an event that its sample does not contain.
#[derive(Clone, Copy, Debug)]
pub struct EventContext<'a> {
    /// Keys of the rules of all plans that the event can belong to.
    pub keys: &'a RuleKeys,
    /// Time of the event; see [`sample_jiffies`].
    pub time: Timestamp,
    /// Serial of the event.
    pub serial: Serial,
}

/// A decoder, with buffers for the paths of an event that are reused for the next one.
#[derive(Debug, Default)]
pub struct Decoder {
    exe: Vec<u8>,
    cwd: Vec<u8>,
    name: Vec<u8>,
    paths: Vec<u8>,
    cgroup: Vec<u8>,
}

/// Tick count at which the event of a sample happened.
///
/// # Units
/// Jiffies, as `bpf_jiffies64()` counts them.
///
/// # Errors
/// [`DecodeError::Short`] when the sample has no header.
pub fn sample_jiffies(sample: &[u8]) -> Result<u64, DecodeError> {
    Ok(header(sample)?.0.jiffies)
}

/// The rule that recorded the event of a sample: epoch of its plan, and its index in the plan.
///
/// # Errors
/// [`DecodeError::Short`] when the sample has no header.
pub fn sample_rule(sample: &[u8]) -> Result<(Epoch, usize), DecodeError> {
    Ok(Epoch::split_rule(header(sample)?.0.rule))
}

/// Whether a sample is the syscall of a kernel record alone. Such an event has the timestamp and serial of that record,
/// and no rule.
///
/// # Errors
/// [`DecodeError::Short`] when the sample has no header.
pub fn has_kernel_stamp(sample: &[u8]) -> Result<bool, DecodeError> {
    Ok(header(sample)?.0.flags & abi::EVENT_STAMPED != 0)
}

/// Whether the event of a rule belongs to a kernel record, whose timestamp and serial it has.
///
/// # Errors
/// [`DecodeError::Short`] when the sample has no header.
pub fn has_kernel_record(sample: &[u8]) -> Result<bool, DecodeError> {
    Ok(header(sample)?.0.flags & abi::EVENT_JOINED != 0)
}

/// The id of the BPF program that a syscall has loaded. The kernel's audit has written a record about it, to which the
/// event belongs. `None` if the event has the stamp of a record already.
///
/// # Errors
/// [`DecodeError::Short`] when the sample has no header, or lacks the id.
pub fn loaded_program(sample: &[u8]) -> Result<Option<u32>, DecodeError> {
    let (head, rest) = header(sample)?;
    if head.flags & abi::EVENT_LOADED == 0 {
        return Ok(None);
    }
    let short = DecodeError::Short {
        have: sample.len(),
        part: "loaded program",
    };
    let (aux, _) = WireAux::ref_from_prefix(rest).map_err(|_not_whole| short)?;
    let [id, ..] = aux.word;
    let is_program = head.objects == 0 && head.flags & abi::EVENT_JOINED == 0;
    Ok(u32::try_from(id).ok().filter(|_| is_program))
}

fn header(sample: &[u8]) -> Result<(&WireEvent, &[u8]), DecodeError> {
    WireEvent::ref_from_prefix(sample).map_err(|_not_whole| DecodeError::Short {
        have: sample.len(),
        part: "header",
    })
}

/// Reads a sample part by part.
struct SampleReader<'a> {
    bytes: &'a [u8],
    have: usize,
}

impl<'a> SampleReader<'a> {
    fn take(&mut self, len: usize, part: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(DecodeError::Short {
            have: self.have,
            part,
        })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn object(&mut self) -> Result<DecodedObject<'a>, DecodeError> {
        let wire = self.take(size_of::<WireObject>(), "object")?;
        let wire = WireObject::ref_from_bytes(wire).map_err(|_not_whole| DecodeError::Short {
            have: self.have,
            part: "object",
        })?;
        let len = usize::from(wire.name_len);
        let name = self.take(len.next_multiple_of(8), "object name")?;
        let name = name.get(..len).unwrap_or_default();
        let len = usize::from(wire.path_len);
        let path = self.take(len.next_multiple_of(8), "object path")?;
        let path = path.get(..len).unwrap_or_default();
        Ok(DecodedObject {
            wire,
            name: (wire.flags & abi::OBJECT_NAMED != 0).then_some(name),
            path: (!path.is_empty()).then_some(path),
        })
    }

    fn aux_records(&mut self, count: u8) -> Result<&'a [WireAux], DecodeError> {
        let bytes = usize::from(count) * size_of::<WireAux>();
        let taken = self.take(bytes, "details")?;
        <[WireAux]>::ref_from_bytes(taken).map_err(|_not_whole| DecodeError::Short {
            have: self.have,
            part: "details",
        })
    }
}

impl Decoder {
    /// Parses a sample.
    ///
    /// # Errors
    /// [`DecodeError`] when the sample is incomplete, of another version, or of a rule that is not in
    /// [`EventContext::keys`].
    pub fn event<'a>(
        &'a mut self,
        sample: &'a [u8],
        context: EventContext<'a>,
    ) -> Result<Event<'a>, DecodeError> {
        let (head, rest) = header(sample)?;
        if !(abi::OLDEST_VERSION..=abi::VERSION).contains(&head.version) {
            return Err(DecodeError::Version(head.version));
        }
        let stamped = head.flags & abi::EVENT_STAMPED != 0;
        let key = if stamped {
            None
        } else {
            let key = context.keys.get(head.rule);
            key.ok_or(DecodeError::Rule(head.rule))?
        };
        let mut rest = SampleReader {
            bytes: rest,
            have: sample.len(),
        };
        let mut objects: SmallVec<[DecodedObject<'a>; abi::ITEMS]> = SmallVec::new();
        for _ in 0..head.objects {
            objects.push(rest.object()?);
        }
        let aux_records = rest.aux_records(head.aux_count)?;
        let (time, serial) = if stamped || head.flags & abi::EVENT_JOINED != 0 {
            stamp(aux_records)?
        } else {
            (context.time, context.serial)
        };
        let exe = rest.take(usize::from(head.exe_len), "exe")?;
        let cwd = rest.take(usize::from(head.cwd_len), "cwd")?;
        let proctitle = rest.take(usize::from(head.proctitle_len), "proctitle")?;
        let argv = rest.take(usize::from(head.argv_len), "argv")?;
        let sockaddr = rest.take(usize::from(head.sockaddr_len), "socket address")?;
        let subj = rest.take(usize::from(head.subj_len), "subj")?;
        let task_context = rest.bytes.split_first_chunk::<{ abi::COMM_LEN }>();

        reverse_path(exe, head.flags & abi::EVENT_EXE_DELETED != 0, &mut self.exe);
        reverse_path(cwd, head.flags & abi::EVENT_CWD_DELETED != 0, &mut self.cwd);
        let walked = objects
            .iter_mut()
            .find(|object| object.wire.flags & abi::OBJECT_WALKED != 0);
        if let Some(walked) = walked {
            reverse_path(walked.name.unwrap_or_default(), false, &mut self.name);
            walked.name = Some(self.name.as_slice());
        }
        reverse_paths(&mut objects, &mut self.paths);
        for (flag, path) in [
            (abi::EVENT_EXE_LONG, &mut self.exe),
            (abi::EVENT_CWD_LONG, &mut self.cwd),
        ] {
            if head.flags & flag != 0 {
                path.clear();
                path.extend_from_slice(encode::TOO_LONG);
            }
        }
        let (exe, cwd) = (self.exe.as_slice(), self.cwd.as_slice());
        let task_context = task_context.map(|(parent_comm, cgroup)| {
            reverse_path(cgroup, false, &mut self.cgroup);
            TaskContext {
                parent_comm: until_nul(parent_comm),
                cgroup: &self.cgroup,
            }
        });
        let returned = head.flags & abi::EVENT_RETURNED != 0;
        let call = ItemContext {
            head,
            cwd,
            argv,
            returned,
        };
        let items = call.items(&objects);
        let uring_op = (head.flags & abi::EVENT_URING != 0).then_some(head.uring_op);
        Ok(Event {
            time,
            serial,
            // Rules see operations as 64-bit syscalls.
            arch: if uring_op.is_some() {
                NativeArch::BUILD.b64()
            } else {
                arch(head.abi)
            },
            syscall: match uring_op.map(UringOp::numbered) {
                Some(operation) => operation.map_or(Syscall::NONE, |known| {
                    known.syscall_id(NativeArch::BUILD).syscall
                }),
                None => Syscall(head.nr),
            },
            uring_op,
            personality: head.personality,
            exit: returned.then(|| reported_exit(head.exit.cast_signed())),
            unproven: head.flags & abi::EVENT_UNPROVEN != 0,
            args: if uring_op.is_some() {
                [0; 4]
            } else {
                head.args
            },
            uring_enter: (head.flags & abi::EVENT_URING_ENTER != 0).then_some(UringEnter {
                arch: arch(head.abi),
                args: head.args,
            }),
            task: task(head, exe, subj),
            key: key.map(|key| &**key),
            argv: (head.flags & abi::EVENT_STARTED != 0).then_some(Argv {
                argc: head.argc,
                bytes: argv,
            }),
            sockaddr: (!sockaddr.is_empty()).then_some(sockaddr),
            aux_records: aux_records
                .iter()
                .filter_map(aux_records::aux_record)
                .collect(),
            cwd: (!items.is_empty() && head.flags & abi::EVENT_CWD != 0).then_some(cwd),
            items,
            proctitle: command_line(proctitle),
            task_context,
        })
    }
}

fn task<'a>(head: &'a WireEvent, exe: &'a [u8], subj: &'a [u8]) -> Task<'a> {
    Task {
        ppid: head.ppid,
        pid: head.pid,
        auid: Auid(head.auid),
        uid: head.uid,
        gid: head.gid,
        euid: head.euid,
        suid: head.suid,
        fsuid: head.fsuid,
        egid: head.egid,
        sgid: head.sgid,
        fsgid: head.fsgid,
        ses: head.ses,
        tty: until_nul(&head.tty),
        comm: until_nul(&head.comm),
        exe: (head.flags & abi::EVENT_EXE != 0).then_some(exe),
        subj: aux_records::label(subj, head.subj_mode.into()),
    }
}

fn arch(abi: u32) -> Arch {
    if abi == abi::B32 {
        NativeArch::BUILD.b32()
    } else {
        NativeArch::BUILD.b64()
    }
}

/// The stamp of a kernel record, which is the first auxiliary record of the sample.
fn stamp(aux_records: &[WireAux]) -> Result<(Timestamp, Serial), DecodeError> {
    let [text, ..] = aux_records else {
        return Err(DecodeError::Stamp);
    };
    decode::stamp(text.word.as_bytes()).map_err(|_none| DecodeError::Stamp)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A command line as `get_cmdline()` of `mm/util.c` returns it: when the last argument does not end with a NUL,
/// the task has overwritten its arguments (`setproctitle(3)`), and the first string is the command line.
fn command_line(bytes: &[u8]) -> &[u8] {
    if bytes.len() < abi::PROCTITLE_BYTES && bytes.last().is_some_and(|&last| last != 0) {
        return until_nul(bytes);
    }
    bytes
}

/// Converts the paths of objects and stores them in `text`.
fn reverse_paths<'a>(objects: &mut [DecodedObject<'a>], text: &'a mut Vec<u8>) {
    text.clear();
    let mut ends: SmallVec<[usize; abi::ITEMS]> = SmallVec::new();
    let with_path = |object: &&mut DecodedObject<'a>| object.path.is_some();
    for object in objects.iter_mut().filter(with_path) {
        let removed = object.wire.flags & abi::OBJECT_REMOVED != 0;
        append_path(object.path.unwrap_or_default(), removed, text);
        ends.push(text.len());
    }
    let mut rest = text.as_slice();
    let mut start = 0;
    for (object, end) in objects.iter_mut().filter(with_path).zip(ends) {
        let (path, after) = rest.split_at_checked(end - start).unwrap_or((rest, &[]));
        object.path = Some(path);
        (rest, start) = (after, end);
    }
}

/// Converts NUL-terminated components, leaf first, to a path. No component is the root.
fn reverse_path(components: &[u8], deleted: bool, path: &mut Vec<u8>) {
    path.clear();
    append_path(components, deleted, path);
}

fn append_path(components: &[u8], deleted: bool, path: &mut Vec<u8>) {
    let text = components.strip_suffix(&[0]).unwrap_or(components);
    if text.is_empty() {
        path.push(b'/');
    } else {
        for component in text.rsplit(|&byte| byte == 0) {
            path.push(b'/');
            path.extend_from_slice(component);
        }
    }
    if deleted {
        path.extend_from_slice(b" (deleted)");
    }
}

#[cfg(test)]
mod tests;
