//! The keys of `auditd.conf`: their syntax and their setters.

use core::time::Duration;
use std::collections::HashMap;
use std::ops::Range;

use bstr::{BStr, BString};

use super::value::{
    ValueError, check_absolute_path, check_mail_address, check_ports, number, parse_choice,
    parse_u32, parse_yes_no, space, time,
};
use super::{Action, Flush, LogFormat, MaxLogFileAction, NameFormat, OverflowAction, Settings};
use crate::conf::ConfigHost;
use crate::conf::assignment::{Assignment, LinePosition};
use crate::rule::{Diagnostic, Severity};

/// Position of the last assignment to each key.
pub(super) type KeyPositions = HashMap<&'static str, (LinePosition, Range<usize>)>;

/// Collects settings while lines are parsed.
pub(super) struct SettingsBuilder<'a> {
    pub(super) settings: Settings,
    pub(super) key_positions: KeyPositions,
    host: &'a dyn ConfigHost,
    verify_email: bool,
}

/// Words after the equal sign: the value, and an optional second word.
type RawValue<'a> = (&'a BStr, Option<&'a BStr>);
type Setter = fn(&mut SettingsBuilder<'_>, RawValue<'_>) -> Result<(), ValueError>;

struct Key {
    name: &'static str,
    /// Whether a second word may follow the value.
    option: bool,
    set: Setter,
}

const fn key(name: &'static str, set: Setter) -> Key {
    Key {
        name,
        option: false,
        set,
    }
}

const fn action(name: &'static str, set: Setter) -> Key {
    Key {
        name,
        option: true,
        set,
    }
}

/// Maximum report interval in `auditd`.
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(40 * 86_400);
const INT_MAX: u32 = i32::MAX.unsigned_abs();

