//! Rules at the start of the daemon, and at a reload.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use audit::plan::Plan;
use engine::PinDirectory;
use nix::time::{ClockId, clock_getres};

use super::{DaemonConfig, RuleSource, fallback};
use crate::control::change_records::Requester;
use crate::control::lock_file::{LockFile, LockedState};
use crate::control::protocol::AuditSettings;
use crate::control::rule_store::{self, RuleStore};
use crate::control::server::Server;
use crate::daemon::pipeline_handle::PipelineHandle;
use crate::host::Planner;
use crate::json_bytes::JsonBytes;
use crate::messages::{count, info, warn};
use crate::rule_files::{self, CompiledRules, Refused, RuleText};
use crate::sinks::audit_log::LogConfig;

/// Creates the rule store from the state that `-e 2` locked, or from the rule files, or from the last good rules.
/// `None` if none of these can be loaded, which has been reported.
pub(super) fn open_rule_store(
    settings: &mut DaemonConfig,
    log_config: &mut LogConfig,
    server: Option<&Server>,
    pins: Option<&PinDirectory>,
) -> anyhow::Result<Option<RuleStore>> {
    let tick =
        clock_getres(ClockId::CLOCK_REALTIME_COARSE).context("cannot read the clock tick")?;
    let tick_ns = Duration::from(tick).as_nanos().max(1);
    let tick_hz = u32::try_from(1_000_000_000 / tick_ns).unwrap_or(1000);
    if let Some(pins) = pins {
        // Locked objects are for one daemon: this one from now on.
        pins.claim_guard().with_context(|| {
            format!(
                "cannot become the owner of the locked BPF programs in `{}`",
                pins.path().display()
            )
        })?;
        if let Err(error) = pins.exempt_daemon() {
            // Its start is audited, as that of another process.
            warn(&format!(
                "cannot exempt this daemon from auditing yet: {error}"
            ));
        }
    }
    let lock = LockFile::locate(server.map(Server::path), pins.map(PinDirectory::path))?;
    if let Some(locked) = lock.read()? {
        info(
            "`-e 2` was given since the last reboot: the locked rules are active, the rule files \
             are ignored",
        );
        apply_locked(&locked, settings, log_config)?;
        // Rule files were not read.
        settings.last_good = None;
        return RuleStore::restore(&locked, tick_hz, lock).map(Some);
    }
    let planner = Planner::for_this_machine(settings.rules.deny.clone());
    let consequence = match &settings.last_good {
        Some(_) => "the rule files are refused",
        None => rule_files::NOTHING_ATTACHED,
    };
    let kept = (settings.capture, lock);
    let compiled = compile_files(&settings.rules, &planner, consequence)
        .and_then(|listing| fallback::refuse_failed(listing, &planner, settings));
    match compiled {
        Ok(listing) => {
            let initial = rule_store::initial_settings(&listing.settings, tick_hz);
            if initial.enabled == rule_store::IMMUTABLE {
                warn_of_lock(settings.last_good.is_none(), &log_config.path);
            }
            let store = RuleStore::new(listing.rules, initial, planner, tick_hz, kept);
            settings.texts = listing.texts;
            Ok(Some(store))
        }
        Err(Refused(reason)) => {
            let Some(good) = fallback::rules(settings, reason)? else {
                return Ok(None);
            };
            let planner = Planner::for_this_machine(good.deny);
            fallback::report_unsupported(&planner.plan(good.rules.clone().into_rules()));
            let store = RuleStore::new(good.rules, good.settings, planner, tick_hz, kept);
            Ok(Some(store))
        }
    }
}

/// Reports what `-e 2` in the rule files will bind, before it does.
fn warn_of_lock(is_trial: bool, log: &Path) {
    let log = log.display();
    if is_trial {
        warn(&format!(
            "`-e 2` is in the rules of this trial: until the machine restarts, every later daemon continues with \
             these rules and writes to `{log}`, whatever its files and options say; remove `-e 2` from rules to try"
        ));
    } else {
        info(&format!(
            "`-e 2` locks the rules, the settings and the log `{log}` until the machine restarts; a new version of \
             tollgate starts only after that"
        ));
    }
}

