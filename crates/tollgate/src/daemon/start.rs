//! Start and stop of the daemon. Everything that can fail is checked before anything is attached.

pub(super) mod fallback;
mod ready_message;
pub(super) mod rules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use audit::plan::Plan;
use bstr::BString;
use engine::{EngineOptions, KernelProbe, PinDirectory, read_kernel_symbols};
use metrics::MetricsAddress;
use netlink::RecordStream;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::config::JsonLogConfig;
use crate::config::capture::CaptureOptions;
use crate::control::rule_store::LoadedRules;
use crate::control::server::{self, Server};
use crate::daemon::confinement::confine;
use crate::daemon::event_loop::EventLoop;
use crate::daemon::kernel_audit::{KernelAudit, KernelAuditMonitor};
use crate::daemon::last_good::LastGoodFile;
use crate::daemon::log_controller::{self as log_controller, LogController, LogSource};
use crate::daemon::pipeline_handle::{DaemonPaths, PipelineHandle};
use crate::daemon::systemd::ServiceManager;
use crate::helper::HelperClient;
use crate::host;
use crate::messages::{Exit, info, warn};
use crate::metrics::Metrics;
use crate::pipeline::handover::{self, PinPolicy, PinSetup};
use crate::pipeline::heartbeat::skip_warning;
use crate::pipeline::log_thread;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::summary::Summary;
use crate::pipeline::{Pipeline, RunningPipeline, StartReport};
use crate::rule_files::{Refused, RuleText};
use crate::sinks::audit_log::{AuditLog, LogConfig, LogOptions};
use crate::sinks::json::log::JsonLog;
use crate::sinks::log_file::log_directory::LogDirectory;
use crate::sinks::plugins;
use fallback::{RefusedFile, StartFiles};
use logs::console::Console;
use ready_message::{ReadyMessage, overhead};

/// Detaching takes some 70 ms per hook: above this number it is reported.
const SLOW_TO_DETACH: usize = 10;

/// Configuration of the daemon.
pub(crate) struct DaemonConfig {
    /// Rule files and their options.
    pub(crate) rules: RuleSource,
    /// The rule files whose rules are in force.
    pub(crate) texts: Vec<RuleText>,
    /// Control socket.
    pub(crate) control: ControlSocket,
    /// The group whose members may watch.
    pub(crate) watch_group: Option<String>,
    /// How syscalls and kernel records are captured.
    pub(crate) capture: CaptureOptions,
    /// Start although the kernel can skip BPF programs.
    pub(crate) allow_loss: bool,
    /// Log and its settings.
    pub(crate) log: LogSource,
    /// What is done with the log and old logs.
    pub(crate) log_options: LogOptions,
    /// Longest time from event to write.
    pub(crate) delay: Duration,
    /// Address of the metrics server.
    pub(crate) metrics: Option<MetricsAddress>,
    /// Whether BPF objects outlive the daemon.
    pub(crate) pin_policy: PinPolicy,
    /// Console output (`--print`).
    pub(crate) terminal: Option<Console>,
    /// JSON log.
    pub(crate) json: Option<JsonLogConfig>,
    /// Whether the daemon lets go of its standard streams when auditing has started.
    pub(crate) is_detached: bool,
    /// Called once, when auditing has started.
    pub(crate) on_ready: Box<dyn FnOnce()>,
    /// Called at a reload: reads the rule source again. A refusal has been reported.
    pub(crate) reload_rules: ReloadRules,
    /// The last good rules of this daemon; `None` for a trial.
    pub(crate) last_good: Option<LastGoodFile>,
    /// Files that were refused: older rules or settings are used instead.
    pub(crate) refused: Vec<RefusedFile>,
}

/// Reads the rule source again.
pub(crate) type ReloadRules = Box<dyn Fn() -> Result<RuleSource, Refused>>;

/// Rule files and their options.
#[derive(Clone, Debug)]
pub(crate) struct RuleSource {
    /// Rule files, read in this order.
    pub(crate) files: Vec<PathBuf>,
    /// Load the valid rules if others are invalid.
    pub(crate) partial: bool,
    /// Keys of the rules that deny a syscall which cannot be recorded.
    pub(crate) deny: Vec<BString>,
    /// Other settings have changed since the start.
    pub(crate) needs_restart: bool,
}

