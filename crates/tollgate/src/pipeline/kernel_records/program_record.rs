//! Records of the kernel's audit about BPF programs.

use audit::ids::MsgType;
use bstr::ByteSlice as _;
use netlink::KernelRecord;

/// `AUDIT_BPF` of `include/uapi/linux/audit.h`.
pub(super) const BPF: MsgType = MsgType(1334);

/// What happened to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramRecord {
    /// The program with this id was loaded.
    Load(u32),
    /// It was unloaded; its id is free.
    Unload(u32),
}

impl ProgramRecord {
    /// Parses a record; `None` if it is about something else.
    ///
    /// # Source
    /// `bpf_audit_prog()` in `kernel/bpf/syscall.c`, Linux 6.12: `prog-id=7 op=LOAD`.
    pub(super) fn of(record: KernelRecord<'_>) -> Option<Self> {
        if record.kind != BPF {
            return None;
        }
        let mut words = record.text.split_str(" ");
        let id = words.find_map(|word| word.strip_prefix(b"prog-id="))?;
        let id = id.to_str().ok()?.parse().ok()?;
        match words.find_map(|word| word.strip_prefix(b"op="))? {
            b"LOAD" => Some(Self::Load(id)),
            b"UNLOAD" => Some(Self::Unload(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_about_programs_are_parsed() {
        let of = |kind, text: &str| {
            let text = text.as_bytes();
            ProgramRecord::of(KernelRecord { kind, text })
        };
        let load = "audit(5.100:1): prog-id=7 op=LOAD";
        assert_eq!(of(BPF, load), Some(ProgramRecord::Load(7)));
        assert_eq!(
            of(BPF, "audit(5.100:1): prog-id=77 op=UNLOAD"),
            Some(ProgramRecord::Unload(77))
        );
        assert_eq!(of(MsgType::USER, load), None);
        for other in [
            "",
            "prog-id=x op=LOAD",
            "prog-id=7",
            "prog-id=7 op=LOADED",
            "op=LOAD",
        ] {
            assert_eq!(of(BPF, other), None, "{other}");
        }
    }
}
