//! The rules that were last loaded from files without error, kept for a start at which the files have errors.
//!
//! One file in the state directory of the machine's daemon, replaced atomically after each successful start and
//! reload. Rules have users and syscalls as numbers, so a removed user does not matter. The texts of tollgate.toml and
//! auditd.conf are kept as well. A trial has no such directory: it neither uses nor changes the file.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use audit::plan::rule_list::RuleList;
use audit::rule::Severity;
use bstr::{BString, ByteSlice as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::control::protocol::AuditSettings;
use crate::control::rule_json::RuleJson;
use crate::control::rule_store::RuleStore;
use crate::json_bytes::JsonBytes;
use crate::messages::{SourceText, warn};
use crate::rule_files::RuleText;
use crate::{state_file, unix_time};

/// The state directory of the machine's daemon.
pub(crate) const DIRECTORY: &str = "/var/lib/tollgate";
const FILE_NAME: &str = "last-good-rules";
/// Rules without errors with which the daemon did not start.
const FAILED_NAME: &str = "failed-rules";

/// Rules and settings that were in force, as files had them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastGood {
    /// When they were loaded.
    ///
    /// # Units
    /// Seconds since 1970.
    pub(crate) loaded: u64,
    /// The rule files.
    files: Vec<JsonBytes>,
    /// Settings of the rule files.
    settings: AuditSettings,
    /// `[on_loss] deny`.
    deny: Vec<JsonBytes>,
    /// In evaluation order.
    rules: Vec<RuleJson>,
    /// Text of tollgate.toml, if there was one.
    tollgate_toml: Option<JsonBytes>,
    /// Text of auditd.conf, if there was one.
    auditd_conf: Option<JsonBytes>,
}

/// Rules that have no error, but with which the daemon could not start: it starts with the last good ones next time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct FailedRules {
    /// Why the daemon did not start.
    reason: String,
    /// `[on_loss] deny`.
    deny: Vec<JsonBytes>,
    rules: Vec<RuleJson>,
}

/// Subdirectory with the texts of the rule files.
const TEXTS_NAME: &str = "last-good-files";

/// The file of the last good rules, and the configuration files whose texts it has.
#[derive(Clone, Debug)]
pub(crate) struct LastGoodFile {
    path: PathBuf,
    tollgate_toml: Option<PathBuf>,
    auditd_conf: Option<PathBuf>,
}

impl LastGoodFile {
    /// The file in this state directory.
    pub(crate) fn new(directory: &Path, tollgate_toml: Option<PathBuf>) -> Self {
        Self {
            path: directory.join(FILE_NAME),
            tollgate_toml,
            auditd_conf: None,
        }
    }

    /// The same, with this auditd.conf.
    pub(crate) fn with_auditd_conf(self, auditd_conf: Option<PathBuf>) -> Self {
        Self {
            auditd_conf,
            ..self
        }
    }

