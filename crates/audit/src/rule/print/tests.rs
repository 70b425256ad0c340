//! Printed rules parse to the same rule.

use bstr::ByteSlice as _;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::field::{self, FieldSpec, ValueKind};
use super::super::{Command, Op, RuleHost, field_pairs, parse_line};
use super::*;

/// A host where paths that end in `.d` are directories.
struct TestHost;

impl RuleHost for TestHost {
    fn uid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn gid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.ends_with(b".d")
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}

/// Parses the listing of `rule`, which adds the syscalls of version 4 to a rule with `perm`.
#[track_caller]
fn assert_round_trip(rule: &Rule) {
    let text = print(rule, Arch::X86_64, Dialect::V4);
    let (command, findings) = parse_line(&text, &TestHost);
    let Some(Command::Add { rule: found, .. }) = command else {
        panic!("{text}: {findings:?}")
    };
    let has_perm = rule.fields.iter().any(|test| test.field == Field::Perm);
    let expected = Rule {
        syscalls: if has_perm {
            found.syscalls.clone()
        } else {
            rule.syscalls.clone()
        },
        ..rule.clone()
    };
    assert_eq!(found, expected, "{text}: {findings:?}");
    let missing = rule
        .syscalls
        .iter()
        .find(|&number| !found.syscalls.contains(number));
    assert_eq!(missing, None, "{text}");
}

#[track_caller]
fn printed(line: &str, dialect: Dialect) -> String {
    let (command, findings) = parse_line(line.as_bytes(), &TestHost);
    let Some(Command::Add { rule, .. }) = command else {
        panic!("{line}: {findings:?}")
    };
    print(&rule, Arch::X86_64, dialect).to_string()
}

#[test]
fn rules_are_printed_as_auditctl_lists_them() {
    for (line, expected) in [
        (
            "-a exit,always -F arch=b64 -S openat,open -F auid>=1000 -F auid!=unset -F exit=-EACCES \
             -k a -k b",
            "-a always,exit -F arch=b64 -S open,openat -F auid>=1000 -F auid!=-1 -F exit=-EACCES \
             -F key=a -F key=b",
        ),
        ("-w /etc.d/ -p aw -k etc", "-w /etc.d -p wa -k etc"),
        ("-w /etc/passwd", "-w /etc/passwd -p rwxa"),
        (
            "-a always,exit -F arch=b64 -S openat -F a2&0100",
            "-a always,exit -F arch=b64 -S openat -F a2&0x40",
        ),
        ("-a task,never", "-a never,task"),
        ("-a always,exit -S 1500", "-a always,exit -S 1500"),
        (
            "-a never,exclude -F msgtype=1307",
            "-a never,exclude -F msgtype=CWD",
        ),
        (
            "-a never,filesystem -F fstype=0x74726163 -F key=fs",
            "-a never,filesystem -F fstype=tracefs -F key=fs",
        ),
        (
            "-a always,exit -F arch=b32 -S all -C euid!=uid",
            "-a always,exit -F arch=b32 -S all -C uid!=euid",
        ),
        (
            r"-a always,exit -S 1 -k a\ b\\",
            r"-a always,exit -S write -F key=a b\",
        ),
        (
            "-a always,exit -F dir=/tmp/ -F perm=x -F uid=0",
            "-a always,exit -S all -F dir=/tmp/ -F perm=x -F uid=0",
        ),
        // A rule with perm and all syscalls is listed as a watch, whatever its other fields are.
        ("-a never,exit -F dir=/tmp/ -F perm=x", "-w /tmp/ -p x"),
        ("-a always,exit -F perm=x -F path=/x", " -p x-w /x"),
        (
            "-a always,exit -F path=/x -F arch=b64 -S read",
            "-a always,exit -F arch=b64 -S read -F path=/x",
        ),
        (
            "-a always,exit -F arch=aarch64 -S openat -F filetype=file",
            "-a always,exit -F arch=b64 -S openat -F filetype=32768",
        ),
        (
            "-a always,exit -F arch=b64 -S pread64 -F exit=5 -F inode=4294967295 -F uid=4294967294",
            "-a always,exit -F arch=b64 -S pread -F exit=5 -F inode=4294967295 -F uid=-2",
        ),
        (
            "-a always,exit -F arch=b64 -F path=/x -F perm=x",
            "-a always,exit -F arch=b64 -S all -F path=/x -F perm=x",
        ),
        // The listing ends before the newer operations.
        (
            "-a always,io_uring -S openat,mkdirat",
            "-a always,io_uring -S openat",
        ),
        ("-a always,io_uring -S mkdirat", "-a always,io_uring"),
    ] {
        assert_eq!(printed(line, Dialect::V4), expected, "{line}");
    }
}