/// Whether to open a control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlSocket {
    /// No control socket.
    No,
    /// At this path, unless another daemon listens there.
    IfFree(PathBuf),
    /// At this path.
    At(PathBuf),
}

/// Runs until SIGTERM or SIGINT; SIGHUP reloads the rules. After SIGQUIT, or when the rules are locked, the BPF
/// programs stay attached for the next daemon.
///
/// # Errors
/// The daemon cannot start, or the engine has failed.
pub(crate) fn run(mut settings: DaemonConfig) -> anyhow::Result<ExitCode> {
    let server = listen(&settings.control, settings.watch_group.as_deref())?;
    let Some(mut log_config) = fallback::log_config(&mut settings)? else {
        warn(
            "nothing is attached: correct the errors above in auditd.conf; `tollgate config check` shows them again",
        );
        return Ok(Exit::Config.into());
    };
    settings.log.ensure_no_other_writer(&log_config)?;
    let pins = settings.pin_policy.open()?;
    let Some(mut store) = rules::open_rule_store(
        &mut settings,
        &mut log_config,
        server.as_ref(),
        pins.as_ref(),
    )?
    else {
        return Ok(ExitCode::FAILURE);
    };
    let plan = store.plan();
    ensure!(
        server.is_some() || plan.records(),
        "the rules record nothing: no rule of the lists exit and io_uring has the action always; add \
         one, or enable the control socket to load rules later"
    );
    let manager = ServiceManager::from_environment();
    let files = StartFiles::of(&settings);
    let limits = Arc::new(Limits::new());
    store.limit(&limits)?;
    let opened = PrivilegedResources::open(&settings, &log_config, server.as_ref(), pins.as_ref())?;
    let with_syscalls = opened.messages.is_some();
    let engines = settings.capture.engine.kinds();
    let options = options(&settings, with_syscalls);
    let json_path = settings.json.as_ref().map(|json| json.file.clone());
    let (log_thread, log_commands) = log_thread::log_command_channel();
    let log_controller = LogController::new(settings.log, &log_config, log_thread.clone());
    let log_path = log_config.path.clone();
    let pinned_in = pins.as_ref().map(|pins| pins.path().to_owned());
    let pins = pins.map(handover::with_plan_switch);
    let confinement = confine(&engines, &opened.writable)?;
    let pinning = PinSetup::inspect(pins, log_config.writes().then_some(&log_path))?;
    let policy = store.old_log_policy();
    let log = AuditLog::start(log_config, policy, opened.helper, settings.log_options)?;
    let ended = Arc::new(event_fd()?);

    let priced = (plan.clone(), store.loaded());
    let pipeline = Pipeline {
        plan,
        probe: opened.probe,
        engines,
        log,
        log_commands,
        console: settings.terminal,
        json: opened.json,
        delay: settings.delay,
        options,
        kernel_records: opened.messages,
        limits: Arc::clone(&limits),
        pinning,
    };
    let (running, started) = pipeline
        .start(Arc::clone(&ended))
        .inspect_err(|error| files.mark_failed(&store, error))?;
    let source = start_kernel_audit(opened.source)?;
    let pinned_in = pinned_in.filter(|_| started.pinned);
    report_start(&priced, &started, &log_path, pinned_in.as_deref());
    drop(priced);
    info(&format!("confined: {confinement}"));
    let status = format!("auditing with engine {}", started.engine.name());
    let paths = DaemonPaths {
        log: log_path,
        json: json_path,
        pins: pinned_in.clone(),
        log_thread,
    };
    let adopted = started.adopted;
    let audit = (source, KernelAuditMonitor::start());
    let mut handle = PipelineHandle::new(&running, started, paths, confinement, audit, limits);
    if let Err(error) = store.begin(&mut handle) {
        // Keep what was attached before.
        finish(
            handle,
            running,
            log_controller.log(),
            pinned_in.filter(|_| adopted),
        )?;
        return Err(error);
    }
    files.report(&mut store, &mut handle);
    if let Some(metrics) = opened.metrics {
        metrics.start()?;
    }
    manager.ready(&fallback::status_text(&status, &store));
    (settings.on_ready)();

    let mut event_loop = EventLoop {
        signals: opened.signals,
        ended,
        server,
        reload_rules: settings.reload_rules,
        store,
        pipeline: handle,
        log_controller,
        manager,
        status,
        last_good: files.last_good,
        last_status: None,
    };
    let leaves = event_loop.run()?;
    let (pipeline, log_controller, _refusing) = event_loop.end()?;
    finish(
        pipeline,
        running,
        log_controller.log(),
        pinned_in.filter(|_| leaves),
    )
}

