//! The line that the daemon prints when it audits.

use std::fmt::{self, Display};
use std::path::Path;

use audit::plan::Plan;
use engine::{AttachedHooks, EngineKind, KernelFeatures, explain};

use crate::control::rule_store::Rules;

/// The line that tells that auditing has begun.
pub(crate) struct Ready<'a> {
    pub(crate) rules: Rules,
    pub(crate) calls: usize,
    pub(crate) engine: &'a str,
    pub(crate) attached: &'a AttachedHooks,
    pub(crate) price: &'a str,
    pub(crate) log: &'a Path,
}

impl Display for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            engine,
            rules,
            calls,
            attached,
            price,
            log,
        } = self;
        let log = log.display();
        match rules {
            Rules::InForce(rules) => write!(
                f,
                "auditing {calls} calls for {rules} rules through {} hooks, engine {engine}; {price}; log {log}",
                attached.hooks.len(),
            )?,
            Rules::Disabled(rules) => write!(
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
pub(super) fn price(plan: &Plan, engine: EngineKind, kernel: KernelFeatures) -> String {
    let price = explain(plan, engine, kernel).price;
    match price.paying_syscall_ns {
        Some(paying) => format!(
            "every syscall pays about {} ns, those named about {paying} ns more",
            price.every_syscall_ns
        ),
        None => "syscalls that are not named pay nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_wait_are_not_told_as_none() {
        let mut ready = Ready {
            rules: Rules::InForce(2),
            calls: 3,
            engine: "tracepoint",
            attached: &AttachedHooks::default(),
            price: "it costs",
            log: Path::new("/x"),
        };
        assert_eq!(
            ready.to_string(),
            "auditing 3 calls for 2 rules through 0 hooks, engine tracepoint; it costs; log /x"
        );
        ready.rules = Rules::Disabled(2);
        assert_eq!(
            ready.to_string(),
            "auditing nothing: `-e 0` is in force, and 2 rules are loaded, engine tracepoint; log /x"
        );
    }
}
