//! The stages of an audited call, and how many of its instructions each takes.

use std::collections::BTreeMap;

use super::code_map::{Code, CodeMap};

/// A stage of an audited call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The program itself, the syscall, and all else that is no part of auditing.
    Call,
    Enter,
    Gate,
    State,
    Watches,
    Facts,
    Rules,
    Paths,
    Event,
    Ring,
}

impl Stage {
    /// All, in the order of tables.
    pub(super) const ALL: [Self; 10] = [
        Self::Enter,
        Self::Gate,
        Self::Watches,
        Self::State,
        Self::Facts,
        Self::Rules,
        Self::Paths,
        Self::Event,
        Self::Ring,
        Self::Call,
    ];

    /// What it does, for tables.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Call => "the calls themselves",
            Self::Enter => "enter and leave programs",
            Self::Gate => "hooks: is this call named, are its flags watched",
            Self::State => "slot: names and objects, kept until the end of the call",
            Self::Watches => "compare objects with watches",
            Self::Facts => "ids, names, label of the task",
            Self::Rules => "evaluate the rules",
            Self::Paths => "text of paths",
            Self::Event => "put the event together",
            Self::Ring => "copy it to the ring",
        }
    }

    /// The stage that a file of `crates/engine/bpf` belongs to.
    fn of_file(file: &str) -> Self {
        match file {
            "syscall_state.bpf.h"
            | "state_slots.bpf.h"
            | "state_items.bpf.h"
            | "task_state.bpf.h"
            | "state_paths.bpf.h"
            | "append_items.bpf.h" => Self::State,
            "watch.bpf.h"
            | "watch_hash.bpf.h"
            | "watch_identity.bpf.h"
            | "watch_prefilter.bpf.h"
            | "fs_filter.bpf.h" => Self::Watches,
            "task.bpf.h" | "label.bpf.h" | "sockaddr.bpf.h" | "target_task.bpf.h" => Self::Facts,
            "filter.bpf.h" => Self::Rules,
            "path.bpf.h" | "opened_name.bpf.h" | "object.bpf.h" => Self::Paths,
            "event.bpf.h" | "scratch.bpf.h" | "load.bpf.h" | "append_aux.bpf.h"
            | "record_stamp.bpf.h" | "context.bpf.h" => Self::Event,
            "ring.bpf.h" => Self::Ring,
            _ => Self::Gate,
        }
    }
}

/// Functions by which the kernel enters and leaves programs.
const ENTER: [&str; 5] = [
    "__bpf_prog_",
    "__bpf_tramp_",
    "migrate_",
    "__rcu_read_",
    "bpf_trampoline_",
];

/// What the instructions of a round are counted by.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) by_stage: BTreeMap<Stage, usize>,
    /// By `FILE:LINE` of programs, with those of functions of the kernel apart: `FILE:LINE FUNCTION`.
    pub(super) by_line: BTreeMap<String, usize>,
}

impl Counts {
    pub(super) fn of(&self, stage: Stage) -> usize {
        self.by_stage.get(&stage).copied().unwrap_or_default()
    }

    /// The instructions that auditing adds.
    pub(super) fn added(&self) -> usize {
        let all: usize = self.by_stage.values().sum();
        all - self.of(Stage::Call)
    }
}

/// Counts the instructions of a round. Functions of the kernel that a program calls count for the stage of the caller's
/// line.
pub(super) fn count(map: &CodeMap, round: &[u64]) -> Counts {
    let mut counts = Counts::default();
    let mut caller = String::new();
    // What runs now, and whether a program does.
    let (mut stage, mut is_program) = (Stage::Call, false);
    for &address in round {
        let code = map.code(address);
        stage = match code {
            Code::Program { file, .. } => {
                is_program = true;
                Stage::of_file(file)
            }
            Code::Trampoline => {
                is_program = false;
                Stage::Enter
            }
            Code::Kernel(_) if is_program => stage,
            Code::Kernel(name) if stage == Stage::Enter && is_entry(name) => Stage::Enter,
            Code::Kernel(_) | Code::User => Stage::Call,
        };
        *counts.by_stage.entry(stage).or_default() += 1;
        let place = match code {
            Code::Program { file, line } => {
                caller = format!("{file}:{line}");
                caller.clone()
            }
            Code::Kernel(name) if is_program => format!("{caller} {name}"),
            _ => continue,
        };
        *counts.by_line.entry(place).or_default() += 1;
    }
    counts
}

fn is_entry(function: &str) -> bool {
    ENTER.iter().any(|prefix| function.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_count_for_the_stage_that_runs() {
        let mut map = CodeMap::default();
        for line in [
            "function ffffffff81000000 do_filp_open",
            "function ffffffff81000100 __bpf_prog_enter_recur",
            "function ffffffff81000200 htab_map_hash",
            "program ffffffffc0001000 64 open_filp",
            "line ffffffffc0001000 ./bpf/hooks/open.bpf.h 230",
            "line ffffffffc0001020 ./bpf/lib/watch_prefilter.bpf.h 48",
        ] {
            assert!(map.take(line), "{line}");
        }
        let (user, open) = (0x40_1000, 0xffff_ffff_8100_0000);
        let (entry, hash) = (0xffff_ffff_8100_0100, 0xffff_ffff_8100_0200);
        let (hook, prefilter) = (0xffff_ffff_c000_1000, 0xffff_ffff_c000_1020);
        let trampoline = 0xffff_ffff_c000_2000;
        let round = [
            user, trampoline, open, hash, trampoline, entry, trampoline, hook, hook, prefilter,
            hash, hash, prefilter, trampoline, entry, entry, trampoline, open, user,
        ];
        let counts = count(&map, &round);
        let expected = [
            (Stage::Call, 5),
            (Stage::Enter, 8),
            (Stage::Gate, 2),
            (Stage::Watches, 4),
        ];
        assert_eq!(counts.by_stage, BTreeMap::from(expected));
        let expected = [
            ("open.bpf.h:230", 2),
            ("watch_prefilter.bpf.h:48", 2),
            ("watch_prefilter.bpf.h:48 htab_map_hash", 2),
        ];
        let expected = expected.map(|(place, count)| (place.to_owned(), count));
        assert_eq!(counts.by_line, BTreeMap::from(expected));
    }
}