/// Reports the start: engine, takeover and pins.
fn report_start(
    (plan, loaded): &(Plan, LoadedRules),
    started: &StartReport,
    log: &Path,
    pinned_in: Option<&Path>,
) {
    if let Some(why_not) = &started.why_not {
        warn(&format!("engine {why_not}"));
    }
    if let Some(risk) = started.skip_risk {
        warn(&skip_warning(risk));
    }
    rules::report_denials(plan);
    if started.adopted {
        info("took over the BPF programs of the previous daemon");
    }
    if let Some(place) = pinned_in {
        let place = place.display();
        info(&format!(
            "BPF programs outlive this daemon: pinned in `{place}`"
        ));
    }
    let ready_message = ReadyMessage {
        rules: *loaded,
        calls: plan.syscalls.len(),
        engine: started.engine.name(),
        attached: &started.attached,
        overhead: &overhead(plan, started.engine, started.kernel),
        log,
    };
    info(&ready_message.to_string());
}

/// Resources that must be opened before privileges are dropped.
struct PrivilegedResources {
    source: Option<KernelAudit>,
    messages: Option<RecordStream>,
    signals: SignalFd,
    probe: KernelProbe,
    helper: Option<HelperClient>,
    metrics: Option<Metrics>,
    json: Option<JsonLog>,
    /// Directories that the daemon writes to.
    writable: Vec<PathBuf>,
}

impl PrivilegedResources {
    fn open(
        settings: &DaemonConfig,
        log_config: &LogConfig,
        server: Option<&Server>,
        pins: Option<&PinDirectory>,
    ) -> anyhow::Result<Self> {
        let (source, messages) = KernelAudit::open(settings.capture.kernel_messages)?.unzip();
        read_kernel_symbols();
        let json = settings.json.as_ref();
        if let Some(json) = json.filter(|json| json.file == log_config.path) {
            let path = json.file.display();
            bail!("`{path}` is the audit log and the JSON log: give `[json] file` another name");
        }
        let opened = Self {
            writable: writable(log_config, json, server, pins, settings.last_good.as_ref())?,
            json: json
                .map(|json| JsonLog::open(json, log_config.group()))
                .transpose()?,
            source,
            messages,
            signals: signals()?,
            // Reading tracepoints needs privileges.
            probe: host::kernel_probe()?,
            helper: match &log_config.conf {
                Some(_) => {
                    let conf = settings.log.conf.as_deref();
                    Some(HelperClient::start(conf, settings.is_detached)?)
                }
                None => None,
            },
            metrics: metrics(settings.metrics.as_ref(), server)?,
        };
        raise_open_file_limit();
        Ok(opened)
    }
}

