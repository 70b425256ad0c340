//! The fewest audit rules that record what Sigma rules need, and their text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use audit::ids::{Arch, Dialect, NativeArch};
use audit::plan::SyscallId;
use audit::table::listed_syscall_name;

use super::demand::{Demand, Kind, accesses};
use super::feed::Feed;
use crate::sigma::need::Place;

/// Audit rules for some events, one for each ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditRule {
    /// Lines of the rule file.
    pub(super) lines: Vec<String>,
    /// Numbers of the Sigma rules that it feeds.
    pub(super) feeds: BTreeSet<usize>,
}

/// The audit rules for the feeds of Sigma rules, by number. Those that record every access to any file, or every
/// syscall, are left out unless `with_excessive`.
pub(super) fn audit_rules<'f>(
    feeds: impl IntoIterator<Item = (usize, &'f Feed)>,
    with_excessive: bool,
) -> Vec<AuditRule> {
    let mut written: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let mut demands: BTreeMap<Demand, BTreeSet<usize>> = BTreeMap::new();
    for (number, feed) in feeds {
        match feed {
            Feed::Recorded(demand) if with_excessive || !demand.is_excessive() => {
                demands.entry(demand.clone()).or_default().insert(number);
            }
            Feed::Written { lines, .. } => {
                for line in lines {
                    written.entry(line).or_default().insert(number);
                }
            }
            Feed::Recorded(_) | Feed::Sent { .. } | Feed::Nothing(_) => {}
        }
    }
    // The first rule that matches an event gives it its key.
    let written = written.into_iter().map(|(line, feeds)| AuditRule {
        lines: vec![line.to_owned()],
        feeds,
    });
    let merged = without_parts(merged(demands));
    let (keyed, others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|own| own.demand.key.is_some());
    let made = keyed.into_iter().chain(others);
    let made = made.map(|own| AuditRule {
        lines: lines(&own.demand),
        feeds: own.feeds.into_values().flatten().collect(),
    });
    written.chain(made).collect()
}

/// A demand of Sigma rules.
#[derive(Clone, Debug)]
struct Shared {
    demand: Demand,
    /// For each of its syscalls, the numbers of the Sigma rules that need it.
    feeds: BTreeMap<SyscallId, BTreeSet<usize>>,
}

/// Joins demands that differ in their syscalls only.
fn merged(demands: BTreeMap<Demand, BTreeSet<usize>>) -> Vec<Shared> {
    let mut merged: Vec<Shared> = Vec::new();
    for (demand, feeds) in demands {
        let own = demand
            .syscalls
            .iter()
            .map(|&syscall| (syscall, feeds.clone()));
        let is_alike = |shared: &&mut Shared| {
            let other = &shared.demand;
            (other.kind, &other.place, &other.tests, &other.key)
                == (demand.kind, &demand.place, &demand.tests, &demand.key)
        };
        // They are sorted by what the others have in common.
        match merged.last_mut().filter(is_alike) {
            Some(shared) => {
                for (syscall, feeds) in own {
                    shared.feeds.entry(syscall).or_default().extend(feeds);
                }
                shared.demand.syscalls.extend(demand.syscalls);
            }
            None => merged.push(Shared {
                feeds: own.collect(),
                demand,
            }),
        }
    }
    merged
}

/// Removes syscalls of which another demand has all events too: that one then feeds the Sigma rules.
fn without_parts(mut demands: Vec<Shared>) -> Vec<Shared> {
    let mut at = 0;
    while let Some(own) = demands.get(at).cloned() {
        let includes = |number: &usize| {
            let other = demands.get(*number);
            *number != at && other.is_some_and(|other| own.demand.is_part_of(&other.demand))
        };
        let others: Vec<usize> = (0..demands.len()).filter(includes).collect();
        let has = |number: &usize, syscall: &SyscallId| {
            let other = demands.get(*number);
            other.is_some_and(|other| other.feeds.contains_key(syscall))
        };
        let mut moved: Vec<(SyscallId, usize)> = Vec::new();
        for syscall in own.feeds.keys() {
            let to = others.iter().find(|number| has(number, syscall));
            moved.extend(to.map(|to| (*syscall, *to)));
        }
        // A rule with `perm=rwxa` is shorter than one that names the other syscalls.
        if own.demand.kind == Kind::Access && moved.len() < own.feeds.len() {
            moved.clear();
        }
        for (syscall, to) in moved {
            let feeds = demands.get_mut(at).and_then(|own| {
                own.demand.syscalls.remove(&syscall);
                own.feeds.remove(&syscall)
            });
            if let Some(other) = demands.get_mut(to) {
                let known = other.feeds.entry(syscall).or_default();
                known.extend(feeds.into_iter().flatten());
            }
        }
        match demands.get(at).is_some_and(|own| own.feeds.is_empty()) {
            true => drop(demands.remove(at)),
            false => at += 1,
        }
    }
    demands
}

