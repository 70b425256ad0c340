//! Model test of `bpf/lib/state_slots.bpf.h`: random interleavings of hooks, ends, exits and reused tasks. No task
//! finds what another one or an earlier syscall left, no slot is held twice, no user has more than his share, high
//! shares together no more than two of them, root gets a slot while one is free, and every slot comes back.
//!
//! Needs root, because the kernel runs the functions.

use std::collections::HashMap;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, ProgramInput};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use zerocopy::{FromBytes, Immutable, IntoBytes};

crate::skeleton::skeleton!("slots_test");

const SLOTS: usize = 64;
const PER_USER: usize = 16;
/// The first eighth of the slots is for root.
const FOR_ALL: usize = SLOTS - SLOTS / 8;
const TASKS: u32 = 120;
/// `USER_ROOT` of `bpf/lib/state_slots.bpf.h`.
const ROOT: u32 = 131_073;
/// `HIGH_SHARES`, the share of the first of the [`USERS`] that is no low number.
const HIGH_SHARES: u32 = 65_537;
const FIRST_HIGH: u32 = 4;
const USERS: u32 = 7;

/// `enum slots_test_step` of `bpf/slots_test.bpf.c`.
mod step {
    pub(super) const TAKE: u32 = 0;
    pub(super) const FIND: u32 = 1;
    pub(super) const END: u32 = 2;
    pub(super) const IS_MISSING: u32 = 3;
}

/// `struct slots_test_case`.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct SlotsTestCase {
    step: u32,
    task: u32,
    kind: u32,
    key: u32,
    user: u32,
    tag: u32,
    result: u32,
}

/// Something that happens to a task.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A hook of a syscall (0) or operation (1) claims a slot.
    Hook { task: u32, kind: u32, key: u32 },
    /// A hook looks for the state.
    Look { task: u32, kind: u32 },
    /// The syscall or operation ends.
    End { task: u32, kind: u32 },
    /// The task exits; another user may get its number.
    Exit { task: u32, user: u32 },
}

fn happening() -> impl Strategy<Value = Happening> {
    let task = || 0..TASKS;
    let kind = || 0..2_u32;
    prop_oneof![
        12 => (task(), kind(), 0..3_u32).prop_map(|(task, kind, key)| Happening::Hook { task, kind, key }),
        6 => (task(), kind()).prop_map(|(task, kind)| Happening::Look { task, kind }),
        5 => (task(), kind()).prop_map(|(task, kind)| Happening::End { task, kind }),
        1 => (task(), 0..USERS).prop_map(|(task, user)| Happening::Exit { task, user }),
    ]
}

/// What the programs should hold: for each task and kind the tag of its last claim.
#[derive(Debug, Default)]
struct Model {
    users: HashMap<u32, u32>,
    held: HashMap<(u32, u32), HeldSlot>,
    missing: HashMap<(u32, u32), u32>,
}

#[derive(Clone, Copy, Debug)]
struct HeldSlot {
    slot: u32,
    tag: u32,
    user: u32,
}

impl Model {
    fn user(&self, task: u32) -> u32 {
        let number = self.users.get(&task).copied().unwrap_or(task % USERS);
        match number {
            0 => ROOT,
            FIRST_HIGH.. => HIGH_SHARES + number - FIRST_HIGH,
            low => low,
        }
    }

    fn held_by(&self, user: u32) -> usize {
        self.held.values().filter(|held| held.user == user).count()
    }

    /// Whether a slot must be found for a user.
    fn has_room(&self, user: u32) -> bool {
        if user == ROOT {
            return self.held.len() < SLOTS;
        }
        let low = u32::try_from(SLOTS - FOR_ALL).unwrap();
        let taken = self.held.values().filter(|held| held.slot > low).count();
        let high = self.held.values();
        let high = high.filter(|held| (HIGH_SHARES..ROOT).contains(&held.user));
        let has_share = user < HIGH_SHARES || high.count() < 2 * PER_USER;
        self.held_by(user) < PER_USER && has_share && taken < FOR_ALL
    }
}

/// The loaded object.
struct Programs<'s>(skel::SlotsTestSkel<'s>);

