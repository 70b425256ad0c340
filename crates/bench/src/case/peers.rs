//! The workloads of eAudit's evaluation, with one rule that names the calls that eAudit records.
//!
//! A case is one workload with one or two tasks. The rule is limited to the user of the workloads, so that other
//! programs are neither recorded nor slowed down; eAudit has no rules, and records all programs.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Context as _;

use super::loader::to_f64;
use super::{Case, FigureSpec, HeadlineSpec, PEERS, Sample, with_audit};
use crate::Options;
use crate::audit_log::LogCounts;
use crate::auditor::EventCounts;
use crate::report::Bound;
use crate::variant::{AuditMode, Variant};
use crate::work_dir::{CpuAffinity, UID, WorkDir, parse_value, why_no_memory};
use crate::workload::peers::{TreeSize, Workload};
use crate::workload::{PREPARE, TASKS};

/// A workload with a number of tasks.
#[derive(Debug)]
pub(super) struct Peer {
    name: &'static str,
    about: &'static str,
    workload: Workload,
    tasks: u32,
    /// Of each task; see [`Workload`].
    amount: u32,
    figures: &'static [FigureSpec],
}

/// The cases.
///
/// Each has a ratio of eAudit that tollgate's must not exceed if eAudit is not measured beside it.
///
/// # Source
/// The ratios are those of eAudit, commit 77d66d9, running its own workloads, medians of three rounds of
/// 20 November 2026 on a guest with two CPUs (AMD Zen 5, Linux 6.18.44): `docs/performance.md`.
pub(super) static CASES: [Peer; 10] = [
    Peer {
        name: "find1",
        about: "40 passes over a tree of 1,000 directories and 8,000 files, whose names are printed",
        workload: Workload::Find,
        tasks: 1,
        amount: 40,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.38))]),
    },
    Peer {
        name: "find2",
        about: "two tasks, 20 passes each over a tree of 1,000 directories and 8,000 files, whose names are printed",
        workload: Workload::Find,
        tasks: 2,
        amount: 20,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.47))]),
    },
    Peer {
        name: "tar1",
        about: "four passes over a tree of 1,000 directories and 8,000 files, which are read",
        workload: Workload::Tar,
        tasks: 1,
        amount: 4,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.55))]),
    },
    Peer {
        name: "tar2",
        about: "two tasks, two passes each over a tree of 1,000 directories and 8,000 files, which are read",
        workload: Workload::Tar,
        tasks: 2,
        amount: 2,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.49))]),
    },
    Peer {
        name: "programs1",
        about: "1,500 short programs, one after another",
        workload: Workload::Programs,
        tasks: 1,
        amount: 1500,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.18))]),
    },
    Peer {
        name: "programs2",
        about: "two tasks, 750 short programs each, one after another",
        workload: Workload::Programs,
        tasks: 2,
        amount: 750,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.22))]),
    },
    Peer {
        name: "readwrite1",
        about: "200,000 reads and writes of one byte",
        workload: Workload::ReadWrite,
        tasks: 1,
        amount: 200_000,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(2.52))]),
    },
    Peer {
        name: "readwrite2",
        about: "two tasks, 100,000 reads and writes of one byte each",
        workload: Workload::ReadWrite,
        tasks: 2,
        amount: 100_000,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(2.54))]),
    },
    Peer {
        name: "postmark1",
        about: "20,000 transactions on 800 small files: read or append, and create or delete",
        workload: Workload::Postmark,
        tasks: 1,
        amount: 20_000,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.35))]),
    },
    Peer {
        name: "postmark2",
        about: "two tasks, 20,000 transactions each on 800 small files of its own",
        workload: Workload::Postmark,
        tasks: 2,
        amount: 20_000,
        figures: &figures(&[("tollgate", Bound::RatioAtMostEaudit(1.43))]),
    },
];

const BRIEF_AMOUNT: u32 = 10;
const TREE: TreeSize = TreeSize {
    directories: 1000,
    files: 8000,
};
const BRIEF_TREE: TreeSize = TreeSize {
    directories: 10,
    files: 40,
};

