//! An idle daemon.

use std::path::Path;
use std::time::Duration;

use super::loader::RULES;
use super::{Case, FigureSpec, Sample, mib, with_audit};
use crate::Options;
use crate::observer::wait;
use crate::report::Bound;
use crate::variant::AuditMode;
use crate::variant::Variant;
use crate::work_dir::WorkDir;

#[derive(Debug)]
pub(crate) struct Idle;

const WATCHED: Duration = Duration::from_secs(2);
const BRIEF: Duration = Duration::from_millis(50);

impl Case for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn about(&self) -> &'static str {
        "two seconds without events: the daemon's share of one CPU, and its memory"
    }

    fn origin(&self) -> &'static str {
        "the cost of an idle daemon"
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::less("daemon CPU", "%")
                    .relative_to("kernel")
                    .goals(&[("tollgate", Bound::ValueAtMost(0.5))]),
                FigureSpec::less("daemon memory without the ring", "MiB")
                    .relative_to("kernel")
                    .goals(&[("tollgate", Bound::ValueAtMost(32.0))]),
            ]
        }
    }

    fn variants(&self, options: &Options, _work: &Path) -> Vec<Variant> {
        let states = options
            .against
            .iter()
            .filter(|&&mode| mode != AuditMode::Off);
        states.map(|&mode| Variant::plain(mode, RULES)).collect()
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let watched = if brief { BRIEF } else { WATCHED };
        let ((), spent) = with_audit(work_dir, variant, || {
            wait(watched);
            Ok(())
        })?;
        // Includes the time until the daemon is stopped: slightly too high.
        let share = spent.cpu.as_secs_f64() / watched.as_secs_f64();
        Ok(Sample {
            values: vec![
                ("daemon CPU", share * 100.0),
                ("daemon memory without the ring", mib(spent.resident_bytes)),
            ],
            startup_line: spent.startup_line,
            ..Sample::default()
        })
    }
}
