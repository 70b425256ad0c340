//! Random rules for one program, from a small set: watches, groups of syscalls, programs, results, users, `never`.
//!
//! The kernel evaluates rules with objects object by object and stops at the first object that a rule names, so all
//! rules with objects have the same key.

use audit::ids::Arch;

use super::forms::{GROUPS, known};
use crate::lists::list_workload::ListWorkload;
use crate::lists::random::Random;
use crate::program::Entry;
use crate::suite::LSM;

/// The name of the program in its directory.
pub(super) const PROGRAM: &str = "hunted";

/// What the rules of a batch name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flavor {
    kinds: Kinds,
    /// The only groups of syscalls, if not all. Rules about nearly all syscalls make the fentry engine use tracepoints:
    /// half of the batches have few groups.
    few: Option<&'static [&'static str]>,
    /// Whether rules name operations of `io_uring`.
    has_operations: bool,
}

/// A syscall that only rules with watches name takes another way through the engine than one that others name too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    Mixed,
    Watches,
    Calls,
}

/// Groups of a batch with few of them.
const FEW: usize = 5;

impl Flavor {
    /// The flavor of a batch. The engine `lsm` refuses rules about so many syscalls and about operations.
    pub(super) fn of(batch: u32, engine: &str) -> Self {
        let kinds = match batch % 3 {
            0 => Kinds::Mixed,
            1 => Kinds::Watches,
            _ => Kinds::Calls,
        };
        // Three batches with few groups, one of each kind, then three with all.
        let round = batch / 3;
        let is_lsm = engine == LSM;
        let has_few = is_lsm || round.is_multiple_of(2);
        let few = GROUPS.chunks(FEW).cycle().nth(round as usize / 2);
        Self {
            kinds,
            few: few.filter(|_| has_few),
            has_operations: !is_lsm,
        }
    }

    /// The syscalls that programs call more often than others, because not all are named: none if all are.
    pub(super) fn favorites(self) -> Vec<&'static str> {
        let groups = self.few.unwrap_or_default().iter();
        groups.flat_map(|group| group.split(',')).collect()
    }
}

/// The rules for a program of this entry.
pub(super) fn rules(
    random: &mut Random,
    flavor: Flavor,
    entry: Entry,
    workload: &ListWorkload,
) -> Vec<String> {
    let mut writer = Writer {
        random,
        arch: entry.arch(),
        groups: flavor.few.unwrap_or(GROUPS),
        workload,
    };
    let mut lines = Vec::new();
    if flavor.kinds != Kinds::Watches {
        let count = 2 + writer.random.below(4);
        for number in 0..count {
            lines.extend(writer.calls(number));
        }
        if writer.random.once_in(4) {
            lines.insert(0, writer.never());
        }
    }
    if flavor.kinds != Kinds::Calls {
        for _ in 0..=writer.random.below(3) {
            lines.push(writer.watch());
        }
    }
    if writer.random.once_in(2) && flavor.has_operations {
        lines.push(writer.operations());
    }
    // The kernel rejects a duplicate rule.
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    lines
}

struct Writer<'a> {
    random: &'a mut Random,
    arch: Arch,
    groups: &'static [&'static str],
    workload: &'a ListWorkload,
}

impl Writer<'_> {
    fn arch(&self) -> &'static str {
        if self.arch == Arch::X86_64 {
            "b64"
        } else {
            "b32"
        }
    }

    fn group(&mut self) -> String {
        loop {
            if let Some(group) = known(self.random.pick(self.groups), self.arch) {
                return group;
            }
        }
    }

    fn calls(&mut self, number: usize) -> Option<String> {
        let group = self.group();
        let (arch, slot) = (self.arch(), self.workload.number);
        let condition = self.condition();
        let gid = self.workload.egid();
        Some(format!(
            "-a always,exit -F arch={arch} -S {group}{condition} -F gid={gid} -k h{slot}r{number}"
        ))
    }

    fn condition(&mut self) -> String {
        let (place, user) = (&self.workload.place, self.workload.euid());
        match self.random.below(8) {
            0 => " -F success=1".to_owned(),
            1 => " -F success=0".to_owned(),
            2 => format!(" -F exe={place}/{PROGRAM}"),
            3 => format!(" -F uid={user}"),
            4 => " -F exit=-ENOENT".to_owned(),
            _ => String::new(),
        }
    }

    fn never(&mut self) -> String {
        let (arch, gid) = (self.arch(), self.workload.egid());
        let (group, condition) = (self.group(), self.condition());
        format!("-a never,exit -F arch={arch} -S {group}{condition} -F gid={gid}")
    }

    fn operations(&mut self) -> String {
        let operations = self.random.pick(&[
            "all",
            "openat,openat2,mkdirat,unlinkat",
            "renameat,linkat,symlinkat",
        ]);
        let (gid, slot) = (self.workload.egid(), self.workload.number);
        format!("-a always,io_uring -S {operations} -F gid={gid} -k h{slot}u")
    }

    fn watch(&mut self) -> String {
        let slot = self.workload.number;
        let place = self.workload.place.clone();
        let name = self.random.pick(&[
            "file",
            "kept",
            "secret",
            "new",
            "sub",
            "full",
            "theirs/file",
            "sub/below",
            "twin",
            "way/below",
        ]);
        let perm = self.random.pick(&["wa", "rwxa", "r", "w", "a", "wa"]);
        let (arch, gid) = (self.arch(), self.workload.egid());
        match self.random.below(4) {
            0 | 1 => format!("-w {place}/{name} -p {perm} -k h{slot}w"),
            2 => {
                let group = self.group();
                format!(
                    "-a always,exit -F arch={arch} -S {group} -F path={place}/{name} -F gid={gid} -k h{slot}w"
                )
            }
            _ => {
                let below = self.random.pick(&["", "/sub", "/full"]);
                format!(
                    "-a always,exit -F dir={place}{below} -F perm={perm} -F gid={gid} -k h{slot}w"
                )
            }
        }
    }
}
