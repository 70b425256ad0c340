//! `tollgate daemon`: audits this machine.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anstream::ColorChoice;
use anyhow::Context as _;
use bstr::BString;
use nix::unistd::setsid;

use crate::config;
use crate::config::TollgateToml;
use crate::config::capture::CaptureOptions;
use crate::config::tollgate_toml::{EngineChoice, KernelRecordsMode, PinsSetting};
use crate::control;
use crate::daemon::{self, ControlSocket, DaemonConfig, LogSource, RuleSource};
use crate::messages::{self, Exit, warn};
use crate::pipeline::handover::{DEFAULT_PIN_DIRECTORY, PinPolicy};
use crate::rule_files;
use crate::sinks::Accounts;
use crate::sinks::console::{Console, Interpret};

/// Arguments of `tollgate daemon`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Settings of the daemon, each of which an option here overrides [default:
    /// /etc/tollgate/tollgate.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Rule file; may be given several times, read in this order [default: /etc/audit/audit.rules, if
    /// it is there]
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Where `tollgate auditctl` and `tollgate status` find this daemon [default:
    /// /run/tollgate/control, if no other daemon listens there]
    #[arg(long, value_name = "SOCKET", conflicts_with = "no_control")]
    control: Option<PathBuf>,
    /// Takes no commands
    #[arg(long)]
    no_control: bool,
    /// Log file; without --auditd-conf it is only appended to [default: as auditd.conf says]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// How the log is kept [default: /etc/audit/auditd.conf, unless --log is given]
    #[arg(long, value_name = "FILE")]
    auditd_conf: Option<PathBuf>,
    /// How to see syscalls; `auto` takes the first of the others that works here [default: auto]
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    engine: Option<EngineChoice>,
    /// Longest time from an event to its being written, in milliseconds (2 to 1000) [default: 10]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(2..=1000))]
    delay: Option<u64>,
    /// Loads what can be loaded when some rules cannot be honoured
    #[arg(long)]
    partial: bool,
    /// Start on a kernel that preempts itself and can skip programs on tracepoints: events can be lost
    #[arg(long)]
    allow_loss: bool,
    /// Leaves out what is done through `io_uring` instead of by the calls that the rules name
    #[arg(long)]
    no_uring: bool,
    /// How to read the messages of the kernel's audit, such as logins and denials: as the process that
    /// they are sent to (`unicast`), beside that process (`multicast`), the first of these that works here
    /// (`auto`), or not (`off`) [default: auto where auditd.conf says how the log is kept, otherwise off]
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    kernel_messages: Option<KernelRecordsMode>,
    /// Pins what audits in this directory of a bpf file system, so that a daemon that is killed or restarted
    /// with QUIT loses nothing [default: /sys/fs/bpf/tollgate where auditd.conf says how the log is kept and
    /// no other daemon pins there, otherwise not]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "no_pins")]
    pins: Option<PathBuf>,
    /// Pins nothing: auditing ends with the daemon, however it ends
    #[arg(long)]
    no_pins: bool,
    /// Stays in the foreground
    #[arg(long)]
    foreground: bool,
    /// Shows events on the terminal; stays in the foreground
    #[arg(long)]
    print: bool,
    /// Shows names of users, groups, errors and flags in place of numbers
    #[arg(long, requires = "print")]
    interpret: bool,
    /// Tells a waiting parent on standard output when it audits
    #[arg(long, hide = true)]
    detached: bool,
}

/// Rule file when none is named.
const RULES: &str = "/etc/audit/audit.rules";
/// Longest time from an event to its being written when nothing is said.
const DELAY_MS: u64 = 10;

