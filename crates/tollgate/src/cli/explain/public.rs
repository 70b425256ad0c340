//! Checks with public rule sets: every line is supported, or reported with the reason.
//!
//! They are read from `../shared/rulesets` beside the repository, or from `TOLLGATE_RULESETS`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::rule_files::RuleFile;

/// Numbers of the lines that are neither empty nor a comment.
fn command_lines(text: &[u8]) -> BTreeSet<u32> {
    let lines = (1..).zip(text.split(|&byte| byte == b'\n'));
    lines
        .filter(|(_, line)| {
            let line = line.trim_ascii();
            !line.is_empty() && !line.starts_with(b"#")
        })
        .map(|(number, _)| number)
        .collect()
}

#[track_caller]
fn every_line_is_accounted_for(path: &Path) {
    let file = RuleFile::parse(path.to_owned(), std::fs::read(path).unwrap());
    let settings = file
        .lines
        .iter()
        .filter(|line| !matches!(line.command, audit::rule::Command::Add { .. }));
    let mut accounted: BTreeSet<u32> = settings.map(|line| line.number).collect();
    accounted.extend(file.source.diagnostics.iter().map(|found| found.line));
    let expected = command_lines(&file.source.bytes);

    let parts = (path.to_owned(), file.lines, file.source.diagnostics);
    let explained = Explained::new([parts], EngineKind::Tracepoint, KernelFeatures::V5_15);
    accounted.extend(explained.plan.rules.iter().map(|rule| rule.line));
    let plan = &explained.plan;
    let not_compiled = [
        plan.exclude_list.rules(),
        plan.user_list.rules(),
        plan.filesystem_list.rules(),
    ];
    accounted.extend(not_compiled.into_iter().flatten().map(|listed| listed.line));
    accounted.extend(explained.plan.unsupported.iter().map(|rule| rule.line));
    accounted.extend(explained.findings.iter().map(|(_, found)| found.line));
    assert_eq!(
        expected.difference(&accounted).collect::<Vec<_>>(),
        Vec::<&u32>::new(),
        "lines of {} that are neither supported nor reported",
        path.display()
    );

    assert!(text::render(&explained).contains("\ntotal, engine "));
    let json: serde_json::Value = serde_json::from_str(&json::render(&explained).unwrap()).unwrap();
    assert!(json.is_object());
}

#[test]
fn lines_of_public_rule_files_are_honoured_or_named() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/rulesets");
    let sets = std::env::var_os("TOLLGATE_RULESETS").map_or(default, PathBuf::from);
    let mut files = 0;
    for set in ["neo23x0-auditd", "audit-userspace-4.2.2"] {
        let Ok(entries) = std::fs::read_dir(sets.join(set)) else {
            eprintln!(
                "no rule set in `{}`: nothing was checked",
                sets.join(set).display()
            );
            return;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "rules") {
                every_line_is_accounted_for(&path);
                files += 1;
            }
        }
    }
    assert!(files > 30, "{files} files");
}
