//! Log settings that `-e 2` locks, stored for the next daemon.

use anyhow::{Context as _, ensure};
use audit::conf::ConfigHost;
use audit::conf::auditd::{Settings, parse};
use audit::rule::Severity;
use bstr::{BStr, BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

use super::LogConfig;
use crate::json_bytes::JsonBytes;

/// Path and locked settings of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockedLogSettings {
    path: JsonBytes,
    /// Locked settings as lines of `auditd.conf`; `None` for a log that is only written.
    conf: Option<JsonBytes>,
}

impl LogConfig {
    /// The locked settings of this log.
    pub(crate) fn locked_settings(&self) -> LockedLogSettings {
        use std::os::unix::ffi::OsStrExt as _;
        let conf = self.conf.as_ref().map(|conf| {
            let lines = conf.locked_keys().into_iter().flat_map(|(key, value)| {
                [key.as_bytes(), b" = ", value.as_slice(), b"\n"].concat()
            });
            JsonBytes::new(&lines.collect::<Vec<u8>>())
        });
        LockedLogSettings {
            path: JsonBytes::new(self.path.as_os_str().as_bytes()),
            conf,
        }
    }

    /// The first locked key that differs in other settings.
    pub(in crate::sinks::audit_log) fn differs(&self, other: &Self) -> Option<&'static str> {
        if self.path != other.path {
            return Some("log_file");
        }
        let (old, new) = match (&self.conf, &other.conf) {
            (Some(old), Some(new)) => (old.locked_keys(), new.locked_keys()),
            (None, None) => return None,
            _ => return Some("auditd.conf"),
        };
        let mut keys = old.into_iter().zip(new);
        keys.find_map(|(old, new)| (old != new).then_some(old.0))
    }

    /// Returns this log with the locked settings applied, and the configured settings that are ignored because of
    /// that.
    ///
    /// # Errors
    /// The locked settings cannot be parsed.
    pub(crate) fn apply_locked(
        self,
        locked_settings: &LockedLogSettings,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let path = locked_settings
            .path
            .bytes()
            .context("the locked path of the log is invalid")?;
        let path = path
            .to_path()
            .context("the locked path of the log is invalid")?
            .to_owned();
        let mut others = Vec::new();
        let has_conf = self.conf.is_some();
        let is_elsewhere = path != self.path;
        if is_elsewhere {
            others.push(format!("log_file = {}", self.path.display()));
        }
        let conf = match (&locked_settings.conf, self.conf) {
            (None, None) => None,
            (None, Some(_)) => {
                others.push("all of auditd.conf: the locked log has no settings".to_owned());
                None
            }
            (Some(lines), None) => {
                others.push("no auditd.conf".to_owned());
                let none = Settings {
                    // No plugins were configured.
                    plugin_dir: BString::default(),
                    ..Settings::default()
                };
                Some(none.with_locked_keys_of(locked_keys(lines)?))
            }
            (Some(lines), Some(conf)) => {
                let locked_keys = locked_keys(lines)?;
                let keys = conf
                    .locked_keys()
                    .into_iter()
                    .zip(locked_keys.locked_keys());
                others.extend(
                    keys.filter(|(found, locked_settings)| found != locked_settings)
                        .map(|((key, found), _)| format!("{key} = {found}")),
                );
                Some(conf.with_locked_keys_of(locked_keys))
            }
        };
        let kept = Self {
            node: conf.as_ref().and(self.node),
            is_named_by_option: conf.is_none() || self.is_named_by_option,
            is_elsewhere: conf.is_some() && (is_elsewhere || !has_conf),
            path,
            conf: conf.map(Box::new),
        };
        Ok((kept, others))
    }
}

/// Parses locked lines.
fn locked_keys(lines: &JsonBytes) -> anyhow::Result<Settings> {
    let lines = lines
        .bytes()
        .context("the locked log settings are invalid")?;
    let (settings, findings) = parse(&lines, &UncheckedEnvironment);
    // Without an `auditd.conf`, the defaults may conflict.
    let mut wrong = findings.iter().filter(|finding| finding.code != "conflict");
    let is_valid = wrong.all(|finding| finding.severity != Severity::Error);
    ensure!(is_valid, "the locked log settings are invalid: `{lines}`");
    Ok(settings)
}

