//! The cost of many rules: for calls that are not named, named but not matched, and recorded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Case, FigureSpec, HeadlineSpec, Sample, with_audit};
use crate::Options;
use crate::variant::AuditMode;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, WorkDir, parse_value};
use crate::workload::CALLS;

#[derive(Debug)]
pub(crate) struct Rules;

const NUMBERS: [u32; 4] = [1, 10, 100, 1000];

const GETPID: &str = "getpid, not named";
const OPEN: &str = "open and close, named, not matched";
const WRITE: &str = "open to write and close, recorded";

const HEADLINES: &[HeadlineSpec] = &[
    HeadlineSpec::of("10 rules", "tollgate, 10 rules", "kernel, 10 rules"),
    HeadlineSpec::of("1,000 rules", "tollgate, 1000 rules", "kernel, 1000 rules"),
];

impl Case for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn about(&self) -> &'static str {
        "1, 10, 100 and 1,000 rules, each about writes in a directory; the recorded file is in the first"
    }

    fn origin(&self) -> &'static str {
        "the rules of the case `syscalls`"
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::less(GETPID, "ns").headlines(HEADLINES),
                FigureSpec::less(OPEN, "ns").headlines(HEADLINES),
                FigureSpec::less(WRITE, "ns").headlines(HEADLINES),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let mut variants = vec![Variant::plain(AuditMode::Off, "")];
        for number in NUMBERS {
            let rules = WorkDir::directory_rules(&directories(work), number);
            for &mode in &options.against {
                if mode != AuditMode::Off {
                    let plural = if number == 1 { "" } else { "s" };
                    let name = format!("{}, {number} rule{plural}", mode.name());
                    variants.push(Variant::named(&name, mode, &rules));
                }
            }
        }
        variants
    }

    fn seconds(&self) -> u32 {
        3
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let written =
            create_directories(work_dir).context("cannot create the watched directories")?;
        let calls = if brief { "100" } else { "4000" };
        let written = written.display().to_string();
        let (printed, spent) = with_audit(work_dir, variant, || {
            work_dir.workload(CpuAffinity::First, &[CALLS, calls, &written])
        })?;
        Ok(Sample {
            values: vec![
                (GETPID, parse_value(&printed, "getpid")?),
                (OPEN, parse_value(&printed, "open")?),
                (WRITE, parse_value(&printed, "write")?),
            ],
            startup_line: spent.startup_line,
            ..Sample::default()
        })
    }
}

fn directories(work: &Path) -> PathBuf {
    work.join("rules")
}

/// Creates the directories, and a world-writable file in the first.
fn create_directories(work_dir: &WorkDir) -> std::io::Result<PathBuf> {
    let directories = directories(&work_dir.work);
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
