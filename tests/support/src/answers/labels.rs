//! Normalized output of stock programs: serials are replaced with event numbers, and all times of day with one.

use std::collections::BTreeMap;

/// Replacement of each time of day.
const TIME: &str = "TIME";

/// Event numbers by serial.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<u32, String>);

impl Labels {
    /// Maps a serial to an event; returns whether the serial is new.
    pub(super) fn add(&mut self, serial: u32, event: usize) -> bool {
        self.0.insert(serial, format!("EVENT-{event}")).is_none()
    }

    /// The normalized output.
    pub(super) fn put_in(&self, answer: &str) -> String {
        let mut text = String::new();
        for line in answer.lines() {
            let line = self.in_line(line);
            // A row of a report ends with the serial.
            let of_report = line.starts_with(|first: char| first.is_ascii_digit());
            match line.rsplit_once(' ') {
                Some((row, serial)) if of_report && row.contains(TIME) => {
                    text += row;
                    text.push(' ');
                    self.event(serial, &mut text);
                }
                _ => text += &line,
            }
            text.push('\n');
        }
        text
    }

    fn in_line(&self, line: &str) -> String {
        let mut text = String::new();
        let mut rest = line;
        // Each time of day contains a colon, and each serial of a stamp follows one.
        while let Some(colon) = rest.find(':') {
            let before = rest.get(..colon).unwrap_or_default();
            let seconds = before.rsplit_once("audit(").map(|(_, seconds)| seconds);
            let is_number = |seconds: &&str| {
                let mut bytes = seconds.bytes();
                bytes.all(|byte| byte.is_ascii_digit() || byte == b'.')
            };
            let time = match seconds.filter(is_number) {
                Some(seconds) => Some((colon - seconds.len(), colon)),
                None => colon.checked_sub(2).and_then(|start| {
                    let length = time_of_day(rest.get(start..)?)?;
                    Some((start, start + length))
                }),
            };
            let (start, end) = time.unwrap_or((colon + 1, colon + 1));
            text += rest.get(..start).unwrap_or_default();
            rest = rest.get(end..).unwrap_or_default();
            if time.is_some() {
                text += TIME;
                rest = self.serial(rest, &mut text);
            }
        }
        text + rest
    }

    /// Parses the serial after a time, `:SERIAL` in a stamp or `,SERIAL` in a table; returns the rest.
    fn serial<'a>(&self, rest: &'a str, text: &mut String) -> &'a str {
        if !rest.starts_with([':', ',']) {
            return rest;
        }
        let (before, rest) = rest.split_at(1);
        *text += before;
        let after = rest.trim_start_matches(|byte: char| byte.is_ascii_digit());
        let (serial, after) = rest.split_at(rest.len() - after.len());
        self.event(serial, text);
        after
    }

    /// Writes the event of a serial. The kernel's own records have the same serial in both logs.
    fn event(&self, serial: &str, text: &mut String) {
        let known = serial.parse().ok().and_then(|serial| self.0.get(&serial));
        *text += known.map_or(serial, String::as_str);
    }
}

/// Length of `12:34:56` or `12:34:56.789`, if the text starts so.
fn time_of_day(text: &str) -> Option<usize> {
    let fits = |pattern: &str| {
        let same = |(byte, wanted): (u8, u8)| match wanted {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        };
        text.len() >= pattern.len() && text.bytes().zip(pattern.bytes()).all(same)
    };
    ["00:00:00.000", "00:00:00"]
        .into_iter()
        .find(|pattern| fits(pattern))
        .map(str::len)
}
