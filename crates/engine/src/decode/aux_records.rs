//! Converts `struct wire_aux` to auxiliary records.

use audit::event::SecurityLabel;
use audit::event::aux_record::{
    AuxRecord, CapabilitySets, FileCapabilities, IpcPerm, IpcSetPerm, MqAttributes, OldNew,
    SocketCall, TargetTask, Timespec,
};
use audit::ids::NativeArch;
use zerocopy::IntoBytes as _;

use crate::abi::{self, WireAux};

/// Converts one auxiliary record; `None` when its kind is unknown, or when the kernel's audit would not write
/// it.
pub(crate) fn aux_record(aux: &WireAux) -> Option<AuxRecord<'_>> {
    let word = &aux.word;
    Some(match aux.kind {
        abi::AUX_IPC => ipc(word)?,
        abi::AUX_SOCKETCALL => {
            let [count, args @ .., _, _, _, _, _, _, _, _] = *word;
            AuxRecord::SocketCall(SocketCall {
                count: byte(count),
                args,
            })
        }
        abi::AUX_MQ_OPEN => AuxRecord::MqOpen {
            oflag: int(word[0]),
            mode: half(word[1]),
            attributes: attributes([word[2], word[3], word[4], word[5]]),
        },
        abi::AUX_MQ_SENDRECV => AuxRecord::MqSendReceive {
            mqdes: int(word[0]),
            len: word[1],
            priority: low(word[2]),
            until: time([word[3], word[4]]),
        },
        abi::AUX_MQ_NOTIFY => AuxRecord::MqNotify {
            mqdes: int(word[0]),
            signal: int(word[1]),
        },
        abi::AUX_MQ_GETSETATTR => AuxRecord::MqAttributes {
            mqdes: int(word[0]),
            attributes: attributes([word[1], word[2], word[3], word[4]]),
        },
        abi::AUX_FD_PAIR => AuxRecord::FdPair([int(word[0]), int(word[1])]),
        abi::AUX_OBJ_PID => AuxRecord::TargetTask(TargetTask {
            pid: low(word[0]),
            auid: low(word[1]),
            uid: low(word[2]),
            ses: low(word[3]),
            comm: text(word.get(4..6)),
            obj: label(text(word.get(6..)), low(word[3] >> 32)),
        }),
        abi::AUX_BPRM_FCAPS => file_caps(word)?,
        abi::AUX_CAPSET => AuxRecord::CapSet {
            pid: low(word[0]),
            caps: caps([word[1], word[2], word[3], word[4]]),
        },
        abi::AUX_MMAP => AuxRecord::Mmap {
            fd: int(word[0]),
            flags: low(word[1]),
        },
        abi::AUX_KERN_MODULE => AuxRecord::Module {
            name: text(word.get(..7)),
        },
        abi::AUX_TIME_INJOFFSET => AuxRecord::TimeInjected(time([word[0], word[1]])),
        abi::AUX_TIME_ADJNTPVAL => {
            let mut changes = [OldNew::default(); 6];
            for (change, [old, new]) in changes.iter_mut().zip(word.as_chunks().0) {
                (change.old, change.new) = (old.cast_signed(), new.cast_signed());
            }
            AuxRecord::TimeAdjusted(changes)
        }
        abi::AUX_OPENAT2 => open_how(word),
        _ => return None,
    })
}

type Words = [u64; abi::AUX_WORDS];

fn ipc(word: &Words) -> Option<AuxRecord<'static>> {
    let perm = |at: usize| {
        Some(IpcPerm {
            uid: low(*word.get(at)?),
            gid: low(*word.get(at + 1)?),
            mode: half(*word.get(at + 2)?),
        })
    };
    let wanted = match word[3] {
        0 => None,
        _ => Some(IpcSetPerm {
            qbytes: word[4],
            perm: perm(5)?,
        }),
    };
    Some(AuxRecord::Ipc {
        object: perm(0)?,
        wanted,
    })
}

/// `struct open_how` as read from user memory, or as the kernel used it when they differ, because another thread
/// changed the memory.
///
/// # Source
/// `build_open_flags` in `fs/open.c`, Linux 6.12.
fn open_how(word: &Words) -> AuxRecord<'static> {
    const O_CREAT: u64 = 0o100;
    const O_DSYNC: u64 = 0o10_000;
    const O_LARGEFILE: u64 = match NativeArch::BUILD {
        NativeArch::X86_64 => 0o100_000,
        NativeArch::Aarch64 => 0o400_000,
    };
    const O_CLOEXEC: u64 = 0o2_000_000;
    const O_SYNC_BIT: u64 = 0o4_000_000;
    const O_TMPFILE_BIT: u64 = 0o20_000_000;
    const S_IFREG: u64 = 0o100_000;
    let &[flags, mode, resolve, opened, kernel_flags, kernel_mode, ..] = word;
    let makes = flags & (O_CREAT | O_TMPFILE_BIT) != 0;
    let sync = if flags & O_SYNC_BIT == 0 { 0 } else { O_DSYNC };
    let same = (flags | sync | O_LARGEFILE) & !O_CLOEXEC == kernel_flags | O_LARGEFILE
        && if makes { mode | S_IFREG } else { mode } == kernel_mode;
    if opened == 0 || same {
        return AuxRecord::OpenHow {
            flags,
            mode,
            resolve,
        };
    }
    AuxRecord::OpenHow {
        flags: kernel_flags,
        mode: kernel_mode & !S_IFREG,
        resolve,
    }
}