const KEYS: &[Key] = &[
    key("local_events", local_events),
    key("write_logs", |builder, (value, _)| {
        builder.settings.write_logs = parse_yes_no(value)?;
        Ok(())
    }),
    key("log_file", log_file),
    key("log_format", log_format),
    key("log_group", log_group),
    key("flush", |builder, (value, _)| {
        builder.settings.flush = parse_choice(value, FLUSHES)?;
        Ok(())
    }),
    key("freq", |builder, (value, _)| {
        builder.settings.freq = parse_u32(value, 0, INT_MAX)?;
        Ok(())
    }),
    key("num_logs", |builder, (value, _)| {
        builder.settings.num_logs = parse_u32(value, 0, 999)?;
        Ok(())
    }),
    key("dispatcher", |builder, _| builder.ignored("dispatcher")),
    key("disp_qos", |builder, _| builder.ignored("disp_qos")),
    key("name_format", name_format),
    key("name", |builder, (value, _)| {
        builder.settings.name = Some(value.into());
        Ok(())
    }),
    key("max_log_file", |builder, (value, _)| {
        builder.settings.max_log_file = number(value, 0, u64::MAX >> 20)?;
        Ok(())
    }),
    action("max_log_file_action", max_log_file_action),
    key("space_left", |builder, (value, _)| {
        builder.settings.space_left = space(value)?;
        Ok(())
    }),
    action("space_left_action", |builder, raw| {
        let action = builder.action(raw, &["halt"])?;
        builder.settings.space_left_action = action;
        Ok(())
    }),
    key("admin_space_left", |builder, (value, _)| {
        builder.settings.admin_space_left = space(value)?;
        Ok(())
    }),
    action("admin_space_left_action", |builder, raw| {
        let action = builder.action(raw, &[])?;
        builder.settings.admin_space_left_action = action;
        Ok(())
    }),
    action("disk_full_action", |builder, raw| {
        let action = builder.action(raw, &["email"])?;
        builder.settings.disk_full_action = action;
        Ok(())
    }),
    action("disk_error_action", |builder, raw| {
        let action = builder.action(raw, &["email", "rotate"])?;
        builder.settings.disk_error_action = action;
        Ok(())
    }),
    key("verify_email", |builder, (value, _)| {
        builder.verify_email = parse_yes_no(value)?;
        Ok(())
    }),
    key("action_mail_acct", |builder, (value, _)| {
        if builder.verify_email {
            check_mail_address(value)?;
        }
        builder.settings.action_mail_acct = value.into();
        Ok(())
    }),
    key("priority_boost", |builder, (value, _)| {
        builder.settings.priority_boost = parse_u32(value, 0, INT_MAX)?;
        Ok(())
    }),
    key("tcp_listen_port", tcp_listen_port),
    key("tcp_listen_queue", |builder, (value, _)| {
        number(value, 1, 65_535)?;
        builder.ignored("tcp_listen_queue")
    }),
    key("tcp_max_per_addr", |builder, (value, _)| {
        number(value, 1, 1024)?;
        builder.ignored("tcp_max_per_addr")
    }),
    key("use_libwrap", |builder, (value, _)| {
        parse_yes_no(value)?;
        builder.ignored("use_libwrap")
    }),
    key("tcp_client_ports", |builder, (value, _)| {
        check_ports(value)?;
        builder.ignored("tcp_client_ports")
    }),
    key("tcp_client_max_idle", |builder, (value, _)| {
        parse_u32(value, 0, INT_MAX)?;
        builder.ignored("tcp_client_max_idle")
    }),
    key("transport", |builder, (value, _)| {
        parse_choice(value, &[("tcp", ()), ("tls", ()), ("krb5", ())])?;
        builder.ignored("transport")
    }),
    key("enable_krb5", |builder, (value, _)| {
        parse_yes_no(value)?;
        builder.ignored("enable_krb5")
    }),
    key("krb5_principal", |builder, _| {
        builder.ignored("krb5_principal")
    }),
    key("krb5_key_file", |builder, _| {
        builder.ignored("krb5_key_file")
    }),
    key("tls_psk_file", |builder, (value, _)| {
        check_absolute_path(value)?;
        builder.ignored("tls_psk_file")
    }),
    key("tls_psk_identity", |builder, _| {
        builder.ignored("tls_psk_identity")
    }),
    key("tls_cipher_suites", |builder, _| {
        builder.ignored("tls_cipher_suites")
    }),
    key("tls_key_exchange", |builder, _| {
        builder.ignored("tls_key_exchange")
    }),
    key("tls_require_pqc", |builder, (value, _)| {
        parse_yes_no(value)?;
        builder.ignored("tls_require_pqc")
    }),
    key("tls_auth", |builder, _| builder.ignored("tls_auth")),
    key("tls_crypto_profile", |builder, (value, _)| {
        parse_choice(value, &[("compatible", ()), ("system", ()), ("pqc", ())])?;
        builder.ignored("tls_crypto_profile")
    }),
    key("tls_allowed_clients", |builder, (value, _)| {
        check_absolute_path(value)?;
        builder.ignored("tls_allowed_clients")
    }),
    key("distribute_network", |builder, (value, _)| {
        parse_yes_no(value)?;
        builder.ignored("distribute_network")
    }),
    key("q_depth", |builder, (value, _)| {
        builder.settings.q_depth = parse_u32(value, 1, 99_999)?;
        Ok(())
    }),
    key("overflow_action", |builder, (value, _)| {
        builder.settings.overflow_action = parse_choice(value, OVERFLOWS)?;
        Ok(())
    }),
    key("max_restarts", |builder, (value, _)| {
        builder.settings.max_restarts = parse_u32(value, 0, INT_MAX)?;
        Ok(())
    }),
    key("plugin_dir", |builder, (value, _)| {
        check_absolute_path(value)?;
        builder.settings.plugin_dir = value.into();
        Ok(())
    }),
    key("end_of_event_timeout", |builder, (value, _)| {
        parse_u32(value, 0, INT_MAX)?;
        builder.ignored("end_of_event_timeout")
    }),
    key("report_interval", |builder, (value, _)| {
        builder.settings.report_interval = time(value, MAX_REPORT_INTERVAL)?;
        Ok(())
    }),
];

const FLUSHES: &[(&str, Flush)] = &[
    ("none", Flush::None),
    ("incremental", Flush::Incremental),
    ("incremental_async", Flush::IncrementalAsync),
    ("data", Flush::Data),
    ("sync", Flush::Sync),
];

const OVERFLOWS: &[(&str, OverflowAction)] = &[
    ("ignore", OverflowAction::Ignore),
    ("syslog", OverflowAction::Syslog),
    ("suspend", OverflowAction::Suspend),
    ("single", OverflowAction::Single),
    ("halt", OverflowAction::Halt),
];

