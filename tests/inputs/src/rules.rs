//! Random rules and events, for tests that compare two evaluators.

use audit::event::{Inode, Task};
use audit::ids::{Arch, Auid, Dev, NativeArch, Syscall};
use audit::plan::eval::other_lists::{Actor, first_task_match};
use audit::plan::eval::{EventFacts, ObjectFacts};
use audit::plan::objects;
use audit::plan::rule_list::RuleEntry;
use audit::plan::task_list::TaskState;
use audit::plan::uring::UringOp;
use audit::plan::{SyscallId, sockaddr};
use audit::rule::{Action, Field, FieldTest, List, Op, Rule, SyscallMask, Value};
use audit::table;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Both ABIs of an x86-64 kernel.
pub const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::I386];

const FIELDS: [Field; 43] = [
    Field::Pid,
    Field::Uid,
    Field::Euid,
    Field::Suid,
    Field::Fsuid,
    Field::Gid,
    Field::Egid,
    Field::Sgid,
    Field::Fsgid,
    Field::Auid,
    Field::Pers,
    Field::Arch,
    Field::MsgType,
    Field::SubjUser,
    Field::SubjRole,
    Field::SubjType,
    Field::SubjSen,
    Field::SubjClr,
    Field::Ppid,
    Field::ObjUser,
    Field::ObjRole,
    Field::ObjType,
    Field::ObjLevLow,
    Field::ObjLevHigh,
    Field::SessionId,
    Field::FsType,
    Field::DevMajor,
    Field::DevMinor,
    Field::Inode,
    Field::Exit,
    Field::Success,
    Field::Path,
    Field::Perm,
    Field::Dir,
    Field::FileType,
    Field::ObjUid,
    Field::ObjGid,
    Field::Exe,
    Field::SaddrFam,
    Field::A0,
    Field::A1,
    Field::A2,
    Field::A3,
];

const OPS: [Op; 8] = [
    Op::Equal,
    Op::NotEqual,
    Op::Greater,
    Op::GreaterOrEqual,
    Op::Less,
    Op::LessOrEqual,
    Op::BitMask,
    Op::BitTest,
];

/// `io_uring` operations, with and without a matching syscall.
const OPERATIONS: [u32; 7] = [0, 9, 18, 19, 28, 36, 46];

/// Syscalls of each kind that the plan distinguishes: perm classes, objects, no return, no name.
fn numbers() -> Vec<u32> {
    let b64: [&[u8]; 18] = [
        b"read",
        b"open",
        b"openat",
        b"openat2",
        b"creat",
        b"execve",
        b"exit",
        b"exit_group",
        b"unlink",
        b"renameat2",
        b"chmod",
        b"fchown",
        b"link",
        b"symlink",
        b"quotactl",
        b"bind",
        b"getpid",
        b"io_uring_enter",
    ];
    let b32: [&[u8]; 5] = [b"socketcall", b"truncate64", b"lchown32", b"exit", b"open"];
    let number = |arch, name: &&[u8]| table::syscall_number(arch, name).unwrap().0;
    let mut numbers: Vec<u32> = b64.iter().map(|name| number(Arch::X86_64, name)).collect();
    numbers.extend(b32.iter().map(|name| number(Arch::I386, name)));
    numbers.push(1500);
    numbers
}

fn small() -> impl Strategy<Value = u32> {
    select(vec![
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        15,
        1000,
        0o040_000,
        0o100_000,
        u32::MAX - 12,
        u32::MAX,
    ])
}

fn path() -> impl Strategy<Value = &'static [u8]> {
    let paths: Vec<&'static [u8]> = vec![
        b"/",
        b"/etc",
        b"/etc/",
        b"/etc/passwd",
        b"/etcetera",
        b"/etc/ssh/key",
        b"etc",
        b"",
        b"/usr/bin/id",
        b"/\xff\n",
    ];
    select(paths)
}