/// Stops the pipeline and reports the totals. Objects pinned in `left_in` stay.
fn finish(
    mut handle: PipelineHandle,
    running: RunningPipeline,
    log: &Path,
    left_in: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    if left_in.is_some() {
        handle.keep_kernel_audit();
    }
    let lost_messages = handle.release_kernel_audit();
    match &left_in {
        Some(_) => running.commands().leave_pinned()?,
        None => running.commands().stop()?,
    }
    let (mut outcome, detaching) = running.join()?;
    outcome.lost_kernel_records = lost_messages;
    let summary = Summary(&outcome);
    info(&format!("stopped: {summary}; log {}", log.display()));
    if let Some(place) = left_in {
        info(&format!(
            "BPF programs stay attached for the next daemon, pinned in `{}`",
            place.display()
        ));
    }
    if let Some(detaching) = detaching {
        let (hooks, left) = (handle.attached.hooks.len(), detaching.left_to_kernel());
        if left > SLOW_TO_DETACH {
            info(&format!(
                "the kernel detaches {left} hooks in the background"
            ));
        } else if hooks > SLOW_TO_DETACH {
            info(&format!("detaching {hooks} hooks"));
        }
        detaching.wait()?;
    }
    Ok(if summary.is_complete() {
        Exit::Success
    } else {
        Exit::Lost
    }
    .into())
}

/// The metrics server, if configured.
fn metrics(
    to: Option<&MetricsAddress>,
    server: Option<&Server>,
) -> anyhow::Result<Option<Metrics>> {
    let Some(address) = to else {
        return Ok(None);
    };
    let server = server.context(
        "metrics require the control socket: remove `metrics` from tollgate.toml, or omit --no-control",
    )?;
    Metrics::listen(address, server.path())
}

/// A descriptor for the daemon's signals. Every thread and program inherits the mask.
fn signals() -> anyhow::Result<SignalFd> {
    let signals: SigSet = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGCONT,
    ]
    .into_iter()
    .collect();
    let mut blocked = signals;
    // A log that exceeds RLIMIT_FSIZE is a failed write, not the end of the daemon.
    blocked.add(Signal::SIGXFSZ);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).context("cannot block signals")?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot create a signal descriptor")
}

/// Directories that the daemon writes to: logs, state, sockets and pins. Those of log and state are created.
fn writable(
    log_config: &LogConfig,
    json: Option<&JsonLogConfig>,
    server: Option<&Server>,
    pins: Option<&PinDirectory>,
    last_good: Option<&LastGoodFile>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut writable = vec![
        log_controller::state_directory(),
        LogDirectory::path_of(&log_config.path)?,
    ];
    if log_config.writes() {
        LogDirectory::of(&log_config.path)?;
    }
    writable.extend(pins.map(|pins| pins.path().to_owned()));
    writable.extend(last_good.map(LastGoodFile::directory));
    if let Some(json) = json {
        writable.push(LogDirectory::path_of(&json.file)?);
    }
    writable.extend(server.and_then(|server| Some(server.path().parent()?.to_owned())));
    if let Some(conf) = &log_config.conf {
        writable.extend(plugins::socket_directories(conf));
    }
    Ok(writable)
}

/// Raises the limit of open files: programs, maps and links are descriptors. The helper and its plugins are started
/// before, with the original limit.
fn raise_open_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(errno) = raised {
        warn(&format!("cannot raise the limit of open files: {errno}"));
    }
}

/// Engine options, with or without syscalls for records of the kernel.
fn options(settings: &DaemonConfig, with_syscalls: bool) -> EngineOptions {
    EngineOptions {
        uring: settings.capture.uring,
        context: settings.capture.context,
        allow_loss: settings.allow_loss,
        avc: with_syscalls,
        ..EngineOptions::default()
    }
}

/// Enables the records of the kernel's audit.
fn start_kernel_audit(source: Option<KernelAudit>) -> anyhow::Result<Option<KernelAudit>> {
    source
        .map(|mut source| source.begin().map(|()| source))
        .transpose()
}

fn listen(control: &ControlSocket, group: Option<&str>) -> anyhow::Result<Option<Server>> {
    let group = group.and_then(host::watch_group);
    match control {
        ControlSocket::No => Ok(None),
        ControlSocket::At(path) => Server::listen(path, group).map(Some),
        ControlSocket::IfFree(path) if server::is_listening(path) => {
            info(&format!(
                "another daemon listens at `{}`: this one has no control socket; --control names another one",
                path.display()
            ));
            Ok(None)
        }
        ControlSocket::IfFree(path) => Server::listen(path, group).map(Some),
    }
}

fn event_fd() -> anyhow::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .context("cannot create an eventfd")
}
