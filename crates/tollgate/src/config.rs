//! Settings of the daemon, and the files that they are read from.
//!
//! [`auditd.conf`](AUDITD_CONF) has the settings that administrators know from `auditd`,
//! [`tollgate.toml`](TOLLGATE_TOML) those that only tollgate has. Options of `tollgate daemon` override
//! both.

pub(crate) mod capture;
mod json_log;
pub(crate) mod plugins;
pub(crate) mod tollgate_toml;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use audit::conf::auditd;
use audit::rule::{Diagnostic, Severity, augenrules};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::host::ThisMachine;
use crate::messages::SourceText;

pub(crate) use json_log::{JsonLogConfig, JsonSchema};
pub(crate) use tollgate_toml::TollgateToml;

/// Path of the configuration of `auditd`.
pub(crate) const AUDITD_CONF: &str = "/etc/audit/auditd.conf";
/// Path of the rules that `augenrules` merges.
pub(crate) const AUDIT_RULES: &str = "/etc/audit/audit.rules";
/// Directory of the files that `augenrules` merges.
const RULES_D: &str = "/etc/audit/rules.d";
/// Path of the configuration of tollgate.
pub(crate) const TOLLGATE_TOML: &str = "/etc/tollgate/tollgate.toml";

/// Requirements on a configuration file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequirements {
    /// Whether the path may be a symbolic link.
    pub(crate) links: bool,
    /// Mode bits that are not allowed.
    pub(crate) forbidden_mode: u32,
    /// The message when one of them is set.
    pub(crate) forbidden_mode_message: &'static str,
    /// Largest size.
    pub(crate) limit_bytes: u64,
}

/// The requirements of `auditd`.
const REQUIREMENTS: FileRequirements = FileRequirements {
    links: false,
    forbidden_mode: 0o002,
    forbidden_mode_message: "is world-writable: run `chmod o-w` on it",
    limit_bytes: 1 << 20,
};

/// A configuration file that is missing, not accessible, or does not meet the requirements.
///
/// `tollgate daemon` exits with [`crate::messages::Exit::Config`] on it, and systemd does not restart it. Errors that
/// may not occur again, such as `ENFILE` or `EIO`, are not of this type.
#[derive(Debug)]
pub(crate) struct FileError(String);

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FileError {}

/// A parsed configuration file.
#[derive(Debug)]
pub(crate) struct ConfigFile<T> {
    /// The settings; valid only if [`Self::is_valid`].
    pub(crate) settings: T,
    /// The text and the findings about it.
    pub(crate) file: SourceText,
}

impl<T> ConfigFile<T> {
    /// Reads and parses a file that root or the current user owns.
    ///
    /// # Errors
    /// [`FileError`] when the file is missing, not accessible or does not meet the requirements; otherwise the
    /// kernel's error.
    pub(crate) fn read(
        path: &Path,
        requirements: FileRequirements,
        parse: impl FnOnce(&[u8]) -> (T, Vec<Diagnostic>),
    ) -> anyhow::Result<Self> {
        let bytes = read_bytes(path, requirements).map_err(|error| {
            if error.downcast_ref().is_some_and(is_transient) {
                return error;
            }
            FileError(format!("{error:#}")).into()
        })?;
        let (settings, diagnostics) = parse(&bytes);
        Ok(Self {
            settings,
            file: SourceText {
                path: path.to_owned(),
                bytes,
                diagnostics,
            },
        })
    }

    /// Whether the file has no errors.
    pub(crate) fn is_valid(&self) -> bool {
        self.file.count(Severity::Error) == 0
    }
}

/// Reads `auditd.conf`.
///
/// # Errors
/// When the file cannot be read or does not meet the requirements.
pub(crate) fn read_auditd(path: &Path) -> anyhow::Result<ConfigFile<auditd::Settings>> {
    ConfigFile::read(path, REQUIREMENTS, |text| auditd::parse(text, &ThisMachine))
}

/// Reads `tollgate.toml`.
///
/// # Errors
/// When the file cannot be read or does not meet the requirements.
pub(crate) fn read_tollgate_toml(path: &Path) -> anyhow::Result<ConfigFile<TollgateToml>> {
    ConfigFile::read(path, REQUIREMENTS, tollgate_toml::parse)
}

/// The rule files that a user names for `tollgate COMMAND`, or those of this machine.
///
/// # Errors
/// None is named, and none is installed.
pub(crate) fn named_or_installed_rule_files(
    named: &[PathBuf],
    command: &str,
) -> anyhow::Result<Vec<PathBuf>> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    installed_rule_files().with_context(|| {
        format!(
            "no rule file is installed in /etc/audit: name the files, as in `tollgate {command} my.rules`"
        )
    })
}

