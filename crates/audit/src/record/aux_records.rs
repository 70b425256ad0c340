//! Encodes auxiliary records: one or more for each [`AuxRecord`].

use super::digits::lower_hex16;
use super::encode::{LineWriter, Stamp};
use crate::event::aux_record::{
    AuxRecord, FileCapabilities, IpcPerm, IpcSetPerm, MqAttributes, OldNew, SocketCall, TargetTask,
    Timespec,
};

/// Position of an auxiliary record in its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuxPosition {
    /// Directly after the SYSCALL record.
    AfterSyscall,
    /// Where EXECVE would be. An event has one kind of these.
    Special,
    /// After those.
    AfterSpecial,
    /// Before the SOCKADDR record.
    BeforeSockaddr,
    /// After the SOCKADDR record.
    AfterSockaddr,
}

/// # Source
/// Order in `audit_log_exit` in `kernel/auditsc.c`, Linux 6.12.
fn position_of(aux_record: &AuxRecord<'_>) -> AuxPosition {
    match aux_record {
        AuxRecord::FileCapabilities(_) => AuxPosition::AfterSyscall,
        AuxRecord::TimeInjected(_) => AuxPosition::AfterSpecial,
        AuxRecord::FdPair(_) => AuxPosition::BeforeSockaddr,
        AuxRecord::TargetTask(_) => AuxPosition::AfterSockaddr,
        _ => AuxPosition::Special,
    }
}

