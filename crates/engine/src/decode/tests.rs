//! Tests with samples as programs write them to the ring.

use proptest::prelude::*;
use zerocopy::IntoBytes as _;

use super::*;
use audit::event::NameType;

fn context(keys: &RuleKeys) -> EventContext<'_> {
    EventContext {
        keys,
        time: Timestamp { sec: 1, milli: 2 },
        serial: Serial::FIRST,
    }
}

/// Copies bytes to an 8-byte aligned buffer, as in the ring.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    words
}

struct Sample {
    head: WireEvent,
    tail: Vec<u8>,
}

impl Sample {
    fn new() -> Self {
        let head = WireEvent {
            version: abi::VERSION,
            flags: abi::EVENT_RETURNED | abi::EVENT_CWD,
            success: 1,
            ..WireEvent::default()
        };
        Self {
            head,
            tail: Vec::new(),
        }
    }

    fn object(self, lookup: u8, effect: u8, flags: u8, name: &[u8]) -> Self {
        self.object_at(lookup, effect, flags, name, b"")
    }

    /// Adds an object with a path, given as components, leaf first.
    fn object_at(mut self, lookup: u8, effect: u8, flags: u8, name: &[u8], path: &[u8]) -> Self {
        let wire = WireObject {
            lookup,
            effect,
            flags,
            name_len: u16::try_from(name.len()).unwrap(),
            path_len: u16::try_from(path.len()).unwrap(),
            ..WireObject::default()
        };
        for part in [wire.as_bytes(), name, path] {
            self.tail.extend_from_slice(part);
            self.tail.resize(self.tail.len().next_multiple_of(8), 0);
        }
        self.head.objects += 1;
        self
    }

    fn cwd(mut self, components: &[u8]) -> Self {
        self.tail.extend_from_slice(components);
        self.head.cwd_len = u16::try_from(components.len()).unwrap();
        self
    }

    fn failed(mut self, errno: i64) -> Self {
        self.head.success = 0;
        self.head.exit = (-errno).cast_unsigned();
        self
    }

    fn decoded<T>(&self, look: impl FnOnce(&Event<'_>) -> T) -> T {
        let bytes = [self.head.as_bytes(), &self.tail].concat();
        let words = aligned(&bytes);
        let mut decoder = Decoder::default();
        let keys = RuleKeys::keyless();
        let event = decoder
            .event(&words.as_bytes()[..bytes.len()], context(&keys))
            .unwrap();
        look(&event)
    }

    /// Names and types of the PATH items, in order.
    fn items(&self) -> Vec<(Option<Vec<u8>>, NameType)> {
        self.decoded(|event| {
            let items = event.items.iter();
            items
                .map(|item| (item.name.map(<[u8]>::to_vec), item.nametype))
                .collect()
        })
    }

    /// Paths of the PATH items, in order.
    fn paths(&self) -> Vec<Option<String>> {
        self.decoded(|event| {
            let paths = event.items.iter().map(|item| item.path);
            paths
                .map(|path| Some(String::from_utf8(path?.to_vec()).unwrap()))
                .collect()
        })
    }
}

fn named(name: &str, nametype: NameType) -> (Option<Vec<u8>>, NameType) {
    (Some(name.as_bytes().to_vec()), nametype)
}

#[test]
fn creating_open_lists_directory_first() {
    let flags = abi::OBJECT_NAMED | abi::OBJECT_INODE | abi::OBJECT_PARENT | abi::OBJECT_CREATED;
    let sample = Sample::new().object(abi::lookup::OPENED_AT, abi::EFFECT_USE, flags, b"/tmp/a");
    assert_eq!(
        sample.items(),
        [
            named("/tmp/", NameType::Parent),
            named("/tmp/a", NameType::Create)
        ]
    );
}

#[test]
fn object_of_a_doubtful_descriptor_is_not_claimed() {
    let flags = abi::OBJECT_NAMED | abi::OBJECT_INODE;
    let sample = || Sample::new().object(abi::lookup::OPENED_AT, abi::EFFECT_USE, flags, b"/tmp/a");
    assert!(sample().decoded(|event| event.items[0].inode.is_some() && !event.unproven));
    let mut doubtful = sample();
    doubtful.head.flags |= abi::EVENT_DESCRIPTOR | abi::EVENT_UNPROVEN;
    assert!(doubtful.decoded(|event| event.items[0].inode.is_none() && event.unproven));
    assert_eq!(doubtful.items(), [named("/tmp/a", NameType::Normal)]);
}

#[test]
fn objects_have_paths_from_the_kernel() {
    let seen = |part, flags, path: &'static [u8]| {
        move |sample: Sample| sample.object_at(abi::lookup::HOOKED, part, flags, b"", path)
    };
    let sample = Sample::new();
    let sample = seen(abi::NAMETYPE_PARENT, 0, b"\0")(sample);
    let sample = seen(0, 0, b"")(sample);
    let sample = seen(abi::NAMETYPE_CREATE, 0, b"file\0")(sample);
    let sample = seen(abi::NAMETYPE_NORMAL, abi::OBJECT_REMOVED, b"a b\0tmp\0")(sample);
    let expected = ["/", "", "/file", "/tmp/a b (deleted)"];
    let expected = expected.map(|path| (!path.is_empty()).then(|| path.to_owned()));
    assert_eq!(sample.paths(), expected);

