//! What calls pay that rules do not keep: what everybody pays once somebody is audited.
//!
//! The ten rules are those of Cloudflare's report on the cost of kernel audit: writes in ten directories.
//! The workload makes none. An eleventh rule that keeps its opens shows what a kept call costs beside them.

use std::path::Path;

use super::{Case, Figure, Sample, in_state, plain, unkept_rules};
use crate::Options;
use crate::place::{Place, Placement, UID, figure};
use crate::report::Bound;
use crate::state::State;
use crate::variant::Variant;
use crate::workload::CALLS;

#[derive(Debug)]
pub(crate) struct Syscalls;

const KEPT: &str = "with an 11th rule that keeps opens";

impl Case for Syscalls {
    fn name(&self) -> &'static str {
        "syscalls"
    }

    fn about(&self) -> &'static str {
        "single calls that ten rules do not keep; opens that an eleventh does; after the kernel's audit was on"
    }

    fn seed(&self) -> &'static str {
        "https://patchwork.kernel.org/project/audit/patch/20230523181624.19932-1-ivan@cloudflare.com"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::less("getpid", "ns").goals(&[("tollgate", Bound::AtMost(1.4))]),
                Figure::less("stat", "ns"),
                Figure::less("read", "ns"),
                Figure::less("open and close", "ns").goals(&[("tollgate", Bound::AtMost(1.35))]),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let rules = unkept_rules(options, work);
        let eleven =
            format!("{rules}-a always,exit -F arch=b64 -S openat -F uid={UID} -F key=KEPT\n");
        let mut variants = plain(options, work);
        for &state in &options.against {
            if state != State::Off {
                let name = format!("{}, {KEPT}", state.name());
                variants.push(Variant::named(&name, state, &eleven));
            }
        }
        if options.against.contains(&State::Kernel) {
            variants.push(Variant::plain(State::Sticky, ""));
        }
        variants
    }

    fn seconds(&self) -> u32 {
        2
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let calls = if brief { "100" } else { "10000" };
        // What is opened to write is `FILE` as well: it must not be in a watched directory.
        let written = place.files().join(crate::workload::FILE);
        let written = written.display().to_string();
        let (printed, spent) = in_state(place, variant, || {
            place.workload(Placement::OneCpu, &[CALLS, calls, &written])
        })?;
        Ok(Sample {
            values: vec![
                ("getpid", figure(&printed, "getpid")?),
                ("stat", figure(&printed, "stat")?),
                ("read", figure(&printed, "read")?),
                ("open and close", figure(&printed, "open")?),
            ],
            said: spent.said,
            ..Sample::default()
        })
    }
}