/// Appends the auxiliary records of a position. Of several target tasks the first is written last, as in the
/// kernel.
///
/// # Source
/// `show_special` and `audit_log_exit` in `kernel/auditsc.c`, Linux 6.12.
pub(super) fn records(
    aux_records: &[AuxRecord<'_>],
    at: AuxPosition,
    stamp: Stamp,
    out: &mut Vec<u8>,
) {
    let mut selected = aux_records
        .iter()
        .filter(|aux_record| position_of(aux_record) == at);
    if at == AuxPosition::AfterSockaddr {
        let first = selected.next();
        selected
            .chain(first)
            .for_each(|aux_record| write_record(aux_record, stamp, out));
    } else {
        selected.for_each(|aux_record| write_record(aux_record, stamp, out));
    }
}

fn write_record(aux_record: &AuxRecord<'_>, stamp: Stamp, out: &mut Vec<u8>) {
    match aux_record {
        AuxRecord::FileCapabilities(caps) => {
            file_caps(caps, LineWriter::begin(b"type=BPRM_FCAPS msg=", stamp, out));
        }
        AuxRecord::SocketCall(call) => {
            socket_call(call, LineWriter::begin(b"type=SOCKETCALL msg=", stamp, out));
        }
        AuxRecord::Ipc { object, wanted } => {
            let mut line = LineWriter::begin(b"type=IPC msg=", stamp, out);
            ipc_perm(b"ouid=", object, &mut line);
            line.end();
            if let Some(IpcSetPerm { qbytes, perm }) = wanted {
                let mut line = LineWriter::begin(b"type=IPC_SET_PERM msg=", stamp, out);
                line.hex(b"qbytes=", *qbytes);
                ipc_perm(b" ouid=", perm, &mut line);
                line.end();
            }
        }
        AuxRecord::MqOpen {
            oflag,
            mode,
            attributes,
        } => {
            let mut line = LineWriter::begin(b"type=MQ_OPEN msg=", stamp, out);
            line.hex(b"oflag=0x", oflag.cast_unsigned().into());
            line.octal(b" mode=", (*mode).into());
            mq_attributes(attributes, line);
        }
        AuxRecord::MqSendReceive {
            mqdes,
            len,
            priority,
            until,
        } => {
            let mut line = LineWriter::begin(b"type=MQ_SENDRECV msg=", stamp, out);
            line.decimal(b"mqdes=", *mqdes);
            line.decimal(b" msg_len=", len.cast_signed());
            line.decimal(b" msg_prio=", *priority);
            line.decimal(b" abs_timeout_sec=", until.sec);
            line.decimal(b" abs_timeout_nsec=", until.nsec);
            line.end();
        }
        AuxRecord::MqNotify { mqdes, signal } => {
            let mut line = LineWriter::begin(b"type=MQ_NOTIFY msg=", stamp, out);
            line.decimal(b"mqdes=", *mqdes);
            line.decimal(b" sigev_signo=", *signal);
            line.end();
        }
        AuxRecord::MqAttributes { mqdes, attributes } => {
            let mut line = LineWriter::begin(b"type=MQ_GETSETATTR msg=", stamp, out);
            line.decimal(b"mqdes=", *mqdes);
            mq_attributes(attributes, line);
        }
        AuxRecord::CapSet { pid, caps } => {
            let mut line = LineWriter::begin(b"type=CAPSET msg=", stamp, out);
            line.decimal(b"pid=", *pid);
            capability(b" cap_pi=", caps.inheritable, &mut line);
            capability(b" cap_pp=", caps.permitted, &mut line);
            capability(b" cap_pe=", caps.effective, &mut line);
            capability(b" cap_pa=", caps.ambient, &mut line);
            line.end();
        }
        AuxRecord::Mmap { fd, flags } => {
            let mut line = LineWriter::begin(b"type=MMAP msg=", stamp, out);
            line.decimal(b"fd=", *fd);
            line.hex(b" flags=0x", (*flags).into());
            line.end();
        }
        AuxRecord::OpenHow {
            flags,
            mode,
            resolve,
        } => {
            let mut line = LineWriter::begin(b"type=OPENAT2 msg=", stamp, out);
            zero_and_octal(b"oflag=0", *flags, &mut line);
            zero_and_octal(b" mode=0", *mode, &mut line);
            line.hex(b" resolve=0x", *resolve);
            line.end();
        }
        AuxRecord::Module { name } => {
            let mut line = LineWriter::begin(b"type=KERN_MODULE msg=", stamp, out);
            line.untrusted(b"name=", name, 0);
            line.end();
        }
        AuxRecord::TimeAdjusted(changes) => {
            for (&op, OldNew { old, new }) in NTP_VALUES.iter().zip(changes) {
                if old != new {
                    let mut line = LineWriter::begin(b"type=TIME_ADJNTPVAL msg=", stamp, out);
                    line.out.extend_from_slice(op);
                    line.decimal(b" old=", *old);
                    line.decimal(b" new=", *new);
                    line.end();
                }
            }
        }
        AuxRecord::TimeInjected(Timespec { sec, nsec }) => {
            if (*sec, *nsec) != (0, 0) {
                let mut line = LineWriter::begin(b"type=TIME_INJOFFSET msg=", stamp, out);
                line.decimal(b"sec=", *sec);
                line.decimal(b" nsec=", *nsec);
                line.end();
            }
        }
        AuxRecord::FdPair([first, second]) => {
            let mut line = LineWriter::begin(b"type=FD_PAIR msg=", stamp, out);
            line.decimal(b"fd0=", *first);
            line.decimal(b" fd1=", *second);
            line.end();
        }
        AuxRecord::TargetTask(task) => {
            target_task(task, LineWriter::begin(b"type=OBJ_PID msg=", stamp, out));
        }
    }
}

/// # Source
/// `audit_ntp_name` in `kernel/auditsc.c`, Linux 6.12.
const NTP_VALUES: [&[u8]; 6] = [
    b"op=offset",
    b"op=freq",
    b"op=status",
    b"op=tai",
    b"op=tick",
    b"op=adjust",
];

fn file_caps(caps: &FileCapabilities, mut line: LineWriter<'_>) {
    line.hex(b"fver=", caps.version.into());
    capability(b" fp=", caps.permitted, &mut line);
    capability(b" fi=", caps.inheritable, &mut line);
    line.decimal(b" fe=", u8::from(caps.effective));
    for (labels, caps) in [
        (
            [
                b" old_pp=".as_slice(),
                b" old_pi=",
                b" old_pe=",
                b" old_pa=",
            ],
            &caps.old,
        ),
        ([b" pp=".as_slice(), b" pi=", b" pe=", b" pa="], &caps.new),
    ] {
        let values = [
            caps.permitted,
            caps.inheritable,
            caps.effective,
            caps.ambient,
        ];
        for (label, value) in labels.into_iter().zip(values) {
            capability(label, value, &mut line);
        }
    }
    line.decimal(b" frootid=", caps.root.cast_signed());
    line.end();
}

/// Writes `0%llo` after a label that ends in that 0.
fn zero_and_octal(label: &[u8], value: u64, line: &mut LineWriter<'_>) {
    let label = if value == 0 {
        label
    } else {
        label.strip_suffix(b"0").unwrap_or(label)
    };
    line.octal(label, value);
}

/// # Source
/// `audit_log_cap` in `kernel/auditsc.c`, Linux 6.12.
fn capability(label: &[u8], caps: u64, line: &mut LineWriter<'_>) {
    line.out.extend_from_slice(label);
    if caps == 0 {
        line.out.push(b'0');
    } else {
        lower_hex16(caps, line.out);
    }
}

fn socket_call(call: &SocketCall, mut line: LineWriter<'_>) {
    line.decimal(b"nargs=", call.count);
    for (number, arg) in call.args.iter().take(call.count.into()).enumerate() {
        line.decimal(b" a", number);
        line.hex(b"=", *arg);
    }
    line.end();
}

fn ipc_perm(label: &[u8], perm: &IpcPerm, line: &mut LineWriter<'_>) {
    line.decimal(label, perm.uid);
    line.decimal(b" ogid=", perm.gid);
    line.octal(b" mode=", perm.mode.into());
}

fn mq_attributes(attributes: &MqAttributes, mut line: LineWriter<'_>) {
    line.hex(b" mq_flags=0x", attributes.flags);
    line.decimal(b" mq_maxmsg=", attributes.max_messages);
    line.decimal(b" mq_msgsize=", attributes.message_bytes);
    line.decimal(b" mq_curmsgs=", attributes.messages);
    line.end();
}

/// Writes unset ids as -1, as the kernel does in this record.
///
/// # Source
/// `audit_log_pid_context` in `kernel/auditsc.c`, Linux 6.12.
fn target_task(task: &TargetTask<'_>, mut line: LineWriter<'_>) {
    line.decimal(b"opid=", task.pid.cast_signed());
    line.decimal(b" oauid=", task.auid.cast_signed());
    line.decimal(b" ouid=", task.uid.cast_signed());
    line.decimal(b" oses=", task.ses.cast_signed());
    line.label(b" obj=", task.obj);
    line.untrusted(b" ocomm=", task.comm, 0);
    line.end();
}
