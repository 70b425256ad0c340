//! Programs that match a rule: their identity, syscalls and results.

use std::io;
use std::path::{Path, PathBuf};

use audit::ids::{Arch, Syscall};
use audit::plan::SyscallId;
use audit::rule::{Action, Field, FieldTest, List, Op, Rule, Value, perm};
use audit::table;
use bstr::ByteSlice as _;

use super::fixtures::{CLOSED_NAME, FIXED, FREE, ID, LOCKED, OPEN_NAME, PLACE};
use super::syscall_steps::{O_WRONLY, Outcome, Target, calls, named};
use crate::differential::steps::{ProgramStep, program, step};
use crate::program::{Arg, Entry, Program, args};

const UNSET: u32 = u32::MAX;

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

/// A program that a rule should match.
pub(super) struct Workload {
    program: Program,
    path: PathBuf,
    /// The rule's syscalls.
    pub(super) calls: Vec<SyscallId>,
}

impl Workload {
    /// Writes the program; returns its path.
    pub(super) fn write(&self) -> io::Result<PathBuf> {
        self.program.write(&self.path)?;
        Ok(self.path.clone())
    }
}

/// The identity of a task.
#[derive(Clone, Copy)]
struct RunAs {
    auid: u32,
    uid: u32,
    euid: u32,
    gid: u32,
    egid: u32,
}

/// The programs that trigger a rule: one for each login uid that it allows, set and unset.
///
/// # Errors
/// Why no program can trigger it.
pub(super) fn workloads(rule: &Rule) -> Result<Vec<Workload>, String> {
    if rule.action == Action::Never {
        return Err("it suppresses, and makes no record".into());
    }
    if rule.list != List::Exit {
        return Err("it is in no list of calls".into());
    }
    let entry = entry(rule)?;
    let outcome = outcome(rule)?;
    let mut path = Path::new(PLACE).join("program");
    let mut place = match outcome {
        Outcome::Any | Outcome::Success | Outcome::Invalid => FREE,
        Outcome::Denied => LOCKED,
        Outcome::Forbidden => FIXED,
    }
    .as_bytes()
    .to_vec();
    for test in &rule.fields {
        match (test.field, &test.value) {
            (Field::Path, Value::Text(text)) => place = text.to_vec(),
            (Field::Dir, Value::Text(text)) => {
                let name = match outcome {
                    Outcome::Any | Outcome::Success | Outcome::Invalid => OPEN_NAME,
                    Outcome::Denied | Outcome::Forbidden => CLOSED_NAME,
                };
                place = [text.trim_end_with(|c| c == '/'), b"/", name.as_bytes()].concat();
            }
            (Field::Exe, Value::Text(text)) if test.op == Op::Equal => {
                text.to_path_lossy().as_ref().clone_into(&mut path);
            }
            _ => {}
        }
    }
    let target = Target {
        path: place,
        outcome,
    };
    let tasks = tasks(rule);
    if tasks.is_empty() {
        return Err("no task of the test has such ids".into());
    }
    let made = tasks
        .into_iter()
        .map(|who| workload(rule, entry, &path, &target, who));
    made.collect()
}

/// The program that makes the syscalls of a rule.
fn workload(
    rule: &Rule,
    entry: Entry,
    path: &Path,
    target: &Target,
    who: RunAs,
) -> Result<Workload, String> {
    let mut steps = become_user(entry, who);
    let mut about = Vec::new();
    let mut names = names(rule, entry, target.outcome);
    // After an exec the program makes no more syscalls.
    names.sort_by_key(|name| name.starts_with("exec"));
    for name in names {
        let mut calls = calls(name, rule, target);
        let Some(call) = calls.last_mut() else {
            continue;
        };
        satisfy(rule, &mut call.args);
        let arch = arch(entry);
        let number = table::syscall_number(arch, name.as_bytes());
        about.extend(number.map(|syscall| SyscallId { arch, syscall }));
        let known = |step: &ProgramStep| table::syscall_number(arch, step.name.as_bytes());
        steps.extend(calls.into_iter().filter(|step| known(step).is_some()));
    }
    if about.is_empty() {
        return Err("no call of it can be made by a program of the test".into());
    }
    let program = program(entry, &steps).map_err(|error| error.to_string())?;
    Ok(Workload {
        program,
        path: path.to_owned(),
        calls: about,
    })
}