/// The calls that eAudit has programs for, as the kernel spells them. A kernel without modules has 79 of them.
///
/// # Source
/// The tracepoints of `eauditk.c`, <https://github.com/ugswork/eaudit>, commit 77d66d9.
const CALLS: [&str; 81] = [
    "accept",
    "accept4",
    "bind",
    "chdir",
    "chmod",
    "clone",
    "clone3",
    "close",
    "connect",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fcntl",
    "finit_module",
    "fork",
    "ftruncate",
    "getpeername",
    "init_module",
    "kill",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "mmap",
    "mprotect",
    "open",
    "openat",
    "pipe",
    "pipe2",
    "pread64",
    "preadv",
    "preadv2",
    "ptrace",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setfsgid",
    "setfsuid",
    "setgid",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    "socket",
    "socketpair",
    "splice",
    "symlink",
    "symlinkat",
    "tee",
    "tgkill",
    "tkill",
    "truncate",
    "unlink",
    "unlinkat",
    "vfork",
    "vmsplice",
    "write",
    "writev",
];
/// Those that auditctl(8) spells in another way.
const AUDIT_NAMES: [(&str, &str); 2] = [("pread64", "pread"), ("pwrite64", "pwrite")];

/// Symbols of the kernel. Those of syscalls that it does not have are weak.
const SYMBOLS: &str = "/proc/kallsyms";
const SYSCALL_PREFIX: &str = "__x64_sys_";

const ONE_RULE: &[HeadlineSpec] =
    &[HeadlineSpec::new("one rule names the calls that eAudit records").in_picture()];

const fn figures(goals: &'static [(&'static str, Bound)]) -> [FigureSpec; 5] {
    [
        FigureSpec::less("time", "ms")
            .headlines(ONE_RULE)
            .goals(goals),
        FigureSpec::more("recorded", "events"),
        FigureSpec::less("log", "B/event"),
        FigureSpec::less("daemon CPU per event", "us").relative_to("kernel"),
        FigureSpec::less("lost", "events").goals(&[("tollgate", Bound::Exactly(0.0))]),
    ]
}

impl Case for Peer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn origin(&self) -> &'static str {
        "eAudit, IEEE S&P 2024, https://github.com/ugswork/eaudit"
    }

    fn unavailable(&self) -> Option<String> {
        why_no_memory()
    }

    fn notes(&self) -> Vec<String> {
        let missing = missing_calls();
        if missing.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "left out, because this kernel does not have them: {}",
            missing.join(", ")
        )]
    }

    fn figures(&self) -> &'static [FigureSpec] {
        self.figures
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let rule = rule(missing_calls());
        let own = options.against.iter().map(|&mode| match mode {
            AuditMode::Off => Variant::plain(mode, ""),
            _ => Variant::plain(mode, &rule),
        });
        let beside = options.eaudit.iter();
        own.chain(beside.map(|_| Variant::plain(AuditMode::Eaudit, "")))
            .collect()
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let (amount, tree) = if brief {
            (BRIEF_AMOUNT, BRIEF_TREE)
        } else {
            (self.amount, TREE)
        };
        let directory = work_dir.create_in_memory(PEERS)?.display().to_string();
        let name = self.workload.name();
        let [tasks, amount, directories, files] =
            [self.tasks, amount, tree.directories, tree.files].map(|number| number.to_string());
        let words = [
            PREPARE,
            name,
            &directory,
            &tasks,
            &amount,
            &directories,
            &files,
        ];
        work_dir.workload(CpuAffinity::Any, &words)?;
        let (printed, spent) = with_audit(work_dir, variant, || {
            let words = [TASKS, &tasks, name, &directory, &amount];
            work_dir.workload(CpuAffinity::Any, &words)
        })?;
        let mut sample = Sample {
            values: vec![("time", parse_value(&printed, "elapsed_ns")? / 1e6)],
            startup_line: spent.startup_line,
            ..Sample::default()
        };
        if variant.mode == AuditMode::Off {
            return Ok(sample);
        }
        let events = match spent.eaudit_calls {
            Some(calls) => calls,
            None => {
                let counts = LogCounts::from_log(&work_dir.log(), &[]);
                counts.context("cannot read the log")?.events
            }
        };
        sample.values.extend([
            ("recorded", to_f64(events)),
            ("log", to_f64(spent.bytes) / to_f64(events)),
            (
                "daemon CPU per event",
                spent.cpu.as_secs_f64() * 1e6 / to_f64(events),
            ),
            ("lost", to_f64(spent.lost)),
        ]);
        if let Some(counted) = spent.event_counts {
            let calls = parse_value(&printed, "calls")?;
            sample.failures = failures(events, calls, counted);
        }
        Ok(sample)
    }
}