    /// The state directory, created with mode 0700 if it is missing. A confined daemon could not create it.
    pub(crate) fn directory(&self) -> PathBuf {
        let directory = self.path.parent().unwrap_or_else(|| Path::new("/"));
        // A failure is reported when the rules are written.
        let _made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory.join(TEXTS_NAME));
        directory.to_owned()
    }

    /// Reads the last good rules. `None` if there are none, or if they cannot be used, which is reported.
    pub(crate) fn read(&self) -> Option<LastGood> {
        read(&self.path)
    }

    /// Remembers that the daemon could not start with the rules of the store, unless they are the last good ones: then
    /// it is not because of them.
    pub(crate) fn mark_failed(&self, store: &RuleStore, error: &anyhow::Error) {
        let failed = FailedRules {
            reason: format!("the daemon did not start with these rules: {error:#}"),
            deny: keys(store.planner().denies()),
            rules: store.listed().map(RuleJson::new).collect(),
        };
        let good = self.read();
        if good.is_some_and(|good| good.rules != failed.rules || good.deny != failed.deny) {
            write(&self.path.with_file_name(FAILED_NAME), &failed);
        }
    }

    /// Why the daemon could not start with these rules before, if it could not.
    pub(crate) fn failure(&self, rules: &RuleList, deny: &[BString]) -> Option<String> {
        let failed: FailedRules = read(&self.path.with_file_name(FAILED_NAME))?;
        let rules: Vec<RuleJson> = rules.listed().map(RuleJson::new).collect();
        let is_same = failed.deny == keys(deny) && failed.rules == rules;
        is_same.then_some(failed.reason)
    }

    /// Path of the text of a rule file: a copy for people, with comments. The daemon does not read it.
    pub(crate) fn text_path(&self, rule_file: &Path) -> PathBuf {
        let name = rule_file.as_os_str().as_bytes();
        let name = name.strip_prefix(b"/").unwrap_or(name).replace("/", "-");
        let directory = self.path.with_file_name(TEXTS_NAME);
        directory.join(OsStr::from_bytes(&name))
    }

    /// Replaces the copies of the rule files.
    fn save_texts(&self, files: &[RuleText]) -> io::Result<()> {
        let copies: Vec<PathBuf> = files
            .iter()
            .map(|file| self.text_path(&file.path))
            .collect();
        for (file, copy) in files.iter().zip(&copies) {
            state_file::replace(copy, 0o600, &file.bytes)?;
        }
        for entry in fs::read_dir(self.path.with_file_name(TEXTS_NAME))? {
            let path = entry?.path();
            if !copies.contains(&path) {
                state_file::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Replaces the last good rules by those in force, which were loaded from `files` with their `settings`.
    pub(crate) fn save(&self, files: &[RuleText], settings: AuditSettings, store: &RuleStore) {
        if let Err(error) = self.save_texts(files) {
            let place = self.path.with_file_name(TEXTS_NAME);
            warn(&format!(
                "cannot keep copies of the rule files in `{}`: {error}; after correcting it, run `systemctl reload tollgate`",
                place.display()
            ));
        }
        let text = |path: &Option<PathBuf>, read: fn(&Path) -> anyhow::Result<SourceText>| {
            let file = read(path.as_deref()?).ok()?;
            (file.count(Severity::Error) == 0).then(|| JsonBytes::new(&file.bytes))
        };
        let toml = |path: &Path| config::read_tollgate_toml(path).map(|read| read.file);
        let conf = |path: &Path| config::read_auditd(path).map(|read| read.file);
        let good = LastGood {
            loaded: unix_time::now(),
            files: files
                .iter()
                .map(|file| JsonBytes::new(file.path.as_os_str().as_bytes()))
                .collect(),
            settings,
            deny: keys(store.planner().denies()),
            rules: store.listed().map(RuleJson::new).collect(),
            tollgate_toml: text(&self.tollgate_toml, toml),
            auditd_conf: text(&self.auditd_conf, conf),
        };
        write(&self.path, &good);
        // A failure of other rules no longer matters.
        let _removed = state_file::remove(&self.path.with_file_name(FAILED_NAME));
    }
}

fn text_or_empty(text: Option<&JsonBytes>) -> Option<BString> {
    text.map_or_else(|| Some(BString::default()), JsonBytes::bytes)
}

fn keys(deny: &[BString]) -> Vec<JsonBytes> {
    deny.iter().map(|key| JsonBytes::new(key)).collect()
}

/// Reads a file of the state directory. `None` if it is missing or cannot be used, which is reported.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    try_read(path).unwrap_or_else(|error| {
        warn(&format!("the last good rules are not used: {error:#}"));
        None
    })
}

fn try_read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Option<T>> {
    let Some(text) = state_file::read(path)? else {
        return Ok(None);
    };
    serde_json::from_slice(&text).map(Some).with_context(|| {
        format!(
            "`{}` was written by another version of tollgate",
            path.display()
        )
    })
}

/// Replaces a file of the state directory. A failure is reported: auditing goes on, but the next start cannot fall back
/// to these rules.
fn write(path: &Path, content: &impl Serialize) {
    let written = serde_json::to_vec(content)
        .map_err(io::Error::from)
        .and_then(|text| state_file::replace(path, 0o600, &text));
    if let Err(error) = written {
        warn(&format!(
            "cannot write `{}`, so the next start cannot fall back to these rules if the rule files have errors: {error}; after \
             correcting it, run `systemctl reload tollgate`",
            path.display()
        ));
    }
}

impl LastGood {
    /// Number of rules.
    pub(crate) const fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// The rules.
    ///
    /// # Errors
    /// A rule is not one that this version accepts.
    pub(crate) fn rule_list(&self, source: usize) -> anyhow::Result<RuleList> {
        let mut rules = RuleList::default();
        for (number, form) in (1..).zip(&self.rules) {
            let rule = form.rule().map_err(anyhow::Error::msg)?;
            rules.push(source, number, rule);
        }
        Ok(rules)
    }

