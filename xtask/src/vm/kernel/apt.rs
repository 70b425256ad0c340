//! apt with the host's configuration, or with a private one that also knows newer and older suites of Debian.
//!
//! The private one has its own lists of packages and installs nothing.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::step::succeeds;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Debian's suites with kernels that Debian 12 does not have. Backports keep older versions.
const SUITES: [&str; 4] = ["bullseye", "trixie", "trixie-backports", "sid"];

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Lists of packages older than this are read again.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// apt with one configuration.
#[derive(Debug)]
pub(super) struct Apt {
    /// The private configuration; without it that of the host is used.
    config: Option<PathBuf>,
}

impl Apt {
    /// apt as the host is configured.
    pub(super) const fn of_host() -> Self {
        Self { config: None }
    }

    /// apt with [`SUITES`] for an architecture of Debian, whose files are in `directory/apt`; those of another one than
    /// `amd64` in `directory/apt-ARCHITECTURE`.
    ///
    /// # Errors
    /// If the files cannot be written, or the lists of packages cannot be read for the first time.
    pub(super) fn with_all_suites(directory: &Path, architecture: &str) -> Result<Self> {
        let directory = directory.join(match architecture {
            "amd64" => "apt".to_owned(),
            other => format!("apt-{other}"),
        });
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let path = |name: &str| directory.join(name).display().to_string();
        let sources: String = SUITES
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n"))
            .collect();
        fs::write(directory.join("sources.list"), sources)?;
        let config = directory.join("apt.conf");
        let options = [
            ("Dir::State", path("")),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", "/dev/null".to_owned()),
            ("Dir::Cache", path("cache")),
            ("Dir::Etc::sourcelist", path("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".to_owned()),
            ("Dir::Etc::preferencesparts", "/dev/null".to_owned()),
            // The user that apt would rather fetch as may not write here.
            ("APT::Sandbox::User", "root".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("APT::Architecture", architecture.to_owned()),
            ("APT::Architectures", architecture.to_owned()),
        ];
        let text: String = options
            .iter()
            .map(|(name, value)| format!("{name} \"{value}\";\n"))
            .collect();
        fs::write(&config, text)?;
        let apt = Self {
            config: Some(config),
        };
        let stamp = directory.join("updated");
        let age = fs::metadata(&stamp)
            .and_then(|found| found.modified())
            .ok()
            .and_then(|time| time.elapsed().ok());
        if age.is_none_or(|age| age > MAX_AGE) {
            if apt.update()? {
                fs::write(stamp, "")?;
            } else if age.is_none() {
                return Err("apt-get cannot read the lists of Debian's suites".into());
            }
        }
        Ok(apt)
    }

    /// Reads the lists of packages again; false if that fails.
    ///
    /// # Errors
    /// If apt cannot be started.
    pub(super) fn update(&self) -> Result<bool> {
        succeeds(self.command("apt-get").args(["-qq", "update"]))
    }

    /// The packages whose name starts so.
    ///
    /// # Errors
    /// If apt fails.
    pub(super) fn names(&self, start: &str) -> Result<Vec<String>> {
        let names = said(self.command("apt-cache").args(["pkgnames", start]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// The first package that a package needs.
    ///
    /// # Errors
    /// If apt does not know the package, or it needs none.
    pub(super) fn dependency(&self, package: &str) -> Result<String> {
        let depends = said(self.command("apt-cache").args(["depends", package]))?;
        let name = first_dependency(&depends).ok_or("apt-cache names no dependency")?;
        Ok(name.to_owned())
    }

    /// The file of a package's current version, without `.deb`.
    ///
    /// # Errors
    /// If apt does not know the package.
    pub(super) fn file(&self, package: &str) -> Result<String> {
        let mut command = self.command("apt-get");
        let uris = said(command.args(["download", "--print-uris", package]))?;
        let file = file_name(&uris).ok_or("apt-get names no file")?;
        Ok(file.strip_suffix(".deb").unwrap_or(file).to_owned())
    }

    /// Downloads a package and unpacks it where it is.
    ///
    /// # Errors
    /// If it cannot be downloaded or unpacked.
    pub(super) fn unpack(&self, package: &str, directory: &Path) -> Result<()> {
        let mut fetch = self.command("apt-get");
        fetch.args(["-qq", "-o", "APT::Sandbox::User=root", "download", package]);
        if !succeeds(fetch.current_dir(directory))? {
            return Err(format!("apt-get cannot fetch {package}").into());
        }
        let file = find(directory, package)?;
        if !succeeds(Command::new("dpkg-deb").arg("-x").arg(file).arg(directory))? {
            return Err(format!("dpkg-deb cannot unpack {package}").into());
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(config) = &self.config {
            command.arg("-c").arg(config);
        }
        command
    }
}

/// The file in a directory whose name starts so.
fn find(directory: &Path, start: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with(start) {
            return Ok(path);
        }
    }
    Err(format!("there is no {start}* in {}", directory.display()).into())
}

/// What a command says on standard output, in English.
fn said(command: &mut Command) -> Result<String> {
    let output = command.env("LC_ALL", "C").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The first package that `apt-cache depends` says is needed.
fn first_dependency(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
}

/// The file that `apt-get download --print-uris` would write: `'URI' FILE SIZE HASH`. In the URI's
/// own last part, and in the file's name, `:` and the like are escaped alike.
fn file_name(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with('\''))?;
    line.split(' ').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_kernel_is_read_off_apt() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(
            first_dependency(depends),
            Some("linux-image-6.1.0-56-cloud-amd64")
        );
        assert_eq!(first_dependency("linux-image-cloud-amd64\n"), None);
        let uris = "'http://deb.debian.org/pool/l_6.1.192-2_amd64.deb' l_6.1.192-2_amd64.deb 267 SHA256:ff\n";
        assert_eq!(file_name(uris), Some("l_6.1.192-2_amd64.deb"));
        assert_eq!(file_name("E: no such package\n"), None);
    }
}
