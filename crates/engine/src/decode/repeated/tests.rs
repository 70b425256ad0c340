//! Remembered texts are those of the decoder and encoder.

use audit::record::encode;
use proptest::prelude::*;
use zerocopy::IntoBytes as _;

use super::*;
use crate::decode::{Decoder, EventContext};
use crate::epoch::Epoch;

/// What a random sample has.
#[derive(Clone, Debug)]
struct Parts {
    flags: u16,
    nr: u32,
    pid: u32,
    rule: u32,
    args: [u64; 4],
    exit: i64,
    names: Vec<&'static [u8]>,
    effect: u8,
    exe: &'static [u8],
    cwd: &'static [u8],
    proctitle: &'static [u8],
}

impl Parts {
    fn sample(&self) -> Vec<u64> {
        let length = |text: &[u8]| u16::try_from(text.len()).unwrap();
        let mut tail = Vec::new();
        for name in &self.names {
            let object = WireObject {
                lookup: abi::lookup::OPENED_AT,
                effect: self.effect,
                flags: abi::OBJECT_NAMED | abi::OBJECT_INODE,
                name_len: length(name),
                ..WireObject::default()
            };
            for part in [object.as_bytes(), name] {
                tail.extend_from_slice(part);
                tail.resize(tail.len().next_multiple_of(8), 0);
            }
        }
        for part in [self.exe, self.cwd, self.proctitle] {
            tail.extend_from_slice(part);
        }
        let head = WireEvent {
            version: abi::VERSION,
            flags: self.flags,
            nr: self.nr,
            pid: self.pid,
            rule: self.rule,
            args: self.args,
            exit: self.exit.cast_unsigned(),
            success: u32::from(self.exit >= 0),
            objects: u8::try_from(self.names.len()).unwrap(),
            exe_len: length(self.exe),
            cwd_len: length(self.cwd),
            proctitle_len: length(self.proctitle),
            comm: *b"a b\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ..WireEvent::default()
        };
        let bytes = [head.as_bytes(), &tail].concat();
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(&bytes);
        words
    }
}

fn one_of(texts: &'static [&'static [u8]]) -> impl Strategy<Value = &'static [u8]> {
    proptest::sample::select(texts)
}

fn parts() -> impl Strategy<Value = Parts> {
    const USUAL: u16 = abi::EVENT_RETURNED | abi::EVENT_CWD | abi::EVENT_EXE;
    let flags = prop_oneof![
        8 => Just(USUAL),
        1 => Just(USUAL | abi::EVENT_UNPROVEN),
        1 => Just(abi::EVENT_CWD),
        1 => Just(USUAL | abi::EVENT_URING),
        1 => Just(USUAL | abi::EVENT_STARTED),
        1 => any::<u16>(),
    ];
    let exit = prop_oneof![
        Just(0_i64),
        Just(3),
        Just(70_000),
        Just(-2),
        Just(-13),
        Just(-512),
        any::<i64>(),
    ];
    let arg = || prop_oneof![Just(0_u64), Just(7), any::<u64>()];
    let name = one_of(&[
        b"/tmp/a",
        b"/tmp/b",
        b"x items=1 success=no",
        b"/dev/fd/7/bin/ls",
        b"a\ntype=CWD msg=audit(1.002:3): ",
    ]);
    let calls = (flags, 0..2_u32, 0..2_u32, 0..3_u32, exit, 0..3_u8);
    let args = (arg(), arg(), arg(), arg());
    let texts = (
        one_of(&[b"sh\0bin\0", b"ls\0bin\0"]),
        one_of(&[b"home\0", b"", b"\xff\0"]),
        one_of(&[b"sh\0-c\0", b"", b"title"]),
    );
    (calls, args, proptest::collection::vec(name, 0..3), texts).prop_map(
        |((flags, nr, pid, rule, exit, effect), (a0, a1, a2, a3), names, (exe, cwd, proctitle))| {
            Parts {
                flags,
                nr,
                pid,
                rule,
                args: [a0, a1, a2, a3],
                exit,
                names,
                effect,
                exe,
                cwd,
                proctitle,
            }
        },
    )
}

/// One event: which sample, what of it is changed, and the time since the one before.
#[derive(Clone, Debug)]
struct Step {
    sample: usize,
    /// A byte that is changed.
    changed: Option<(usize, u8)>,
    /// Other arguments and result.
    call: Option<(u64, i64)>,
    milli: u16,
    serials: u32,
    replaces_keys: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        0..4_usize,
        proptest::option::weighted(0.2, (0..400_usize, 1_u8..)),
        proptest::option::weighted(0.4, (any::<u64>(), -3..20_i64)),
        0..2_u16,
        prop_oneof![4 => Just(1_u32), 1 => 0..40_000_u32],
        proptest::bool::weighted(0.05),
    )
        .prop_map(
            |(sample, changed, call, milli, serials, replaces_keys)| Step {
                sample,
                changed,
                call,
                milli,
                serials,
                replaces_keys,
            },
        )
}

