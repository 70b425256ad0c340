//! Privileges that the daemon drops before it starts its first thread, so that every thread is confined.
//!
//! | measure | effect |
//! | --- | --- |
//! | capabilities | only [`KEPT_CAPABILITIES`], plus `SYS_ADMIN` where tracepoints need it; empty inheritable and
//! bounding sets |
//! | no new privileges | setuid bits and file capabilities are ignored at `execve` |
//! | Landlock | writes only below the given directories, executes nothing, signals no other process |
//!
//! The helper process keeps its privileges and starts the configured programs: see [`crate::helper`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use caps::{CapSet, Capability, CapsHashSet};
use engine::EngineKind;
use landlock::{
    ABI, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use nix::sys::prctl;

use crate::control::protocol::Confinement;

/// Capabilities that the daemon needs while it runs.
///
/// `BPF` and `PERFMON` load and attach programs when rules change. `AUDIT_CONTROL` and `AUDIT_READ` are for the
/// kernel's audit. `DAC_READ_SEARCH` resolves watched paths and reads rule files anywhere. `CHOWN` gives a new log to
/// `log_group`. `SYS_NICE` raises thread priorities.
const KEPT_CAPABILITIES: [Capability; 7] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_NICE,
    Capability::CAP_AUDIT_CONTROL,
    Capability::CAP_AUDIT_READ,
    Capability::CAP_PERFMON,
    Capability::CAP_BPF,
];
/// The sysctl that controls who may open tracepoints as perf events.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Up to this level `PERFMON` is sufficient. Debian's kernels add a level above, their default, which requires
/// `SYS_ADMIN`: patch "security,perf: Allow further restriction of `perf_event_open`" of 6.1 and 6.12.
const PARANOID_UPSTREAM: i32 = 2;

/// Newest Landlock ABI whose rights are handled here; rights of later ABIs are not restricted.
const LANDLOCK_ABI: ABI = ABI::V7;

/// Capabilities that one of these engines needs on this machine.
fn kept_capabilities(engines: &[EngineKind]) -> Vec<Capability> {
    let paranoid = fs::read_to_string(PARANOID).unwrap_or_default();
    let mut kept_capabilities = KEPT_CAPABILITIES.to_vec();
    let opens_events = |engine| matches!(engine, &EngineKind::Lsm | &EngineKind::Tracepoint);
    if engines.iter().any(opens_events)
        && paranoid
            .trim()
            .parse()
            .is_ok_and(|level: i32| level > PARANOID_UPSTREAM)
    {
        kept_capabilities.push(Capability::CAP_SYS_ADMIN);
    }
    kept_capabilities
}

/// Drops what none of these engines needs. Missing directories are skipped.
///
/// # Errors
/// The kernel refuses an operation that every process may do to itself. A feature that the kernel lacks is no error:
/// the result says what is enforced.
pub(super) fn confine(engines: &[EngineKind], writable: &[PathBuf]) -> anyhow::Result<Confinement> {
    let has = caps::read(None, CapSet::Permitted).context("cannot read capabilities")?;
    let kept_capabilities: CapsHashSet = kept_capabilities(engines)
        .into_iter()
        .filter(|kept_capabilities| has.contains(kept_capabilities))
        .collect();
    let bounding = empty_bounding();
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept_capabilities).context("cannot drop capabilities")?;
    }
    for set in [CapSet::Inheritable, CapSet::Ambient] {
        caps::clear(None, set).context("cannot drop inheritable capabilities")?;
    }
    prctl::set_no_new_privs().context("cannot set no_new_privs")?;
    let mut capabilities: Vec<String> = kept_capabilities.iter().map(|cap| name(*cap)).collect();
    capabilities.sort();
    let (landlock, writable) =
        restrict_with_landlock(writable).context("cannot restrict file access with Landlock")?;
    Ok(Confinement {
        capabilities,
        bounding,
        no_new_privileges: true,
        landlock,
        writable,
    })
}

/// Empties the bounding set and returns whether it could. Without `CAP_SETPCAP`, as in some containers, the set stays
/// as it is.
fn empty_bounding() -> bool {
    let bounding = caps::read(None, CapSet::Bounding).unwrap_or_default();
    bounding
        .iter()
        .all(|&cap| caps::drop(None, CapSet::Bounding, cap).is_ok())
}

/// Converts `CAP_AUDIT_READ` to `audit_read`.
fn name(cap: Capability) -> String {
    let name = cap.to_string().to_lowercase();
    name.strip_prefix("cap_").unwrap_or(&name).to_owned()
}

/// Restricts writes to these directories and returns the enforcement level.
fn restrict_with_landlock(writable: &[PathBuf]) -> anyhow::Result<(String, Vec<String>)> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_write(LANDLOCK_ABI) | AccessFs::Execute)?
        .scope(Scope::Signal)?
        .create()?;
    let mut shown = Vec::new();
    for path in writable {
        // `/run/audit` may be missing; then it cannot be written to.
        if let Ok(directory) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(directory, directory_access()))?;
            shown.push(Path::display(path).to_string());
        }
    }
    shown.sort();
    shown.dedup();
    let status = ruleset.restrict_self()?;
    let version = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => format!("{effective_abi:?}"),
        LandlockStatus::NotEnabled => "not enabled in this kernel".to_owned(),
        _ => "not supported by this kernel".to_owned(),
    };
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => (format!("fully enforced, {version}"), shown),
        RulesetStatus::PartiallyEnforced => (format!("partially enforced, {version}"), shown),
        RulesetStatus::NotEnforced => (version, Vec::new()),
    })
}

/// Access rights in a directory of the daemon: create, write and remove files and sockets, and create the directory of
/// indexes.
fn directory_access() -> BitFlags<AccessFs> {
    AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Applies to the calling thread only, and ends with it.
    #[test]
    fn confined_thread_writes_only_below_named_directories() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        let missing = place.path().join("missing");
        let confined = thread::spawn(move || {
            let confinement = confine(&[EngineKind::Fentry], &[inside.clone(), missing]).unwrap();
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            fs::write(inside.join("a"), "text").unwrap();
            fs::rename(inside.join("a"), inside.join("b")).unwrap();
            fs::remove_file(inside.join("b")).unwrap();
            let written = fs::write(outside.join("a"), "text");
            let started = Command::new("/bin/true").status();
            (confinement, status, written.is_err(), started.is_err())
        });
        let (confinement, status, unwritten, unstarted) = confined.join().unwrap();
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        let kept_capabilities: u64 = KEPT_CAPABILITIES.iter().map(Capability::bitmask).sum();
        for line in status.lines() {
            if let Some(bits) = line.strip_prefix("CapEff:\t") {
                let bits = u64::from_str_radix(bits, 16).unwrap();
                assert_eq!(bits & !kept_capabilities, 0, "{line}");
            }
        }
        // A kernel without Landlock is reported, not refused.
        let holds = confinement.landlock.contains(',');
        assert_eq!((unwritten, unstarted), (holds, holds), "{confinement:?}");
        assert_eq!(confinement.writable.len(), usize::from(holds));
    }
}