/// Any condition that the types allow. Conditions that the kernel accepts are more frequent.
fn field_test() -> impl Strategy<Value = FieldTest> {
    let text = || path().prop_map(|path| Value::Text(path.into()));
    let number = || small().prop_map(Value::Number);
    let field = || select(FIELDS.to_vec());
    let any_op = || select(OPS.to_vec());
    let equality = || select(vec![Op::Equal, Op::NotEqual]);
    let users = select(vec![Field::Uid, Field::Auid, Field::Fsuid, Field::ObjUid]);
    let groups = select(vec![Field::Gid, Field::Egid, Field::ObjGid]);
    let path_fields = select(vec![Field::Path, Field::Dir, Field::Exe]);
    let syscall_fields = select(vec![Field::Success, Field::Exit, Field::Auid, Field::Perm]);
    let families = small().prop_map(Value::Number);
    let object_fields = select(vec![
        Field::FileType,
        Field::ObjUid,
        Field::Inode,
        Field::DevMajor,
    ]);
    let arch = select(ARCHES.to_vec()).prop_map(|arch| Value::Number(arch.0));
    let limits = select(vec![0, u32::MAX]).prop_map(Value::Number);
    let numeric = vec![
        Field::Uid,
        Field::A1,
        Field::Exit,
        Field::ObjGid,
        Field::Inode,
    ];
    prop_oneof![
        4 => (field(), any_op(), number()),
        3 => (select(numeric), any_op(), limits),
        4 => (path_fields, equality(), text()),
        4 => (syscall_fields.clone(), equality(), number()),
        2 => (syscall_fields, any_op(), number()),
        3 => (object_fields, equality(), number()),
        2 => (Just(Field::Arch), equality(), arch),
        1 => (Just(Field::SaddrFam), any_op(), families),
        2 => (users.clone(), equality(), users.prop_map(Value::Field)),
        1 => (groups.clone(), equality(), groups.prop_map(Value::Field)),
        1 => (field(), any_op(), prop_oneof![text(), field().prop_map(Value::Field)]),
    ]
    .prop_map(|(field, op, value)| FieldTest { field, op, value })
}

fn mask() -> impl Strategy<Value = SyscallMask> {
    let some = |numbers, most| {
        subsequence(numbers, 0..most).prop_map(|numbers| {
            let mut mask = SyscallMask::none();
            numbers.into_iter().for_each(|number| mask.insert(number));
            mask
        })
    };
    prop_oneof![
        6 => some(numbers(), 8),
        1 => some(OPERATIONS.to_vec(), 5),
        2 => Just(SyscallMask::all()),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let lists = vec![
        List::User,
        List::Task,
        List::Exclude,
        List::Filesystem,
        List::IoUring,
    ];
    let list = prop_oneof![
        30 => Just(List::Exit),
        2 => select(lists),
        1 => Just(List::Task),
        6 => Just(List::IoUring),
    ];
    let action = select(vec![Action::Always, Action::Always, Action::Never]);
    // Two conditions on one field may contradict each other.
    let twice = (field_test(), small()).prop_map(|(test, value)| {
        let again = FieldTest {
            value: Value::Number(value),
            ..test
        };
        vec![test, again]
    });
    let fields = prop_oneof![5 => vec(field_test(), 0..4), 1 => twice];
    let keys = vec(path().prop_map(Into::into), 0..3);
    (list, action, mask(), fields, keys).prop_map(|(list, action, syscalls, fields, keys)| Rule {
        list,
        action,
        syscalls,
        fields,
        keys,
    })
}

/// Rules of all lists, with line numbers.
pub fn rule_entries() -> impl Strategy<Value = Vec<RuleEntry>> {
    vec(rule(), 0..10).prop_map(|rules| {
        let rule_entry = |(line, rule)| RuleEntry {
            rule,
            source: 0,
            line,
        };
        (1..).zip(rules).map(rule_entry).collect()
    })
}

/// A random event.
#[derive(Clone, Debug)]
pub struct RandomEvent {
    arch: Arch,
    syscall: Syscall,
    exit: Option<i64>,
    args: [u64; 4],
    ids: [u32; 13],
    groups: Vec<u32>,
    exe: Option<&'static [u8]>,
    socket_family: Option<u32>,
    objects: Vec<ObjectFacts<'static>>,
}

impl RandomEvent {
    /// The event for the evaluators.
    pub fn event_facts(&self) -> EventFacts<'_> {
        let [
            ppid,
            pid,
            auid,
            uid,
            gid,
            euid,
            suid,
            fsuid,
            egid,
            sgid,
            fsgid,
            ses,
            personality,
        ] = self.ids;
        let auid = Auid(auid);
        let (tty, comm, exe) = (&b""[..], &b"test"[..], self.exe);
        EventFacts {
            arch: self.arch,
            syscall: self.syscall,
            exit: self.exit,
            args: self.args,
            open_how_flags: self.args[3],
            task: Task {
                ppid,
                pid,
                auid,
                uid,
                gid,
                euid,
                suid,
                fsuid,
                egid,
                sgid,
                fsgid,
                ses,
                tty,
                comm,
                exe,
                subj: None,
            },
            groups: &self.groups,
            personality,
            label: None,
            socket_family: self.socket_family,
            task_state: None,
            uring_enter: None,
            objects: &self.objects,
        }
    }

    /// The event of an `io_uring` operation, which always returns.
    pub fn as_uring_op(&self, operation: &UringOp) -> EventFacts<'_> {
        let SyscallId { arch, syscall } = operation.syscall_id(NativeArch::X86_64);
        let names = !objects::objects(arch, syscall).is_empty();
        EventFacts {
            arch,
            syscall,
            exit: Some(self.exit.unwrap_or(0)),
            socket_family: self
                .socket_family
                .filter(|_| sockaddr::of(arch, syscall).is_some()),
            objects: if names { &self.objects } else { &[] },
            ..self.event_facts()
        }
    }

    /// The event of a completion, in an `io_uring_enter` or not: objects and addresses are not seen.
    pub fn as_completion(&self, operation: &UringOp, uring_enter: Option<Arch>) -> EventFacts<'_> {
        EventFacts {
            uring_enter,
            socket_family: None,
            objects: &[],
            ..self.as_uring_op(operation)
        }
    }
}

