//! Data of auxiliary records: what some syscalls have besides task and objects.

use super::SecurityLabel;

/// Data of one auxiliary record. The record type is in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxRecord<'a> {
    /// Capabilities that a program got from its file (`BPRM_FCAPS`).
    FileCapabilities(FileCapabilities),
    /// Arguments of `socketcall` (`SOCKETCALL`).
    SocketCall(SocketCall),
    /// Owner and mode of a System V IPC object (`IPC`), and their new values (`IPC_SET_PERM`).
    Ipc {
        /// Before the syscall.
        object: IpcPerm,
        /// Requested values.
        wanted: Option<IpcSetPerm>,
    },
    /// Opening of a message queue (`MQ_OPEN`).
    MqOpen {
        /// Flags of the open.
        oflag: i32,
        /// Permission bits of a new queue.
        mode: u16,
        /// Attributes of a new queue.
        attributes: MqAttributes,
    },
    /// Sending or receiving of a message (`MQ_SENDRECV`).
    MqSendReceive {
        /// Descriptor of the queue.
        mqdes: i32,
        /// Length of the message, or of the buffer for it.
        len: u64,
        /// Priority of a sent message.
        priority: u32,
        /// Absolute timeout of the syscall.
        until: Timespec,
    },
    /// Request for a signal on arrival of a message (`MQ_NOTIFY`).
    MqNotify {
        /// Descriptor of the queue.
        mqdes: i32,
        /// The signal.
        signal: i32,
    },
    /// New attributes of a queue (`MQ_GETSETATTR`).
    MqAttributes {
        /// Descriptor of the queue.
        mqdes: i32,
        /// The attributes.
        attributes: MqAttributes,
    },
    /// Capabilities that a task set (`CAPSET`).
    CapSet {
        /// The task.
        pid: u32,
        /// The capabilities.
        caps: CapabilitySets,
    },
    /// Mapping of a file (`MMAP`).
    Mmap {
        /// Descriptor of the file.
        fd: i32,
        /// Flags of the mapping.
        flags: u32,
    },
    /// `struct open_how` of `openat2` (`OPENAT2`).
    OpenHow {
        /// Flags of the open.
        flags: u64,
        /// Permission bits of a new file.
        mode: u64,
        /// `RESOLVE_*` flags.
        resolve: u64,
    },
    /// Loading or unloading of a module (`KERN_MODULE`).
    Module {
        /// Name of the module.
        name: &'a [u8],
    },
    /// Old and new NTP values: offset, frequency, status, TAI offset, tick and adjustment (`TIME_ADJNTPVAL`).
    TimeAdjusted([OldNew; 6]),
    /// Offset added to the clock (`TIME_INJOFFSET`).
    TimeInjected(Timespec),
    /// The two descriptors of `pipe` or `socketpair` (`FD_PAIR`).
    FdPair([i32; 2]),
    /// Task that the syscall signals or traces (`OBJ_PID`).
    TargetTask(TargetTask<'a>),
}

/// Capability sets of a task, one bit per capability.
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

/// File capabilities of an executed program, and the task's capabilities before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCapabilities {
    /// Version of the file capabilities; 0 if the file has none.
    pub version: u32,
    /// Permitted set of the file.
    pub permitted: u64,
    /// Inheritable set of the file.
    pub inheritable: u64,
    /// Effective flag of the file.
    pub effective: bool,
    /// Root uid of the file's user namespace.
    pub root: u32,
    /// Capabilities of the task before `execve`.
    pub old: CapabilitySets,
    /// Capabilities of the task after `execve`.
    pub new: CapabilitySets,
}

/// Arguments of `socketcall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCall {
    /// Number of arguments.
    pub count: u8,
    /// The arguments.
    pub args: [u64; 6],
}

/// Owner and mode of a System V IPC object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcPerm {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u16,
}

/// New values of a System V IPC object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcSetPerm {
    /// Maximum size of a message queue, in bytes; 0 for other objects.
    pub qbytes: u64,
    /// Owner and mode.
    pub perm: IpcPerm,
}

/// Attributes of a message queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MqAttributes {
    /// Flags.
    pub flags: u64,
    /// Maximum number of messages.
    pub max_messages: i64,
    /// Maximum message size, in bytes.
    pub message_bytes: i64,
    /// Number of messages in the queue.
    pub messages: i64,
}

/// A point in time or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timespec {
    /// Whole seconds.
    pub sec: i64,
    /// Additional nanoseconds.
    pub nsec: i64,
}

/// Old and new value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldNew {
    /// Before.
    pub old: i64,
    /// After.
    pub new: i64,
}

/// Task that is the target of a syscall.
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
    /// Command name of the task.
    pub comm: &'a [u8],
    /// Security label, if readable.
    pub obj: Option<SecurityLabel<'a>>,
}
