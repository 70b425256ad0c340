//! What the daemon gives up before its first thread starts, so that every thread is without it.
//!
//! | measure | what holds from then on |
//! | --- | --- |
//! | capabilities | only [`KEPT_CAPABILITIES`], and where tracepoints need it `SYS_ADMIN`, in no inherited set and in no bounding set |
//! | no new privileges | no program that it could start would have more |
//! | Landlock | it writes only below the directories given here, starts nothing, and signals nobody else |
//!
//! What it must start nevertheless the launcher starts, which keeps its rights: see [`crate::helper`].

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

/// Capabilities that the daemon needs as long as it runs.
///
/// `BPF` and `PERFMON` load and attach programs when rules change; `AUDIT_CONTROL` and `AUDIT_READ` talk with
/// the kernel's audit; `SYSLOG` shows the addresses of kernel variables that programs read (without it
/// `/proc/kallsyms` has zeros); `DAC_READ_SEARCH` looks up watched paths and reads rule files wherever they are;
/// `CHOWN` gives a new log to `log_group`; `SYS_NICE` lets threads come before what they audit.
const KEPT_CAPABILITIES: [Capability; 8] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_NICE,
    Capability::CAP_AUDIT_CONTROL,
    Capability::CAP_SYSLOG,
    Capability::CAP_AUDIT_READ,
    Capability::CAP_PERFMON,
    Capability::CAP_BPF,
];
/// Says who may open tracepoints, as perf events.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Up to this, `PERFMON` is enough. Debian's kernels add a level above, which is their default and asks for
/// `SYS_ADMIN`: their patch "security,perf: Allow further restriction of `perf_event_open`", 6.1 and 6.12.
const PARANOID_UPSTREAM: i32 = 2;

/// Newest version of Landlock whose rights were weighed here; later ones add rights that are left alone.
const LANDLOCK_ABI: ABI = ABI::V7;

/// The capabilities that one of these engines needs on this machine.
fn kept_capabilities(engines: &[EngineKind]) -> Vec<Capability> {
    let paranoid = fs::read_to_string(PARANOID).unwrap_or_default();
    let mut kept_capabilities = KEPT_CAPABILITIES.to_vec();
    if engines.contains(&EngineKind::Tracepoint)
        && paranoid
            .trim()
            .parse()
            .is_ok_and(|level: i32| level > PARANOID_UPSTREAM)
    {
        kept_capabilities.push(Capability::CAP_SYS_ADMIN);
    }
    kept_capabilities
}

/// Gives up what is not needed by any of these engines. Directories that do not exist are left out.
///
/// # Errors
/// When the kernel refuses what every process may do to itself. What this kernel does not have is no error:
/// the answer says what holds.
pub(super) fn confine(engines: &[EngineKind], writable: &[PathBuf]) -> anyhow::Result<Confinement> {
    let has = caps::read(None, CapSet::Permitted).context("cannot read the capabilities")?;
    let kept_capabilities: CapsHashSet = kept_capabilities(engines)
        .into_iter()
        .filter(|kept_capabilities| has.contains(kept_capabilities))
        .collect();
    let bounding = empty_bounding();
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept_capabilities).context("cannot give up capabilities")?;
    }
    for set in [CapSet::Inheritable, CapSet::Ambient] {
        caps::clear(None, set).context("cannot give up inherited capabilities")?;
    }
    prctl::set_no_new_privs().context("cannot give up new privileges")?;
    let mut capabilities: Vec<String> = kept_capabilities.iter().map(|cap| name(*cap)).collect();
    capabilities.sort();
    let (landlock, writable) =
        restrict_with_landlock(writable).context("cannot restrict what is written to")?;
    Ok(Confinement {
        capabilities,
        bounding,
        no_new_privileges: true,
        landlock,
        writable,
    })
}

/// Empties the bounding set; whether that was allowed. Without `CAP_SETPCAP`, as in some containers, it is
/// not, and stays as small as whoever started the daemon has made it.
fn empty_bounding() -> bool {
    let bounding = caps::read(None, CapSet::Bounding).unwrap_or_default();
    bounding
        .iter()
        .all(|&cap| caps::drop(None, CapSet::Bounding, cap).is_ok())
}

/// `CAP_AUDIT_READ` as `audit_read`.
fn name(cap: Capability) -> String {
    let name = cap.to_string().to_lowercase();
    name.strip_prefix("cap_").unwrap_or(&name).to_owned()
}

/// Lets the process write below these directories only; how much of that this kernel can do.
fn restrict_with_landlock(writable: &[PathBuf]) -> anyhow::Result<(String, Vec<String>)> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_write(LANDLOCK_ABI) | AccessFs::Execute)?
        .scope(Scope::Signal)?
        .create()?;
    let mut shown = Vec::new();
    for path in writable {
        // `/run/audit` needs not be there, and what is not there cannot be written to.
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
        _ => "not in this kernel".to_owned(),
    };
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => (format!("whole, {version}"), shown),
        RulesetStatus::PartiallyEnforced => (format!("in part, {version}"), shown),
        RulesetStatus::NotEnforced => (version, Vec::new()),
    })
}

/// What is done in a directory of the daemon: files and sockets come, are written to, and go.
fn directory_access() -> BitFlags<AccessFs> {
    AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// All of it is of the calling thread alone, and goes with it.
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
        // Kernels without Landlock are no reason not to audit: it is said.
        let holds = confinement.landlock.contains(',');
        assert_eq!((unwritten, unstarted), (holds, holds), "{confinement:?}");
        assert_eq!(confinement.writable.len(), usize::from(holds));
    }
}
