//! Status and version in the format of `auditctl`.

use audit::ids::Dialect;

use crate::control::protocol::AuditSettings;

/// Returns the version of `auditctl` whose output is imitated, and that of tollgate.
pub(super) fn version(dialect: Dialect) -> Vec<u8> {
    let version = match dialect {
        Dialect::V3 => "3.0.9",
        Dialect::V4 => "4.2.1",
    };
    let own = env!("CARGO_PKG_VERSION");
    format!("auditctl version {version} (tollgate {own})\n").into_bytes()
}

/// Returns the lines of `-s`, except the last, [`feature`]. With `interpret`, names replace numbers.
///
/// # Source
/// `audit_print_reply()` in `src/auditctl-listing.c` of audit-userspace 3.0.9 and 4.2.1.
pub(super) fn settings(settings: &AuditSettings, interpret: bool) -> Vec<u8> {
    let word = |number: u8, words: [&str; 3]| {
        let known = words.get(usize::from(number)).filter(|_| interpret);
        known.map_or_else(|| number.to_string(), |&word| word.to_owned())
    };
    let AuditSettings {
        enabled,
        failure,
        pid,
        rate_limit,
        backlog_limit,
        lost,
        backlog,
        backlog_wait_time,
        backlog_wait_time_actual,
        loginuid_immutable: _,
    } = settings;
    let enabled = word(*enabled, ["disable", "enabled", "enabled+immutable"]);
    let failure = word(*failure, ["silent", "printk", "panic"]);
    format!(
        "enabled {enabled}\nfailure {failure}\npid {pid}\nrate_limit {rate_limit}\n\
         backlog_limit {backlog_limit}\nlost {lost}\nbacklog {backlog}\n\
         backlog_wait_time {backlog_wait_time}\n\
         backlog_wait_time_actual {backlog_wait_time_actual}\n"
    )
    .into_bytes()
}

/// Returns the line about login uids; empty if the kernel lacks the feature.
pub(super) fn feature(settings: &AuditSettings) -> Vec<u8> {
    settings
        .loginuid_immutable
        .map(|feature| {
            let lock = if feature.locked { "locked" } else { "unlocked" };
            format!("loginuid_immutable {} {lock}\n", u8::from(feature.on)).into_bytes()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::Feature;

    #[test]
    fn status_has_the_format_of_auditctl() {
        let state = AuditSettings {
            enabled: 1,
            failure: 1,
            pid: 7,
            backlog_limit: 8192,
            backlog_wait_time: 15000,
            loginuid_immutable: Some(Feature {
                on: true,
                locked: false,
            }),
            ..AuditSettings::default()
        };
        let text = |interpret| {
            let shown = [settings(&state, interpret), feature(&state)].concat();
            String::from_utf8(shown).unwrap()
        };
        let rest = "pid 7\nrate_limit 0\nbacklog_limit 8192\nlost 0\nbacklog 0\n\
                    backlog_wait_time 15000\nbacklog_wait_time_actual 0\n\
                    loginuid_immutable 1 unlocked\n";
        assert_eq!(text(false), format!("enabled 1\nfailure 1\n{rest}"));
        assert_eq!(
            text(true),
            format!("enabled enabled\nfailure printk\n{rest}")
        );
    }
}