const fn arch(entry: Entry) -> Arch {
    match entry {
        Entry::Syscall => Arch::X86_64,
        Entry::Int80 | Entry::I386 => Arch::I386,
    }
}

fn entry(rule: &Rule) -> Result<Entry, String> {
    [Entry::Syscall, Entry::Int80]
        .into_iter()
        .find(|&entry| holds_for(rule, &[Field::Arch], |_| arch(entry).0))
        .ok_or_else(|| "it is about calls of another architecture".into())
}

/// Names of the syscalls to make: those in the rule, or one for each access mode.
fn names(rule: &Rule, entry: Entry, outcome: Outcome) -> Vec<&'static str> {
    if !rule.syscalls.is_all() {
        let numbers = rule.syscalls.iter();
        return numbers
            .filter_map(|number| table::syscall_name(arch(entry), Syscall(number)))
            .filter(|name| !ENDLESS.contains(name))
            .collect();
    }
    let Some(wanted) = rule.fields.iter().find(|test| test.field == Field::Perm) else {
        // Without arguments it duplicates a descriptor to itself, which fails.
        let invalid = outcome == Outcome::Invalid;
        return vec![if invalid { "dup3" } else { "open" }];
    };
    let Value::Number(bits) = wanted.value else {
        return Vec::new();
    };
    let ways = [
        (perm::READ | perm::WRITE, "open"),
        (perm::ATTR, "chmod"),
        (perm::EXEC, "execve"),
    ];
    ways.into_iter()
        .filter(|(way, _)| bits & way != 0)
        .map(|(_, name)| name)
        .collect()
}

/// Syscalls that do not return, or not soon.
const ENDLESS: [&str; 8] = [
    "exit",
    "exit_group",
    "pause",
    "rt_sigreturn",
    "sigreturn",
    "rt_sigsuspend",
    "sigsuspend",
    "vfork",
];

fn outcome(rule: &Rule) -> Result<Outcome, String> {
    let mut outcome = Outcome::Any;
    for test in &rule.fields {
        let negative = |errno: i32| (-errno).cast_unsigned();
        outcome = match (test.field, test.op, &test.value) {
            (Field::Success, Op::Equal, Value::Number(0)) => Outcome::Denied,
            (Field::Success, Op::Equal, Value::Number(_)) => Outcome::Success,
            (Field::Exit, Op::Equal, &Value::Number(exit)) if exit == negative(EACCES) => {
                Outcome::Denied
            }
            (Field::Exit, Op::Equal, &Value::Number(exit)) if exit == negative(EPERM) => {
                Outcome::Forbidden
            }
            (Field::Exit, Op::Equal, &Value::Number(exit)) if exit == negative(EINVAL) => {
                Outcome::Invalid
            }
            (Field::Exit | Field::Success, ..) => {
                return Err("no program of the test makes a call end so".into());
            }
            _ => outcome,
        };
    }
    Ok(outcome)
}

/// Tasks that meet all conditions on ids: one for each login uid, with as few different ids as possible.
fn tasks(rule: &Rule) -> Vec<RunAs> {
    let mut ids = vec![ID, 0];
    for test in &rule.fields {
        if let (Field::Uid | Field::Euid | Field::Auid, Value::Number(id)) =
            (test.field, &test.value)
            && *id != UNSET
        {
            ids.push(*id);
        }
    }
    let may_differ = rule.fields.iter().any(is_about_euid);
    let mut groups = vec![(ID, ID), (0, 0)];
    if may_differ {
        groups.extend([(ID, 0), (0, ID)]);
    }
    let mut candidates = Vec::new();
    for &uid in &ids {
        for &euid in &ids {
            for &(gid, egid) in &groups {
                if uid == euid || may_differ {
                    candidates.push((uid, euid, gid, egid));
                }
            }
        }
    }
    let first = |auid| {
        let mut tasks = candidates.iter().map(|&(uid, euid, gid, egid)| RunAs {
            auid,
            uid,
            euid,
            gid,
            egid,
        });
        tasks.find(|who| holds_for(rule, &IDS, |field| who.id(field)))
    };
    [ID, UNSET].into_iter().filter_map(first).collect()
}

