//! A random program: its tasks and their steps.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Context as _;

use super::generate::{self, OWN};
use crate::differential::steps::{ProgramStep, add, program, step};
use crate::differential::uring::{Layout, Operation, Queue};
use crate::lists::list_workload::ListWorkload;
use crate::lists::random::Random;
use crate::program::{Arg, Entry, Program, Task, args};

/// Numbers from here on stand for so many ids of the program's workload.
pub(super) const IDS: i64 = 0x7fff_0000;
pub(super) const ID_COUNT: usize = 12;

/// Names under which the numbers of child processes are saved, by the number of their task.
pub(super) const CHILDREN: [&str; 4] = ["self", "child1", "child2", "child3"];

/// Stands for a process number: the last one before the next process. Each program of a batch has [`NUMBERS`] of its
/// own, because events are attributed by process number. All have five digits.
pub(super) const LAST_NUMBER: &str = "LAST-NUMBER";
const FIRST_NUMBER: u32 = 10_000;
const NUMBERS: u32 = 500;

/// Waits for any kind of child.
const WALL: i32 = 0x4000_0000;

/// A program.
#[derive(Clone, Debug)]
pub(super) struct HuntProgram {
    pub(super) entry: Entry,
    /// Whether it keeps the rights of root, in a mount namespace of its own.
    pub(super) is_privileged: bool,
    /// Its tasks but the first. The first one waits for a child as soon as it has started it, unless it traces it.
    pub(super) tasks: Vec<TaskKind>,
    /// Each step with the number of its task; 0 is the first task. A task starts before its first step.
    pub(super) steps: Vec<(usize, HuntStep)>,
}

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// A thread, which races with the others.
    Thread,
    /// A child that the first task waits for at once.
    Child,
    /// A child that the first task does not wait for at once.
    Traced,
}

/// A step of a task.
#[derive(Clone, Debug)]
pub(super) enum HuntStep {
    Call(ProgramStep),
    /// An operation of `io_uring`, by the submitter or a worker.
    Operation(Operation, Submit),
}

/// The task that runs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submit {
    Submitter,
    Worker,
}

impl HuntProgram {
    /// A program that makes the favorite calls more often than others.
    pub(super) fn random(random: &mut Random, favorites: &[&str], may_be_root: bool) -> Self {
        generate::program(random, favorites, may_be_root)
    }

    /// Whether threads race, so that the order of the events is not known.
    pub(super) fn has_threads(&self) -> bool {
        let threads = self.tasks.iter().zip(1..);
        let mut threads = threads.filter(|(kind, _)| **kind == TaskKind::Thread);
        threads.any(|(_, task)| self.has_steps(task))
    }

