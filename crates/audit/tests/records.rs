//! Records have the kernel's text, one line each, and decode to the encoded event.
//!
//! Expected text is in `tests/golden/records`; `make golden` rewrites it.

#[cfg(test)]
mod events;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use audit::event::{Argv, Event, NameSource, NameType, PathItem, Task};
    use audit::record::{MAX_LINE_BYTES, decode, encode, execve};
    use bstr::{BStr, BString, ByteSlice as _};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::events;

    #[test]
    fn events_encode_as_in_golden_files() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/records");
        let write = std::env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write");
        let mut different = Vec::new();
        for (name, event) in events::all() {
            let file = directory.join(name).with_extension("txt");
            let written = encoded(&event);
            if write {
                std::fs::write(&file, &written).unwrap();
            }
            let expected = std::fs::read(&file).unwrap_or_default();
            if written != expected {
                different.push(format!("{}:\n{}", file.display(), written.as_bstr()));
            }
        }
        assert!(
            different.is_empty(),
            "not as expected:\n{}",
            different.join("\n")
        );
    }

    #[test]
    fn events_in_one_buffer_keep_their_stamps() {
        let cases = events::all();
        let apart: Vec<Vec<u8>> = cases.iter().map(|(_, event)| encoded(event)).collect();
        let mut together = Vec::new();
        for (_, event) in &cases {
            encode::event(event, &mut together);
        }
        assert_eq!(together, apart.concat());
    }

    #[test]
    fn eoe_record_has_an_empty_body() {
        let event = events::openat();
        let mut out = b"before\n".to_vec();
        encode::end_of_event(event.time, event.serial, &mut out);
        assert_eq!(
            out.as_bstr(),
            "before\ntype=EOE msg=audit(1700000000.007:2147483649): \n"
        );
        let record = decode::line(out.lines().next_back().unwrap()).unwrap();
        assert_eq!((record.kind, record.body()), ("EOE".into(), "".into()));
    }

    #[test]
    fn missing_execve_record_is_an_error() {
        let (_, event) = events::all().remove(4);
        let text = encoded(&event);
        let records = records(&text);
        let execve: Vec<_> = records
            .iter()
            .filter(|record| record.kind == "EXECVE")
            .collect();
        assert!(execve.len() >= 4);
        for missing in 0..execve.len() {
            let left = execve.iter().enumerate().filter(|(at, _)| *at != missing);
            let error = execve::arguments(left.map(|(_, record)| *record)).unwrap_err();
            assert!(
                matches!(error, decode::DecodeError::Argument { .. }),
                "{error}"
            );
        }
    }

    /// Strings that a task chose.
    #[derive(Clone, Debug)]
    struct Strings {
        comm: Vec<u8>,
        exe: Vec<u8>,
        key: Vec<u8>,
        cwd: Vec<u8>,
        names: Vec<Vec<u8>>,
        argv: Vec<Vec<u8>>,
        proctitle: Vec<u8>,
    }

    /// Any bytes, and runs of one byte long enough to fill a name.
    fn text(longest: usize) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            vec(any::<u8>(), 0..40),
            "[a-z0-9/=.-]{0,40}".prop_map(String::into_bytes),
            (any::<u8>(), 0..=longest).prop_map(|(byte, len)| vec![byte; len]),
        ]
    }

    fn strings() -> impl Strategy<Value = Strings> {
        let short = || text(15);
        let argument = text(20_000).prop_map(|bytes| {
            bytes
                .into_iter()
                .filter(|&byte| byte != 0)
                .collect::<Vec<u8>>()
        });
        let argv = vec(argument, 0..8);
        (
            short(),
            text(3800),
            text(100),
            text(4096),
            vec(text(4096), 0..7),
            argv,
            text(200),
        )
            .prop_map(|(comm, exe, key, cwd, names, argv, proctitle)| Strings {
                comm,
                exe,
                key,
                cwd,
                names,
                argv,
                proctitle,
            })
    }

    fn with_strings<R>(strings: &Strings, use_it: impl FnOnce(&Event<'_>) -> R) -> R {
        let base = events::openat();
        let argv: Vec<u8> = strings
            .argv
            .iter()
            .flat_map(|arg| arg.iter().copied().chain([0]))
            .collect();
        let names = strings.names.iter().map(|name| PathItem {
            name: Some(name),
            source: NameSource::User,
            inode: None,
            nametype: NameType::Unknown,
            path: None,
        });
        use_it(&Event {
            task: Task {
                comm: &strings.comm,
                exe: Some(&strings.exe),
                ..base.task
            },
            key: Some(&strings.key),
            argv: Some(Argv {
                argc: strings.argv.len().try_into().unwrap(),
                bytes: &argv,
            }),
            cwd: Some(&strings.cwd),
            aux_records: [].into_iter().collect(),
            items: names.collect(),
            proctitle: &strings.proctitle,
            task_context: None,
            ..base
        })
    }

    fn encoded(event: &Event<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode::event(event, &mut out);
        out
    }

    fn records(text: &[u8]) -> Vec<decode::Record<'_>> {
        text.lines()
            .map(|line| decode::line(line).unwrap())
            .collect()
    }

    fn value(record: &decode::Record<'_>, name: &str) -> BString {
        let mut fields = record.fields().map(Result::unwrap);
        let field = fields.find(|field| field.name == name).unwrap();
        record.text(&field).unwrap().unwrap().into_owned().into()
    }

    proptest! {
        #[test]
        fn no_line_exceeds_max_line_bytes(lengths: [u16; 6], byte: u8) {
            let [comm, exe, key, cwd, name, arg] =
                lengths.map(|len| vec![byte.max(1); usize::from(len) % 10_000]);
            let names = vec![name];
            let strings = Strings { comm, exe, key, cwd, names, argv: vec![arg], proctitle: vec![] };
            let text = with_strings(&strings, encoded);
            for line in text.lines_with_terminator() {
                prop_assert!(line.len() <= MAX_LINE_BYTES);
                prop_assert!(decode::line(line).unwrap().fields().all(|field| field.is_ok()));
            }
        }
    }

    proptest! {
        #[test]
        fn any_strings_round_trip_one_line_per_record(strings in strings()) {
            let text = with_strings(&strings, encoded);
            prop_assert!(text.ends_with(b"\n"));
            for line in text.lines() {
                prop_assert!(line.len() < MAX_LINE_BYTES);
                prop_assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
            }
            let records = records(&text);
            let stamp = (records[0].time, records[0].serial);
            prop_assert!(records.iter().all(|record| (record.time, record.serial) == stamp));

            let mut kinds: Vec<&BStr> = records.iter().map(|record| record.kind).collect();
            kinds.dedup();
            let mut expected = vec!["SYSCALL", "EXECVE", "CWD", "PATH", "PROCTITLE"];
            if strings.names.is_empty() {
                expected.remove(3);
            }
            prop_assert_eq!(kinds, expected);

            prop_assert_eq!(value(&records[0], "comm"), strings.comm.as_bstr());
            prop_assert_eq!(value(&records[0], "exe"), strings.exe.as_bstr());
            prop_assert_eq!(value(&records[0], "key"), strings.key.as_bstr());
            let cwd = records.iter().find(|record| record.kind == "CWD").unwrap();
            prop_assert_eq!(value(cwd, "cwd"), strings.cwd.as_bstr());
            let paths = records.iter().filter(|record| record.kind == "PATH");
            let names: Vec<BString> = paths.map(|path| value(path, "name")).collect();
            prop_assert_eq!(names, &strings.names[..]);

            let arguments = execve::arguments(&records).unwrap();
            prop_assert_eq!(arguments.args, &strings.argv[..]);

            let title = value(records.last().unwrap(), "proctitle");
            let seen = &strings.proctitle[..strings.proctitle.len().min(128)];
            prop_assert!(title == "(null)" || seen.starts_with(&title));
        }
    }
}