#[test]
fn version_3_listing_differs() {
    for (line, expected) in [
        (
            "-a always,exit -S read -F exe!=/x",
            "-a always,exit -S read -F exe=/x",
        ),
        (
            "-a always,exit -F arch=b64 -S fchmodat2",
            "-a always,exit -F arch=b64 -S 452",
        ),
    ] {
        assert_eq!(printed(line, Dialect::V3), expected, "{line}");
    }
}

const LISTS: [List; 6] = [
    List::User,
    List::Task,
    List::Exit,
    List::Exclude,
    List::Filesystem,
    List::IoUring,
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

fn text() -> impl Strategy<Value = Vec<u8>> {
    // Without newline, NUL, tab, key separator and operators, which cannot be in a value, and without space and
    // backslash, which a listing does not escape.
    let bytes = select(br"abc#'-.,?*%~".to_vec());
    vec(prop_oneof![bytes, 0x80_u8..=0xff], 1..20)
}

fn path() -> impl Strategy<Value = BString> {
    text().prop_map(|name| {
        let mut path = b"/".to_vec();
        path.extend(name);
        path.into()
    })
}

fn value(spec: FieldSpec, op: Op) -> BoxedStrategy<Value> {
    let number = match spec.kind {
        ValueKind::Path | ValueKind::Dir => return path().prop_map(Value::Text).boxed(),
        ValueKind::Label => return text().prop_map(|text| Value::Text(text.into())).boxed(),
        ValueKind::Arch => select(vec![Arch::X86_64.0, Arch::I386.0]).boxed(),
        ValueKind::Perm => (1_u32..16).boxed(),
        ValueKind::FileType => Just(0).boxed(),
        ValueKind::SocketFamily => (0_u32..46).boxed(),
        ValueKind::User if spec.field == Field::Auid && matches!(op, Op::Equal | Op::NotEqual) => {
            any::<u32>().boxed()
        }
        ValueKind::User => (0..u32::MAX).boxed(),
        // These are listed with a sign and parsed without.
        ValueKind::Group | ValueKind::Unsigned | ValueKind::FsType => (0..0x8000_0000_u32).boxed(),
        ValueKind::Exit => {
            prop_oneof![any::<u32>(), (0_u32..200).prop_map(u32::wrapping_neg)].boxed()
        }
        ValueKind::MsgType => prop_oneof![0..0x8000_0000_u32, 1000_u32..3000].boxed(),
        ValueKind::Low32 | ValueKind::Argument | ValueKind::Session => any::<u32>().boxed(),
    };
    number.prop_map(Value::Number).boxed()
}

fn condition(list: List) -> BoxedStrategy<FieldTest> {
    let specs: Vec<FieldSpec> = field::all()
        // File types are listed by number and parsed by name.
        .filter(|spec| spec.lists.contains(list) && spec.kind != ValueKind::FileType)
        .collect();
    let single = (select(specs), select(OPS.to_vec()))
        .prop_filter("operator", |(spec, op)| {
            spec.parser_ops.contains(*op) && spec.kernel_ops.contains(*op)
        })
        .prop_flat_map(|(spec, op)| {
            value(spec, op).prop_map(move |value| FieldTest {
                field: spec.field,
                op,
                value,
            })
        });
    if list != List::Exit {
        return single.boxed();
    }
    let pair = (
        select(field_pairs::ALL.to_vec()),
        select(vec![Op::Equal, Op::NotEqual]),
    )
        .prop_map(|((field, other), op)| FieldTest {
            field,
            op,
            value: Value::Field(other),
        });
    prop_oneof![4 => single, 1 => pair].boxed()
}

fn mask(list: List) -> BoxedStrategy<SyscallMask> {
    match list {
        List::Task => Just(SyscallMask::none()).boxed(),
        // Without `-S` all operations are selected; newer ones than 36 are not listed.
        List::IoUring => select(vec![9_u32, 18, 36])
            .prop_map(|number| {
                let mut mask = SyscallMask::none();
                mask.insert(number);
                mask
            })
            .boxed(),
        List::Exit => prop_oneof![
            Just(SyscallMask::all()),
            vec(prop_oneof![0_u32..500, 0_u32..2032], 1..10).prop_map(|numbers| {
                let mut mask = SyscallMask::none();
                numbers.into_iter().for_each(|number| mask.insert(number));
                mask
            }),
        ]
        .boxed(),
        _ => Just(SyscallMask::all()).boxed(),
    }
}

fn watch() -> impl Strategy<Value = Rule> {
    (path(), 1_u32..16, vec(text(), 0..3))
        .prop_filter("slash", |(path, ..)| !path.ends_with(b"/"))
        .prop_map(|(path, bits, keys)| {
            let field = if TestHost.is_directory(&path) {
                Field::Dir
            } else {
                Field::Path
            };
            let equal = |field, value| FieldTest {
                field,
                op: Op::Equal,
                value,
            };
            Rule {
                list: List::Exit,
                action: Action::Always,
                syscalls: SyscallMask::all(),
                fields: vec![
                    equal(field, Value::Text(path)),
                    equal(Field::Perm, Value::Number(bits)),
                ],
                keys: keys.into_iter().map(BString::from).collect(),
            }
        })
}

fn rule() -> impl Strategy<Value = Rule> {
    select(LISTS.to_vec()).prop_flat_map(|list| {
        let action = select(vec![Action::Always, Action::Never]);
        (
            action,
            mask(list),
            vec(condition(list), 0..6),
            vec(text(), 0..3),
        )
            .prop_map(move |(action, syscalls, mut fields, keys)| {
                let mut objects = 0;
                let mut programs = 0;
                let mut perms = 0;
                fields.retain(|test| {
                    let is_pair = matches!(test.value, Value::Field(_));
                    objects += u32::from(matches!(
                        test.field,
                        Field::Path | Field::Dir | Field::Inode
                    ));
                    programs += u32::from(test.field == Field::Exe);
                    perms += u32::from(test.field == Field::Perm);
                    is_pair || (objects <= 1 && programs <= 1 && perms <= 1)
                });
                // The listing has the arch first.
                fields.sort_by_key(|test| test.field != Field::Arch);
                let key_allowed = !matches!(list, List::User | List::Exclude | List::Task)
                    && (list != List::Filesystem || !fields.is_empty());
                let keys = if key_allowed { keys } else { Vec::new() };
                Rule {
                    list,
                    action,
                    syscalls,
                    fields,
                    keys: keys.into_iter().map(BString::from).collect(),
                }
            })
    })
}

/// Whether the rule is listed as a watch, which [`watch`] makes.
fn is_listed_as_watch(rule: &Rule) -> bool {
    print(rule, Arch::X86_64, Dialect::V4).contains_str("-p ")
}

proptest! {
    #[test]
    fn printed_rules_parse_back(
        rule in rule().prop_filter("watch", |rule| !is_listed_as_watch(rule)),
    ) {
        assert_round_trip(&rule);
    }

    #[test]
    fn printed_watches_parse_back(rule in watch()) {
        prop_assert!(print(&rule, Arch::X86_64, Dialect::V4).starts_with(b"-w "));
        assert_round_trip(&rule);
    }
}

#[test]
fn rule_without_arch_is_listed_with_the_previous_arch() {
    let rules = [
        "-a always,exit -S 39",
        "-a always,exit -F arch=b32 -S open",
        "-w /etc/passwd -p wa",
        "-a always,exit -S 39",
    ];
    let rules = rules.map(|line| match parse_line(line.as_bytes(), &TestHost) {
        (Some(Command::Add { rule, .. }), _) => rule,
        (_, findings) => panic!("{line}: {findings:?}"),
    });
    let listed = listing(&rules, Arch::X86_64, Dialect::V3);
    assert_eq!(
        listed.as_bstr(),
        "-a always,exit -S getpid\n-a always,exit -F arch=b32 -S open\n\
         -w /etc/passwd -p wa\n-a always,exit -S mkdir\n"
    );
}
