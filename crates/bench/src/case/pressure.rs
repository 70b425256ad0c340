//! Two loaders on two CPUs, which leave the daemon none but what its priority gets it.

use std::path::Path;

use anyhow::Context as _;

use super::loader::{RULES, as_float};
use super::{Case, Figure, Sample, in_state, mib};
use crate::Options;
use crate::log::{Tally, Wanted};
use crate::place::{Beside, Place, Placement, figure};
use crate::report::Bound;
use crate::state::{Account, State};
use crate::variant::Variant;
use crate::workload::OPEN_CLOSE;

#[derive(Debug)]
pub(crate) struct Pressure;

/// Of each of the two loaders.
const PAIRS: u32 = 1_000_000;
/// With the kernel's audit, which takes as long for these.
const KERNELS_PAIRS: u32 = 50_000;
const BRIEF_PAIRS: u32 = 500;

impl Case for Pressure {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn about(&self) -> &'static str {
        "two loaders on two CPUs, to which the daemon is confined: 1,000,000 pairs of open and close each, 50,000 with the kernel's audit; all kept, on disk"
    }

    fn seed(&self) -> &'static str {
        "eAudit, IEEE S&P 2024, section 6: loss under a saturating load"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::less("open and close", "ns"),
                Figure::more("kept", "%").goals(&[("tollgate", Bound::Least(98.0))]),
                Figure::less("lost", "events"),
                Figure::less("daemon CPU an event", "us").beside("kernel"),
                Figure::less("daemon memory beside the ring", "MiB")
                    .beside("kernel")
                    .goals(&[("tollgate", Bound::Most(32.0))]),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        options
            .against
            .iter()
            .map(|&state| Variant {
                daemon: Placement::TwoCpus,
                ..Variant::plain(state, if state == State::Off { "" } else { RULES })
            })
            .collect()
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let pairs = match (brief, variant.state) {
            (true, _) => BRIEF_PAIRS,
            (_, State::Kernel) => KERNELS_PAIRS,
            _ => PAIRS,
        };
        let (printed, spent) = in_state(place, variant, || {
            let mut loaders = Vec::new();
            for placement in [Placement::OneCpu, Placement::LastCpu] {
                let words = [OPEN_CLOSE, &pairs.to_string()];
                let mut command = place.workload_command(placement, &words)?;
                loaders.push(Beside::start(&mut command)?);
            }
            loaders
                .into_iter()
                .map(Beside::output)
                .collect::<anyhow::Result<Vec<_>>>()
        })?;
        let mut slowest: f64 = 0.0;
        let mut wanted = Vec::new();
        for printed in &printed {
            slowest = slowest.max(figure(printed, "elapsed_ns")?);
            wanted.push(Wanted::printed(printed)?);
        }
        let mut sample = Sample {
            values: vec![("open and close", slowest / f64::from(pairs))],
            said: spent.said,
            ..Sample::default()
        };
        if variant.state == State::Off {
            return Ok(sample);
        }
        let events = u64::from(pairs) * 4;
        let tally = Tally::of_log(&place.log(), &wanted).context("cannot read the log")?;
        let cpu_us = spent.cpu.as_secs_f64() * 1e6;
        sample.values.extend([
            ("kept", as_float(tally.found) * 100.0 / as_float(events)),
            ("lost", as_float(spent.lost)),
            ("daemon CPU an event", cpu_us / as_float(events)),
            ("daemon memory beside the ring", mib(spent.resident_bytes)),
        ]);
        if let Some(account) = spent.account {
            sample.complaints = complaints(tally, events, account);
        }
        Ok(sample)
    }
}

/// What is missing and not accounted for.
fn complaints(tally: Tally, events: u64, account: Account) -> Vec<String> {
    let Account {
        matched,
        written,
        lost,
    } = account;
    let mut complaints = Vec::new();
    let mut unless = |holds: bool, complaint: String| {
        if !holds {
            complaints.push(complaint);
        }
    };
    unless(
        matched == written + lost,
        format!("matched {matched} is not written {written} and lost {lost}"),
    );
    unless(
        tally.events == written,
        format!("the log has {} events, not {written}", tally.events),
    );
    unless(
        tally.told == lost,
        format!("the log tells of {} lost events, not of {lost}", tally.told),
    );
    let missing = events.saturating_sub(tally.found);
    unless(
        missing <= lost && tally.found <= events,
        format!(
            "{} of {events} events are in the log, and {lost} are lost",
            tally.found
        ),
    );
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_must_be_counted_and_told() {
        let tally = Tally {
            events: 12,
            found: 9,
            told: 1,
        };
        let account = Account {
            matched: 13,
            written: 12,
            lost: 1,
        };
        assert_eq!(complaints(tally, 10, account), [""; 0]);
        assert_eq!(complaints(tally, 11, account).len(), 1, "two are missing");
        assert_eq!(complaints(tally, 8, account).len(), 1, "one is too many");
        let counted = |matched, written, lost| Account {
            matched,
            written,
            lost,
        };
        assert_eq!(complaints(tally, 10, counted(14, 12, 1)).len(), 1);
        assert_eq!(complaints(tally, 10, counted(14, 13, 1)).len(), 1);
        assert_eq!(complaints(tally, 10, counted(14, 12, 2)).len(), 1);
    }
}
