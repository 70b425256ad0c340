//! Property test: the BPF filter and the reference evaluator agree for random rules and events.
//!
//! Needs root, because the kernel runs the filter. The test makes the events and the watch matches of their
//! objects; the end-to-end tests check that programs find the same matches.

use std::cell::Cell;
use std::mem::MaybeUninit;

use audit::event::{Inode, succeeded};
use audit::ids::{Arch, Auid};
use audit::plan::eval::other_lists::first_operation_match;
use audit::plan::eval::{EventFacts, ObjectFacts, first_match, is_at_or_below};
use audit::plan::uring::URING_OPS;
use audit::plan::{RuleId, SyscallId};
use audit::rule::{Action, Rule, Value};
use inputs::rules::{ARCHES, is_covered, random_event, rule_entries, task_state};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, ProgramInput};
use proptest::collection::vec;
use proptest::test_runner::{Config, TestRunner};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::rule_tests::split_same_object_tests;
use super::*;
use crate::abi::{WireInode, WireObject};
use crate::engine_kind::EngineKind;
use crate::hooks::hook::KernelFeatures;

crate::skeleton::skeleton!("filter_test");

/// Maps that the filter reads.
const MAPS: [&str; 6] = [
    "tlg_counts",
    "tlg_rule_tests",
    "tlg_scratch",
    "tlg_watch_inode",
    "tlg_watch_sets",
    "tlg_filter_test",
];

/// More tests than the rules of a case compile to.
const MAX_TESTS: u32 = 1 << 18;

const HITS: usize = 16;
const HIT_LEAF: u32 = 0x10000;
const HIT_NAMED: u32 = 0x80000;

/// `struct filter_test_case` of `bpf/filter_test.bpf.c`.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct FilterTestCase {
    event: WireEvent,
    object: [WireObject; abi::ITEMS],
    hits: u32,
    hit: [u32; HITS],
    exe_hits: u32,
    exe_hit: [u32; HITS],
    first: u32,
    verdict: u32,
}

impl FilterTestCase {
    fn new(plan: &Plan, observed: &EventFacts<'_>, first: u32) -> Self {
        let task = &observed.task;
        let mut case = Self {
            event: WireEvent {
                args: observed.args,
                exit: observed.exit.unwrap_or_default().cast_unsigned(),
                abi: if observed.arch == Arch::I386 {
                    abi::B32
                } else {
                    abi::B64
                },
                nr: observed.syscall.0,
                success: u32::from(observed.exit.is_some_and(succeeded)),
                pid: task.pid,
                ppid: task.ppid,
                auid: task.auid.0,
                auid_set: u32::from(task.auid != Auid::UNSET),
                ses: task.ses,
                personality: observed.personality,
                uid: task.uid,
                gid: task.gid,
                euid: task.euid,
                suid: task.suid,
                fsuid: task.fsuid,
                egid: task.egid,
                sgid: task.sgid,
                fsgid: task.fsgid,
                open_perm: observed
                    .socket_family
                    .unwrap_or_else(|| observed.open_perm()),
                argc: u32::from(observed.socket_family.is_some()),
                rule: observed.task_state.map_or(0, |task_state| task_state.0),
                objects: u8::try_from(observed.objects.len()).unwrap(),
                ..WireEvent::default()
            },
            first,
            ..Self::default()
        };
        for (to, object) in case.object.iter_mut().zip(observed.objects) {
            *to = wire_object(object.inode);
        }
        for (watch, path) in (0_u32..).zip(&plan.watches) {
            let is = |object: &ObjectFacts<'_>| object.is(path);
            let below = |object: &ObjectFacts<'_>| is_at_or_below(object.path, path);
            if observed.objects.iter().any(is) {
                case.hit(watch | HIT_LEAF | HIT_NAMED);
            }
            if observed.objects.iter().any(below) {
                case.hit(watch | HIT_NAMED);
            }
            if task.exe == Some(path.as_slice()) {
                case.exe_hit[0] = watch | HIT_LEAF;
                case.exe_hits = 1;
            }
        }
        case
    }

    fn hit(&mut self, hit: u32) {
        let at = usize::try_from(self.hits).unwrap();
        self.hit[at] = hit;
        self.hits += 1;
    }
}

fn wire_object(inode: Option<Inode>) -> WireObject {
    let lookup = abi::lookup::HOOKED;
    let Some(inode) = inode else {
        return WireObject {
            lookup,
            ..WireObject::default()
        };
    };
    WireObject {
        inode: WireInode {
            ino: inode.ino,
            dev: inode.dev.0,
            rdev: inode.rdev.0,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            ..WireInode::default()
        },
        flags: abi::OBJECT_INODE,
        lookup,
        ..WireObject::default()
    }
}

/// The objects of an event without the names given by the task, which do not determine their paths here.
fn unnamed<'a>(observed: &EventFacts<'a>) -> Vec<ObjectFacts<'a>> {
    let objects = observed.objects.iter();
    let unnamed = objects.map(|object| ObjectFacts {
        name: None,
        ..*object
    });
    unnamed.collect()
}

/// Supplementary groups of this process. The filter reads those of the current task.
fn groups() -> Vec<u32> {
    let groups = nix::unistd::getgroups().unwrap();
    groups.into_iter().map(nix::unistd::Gid::as_raw).collect()
}

