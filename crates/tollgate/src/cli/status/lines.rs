//! Texts of the lines of `tollgate status`.

use std::collections::BTreeMap;

use crate::control::protocol::{
    KernelAuditStatus, KernelRecordStatus, LogSuspension, OwnerCounts, RefusedFiles, RuleCounts,
};
use crate::messages;

/// Lines about refused files: why, what is in force, and what to type.
pub(super) fn refused_files(refused: &RefusedFiles) -> [(&'static str, String); 3] {
    let reason = messages::escape_control(&refused.reason);
    let in_force = match refused.last_good {
        Some(loaded) => format!(
            "the last good rules and settings, loaded from files at {}",
            messages::utc(loaded)
        ),
        None => "the rules and settings before the reload".to_owned(),
    };
    [
        (
            "REFUSED",
            format!("for {}: {reason}", duration(refused.seconds)),
        ),
        ("", format!("in force: {in_force}")),
        (
            "",
            "correct the file, then run `tollgate augenrules --load`, or after tollgate.toml `systemctl restart tollgate`".to_owned(),
        ),
    ]
}

/// Lines about the rules in force: how many there are, and what they name.
pub(super) fn rule_lines(
    rules: u64,
    calls: u64,
    denying: u64,
    absent: &[String],
) -> Vec<(&'static str, String)> {
    let mut lines = vec![("rules", format!("{rules}, naming {calls} syscalls"))];
    if denying != 0 {
        let denying = messages::count(usize::try_from(denying).unwrap_or(usize::MAX), "rule");
        lines.push((
            "denied",
            format!("syscalls of {denying} while they cannot be recorded"),
        ));
    }
    if !absent.is_empty() {
        lines.push((
            "absent",
            format!("not in this kernel: {}", absent.join(", ")),
        ));
    }
    lines
}

/// Lost events by reason, by rule, and by whose tasks they were.
pub(super) fn losses(
    by_reason: &BTreeMap<String, u64>,
    by_rule: &[RuleCounts],
    by_owner: &[OwnerCounts],
) -> Vec<String> {
    let reasons = by_reason
        .iter()
        .map(|(reason, lost)| format!("{lost} {reason}"));
    let rules = by_rule.iter().filter_map(|RuleCounts { rule, lost, .. }| {
        let lost: u64 = lost.values().sum();
        (lost != 0).then(|| format!("{lost} by rule {rule}"))
    });
    let owners = by_owner
        .iter()
        .map(|owner| format!("{} by {}", owner.lost, owner.name()));
    reasons.chain(rules).chain(owners).collect()
}

/// The line about clients that watch.
pub(super) fn watching(viewers: u64) -> Option<(&'static str, String)> {
    (viewers != 0).then(|| ("viewers", viewers.to_string()))
}

/// Lines about rules of other programs in the kernel's own audit.
pub(super) fn active_kernel_audit(kernel: &KernelAuditStatus) -> Vec<(&'static str, String)> {
    if !kernel.slows_syscalls {
        return Vec::new();
    }
    let rules = usize::try_from(kernel.rules).unwrap_or(usize::MAX);
    let rules = messages::count(rules, "rule");
    let state = format!("the kernel's own audit is active with {rules}: it slows every syscall");
    let advice = "load rules with `tollgate augenrules --load`, and delete the kernel's with `auditctl -D` of the package auditd";
    vec![("kernel", state), ("", advice.to_owned())]
}

/// Why and for how long nothing is written to the log.
pub(super) fn suspension(suspended: &LogSuspension) -> String {
    let LogSuspension {
        setting,
        reason,
        since: _,
        seconds,
        events,
    } = suspended;
    format!(
        "for {}, {events} events not written: {setting}: {}",
        duration(*seconds),
        messages::escape_control(reason)
    )
}

/// Formats the counters of the kernel's records; losses only if there are any.
pub(super) fn kernel_counts(messages: &KernelRecordStatus) -> String {
    let KernelRecordStatus {
        reader,
        received,
        excluded,
        written,
        unwritten,
        refused,
        overruns,
        lost,
        backlog,
    } = messages;
    let always = [
        reader.clone(),
        format!("{received} received"),
        format!("{written} written"),
    ];
    let losses = [
        (*excluded, "excluded"),
        (*unwritten, "not written"),
        (*refused, "refused"),
        (*overruns, "receive buffer overruns"),
        (*lost, "lost by the kernel"),
        (u64::from(*backlog), "waiting in the kernel"),
    ];
    let losses = losses.iter().filter(|(count, _)| *count != 0);
    let losses = losses.map(|(count, what)| format!("{count} {what}"));
    always
        .into_iter()
        .chain(losses)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Formats seconds in the two largest units.
pub(super) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_shown_by_owner() {
        let owner = |uid, namespace| OwnerCounts {
            uid,
            namespace,
            lost: 7,
        };
        let owners = [
            owner(Some(1001), None),
            owner(None, Some(4_026_532_210)),
            owner(None, None),
        ];
        assert_eq!(
            losses(&BTreeMap::new(), &[], &owners),
            ["7 by uid 1001", "7 by namespace 4026532210", "7 by others"]
        );
    }
}