fn object() -> impl Strategy<Value = ObjectFacts<'static>> {
    let dev = || select(vec![Dev(0), Dev(3 << 20 | 1), Dev(8 << 20)]);
    let mode = select(vec![0o040_755, 0o100_644]);
    let ino = select(vec![2, 7, 1 << 32 | 7]);
    let inode =
        (ino, dev(), mode, small(), small(), dev()).prop_map(|(ino, dev, mode, uid, gid, rdev)| {
            Inode {
                ino,
                dev,
                mode,
                uid,
                gid,
                rdev,
            }
        });
    (
        path(),
        proptest::option::of(path()),
        proptest::option::weighted(0.8, inode),
    )
        .prop_map(|(path, name, inode)| ObjectFacts {
            path,
            name,
            inode,
            label: None,
        })
}

/// Possible events: only syscalls that name objects have objects, and `exit` does not return.
pub fn random_event() -> impl Strategy<Value = RandomEvent> {
    let exits = vec![0, 1, 3, -1, -4, -13, -4095, -4096, 1 << 32, i64::MIN];
    let arg = select(vec![0, 1, 2, 3, 0o101, 1 << 32 | 2, u64::MAX]);
    let args = proptest::array::uniform4(arg);
    (
        select(ARCHES.to_vec()),
        select(numbers()),
        proptest::option::weighted(0.9, select(exits)),
        args,
        proptest::array::uniform13(small()),
        vec(small(), 0..3),
        proptest::option::of(path()),
        proptest::option::of(select(vec![0, 1, 2, 15])),
        vec(object(), 0..4),
    )
        .prop_map(
            |(arch, number, exit, args, ids, groups, exe, family, objects)| {
                let syscall = Syscall(number);
                let name = table::syscall_name(arch, syscall);
                let returns = !matches!(name, Some("exit" | "exit_group"));
                let names = !objects::objects(arch, syscall).is_empty();
                RandomEvent {
                    arch,
                    syscall,
                    exit: exit.filter(|_| returns),
                    args,
                    ids,
                    groups,
                    exe,
                    socket_family: family.filter(|_| sockaddr::of(arch, syscall).is_some()),
                    objects: if names { objects } else { Vec::new() },
                }
            },
        )
}

/// The decision of the task list for a task that starts with the ids of the event.
pub fn task_state(rules: &[Rule], event_facts: &EventFacts<'_>) -> Option<TaskState> {
    let (task, label) = (event_facts.task, None);
    let index = first_task_match(
        rules,
        &Actor { task, label },
        event_facts.groups,
        event_facts.personality,
    );
    Some(TaskState::of(rules.get(index?)?))
}

/// Whether a plan covers the syscall of an event: it has a name, or a rule names its number.
pub fn is_covered(rules: &[Rule], random_event: &RandomEvent) -> bool {
    let number = random_event.syscall.0;
    let named = |rule: &Rule| {
        rule.list == List::Exit && !rule.syscalls.is_all() && rule.syscalls.contains(number)
    };
    table::syscall_name(random_event.arch, random_event.syscall).is_some()
        || rules.iter().any(named)
}