    // With the engine `tracepoint`, an open that created its file has an item for the directory.
    let flags = abi::OBJECT_NAMED | abi::OBJECT_INODE | abi::OBJECT_PARENT | abi::OBJECT_CREATED;
    let made =
        |path| Sample::new().object_at(abi::lookup::OPENED, abi::EFFECT_USE, flags, b"a", path);
    let paths = |parent: &str, path: &str| [Some(parent.to_owned()), Some(path.to_owned())];
    assert_eq!(made(b"a\0tmp\0").paths(), paths("/tmp", "/tmp/a"));
    assert_eq!(made(b"a\0").paths(), paths("/", "/a"));
}

#[test]
fn task_context_follows_other_parts() {
    let mut sample = Sample::new();
    assert!(sample.decoded(|event| event.task_context.is_none()));
    sample
        .tail
        .extend_from_slice(b"init\0\0\0\0\0\0\0\0\0\0\0\0");
    sample
        .tail
        .extend_from_slice(b"web.service\0system.slice\0");
    sample.decoded(|event| {
        let task_context = event.task_context.unwrap();
        assert_eq!(task_context.parent_comm, b"init");
        assert_eq!(task_context.cgroup, b"/system.slice/web.service");
    });
}

#[test]
fn objects_on_excluded_file_systems_have_only_names() {
    let out = abi::OBJECT_FS_EXCLUDED;
    let named_out = out | abi::OBJECT_NAMED;
    let sample = Sample::new()
        .object(
            abi::lookup::HOOKED,
            abi::NAMETYPE_PARENT,
            named_out,
            b"/sys/new",
        )
        .object(abi::lookup::HOOKED, abi::NAMETYPE_CREATE, out, b"")
        .object(abi::lookup::HOOKED, abi::NAMETYPE_NORMAL, named_out, b"x");
    assert_eq!(
        sample.items(),
        [
            named("/sys/new", NameType::Unknown),
            named("x", NameType::Unknown)
        ]
    );
    let opened = Sample::new().object(
        abi::lookup::OPENED_AT,
        abi::EFFECT_USE,
        named_out,
        b"/sys/a",
    );
    assert_eq!(opened.items(), [named("/sys/a", NameType::Unknown)]);
    let by_descriptor = Sample::new().object(abi::lookup::FD, abi::EFFECT_USE, out, b"");
    assert_eq!(by_descriptor.items(), []);
}

#[test]
fn rename_lists_directories_then_old_then_new() {
    let sample = Sample::new()
        .object(
            abi::lookup::AT,
            abi::EFFECT_DELETE,
            abi::OBJECT_NAMED,
            b"old",
        )
        .object(
            abi::lookup::AT,
            abi::EFFECT_CREATE,
            abi::OBJECT_NAMED,
            b"/n/new",
        )
        .cwd(b"home\0");
    assert_eq!(
        sample.items(),
        [
            named("/n/", NameType::Parent),
            named("/home", NameType::Parent),
            named("old", NameType::Delete),
            named("/n/new", NameType::Create),
        ]
    );
}