/// `BPRM_FCAPS`, when an exec raised capabilities in a way that the kernel's audit records.
///
/// Words: `magic_etc`, permitted, inheritable and root of the file; four sets of the task before, and
/// four after; new uid and, above it, euid; old securebits and, above them, uid; root of the user
/// namespace.
///
/// # Source
/// `nonroot_raised_pE` in `security/commoncap.c`, Linux 6.1 and 6.12.
fn file_caps(word: &Words) -> Option<AuxRecord<'static>> {
    const REVISION: u32 = 0xff00_0000;
    const EFFECTIVE: u32 = 1;
    const NOROOT: u32 = 1;
    /// All up to `CAP_CHECKPOINT_RESTORE`.
    const FULL: u64 = (1 << 41) - 1;
    let magic = low(word[0]);
    let old = caps([word[4], word[5], word[6], word[7]]);
    let new = caps([word[8], word[9], word[10], word[11]]);
    let (uid, euid) = (low(word[12]), low(word[12] >> 32));
    let (securebits, old_uid) = (low(word[13]), low(word[13] >> 32));
    let root = low(word[14]);

    let has_caps = magic & REVISION != 0;
    let privileged = securebits & NOROOT == 0;
    let full = new.effective & FULL == FULL;
    let raised =
        new.effective & !new.ambient != 0 && !(full && (euid == root || uid == root) && privileged);
    let set_uid = privileged && uid != root && euid == root && !full;
    let gained = euid == old_uid
        && (has_caps && new.permitted & !old.permitted != 0 || new.ambient & !old.ambient != 0);
    (raised || set_uid || gained).then_some(AuxRecord::FileCapabilities(FileCapabilities {
        version: magic >> 24,
        permitted: word[1],
        inheritable: word[2],
        effective: magic & EFFECTIVE != 0,
        root: low(word[3]),
        old,
        new,
    }))
}

/// An AppArmor label. The mode follows the name of a profile, except for `unconfined`, the label of tasks
/// without a profile.
///
/// # Source
/// `aa_label_snxprint` in `security/apparmor/label.c` and `aa_profile_mode_names` in
/// `security/apparmor/policy.c`, Linux 6.12.
pub(crate) fn label(name: &[u8], mode: u32) -> Option<SecurityLabel<'_>> {
    const MODES: [&str; 5] = ["enforce", "complain", "kill", "unconfined", "user"];
    if name.is_empty() {
        return None;
    }
    let mode = usize::try_from(mode).ok().and_then(|mode| MODES.get(mode));
    Some(SecurityLabel {
        name,
        mode: mode.copied().filter(|_| name != b"unconfined"),
    })
}

fn caps([permitted, inheritable, effective, ambient]: [u64; 4]) -> CapabilitySets {
    CapabilitySets {
        permitted,
        inheritable,
        effective,
        ambient,
    }
}

fn attributes([flags, most, bytes, now]: [u64; 4]) -> MqAttributes {
    MqAttributes {
        flags,
        max_messages: most.cast_signed(),
        message_bytes: bytes.cast_signed(),
        messages: now.cast_signed(),
    }
}

fn time([sec, nsec]: [u64; 2]) -> Timespec {
    Timespec {
        sec: sec.cast_signed(),
        nsec: nsec.cast_signed(),
    }
}

