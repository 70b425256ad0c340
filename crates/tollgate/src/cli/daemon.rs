//! `tollgate daemon`: audits this machine.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anstream::ColorChoice;
use anyhow::Context as _;
use bstr::BString;
use nix::unistd::{geteuid, setsid};

use crate::config;
use crate::config::TollgateToml;
use crate::config::capture::CaptureOptions;
use crate::config::tollgate_toml::{EngineChoice, KernelRecordsMode, PinsSetting};
use crate::control;
use crate::daemon::last_good::{self, LastGoodFile};
use crate::daemon::{self, ControlSocket, DaemonConfig, LogSource, RefusedFile, RuleSource};
use crate::messages::{self, DetachedStreams, Exit, info, warn};
use crate::pipeline::handover::{DEFAULT_PIN_DIRECTORY, PinPolicy};
use crate::rule_files::{self, Refused};
use crate::sinks::audit_log::LogOptions;
use logs::accounts::Accounts;
use logs::console::{Console, Interpret};

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Audit with the rules of this machine, in the foreground:
    tollgate daemon --foreground
  Try a rule file with a log of its own, and print the events:
    tollgate daemon --rules exec.rules --log exec.log --print --interpret";

/// Arguments of `tollgate daemon`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Read settings from FILE [default: /etc/tollgate/tollgate.toml, if it exists]
    ///
    /// The format is that of tollgate.toml(5). Options override the settings of the file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read rules from FILE; may be repeated [default: /etc/audit/audit.rules, if it exists]
    ///
    /// The files are read in the order given. Rules can be added later with `tollgate auditctl`.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Listen for commands at SOCKET [default: /run/tollgate/control, if free]
    ///
    /// `tollgate auditctl` and `tollgate status` connect to it. The directory is created with mode 0700, the
    /// socket with mode 0600, or 0660 with `watch_group` in tollgate.toml(5).
    #[arg(long, value_name = "SOCKET", conflicts_with = "no_control")]
    control: Option<PathBuf>,
    /// Do not listen for commands
    #[arg(long)]
    no_control: bool,
    /// Append records to FILE [default: `log_file` of auditd.conf(5)]
    ///
    /// Without --auditd-conf, auditd.conf(5) is not read, and the log is never rotated. With it, FILE replaces its
    /// `log_file`. The log is created with mode 0600, its directory with mode 0700; with `log_group` they get that group
    /// and 0640 and 0750, a directory only if it has no other files. A directory in which other users could replace
    /// the log is refused.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Read the settings of the log from FILE [default: /etc/audit/auditd.conf, unless --log is given]
    #[arg(long, value_name = "FILE")]
    auditd_conf: Option<PathBuf>,
    /// Use this BPF engine [default: auto]
    #[arg(long, value_name = "NAME")]
    engine: Option<EngineChoice>,
    /// Write each event to the log within MS milliseconds, 2 to 1000 [default: 10]
    ///
    /// While events arrive, the ring is read every MS/2 milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(2..=1000))]
    delay: Option<u64>,
    /// Load the other rules if some are not supported
    ///
    /// A line `-i` or `-c` in a rule file does the same for that file.
    #[arg(long)]
    partial: bool,
    /// Start the engine `tracepoint` on a kernel that can skip its programs: events can be lost
    ///
    /// With `--engine fentry` it starts that engine. See ENGINES in tollgate-daemon(8).
    #[arg(long)]
    allow_loss: bool,
    /// Do not apply syscall rules to equivalent `io_uring` operations
    ///
    /// Rules of the list `io_uring` still apply.
    #[arg(long)]
    no_uring: bool,
    /// Read the records of the kernel's audit this way [default: auto; off with --log alone]
    ///
    /// These are records that no syscall rule makes: logins, messages of user programs, denials of security modules,
    /// crashes, changes of the audit configuration.
    #[arg(long, value_name = "HOW")]
    kernel_messages: Option<KernelRecordsMode>,
    /// Pin BPF objects in DIRECTORY [default: /sys/fs/bpf/tollgate if free; none with --log alone]
    ///
    /// Pinned programs keep recording while the daemon restarts. The directory must be on a bpf file system; it is
    /// created with mode 0700. If the default directory cannot be used, the daemon says so and pins nothing.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "no_pins")]
    pins: Option<PathBuf>,
    /// Pin nothing: auditing ends with the daemon
    #[arg(long)]
    no_pins: bool,
    /// Keep the last good rules in DIRECTORY [default: /var/lib/tollgate; none for a trial]
    ///
    /// If rule files or settings have errors at a start, the daemon starts with those that were last loaded without
    /// error. A daemon with --rules, --log or --config is a trial. See WRONG FILES in tollgate-daemon(8).
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// Stay in the foreground
    ///
    /// Without this option and --print, the command returns when auditing has started. From then on the messages of the
    /// daemon go to syslog.
    #[arg(long)]
    foreground: bool,
    /// Print events on standard output, and stay in the foreground
    ///
    /// If standard output is too slow, events are left out there and counted; the log has them.
    #[arg(long)]
    print: bool,
    /// Print names of users, groups, errors and flags instead of numbers
    ///
    /// Users and groups are looked up in /etc/passwd and /etc/group only.
    #[arg(long, requires = "print")]
    interpret: bool,
    /// Tell the parent process on standard output when auditing has started
    #[arg(long, hide = true)]
    detached: bool,
}

