//! The keys of `auditd.conf`: what each takes, and what becomes of it.

use core::time::Duration;
use std::collections::HashMap;
use std::ops::Range;

use bstr::{BStr, BString};

use super::value::{
    Fault, absolute, choice, mail_address, number, number_32, ports, space, time, yes_no,
};
use super::{Action, Flush, Format, MaxLogFileAction, NameFormat, OverflowAction, Settings};
use crate::conf::ConfigHost;
use crate::conf::assignment::{Assignment, Place};
use crate::rule::{Diagnostic, Severity};

/// Where a key was last set.
pub(super) type Places = HashMap<&'static str, (Place, Range<usize>)>;

/// Settings under way.
pub(super) struct Draft<'a> {
    pub(super) settings: Settings,
    pub(super) places: Places,
    host: &'a dyn ConfigHost,
    verify_email: bool,
}

/// The words that a key is given: the value, and what stands behind it.
type Given<'a> = (&'a BStr, Option<&'a BStr>);
type Set = fn(&mut Draft<'_>, Given<'_>) -> Result<(), Fault>;

struct Key {
    name: &'static str,
    /// Whether a word may stand behind the value.
    option: bool,
    set: Set,
}

const fn key(name: &'static str, set: Set) -> Key {
    Key {
        name,
        option: false,
        set,
    }
}

const fn action(name: &'static str, set: Set) -> Key {
    Key {
        name,
        option: true,
        set,
    }
}

/// The longest time between two reports that `auditd` takes.
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(40 * 86_400);
const INT_MAX: u32 = i32::MAX.unsigned_abs();