/// Whether a rule has several tests for one object and the event has several objects. Then the filter looks the
/// object up in the watch maps, which are empty here.
fn needs_watch_tables(rules: &SyscallPlan, observed: &EventFacts<'_>) -> bool {
    let asks = |slot: &Slot| {
        let is_path = |test: &Test| test.operand == Operand::Path;
        slot.tests.iter().any(is_path) && !split_same_object_tests(slot).0.is_empty()
    };
    observed.objects.len() > 1 && rules.slots.iter().any(asks)
}

#[test]
fn bpf_filter_agrees_with_evaluator() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: running a BPF program needs root");
        return;
    }
    let mut storage = MaybeUninit::uninit();
    let mut open = skel::FilterTestSkelBuilder::default()
        .open(&mut storage)
        .unwrap();
    for mut map in open.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let wanted = MAPS.contains(&name.as_str()) || name.contains('.');
        map.set_autocreate(wanted).unwrap();
    }
    open.maps.tlg_rule_tests.set_max_entries(MAX_TESTS).unwrap();
    let skel = open.load().unwrap();
    let compared = Cell::new(0_u32);
    let groups = groups();
    let config = Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    };
    let all = (rule_entries(), vec(random_event(), 60));
    let outcome = TestRunner::new(config).run(&all, |(rules, random_events)| {
        let plan = Plan::compile(rules, &ARCHES);
        let rules: Vec<Rule> = plan
            .rules
            .iter()
            .map(|planned| planned.rule.clone())
            .collect();
        if rules.iter().any(has_relative_dir) {
            return Ok(());
        }
        let compiled = compile(
            &plan,
            HookSelection::new(&plan, EngineKind::Fentry, KernelFeatures::V5_15),
        );
        for (index, test) in (0_u32..).zip(&compiled.tests) {
            let tests = &skel.maps.tlg_rule_tests;
            tests
                .update(index.as_bytes(), test.as_bytes(), MapFlags::ANY)
                .unwrap();
        }
        let check =
            |observed: &EventFacts<'_>, index, planned: &SyscallPlan, plain: Option<usize>| {
                let Some(wire) = compiled.syscalls.get(&index) else {
                    return Ok(());
                };
                if needs_watch_tables(planned, observed) {
                    return Ok(());
                }
                let verdict = run_filter(&skel, &FilterTestCase::new(&plan, observed, wire.tests));
                let expected = match plain.map(|index| (index, rules[index].action)) {
                    Some((index, Action::Always)) => abi::RECORD | u32::try_from(index).unwrap(),
                    Some((index, Action::Never)) if in_plan(planned, index) => {
                        u32::try_from(index).unwrap()
                    }
                    _ => abi::NO_VERDICT,
                };
                proptest::prop_assert_eq!(verdict, expected, "{:?}", observed);
                compared.set(compared.get() + 1);
                Ok(())
            };
        for (random_event, operation) in random_events.iter().zip(URING_OPS.iter().cycle()) {
            let made = random_event.event_facts();
            let task_state = task_state(&rules, &made);
            let objects = unnamed(&made);
            let observed = EventFacts {
                groups: &groups,
                task_state,
                objects: &objects,
                ..made
            };
            let syscall_id = SyscallId {
                arch: observed.arch,
                syscall: observed.syscall,
            };
            // A task that is killed in a syscall does not reach its exit, where the filter runs.
            let ends = observed.exit.is_some() || !syscall_id.returns();
            if let Some(planned) = plan.syscalls.get(&syscall_id)
                && ends
                && is_covered(&rules, random_event)
            {
                let index = abi_of(&observed) * abi::SYSCALLS + observed.syscall.0;
                check(&observed, index, planned, first_match(&rules, &observed))?;
            }
            let done = random_event.as_uring_op(operation);
            let objects = unnamed(&done);
            let observed = EventFacts {
                groups: &groups,
                task_state,
                objects: &objects,
                ..done
            };
            if let Some(planned) = plan.operation(operation, true) {
                let index = abi::URING_FIRST + u32::from(operation.op);
                let plain = first_operation_match(&rules, operation, &observed, true);
                check(&observed, index, &planned, plain)?;
            }
        }
        Ok(())
    });
    outcome.unwrap();
    println!("{} events", compared.get());
    assert!(
        compared.get() > 100,
        "too few events were of a syscall that a rule names"
    );
}

/// Whether a rule has `dir=` with a relative path, which `auditctl` rejects and no path walk can match.
fn has_relative_dir(rule: &Rule) -> bool {
    rule.fields.iter().any(|test| {
        let relative = |text: &[u8]| !text.starts_with(b"/");
        test.field == Field::Dir && matches!(&test.value, Value::Text(text) if relative(text))
    })
}

fn abi_of(observed: &EventFacts<'_>) -> u32 {
    if observed.arch == Arch::I386 {
        abi::B32
    } else {
        abi::B64
    }
}

/// Whether the plan has a rule. It omits `never` rules that no `always` rule follows.
fn in_plan(planned: &SyscallPlan, index: usize) -> bool {
    let id = RuleId(u16::try_from(index).unwrap());
    planned.slots.iter().any(|slot| slot.rule == id)
}

fn run_filter(skel: &skel::FilterTestSkel<'_>, case: &FilterTestCase) -> u32 {
    let key = 0_u32.to_ne_bytes();
    let map = &skel.maps.tlg_filter_test;
    map.update(&key, case.as_bytes(), MapFlags::ANY).unwrap();
    skel.progs
        .filter_test_run
        .test_run(ProgramInput::default())
        .unwrap();
    let answer = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
    FilterTestCase::read_from_bytes(&answer).unwrap().verdict
}
