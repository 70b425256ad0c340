//! Debian's kernels: which there are, and how to get one without installing it.
//!
//! Packages of kernels carry their version in the name and leave the archive when the next one comes.
//! What stays is a package without content that depends on the current one.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::succeeds;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A line of kernels that Debian keeps up to date.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// What the kernels of this line have in common.
    pub(crate) line: &'static str,
    /// The package that depends on the current one.
    package: &'static str,
}

/// Debian 12's own kernel, and the newer one that it offers beside it.
pub(crate) const KERNELS: [Kernel; 2] = [
    Kernel {
        line: "6.1",
        package: "linux-image-cloud-amd64",
    },
    Kernel {
        line: "6.12",
        package: "linux-image-6.12-cloud-amd64",
    },
];

/// Modules that a machine can load, in the order in which they need each other; not all kernels have all.
const MODULES: [&str; 11] = [
    "xor",
    "raid6_pq",
    "zstd_compress",
    "libcrc32c",
    "btrfs",
    "overlay",
    "loop",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
];

/// A kernel that can be booted.
#[derive(Debug)]
pub(crate) struct Image {
    /// File name of the package that it comes from, without `.deb`: it has the version.
    pub(crate) package: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// Directory of its modules, whose names are in the order of loading.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// The current kernel, from `directory` if it has been fetched before.
    ///
    /// # Errors
    /// When apt does not know it, or it cannot be fetched or unpacked.
    pub(crate) fn image(&self, directory: &Path) -> Result<Image> {
        if let Ok(image) = self.current(directory) {
            return Ok(image);
        }
        // What apt knows may be older than the archive. Without root this fails, and the second
        // attempt says what is wrong.
        let _refused = succeeds(Command::new("apt-get").args(["-qq", "update"]))?;
        self.current(directory).map_err(|error| {
            format!(
                "cannot get {} of Debian: {error}; is the list of packages fresh (apt-get update)?",
                self.package
            )
            .into()
        })
    }

    fn current(&self, directory: &Path) -> Result<Image> {
        let depends = said(Command::new("apt-cache").args(["depends", self.package]))?;
        let name = dependency(&depends).ok_or("apt-cache names no dependency")?;
        let uris = said(Command::new("apt-get").args(["download", "--print-uris", name]))?;
        let file = file_name(&uris).ok_or("apt-get names no file")?;
        let package = file.strip_suffix(".deb").unwrap_or(file).to_owned();
        let path = directory.join(format!("{package}.vmlinuz"));
        // The number of modules is in the name, because a longer list needs another directory.
        let modules = directory.join(format!("{package}.{}.modules", MODULES.len()));
        if !path.is_file() || !modules.is_dir() {
            // Whatever is interrupted leaves nothing under the final name.
            let partial = directory.join("partial");
            if partial.exists() {
                fs::remove_dir_all(&partial)?;
            }
            fs::create_dir(&partial)?;
            unpack(name, &partial)?;
            let image = find(&partial.join("boot"), "vmlinuz-")?;
            fs::rename(image, &path)?;
            let some = partial.join("modules");
            fs::create_dir(&some)?;
            collect_modules(&partial.join("lib/modules"), &some)?;
            fs::rename(some, &modules)?;
            fs::remove_dir_all(&partial)?;
        }
        Ok(Image {
            package,
            path,
            modules,
        })
    }
}

/// Fetches a package and unpacks it where it is.
fn unpack(name: &str, directory: &Path) -> Result<()> {
    let mut fetch = Command::new("apt-get");
    // The user that apt would rather fetch as may not write here.
    fetch.args(["-qq", "-o", "APT::Sandbox::User=root", "download", name]);
    if !succeeds(fetch.current_dir(directory))? {
        return Err(format!("apt-get cannot fetch {name}").into());
    }
    let package = find(directory, name)?;
    if !succeeds(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(package)
            .arg(directory),
    )? {
        return Err(format!("dpkg-deb cannot unpack {name}").into());
    }
    Ok(())
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

/// Moves those of [`MODULES`] that are somewhere below a directory.
fn collect_modules(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_modules(&path, to)?;
            continue;
        }
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let name = file.split('.').next().unwrap_or_default();
        if let Some(order) = MODULES.iter().position(|&module| module == name) {
            fs::rename(&path, to.join(format!("{order:02}-{file}")))?;
        }
    }
    Ok(())
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
fn dependency(text: &str) -> Option<&str> {
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
            dependency(depends),
            Some("linux-image-6.1.0-56-cloud-amd64")
        );
        assert_eq!(dependency("linux-image-cloud-amd64\n"), None);
        let uris = "'http://deb.debian.org/pool/l_6.1.192-2_amd64.deb' l_6.1.192-2_amd64.deb 267 SHA256:ff\n";
        assert_eq!(file_name(uris), Some("l_6.1.192-2_amd64.deb"));
        assert_eq!(file_name("E: no such package\n"), None);
    }
}
