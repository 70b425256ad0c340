//! What decides which engine a kernel supports, and what records lack there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::Context as _;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::parse_file;
use engine::{
    Engine, EngineError, EngineKind, EngineOptions, HookState, KernelProbe, ObjectStorage,
    Preemption,
};
use netlink::AuditSummary;
use nix::unistd::geteuid;
use serde::Serialize;

use crate::config::tollgate_toml::EngineChoice;
use crate::host::{self, Planner, ThisMachine};

/// Size of the ring while programs are loaded to see whether they can be.
const RING_BYTES: u32 = 1 << 20;

/// The facts. Scripts depend on the names: members are added, never renamed.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) verdict: Verdict,
    /// The engine that `--engine auto` takes for rules about every object.
    pub(super) engine: Option<&'static str>,
    pub(super) engines: Vec<EngineFacts>,
    /// Facts of the running system; `null` with `--btf`.
    pub(super) system: Option<System>,
    pub(super) hooks: Vec<Hook>,
    /// Operations of `io_uring` that the engine fentry does not see.
    pub(super) unseen_operations: Vec<&'static str>,
}

/// The result in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The best engine starts, and no hook is missing.
    Complete,
    /// An engine starts; something is missing.
    Limited,
    /// No engine starts.
    Refused,
    /// Only root can find out.
    Unknown,
}

/// Whether an engine starts.
#[derive(Debug, Serialize)]
pub(super) struct EngineFacts {
    pub(super) name: &'static str,
    pub(super) starts: bool,
    /// Why it does not start.
    pub(super) refusal: Option<String>,
    /// What the kernel and libbpf said about it.
    pub(super) detail: Option<String>,
    /// Instructions that the verifier has processed, by program.
    pub(super) verified: BTreeMap<String, u64>,
}

/// Facts of the running system.
#[derive(Debug, Serialize)]
pub(super) struct System {
    /// `uname -r` and `uname -v`.
    pub(super) release: String,
    pub(super) version: String,
    /// The mode; `null` if it is not known.
    pub(super) preemption: Option<String>,
    /// Active security modules; `null` without securityfs.
    pub(super) security_modules: Option<Vec<String>>,
    /// The active mode of lockdown; `null` without it.
    pub(super) lockdown: Option<String>,
    /// Size of the kernel's BTF in bytes; `null` without it.
    pub(super) btf_bytes: Option<u64>,
    /// Why the kernel's type information cannot be used.
    pub(super) btf_error: Option<String>,
    /// `kernel.ftrace_enabled`; `null` if the kernel has none.
    pub(super) ftrace_enabled: Option<bool>,
    pub(super) tracefs_mounted: bool,
    pub(super) bpffs_mounted: bool,
    pub(super) kernel_audit: KernelAudit,
}

/// What makes the kernel's own audit run at system calls.
#[derive(Debug, Default, Serialize)]
pub(super) struct KernelAudit {
    /// Why the rest is not known.
    pub(super) error: Option<String>,
    pub(super) enabled: bool,
    pub(super) rules: usize,
    /// The registered audit daemon, 0 for none, and its name.
    pub(super) daemon: u32,
    pub(super) daemon_name: Option<String>,
    /// Whether `audit=` on the kernel's command line enables it.
    pub(super) command_line: Option<String>,
    /// Whether system calls are slower because of it.
    pub(super) slows_syscalls: bool,
}

/// A function inside the kernel that the engine fentry hooks.
#[derive(Debug, Serialize)]
pub(super) struct Hook {
    pub(super) function: &'static str,
    /// The function of the oldest kernels.
    pub(super) replaces: Option<&'static str>,
    /// `fentry`, `fexit` or `fmod_ret`.
    pub(super) kind: &'static str,
    pub(super) state: &'static str,
    /// First kernel with this form.
    pub(super) since: Option<&'static str>,
    pub(super) purpose: &'static str,
    /// What records lack without it.
    pub(super) lacks: Option<String>,
}