impl<'a> SettingsBuilder<'a> {
    pub(super) fn new(host: &'a dyn ConfigHost) -> Self {
        Self {
            settings: Settings::default(),
            key_positions: KeyPositions::new(),
            host,
            verify_email: true,
        }
    }

    /// Applies one line. Returns findings about it.
    pub(super) fn take(&mut self, line: &Assignment<'_>) -> Vec<Diagnostic> {
        let position = line.position;
        let error = |span, fault: ValueError| {
            vec![position.finding(
                Severity::Error,
                fault.code,
                span,
                fault.message,
                fault.advice,
            )]
        };
        let Some(key) = KEYS.iter().find(|key| line.key.is(key.name)) else {
            let unknown = ValueError::new(
                "unknown-key",
                format!("unknown key `{}`", line.key.text),
                "see auditd.conf(5) for all keys; tollgate's own settings belong in tollgate.toml",
            );
            return error(line.key.span(), unknown);
        };
        let (option, extra) = match line.extra.as_slice() {
            [] => (None, None),
            [option] if key.option => (Some(option), None),
            [option, extra, ..] if key.option => (Some(option), Some(extra)),
            [extra, ..] => (None, Some(extra)),
        };
        if let Some(extra) = extra {
            let advice = if extra.text.starts_with(b"#") {
                "a comment needs a line of its own"
            } else {
                "write one value"
            };
            let message = format!("`{}` does not take a second value", key.name);
            return error(extra.span(), ValueError::new("extra-word", message, advice));
        }
        let raw = (line.value.text, option.map(|option| option.text));
        if let Err(fault) = (key.set)(self, raw) {
            // The second word is at fault only if the value itself is valid.
            let word = option
                .filter(|_| line.value.is("exec"))
                .unwrap_or(&line.value);
            return error(word.span(), fault);
        }
        let span = line.key.span();
        let twice = self
            .key_positions
            .insert(key.name, (position, span.clone()));
        let finding = twice.map(|(first, _)| {
            position.finding(
                Severity::Warning,
                "set-twice",
                span,
                format!("`{}` is already set in line {}", key.name, first.line),
                "the last line applies: remove the other",
            )
        });
        finding.into_iter().collect()
    }

    /// Records a key that has no effect.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "setters in the table return its result"
    )]
    fn ignored(&mut self, name: &'static str) -> Result<(), ValueError> {
        if !self.settings.ignored.contains(&name) {
            self.settings.ignored.push(name);
        }
        Ok(())
    }

    /// Parses an action. `not` lists actions that this key does not accept.
    fn action(&self, (value, option): RawValue<'_>, not: &[&str]) -> Result<Action, ValueError> {
        let table: Vec<(&str, Action)> = [
            ("ignore", Action::Ignore),
            ("syslog", Action::Syslog),
            ("rotate", Action::Rotate),
            ("email", Action::Email),
            ("exec", Action::Exec(BString::default())),
            ("suspend", Action::Suspend),
            ("single", Action::Single),
            ("halt", Action::Halt),
        ]
        .into_iter()
        .filter(|(name, _)| !not.contains(name))
        .collect();
        let action = parse_choice(value, &table)?;
        match (action, option) {
            (Action::Exec(_), program) => Ok(Action::Exec(self.program(program)?)),
            (_, Some(option)) => Err(program_not_allowed(value, option)),
            (Action::Email, None) if !self.host.can_mail() => Err(ValueError::new(
                "not-supported",
                "cannot send mail: `/usr/lib/sendmail` is not executable",
                "install a mail transfer agent, or use `syslog` or `exec`",
            )),
            (action, None) => Ok(action),
        }
    }

    fn program(&self, program: Option<&BStr>) -> Result<BString, ValueError> {
        let Some(program) = program else {
            return Err(ValueError::new(
                "incomplete-line",
                "`exec` needs a program",
                "write its path after `exec`, such as `exec /usr/local/sbin/make-room`",
            ));
        };
        check_absolute_path(program)?;
        self.host.may_run(program).map_err(|why| {
            ValueError::new(
                "bad-program",
                format!("`{program}` {why}"),
                "auditd runs only files owned by root with mode 0750, 0755, 0550 or 0555",
            )
        })?;
        Ok(program.into())
    }
}

