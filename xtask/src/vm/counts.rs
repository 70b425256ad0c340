//! Instruction counts of a machine, as a report for `tollgate bench --add`.
//!
//! `crates/bench/src/report.rs` defines the format and fills in missing fields.

use std::fmt::Write as _;

/// The reference state, and the state that must equal it: the machine's name, then the report's name.
const STATES: [(&str, &str); 2] = [("before any daemon", "off"), ("fentry", NOT_NAMED)];

/// The state whose rules do not name the counted calls.
const NOT_NAMED: &str = "fentry, call not named";
/// The state in the summary of a report.
const TEN_RULES: &str = "fentry, ten rules";

/// Counts, in the order of the serial port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(Vec<Count>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Count {
    call: String,
    state: String,
    instructions: u64,
}

impl Counts {
    /// Parses `INSTRUCTIONS CALL/STATE`; false if the line has another form.
    pub(crate) fn parse_line(&mut self, line: &str) -> bool {
        let Some((number, name)) = line.split_once(' ') else {
            return false;
        };
        let (Ok(instructions), Some((call, state))) = (number.parse(), name.split_once('/')) else {
            return false;
        };
        let known = STATES.iter().find(|(name, _)| *name == state);
        self.0.push(Count {
            call: call.to_owned(),
            state: known.map_or(state, |(_, name)| name).to_owned(),
            instructions,
        });
        true
    }

    /// The report; `None` without counts.
    pub(crate) fn json(&self, kernel: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let calls = self.calls();
        let figures: Vec<String> = calls.iter().map(|call| self.figure(call)).collect();
        Some(format!(
            "{{\"form\": 2, \"version\": \"cargo xtask vm\", \"runs\": 1,\n \
             \"machine\": {{\"kernel\": \"{kernel}\", \"build\": \"of Debian, in QEMU, counting\"}},\n \
             \"cases\": [{{\"name\": \"instructions-{kernel}\",\n  \
             \"about\": \"instructions that a call executes, the most frequent count of 3,000\",\n  \
             \"origin\": \"tests/vm/src/count.rs\",\n  \
             \"notes\": [\"`{NOT_NAMED}`: rules that name other calls\"],\n  \
             \"figures\": [\n{}\n ]}}]}}\n",
            figures.join(",\n")
        ))
    }

    /// The calls, in the order of their first count.
    pub(crate) fn calls(&self) -> Vec<&str> {
        let mut calls: Vec<&str> = Vec::new();
        for count in &self.0 {
            if !calls.contains(&count.call.as_str()) {
                calls.push(&count.call);
            }
        }
        calls
    }

    /// The first count of a call in a state.
    pub(crate) fn first(&self, call: &str, state: &str) -> Option<u64> {
        let mut counts = self.0.iter();
        let count = counts.find(|count| count.call == call && count.state == state)?;
        Some(count.instructions)
    }

    fn figure(&self, call: &str) -> String {
        let of_call = || self.0.iter().filter(|count| count.call == call);
        let mut states: Vec<&str> = Vec::new();
        for count in of_call() {
            if !states.contains(&count.state.as_str()) {
                states.push(&count.state);
            }
        }
        let variants: Vec<String> = states
            .iter()
            .map(|state| {
                let mut samples = String::new();
                for count in of_call().filter(|count| count.state == *state) {
                    let comma = if samples.is_empty() { "" } else { ", " };
                    // Writing to a string does not fail.
                    let _written = write!(samples, "{comma}{}", count.instructions);
                }
                format!("{{\"name\": \"{state}\", \"samples\": [{samples}]}}")
            })
            .collect();
        format!(
            "   {{\"name\": \"{call}\", \"unit\": \"instructions\", \"better\": \"less\", \
             \"reference\": \"off\", \"headlines\": [{{\"rules\": \"ten rules\", \"tollgate\": \"{TEN_RULES}\", \"kernel\": \"\"}}],\n    \
             \"goals\": [{{\"variant\": \"{NOT_NAMED}\", \"bound\": \"equals_reference\"}}],\n    \
             \"variants\": [{}]}}",
            variants.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_call_and_state() {
        let mut counts = Counts::default();
        assert_eq!(counts.json("6.1"), None);
        for line in [
            "322 getppid/before any daemon",
            "641 read/before any daemon",
            "322 getppid/fentry",
            "419 getppid/tracepoint",
            "420 getppid/tracepoint",
        ] {
            assert!(counts.parse_line(line), "{line}");
        }
        assert!(!counts.parse_line("many getppid/fentry") && !counts.parse_line("322"));
        let json = counts.json("6.12").unwrap();
        for part in [
            "\"name\": \"instructions-6.12\"",
            "{\"name\": \"off\", \"samples\": [322]}, {\"name\": \"fentry, call not named\", \"samples\": [322]}, \
             {\"name\": \"tracepoint\", \"samples\": [419, 420]}",
            "{\"name\": \"off\", \"samples\": [641]}",
        ] {
            assert!(json.contains(part), "{part}: {json}");
        }
    }
}