/// Default of `--delay`.
const DELAY_MS: u64 = 10;

const NOT_ROOT: &str = "the daemon must be run by root: it loads BPF programs (CAP_BPF, CAP_PERFMON) and attaches \
                        them to functions and tracepoints of the kernel (CAP_SYS_ADMIN)";

/// What a detached daemon writes to its parent when auditing has started.
const READY: &[u8] = b"ready\n";

/// Runs the daemon until a signal stops it.
///
/// # Errors
/// Why the daemon cannot start, or stopped.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Before anything is read: other users may be unable to read the configuration.
    if !geteuid().is_root() {
        info(NOT_ROOT);
        return Ok(Exit::NotRoot.into());
    }
    match run_or_detach(args) {
        Err(error) if error.is::<config::FileError>() => {
            messages::print_error(&error);
            Ok(Exit::Config.into())
        }
        ended => ended,
    }
}

fn run_or_detach(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.foreground && !args.print && !args.detached {
        return detach();
    }
    let streams = if args.detached {
        setsid().context("cannot start a session")?;
        let cannot = "cannot prepare to let go of the terminal";
        Some(DetachedStreams::open().context(cannot)?)
    } else {
        None
    };
    let terminal = if args.print {
        let interpret = if args.interpret {
            Interpret::Names(Accounts::read().context("cannot read /etc/passwd and /etc/group")?)
        } else {
            Interpret::Raw
        };
        Some(Console::stdout(interpret, ColorChoice::Auto))
    } else {
        None
    };
    let is_detached = args.detached;
    let last_good = last_good_file(args);
    let Some((file, refused)) = settings_or_last_good(args, last_good.as_ref())? else {
        return Ok(Exit::Config.into());
    };
    let rules = rule_source(args, &file);
    let (same_args, started_with) = (args.clone(), file.clone());
    let log = LogSource {
        conf: match (&args.auditd_conf, file.auditd_conf, &args.log) {
            (Some(conf), ..) => Some(conf.clone()),
            (None, Some(conf), _) => Some(conf),
            (None, None, Some(_)) => None,
            (None, None, None) => {
                let conf = PathBuf::from(config::AUDITD_CONF);
                config::exists(&conf).then_some(conf)
            }
        },
        path: args.log.clone(),
    };
    let last_good = last_good.map(|good| good.with_auditd_conf(log.conf.clone()));
    daemon::run(DaemonConfig {
        rules,
        texts: Vec::new(),
        control: match &args.control {
            _ if args.no_control => ControlSocket::No,
            Some(path) => ControlSocket::At(path.clone()),
            None => ControlSocket::IfFree(control::SOCKET.into()),
        },
        capture: CaptureOptions {
            engine: args.engine.or(file.engine).unwrap_or(EngineChoice::Auto),
            uring: !args.no_uring && file.io_uring.unwrap_or(true),
            context: file.json.is_some(),
            kernel_messages: args
                .kernel_messages
                .or(file.kernel_messages)
                .unwrap_or_else(|| default_kernel_messages(&log)),
        },
        allow_loss: args.allow_loss || file.allow_loss.unwrap_or(false),
        pin_policy: pin_policy(args, file.pins, &log),
        log,
        delay: {
            let ms = args.delay.or_else(|| Some(file.delay_ms?.0));
            Duration::from_millis(ms.unwrap_or(DELAY_MS))
        },
        metrics: file.metrics,
        watch_group: file.watch_group,
        log_options: LogOptions {
            index: file.index.unwrap_or(true),
            compress: file.compress.unwrap_or(false),
        },
        json: file.json,
        terminal,
        is_detached,
        on_ready: Box::new(move || {
            if let Some(streams) = streams {
                // Auditing goes on if the parent has exited.
                let _gone = io::stdout()
                    .write_all(READY)
                    .and_then(|()| io::stdout().flush());
                if let Err(error) = streams.let_go() {
                    warn(&format!(
                        "cannot let go of standard output and error: {error}"
                    ));
                }
            }
        }),
        reload_rules: Box::new(move || reread_rules(&same_args, &started_with)),
        last_good,
        refused,
    })
}