fn program_not_allowed(value: &BStr, option: &BStr) -> ValueError {
    ValueError::new(
        "extra-word",
        format!("`{value}` takes no program; `{option}` would never run"),
        "remove it, or use `exec`",
    )
}

fn local_events(_: &mut SettingsBuilder<'_>, (value, _): RawValue<'_>) -> Result<(), ValueError> {
    if parse_yes_no(value)? {
        return Ok(());
    }
    Err(ValueError::new(
        "not-supported",
        "`local_events = no` makes auditd collect events of other hosts only; tollgate does not support it",
        "remove the line, or use auditd on this host",
    ))
}

fn tcp_listen_port(
    _: &mut SettingsBuilder<'_>,
    (value, _): RawValue<'_>,
) -> Result<(), ValueError> {
    number(value, 1, 65_535)?;
    Err(ValueError::new(
        "not-supported",
        "tollgate does not receive events from other hosts",
        "remove the line, or use auditd on the collecting host",
    ))
}

fn log_file(builder: &mut SettingsBuilder<'_>, (value, _): RawValue<'_>) -> Result<(), ValueError> {
    /// Length of `/var`.
    const SHORTEST_DIRECTORY: usize = 4;
    check_absolute_path(value)?;
    let directory = value.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    if directory < SHORTEST_DIRECTORY || value.ends_with(b"/") {
        return Err(ValueError::new(
            "bad-value",
            format!(
                "`{value}` is not a log file: its directory's path must have at least 4 characters"
            ),
            "write a path such as /var/log/audit/audit.log",
        ));
    }
    builder.settings.log_file = value.into();
    Ok(())
}

fn log_format(
    builder: &mut SettingsBuilder<'_>,
    (value, _): RawValue<'_>,
) -> Result<(), ValueError> {
    let formats = [
        ("raw", Some(LogFormat::Raw)),
        ("enriched", Some(LogFormat::Enriched)),
        ("nolog", None),
    ];
    match parse_choice(value, &formats)? {
        Some(format) => builder.settings.log_format = format,
        // The old name of `write_logs = no`.
        None => builder.settings.write_logs = false,
    }
    Ok(())
}

fn log_group(
    builder: &mut SettingsBuilder<'_>,
    (value, _): RawValue<'_>,
) -> Result<(), ValueError> {
    let group = if value.first().is_some_and(u8::is_ascii_digit) {
        Some(parse_u32(value, 0, u32::MAX)?)
    } else {
        builder.host.group(value)
    };
    builder.settings.log_group = group.ok_or_else(|| {
        ValueError::new(
            "unknown-group",
            format!("unknown group `{value}`"),
            "write a group of this host, or a number",
        )
    })?;
    Ok(())
}

fn name_format(
    builder: &mut SettingsBuilder<'_>,
    (value, _): RawValue<'_>,
) -> Result<(), ValueError> {
    let formats = [
        ("none", Some(NameFormat::None)),
        ("hostname", Some(NameFormat::Hostname)),
        ("fqd", None),
        ("numeric", Some(NameFormat::Numeric)),
        ("user", Some(NameFormat::User)),
    ];
    let Some(format) = parse_choice(value, &formats)? else {
        return Err(ValueError::new(
            "not-supported",
            "tollgate does not resolve its own host name: the answer depends on the network",
            "set `name_format = user`, and `name` to the fully qualified name",
        ));
    };
    builder.settings.name_format = format;
    Ok(())
}

fn max_log_file_action(
    builder: &mut SettingsBuilder<'_>,
    (value, option): RawValue<'_>,
) -> Result<(), ValueError> {
    let actions = [
        ("ignore", MaxLogFileAction::Ignore),
        ("syslog", MaxLogFileAction::Syslog),
        ("exec", MaxLogFileAction::Exec(BString::default())),
        ("suspend", MaxLogFileAction::Suspend),
        ("rotate", MaxLogFileAction::Rotate),
        ("keep_logs", MaxLogFileAction::KeepLogs),
    ];
    builder.settings.max_log_file_action = match (parse_choice(value, &actions)?, option) {
        (MaxLogFileAction::Exec(_), program) => MaxLogFileAction::Exec(builder.program(program)?),
        (_, Some(option)) => return Err(program_not_allowed(value, option)),
        (action, None) => action,
    };
    Ok(())
}
