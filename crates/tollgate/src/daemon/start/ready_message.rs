//! The message that auditing has started.

use std::fmt::{self, Display};
use std::path::Path;

use audit::plan::Plan;
use engine::{AttachedHooks, EngineKind, KernelFeatures, explain};

use crate::control::rule_store::LoadedRules;
use crate::messages::count;

/// The message that auditing has started.
pub(crate) struct ReadyMessage<'a> {
    pub(crate) rules: LoadedRules,
    pub(crate) calls: usize,
    pub(crate) engine: &'a str,
    pub(crate) attached: &'a AttachedHooks,
    pub(crate) overhead: &'a str,
    pub(crate) log: &'a Path,
}

impl Display for ReadyMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            engine,
            rules,
            calls,
            attached,
            overhead,
            log,
        } = self;
        let log = log.display();
        match rules {
            LoadedRules::InForce(0) => write!(
                f,
                "auditing nothing: no rule is loaded, engine {engine}; write rules to /etc/audit/rules.d, then run \
                 `tollgate augenrules --load`; log {log}"
            )?,
            LoadedRules::InForce(rules) => write!(
                f,
                "auditing {} for {} through {}, engine {engine}; {overhead}; log {log}",
                count(*calls, "syscall"),
                count(*rules, "rule"),
                count(attached.hooks.len(), "hook"),
            )?,
            LoadedRules::Disabled(rules) => write!(
                f,
                "auditing nothing: `-e 0` is in force; {} loaded, engine {engine}; log {log}",
                count(*rules, "rule"),
            )?,
        }
        if !attached.absent.is_empty() {
            write!(
                f,
                "; missing in this kernel: {}",
                attached.absent.join(", ")
            )?;
        }
        Ok(())
    }
}

/// The overhead of the rules in words.
pub(super) fn overhead(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> String {
    let overhead = explain(plan, engine, kernel).price;
    match overhead.paying_syscall_ns {
        Some(paying) => format!(
            "overhead about {} ns per syscall, {paying} ns more if the rules name it",
            overhead.every_syscall_ns
        ),
        None => "no overhead for other syscalls".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_rules_are_counted() {
        let mut ready = ReadyMessage {
            rules: LoadedRules::InForce(2),
            calls: 3,
            engine: "tracepoint",
            attached: &AttachedHooks::default(),
            overhead: "it costs",
            log: Path::new("/x"),
        };
        assert_eq!(
            ready.to_string(),
            "auditing 3 syscalls for 2 rules through 0 hooks, engine tracepoint; it costs; log /x"
        );
        ready.rules = LoadedRules::Disabled(2);
        assert_eq!(
            ready.to_string(),
            "auditing nothing: `-e 0` is in force; 2 rules loaded, engine tracepoint; log /x"
        );
    }
}