fn is_about_euid(test: &FieldTest) -> bool {
    test.field == Field::Euid || matches!(test.value, Value::Field(_))
}

const IDS: [Field; 9] = [
    Field::Auid,
    Field::Uid,
    Field::Euid,
    Field::Suid,
    Field::Fsuid,
    Field::Gid,
    Field::Egid,
    Field::Sgid,
    Field::Fsgid,
];

impl RunAs {
    const fn id(&self, field: Field) -> u32 {
        match field {
            Field::Auid => self.auid,
            Field::Uid => self.uid,
            Field::Gid => self.gid,
            Field::Egid | Field::Sgid | Field::Fsgid => self.egid,
            _ => self.euid,
        }
    }
}

/// Whether all conditions on some fields hold.
fn holds_for(rule: &Rule, fields: &[Field], value: impl Fn(Field) -> u32) -> bool {
    rule.fields
        .iter()
        .filter(|test| fields.contains(&test.field))
        .all(|test| match test.value {
            Value::Number(right) => holds(value(test.field), test.op, right),
            Value::Field(right) if fields.contains(&right) => {
                holds(value(test.field), test.op, value(right))
            }
            Value::Field(_) | Value::Text(_) => true,
        })
}

const fn holds(left: u32, op: Op, right: u32) -> bool {
    match op {
        Op::Equal => left == right,
        Op::NotEqual => left != right,
        Op::Greater => left > right,
        Op::GreaterOrEqual => left >= right,
        Op::Less => left < right,
        Op::LessOrEqual => left <= right,
        Op::BitMask => left & right != 0,
        Op::BitTest => left & right == right,
    }
}

fn become_user(entry: Entry, who: RunAs) -> Vec<ProgramStep> {
    let mut steps = Vec::new();
    if who.auid != UNSET {
        let auid = who.auid.to_string().into_bytes();
        let length = i64::try_from(auid.len()).unwrap_or(0);
        steps.push(step!("open", "/proc/self/loginuid", O_WRONLY));
        steps.push(step!("write", Arg::Result, Arg::Bytes(auid), length));
    }
    let [groups, group, user] = if entry == Entry::Syscall {
        ["setgroups", "setresgid", "setresuid"]
    } else {
        ["setgroups32", "setresgid32", "setresuid32"]
    };
    let id = |id: u32| i64::from(id);
    for (name, args) in [
        (groups, args![0, 0]),
        (group, args![id(who.gid), id(who.egid), id(who.egid)]),
        (user, args![id(who.uid), id(who.euid), id(who.euid)]),
    ] {
        steps.push(named(name, args));
    }
    steps
}

/// Sets arguments to the values that the rule requires, with as few flags as possible.
fn satisfy(rule: &Rule, args: &mut Vec<Arg>) {
    for test in &rule.fields {
        let index = match test.field {
            Field::A0 => 0,
            Field::A1 => 1,
            Field::A2 => 2,
            Field::A3 => 3,
            _ => continue,
        };
        let Value::Number(wanted) = test.value else {
            continue;
        };
        while args.len() <= index {
            args.push(Arg::Number(0));
        }
        let Some(arg) = args.get_mut(index) else {
            continue;
        };
        let wanted = i64::from(wanted);
        let now = if let Arg::Number(now) = arg { *now } else { 0 };
        *arg = Arg::Number(match test.op {
            Op::Equal | Op::GreaterOrEqual | Op::LessOrEqual => wanted,
            Op::BitMask if now & wanted != 0 => now,
            Op::BitMask => now | (wanted & wanted.wrapping_neg()),
            Op::BitTest => now | wanted,
            Op::NotEqual if now != wanted => now,
            Op::NotEqual | Op::Greater => wanted + 1,
            Op::Less => wanted - 1,
        });
    }
}