#[test]
fn failed_unlink_lists_object_unless_enoent() {
    let unlink = |errno| {
        Sample::new()
            .object(
                abi::lookup::AT,
                abi::EFFECT_DELETE,
                abi::OBJECT_NAMED,
                b"/d/f",
            )
            .failed(errno)
            .items()
    };
    assert_eq!(unlink(2), [named("/d/", NameType::Parent)]);
    assert_eq!(
        unlink(21),
        [
            named("/d/", NameType::Parent),
            named("/d/f", NameType::Delete)
        ]
    );
}

#[test]
fn paths_that_are_too_long_are_marked() {
    let mut sample = Sample::new()
        .object(abi::lookup::PATH, abi::EFFECT_USE, abi::OBJECT_NAMED, b"/f")
        .cwd(b"");
    sample.head.flags |= abi::EVENT_CWD_LONG | abi::EVENT_EXE | abi::EVENT_EXE_LONG;
    sample.decoded(|event| {
        assert_eq!(event.cwd, Some(b"<too_long>".as_slice()));
        assert_eq!(event.task.exe, Some(b"<too_long>".as_slice()));
    });
}

#[test]
fn operation_has_the_io_uring_enter_in_which_it_ran() {
    let mut sample = Sample::new();
    sample.head.flags |= abi::EVENT_URING;
    (sample.head.uring_op, sample.head.args) = (18, [0; 4]);
    assert_eq!(sample.decoded(|event| event.uring_enter), None);
    sample.head.flags |= abi::EVENT_URING_ENTER;
    (sample.head.abi, sample.head.args) = (abi::B32, [3, 1, 1, 0]);
    sample.decoded(|event| {
        let enter = UringEnter {
            arch: Arch::I386,
            args: [3, 1, 1, 0],
        };
        assert_eq!(event.uring_enter, Some(enter));
        assert_eq!((event.arch, event.args), (Arch::X86_64, [0; 4]));
    });
}

#[test]
fn loaded_program_is_the_first_aux_record() {
    let mut sample = Sample::new();
    let bytes = |sample: &Sample| [sample.head.as_bytes(), &sample.tail].concat();
    assert_eq!(loaded_program(&bytes(&sample)), Ok(None));
    sample.head.flags |= abi::EVENT_LOADED;
    assert!(loaded_program(&bytes(&sample)).is_err());
    let mut aux_record = WireAux {
        kind: 1334,
        ..WireAux::default()
    };
    aux_record.word[0] = 42;
    sample.tail.extend_from_slice(aux_record.as_bytes());
    sample.head.aux_count = 1;
    assert_eq!(loaded_program(&bytes(&sample)), Ok(Some(42)));
    sample.decoded(|event| assert!(event.aux_records.is_empty(), "the kernel writes it"));
    sample.head.flags |= abi::EVENT_JOINED;
    assert_eq!(
        loaded_program(&bytes(&sample)),
        Ok(None),
        "a stamp is the first"
    );
}

#[test]
fn event_of_a_rule_can_have_the_stamp_of_a_record() {
    let mut sample = Sample::new();
    sample.head.flags |= abi::EVENT_JOINED;
    let mut aux_record = WireAux {
        kind: 1334,
        ..WireAux::default()
    };
    let text = b"audit(1700000000.042:7): \0";
    aux_record.word.as_mut_bytes()[..text.len()].copy_from_slice(text);
    let other = WireAux {
        kind: 1317, // FD_PAIR
        ..WireAux::default()
    };
    sample.tail.extend_from_slice(aux_record.as_bytes());
    sample.tail.extend_from_slice(other.as_bytes());
    sample.head.aux_count = 2;
    sample.decoded(|event| {
        assert_eq!(event.serial, Serial(7));
        assert_eq!((event.exit, event.aux_records.len()), (Some(0), 1));
    });
}

