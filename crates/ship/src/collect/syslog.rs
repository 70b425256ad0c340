//! Messages of RFC 5424 as `tollgate-ship` sends them: a record each, with its boot, serial and number, or JSON about gaps
//! and heartbeats. Those of other programs are taken if their text is a record.

use std::str;

use bstr::ByteSlice as _;

use super::shipped::{Kind, RecordNumber, ShippedMessage, boot_id};

/// Id of structured data that `tollgate-ship` sends.
const ID: &[u8] = b"audit@32473";

/// Parses a message; `None` if it is none.
pub(super) fn parse(message: &[u8]) -> Option<ShippedMessage<'_>> {
    let (priority, rest) = message.strip_prefix(b"<")?.split_once_str(b">1 ")?;
    if !(1..=3).contains(&priority.len()) || !priority.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut words = rest.splitn_str(6, b" ");
    let [_time, host, _program, _process, kind, rest] = std::array::from_fn(|_| words.next());
    let mut found = ShippedMessage {
        host: Some(host?),
        kind: match kind? {
            b"GAP" => Kind::Gap,
            b"HEARTBEAT" => Kind::Heartbeat,
            _ => Kind::Record,
        },
        boot: "",
        number: None,
        text: b"",
    };
    let mut rest = rest?;
    let mut is_ours = false;
    match rest.strip_prefix(b"-") {
        Some(text) => rest = text,
        None => {
            while let Some(element) = rest.strip_prefix(b"[") {
                let is_known = element
                    .strip_prefix(ID)
                    .is_some_and(|rest| rest.starts_with(b" "));
                is_ours |= is_known;
                rest = take_element(element, is_known, &mut found)?;
            }
        }
    }
    found.text = match rest.split_first() {
        None => rest,
        Some((b' ', text)) => text,
        Some(_) => return None,
    };
    if !is_ours {
        found.kind = Kind::Record;
    }
    Some(found)
}

/// Parses an element of structured data behind its bracket, and returns what is behind it.
fn take_element<'a>(
    element: &'a [u8],
    is_known: bool,
    found: &mut ShippedMessage<'a>,
) -> Option<&'a [u8]> {
    let id = element.find_byteset(b" ]")?;
    let mut rest = element.get(id..)?;
    let (mut serial, mut n, mut of) = (None, None, None);
    while let Some(parameter) = rest.strip_prefix(b" ") {
        let (name, value) = parameter.split_once_str(b"=\"")?;
        let end = end_of_value(value)?;
        let text = value.get(..end)?;
        rest = value.get(end + 1..)?;
        if !is_known {
            continue;
        }
        let number = || str::from_utf8(text).ok()?.parse().ok();
        match name {
            b"boot" => found.boot = boot_id(text)?,
            b"serial" => serial = Some(number()?),
            b"n" => n = Some(number()?),
            b"of" => of = Some(number()?),
            _ => {}
        }
    }
    if let (Some(serial), Some(n @ 1..), Some(of)) = (serial, n, of) {
        found.number = (n <= of).then_some(RecordNumber { serial, n, of });
    }
    rest.strip_prefix(b"]")
}

/// Where the quote is that ends a value.
fn end_of_value(value: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += value.get(at..)?.find_byteset(b"\"\\")?;
        match value.get(at)? {
            b'"' => return Some(at),
            // What is behind it is a part of the value.
            _ => at += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use inputs::fuzz::fuzz;

    use super::super::shipped::MAX_BOOT;
    use super::*;

    const RECORD: &str = "<86>1 2026-10-02T00:13:22.050Z web1 tollgate - CWD [audit@32473 boot=\"b-1\" serial=\"42\" n=\"1\" of=\"2\"] type=CWD msg=audit(1.000:42): cwd=\"/\"";

    #[test]
    fn messages_of_the_shipper_have_boot_serial_and_number() {
        let message = parse(RECORD.as_bytes()).unwrap();
        assert_eq!(
            (message.host, message.kind, message.boot),
            (Some(&b"web1"[..]), Kind::Record, "b-1")
        );
        let number = RecordNumber {
            serial: 42,
            n: 1,
            of: 2,
        };
        assert_eq!(message.number, Some(number));
        assert_eq!(message.text, b"type=CWD msg=audit(1.000:42): cwd=\"/\"");
        let gap = RECORD
            .replace("- CWD", "- GAP")
            .replace(" n=\"1\" of=\"2\"", "");
        let message = parse(gap.as_bytes()).unwrap();
        assert_eq!((message.kind, message.number), (Kind::Gap, None));
    }

    #[test]
    fn other_structured_data_is_passed_over() {
        for (data, boot) in [
            ("-", ""),
            ("[a@1 x=\"]\\\"\\\\\" boot=\"no\"]", ""),
            ("[a@1][audit@32473 boot=\"b-1\"]", "b-1"),
        ] {
            let text = format!("<1>1 - - - - HEARTBEAT {data} text");
            let message = parse(text.as_bytes()).unwrap();
            assert_eq!((message.boot, message.text), (boot, &b"text"[..]), "{data}");
            // Only the shipper is asked about itself.
            assert_eq!(message.kind == Kind::Heartbeat, !boot.is_empty());
        }
        for text in [
            "",
            "<86>2 - - - - - - text",
            "<86>1 - - - - - [a",
            "<86>1 - - - - - [a x=\"\\\"]",
            "<>1 - - - - - -",
            "<86>1 - - - -",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fuzz_collect_syslog() {
        let words = [
            "[",
            "]",
            "\"",
            "\\",
            " ",
            "-",
            "n=\"0\"",
            "of=\"9\"",
            "serial=\"99999999999\"",
        ];
        fuzz(
            "fuzz_collect_syslog",
            &[RECORD.as_bytes().to_vec()],
            &words,
            2000,
            |bytes| {
                if let Some(message) = parse(bytes) {
                    assert!(bytes.ends_with(message.text) && message.boot.len() <= MAX_BOOT);
                    if let Some(number) = message.number {
                        assert!((1..=number.of).contains(&number.n));
                    }
                }
            },
        );
    }
}
