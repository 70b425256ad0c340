//! The loop in which every call is kept: opens and closes of one file, as fast as they go.

use std::path::Path;

use super::{Case, Figure, Sample, in_state};
use crate::Options;
use crate::component::{AUSEARCH, Component};
use crate::log::{Found, Wanted};
use crate::place::{Place, Placement, figure};
use crate::report::Bound;
use crate::state::State;
use crate::variant::{Outlet, Variant};
use crate::workload::OPEN_CLOSE;

#[derive(Debug)]
pub(crate) struct Loader;

pub(super) const RULES: &str = "-a always,exit -F arch=b64 -S open,openat,close -F uid=65534\n";
const PAIRS: u32 = 50_000;
const BRIEF_PAIRS: u32 = 500;

impl Case for Loader {
    fn name(&self) -> &'static str {
        "loader"
    }

    fn about(&self) -> &'static str {
        "50,000 pairs of open and close, all kept: to disk, to a plugin, to both; `off` is without rules"
    }

    fn seed(&self) -> &'static str {
        "https://lore.kernel.org/all/9DBA79E0CE64AA42B07DEDAAD0F7DB914165A49A@G4W3222.americas.hpqcorp.net/T/"
    }

    fn components(&self) -> &'static [Component] {
        &[AUSEARCH]
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::less("open and close", "ns").goals(&[("tollgate", Bound::AtMost(1.9))]),
                Figure::more("pairs", "/s")
                    .beside("kernel")
                    .goals(&[("tollgate, disk and plugin", Bound::AtLeast(1.0))]),
                Figure::less("without waiting for the CPU", "ns"),
                Figure::more("kept", "%").goals(&[
                    ("tollgate", Bound::Exactly(100.0)),
                    ("tollgate, disk and plugin", Bound::Exactly(100.0)),
                ]),
                Figure::less("daemon CPU an event", "us")
                    .beside("kernel")
                    .goals(&[("tollgate", Bound::AtMost(0.05))]),
                Figure::less("log", "B/event"),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let mut variants = Vec::new();
        for &state in &options.against {
            variants.push(match state {
                State::Off => Variant::plain(state, ""),
                _ => Variant::plain(state, RULES),
            });
        }
        for (state, name, outlet) in [
            (State::Tollgate, "tollgate, plugin only", Outlet::Plugin),
            (State::Tollgate, "tollgate, disk and plugin", Outlet::Both),
            (State::Kernel, "kernel, plugin only", Outlet::Plugin),
            (State::Kernel, "kernel, disk and plugin", Outlet::Both),
        ] {
            if options.against.contains(&state) {
                variants.push(Variant {
                    outlet,
                    ..Variant::named(name, state, RULES)
                });
            }
        }
        variants
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let pairs = if brief { BRIEF_PAIRS } else { PAIRS };
        let (printed, spent) = in_state(place, variant, || {
            place.workload(Placement::OneCpu, &[OPEN_CLOSE, &pairs.to_string()])
        })?;
        let elapsed = figure(&printed, "elapsed_ns")?;
        let waited = figure(&printed, "waited_ns")?;
        let count = f64::from(pairs);
        let mut sample = Sample {
            values: vec![
                ("open and close", elapsed / count),
                ("pairs", count * 1e9 / elapsed),
                ("without waiting for the CPU", (elapsed - waited) / count),
            ],
            said: spent.said,
            ..Sample::default()
        };
        if variant.state == State::Off {
            return Ok(sample);
        }
        let events = count * 2.0;
        let mut kept = f64::INFINITY;
        if variant.outlet.has_log() {
            let wanted = Wanted::printed(&printed)?;
            let scratch = place.work.join("log/part");
            let found = Found::in_log(&place.log(), &scratch, wanted)?;
            kept = as_float(found.opens + found.closes);
            if variant.state == State::Tollgate {
                sample.complaints = complaints(found, pairs, spent.lost);
            }
        }
        if let Some(given) = spent.plugin_events {
            // It is given what starts and ends the workload as well.
            kept = kept.min(as_float(given).min(events));
        }
        sample.values.extend([
            ("kept", kept * 100.0 / events),
            (
                "daemon CPU an event",
                spent.cpu.as_secs_f64() * 1e6 / events,
            ),
        ]);
        if variant.outlet.has_log() {
            sample.values.push(("log", as_float(spent.bytes) / events));
        }
        Ok(sample)
    }
}

/// What is missing from a log, or lost.
fn complaints(found: Found, pairs: u32, lost: u64) -> Vec<String> {
    let pairs = u64::from(pairs);
    let mut complaints = Vec::new();
    if (found.opens, found.closes, found.names) != (pairs, pairs, pairs) || found.repeated != 0 {
        complaints.push(format!(
            "{pairs} pairs, but ausearch finds {} opens, {} closes, {} names, {} events twice",
            found.opens, found.closes, found.names, found.repeated
        ));
    }
    if lost != 0 {
        complaints.push(format!("it says that {lost} events are lost"));
    }
    complaints
}

/// Counts here are far below 2^53.
pub(super) fn as_float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lost_and_repeated_events_are_complaints() {
        let found = Found {
            opens: 10,
            closes: 10,
            names: 10,
            repeated: 0,
            events: 25,
        };
        assert_eq!(complaints(found, 10, 0), [""; 0]);
        assert_eq!(complaints(found, 11, 0).len(), 1);
        assert!(complaints(found, 10, 3)[0].contains("3 events are lost"));
        let twice = Found {
            repeated: 1,
            ..found
        };
        assert!(complaints(twice, 10, 0)[0].contains("1 events twice"));
    }

    #[test]
    fn only_variants_that_audit_have_rules() {
        let options = Options {
            cases: Vec::new(),
            against: vec![State::Off, State::Tollgate, State::Kernel],
            rules: None,
            runs: 1,
            engine: "auto".into(),
            brief: true,
            fifo: false,
        };
        let variants = Loader.variants(&options, Path::new("/w"));
        assert_eq!(variants.len(), 7);
        for variant in variants {
            assert_eq!(variant.rules.is_empty(), variant.state == State::Off);
        }
    }
}