#[test]
fn avc_syscall_has_stamp_of_its_record() {
    let mut sample = Sample::new().object(
        abi::lookup::PATH,
        abi::EFFECT_DELETE,
        abi::OBJECT_NAMED,
        b"/d/f",
    );
    sample.head.flags = abi::EVENT_STAMPED;
    (sample.head.success, sample.head.rule) = (0, u32::MAX);
    let mut aux_record = WireAux {
        kind: 1400,
        ..WireAux::default()
    };
    let text = b"audit(1700000000.042:7): \0";
    aux_record.word.as_mut_bytes()[..text.len()].copy_from_slice(text);
    sample.tail.extend_from_slice(aux_record.as_bytes());
    sample.head.aux_count = 1;
    let time = Timestamp {
        sec: 1_700_000_000,
        milli: 42,
    };
    sample.decoded(|event| {
        assert_eq!((event.time, event.serial), (time, Serial(7)));
        assert_eq!((event.exit, event.key), (None, None));
        assert!(
            event.aux_records.is_empty(),
            "the LSM record arrives over netlink"
        );
    });
    assert_eq!(
        sample.items(),
        [
            named("/d/", NameType::Parent),
            named("/d/f", NameType::Delete)
        ]
    );
    sample.head.aux_count = 0;
    let bytes = [sample.head.as_bytes(), &sample.tail].concat();
    let words = aligned(&bytes);
    let keys = RuleKeys::keyless();
    let mut decoder = Decoder::default();
    let error = decoder.event(words.as_bytes(), context(&keys));
    assert_eq!(error.unwrap_err(), DecodeError::Stamp);
}

#[test]
fn unreadable_name_gives_no_path_item() {
    let sample = Sample::new()
        .object(abi::lookup::OPENED_AT, abi::EFFECT_USE, 0, b"")
        .failed(14);
    assert_eq!(sample.items(), []);
}

#[test]
fn leaf_first_components_become_a_path() {
    let mut path = Vec::new();
    reverse_path(b"c\0b\0a\0", false, &mut path);
    assert_eq!(path, b"/a/b/c");
    reverse_path(b"", false, &mut path);
    assert_eq!(path, b"/");
    reverse_path(b"gone\0", true, &mut path);
    assert_eq!(path, b"/gone (deleted)");
}

#[test]
fn execveat_name_loses_dev_fd_prefix() {
    let started = |name: &[u8]| {
        let flags = abi::OBJECT_NAMED | abi::OBJECT_KERNEL;
        let mut sample = Sample::new().object(abi::lookup::EXEC_AT, abi::EFFECT_USE, flags, name);
        sample.head.flags |= abi::EVENT_STARTED;
        sample.head.args[0] = 7;
        sample.items()
    };
    assert_eq!(
        started(b"/dev/fd/7/bin/ls"),
        [named("bin/ls", NameType::Normal)]
    );
    assert_eq!(started(b"/dev/fd/7"), [named("", NameType::Normal)]);
    assert_eq!(
        started(b"/dev/fd/70"),
        [named("/dev/fd/70", NameType::Normal)]
    );
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        good_version in any::<bool>(),
    ) {
        if good_version && bytes.len() > 6 {
            bytes[4..6].copy_from_slice(&abi::VERSION.to_le_bytes());
        }
        let words = aligned(&bytes);
        let mut decoder = Decoder::default();
        let keys = RuleKeys::keyless();
        let result = decoder.event(&words.as_bytes()[..bytes.len()], context(&keys));
        prop_assert!(result.is_err() || bytes.len() >= size_of::<WireEvent>());
    }

    #[test]
    fn well_formed_samples_with_any_strings_decode(
        name in proptest::collection::vec(1_u8.., 0..300),
        cwd in proptest::collection::vec(proptest::collection::vec(1_u8.., 1..20), 0..5),
    ) {
        let mut components = Vec::new();
        for part in cwd.iter().rev() {
            components.extend_from_slice(part);
            components.push(0);
        }
        let sample = Sample::new()
            .object(abi::lookup::PATH, abi::EFFECT_USE, abi::OBJECT_NAMED, &name)
            .cwd(&components);
        prop_assert_eq!(sample.items(), [(Some(name), NameType::Normal)]);
    }
}
