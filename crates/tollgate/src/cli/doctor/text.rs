//! The facts as text.

use std::fmt::Write as _;

use super::facts::{Facts, Hook, KernelAudit, MISSING, System, Verdict};

/// What only securityfs tells is not known.
const UNMOUNTED: &str = "not known: securityfs is not mounted";

/// Columns of labels.
const WIDTH: usize = 16;

pub(super) fn render(facts: &Facts) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        // Writing to a string does not fail.
        let _written = writeln!(text, "{label:<WIDTH$}{value}");
    };
    if let Some(system) = &facts.system {
        system_lines(system, &mut line);
    }
    for engine in &facts.engines {
        let value = engine.refusal.as_ref().map_or_else(
            || "starts".to_owned(),
            |refusal| format!("does not start: {refusal}"),
        );
        line(&format!("{}:", engine.name), &value);
    }
    let count = |state| {
        facts
            .hooks
            .iter()
            .filter(|hook| hook.state == state)
            .count()
    };
    if !facts.hooks.is_empty() {
        line(
            "hooks:",
            &format!(
                "{} found, {} under another name or with other arguments, {} not needed, {} missing",
                count("found"),
                count("replaced"),
                count("unneeded"),
                count(MISSING)
            ),
        );
    }
    for hook in &facts.hooks {
        if let Some(value) = hook_line(hook) {
            line("", &value);
        }
    }
    if !facts.unseen_operations.is_empty() {
        line(
            "io_uring:",
            &format!("not seen: {}", facts.unseen_operations.join(", ")),
        );
    }
    line("result:", &verdict(facts));
    text
}

fn system_lines(system: &System, line: &mut impl FnMut(&str, &str)) {
    line("kernel:", &format!("{} {}", system.release, system.version));
    line(
        "preemption:",
        system
            .preemption
            .as_deref()
            .unwrap_or("not known: a BPF program reads it, and none could be loaded"),
    );
    let modules = system.security_modules.as_ref();
    let modules = modules.map(|modules| modules.join(", "));
    line("LSMs:", modules.as_deref().unwrap_or(UNMOUNTED));
    let lockdown = system.lockdown.as_deref();
    line(
        "lockdown:",
        match modules {
            Some(_) => lockdown.unwrap_or("not active"),
            None => UNMOUNTED,
        },
    );
    let btf = match (&system.btf_error, system.btf_bytes) {
        (Some(error), _) => error.clone(),
        (None, Some(bytes)) => format!("{bytes} bytes"),
        (None, None) => "missing".to_owned(),
    };
    line("BTF:", &btf);
    line(
        "ftrace:",
        match system.ftrace_enabled {
            Some(true) => "enabled",
            Some(false) => {
                "disabled: programs on functions do not run (`sysctl kernel.ftrace_enabled=1`)"
            }
            None => "missing: the kernel has no programs on functions",
        },
    );
    let mounted = |is_mounted| if is_mounted { "mounted" } else { "not mounted" };
    line("tracefs:", mounted(system.tracefs_mounted));
    line("bpffs:", mounted(system.bpffs_mounted));
    line("kernel audit:", &kernel_audit(&system.kernel_audit));
}

fn kernel_audit(audit: &KernelAudit) -> String {
    if let Some(error) = &audit.error {
        return format!("not known: {error}");
    }
    let mut causes = Vec::new();
    if audit.enabled {
        causes.push("enabled".to_owned());
    }
    causes.extend(audit.command_line.clone());
    if audit.rules != 0 {
        causes.push(format!("{} rules", audit.rules));
    }
    if audit.daemon != 0 {
        let name = audit.daemon_name.as_deref().unwrap_or("unknown");
        causes.push(format!("daemon {name} ({})", audit.daemon));
    }
    if causes.is_empty() {
        causes.push("off".to_owned());
    }
    let slows = if audit.slows_syscalls {
        "; every system call is slower"
    } else {
        ""
    };
    format!("{}{slows}", causes.join(", "))
}

/// A line for a hook that is not as on the oldest kernels.
fn hook_line(hook: &Hook) -> Option<String> {
    if let Some(lacks) = &hook.lacks {
        return Some(format!("missing  {}: no {lacks}", hook.function));
    }
    let replaces = hook.replaces?;
    let since = hook.since.unwrap_or_default();
    Some(if replaces == hook.function {
        format!("replaced {replaces}: other arguments since {since}")
    } else {
        format!("replaced {replaces}: {} since {since}", hook.function)
    })
}

fn verdict(facts: &Facts) -> String {
    let engine = facts.engine.unwrap_or_default();
    match (facts.verdict, &facts.system) {
        (Verdict::Complete, None) => "no hook is missing".to_owned(),
        (Verdict::Limited, None) => "hooks are missing".to_owned(),
        (Verdict::Complete, Some(_)) => format!("complete, engine {engine}"),
        (Verdict::Limited, Some(_)) => {
            format!("limited, engine {engine}; see tollgate-daemon(8), ENGINES")
        }
        (Verdict::Refused, _) => "the daemon does not start on this kernel".to_owned(),
        (Verdict::Unknown, _) => "not known: only root can find out which engine starts".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::facts::EngineFacts;
    use super::*;

    fn hook(function: &'static str) -> Hook {
        Hook {
            function,
            replaces: None,
            kind: "fexit",
            state: "found",
            since: None,
            purpose: "Object.",
            lacks: None,
        }
    }

    #[test]
    fn hooks_that_differ_are_listed_and_messages_of_bpf_are_not() {
        let engine = EngineFacts {
            name: "fentry",
            starts: false,
            refusal: Some("a policy forbids it".to_owned()),
            detail: Some("libbpf: -EPERM".to_owned()),
            verified: BTreeMap::new(),
        };
        let facts = Facts {
            verdict: Verdict::Refused,
            engine: None,
            engines: vec![engine],
            system: None,
            hooks: vec![
                hook("vfs_link"),
                Hook {
                    replaces: Some("do_filp_open"),
                    state: "replaced",
                    since: Some("7.0"),
                    ..hook("do_file_open")
                },
                Hook {
                    state: MISSING,
                    lacks: Some("names of unlink".to_owned()),
                    ..hook("may_delete")
                },
            ],
            unseen_operations: vec!["nop"],
        };
        assert_eq!(
            render(&facts),
            "\
fentry:         does not start: a policy forbids it
hooks:          1 found, 1 under another name or with other arguments, 0 not needed, 1 missing
                replaced do_filp_open: do_file_open since 7.0
                missing  may_delete: no names of unlink
io_uring:       not seen: nop
result:         the daemon does not start on this kernel
"
        );
    }

    #[test]
    fn what_arms_the_kernels_audit_is_named() {
        let audit = KernelAudit {
            enabled: true,
            rules: 2,
            daemon: 7,
            daemon_name: Some("auditd".to_owned()),
            command_line: Some("audit=1".to_owned()),
            slows_syscalls: true,
            ..KernelAudit::default()
        };
        assert_eq!(
            kernel_audit(&audit),
            "enabled, audit=1, 2 rules, daemon auditd (7); every system call is slower"
        );
        assert_eq!(kernel_audit(&KernelAudit::default()), "off");
    }
}
