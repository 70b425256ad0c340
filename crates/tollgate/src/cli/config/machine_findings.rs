//! Findings about what a `tollgate.toml` names on this machine: files, directories, a group, keys of rules, an engine.
//!
//! The text may have other mistakes: the settings that are valid are checked.

use std::path::{Path, PathBuf};

use audit::conf::auditd::Settings;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::{Diagnostic, Severity};
use bstr::{BString, ByteSlice as _};
use metrics::MetricsAddress;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, Group, access, geteuid};

use super::super::this_machine::ThisMachineEngine;
use crate::config::tollgate_toml::{EngineChoice, PinsSetting, finding_at};
use crate::config::{self, ConfigFile, TollgateToml};
use crate::host::{self, Planner};
use crate::messages;
use crate::rule_files::{self, keys};
use crate::sinks::audit_log::LogOptions;
use crate::sinks::log_file::log_directory::LogDirectory;

/// Most findings: each reads the text again.
const MAX_FINDINGS: usize = 100;

/// Returns the findings, those of one setting together.
pub(super) fn find(read: &ConfigFile<TollgateToml>) -> Vec<Diagnostic> {
    let mut checks = Checks {
        bytes: &read.file.bytes,
        settings: &read.settings,
        found: Vec::new(),
    };
    checks.relative_paths();
    checks.auditd_conf();
    checks.compress();
    checks.json_log();
    checks.sockets_and_pins();
    checks.watch_group();
    let (rules, is_complete) = checks.rules();
    // An engine can be refused for one finding only.
    if !is_complete || checks.denied_keys(&rules) {
        checks.engine(rules);
    }
    checks.found
}

struct Checks<'a> {
    bytes: &'a [u8],
    settings: &'a TollgateToml,
    found: Vec<Diagnostic>,
}