/// Missing and lost events. The log has at least the calls that the workload counts.
fn failures(events: u64, calls: f64, counted: EventCounts) -> Vec<String> {
    let EventCounts {
        matched,
        written,
        lost,
    } = counted;
    let mut failures = Vec::new();
    if lost != 0 {
        failures.push(format!("{lost} of {matched} events are lost"));
    }
    if events != written {
        failures.push(format!("the log has {events} events, not {written}"));
    }
    if to_f64(events) < calls {
        failures.push(format!("{calls} calls, but the log has {events} events"));
    }
    failures
}

/// The rule that names eAudit's calls but these.
fn rule(missing: &[&str]) -> String {
    let spelled = |call: &str| {
        let other = AUDIT_NAMES.iter().find(|(kernel, _)| *kernel == call);
        other.map_or_else(|| call.to_owned(), |(_, audit)| (*audit).to_owned())
    };
    let calls = CALLS.iter().filter(|call| !missing.contains(call));
    let calls: Vec<String> = calls.map(|call| spelled(call)).collect();
    format!(
        "-a always,exit -F arch=b64 -S {} -F uid={UID} -k {PEERS}\n",
        calls.join(",")
    )
}

/// Those of eAudit's calls that this kernel does not have; none if its symbols cannot be read.
fn missing_calls() -> &'static [&'static str] {
    static MISSING: OnceLock<Vec<&'static str>> = OnceLock::new();
    MISSING.get_or_init(|| missing_in(&fs::read_to_string(SYMBOLS).unwrap_or_default()))
}

fn missing_in(symbols: &str) -> Vec<&'static str> {
    let name = |line: &str| -> Option<String> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_own = words.next()?.eq_ignore_ascii_case("t");
        let name = words.next()?.strip_prefix(SYSCALL_PREFIX)?;
        is_own.then(|| name.to_owned())
    };
    let present: HashSet<String> = symbols.lines().filter_map(name).collect();
    if present.is_empty() {
        return Vec::new();
    }
    let missing = CALLS.into_iter().filter(|call| !present.contains(*call));
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_the_kernel_lacks_are_left_out() {
        let mut symbols: String = CALLS
            .iter()
            .map(|call| format!("0000000000000000 T {SYSCALL_PREFIX}{call}\n"))
            .collect();
        assert_eq!(missing_in(&symbols), [""; 0]);
        symbols = symbols.replace("T __x64_sys_init_module", "W __x64_sys_init_module");
        assert_eq!(missing_in(&symbols), ["init_module"]);
        assert_eq!(missing_in("not readable\n"), [""; 0]);
        let rule = rule(&["init_module", "accept"]);
        assert!(
            rule.starts_with("-a always,exit -F arch=b64 -S accept4,bind,"),
            "{rule}"
        );
        assert!(
            rule.contains(",pread,preadv,") && !rule.contains(",init_module"),
            "{rule}"
        );
    }

    #[test]
    fn eaudit_is_measured_where_its_directory_is_given() {
        let options = |eaudit| Options {
            cases: Vec::new(),
            against: vec![AuditMode::Off, AuditMode::Tollgate],
            rules: None,
            runs: 1,
            engine: "auto".into(),
            eaudit,
            brief: true,
            fifo: false,
        };
        let names = |options: &Options| -> Vec<String> {
            let variants = CASES[0].variants(options, Path::new("/w"));
            variants.into_iter().map(|variant| variant.name).collect()
        };
        assert_eq!(names(&options(None)), ["off", "tollgate"]);
        let with_eaudit = options(Some("/eaudit".into()));
        assert_eq!(names(&with_eaudit), ["off", "tollgate", "eaudit"]);
    }

    #[test]
    fn lost_and_missing_events_are_failures() {
        let counted = |matched, written, lost| EventCounts {
            matched,
            written,
            lost,
        };
        assert_eq!(failures(10, 9.0, counted(10, 10, 0)), [""; 0]);
        assert_eq!(
            failures(10, 10.0, counted(12, 10, 2)),
            ["2 of 12 events are lost"]
        );
        assert_eq!(failures(9, 9.0, counted(10, 10, 0)).len(), 1);
        assert_eq!(failures(10, 11.0, counted(10, 10, 0)).len(), 1);
    }
}