/// An environment in which every setting is possible, as when it was locked.
struct UncheckedEnvironment;

impl ConfigHost for UncheckedEnvironment {
    fn group(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn may_run(&self, _program: &BStr) -> Result<(), String> {
        Ok(())
    }

    fn can_mail(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use audit::conf::auditd::{Action, MaxLogFileAction, SpaceLimit};

    use super::*;

    const LOG: &str = "/var/log/audit/audit.log";

    fn locked() -> Settings {
        Settings {
            num_logs: 5,
            max_log_file: 8,
            max_log_file_action: MaxLogFileAction::KeepLogs,
            space_left: SpaceLimit::Percent(20),
            space_left_action: Action::Exec("/sbin/make-room".into()),
            admin_space_left: SpaceLimit::Mebibytes(50),
            admin_space_left_action: Action::Single,
            disk_full_action: Action::Halt,
            disk_error_action: Action::Suspend,
            ..Settings::default()
        }
    }

    fn configured(conf: Settings) -> LogConfig {
        LogConfig::configured(conf, None).unwrap()
    }

    /// The locked settings as another daemon reads them.
    fn noted(config: &LogConfig) -> LockedLogSettings {
        serde_json::from_slice(&serde_json::to_vec(&config.locked_settings()).unwrap()).unwrap()
    }

    #[test]
    fn locked_settings_override_those_of_another_daemon() {
        let config = configured(locked());
        let locked_settings = noted(&config);
        assert_eq!(
            config.clone().apply_locked(&locked_settings).unwrap(),
            (config.clone(), vec![])
        );
        let found = configured(Settings {
            write_logs: false,
            log_file: "/tmp/other/audit.log".into(),
            log_group: 7,
            freq: 17,
            ..Settings::default()
        });
        let (now, others) = found.apply_locked(&locked_settings).unwrap();
        assert_eq!(config.differs(&now), None);
        assert_eq!((now.path.clone(), now.writes()), (PathBuf::from(LOG), true));
        // Another group gets no access to the directory.
        assert_eq!(now.access().group, None);
        assert_eq!(now.conf.unwrap().freq, 17, "what is not held is as found");
        assert_eq!(
            others[..2],
            ["log_file = /tmp/other/audit.log", "write_logs = no"]
        );
        assert_eq!(others.len(), 11, "{others:?}");
    }

    #[test]
    fn log_without_auditd_conf_stays_so() {
        let plain = LogConfig::plain(LOG.into());
        let (now, others) = configured(locked()).apply_locked(&noted(&plain)).unwrap();
        assert_eq!((now, others.len()), (plain.clone(), 1));
        let config = configured(locked());
        let (now, others) = plain.clone().apply_locked(&noted(&config)).unwrap();
        assert_eq!((config.differs(&now), others.len()), (None, 1));
        assert_eq!(now.conf.unwrap().plugin_dir, "");
        for (old, new) in [(&plain, &config), (&config, &plain)] {
            assert_eq!(old.differs(new), Some("auditd.conf"));
        }
        assert_eq!(
            plain.clone().apply_locked(&noted(&plain)).unwrap().1,
            [""; 0]
        );
    }

    /// The default has `space_left` conflicts that no `auditd.conf` may have.
    #[test]
    fn default_settings_can_be_locked() {
        let config = configured(Settings::default());
        assert_eq!(
            configured(locked())
                .apply_locked(&noted(&config))
                .unwrap()
                .1
                .len(),
            9
        );
    }

    #[test]
    fn malformed_locked_settings_are_an_error() {
        let locked_settings = LockedLogSettings {
            path: JsonBytes::new(LOG.as_bytes()),
            conf: Some(JsonBytes::new(b"num_logs = many\n")),
        };
        configured(locked())
            .apply_locked(&locked_settings)
            .unwrap_err();
    }
}
