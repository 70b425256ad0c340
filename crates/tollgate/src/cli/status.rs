//! `tollgate status`: prints the state and counters of the running daemon.

mod leftover;
mod lines;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use crossbeam_channel::after;

use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Counts, JsonCounts, Request, Run, Status};
use crate::messages::{self, Exit};
use crate::pipeline::handover::DEFAULT_PIN_DIRECTORY;
use leftover::LeftoverPrograms;
use lines::{
    active_kernel_audit, duration, kernel_counts, losses, refused_files, rule_lines, suspension,
    watching,
};

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Refresh the table every 5 seconds:
    tollgate status --watch=5
  Print the number of lost events, by reason:
    tollgate status --json | jq .counts.lost";

/// Arguments of `tollgate status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connect to the daemon at SOCKET
    #[arg(long, value_name = "SOCKET", default_value = control::SOCKET)]
    control: PathBuf,
    /// If no daemon listens, look for programs that are still attached in DIRECTORY
    #[arg(long, value_name = "DIRECTORY", default_value = DEFAULT_PIN_DIRECTORY)]
    pins: PathBuf,
    /// Print all facts as JSON
    ///
    /// Without a daemon: `error`, and in `leftover` the programs that are still attached.
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS seconds until interrupted [default: 2]
    ///
    /// With --json, each report is one line.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// Prints the state of the daemon, repeatedly with `--watch`.
