//! What a number of rules costs: calls that none names, that one names and none keeps, and that one keeps.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Case, Figure, Sample, in_state};
use crate::Options;
use crate::place::{Place, Placement, figure};
use crate::state::State;
use crate::variant::Variant;
use crate::workload::CALLS;

#[derive(Debug)]
pub(crate) struct Rules;

const NUMBERS: [u32; 4] = [1, 10, 100, 1000];

impl Case for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn about(&self) -> &'static str {
        "1, 10, 100 and 1,000 rules, each on writes in a directory; what is kept is below that of the first"
    }

    fn seed(&self) -> &'static str {
        "rules as in the case `syscalls`"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::less("not named (getpid)", "ns"),
                Figure::less("named, not kept (open, close)", "ns"),
                Figure::less("kept (open to write, close)", "ns"),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let mut variants = vec![Variant::plain(State::Off, "")];
        for number in NUMBERS {
            let rules = Place::directory_rules(&directories(work), number);
            for &state in &options.against {
                if state != State::Off {
                    let plural = if number == 1 { "" } else { "s" };
                    let name = format!("{}, {number} rule{plural}", state.name());
                    variants.push(Variant::named(&name, state, &rules));
                }
            }
        }
        variants
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let written = lay_out(place).context("cannot make the directories that rules watch")?;
        let calls = if brief { "100" } else { "4000" };
        let written = written.display().to_string();
        let (printed, spent) = in_state(place, variant, || {
            place.workload(Placement::OneCpu, &[CALLS, calls, &written])
        })?;
        Ok(Sample {
            values: vec![
                ("not named (getpid)", figure(&printed, "getpid")?),
                ("named, not kept (open, close)", figure(&printed, "open")?),
                ("kept (open to write, close)", figure(&printed, "write")?),
            ],
            said: spent.said,
            ..Sample::default()
        })
    }
}

fn directories(work: &Path) -> PathBuf {
    work.join("rules")
}

/// Makes the directories, and a file that everybody may write in the first.
fn lay_out(place: &Place) -> std::io::Result<PathBuf> {
    let directories = directories(&place.work);
    let written = directories.join("0/file");
    if !written.exists() {
        for number in 0..NUMBERS.into_iter().max().unwrap_or(0) {
            fs::create_dir_all(directories.join(number.to_string()))?;
        }
        fs::write(&written, "")?;
        fs::set_permissions(&written, fs::Permissions::from_mode(0o666))?;
    }
    Ok(written)
}