impl Programs<'_> {
    fn run(&self, case: SlotsTestCase) -> u32 {
        let key = 0_u32.to_ne_bytes();
        let map = &self.0.maps.tlg_slots_test;
        map.update(&key, case.as_bytes(), MapFlags::ANY).unwrap();
        let program = &self.0.progs.slots_test_run;
        program.test_run(ProgramInput::default()).unwrap();
        let answer = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        SlotsTestCase::read_from_bytes(&answer).unwrap().result
    }

    fn step(&self, step: u32, task: u32, kind: u32) -> u32 {
        self.run(SlotsTestCase {
            step,
            task,
            kind,
            ..SlotsTestCase::default()
        })
    }
}

fn check(programs: &Programs<'_>, all: &[Happening]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let mut tag = 0;
    for &happened in all {
        match happened {
            Happening::Hook { task, kind, key } => {
                tag += 1;
                let user = model.user(task);
                let case = SlotsTestCase {
                    step: step::TAKE,
                    task,
                    kind,
                    key,
                    user,
                    tag,
                    ..SlotsTestCase::default()
                };
                let slot = programs.run(case);
                let at = (task, kind);
                if model.missing.get(&at) == Some(&key) {
                    prop_assert_eq!(slot, 0, "a syscall without a slot gets one later");
                    continue;
                }
                model.missing.remove(&at);
                if let Some(held) = model.held.get_mut(&at) {
                    prop_assert_eq!(slot, held.slot, "a task changes its slot");
                    held.tag = tag;
                    continue;
                }
                prop_assert_eq!(
                    slot != 0,
                    model.has_room(user),
                    "{:?}: {:?}",
                    happened,
                    user
                );
                if slot == 0 {
                    model.missing.insert(at, key);
                    continue;
                }
                let taken = model.held.values().any(|held| held.slot == slot);
                prop_assert!(!taken, "slot {} is held twice", slot);
                model.held.insert(at, HeldSlot { slot, tag, user });
            }
            Happening::Look { task, kind } => {
                let expected = model.held.get(&(task, kind)).map_or(0, |held| held.tag);
                prop_assert_eq!(programs.step(step::FIND, task, kind), expected);
                let missing = model.missing.get(&(task, kind)).map_or(0, |key| key + 1);
                prop_assert_eq!(programs.step(step::IS_MISSING, task, kind), missing);
            }
            Happening::End { task, kind } => {
                programs.step(step::END, task, kind);
                model.held.remove(&(task, kind));
                model.missing.remove(&(task, kind));
            }
            Happening::Exit { task, user } => {
                for kind in [0, 1] {
                    programs.step(step::END, task, kind);
                    model.held.remove(&(task, kind));
                    model.missing.remove(&(task, kind));
                }
                model.users.insert(task, user);
            }
        }
    }
    // Everything ends: every slot can be taken again.
    for task in 0..TASKS {
        for kind in [0, 1] {
            programs.step(step::END, task, kind);
        }
    }
    for task in 0..u32::try_from(SLOTS).unwrap() {
        let slot = programs.run(SlotsTestCase {
            step: step::TAKE,
            task,
            user: ROOT,
            ..SlotsTestCase::default()
        });
        prop_assert!(slot != 0, "{} slots are gone", SLOTS - task as usize);
    }
    for task in 0..TASKS {
        programs.step(step::END, task, 0);
    }
    Ok(())
}

#[test]
fn no_task_finds_what_another_left() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: running a BPF program needs root");
        return;
    }
    let mut storage = MaybeUninit::uninit();
    let mut open = skel::SlotsTestSkelBuilder::default()
        .open(&mut storage)
        .unwrap();
    let rodata = open.maps.rodata_data.as_mut().unwrap();
    rodata.tlg_slots = SLOTS.try_into().unwrap();
    rodata.tlg_slots_per_user = PER_USER.try_into().unwrap();
    for mut map in open.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let wanted = name.contains("test") || name.contains('.');
        map.set_autocreate(wanted).unwrap();
    }
    let programs = Programs(open.load().unwrap());
    let config = Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&vec(happening(), 400), |all| check(&programs, &all))
        .unwrap();
}
