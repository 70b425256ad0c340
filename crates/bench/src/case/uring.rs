//! `io_uring`, whose operations are not syscalls.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{Case, FigureSpec, NOT_NAMED, Sample, unmatched_variants, with_audit};
use crate::Options;
use crate::report::Bound;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, WorkDir, output, parse_value};

#[derive(Debug)]
pub(crate) struct Uring;

/// Size of the file to read.
const FILE_BYTES: usize = 16 << 20;

/// Processes per sample; the best counts. The pages of the buffers matter more than auditing.
const PROCESSES: u32 = 8;

const THROUGHPUT_GOAL: &[(&str, Bound)] = &[("tollgate", Bound::RatioAtLeast(0.97))];

/// Figure, operation, submission.
const LOADS: [(&str, &str, &str); 4] = [
    ("NOP", "nop", "enter"),
    ("NOP, SQPOLL", "nop", "sqpoll"),
    ("read", "read", "enter"),
    ("read, SQPOLL", "read", "sqpoll"),
];

impl Case for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn about(&self) -> &'static str {
        "io_uring with 128 operations in flight: NOP, and random 4 KiB reads from the page cache"
    }

    fn origin(&self) -> &'static str {
        "Jens Axboe on [RFC PATCH 2/9] audit,io_uring,io-wq, 26 May 2021"
    }

    fn unavailable(&self) -> Option<String> {
        let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
        match setting.trim() {
            "0" => None,
            value => Some(format!("kernel.io_uring_disabled is {value}")),
        }
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::more("NOP", "/s")
                    .headlines(NOT_NAMED)
                    .goals(THROUGHPUT_GOAL),
                FigureSpec::more("NOP, SQPOLL", "/s").headlines(NOT_NAMED),
                FigureSpec::more("read", "/s")
                    .headlines(NOT_NAMED)
                    .goals(THROUGHPUT_GOAL),
                FigureSpec::more("read, SQPOLL", "/s").headlines(NOT_NAMED),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        unmatched_variants(options, work)
    }

    fn seconds(&self) -> u32 {
        4
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let file = work_dir.files().join("random");
        if !file.exists() {
            fs::write(&file, vec![7; FILE_BYTES]).context("cannot write the file to be read")?;
        }
        let (processes, ms) = if brief { (1, "30") } else { (PROCESSES, "90") };
        let file = file.display().to_string();
        let (values, spent) = with_audit(work_dir, variant, || {
            let rate = |(name, operation, submission)| {
                let words = [operation, submission, ms, &file];
                // The polling thread needs its own CPU.
                let mut best: f64 = 0.0;
                for _ in 0..processes {
                    let mut command = work_dir.workload_base(CpuAffinity::Any)?;
                    let printed = output(command.arg(&work_dir.uring).args(words))?;
                    best = best.max(parse_value(&printed, "rate")?);
                }
                Ok((name, best))
            };
            LOADS.map(rate).into_iter().collect()
        })?;
        Ok(Sample {
            values,
            startup_line: spent.startup_line,
            ..Sample::default()
        })
    }
}