/// The lines of the rule file for a demand, one for each ABI that has its syscalls.
fn lines(demand: &Demand) -> Vec<String> {
    let abis = NativeArch::BUILD.abis().into_iter();
    abis.filter_map(|arch| line(demand, arch)).collect()
}

fn line(demand: &Demand, arch: Arch) -> Option<String> {
    let of_arch = |syscalls: &BTreeSet<SyscallId>| -> Vec<SyscallId> {
        let own = syscalls.iter().filter(|syscall| syscall.arch == arch);
        own.copied().collect()
    };
    let syscalls = of_arch(&demand.syscalls);
    if syscalls.is_empty() {
        return None;
    }
    let abi = if arch.is_64_bit() { "b64" } else { "b32" };
    let mut parts = vec![format!("-a always,exit -F arch={abi}")];
    let is_access = demand.kind == Kind::Access && syscalls == of_arch(&accesses());
    if demand.kind == Kind::Every {
        parts.push("-S all".to_owned());
    } else if !is_access {
        // `auditctl` 3 does not know the names of later syscalls.
        let name = |syscall: &SyscallId| {
            let name = listed_syscall_name(arch, syscall.syscall, Dialect::V3);
            name.map_or_else(|| syscall.syscall.0.to_string(), str::to_owned)
        };
        let mut names: Vec<String> = syscalls.iter().map(name).collect();
        names.sort_unstable();
        parts.push(format!("-S {}", names.join(",")));
    }
    match &demand.place {
        Place::Path(path) => parts.push(format!("-F path={path}")),
        Place::Below(directory) => parts.push(format!("-F dir={directory}")),
        Place::Anywhere => {}
    }
    if is_access {
        parts.push("-F perm=rwxa".to_owned());
    }
    parts.extend(demand.tests.iter().map(|test| format!("-F {test}")));
    let key = demand.key.as_deref().unwrap_or_else(|| demand.kind.key());
    parts.push(format!("-F key={key}"));
    Some(parts.join(" "))
}

/// Text of a rule file for `auditctl -R`. `name` returns the name of a Sigma rule.
pub(super) fn rule_file(rules: &[AuditRule], name: impl Fn(usize) -> String) -> String {
    let mut text =
        "## Audit rules for Sigma rules, made by `tollgate detect explain --audit-rules`.\n"
            .to_owned();
    if rules
        .iter()
        .flat_map(|rule| &rule.lines)
        .any(|line| names_path(line))
    {
        text += "\n## auditctl goes on if a directory does not exist on this machine.\n-i\n";
    }
    for (number, rule) in rules.iter().enumerate() {
        let previous = number.checked_sub(1).and_then(|before| rules.get(before));
        if previous.is_none_or(|previous| previous.feeds != rule.feeds) {
            text.push('\n');
            for number in &rule.feeds {
                // A backslash at the end of a line would join it with the next one in some tools.
                let name = name(*number).replace('\\', "/");
                let _infallible = writeln!(text, "# {name}");
            }
        }
        for line in &rule.lines {
            let _infallible = writeln!(text, "{line}");
        }
    }
    text
}

/// Whether the kernel refuses a rule if a directory does not exist.
///
/// # Source
/// `audit_to_watch`, `audit_make_tree` and `audit_alloc_mark` in `kernel/`, Linux 6.12.
fn names_path(line: &str) -> bool {
    ["-F path=", "-F dir=", "-F exe=", "-w "]
        .iter()
        .any(|option| line.contains(option))
}