fn keys(second: &str) -> RuleKeys {
    let keys = [None, Some("k".into()), Some(second.into())];
    RuleKeys::from_plans(vec![(Epoch::default(), keys.to_vec())])
}

/// Text of a sample without memory of earlier ones; `None` if it cannot be decoded.
fn text(sample: &[u8], keys: &RuleKeys, time: Timestamp, serial: Serial) -> Option<Vec<u8>> {
    let mut decoder = Decoder::default();
    let context = EventContext { keys, time, serial };
    let event = decoder.event(sample, context).ok()?;
    let mut text = Vec::new();
    encode::event(&event, &mut text);
    Some(text)
}

/// Writes a sample as the daemon does. Returns its text, and whether it was remembered.
fn remembered(
    events: &mut RepeatedEvents,
    sample: &[u8],
    keys: &RuleKeys,
    time: Timestamp,
    serial: Serial,
) -> (Option<Vec<u8>>, bool) {
    let mut out = b"before\n".to_vec();
    let found = events.find(sample, keys);
    if let Some(found) = &found
        && events.append(found, time, serial, &mut out)
    {
        return (Some(out.split_off(7)), true);
    }
    assert_eq!(out, b"before\n");
    let text = text(sample, keys, time, serial);
    if let (Some(found), Some(text)) = (&found, &text) {
        events.learn(found, sample, keys, (time, serial), text);
    }
    (text, false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn remembered_texts_are_those_of_the_decoder(
        parts in proptest::collection::vec(parts(), 4),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut events = RepeatedEvents::default();
        let mut keys_now = keys("second");
        let (mut milli, mut serial) = (0, 95);
        for step in steps {
            if step.replaces_keys {
                keys_now = keys(if serial % 2 == 0 { "second" } else { "other" });
            }
            let mut sample = parts[step.sample].clone();
            if let Some((arg, exit)) = step.call {
                (sample.args[1], sample.exit) = (arg, exit);
            }
            let mut words = sample.sample();
            let bytes = words.as_mut_bytes();
            if let Some((at, by)) = step.changed
                && let Some(byte) = bytes.get_mut(at)
            {
                *byte ^= by;
            }
            milli = (milli + step.milli) % 1000;
            serial += step.serials;
            let (time, serial) = (Timestamp { sec: 1, milli }, Serial(serial));
            // Twice: what is kept the first time is learned the second time.
            for _ in 0..2 {
                let (got, _) = remembered(&mut events, bytes, &keys_now, time, serial);
                let expected = text(bytes, &keys_now, time, serial);
                prop_assert_eq!(got.map(BString::from), expected.map(BString::from));
            }
        }
    }
}

#[test]
fn third_call_of_a_task_is_remembered() {
    let call = |args, exit| Parts {
        flags: abi::EVENT_RETURNED | abi::EVENT_CWD | abi::EVENT_EXE,
        nr: 257,
        pid: 1,
        rule: 1,
        args,
        exit,
        names: vec![b"/tmp/a"],
        effect: 0,
        exe: b"sh\0bin\0",
        cwd: b"home\0",
        proctitle: b"sh\0",
    };
    let mut events = RepeatedEvents::default();
    let keys = keys("other");
    let time = Timestamp { sec: 1, milli: 2 };
    let mut is_remembered = |parts: &Parts, serial| {
        let words = parts.sample();
        let (text, is_remembered) =
            remembered(&mut events, words.as_bytes(), &keys, time, Serial(serial));
        assert!(text.is_some());
        is_remembered
    };
    assert!(!is_remembered(&call([1, 2, 3, 4], 3), 10));
    assert!(!is_remembered(&call([1, 2, 3, 4], 3), 11));
    assert!(is_remembered(&call([1, 2, 3, 4], 3), 12));
    assert!(is_remembered(&call([5, 6, 7, 8], 70), 13));
    assert!(!is_remembered(&call([5, 6, 7, 8], -2), 14), "other items");
    assert!(!is_remembered(&call([5, 6, 7, 8], 3), 15));
    assert!(!is_remembered(&call([5, 6, 7, 8], 3), 16));
    assert!(
        !is_remembered(&call([5, 6, 7, 8], 3), 100),
        "a longer stamp"
    );
    assert!(is_remembered(&call([5, 6, 7, 8], 3), 101));
}