const KEYS: &[Key] = &[
    key("local_events", local_events),
    key("write_logs", |draft, (value, _)| {
        draft.settings.write_logs = yes_no(value)?;
        Ok(())
    }),
    key("log_file", log_file),
    key("log_format", log_format),
    key("log_group", log_group),
    key("flush", |draft, (value, _)| {
        draft.settings.flush = choice(value, FLUSHES)?;
        Ok(())
    }),
    key("freq", |draft, (value, _)| {
        draft.settings.freq = number_32(value, 0, INT_MAX)?;
        Ok(())
    }),
    key("num_logs", |draft, (value, _)| {
        draft.settings.num_logs = number_32(value, 0, 999)?;
        Ok(())
    }),
    key("dispatcher", |draft, _| draft.idle("dispatcher")),
    key("disp_qos", |draft, _| draft.idle("disp_qos")),
    key("name_format", name_format),
    key("name", |draft, (value, _)| {
        draft.settings.name = Some(value.into());
        Ok(())
    }),
    key("max_log_file", |draft, (value, _)| {
        draft.settings.max_log_file = number(value, 0, u64::MAX >> 20)?;
        Ok(())
    }),
    action("max_log_file_action", max_log_file_action),
    key("space_left", |draft, (value, _)| {
        draft.settings.space_left = space(value)?;
        Ok(())
    }),
    action("space_left_action", |draft, given| {
        let action = draft.action(given, &["halt"])?;
        draft.settings.space_left_action = action;
        Ok(())
    }),
    key("admin_space_left", |draft, (value, _)| {
        draft.settings.admin_space_left = space(value)?;
        Ok(())
    }),
    action("admin_space_left_action", |draft, given| {
        let action = draft.action(given, &[])?;
        draft.settings.admin_space_left_action = action;
        Ok(())
    }),
    action("disk_full_action", |draft, given| {
        let action = draft.action(given, &["email"])?;
        draft.settings.disk_full_action = action;
        Ok(())
    }),
    action("disk_error_action", |draft, given| {
        let action = draft.action(given, &["email", "rotate"])?;
        draft.settings.disk_error_action = action;
        Ok(())
    }),
    key("verify_email", |draft, (value, _)| {
        draft.verify_email = yes_no(value)?;
        Ok(())
    }),
    key("action_mail_acct", |draft, (value, _)| {
        if draft.verify_email {
            mail_address(value)?;
        }
        draft.settings.action_mail_acct = value.into();
        Ok(())
    }),
    key("priority_boost", |draft, (value, _)| {
        draft.settings.priority_boost = number_32(value, 0, INT_MAX)?;
        Ok(())
    }),
    key("tcp_listen_port", tcp_listen_port),
    key("tcp_listen_queue", |draft, (value, _)| {
        number(value, 1, 65_535)?;
        draft.idle("tcp_listen_queue")
    }),
    key("tcp_max_per_addr", |draft, (value, _)| {
        number(value, 1, 1024)?;
        draft.idle("tcp_max_per_addr")
    }),
    key("use_libwrap", |draft, (value, _)| {
        yes_no(value)?;
        draft.idle("use_libwrap")
    }),
    key("tcp_client_ports", |draft, (value, _)| {
        ports(value)?;
        draft.idle("tcp_client_ports")
    }),
    key("tcp_client_max_idle", |draft, (value, _)| {
        number_32(value, 0, INT_MAX)?;
        draft.idle("tcp_client_max_idle")
    }),
    key("transport", |draft, (value, _)| {
        choice(value, &[("tcp", ()), ("tls", ()), ("krb5", ())])?;
        draft.idle("transport")
    }),
    key("enable_krb5", |draft, (value, _)| {
        yes_no(value)?;
        draft.idle("enable_krb5")
    }),
    key("krb5_principal", |draft, _| draft.idle("krb5_principal")),
    key("krb5_key_file", |draft, _| draft.idle("krb5_key_file")),
    key("tls_psk_file", |draft, (value, _)| {
        absolute(value)?;
        draft.idle("tls_psk_file")
    }),
    key("tls_psk_identity", |draft, _| {
        draft.idle("tls_psk_identity")
    }),
    key("tls_cipher_suites", |draft, _| {
        draft.idle("tls_cipher_suites")
    }),
    key("tls_key_exchange", |draft, _| {
        draft.idle("tls_key_exchange")
    }),
    key("tls_require_pqc", |draft, (value, _)| {
        yes_no(value)?;
        draft.idle("tls_require_pqc")
    }),
    key("tls_auth", |draft, _| draft.idle("tls_auth")),
    key("tls_crypto_profile", |draft, (value, _)| {
        choice(value, &[("compatible", ()), ("system", ()), ("pqc", ())])?;
        draft.idle("tls_crypto_profile")
    }),
    key("tls_allowed_clients", |draft, (value, _)| {
        absolute(value)?;
        draft.idle("tls_allowed_clients")
    }),
    key("distribute_network", |draft, (value, _)| {
        yes_no(value)?;
        draft.idle("distribute_network")
    }),
    key("q_depth", |draft, (value, _)| {
        draft.settings.q_depth = number_32(value, 1, 99_999)?;
        Ok(())
    }),
    key("overflow_action", |draft, (value, _)| {
        draft.settings.overflow_action = choice(value, OVERFLOWS)?;
        Ok(())
    }),
    key("max_restarts", |draft, (value, _)| {
        draft.settings.max_restarts = number_32(value, 0, INT_MAX)?;
        Ok(())
    }),
    key("plugin_dir", |draft, (value, _)| {
        absolute(value)?;
        draft.settings.plugin_dir = value.into();
        Ok(())
    }),
    key("end_of_event_timeout", |draft, (value, _)| {
        number_32(value, 0, INT_MAX)?;
        draft.idle("end_of_event_timeout")
    }),
    key("report_interval", |draft, (value, _)| {
        draft.settings.report_interval = time(value, MAX_REPORT_INTERVAL)?;
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

impl<'a> Draft<'a> {
    pub(super) fn new(host: &'a dyn ConfigHost) -> Self {
        Self {
            settings: Settings::default(),
            places: Places::new(),
            host,
            verify_email: true,
        }
    }

    /// Takes one line in; what is to be said about it.
    pub(super) fn take(&mut self, line: &Assignment<'_>) -> Vec<Diagnostic> {
        let place = line.place;
        let error = |span, fault: Fault| {
            vec![place.finding(
                Severity::Error,
                fault.code,
                span,
                fault.message,
                fault.advice,
            )]
        };
        let Some(key) = KEYS.iter().find(|key| line.key.is(key.name)) else {
            let unknown = Fault::new(
                "unknown-key",
                format!("auditd knows no key `{}`", line.key.text),
                "auditd.conf(5) has them all; tollgate's own settings belong into tollgate.toml",
            );
            return error(line.key.span(), unknown);
        };
        let (option, extra) = match line.more.as_slice() {
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
            return error(extra.span(), Fault::new("extra-word", message, advice));
        }
        let given = (line.value.text, option.map(|option| option.text));
        if let Err(fault) = (key.set)(self, given) {
            // What stands behind the value is at fault only where the value itself is known.
            let word = option
                .filter(|_| line.value.is("exec"))
                .unwrap_or(&line.value);
            return error(word.span(), fault);
        }
        let span = line.key.span();
        let twice = self.places.insert(key.name, (place, span.clone()));
        let said = twice.map(|(first, _)| {
            place.finding(
                Severity::Warning,
                "set-twice",
                span,
                format!("`{}` was set in line {} already", key.name, first.line),
                "the last line counts: remove the other",
            )
        });
        said.into_iter().collect()
    }

    /// Notes a key that has no effect.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "it ends the functions of the table"
    )]
    fn idle(&mut self, name: &'static str) -> Result<(), Fault> {
        if !self.settings.idle.contains(&name) {
            self.settings.idle.push(name);
        }
        Ok(())
    }

    /// An action, `not` being those that this key does not take.
    fn action(&self, (value, option): Given<'_>, not: &[&str]) -> Result<Action, Fault> {
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
        let action = choice(value, &table)?;
        match (action, option) {
            (Action::Exec(_), program) => Ok(Action::Exec(self.program(program)?)),
            (_, Some(option)) => Err(no_program(value, option)),
            (Action::Email, None) if !self.host.can_mail() => Err(Fault::new(
                "not-supported",
                "no mail can be sent from here: `/usr/lib/sendmail` is no program",
                "install a mail transfer agent, or use `syslog` or `exec`",
            )),
            (action, None) => Ok(action),
        }
    }

    fn program(&self, program: Option<&BStr>) -> Result<BString, Fault> {
        let Some(program) = program else {
            return Err(Fault::new(
                "incomplete-line",
                "`exec` needs a program",
                "write its path behind it, such as `exec /usr/local/sbin/make-room`",
            ));
        };
        absolute(program)?;
        self.host.may_run(program).map_err(|why| {
            Fault::new(
                "bad-program",
                format!("`{program}` {why}"),
                "auditd runs only files that belong to root and have mode 0750, 0755, 0550 or 0555",
            )
        })?;
        Ok(program.into())
    }
}

fn no_program(value: &BStr, option: &BStr) -> Fault {
    Fault::new(
        "extra-word",
        format!("`{value}` takes no program, and `{option}` would never run"),
        "remove it, or use `exec`",
    )
}

fn local_events(_: &mut Draft<'_>, (value, _): Given<'_>) -> Result<(), Fault> {
    if yes_no(value)? {
        return Ok(());
    }
    Err(Fault::new(
        "not-supported",
        "`local_events = no` makes auditd a collector of what other machines send, which tollgate is not",
        "remove the line, or keep auditd for this machine",
    ))
}

fn tcp_listen_port(_: &mut Draft<'_>, (value, _): Given<'_>) -> Result<(), Fault> {
    number(value, 1, 65_535)?;
    Err(Fault::new(
        "not-supported",
        "tollgate does not take events from other machines yet",
        "remove the line, or keep auditd on the machine that collects",
    ))
}

fn log_file(draft: &mut Draft<'_>, (value, _): Given<'_>) -> Result<(), Fault> {
    /// Length of `/var`.
    const SHORTEST_DIRECTORY: usize = 4;
    absolute(value)?;
    let directory = value.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    if directory < SHORTEST_DIRECTORY || value.ends_with(b"/") {
        return Err(Fault::new(
            "bad-value",
            format!("`{value}` is no log: the name of its directory must have 4 letters or more"),
            "write a path such as /var/log/audit/audit.log",
        ));
    }
    draft.settings.log_file = value.into();
    Ok(())
}

fn log_format(draft: &mut Draft<'_>, (value, _): Given<'_>) -> Result<(), Fault> {
    let formats = [
        ("raw", Some(Format::Raw)),
        ("enriched", Some(Format::Enriched)),
        ("nolog", None),
    ];
    match choice(value, &formats)? {
        Some(format) => draft.settings.log_format = format,
        // The old name of `write_logs = no`.
        None => draft.settings.write_logs = false,
    }
    Ok(())
}

fn log_group(draft: &mut Draft<'_>, (value, _): Given<'_>) -> Result<(), Fault> {
    let group = if value.first().is_some_and(u8::is_ascii_digit) {
        Some(number_32(value, 0, u32::MAX)?)
    } else {
        draft.host.group(value)
    };
    draft.settings.log_group = group.ok_or_else(|| {
        Fault::new(
            "unknown-group",
            format!("this machine has no group `{value}`"),
            "write a group of this machine, or a number",
        )
    })?;
    Ok(())
}

fn name_format(draft: &mut Draft<'_>, (value, _): Given<'_>) -> Result<(), Fault> {
    let formats = [
        ("none", Some(NameFormat::None)),
        ("hostname", Some(NameFormat::Hostname)),
        ("fqd", None),
        ("numeric", Some(NameFormat::Numeric)),
        ("user", Some(NameFormat::User)),
    ];
    let Some(format) = choice(value, &formats)? else {
        return Err(Fault::new(
            "not-supported",
            "tollgate does not ask the resolver for its own name, whose answer changes with the network",
            "set `name_format = user`, and `name` to the name with its domain",
        ));
    };
    draft.settings.name_format = format;
    Ok(())
}

fn max_log_file_action(draft: &mut Draft<'_>, (value, option): Given<'_>) -> Result<(), Fault> {
    let actions = [
        ("ignore", MaxLogFileAction::Ignore),
        ("syslog", MaxLogFileAction::Syslog),
        ("exec", MaxLogFileAction::Exec(BString::default())),
        ("suspend", MaxLogFileAction::Suspend),
        ("rotate", MaxLogFileAction::Rotate),
        ("keep_logs", MaxLogFileAction::KeepLogs),
    ];
    draft.settings.max_log_file_action = match (choice(value, &actions)?, option) {
        (MaxLogFileAction::Exec(_), program) => MaxLogFileAction::Exec(draft.program(program)?),
        (_, Some(option)) => return Err(no_program(value, option)),
        (action, None) => action,
    };
    Ok(())
}
