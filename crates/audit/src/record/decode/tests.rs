//! Tests of decoding records.

use proptest::prelude::*;

use super::*;

const STAMP: &str = "msg=audit(1700000000.042:7): ";

fn error(text: &[u8]) -> String {
    let error = match line(text) {
        Ok(record) => record.fields().find_map(Result::err).unwrap(),
        Err(error) => error,
    };
    error.to_string()
}

#[test]
fn stamp_parses() {
    let found = stamp(b"audit(1700000000.042:7): avc:  denied\0").unwrap();
    let time = Timestamp {
        sec: 1_700_000_000,
        milli: 42,
    };
    assert_eq!(found, (time, Serial(7)));
    let broken = stamp(b"audit(1700000000.042:7)\0").unwrap_err();
    assert_eq!(
        broken.to_string(),
        "column 23: expected `):` after the serial"
    );
}

#[test]
fn record_header_parses() {
    let text = format!("node=h1 type=UNKNOWN[1234] {STAMP}a=1 b=2\x1dA=\"x\"\n");
    let record = line(text.as_bytes()).unwrap();
    assert_eq!(record.node.unwrap(), "h1");
    assert_eq!(record.kind, "UNKNOWN[1234]");
    assert_eq!(
        record.time,
        Timestamp {
            sec: 1_700_000_000,
            milli: 42
        }
    );
    assert_eq!(record.serial, Serial(7));
    assert_eq!(record.body(), "a=1 b=2");
    let added: Vec<_> = record.enrichment().map(Result::unwrap).collect();
    assert_eq!(
        added,
        [Field {
            name: "A".into(),
            value: "\"x\"".into(),
            column: 67
        }]
    );
}

#[test]
fn untrusted_fields_are_decoded_and_others_are_not() {
    let text = format!("type=EXECVE {STAMP}argc=10 a0=6C73 a1_len=20 key=(null) exe=\"/x\"");
    let record = line(text.as_bytes()).unwrap();
    let texts: Vec<_> = record
        .fields()
        .map(|field| record.text(&field.unwrap()).unwrap().map(Cow::into_owned))
        .collect();
    let expected = [Some("10"), Some("ls"), Some("20"), None, Some("/x")];
    assert_eq!(
        texts,
        expected.map(|text| text.map(|text| text.as_bytes().to_vec()))
    );

    let text = format!("type=SYSCALL {STAMP}a0=6C73");
    let record = line(text.as_bytes()).unwrap();
    let field = record.fields().next().unwrap().unwrap();
    assert_eq!(record.text(&field).unwrap().unwrap(), b"6C73".as_slice());
}

#[test]
fn msg_text_has_nested_fields() {
    let text = format!("type=USER_LOGIN {STAMP}pid=1 msg='op=login acct=\"a b\" res=ok'");
    let record = line(text.as_bytes()).unwrap();
    let fields: Vec<_> = record.fields().map(Result::unwrap).collect();
    let [pid, message] = fields.as_slice() else {
        panic!("{fields:?}")
    };
    assert_eq!(record.nested_fields(pid).count(), 0);
    let nested_fields: Vec<_> = record.nested_fields(message).map(Result::unwrap).collect();
    let names: Vec<_> = nested_fields.iter().map(|field| field.name).collect();
    assert_eq!(names, ["op", "acct", "res"]);
    for field in nested_fields {
        assert_eq!(
            &text.as_bytes()[field.column - 1..][..field.value.len()],
            field.value
        );
    }
}

#[test]
fn errors_have_the_column() {
    for (text, expected) in [
        ("", "column 1: expected `type=`"),
        ("node=x", "column 7: expected a blank after the node"),
        ("type=A", "column 7: expected a blank after the type"),
        ("type=A msg=audit(x", "column 18: expected seconds"),
        (
            "type=A msg=audit(99999999999999999999.",
            "column 18: expected seconds",
        ),
        (
            "type=A msg=audit(1.01:",
            "column 20: expected three digits of milliseconds",
        ),
        (
            "type=A msg=audit(1.001:4294967296): ",
            "column 24: expected a serial of 32 bits",
        ),
        (
            "type=A msg=audit(1.001:1) ",
            "column 25: expected `):` after the serial",
        ),
        (
            "type=A msg=audit(1.001:1): a=\"x",
            "column 30: value is not closed",
        ),
        (
            "type=A msg=audit(1.001:1): a='x",
            "column 30: value is not closed",
        ),
        (
            "type=A msg=audit(1.001:1): a=\"x\"y",
            "column 33: expected a blank after the value",
        ),
        (
            "type=A msg=audit(1.001:1): a\nb",
            "column 29: control byte 0x0a",
        ),
        ("type=A \x1b[2J", "column 8: control byte 0x1b"),
    ] {
        assert_eq!(error(text.as_bytes()), expected, "{text}");
    }
    let text = b"type=A msg=audit(1.001:1): name=6162zz";
    let record = line(text).unwrap();
    let field = record.fields().next().unwrap().unwrap();
    assert_eq!(
        record.text(&field).unwrap_err().to_string(),
        "column 37: malformed value"
    );
}

/// Random sequences of tokens that the decoder treats specially.
fn hostile_line() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"type=EXECVE msg=audit(1.000:1): ".to_vec()),
        Just(b" a0=".to_vec()),
        Just(b"a1[0]=".to_vec()),
        Just(b"\x1d".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'".to_vec()),
        Just(b"{".to_vec()),
        Just(b"6".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..3),
    ];
    proptest::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(text in hostile_line()) {
        let Ok(record) = line(&text) else { return Ok(()) };
        if let Ok(found) = execve::arguments([&record]) {
            prop_assert!(found.args.len() <= text.len());
        }
        for field in record.fields().chain(record.enrichment()).flatten() {
            let start = field.column - 1;
            prop_assert_eq!(&text[start..start + field.value.len()], field.value.as_bytes());
            if let Err(DecodeError::Value { column, .. }) = record.text(&field) {
                prop_assert!((field.column..=text.len() + 1).contains(&column));
            }
        }
    }
}