/// Where the last good rules are kept. `None` for a trial, which has rules, a log or settings of its own, unless it is
/// told where to keep them.
fn last_good_file(args: &Args) -> Option<LastGoodFile> {
    let is_trial = !args.rules.is_empty() || args.log.is_some() || args.config.is_some();
    let directory = match &args.state {
        Some(directory) => directory,
        None if is_trial => return None,
        None => Path::new(last_good::DIRECTORY),
    };
    Some(LastGoodFile::new(directory, configuration(args)))
}

/// Reads the configuration file, or takes the last good one if it has errors. `None` if there is none, which has been
/// reported.
///
/// # Errors
/// The file cannot be read, and there is no last good one.
fn settings_or_last_good(
    args: &Args,
    last_good: Option<&LastGoodFile>,
) -> anyhow::Result<Option<(TollgateToml, Vec<RefusedFile>)>> {
    let consequence = match last_good {
        Some(_) => "the configuration is refused",
        None => rule_files::NOTHING_ATTACHED,
    };
    let refused = match settings(args, consequence) {
        Ok(Ok(file)) => return Ok(Some((file, Vec::new()))),
        Ok(Err(Refused(reason))) => Ok(reason),
        Err(error) => Err(error),
    };
    let good = last_good.and_then(LastGoodFile::read);
    let text = good.and_then(|good| good.tollgate_toml());
    let Some(file) = text.and_then(|text| TollgateToml::parse(&text)) else {
        return refused.map(|_reported| None);
    };
    let reason = refused.unwrap_or_else(|error| format!("{error:#}"));
    warn(&format!(
        "starting with the last good tollgate.toml: {reason}; correct it, then run `systemctl restart tollgate`"
    ));
    Ok(Some((file, vec![RefusedFile::Configuration(reason)])))
}

/// Returns the rule files and how to load them. Options override the configuration file.
fn rule_source(args: &Args, file: &TollgateToml) -> RuleSource {
    RuleSource {
        files: match (args.rules.as_slice(), &file.rules) {
            ([], None) => default_rules(args),
            ([], Some(rules)) => rules.clone(),
            (rules, _) => rules.to_vec(),
        },
        partial: args.partial || file.partial.unwrap_or(false),
        deny: file
            .on_loss
            .deny
            .iter()
            .cloned()
            .map(BString::from)
            .collect(),
        needs_restart: false,
    }
}