/// The rule files of this machine: those that tollgate.toml names, or the sources of `audit.rules`, or that file.
///
/// # Errors
/// There is none, or the directory of the sources cannot be read.
fn installed_rule_files() -> anyhow::Result<Vec<PathBuf>> {
    let toml = Path::new(TOLLGATE_TOML);
    if exists(toml)
        && let Some(files) = read_tollgate_toml(toml)?.settings.rules
    {
        return Ok(files);
    }
    let mut files = Vec::new();
    if exists(RULES_D.as_ref()) {
        files = rule_sources(RULES_D.as_ref())?;
    }
    if files.is_empty() && exists(AUDIT_RULES.as_ref()) {
        files.push(PathBuf::from(AUDIT_RULES));
    }
    ensure!(!files.is_empty(), "`{RULES_D}` has no rule file");
    Ok(files)
}

/// Rule files of a directory, in the order in which `augenrules` merges them. Hidden files are skipped.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn rule_sources(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read `{}`", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(unreadable)? {
        let name = entry.with_context(unreadable)?.file_name();
        let bytes = name.as_bytes();
        if bytes.ends_with(b".rules") && !bytes.starts_with(b".") {
            names.push(name);
        }
    }
    names.sort_by(|a, b| augenrules::compare(a.as_bytes(), b.as_bytes()));
    Ok(names.iter().map(|name| directory.join(name)).collect())
}

/// Whether the file exists. A file whose metadata cannot be read counts as existing.
pub(crate) fn exists(path: &Path) -> bool {
    !matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Whether an error is not due to the path, type, owner or mode of a file.
fn is_transient(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(
            Errno::ENOENT
                | Errno::ENOTDIR
                | Errno::EACCES
                | Errno::EPERM
                | Errno::ELOOP
                | Errno::ENAMETOOLONG
                | Errno::ENXIO
        )
    )
}

fn read_bytes(path: &Path, requirements: FileRequirements) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut flags = OFlag::O_NONBLOCK;
    flags.set(OFlag::O_NOFOLLOW, !requirements.links);
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("configuration `{shown}` does not exist: create it, or correct the path")
        }
        opened => opened.with_context(|| format!("cannot open configuration `{shown}`"))?,
    };
    let metadata = file
        .metadata()
        .with_context(|| format!("cannot inspect configuration `{shown}`"))?;
    if !metadata.is_file() {
        bail!("configuration `{shown}` is not a regular file");
    }
    if metadata.uid() != 0 && metadata.uid() != geteuid().as_raw() {
        bail!("configuration `{shown}` is not owned by root: run `chown root` on it");
    }
    if metadata.mode() & requirements.forbidden_mode != 0 {
        bail!(
            "configuration `{shown}` {}",
            requirements.forbidden_mode_message
        );
    }
    let mut bytes = Vec::new();
    file.take(requirements.limit_bytes + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read configuration `{shown}`"))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > requirements.limit_bytes) {
        bail!(
            "configuration `{shown}` is larger than {} bytes",
            requirements.limit_bytes
        );
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn world_writable_files_and_links_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("auditd.conf");
        fs::write(&path, "space_left = 75\nadmin_space_left = 50\n").unwrap();
        assert!(read_auditd(&path).unwrap().is_valid());
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(exists(&link) && read_auditd(&link).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let error = format!("{:#}", read_auditd(&path).unwrap_err());
        assert!(error.contains("world-writable"), "{error}");
        assert!(read_auditd(directory.path()).is_err());
    }

    #[test]
    fn missing_file_is_reported_with_advice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none");
        assert!(!exists(&path));
        let error = read_tollgate_toml(&path).unwrap_err();
        assert_eq!(
            error.downcast_ref::<FileError>().unwrap().to_string(),
            format!(
                "configuration `{}` does not exist: create it, or correct the path",
                path.display()
            )
        );
    }

    #[test]
    fn transient_errors_are_no_configuration_errors() {
        // A regular file that cannot be read from its start: EIO.
        let error = read_auditd(Path::new("/proc/self/mem")).unwrap_err();
        assert!(!error.is::<FileError>(), "{error:#}");
        let kernel_error = error.downcast_ref::<io::Error>().unwrap();
        assert_eq!(kernel_error.raw_os_error(), Some(Errno::EIO as i32));
        let below_a_file = Path::new("/proc/self/comm/auditd.conf");
        assert!(read_auditd(below_a_file).unwrap_err().is::<FileError>());
    }

    #[test]
    fn errors_have_a_position() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("auditd.conf");
        fs::write(&path, "\nflush = often\n").unwrap();
        let read = read_auditd(&path).unwrap();
        assert!(!read.is_valid());
        let found = &read.file.diagnostics[1];
        assert_eq!((found.line, found.column), (2, 9));
    }
}
