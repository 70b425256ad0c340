//! A daemon that has nothing to do.

use std::path::Path;
use std::time::Duration;

use super::loader::RULES;
use super::{Case, Figure, Sample, in_state, mib};
use crate::Options;
use crate::observer::pause;
use crate::place::Place;
use crate::report::Bound;
use crate::state::State;
use crate::variant::Variant;

#[derive(Debug)]
pub(crate) struct Idle;

const WATCHED: Duration = Duration::from_secs(2);
const BRIEF: Duration = Duration::from_millis(50);

impl Case for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn about(&self) -> &'static str {
        "two seconds in which nothing is recorded: the daemon's share of one CPU, and its memory"
    }

    fn seed(&self) -> &'static str {
        "what a daemon costs that waits"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::less("daemon CPU", "%")
                    .beside("kernel")
                    .goals(&[("tollgate", Bound::Most(0.5))]),
                Figure::less("daemon memory beside the ring", "MiB")
                    .beside("kernel")
                    .goals(&[("tollgate", Bound::Most(32.0))]),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let states = options.against.iter().filter(|&&state| state != State::Off);
        states.map(|&state| Variant::plain(state, RULES)).collect()
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let watched = if brief { BRIEF } else { WATCHED };
        let ((), spent) = in_state(place, variant, || {
            pause(watched);
            Ok(())
        })?;
        // What it takes until its end is asked for is counted as well: the share is a little too high.
        let share = spent.cpu.as_secs_f64() / watched.as_secs_f64();
        Ok(Sample {
            values: vec![
                ("daemon CPU", share * 100.0),
                ("daemon memory beside the ring", mib(spent.resident_bytes)),
            ],
            said: spent.said,
            ..Sample::default()
        })
    }
}