impl Checks<'_> {
    fn add(
        &mut self,
        (severity, code): (Severity, &'static str),
        (section, name, value): (&str, &str, &str),
        message: String,
        advice: &str,
    ) {
        if self.found.len() == MAX_FINDINGS {
            return;
        }
        let mut finding = finding_at(self.bytes, (section, name, value), message, advice);
        finding.severity = severity;
        finding.code = code;
        self.found.push(finding);
    }

    /// Adds an error about a file, or a note if this user may not read the file or enter its directory.
    fn add_unless_unreadable(
        &mut self,
        path: &Path,
        code: &'static str,
        place: (&str, &str, &str),
        message: String,
        advice: &str,
    ) {
        let is_denied = |path: &Path, needed| access(path, needed) == Err(Errno::EACCES);
        let directory = path.parent().unwrap_or(path);
        let needed = AccessFlags::R_OK | AccessFlags::X_OK;
        if is_denied(path, AccessFlags::R_OK) || is_denied(directory, needed) {
            let message = format!(
                "`{}` is not checked: this user may not read it",
                path.display()
            );
            self.add(
                (Severity::Note, code),
                place,
                message,
                "run the command as root",
            );
        } else {
            self.add((Severity::Error, code), place, message, advice);
        }
    }

    /// Warns of paths that the daemon looks for in its working directory.
    fn relative_paths(&mut self) {
        let settings = self.settings;
        let rules = settings.rules.iter().flatten();
        let rules = rules.map(|path| ("", "rules", path));
        let conf = settings.auditd_conf.iter();
        let conf = conf.map(|path| ("", "auditd_conf", path));
        let json = settings.json.iter();
        let json = json.map(|json| ("json", "file", &json.file));
        let pins = settings.pins.iter().filter_map(|pins| match pins {
            PinsSetting::Directory(path) => Some(("", "pins", path)),
            PinsSetting::Enabled(_) => None,
        });
        for (section, name, path) in rules.chain(conf).chain(json).chain(pins) {
            if path.is_relative() {
                let shown = path.display().to_string();
                self.add(
                    (Severity::Warning, "relative-path"),
                    (section, name, &shown),
                    format!(
                        "`{shown}` is relative: the daemon looks for it in its working directory, which is `/` under systemd"
                    ),
                    "write the whole path",
                );
            }
        }
    }

    /// Adds an error about a file that does not exist: the daemon would not start.
    fn missing_file(&mut self, name: &str, path: &Path) {
        let shown = path.display().to_string();
        let kind = if name == "rules" { "rule file " } else { "" };
        self.add(
            (Severity::Error, "missing-file"),
            ("", name, &shown),
            format!("{kind}`{shown}` does not exist"),
            "correct the path, or create the file: the daemon does not start without it",
        );
    }

    /// Adds an error about a directory above `directory` that does not exist: the daemon creates only the last one.
    fn missing_directory(&mut self, place: (&str, &str, &str), directory: &Path) {
        let above = directory.parent().unwrap_or(directory);
        // The daemon looks for a relative one in another directory, which is a finding of its own.
        if directory.is_absolute() && !directory.exists() && !above.exists() {
            self.add(
                (Severity::Error, "missing-file"),
                place,
                format!("directory `{}` does not exist", above.display()),
                "correct the path, or create the directory: the daemon does not start without it",
            );
        }
    }

    fn auditd_conf(&mut self) {
        let Some(path) = &self.settings.auditd_conf else {
            return;
        };
        if !config::exists(path) {
            return self.missing_file("auditd_conf", path);
        }
        let shown = path.display().to_string();
        let refused = match config::read_auditd(path) {
            Err(error) => Some(format!("{error:#}")),
            Ok(read) => read.file.errors(),
        };
        if let Some(reason) = refused {
            self.add_unless_unreadable(
                path,
                "refused-file",
                ("", "auditd_conf", &shown),
                format!("the daemon refuses this file: {reason}"),
                &format!("`tollgate config check {shown}` shows every error"),
            );
        }
    }

    /// Finds `compress = true` with settings of the log that keep no old log, or never rotate it.
    fn compress(&mut self) {
        let options = LogOptions {
            index: false,
            compress: self.settings.compress.unwrap_or(false),
        };
        let conf = self.settings.auditd_conf.as_deref();
        let conf = conf.unwrap_or_else(|| Path::new(config::AUDITD_CONF));
        let settings = match config::read_auditd(conf) {
            Ok(read) if read.file.errors().is_none() => read.settings,
            // That is a finding of its own.
            Ok(_) => return,
            Err(_) if config::exists(conf) => return,
            Err(_) => Settings::default(),
        };
        if let Some(message) = options.without_effect(&settings) {
            self.add(
                (Severity::Warning, "no-effect"),
                ("", "compress", "true"),
                message,
                &format!(
                    "set max_log_file_action to ROTATE and num_logs to 2 or more in {}",
                    conf.display()
                ),
            );
        }
    }

    /// Finds directories that are missing for the socket of the metrics and for pins.
    fn sockets_and_pins(&mut self) {
        if let Some(MetricsAddress::Unix(path)) = &self.settings.metrics {
            let directory = path.parent().unwrap_or(path);
            self.missing_directory(("", "metrics", &path.display().to_string()), directory);
        }
        if let Some(PinsSetting::Directory(path)) = &self.settings.pins {
            self.missing_directory(("", "pins", &path.display().to_string()), path);
        }
    }

    /// Finds a JSON log that cannot be created, or that is the audit log.
    fn json_log(&mut self) {
        let Some(json) = &self.settings.json else {
            return;
        };
        let shown = json.file.display().to_string();
        let place = ("json", "file", shown.as_str());
        let directory = LogDirectory::path_of(&json.file);
        let unusable = match &directory {
            Err(error) => Some(format!("{error:#}")),
            Ok(_) if json.file.file_name().is_none() => Some(format!("`{shown}` has no file name")),
            Ok(_) if json.file.is_dir() => Some(format!("`{shown}` is a directory")),
            Ok(_) if json.file.is_symlink() => Some(format!("`{shown}` is a symbolic link")),
            Ok(directory) if directory.exists() => {
                let opened = LogDirectory::existing(&json.file);
                opened.err().map(|error| format!("{error:#}"))
            }
            Ok(_) => None,
        };
        if let Some(reason) = unusable {
            let advice = "write the path of another file: the daemon does not start with this one";
            let file = &json.file;
            return self.add_unless_unreadable(file, "unusable-file", place, reason, advice);
        }
        if let Ok(directory) = directory {
            self.missing_directory(place, &directory);
        }
        let conf = self.settings.auditd_conf.as_deref();
        let conf = conf.unwrap_or_else(|| Path::new(config::AUDITD_CONF));
        let log = config::read_auditd(conf).map(|read| read.settings.log_file);
        let is_same = |log: BString| {
            let resolved = |path: &Path| {
                Some((
                    path.parent()?.canonicalize().ok()?,
                    path.file_name()?.to_owned(),
                ))
            };
            let log = log.to_path().ok().and_then(resolved);
            log.is_some() && log == resolved(&json.file)
        };
        if log.is_ok_and(is_same) {
            self.add(
                (Severity::Error, "same-log"),
                place,
                format!(
                    "`{shown}` is the audit log, `log_file` in `{}`",
                    conf.display()
                ),
                "write another path: the daemon does not start with one file for both",
            );
        }
    }

    /// Finds a group that does not exist: the daemon starts, and only root can watch.
    fn watch_group(&mut self) {
        if let Some(name) = &self.settings.watch_group
            && let Ok(None) = Group::from_name(name)
        {
            self.add(
                (Severity::Warning, "no-effect"),
                ("", "watch_group", name),
                host::absent_watch_group(name),
                &host::watch_group_advice(name),
            );
        }
    }

    /// Returns the rules of the files that the daemon would load, and whether it refuses none. A refused file that
    /// `tollgate.toml` names is a finding.
    fn rules(&mut self) -> (RuleList, bool) {
        let named = self.settings.rules.as_deref();
        let installed = PathBuf::from(config::AUDIT_RULES);
        let by_default = config::exists(&installed).then_some(installed);
        let mut rules = RuleList::default();
        let mut is_complete = true;
        for (source, path) in named.unwrap_or(by_default.as_slice()).iter().enumerate() {
            if let Some(file) = self.rule_file(path, named.is_some()) {
                // Rules that exist already are findings of `tollgate check`.
                let _findings = rules.load(source, file.lines);
            } else {
                is_complete = false;
            }
        }
        (rules, is_complete)
    }

    fn rule_file(&mut self, path: &PathBuf, is_named: bool) -> Option<rule_files::RuleFile> {
        if !config::exists(path) {
            self.missing_file("rules", path);
            return None;
        }
        let shown = path.display().to_string();
        let (reason, advice) = match rule_files::read(std::slice::from_ref(path)) {
            Err(error) => (
                format!("{error:#}"),
                "the daemon does not start without this file: correct it, or the path".to_owned(),
            ),
            Ok(read) => match read.errors() {
                None => return read.files.into_iter().next(),
                Some(errors) => (
                    format!("the daemon refuses this rule file: {errors}"),
                    format!("`tollgate check {shown}` shows every error"),
                ),
            },
        };
        if is_named {
            let place = ("", "rules", shown.as_str());
            let reason = messages::without_errno(&reason).into_owned();
            self.add_unless_unreadable(path, "refused-rules", place, reason, &advice);
        }
        None
    }

    /// Finds keys that no rule has: they deny nothing. Returns whether there is none.
    fn denied_keys(&mut self, rules: &RuleList) -> bool {
        // Without rules in files, they arrive over the control socket.
        if rules.rules().is_empty() {
            return true;
        }
        let deny = self.deny();
        let unused = keys::unused(&deny, rules);
        for key in &unused {
            self.add(
                (Severity::Error, "unused-key"),
                ("on_loss", "deny", &key.to_str_lossy()),
                keys::unused_key(key),
                "correct the key, or add `-k KEY` to the rules whose calls should be denied",
            );
        }
        unused.is_empty()
    }

    fn deny(&self) -> Vec<BString> {
        let keys = self.settings.on_loss.deny.iter().cloned();
        keys.map(BString::from).collect()
    }

    /// Finds out whether an engine would start with these rules and settings.
    fn engine(&mut self, rules: RuleList) {
        let settings = self.settings;
        let choice = settings.engine.unwrap_or(EngineChoice::Auto);
        let plan: Plan = Planner::for_this_machine(self.deny()).plan(rules.into_rules());
        let place = match (settings.engine, settings.on_loss.deny.first()) {
            (Some(choice), _) => ("", "engine", choice.name()),
            (None, Some(key)) => ("on_loss", "deny", key.as_str()),
            (None, None) => ("", "", ""),
        };
        let allow_loss = settings.allow_loss.unwrap_or(false);
        let engine = ThisMachineEngine::find(&host::kernel_probe(), &plan, choice, allow_loss);
        let (severity, message, advice) = match engine {
            ThisMachineEngine::Known(..) => return,
            ThisMachineEngine::NoEngine(refused) => {
                let reasons: Vec<String> = refused
                    .iter()
                    .map(|one| format!("not {}: {}", one.engine.name(), one.reason))
                    .collect();
                (
                    Severity::Error,
                    format!(
                        "the daemon does not start with these settings: {}",
                        reasons.join("; ")
                    ),
                    "run `tollgate doctor`: it shows what this machine lacks",
                )
            }
            // Nothing was asked for that a machine may lack.
            ThisMachineEngine::Unknown(_) if place.1.is_empty() => return,
            ThisMachineEngine::Unknown(reason) => (
                Severity::Note,
                format!("whether the daemon starts with these settings is not known: {reason}"),
                if geteuid().is_root() {
                    "run `tollgate doctor`: it shows what this machine lacks"
                } else {
                    "run the command as root"
                },
            ),
        };
        self.add((severity, "no-engine"), place, message, advice);
    }
}

#[cfg(test)]
mod tests;