impl Facts {
    /// The facts of this machine.
    pub(super) fn of_this_machine() -> Self {
        let mut system = System::read();
        let probe = match host::kernel_probe() {
            Ok(probe) => probe,
            Err(error) => {
                system.btf_error = Some(format!("{error:#}"));
                return Self {
                    verdict: Verdict::Refused,
                    engine: None,
                    engines: Vec::new(),
                    system: Some(system),
                    hooks: Vec::new(),
                    unseen_operations: Vec::new(),
                };
            }
        };
        let mut facts = Self::of_probe(&probe);
        if !geteuid().is_root() {
            facts.verdict = Verdict::Unknown;
            facts.system = Some(system);
            return facts;
        }
        let plan = plan_of_all_hooks();
        for kind in EngineChoice::Auto.kinds() {
            let (engine, preemption) = EngineFacts::check(&probe, &plan, kind);
            if let Some(preemption) = preemption.filter(|&mode| mode != Preemption::Unknown) {
                system.preemption = Some(preemption.to_string());
            }
            if engine.starts && facts.engine.is_none() {
                facts.engine = Some(engine.name);
            }
            facts.engines.push(engine);
        }
        let best = EngineChoice::Auto.kinds().first().map(|kind| kind.name());
        facts.verdict = match facts.engine {
            None => Verdict::Refused,
            Some(_) if facts.engine == best => facts.verdict,
            Some(_) => Verdict::Limited,
        };
        facts.system = Some(system);
        facts
    }

    /// The hooks of the kernel whose BTF is in a file.
    pub(super) fn of_file(path: &Path) -> anyhow::Result<Self> {
        let unreadable = || format!("cannot read the BTF in `{}`", path.display());
        // libbpf's errors do not tell a missing file.
        File::open(path).with_context(unreadable)?;
        let probe = KernelProbe::read_file(path).with_context(unreadable)?;
        Ok(Self::of_probe(&probe))
    }

    /// The hooks alone: the verdict says whether one is missing.
    fn of_probe(probe: &KernelProbe) -> Self {
        let reports = probe.kernel.hook_reports();
        let hooks: Vec<Hook> = reports
            .into_iter()
            .map(|report| Hook {
                function: report.function,
                replaces: (report.state == HookState::Replaced).then(|| report.hook.function()),
                kind: report.kind,
                state: match report.state {
                    HookState::Found => "found",
                    HookState::Replaced => "replaced",
                    HookState::Unneeded => "unneeded",
                    HookState::Missing => MISSING,
                },
                since: report.since,
                purpose: report.hook.purpose(),
                lacks: (report.state == HookState::Missing).then(|| report.hook.lacks()),
            })
            .collect();
        let is_complete =
            probe.unseen_operations.is_empty() && !hooks.iter().any(|hook| hook.state == MISSING);
        Self {
            verdict: if is_complete {
                Verdict::Complete
            } else {
                Verdict::Limited
            },
            engine: None,
            engines: Vec::new(),
            system: None,
            hooks,
            unseen_operations: probe.unseen_operations.clone(),
        }
    }
}

/// [`Hook::state`] of a hook that is missing.
pub(super) const MISSING: &str = "missing";

impl EngineFacts {
    /// Loads the programs of an engine, without attaching them; also returns the kernel's preemption mode.
    fn check(probe: &KernelProbe, plan: &Plan, kind: EngineKind) -> (Self, Option<Preemption>) {
        let mut storage = ObjectStorage::default();
        let options = EngineOptions {
            ring_bytes: RING_BYTES,
            ..EngineOptions::default()
        };
        let mut facts = Self {
            name: kind.name(),
            starts: false,
            refusal: None,
            detail: None,
            verified: BTreeMap::new(),
        };
        let preemption = match Engine::check(&mut storage.slots(), probe, plan, kind, options) {
            Ok(checked) => {
                facts.starts = true;
                facts.verified = checked.verified.into_iter().collect();
                Some(checked.preemption)
            }
            Err(error) => {
                facts.refusal = Some(error.cause());
                let preemption = match &error {
                    EngineError::Preempts { risk, .. } => Some(risk.preemption),
                    _ => None,
                };
                facts.detail = Some(format!("{:#}", anyhow::Error::from(error)));
                preemption
            }
        };
        (facts, preemption)
    }
}