/// Reads the configuration file again and returns the rule files and how to load them. Warns about changes that
/// need a restart.
///
/// # Errors
/// The file has errors, which have been printed.
fn reread_rules(args: &Args, started_with: &TollgateToml) -> Result<RuleSource, Refused> {
    let now = settings(args, rule_files::RULES_UNCHANGED).unwrap_or_else(|error| {
        warn(&format!("{}: {error:#}", rule_files::RULES_UNCHANGED));
        Err(Refused(format!("{error:#}")))
    })?;
    let same = TollgateToml {
        rules: now.rules.clone(),
        partial: now.partial,
        on_loss: now.on_loss.clone(),
        ..started_with.clone()
    };
    let needs_restart = now != same;
    if needs_restart {
        warn(
            "tollgate.toml: `rules`, `partial` and `[on_loss]` are in force; other changed settings need a \
             restart of the daemon",
        );
    }
    Ok(RuleSource {
        needs_restart,
        ..rule_source(args, &now)
    })
}

/// Returns the default rule file. It may be missing if there is a control socket, because rules can be added
/// through it, unless there was one with rules before: to remove it by mistake must not end auditing.
fn default_rules(args: &Args) -> Vec<PathBuf> {
    let path = PathBuf::from(config::AUDIT_RULES);
    let had_rules = || {
        let good = last_good_file(args).and_then(|file| file.read());
        good.is_some_and(|good| good.rule_count() > 0)
    };
    if args.no_control || path.exists() || had_rules() {
        vec![path]
    } else {
        Vec::new()
    }
}

/// Returns the default of `--kernel-messages`: only the machine's log, configured by auditd.conf, gets the
/// kernel's records.
const fn default_kernel_messages(log: &LogSource) -> KernelRecordsMode {
    if log.is_plain() {
        KernelRecordsMode::Off
    } else {
        KernelRecordsMode::Auto
    }
}

/// Returns where BPF objects are pinned. By default, a daemon with `--log` alone pins nothing.
fn pin_policy(args: &Args, setting: Option<PinsSetting>, log: &LogSource) -> PinPolicy {
    match (&args.pins, setting) {
        _ if args.no_pins => PinPolicy::No,
        (Some(path), _) => PinPolicy::At(path.clone()),
        (None, Some(PinsSetting::Directory(path))) => PinPolicy::At(path),
        (None, Some(PinsSetting::Enabled(false))) => PinPolicy::No,
        (None, None) if log.is_plain() => PinPolicy::No,
        (None, _) => PinPolicy::IfPossible(DEFAULT_PIN_DIRECTORY.into()),
    }
}

/// Path of the configuration file, if there is one.
fn configuration(args: &Args) -> Option<PathBuf> {
    args.config.clone().or_else(|| {
        let installed = PathBuf::from(config::TOLLGATE_TOML);
        config::exists(&installed).then_some(installed)
    })
}

/// Reads the configuration file. `Err` inside if it has errors, after printing them and `consequence`.
fn settings(args: &Args, consequence: &str) -> anyhow::Result<Result<TollgateToml, Refused>> {
    let Some(path) = configuration(args) else {
        return Ok(Ok(TollgateToml::default()));
    };
    let read = config::read_tollgate_toml(&path)?;
    messages::print_findings(&read.file);
    Ok(match read.file.errors() {
        None => Ok(read.settings),
        Some(errors) => {
            warn(&format!(
                "{consequence}: `{}` contains errors",
                path.display()
            ));
            Err(Refused(errors))
        }
    })
}

/// Starts the daemon in a new session and waits until auditing has started.
fn detach() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find the executable of this process")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(u64::try_from(READY.len()).unwrap_or(0))
            .read_to_end(&mut output)
            .context("cannot read from the daemon that was started")?;
    }
    if output == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the daemon")?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Ok(ExitCode::from(code.max(1)))
}