    /// The names of its calls and operations.
    pub(super) fn calls(&self) -> Vec<&'static str> {
        let steps = self.steps.iter().map(|(_, step)| match step {
            HuntStep::Call(step) => step.name,
            HuntStep::Operation(operation, _) => operation.name(),
        });
        steps.collect()
    }

    fn has_steps(&self, task: usize) -> bool {
        self.steps.iter().any(|(of, _)| *of == task)
    }

    /// The same program without some steps.
    pub(super) fn without(&self, dropped: &BTreeSet<usize>) -> Self {
        let steps = self.steps.iter().enumerate();
        let kept = steps.filter(|(at, _)| !dropped.contains(at));
        Self {
            steps: kept.map(|(_, step)| step.clone()).collect(),
            ..self.clone()
        }
    }

    /// Every string that it passes to the kernel.
    pub(super) fn texts(&self, workload: &ListWorkload) -> Vec<Vec<u8>> {
        let steps = self.steps.iter();
        let calls = steps.filter_map(|(_, step)| match step {
            HuntStep::Call(step) => Some(instance(step, workload)),
            HuntStep::Operation(..) => None,
        });
        let args = calls.flat_map(|step| step.args);
        args.filter_map(|arg| match arg {
            Arg::Text(text) => Some(text.as_bytes().to_vec()),
            Arg::Bytes(bytes) => Some(bytes.strip_suffix(b"\0").unwrap_or(&bytes).to_vec()),
            _ => None,
        })
        .collect()
    }

    /// Writes the program for a workload.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(
        &self,
        workload: &ListWorkload,
        layout: Layout,
        path: &Path,
    ) -> anyhow::Result<()> {
        let mut queue = Queue::new(layout, false);
        let mut program = program(self.entry, &self.prologue(workload, &queue))?;
        let mut started = BTreeSet::from([0]);
        for (task, step) in &self.steps {
            if started.insert(*task) {
                program = self.start(program, *task, workload)?;
            }
            if *task == 0 {
                let step = match step {
                    HuntStep::Call(step) => instance(step, workload),
                    HuntStep::Operation(operation, submit) => {
                        queue.give(operation.clone(), *submit == Submit::Worker)
                    }
                };
                program = add(program, self.entry, &step)?;
            }
        }
        program
            .write(path)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds the start of a task.
    fn start(
        &self,
        program: Program,
        task: usize,
        workload: &ListWorkload,
    ) -> anyhow::Result<Program> {
        let mut steps = Program::new(self.entry);
        for (_, step) in self.steps.iter().filter(|(of, _)| *of == task) {
            if let HuntStep::Call(step) = step {
                steps = add(steps, self.entry, &instance(step, workload))?;
            }
        }
        let kind = task.checked_sub(1).and_then(|task| self.tasks.get(task));
        let child = CHILDREN.get(task).copied();
        let wait = step!("wait4", Arg::Saved(child.unwrap_or_default()), 0, WALL, 0);
        match kind.context("no such task")? {
            TaskKind::Thread => Ok(program.start(Task::Thread, steps, None)),
            TaskKind::Traced => Ok(program.start(Task::Child, steps, child)),
            TaskKind::Child => add(program.start(Task::Child, steps, child), self.entry, &wait),
        }
    }

    /// Steps that set the ids, after which the rules match.
    fn prologue(&self, workload: &ListWorkload, queue: &Queue) -> Vec<ProgramStep> {
        let [groups, group, user] = if self.entry == Entry::Syscall {
            ["setgroups", "setresgid", "setresuid"]
        } else {
            ["setgroups32", "setresgid32", "setresuid32"]
        };
        let call = |name, args| ProgramStep {
            name,
            args,
            saved: None,
            stores: Vec::new(),
        };
        let (uid, gid) = (i64::from(workload.euid()), i64::from(workload.egid()));
        let mut steps = vec![step!("getpid").save(OWN)];
        let has_operation = |(_, step): &(usize, HuntStep)| matches!(step, HuntStep::Operation(..));
        if self.steps.iter().any(has_operation) {
            steps.extend(queue.made());
        }
        if self.is_privileged {
            let (new_namespace, private) = (0x2_0000, 0x4_4000);
            steps.push(step!("unshare", new_namespace));
            steps.push(step!("mount", 0, "/", 0, private, 0));
        }
        steps.push(call(groups, args![0, 0]));
        steps.push(call(group, args![gid, gid, gid]));
        if !self.is_privileged {
            steps.push(call(user, args![uid, uid, uid]));
        }
        steps
    }
}

fn is_id(number: i64) -> bool {
    usize::try_from(number - IDS).is_ok_and(|id| id < ID_COUNT)
}

/// A step in the directory and with the ids of a workload.
fn instance(step: &ProgramStep, workload: &ListWorkload) -> ProgramStep {
    let mut step = step.clone();
    for arg in &mut step.args {
        match arg {
            Arg::Text(LAST_NUMBER) => {
                let number = FIRST_NUMBER + NUMBERS * workload.number;
                *arg = Arg::Bytes(format!("{number}\0").into_bytes());
            }
            Arg::Text(text) => {
                if let Some(below) = text.strip_prefix('@') {
                    let path = format!("{}{below}\0", workload.place);
                    *arg = Arg::Bytes(path.into_bytes());
                }
            }
            Arg::Number(number) if is_id(*number) => {
                *number = i64::from(workload.ids) + (*number - IDS);
            }
            _ => {}
        }
    }
    step
}

impl fmt::Display for HuntProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.is_privileged { "root" } else { "user" };
        writeln!(f, "{:?} as {user}, tasks {:?}", self.entry, self.tasks)?;
        for (task, step) in &self.steps {
            write!(f, "  {task}: ")?;
            match step {
                HuntStep::Call(step) => {
                    let args: Vec<String> = step.args.iter().map(show).collect();
                    let saved = step.saved.map(|name| format!(" -> {name}"));
                    let (name, args) = (step.name, args.join(", "));
                    writeln!(f, "{name}({args}){}", saved.unwrap_or_default())?;
                }
                HuntStep::Operation(operation, submit) => {
                    writeln!(f, "{operation} by {submit:?}")?;
                }
            }
        }
        Ok(())
    }
}

fn show(arg: &Arg) -> String {
    match arg {
        Arg::Number(number) if is_id(*number) => format!("id{}", number - IDS),
        Arg::Number(number) if *number > 7 => format!("{number:#o}"),
        Arg::Number(number) => number.to_string(),
        Arg::Text(text) => format!("{text:?}"),
        Arg::Texts(texts) => format!("{texts:?}"),
        Arg::Bytes(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            format!("{:?}", text.trim_end_matches('\0'))
        }
        Arg::Shared(name, _) => format!("&{name}"),
        Arg::Words(words) => {
            let words: Vec<String> = words.iter().map(show).collect();
            format!("[{}]", words.join(", "))
        }
        Arg::Result => "result".to_owned(),
        Arg::Saved(name) => (*name).to_owned(),
        Arg::Argument(number) => format!("argv[{number}]"),
        Arg::Buffer => "buffer".to_owned(),
    }
}