/// A plan that needs every internal hook but those that deny.
fn plan_of_all_hooks() -> Plan {
    let names = engine::hooked_syscalls().join(",");
    let rule = format!("-a always,exit -F arch=b64 -S {names} -k doctor\n");
    let mut list = RuleList::default();
    list.load(0, parse_file(rule.as_bytes(), &ThisMachine).0);
    Planner::for_this_machine(Vec::new()).plan(list.into_rules())
}

impl System {
    fn read() -> Self {
        let name = nix::sys::utsname::uname().ok();
        let word = |word: Option<&std::ffi::OsStr>| {
            word.unwrap_or_default().to_string_lossy().into_owned()
        };
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let is_mounted = |kind: &str| {
            let mut kinds = mounts.lines().map(|line| line.split(' ').nth(2));
            kinds.any(|found| found == Some(kind))
        };
        let modules = fs::read_to_string("/sys/kernel/security/lsm").ok();
        let ftrace = fs::read_to_string("/proc/sys/kernel/ftrace_enabled").ok();
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").ok();
        Self {
            release: word(name.as_ref().map(nix::sys::utsname::UtsName::release)),
            version: word(name.as_ref().map(nix::sys::utsname::UtsName::version)),
            preemption: None,
            security_modules: modules
                .map(|text| text.trim().split(',').map(str::to_owned).collect()),
            lockdown: lockdown.as_deref().and_then(selected).map(str::to_owned),
            btf_bytes: fs::metadata("/sys/kernel/btf/vmlinux")
                .ok()
                .map(|file| file.len()),
            btf_error: None,
            ftrace_enabled: ftrace.map(|text| text.trim() != "0"),
            tracefs_mounted: is_mounted("tracefs"),
            bpffs_mounted: is_mounted("bpf"),
            kernel_audit: KernelAudit::read(),
        }
    }
}

/// The word in brackets.
fn selected(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

impl KernelAudit {
    fn read() -> Self {
        let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        let option = line
            .split_whitespace()
            .find(|word| word.starts_with("audit="));
        Self::of(AuditSummary::query(), option)
    }

    fn of(summary: io::Result<AuditSummary>, option: Option<&str>) -> Self {
        let command_line = option.map(str::to_owned);
        match summary {
            Ok(summary) => Self {
                error: None,
                enabled: summary.enabled,
                rules: summary.rules,
                daemon: summary.pid,
                daemon_name: fs::read_to_string(format!("/proc/{}/comm", summary.pid))
                    .ok()
                    .map(|name| name.trim().to_owned()),
                command_line,
                slows_syscalls: summary.slows_syscalls(),
            },
            Err(error) => Self {
                error: Some(crate::messages::without_errno(&error.to_string()).into_owned()),
                command_line,
                ..Self::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_mode_is_the_word_in_brackets() {
        assert_eq!(
            selected("none [integrity] confidentiality\n"),
            Some("integrity")
        );
        assert_eq!(selected("none"), None);
    }

    #[test]
    fn plan_names_every_hooked_syscall() {
        let plan = plan_of_all_hooks();
        assert_eq!(plan.syscalls.len(), engine::hooked_syscalls().len());
        assert_eq!(plan.unsupported, []);
    }

    #[test]
    fn state_of_the_kernels_audit_is_told_from_an_error() {
        let summary = AuditSummary {
            enabled: true,
            rules: 3,
            ..AuditSummary::default()
        };
        let armed = KernelAudit::of(Ok(summary), Some("audit=1"));
        assert!(armed.slows_syscalls && armed.enabled && armed.rules == 3);
        let refused = KernelAudit::of(Err(io::Error::from_raw_os_error(1)), None);
        assert_eq!(refused.error.as_deref(), Some("Operation not permitted"));
    }
}