/// Applies the locked capture and log settings, and reports configured settings that differ.
fn apply_locked(
    locked: &LockedState,
    settings: &mut DaemonConfig,
    log_config: &mut LogConfig,
) -> anyhow::Result<()> {
    let mut others = locked.capture.differences(settings.capture);
    let denies = settings.rules.deny.iter().map(|key| JsonBytes::new(key));
    if !denies.eq(locked.deny.iter().cloned()) {
        others.push("[on_loss] deny".to_owned());
    }
    if let Some(log) = &locked.log {
        let (locked_settings, of_log) = log_config
            .clone()
            .apply_locked(log)
            .context("cannot read the log settings that `-e 2` locked")?;
        *log_config = locked_settings;
        others.extend(of_log);
    }
    if !others.is_empty() {
        warn(&format!(
            "settings ignored because `-e 2` locked them: {}; reboot to change them",
            others.join(", ")
        ));
    }
    settings.capture = locked.capture;
    Ok(())
}

/// Reads and compiles the rule files. Prints every reason against them, and `consequence`.
fn compile_files(
    source: &RuleSource,
    planner: &Planner,
    consequence: &str,
) -> Result<CompiledRules, Refused> {
    let files = rule_files::read(&source.files).map_err(|error| {
        warn(&format!("{consequence}: {error:#}"));
        Refused(format!("{error:#}"))
    })?;
    rule_files::compile(files, source.partial, planner, consequence)
}

/// Rules and settings of rule files that have no error, to be put in force.
pub(in crate::daemon) struct NewRules {
    listing: CompiledRules,
    planner: Planner,
}

/// Rule files that are in force.
pub(in crate::daemon) struct LoadedFiles {
    pub(in crate::daemon) texts: Vec<RuleText>,
    /// The settings that they give.
    pub(in crate::daemon) settings: AuditSettings,
}

/// Reads and compiles the rule files for a reload.
///
/// # Errors
/// They have errors, which have been reported.
pub(in crate::daemon) fn read(source: &RuleSource, store: &RuleStore) -> Result<NewRules, Refused> {
    let planner = store.planner().denying(source.deny.clone());
    let listing = compile_files(source, &planner, rule_files::RULES_UNCHANGED)?;
    Ok(NewRules { listing, planner })
}

/// Puts new rules and settings in force, and reports the result.
///
/// # Errors
/// They are not in force: why.
pub(in crate::daemon) fn put_in_force(
    new: NewRules,
    author: Requester,
    store: &mut RuleStore,
    pipeline_handle: &mut PipelineHandle,
) -> Result<LoadedFiles, Refused> {
    let NewRules {
        mut listing,
        planner,
    } = new;
    let files = LoadedFiles {
        texts: std::mem::take(&mut listing.texts),
        settings: store.settings_of_files(&listing.settings),
    };
    apply(listing, planner, author, store, pipeline_handle).map_err(|error| {
        warn(&format!("{}: {error:#}", rule_files::RULES_UNCHANGED));
        Refused(format!("{error:#}"))
    })?;
    Ok(files)
}

/// Puts compiled rules in force, and reports them.
fn apply(
    listing: CompiledRules,
    planner: Planner,
    author: Requester,
    store: &mut RuleStore,
    pipeline_handle: &mut PipelineHandle,
) -> anyhow::Result<()> {
    let plan = listing.plan;
    let (rules, calls) = (plan.rules.len(), plan.syscalls.len());
    // Also without rule files: rules added by commands must stay.
    ensure!(
        plan.records(),
        "the rules record nothing: no rule of the lists exit and io_uring has the action always; add one"
    );
    store.load(
        author,
        (listing.rules, &listing.settings),
        planner,
        pipeline_handle,
    )?;
    info(&format!(
        "rules replaced: {}, {}, {}{}",
        count(rules, "rule"),
        count(calls, "syscall"),
        count(pipeline_handle.attached.hooks.len(), "hook"),
        if store.is_recording() {
            ""
        } else {
            "; `-e 0` is in force: nothing is recorded"
        }
    ));
    report_denials(&plan);
    Ok(())
}

/// Reports rules that deny unrecorded syscalls, and which of their syscalls cannot be denied.
pub(super) fn report_denials(plan: &Plan) {
    let denies = plan.denying();
    if denies == 0 {
        return;
    }
    let undeniable_syscalls = engine::undeniable_syscalls(plan);
    info(&format!(
        "`[on_loss] deny`: syscalls that cannot be recorded are denied by {}{}{}",
        count(denies, "rule"),
        if undeniable_syscalls.is_empty() {
            ""
        } else {
            ", except "
        },
        undeniable_syscalls.join(", ")
    ));
}