///
/// # Errors
/// When no daemon listens, or it sends an error or an invalid reply.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    loop {
        // A new connection each time: the daemon closes idle connections.
        let status = match request_status(args) {
            Ok(status) => status,
            Err(error) => {
                if args.json {
                    print_failure(args, &error)?;
                }
                return Err(error);
            }
        };
        let mut out = io::stdout().lock();
        let written = match (args.json, args.watch) {
            (true, None) => serde_json::to_writer_pretty(&mut out, &status)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out)),
            (true, Some(_)) => serde_json::to_writer(&mut out, &status)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
                .and_then(|()| out.flush()),
            (false, None) => table(&status, &args.control, &mut out),
            (false, Some(_)) => {
                begin(&mut out).and_then(|()| table(&status, &args.control, &mut out))
            }
        };
        let is_closed = matches!(&written, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        messages::ignore_broken_pipe(written).context("cannot write to standard output")?;
        drop(out);
        match args.watch {
            Some(seconds) if !is_closed => {
                let _now = after(Duration::from_secs(seconds)).recv();
            }
            Some(_) => return Ok(ExitCode::SUCCESS),
            None if is_degraded(&status) => return Ok(Exit::Degraded.into()),
            None => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn request_status(args: &Args) -> anyhow::Result<Box<Status>> {
    let control = &args.control;
    let mut client = Client::connect(control).map_err(|error| {
        if is_absent(&error) && !args.json {
            leftover::report(&args.pins);
        }
        connect_error(control, error, VIEWERS)
    })?;
    match client.ask(Request::Status)? {
        Answer::Status(status) => Ok(status),
        Answer::Refused(refusal) => bail!("the daemon refused the request: {}", refusal.reason),
        _ => bail!(control::INVALID_REPLY),
    }
}

/// Prints as JSON why no daemon answers, and what an ended one has left.
fn print_failure(args: &Args, error: &anyhow::Error) -> anyhow::Result<()> {
    let report = serde_json::json!({
        "error": format!("{error:#}"),
        "leftover": LeftoverPrograms::find(&args.pins),
    });
    let text = match args.watch {
        None => format!("{report:#}"),
        Some(_) => report.to_string(),
    };
    messages::ignore_broken_pipe(writeln!(io::stdout().lock(), "{text}"))
        .context("cannot write to standard output")
}

/// Whether no daemon listens.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Who may send requests that change nothing.
pub(super) const VIEWERS: &str = "root and the group `watch_group` of tollgate.toml";

/// Returns the error of a connection to `socket`, with advice. `who` may connect.
pub(super) fn connect_error(socket: &Path, error: io::Error, who: &str) -> anyhow::Error {
    let shown = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            if socket == Path::new(control::SOCKET) =>
        {
            anyhow!(
                "no daemon listens at `{shown}`: run `systemctl start tollgate`, or name the socket of a daemon with \
                 --control"
            )
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow!(
            "no daemon listens at `{shown}`: start it, or correct --control; the service listens at `{}`",
            control::SOCKET
        ),
        io::ErrorKind::PermissionDenied => {
            anyhow!("cannot connect to the daemon at `{shown}`: only {who} can")
        }
        _ => {
            anyhow::Error::from(error).context(format!("cannot connect to the daemon at `{shown}`"))
        }
    }
}

/// Clears a terminal; separates tables by an empty line elsewhere.
fn begin(out: &mut (impl Write + IsTerminal)) -> io::Result<()> {
    if out.is_terminal() {
        out.write_all(b"\x1b[H\x1b[2J")
    } else {
        out.write_all(b"\n")
    }
}

/// Prints one fact per line; losses and gaps only if there are any.
fn table(status: &Status, socket: &Path, out: &mut impl Write) -> io::Result<()> {
    let Status {
        settings,
        version,
        engine,
        skip_risk,
        uptime_seconds,
        rules,
        calls,
        denying,
        hooks,
        absent,
        log,
        refused,
        suspended,
        pins,
        confinement,
        counts,
        by_rule,
        by_owner,
        kernel_messages,
        kernel_audit,
        json,
        plugins,
        viewers,
        runs,
    } = status;
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}");
    let state = match settings.enabled {
        0 => "disabled",
        1 => "enabled",
        _ => "enabled, locked until the machine restarts",
    };
    line("audit", state.to_owned())?;
    line(
        "daemon",
        format!(
            "tollgate {version}, process {}, up {}",
            settings.pid,
            duration(*uptime_seconds)
        ),
    )?;
    line(
        "engine",
        format!("{engine}, {}", messages::count(hooks.len(), "hook")),
    )?;
    if let Some(risk) = skip_risk {
        line("unsafe", format!("events can be lost: {risk}"))?;
    }
    for (name, value) in rule_lines(*rules, *calls, *denying, absent) {
        line(name, value)?;
    }
    for (name, value) in refused.iter().flat_map(refused_files) {
        line(name, value)?;
    }
    line("log", log.to_string())?;
    if let Some(suspended) = suspended {
        let is_written = matches!(suspended.setting.as_str(), "write" | "sync");
        let name = if is_written { "failing" } else { "suspended" };
        line(name, suspension(suspended))?;
        line("", resume_advice(&suspended.setting, socket))?;
    }
    if let Some(pins) = pins {
        line("pinned", pins.to_string())?;
    }
    line("confined", confinement.to_string())?;
    let Counts {
        matched,
        delivered,
        written,
        lost,
        incomplete,
        blind_seconds,
    } = counts;
    line(
        "events",
        format!("{matched} matched, {delivered} delivered, {written} written"),
    )?;
    let all: u64 = lost.values().sum();
    line("lost", all.to_string())?;
    for text in losses(lost, by_rule, by_owner) {
        line("", text)?;
    }
    for (part, count) in incomplete {
        line("incomplete", format!("{count} {part}"))?;
    }
    if *blind_seconds != 0 {
        let disabled = duration(*blind_seconds);
        line("disabled", format!("hooks, for {disabled} in total"))?;
    }
    if let Some(messages) = kernel_messages {
        line("messages", kernel_counts(messages))?;
    }
    let of_kernel = kernel_audit.iter().flat_map(active_kernel_audit);
    for (name, value) in of_kernel.chain(watching(*viewers)) {
        line(name, value)?;
    }
    if let Some(JsonCounts { written, left_out }) = json {
        line("JSON", format!("{written} written, {left_out} left out"))?;
    }
    for (plugin, lost) in plugins.iter().filter(|(_, lost)| **lost != 0) {
        line("plugin", format!("{lost} lost by {plugin}"))?;
    }
    for Run {
        hook,
        runs,
        nanoseconds,
    } in runs
    {
        let each = nanoseconds.checked_div(*runs).unwrap_or_default();
        line("runs", format!("{runs} of {each} ns: {hook}"))?;
    }
    out.flush()
}

/// What resumes a suspended log of the daemon that listens at `socket`.
fn resume_advice(setting: &str, socket: &Path) -> String {
    if setting == "write" {
        return "make room, or correct the error: the log goes on with the next write that succeeds".to_owned();
    }
    if setting == "sync" {
        return "correct the error of the file system or the disk: this line goes with the next sync that succeeds"
            .to_owned();
    }
    let option = if socket == Path::new(control::SOCKET) {
        String::new()
    } else {
        format!("--control {} ", socket.display())
    };
    format!("make room, then run `tollgate auditctl {option}--signal resume`")
}

/// Whether auditing is not as configured: older rules or settings are in force, or the log is not written.
fn is_degraded(status: &Status) -> bool {
    status.refused.is_some() || status.suspended.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{AuditSettings, Confinement, RuleCounts};
    use crate::control::protocol::{
        KernelAuditStatus, KernelRecordStatus, LogSuspension, RefusedFiles,
    };
    use crate::json_bytes::JsonBytes;

    #[test]
    fn every_fact_has_a_line() {
        let status = Status {
            settings: AuditSettings {
                enabled: 1,
                pid: 7,
                ..AuditSettings::default()
            },
            version: "0.1.0".into(),
            engine: "tracepoint".into(),
            skip_risk: Some("the kernel can skip programs".into()),
            uptime_seconds: 3700,
            rules: 2,
            calls: 3,
            denying: 1,
            hooks: vec!["syscalls:sys_exit_rmdir".into()],
            absent: vec!["uselib".into()],
            log: JsonBytes::new(b"/var/log/\x1b[m"),
            refused: Some(RefusedFiles {
                reason: "/r:3: unknown syscall `opne`".into(),
                since: 1_800_000_000,
                seconds: 60,
                last_good: Some(1_700_000_000),
            }),
            suspended: Some(LogSuspension {
                setting: "disk_full_action".into(),
                reason: "no space left for the log".into(),
                since: 1_800_000_000,
                seconds: 61,
                events: 3,
            }),
            pins: Some(JsonBytes::new(b"/p")),
            confinement: Confinement {
                capabilities: vec!["bpf".into(), "chown".into()],
                bounding: true,
                no_new_privileges: true,
                landlock: "fully enforced, V7".into(),
                writable: vec!["/var/log/audit".into()],
            },
            counts: Counts {
                matched: 10,
                delivered: 8,
                written: 7,
                lost: [("ring full".to_owned(), 2)].into(),
                incomplete: [("path truncated".to_owned(), 1)].into(),
                blind_seconds: 5,
            },
            by_rule: vec![
                RuleCounts {
                    rule: JsonBytes::new(b"-a always,exit -S rmdir"),
                    matched: 4,
                    lost: [("ring full".to_owned(), 2)].into(),
                },
                RuleCounts {
                    matched: 6,
                    ..RuleCounts::default()
                },
            ],
            by_owner: Vec::new(),
            kernel_messages: Some(KernelRecordStatus {
                reader: "registered".into(),
                received: 4,
                written: 3,
                lost: 9,
                ..KernelRecordStatus::default()
            }),
            kernel_audit: Some(KernelAuditStatus {
                rules: 12,
                slows_syscalls: true,
                ..KernelAuditStatus::default()
            }),
            json: Some(JsonCounts {
                written: 2,
                left_out: 1,
            }),
            plugins: [("a.conf".to_owned(), 3), ("b.conf".to_owned(), 0)].into(),
            viewers: 2,
            runs: vec![Run {
                hook: "sys_exit_tp".into(),
                runs: 10,
                nanoseconds: 4200,
            }],
        };
        let mut out = Vec::new();
        table(&status, Path::new("/x/c"), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "audit       enabled\n\
             daemon      tollgate 0.1.0, process 7, up 1 h 1 min\n\
             engine      tracepoint, 1 hook\n\
             unsafe      events can be lost: the kernel can skip programs\n\
             rules       2, naming 3 syscalls\n\
             denied      syscalls of 1 rule while they cannot be recorded\n\
             absent      not in this kernel: uselib\n\
             REFUSED     for 1 min 0 s: /r:3: unknown syscall `opne`\n            \
             in force: the last good rules and settings, loaded from files at 2023-11-14T22:13:20Z\n            \
             correct the file, then run `tollgate augenrules --load`, or after tollgate.toml `systemctl restart tollgate`\n\
             log         /var/log/\\u{1b}[m\n\
             suspended   for 1 min 1 s, 3 events not written: disk_full_action: no space left for the log\n            \
             make room, then run `tollgate auditctl --control /x/c --signal resume`\n\
             pinned      /p\n\
             confined    capabilities bpf chown, no new privileges, Landlock fully enforced, V7: \
             writes below /var/log/audit only\n\
             events      10 matched, 8 delivered, 7 written\n\
             lost        2\n            2 ring full\n            2 by rule -a always,exit -S rmdir\n\
             incomplete  1 path truncated\n\
             disabled    hooks, for 5 s in total\n\
             messages    registered, 4 received, 3 written, 9 lost by the kernel\n\
             kernel      the kernel's own audit is active with 12 rules: it slows every syscall\n            \
             load rules with `tollgate augenrules --load`, and delete the kernel's with `auditctl -D` of the package auditd\n\
             viewers     2\n\
             JSON        2 written, 1 left out\n\
             plugin      3 lost by a.conf\n\
             runs        10 of 420 ns: sys_exit_tp\n"
        );
    }

    #[test]
    fn duration_has_the_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (61, "1 min 1 s"),
            (7260, "2 h 1 min"),
            (200_000, "2 d 7 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