    /// The rule files.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let paths = self.files.iter().filter_map(JsonBytes::bytes);
        paths.map(|path| OsStr::from_bytes(&path).into())
    }

    /// Settings to start with. `-e 2` is not applied: it would lock out the corrected rules.
    pub(crate) fn settings(&self) -> AuditSettings {
        AuditSettings {
            enabled: self.settings.enabled.min(1),
            pid: std::process::id(),
            ..self.settings.clone()
        }
    }

    /// Whether `-e 2` was in the rule files.
    pub(crate) const fn locks(&self) -> bool {
        self.settings.enabled > 1
    }

    /// `[on_loss] deny`.
    pub(crate) fn deny(&self) -> Vec<BString> {
        self.deny.iter().filter_map(JsonBytes::bytes).collect()
    }

    /// Text of tollgate.toml; empty, which means the defaults, if there was none.
    pub(crate) fn tollgate_toml(&self) -> Option<BString> {
        text_or_empty(self.tollgate_toml.as_ref())
    }

    /// Text of auditd.conf; empty, which means the defaults, if there was none.
    pub(crate) fn auditd_conf(&self) -> Option<BString> {
        text_or_empty(self.auditd_conf.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn good() -> LastGood {
        LastGood {
            loaded: 1_700_000_000,
            files: vec![JsonBytes::new(b"/a.rules")],
            settings: AuditSettings {
                enabled: 2,
                failure: 2,
                ..AuditSettings::default()
            },
            deny: vec![JsonBytes::new(b"key")],
            tollgate_toml: Some(JsonBytes::new(b"delay_ms = 20\n")),
            ..LastGood::default()
        }
    }

    #[test]
    fn file_is_replaced_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let file = LastGoodFile::new(&state, None);
        assert_eq!(file.read(), None);
        assert_eq!(file.directory(), state);
        write(&file.path, &LastGood::default());
        write(&file.path, &good());
        let read = file.read().unwrap();
        assert_eq!(read, good());
        assert_eq!(read.tollgate_toml().unwrap(), "delay_ms = 20\n");
        // There was none: a new file with errors does not end auditing.
        assert_eq!(read.auditd_conf().unwrap(), "");
        assert_eq!(read.rule_count(), 0);
        assert_eq!(read.deny(), ["key"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&state.join(FILE_NAME)), 0o600);
        assert_eq!(mode(&state), 0o700);
        // And the directory of the texts.
        assert_eq!(fs::read_dir(&state).unwrap().count(), 2);
    }

    #[test]
    fn rule_files_are_kept_with_their_comments() {
        let directory = tempfile::tempdir().unwrap();
        let file = LastGoodFile::new(directory.path(), None);
        file.directory();
        let text = |path: &str, text: &str| RuleText {
            path: path.into(),
            bytes: text.into(),
        };
        let (one, other) = ("/etc/audit/audit.rules", "/srv/audit.rules");
        file.save_texts(&[text(one, "# why\n-w /x\n"), text(other, "")])
            .unwrap();
        file.save_texts(&[text(one, "# why not\n-w /y\n")]).unwrap();
        let kept = directory
            .path()
            .join("last-good-files/etc-audit-audit.rules");
        assert_eq!(file.text_path(one.as_ref()), kept);
        assert_eq!(fs::read(&kept).unwrap(), b"# why not\n-w /y\n");
        assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o600);
        assert!(!file.text_path(other.as_ref()).exists());
    }

    /// The corrected rules must be loadable.
    #[test]
    fn lock_is_not_applied() {
        let good = good();
        assert!(good.locks());
        let settings = good.settings();
        assert_eq!((settings.enabled, settings.failure), (1, 2));
        assert_eq!(settings.pid, std::process::id());
    }

    #[test]
    fn untrusted_files_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let file = LastGoodFile::new(directory.path(), None);
        let path = directory.path().join(FILE_NAME);
        write(&file.path, &good());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(file.read(), None);
        write(&file.path, &good());
        fs::hard_link(&path, directory.path().join("other")).unwrap();
        assert_eq!(file.read(), None);
        fs::write(&path, "{").unwrap();
        assert_eq!(file.read(), None);
        fs::remove_file(&path).unwrap();
        symlink(directory.path().join("other"), &path).unwrap();
        assert_eq!(file.read(), None);
        // A failure to write is no failure of the daemon.
        let missing = LastGoodFile::new(&directory.path().join("missing"), None);
        write(&missing.path, &good());
        assert_eq!(missing.read(), None);
    }
}