fn text(words: Option<&[u64]>) -> &[u8] {
    let bytes = words.unwrap_or_default().as_bytes();
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn int(word: u64) -> i32 {
    low(word).cast_signed()
}

fn half(word: u64) -> u16 {
    let [a, b, ..] = word.to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn byte(word: u64) -> u8 {
    let [a, ..] = word.to_le_bytes();
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::aux_source;

    fn words(values: &[u64]) -> Words {
        let mut words = [0; abi::AUX_WORDS];
        words[..values.len()].copy_from_slice(values);
        words
    }

    fn how(values: &[u64]) -> AuxRecord<'static> {
        open_how(&words(values))
    }

    #[test]
    fn openat2_how_is_taken_from_kernel_when_user_memory_changed() {
        let said = |flags, mode| AuxRecord::OpenHow {
            flags,
            mode,
            resolve: 8,
        };
        // Equal except for a flag that the kernel stores elsewhere and one that it adds.
        assert_eq!(
            how(&[0o2_000_102, 0o600, 8, 1, 0o100_102, 0o100_600]),
            said(0o2_000_102, 0o600)
        );
        assert_eq!(how(&[0o102, 0o777, 8]), said(0o102, 0o777));
        // Another thread changed flags or mode.
        assert_eq!(
            how(&[0o100, 0o600, 8, 1, 0o100_102, 0o100_600]),
            said(0o100_102, 0o600)
        );
        assert_eq!(how(&[0, 0o600, 8, 1, 0o100_000, 0]), said(0o100_000, 0));
    }

    const RAW: u64 = 1 << 13;
    const REVISION_2: u64 = 2 << 24;
    const FULL: u64 = (1 << 41) - 1;

    fn is_written(magic: u64, new: [u64; 4], uid: u64, euid: u64, old_uid: u64) -> bool {
        let mut words = words(&[magic, RAW, 0, 0, 0, 0, 0, 0]);
        words[8..12].copy_from_slice(&new);
        words[12] = euid << 32 | uid;
        words[13] = old_uid << 32;
        file_caps(&words).is_some()
    }

    #[test]
    fn bprm_fcaps_is_written_when_capabilities_were_raised() {
        let (none, raw, full) = ([0; 4], [RAW, 0, RAW, 0], [FULL, 0, FULL, 0]);
        assert!(is_written(REVISION_2 | 1, raw, 1000, 1000, 1000));
        assert!(is_written(REVISION_2, [RAW, 0, 0, 0], 1000, 1000, 1000));
        assert!(!is_written(0, none, 1000, 1000, 1000));
        // Root has all capabilities.
        assert!(!is_written(0, full, 0, 0, 0));
        // A set-uid program of root gives all capabilities.
        assert!(!is_written(0, full, 1000, 0, 1000));
        assert!(is_written(0, none, 1000, 0, 1000));
        // Ambient capabilities are inherited.
        assert!(is_written(0, [RAW, RAW, RAW, RAW], 1000, 1000, 1000));
    }

    #[test]
    fn apparmor_label_has_mode_of_profile() {
        let of = |name: &'static [u8], mode| label(name, mode).map(|label| label.mode);
        assert_eq!(of(b"/usr/bin/man", 0), Some(Some("enforce")));
        assert_eq!(of(b"unconfined", 3), Some(None));
        assert_eq!(of(b"chrome", 3), Some(Some("unconfined")));
        assert_eq!(of(b"later", 9), Some(None));
        assert_eq!(of(b"", 0), None);
    }

    #[test]
    fn aux_constants_match_wire_h() {
        let header = include_str!("../../bpf/wire.h");
        let aux_record = header.split("enum wire_aux_source {").nth(1).unwrap();
        let aux_record = aux_record.split("};").next().unwrap();
        let names: Vec<&str> = aux_record.split("WIRE_AUX_SOURCE_").skip(1).collect();
        for (name, value) in [
            ("PIPE", aux_source::PIPE),
            ("SOCKETPAIR", aux_source::SOCKETPAIR),
            ("SOCKETCALL", aux_source::SOCKETCALL),
            ("MMAP", aux_source::MMAP),
            ("OLD_MMAP", aux_source::OLD_MMAP),
            ("OPENAT2", aux_source::OPENAT2),
            ("CAPSET", aux_source::CAPSET),
            ("TARGET_FIRST", aux_source::TARGET_FIRST),
            ("TARGET_SECOND", aux_source::TARGET_SECOND),
            ("TARGET_FIRST_EARLY", aux_source::TARGET_FIRST_EARLY),
            ("TARGET_SECOND_EARLY", aux_source::TARGET_SECOND_EARLY),
            ("TRACED", aux_source::TRACED),
            ("LOADED_PROGRAM", aux_source::LOADED_PROGRAM),
        ] {
            let at = names
                .iter()
                .position(|rest| rest.starts_with(&format!("{name},")));
            assert_eq!(at, Some(value.into()), "{name}");
        }
        for (name, value) in [
            ("IPC", abi::AUX_IPC),
            ("SOCKETCALL", abi::AUX_SOCKETCALL),
            ("MQ_OPEN", abi::AUX_MQ_OPEN),
            ("MQ_SENDRECV", abi::AUX_MQ_SENDRECV),
            ("MQ_NOTIFY", abi::AUX_MQ_NOTIFY),
            ("MQ_GETSETATTR", abi::AUX_MQ_GETSETATTR),
            ("FD_PAIR", abi::AUX_FD_PAIR),
            ("OBJ_PID", abi::AUX_OBJ_PID),
            ("BPRM_FCAPS", abi::AUX_BPRM_FCAPS),
            ("CAPSET", abi::AUX_CAPSET),
            ("MMAP", abi::AUX_MMAP),
            ("KERN_MODULE", abi::AUX_KERN_MODULE),
            ("TIME_INJOFFSET", abi::AUX_TIME_INJOFFSET),
            ("TIME_ADJNTPVAL", abi::AUX_TIME_ADJNTPVAL),
            ("OPENAT2", abi::AUX_OPENAT2),
        ] {
            let line = format!("\tWIRE_AUX_{name} = {value},");
            assert!(header.contains(&line), "{line}");
        }
    }

    #[test]
    fn unknown_aux_record_is_skipped() {
        assert_eq!(aux_record(&WireAux::default()), None);
    }
}
