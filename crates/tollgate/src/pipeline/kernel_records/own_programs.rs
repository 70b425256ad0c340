//! The daemon's own BPF programs: the kernel's audit records each load and unload of a program, so that one rule that
//! is added and removed would leave hundreds of records.

use std::collections::HashSet;

use netlink::KernelRecord;

use super::program_record::ProgramRecord;

/// Ids of the programs. An id stays here until its unload is recorded: the kernel gives it to no other program before.
#[derive(Debug, Default)]
pub(crate) struct OwnPrograms(HashSet<u32>);

impl OwnPrograms {
    /// Adds programs.
    pub(crate) fn add(&mut self, ids: impl Iterator<Item = u32>) {
        self.0.extend(ids);
    }

    /// Whether a record is about one of the programs.
    pub(super) fn has_record(&mut self, record: KernelRecord<'_>) -> bool {
        match ProgramRecord::of(record) {
            Some(ProgramRecord::Load(id)) => self.0.contains(&id),
            Some(ProgramRecord::Unload(id)) => self.0.remove(&id),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use audit::ids::MsgType;

    use super::super::program_record::BPF;
    use super::*;

    #[test]
    fn only_records_of_own_programs_are_recognized() {
        let mut own = OwnPrograms::default();
        own.add([7, 8].into_iter());
        let mut has = |kind, text: &str| {
            let text = text.as_bytes();
            own.has_record(KernelRecord { kind, text })
        };
        assert!(has(BPF, "audit(5.100:1): prog-id=7 op=LOAD"));
        assert!(!has(BPF, "audit(5.100:2): prog-id=77 op=LOAD"));
        assert!(!has(MsgType::USER, "audit(5.100:3): prog-id=7 op=LOAD"));
        assert!(has(BPF, "audit(5.100:4): prog-id=7 op=UNLOAD"));
        assert!(
            !has(BPF, "audit(5.100:5): prog-id=7 op=LOAD"),
            "another program"
        );
        assert!(has(BPF, "audit(5.100:6): prog-id=8 op=UNLOAD"));
    }
}
