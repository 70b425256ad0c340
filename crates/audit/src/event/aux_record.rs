//! What some calls have beside task and objects: each has a record of its own.

use super::SecurityLabel;

/// One such fact. The kernel's names of the records stand in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxRecord<'a> {
    /// Capabilities that a program got from its file (`BPRM_FCAPS`).
    FileCapabilities(FileCapabilities),
    /// Arguments behind a `socketcall` (`SOCKETCALL`).
    SocketCall(SocketCall),
    /// Owner and mode of a System V object (`IPC`), and what they are to become (`IPC_SET_PERM`).
    Ipc {
        /// Before the call.
        object: IpcPerm,
        /// What the call asks for.
        wanted: Option<IpcSetPerm>,
    },
    /// A message queue to be opened (`MQ_OPEN`).
    MqOpen {
        /// Flags of the open.
        oflag: i32,
        /// Permission bits of a new queue.
        mode: u16,
        /// What a new queue is to be like.
        attributes: MqAttributes,
    },
    /// A message to be sent or received (`MQ_SENDRECV`).
    MqSendReceive {
        /// Descriptor of the queue.
        mqdes: i32,
        /// Bytes of the message, or of the room for it.
        len: u64,
        /// Priority of a message to be sent.
        priority: u32,
        /// Until when the call may wait.
        until: Timespec,
    },
    /// A signal asked for when a message comes (`MQ_NOTIFY`).
    MqNotify {
        /// Descriptor of the queue.
        mqdes: i32,
        /// The signal.
        signal: i32,
    },
    /// Attributes that a queue gets (`MQ_GETSETATTR`).
    MqAttributes {
        /// Descriptor of the queue.
        mqdes: i32,
        /// The attributes.
        attributes: MqAttributes,
    },
    /// Capabilities that a task has given itself (`CAPSET`).
    CapSet {
        /// The task.
        pid: u32,
        /// The capabilities.
        caps: CapabilitySets,
    },
    /// A file to be mapped (`MMAP`).
    Mmap {
        /// Descriptor of the file.
        fd: i32,
        /// Flags of the mapping.
        flags: u32,
    },
    /// How a file is to be opened (`OPENAT2`).
    OpenHow {
        /// Flags of the open.
        flags: u64,
        /// Permission bits of a new file.
        mode: u64,
        /// How the name may be followed.
        resolve: u64,
    },
    /// A module to be loaded or unloaded (`KERN_MODULE`).
    Module {
        /// Its name.
        name: &'a [u8],
    },
    /// What the clock's discipline was and became: offset, frequency, status, offset to TAI, tick and
    /// adjustment (`TIME_ADJNTPVAL`).
    TimeAdjusted([OldNew; 6]),
    /// By how much the clock was set forward (`TIME_INJOFFSET`).
    TimeInjected(Timespec),
    /// Two descriptors that belong together (`FD_PAIR`).
    FdPair([i32; 2]),
    /// A task that the call signals or traces (`OBJ_PID`).
    TargetTask(TargetTask<'a>),
}

/// Capabilities of a task, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySets {
    /// Permitted.
    pub permitted: u64,
    /// Inheritable.
    pub inheritable: u64,
    /// Effective.
    pub effective: u64,
    /// Ambient.
    pub ambient: u64,
}

/// What a program's file gave the task that started it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCapabilities {
    /// Version of the file's capabilities; 0 when it has none.
    pub version: u32,
    /// Capabilities that the file permits.
    pub permitted: u64,
    /// Capabilities that the file lets through.
    pub inheritable: u64,
    /// Whether they are effective at once.
    pub effective: bool,
    /// User who is root to the file.
    pub root: u32,
    /// Capabilities of the task before.
    pub old: CapabilitySets,
    /// Capabilities of the task after.
    pub new: CapabilitySets,
}

/// Arguments of a `socketcall`, as many as its call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCall {
    /// How many.
    pub count: u8,
    /// The arguments.
    pub args: [u64; 6],
}

/// Owner and mode of a System V object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcPerm {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u16,
}

/// What a System V object is to become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcSetPerm {
    /// Room of a message queue, in bytes; 0 for other objects.
    pub qbytes: u64,
    /// Owner and mode.
    pub perm: IpcPerm,
}

/// Attributes of a message queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MqAttributes {
    /// Flags.
    pub flags: u64,
    /// Most messages.
    pub max_messages: i64,
    /// Longest message, in bytes.
    pub message_bytes: i64,
    /// Messages that are there.
    pub messages: i64,
}

/// A moment or a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timespec {
    /// Whole seconds.
    pub sec: i64,
    /// Nanoseconds besides.
    pub nsec: i64,
}

/// A value before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldNew {
    /// Before.
    pub old: i64,
    /// After.
    pub new: i64,
}

/// A task that another one acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetTask<'a> {
    /// Thread group id, in the initial pid namespace.
    pub pid: u32,
    /// Login uid; 4294967295 when unset.
    pub auid: u32,
    /// Real uid.
    pub uid: u32,
    /// Login session; 4294967295 when unset.
    pub ses: u32,
    /// Name of the task.
    pub comm: &'a [u8],
    /// Its security label, where one can be read.
    pub obj: Option<SecurityLabel<'a>>,
}
