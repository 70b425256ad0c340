//! The cost of auditing for calls that no rule matches.
//!
//! The ten rules are those of Cloudflare's report on the cost of kernel audit: writes in ten directories. The
//! workload writes nowhere. An eleventh rule records its opens.

use std::path::Path;

use super::{
    Case, FigureSpec, HeadlineSpec, NOT_NAMED, NOT_NAMED_PICTURED, Sample, unmatched_rules,
    unmatched_variants, with_audit,
};
use crate::Options;
use crate::report::Bound;
use crate::variant::AuditMode;
use crate::variant::Variant;
use crate::work_dir::{CpuAffinity, UID, WorkDir, parse_value};
use crate::workload::CALLS;

#[derive(Debug)]
pub(crate) struct Syscalls;

/// Suffix of the variants with an eleventh rule.
const OPENAT_RECORDED: &str = "openat recorded";

const OPENAT: &[HeadlineSpec] = &[
    HeadlineSpec::new("ten rules name openat, none matches").in_picture(),
    HeadlineSpec::of(
        "ten rules, an eleventh records openat",
        "tollgate, openat recorded",
        "kernel, openat recorded",
    ),
];

impl Case for Syscalls {
    fn name(&self) -> &'static str {
        "syscalls"
    }

    fn about(&self) -> &'static str {
        "single calls that ten rules do not match; opens that an eleventh records; after the kernel's audit was enabled"
    }

    fn origin(&self) -> &'static str {
        "https://patchwork.kernel.org/project/audit/patch/20230523181624.19932-1-ivan@cloudflare.com"
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::less("getpid", "ns")
                    .headlines(NOT_NAMED_PICTURED)
                    .goals(&[("tollgate", Bound::RatioAtMost(1.4))]),
                FigureSpec::less("stat", "ns").headlines(NOT_NAMED),
                FigureSpec::less("read", "ns").headlines(NOT_NAMED),
                FigureSpec::less("open and close", "ns")
                    .headlines(OPENAT)
                    .goals(&[("tollgate", Bound::RatioAtMost(1.35))]),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let rules = unmatched_rules(options, work);
        let eleven =
            format!("{rules}-a always,exit -F arch=b64 -S openat -F uid={UID} -F key=KEPT\n");
        let mut variants = unmatched_variants(options, work);
        for &mode in &options.against {
            if mode != AuditMode::Off {
                let name = format!("{}, {OPENAT_RECORDED}", mode.name());
                variants.push(Variant::named(&name, mode, &eleven));
            }
        }
        if options.against.contains(&AuditMode::Kernel) {
            variants.push(Variant::plain(AuditMode::KernelDisabled, ""));
        }
        variants
    }

    fn seconds(&self) -> u32 {
        2
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let calls = if brief { "100" } else { "10000" };
        // This file is not in a watched directory.
        let written = work_dir.files().join(crate::workload::FILE);
        let written = written.display().to_string();
        let (printed, spent) = with_audit(work_dir, variant, || {
            work_dir.workload(CpuAffinity::First, &[CALLS, calls, &written])
        })?;
        Ok(Sample {
            values: vec![
                ("getpid", parse_value(&printed, "getpid")?),
                ("stat", parse_value(&printed, "stat")?),
                ("read", parse_value(&printed, "read")?),
                ("open and close", parse_value(&printed, "open")?),
            ],
            startup_line: spent.startup_line,
            ..Sample::default()
        })
    }
}
