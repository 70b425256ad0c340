//! How long an event is on its way to the log: the time in which an intruder could still erase it.
//!
//! An observer makes calls that are recorded, each with a name of its own, while the loader runs, and looks
//! every 200 us how long the log is; it does so alike for both daemons, and knows nothing of either. Where
//! a name ends in the log says afterwards which look was the first to find it there.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::loader::RULES;
use super::{Case, Figure, Sample, in_state};
use crate::Options;
use crate::observer::{Mark, Observed};
use crate::place::{Beside, Place, Placement, output};
use crate::report::Bound;
use crate::state::State;
use crate::statistics::percentile;
use crate::variant::Variant;
use crate::workload::{LOAD, OBSERVE};

#[derive(Debug)]
pub(crate) struct Delay;

/// How long marks are made, and with the time for the last of them to come into the log, how long the
/// loader runs.
const MARKED_MS: u32 = 1500;
const LOADED_MS: u32 = 2300;
const BRIEF_MS: (u32, u32) = (50, 900);

impl Case for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn about(&self) -> &'static str {
        "from the end of a call to its record in the log, beside the loader: some of a thousand calls each run"
    }

    fn seed(&self) -> &'static str {
        "the window in which an intruder could still erase a record"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::less("half within", "ms").beside("kernel"),
                Figure::less("90 % within", "ms").beside("kernel"),
                Figure::less("99 % within", "ms")
                    .beside("kernel")
                    .goals(&[("tollgate", Bound::Most(10.0))]),
                Figure::less("all within", "ms").beside("kernel"),
                Figure::less("99 % of the calls took", "ms").beside("kernel"),
                Figure::more("marked", "calls").beside("kernel"),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let states = options.against.iter().filter(|&&state| state != State::Off);
        states.map(|&state| Variant::plain(state, RULES)).collect()
    }

    fn seconds(&self) -> u32 {
        6
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let (marked_ms, loaded_ms) = if brief {
            BRIEF_MS
        } else {
            (MARKED_MS, LOADED_MS)
        };
        let (printed, spent) = in_state(place, variant, || {
            let load = [LOAD, &loaded_ms.to_string()];
            let loader = Beside::start(&mut place.workload_command(Placement::OneCpu, &load)?)?;
            let words = [OBSERVE, &marked_ms.to_string()];
            let mut observer = place.fifo_as_nobody(Placement::LastCpu)?;
            observer.args(place.workload_words()).args(words);
            let log = File::open(place.log()).context("cannot open the log")?;
            let printed = output(observer.stdin(log))?;
            loader.output()?;
            Ok(printed)
        })?;
        let observed =
            Observed::printed(&printed).context("the observer has said something else")?;
        let ends = ends_of_marks(&place.log()).context("cannot read the log")?;
        let mut delays_ms = Vec::new();
        for (number, mark) in observed.marks.iter().enumerate() {
            let end = ends.iter().find(|&&(of, _)| of == number);
            let Some(&(_, end)) = end else {
                continue;
            };
            delays_ms.push(observed.delay_ns(*mark, end) / 1e6);
        }
        ensure!(!delays_ms.is_empty(), "no mark is in the log");
        let taken_ms = |mark: &Mark| (mark.after_ns - mark.before_ns) / 1e6;
        let taken_ms: Vec<f64> = observed.marks.iter().map(taken_ms).collect();
        let of = |values: &[f64], part| percentile(values, part).unwrap_or(f64::INFINITY);
        let mut sample = Sample {
            values: vec![
                ("half within", of(&delays_ms, 0.5)),
                ("90 % within", of(&delays_ms, 0.9)),
                ("99 % within", of(&delays_ms, 0.99)),
                ("all within", of(&delays_ms, 1.0)),
                ("99 % of the calls took", of(&taken_ms, 0.99)),
                (
                    "marked",
                    f64::from(u32::try_from(observed.marks.len()).unwrap_or(u32::MAX)),
                ),
            ],
            said: spent.said,
            ..Sample::default()
        };
        let missing = observed.marks.len() - delays_ms.len();
        if variant.state == State::Tollgate && missing != 0 {
            sample.complaints.push(format!(
                "{missing} of {} marked calls are not in the log, and it says that {} are lost",
                observed.marks.len(),
                spent.lost
            ));
        }
        Ok(sample)
    }
}

/// Number of each mark in a log, and where its line ends.
fn ends_of_marks(log: &Path) -> io::Result<Vec<(usize, u64)>> {
    let mut lines = BufReader::with_capacity(1 << 20, File::open(log)?);
    let (mut line, mut end, mut ends) = (Vec::new(), 0, Vec::new());
    loop {
        let read = lines.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(ends);
        }
        end += u64::try_from(read).map_err(io::Error::other)?;
        if let Some(number) = Mark::in_line(&line) {
            ends.push((number, end));
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_there_where_its_line_ends() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let other = "type=PATH msg=audit(1.5:1): item=0 name=\"file1\" inode=3\n";
        let mark = "type=PATH msg=audit(1.5:1): item=0 name=\"mark-17\" nametype=UNKNOWN\n";
        std::fs::write(&log, [other, mark, other].concat()).unwrap();
        let end = u64::try_from(other.len() + mark.len()).unwrap();
        assert_eq!(ends_of_marks(&log).unwrap(), [(17, end)]);
    }
}
