//! The line that the daemon prints when it audits.

use std::fmt::{self, Display};
use std::path::Path;

use audit::plan::Plan;
use engine::{AttachedHooks, EngineKind, KernelFeatures, explain};

use crate::control::rule_store::LoadedRules;

/// The line that tells that auditing has begun.
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
            LoadedRules::InForce(rules) => write!(
                f,
                "auditing {calls} calls for {rules} rules through {} hooks, engine {engine}; {overhead}; log {log}",
                attached.hooks.len(),
            )?,
            LoadedRules::Disabled(rules) => write!(
                f,
                "auditing nothing: `-e 0` is in force, and {rules} rules are loaded, engine {engine}; log {log}"
            )?,
        }
        if !attached.absent.is_empty() {
            write!(
                f,
                "; this kernel does not have {}",
                attached.absent.join(", ")
            )?;
        }
        Ok(())
    }
}

/// The cost of the rules in words.
pub(super) fn overhead(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> String {
    let overhead = explain(plan, engine, kernel).price;
    match overhead.paying_syscall_ns {
        Some(paying) => format!(
            "every syscall pays about {} ns, those named about {paying} ns more",
            overhead.every_syscall_ns
        ),
        None => "syscalls that are not named pay nothing".to_owned(),
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
            "auditing 3 calls for 2 rules through 0 hooks, engine tracepoint; it costs; log /x"
        );
        ready.rules = LoadedRules::Disabled(2);
        assert_eq!(
            ready.to_string(),
            "auditing nothing: `-e 0` is in force, and 2 rules are loaded, engine tracepoint; log /x"
        );
    }
}
