//! What the daemon is told by files: `auditd.conf`, and tollgate's own `tollgate.toml`.
//!
//! The first says where and how records are kept, in the words that administrators know; the second
//! what only tollgate has. What the command line says wins over both, which is the business of
//! `tollgate daemon`.

pub(crate) mod capture;
pub(crate) mod native;
pub(crate) mod plugins;

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use audit::conf::auditd;
use audit::rule::{Diagnostic, Severity};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::host::ThisMachine;
use crate::messages::SourceText;

/// Where `auditd` has its configuration.
pub(crate) const AUDITD_CONF: &str = "/etc/audit/auditd.conf";
/// Where tollgate has its own.
pub(crate) const NATIVE: &str = "/etc/tollgate/tollgate.toml";

/// What a file must be like to be believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trust {
    /// Whether a link to it will do.
    pub(crate) links: bool,
    /// Bits of its mode that it may not have.
    pub(crate) refused: u32,
    /// What having one of them means, and what to do.
    pub(crate) why: &'static str,
    /// Larger files are no configuration.
    pub(crate) limit_bytes: u64,
}

/// As `auditd` wants it, too.
const TRUST: Trust = Trust {
    links: false,
    refused: 0o002,
    why: "can be written by everyone: `chmod o-w` it",
    limit_bytes: 1 << 20,
};

/// A configuration file that was read.
#[derive(Debug)]
pub(crate) struct Configured<T> {
    /// What it says; counts only when nothing is wrong with it.
    pub(crate) settings: T,
    /// Its text, and what is to be said about it.
    pub(crate) file: SourceText,
}

impl<T> Configured<T> {
    /// Reads a file that nobody else can have written: it belongs to root or to who asks.
    ///
    /// # Errors
    /// A file that cannot be read, or that must not be trusted.
    pub(crate) fn read(
        path: &Path,
        trust: Trust,
        parse: impl FnOnce(&[u8]) -> (T, Vec<Diagnostic>),
    ) -> anyhow::Result<Self> {
        let bytes = bytes(path, trust)?;
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

    /// Whether the settings count.
    pub(crate) fn is_right(&self) -> bool {
        self.file.count(Severity::Error) == 0
    }
}

/// Reads an `auditd.conf`.
///
/// # Errors
/// A file that cannot be read, or that must not be trusted.
pub(crate) fn read_auditd(path: &Path) -> anyhow::Result<Configured<auditd::Settings>> {
    Configured::read(path, TRUST, |text| auditd::parse(text, &ThisMachine))
}

/// Reads a `tollgate.toml`.
///
/// # Errors
/// A file that cannot be read, or that must not be trusted.
pub(crate) fn read_native(path: &Path) -> anyhow::Result<Configured<native::Settings>> {
    Configured::read(path, TRUST, native::parse)
}

/// Whether there is such a file; one that cannot be looked at is one.
pub(crate) fn exists(path: &Path) -> bool {
    !matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

fn bytes(path: &Path, trust: Trust) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut flags = OFlag::O_NONBLOCK;
    flags.set(OFlag::O_NOFOLLOW, !trust.links);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .with_context(|| format!("cannot open configuration `{shown}`"))?;
    let about = file
        .metadata()
        .with_context(|| format!("cannot look at configuration `{shown}`"))?;
    if !about.is_file() {
        bail!("configuration `{shown}` is no regular file");
    }
    if about.uid() != 0 && about.uid() != geteuid().as_raw() {
        bail!("configuration `{shown}` belongs to another user than root: `chown root` it");
    }
    if about.mode() & trust.refused != 0 {
        bail!("configuration `{shown}` {}", trust.why);
    }
    let mut bytes = Vec::new();
    file.take(trust.limit_bytes + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read configuration `{shown}`"))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > trust.limit_bytes) {
        bail!(
            "configuration `{shown}` is larger than {} bytes",
            trust.limit_bytes
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
    fn a_file_that_others_could_have_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("auditd.conf");
        fs::write(&path, "space_left = 75\nadmin_space_left = 50\n").unwrap();
        assert!(read_auditd(&path).unwrap().is_right());
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(exists(&link) && read_auditd(&link).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let error = format!("{:#}", read_auditd(&path).unwrap_err());
        assert!(error.contains("everyone"), "{error}");
        assert!(read_auditd(directory.path()).is_err());
        assert!(!exists(&directory.path().join("none")));
    }

    #[test]
    fn mistakes_are_kept_with_their_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("auditd.conf");
        fs::write(&path, "\nflush = often\n").unwrap();
        let read = read_auditd(&path).unwrap();
        assert!(!read.is_right());
        let found = &read.file.diagnostics[1];
        assert_eq!((found.line, found.column), (2, 9));
    }
}