/// What a detached daemon writes to its parent when it audits.
const READY: &[u8] = b"ready\n";

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What kept it from starting, or made it stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
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
    if args.detached {
        setsid().context("cannot leave the terminal")?;
    }
    let terminal = if args.print {
        let interpret = if args.interpret {
            Interpret::Names(Accounts::read().context("cannot read the names of users")?)
        } else {
            Interpret::Raw
        };
        Some(Console::stdout(interpret, ColorChoice::Auto))
    } else {
        None
    };
    let detached = args.detached;
    let Some(file) = settings(args, rule_files::NOTHING_ATTACHED)? else {
        return Ok(Exit::Config.into());
    };
    let rules = rule_source(args, &file);
    let (same, begun) = (args.clone(), file.clone());
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
    daemon::run(DaemonConfig {
        rules,
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
                .unwrap_or_else(|| usual_messages(&log)),
        },
        allow_loss: args.allow_loss || file.allow_loss.unwrap_or(false),
        pin_policy: survival(args, file.pins, &log),
        log,
        delay: {
            let ms = args.delay.or_else(|| Some(file.delay_ms?.0));
            Duration::from_millis(ms.unwrap_or(DELAY_MS))
        },
        metrics: file.metrics,
        json: file.json,
        terminal,
        on_ready: Box::new(move || {
            if detached {
                // A parent that has gone away is no reason to stop auditing.
                let _gone = io::stdout()
                    .write_all(READY)
                    .and_then(|()| io::stdout().flush());
            }
        }),
        reload_rules: Box::new(move || rules_again(&same, &begun)),
    })
}

/// Where the rules come from, and what is to be done about them: what the options say wins.
fn rule_source(args: &Args, file: &TollgateToml) -> RuleSource {
    RuleSource {
        files: match (args.rules.as_slice(), &file.rules) {
            ([], None) => usual_rules(args),
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
    }
}

/// The same as the configuration file says it now, where the daemon has begun with other settings; what else
/// they say is told. `None` when the file is wrong, which has been said.
fn rules_again(args: &Args, begun: &TollgateToml) -> Option<RuleSource> {
    let now = match settings(args, rule_files::RULES_UNCHANGED) {
        Ok(now) => now?,
        Err(error) => {
            warn(&format!("{}: {error:#}", rule_files::RULES_UNCHANGED));
            return None;
        }
    };
    let same = TollgateToml {
        rules: now.rules.clone(),
        partial: now.partial,
        on_loss: now.on_loss.clone(),
        ..begun.clone()
    };
    if now != same {
        warn(
            "of tollgate.toml, `rules`, `partial` and `[on_loss]` are in force now: what else has changed \
             is read when the daemon starts",
        );
    }
    Some(rule_source(args, &now))
}

/// The rule file that `auditd` has. Rules can come later when there is a control socket, and then it need
/// not be there.
fn usual_rules(args: &Args) -> Vec<PathBuf> {
    let usual = PathBuf::from(RULES);
    if args.no_control || usual.exists() {
        vec![usual]
    } else {
        Vec::new()
    }
}

/// A log that is only written is no place for what others say; one that is kept is that of the machine.
const fn usual_messages(log: &LogSource) -> KernelRecordsMode {
    if log.is_plain() {
        KernelRecordsMode::Off
    } else {
        KernelRecordsMode::Auto
    }
}

/// A log that is only written is that of a trial, which ends with the daemon.
fn survival(args: &Args, said: Option<PinsSetting>, log: &LogSource) -> PinPolicy {
    match (&args.pins, said) {
        _ if args.no_pins => PinPolicy::No,
        (Some(path), _) => PinPolicy::At(path.clone()),
        (None, Some(PinsSetting::Directory(path))) => PinPolicy::At(path),
        (None, Some(PinsSetting::Enabled(false))) => PinPolicy::No,
        (None, None) if log.is_plain() => PinPolicy::No,
        (None, _) => PinPolicy::IfPossible(DEFAULT_PIN_DIRECTORY.into()),
    }
}

/// What the configuration file says; `None` when it is wrong, which has been said, with what follows.
fn settings(args: &Args, follows: &str) -> anyhow::Result<Option<TollgateToml>> {
    let path = match &args.config {
        Some(path) => path.clone(),
        None if config::exists(config::TOLLGATE_TOML.as_ref()) => config::TOLLGATE_TOML.into(),
        None => return Ok(Some(TollgateToml::default())),
    };
    let read = config::read_tollgate_toml(&path)?;
    messages::print_findings(&read.file);
    Ok(if read.is_valid() {
        Some(read.settings)
    } else {
        warn(&format!("{follows}: the configuration above is wrong"));
        None
    })
}

/// Starts the same daemon in a session of its own and waits until it audits.
fn detach() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(u64::try_from(READY.len()).unwrap_or(0))
            .read_to_end(&mut said)
            .context("cannot hear from the daemon")?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the daemon")?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Ok(ExitCode::from(code.max(1)))
}
