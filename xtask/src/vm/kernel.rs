//! Debian's kernels: which there are, and how to get one without installing it.
//!
//! Packages of kernels carry their version in the name and leave the archive when the next one comes.
//! What stays is a package without content that depends on the current one; backports and sid are searched for
//! the newest name instead.

mod apt;

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use apt::Apt;

use super::target::Target;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Kernels that the host's apt knows: Debian 12's own, and the newer one that it offers beside it.
const OF_HOST: [(&str, &str); 2] = [
    ("6.1", "linux-image-cloud-amd64"),
    ("6.12", "linux-image-6.12-cloud-amd64"),
];

/// The newest kernel of any suite.
const NEWEST: &str = "newest";
/// Suffix of a line of kernels for arm64, the last one.
const ARM64: &str = "-arm64";
/// Suffix of a line of kernels with `PREEMPT_RT`.
const RT: &str = "-rt";
/// Suffixes of a kernel that is booted in another preemption mode than its own, and their kernel options.
const MODES: [(&str, &str); 3] = [
    ("-voluntary", "preempt=voluntary"),
    ("-full", "preempt=full"),
    ("-lazy", "preempt=lazy"),
];

/// Start of the names of packages with kernels.
const IMAGE: &str = "linux-image-";

/// Modules that a machine can load, in the order in which they need each other; not all kernels have all.
const MODULES: [&str; 31] = [
    "xor",
    "raid6_pq",
    "zstd_compress",
    "crc32c_generic",
    "libcrc32c",
    "crc32c-cryptoapi",
    "libblake2b",
    "btrfs",
    "overlay",
    "loop",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
    "xfs",
    "nls_cp437",
    "nls_ascii",
    "fat",
    "vfat",
    "fuse",
    "sunrpc",
    "auth_rpcgss",
    "grace",
    "lockd",
    "nfs_acl",
    "dns_resolver",
    "netfs",
    "fscache",
    "nfs",
    "nfsv4",
    "nfsd",
];

/// A line of kernels that Debian keeps up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// What the kernels of this line have in common, such as `6.12`, `7.3-rt`, `6.12-full` or `newest-arm64`.
    pub(crate) line: String,
    pub(crate) target: Target,
    /// The kernel option of the line's preemption mode, if it is not the kernel's own.
    pub(crate) options: &'static str,
    source: Source,
}

/// How the current kernel of a line is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The host's apt knows this package, which depends on it.
    Dependency(&'static str),
    /// It is the newest of all suites whose version starts with these numbers.
    Newest {
        version: Vec<u32>,
        flavour: &'static str,
    },
}

/// A kernel that can be booted.
#[derive(Debug)]
pub(crate) struct Image {
    /// File name of the package that it comes from, without `.deb`: it has the version.
    pub(crate) package: String,
    /// What `uname -r` prints.
    pub(crate) release: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// Directory of its modules, whose names are in the order of loading.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// The line of a name: one of [`OF_HOST`], the start of a version, or `newest`. Then, in this order, `-rt`
    /// selects kernels with `PREEMPT_RT`, a suffix of [`MODES`] sets the preemption mode, and `-arm64` is the
    /// architecture.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (rest, target) = match name.strip_suffix(ARM64) {
            Some(rest) => (rest, Target::Arm64),
            None => (name, Target::X86_64),
        };
        let mode = MODES
            .into_iter()
            .find_map(|(suffix, option)| Some((rest.strip_suffix(suffix)?, option)));
        let (rest, options) = mode.unwrap_or((rest, ""));
        let (numbers, is_realtime) = match rest.strip_suffix(RT) {
            Some(numbers) => (numbers, true),
            None => (rest, false),
        };
        let of_host = OF_HOST
            .into_iter()
            .find(|(line, _)| *line == rest && target == Target::X86_64);
        let source = match (of_host, numbers) {
            (Some((_, package)), _) => Source::Dependency(package),
            (None, NEWEST) => Source::Newest {
                version: Vec::new(),
                flavour: target.flavour(is_realtime),
            },
            (None, numbers) => Source::Newest {
                version: numbers
                    .split('.')
                    .map(|number| number.parse().ok())
                    .collect::<Option<_>>()?,
                flavour: target.flavour(is_realtime),
            },
        };
        Some(Self {
            line: name.to_owned(),
            target,
            options,
            source,
        })
    }

    /// The current kernel, from `directory` if it has been fetched before.
    ///
    /// # Errors
    /// When apt does not know it, or it cannot be fetched or unpacked.
    pub(crate) fn image(&self, directory: &Path) -> Result<Image> {
        let apt = match &self.source {
            Source::Dependency(_) => Apt::of_host(),
            Source::Newest { .. } => Apt::with_all_suites(directory, self.target.debian())?,
        };
        if let Ok(image) = self.current(&apt, directory) {
            return Ok(image);
        }
        // What apt knows may be older than the archive. Without root this fails, and the second
        // attempt says what is wrong.
        let _refused = apt.update()?;
        self.current(&apt, directory).map_err(|error| {
            format!(
                "cannot get the kernel {} of Debian: {error}; is the list of packages fresh (apt-get update)?",
                self.line
            )
            .into()
        })
    }

    fn current(&self, apt: &Apt, directory: &Path) -> Result<Image> {
        let name = match &self.source {
            Source::Dependency(package) => apt.dependency(package)?,
            Source::Newest { version, flavour } => {
                let names = apt.names(IMAGE)?;
                newest(&names, version, flavour).ok_or("no suite has it")?
            }
        };
        let release = name.strip_prefix(IMAGE).ok_or("it is no kernel")?;
        let package = apt.file(&name)?;
        let path = directory.join(format!("{package}.vmlinuz"));
        // The number of modules is in the name, because a longer list needs another directory.
        let modules = directory.join(format!("{package}.{}.modules", MODULES.len()));
        if !path.is_file() || !modules.is_dir() {
            // Whatever is interrupted leaves nothing under the final name.
            let partial = directory.join("partial");
            if partial.exists() {
                fs::remove_dir_all(&partial)?;
            }
            let tree = partial.join("tree");
            fs::create_dir_all(&tree)?;
            apt.unpack(&name, &tree)?;
            // Since 6.19 the package only depends on others with the files.
            for part in ["linux-binary-", "linux-modules-"] {
                let name = format!("{part}{release}");
                if apt.names(&name)?.contains(&name) {
                    apt.unpack(&name, &tree)?;
                }
            }
            let some = partial.join("modules");
            fs::create_dir(&some)?;
            let image = partial.join("vmlinuz");
            collect(&tree, &image, &some)?;
            fs::rename(image, &path)?;
            if modules.exists() {
                fs::remove_dir_all(&modules)?;
            }
            fs::rename(some, &modules)?;
            fs::remove_dir_all(&partial)?;
        }
        Ok(Image {
            package,
            release: release.to_owned(),
            path,
            modules,
        })
    }
}

/// A program of Debian's package for another architecture, from `directory` if it has been fetched before.
///
/// # Errors
/// When apt does not know the package, it cannot be fetched or unpacked, or lacks the file.
pub(super) fn program(
    package: &str,
    file: &str,
    target: Target,
    directory: &Path,
) -> Result<PathBuf> {
    let tree = directory.join(format!("{package}-{}", target.debian()));
    let path = tree.join(file);
    if !path.is_file() {
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir_all(&tree)?;
        Apt::with_all_suites(directory, target.debian())?.unpack(package, &tree)?;
    }
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("the package {package} has no `{file}`").into())
    }
}

/// Moves the kernel, and those of [`MODULES`] that there are, from below a directory.
fn collect(from: &Path, image: &Path, modules: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, image, modules)?;
            continue;
        }
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let name = file.split('.').next().unwrap_or_default();
        if file == "vmlinuz" || file.starts_with("vmlinuz-") {
            fs::rename(&path, image)?;
        } else if let Some(order) = MODULES.iter().position(|&module| module == name) {
            fs::rename(&path, modules.join(format!("{order:02}-{file}")))?;
        }
    }
    Ok(())
}

/// Of the packages of a flavour, the one with the greatest version that starts with these numbers.
fn newest(names: &[String], version: &[u32], flavour: &str) -> Option<String> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let release = name.strip_prefix(IMAGE)?.strip_suffix(flavour)?;
        let release = release.strip_suffix('-')?;
        // `linux-image-6.12.9+deb13-rt-amd64-dbg` and the like have other flavours.
        let known = |c: char| c.is_ascii_digit() || ".-+".contains(c);
        let (version, rest) = release.split_once("+deb").unwrap_or((release, ""));
        if !version.chars().all(known) || !rest.chars().all(known) {
            return None;
        }
        let parts = release.split(|c: char| !c.is_ascii_digit());
        Some(parts.filter_map(|part| part.parse().ok()).collect())
    };
    let found = names
        .iter()
        .filter_map(|name| Some((numbers(name)?, name)))
        .filter(|(numbers, _)| numbers.starts_with(version));
    found.max().map(|(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let source = |name| Kernel::parse(name).map(|kernel| kernel.source);
        assert_eq!(
            source("6.1"),
            Some(Source::Dependency("linux-image-cloud-amd64"))
        );
        let version = vec![7, 3];
        let flavour = "rt-amd64";
        assert_eq!(source("7.3-rt"), Some(Source::Newest { version, flavour }));
        let version = Vec::new();
        let flavour = "cloud-amd64";
        assert_eq!(source("newest"), Some(Source::Newest { version, flavour }));
        let (version, flavour) = (vec![6, 12], "cloud-arm64");
        assert_eq!(
            source("6.12-arm64"),
            Some(Source::Newest { version, flavour })
        );
        for name in [
            "",
            "x",
            "7.",
            "-rt",
            "rt",
            "-arm64",
            "6.12-none",
            "6.12-arm64-rt",
        ] {
            assert_eq!(source(name), None, "{name}");
        }
    }

    #[test]
    fn mode_is_a_kernel_option_and_not_another_kernel() {
        let (own, full) = (
            Kernel::parse("6.12").unwrap(),
            Kernel::parse("6.12-full").unwrap(),
        );
        assert_eq!((own.options, full.options), ("", "preempt=full"));
        assert_eq!(own.source, full.source);
        let both = Kernel::parse("7.3-rt-lazy-arm64").unwrap();
        let (version, flavour) = (vec![7, 3], "rt-arm64");
        assert_eq!(
            (both.options, both.target, both.source),
            (
                "preempt=lazy",
                Target::Arm64,
                Source::Newest { version, flavour }
            )
        );
    }

    #[test]
    fn newest_version_is_chosen_by_its_numbers() {
        let names: Vec<String> = [
            "linux-image-7.2.9+deb13-cloud-amd64",
            "linux-image-7.2.13+deb14-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64-dbg",
            "linux-image-7.3.4+deb13-rt-amd64",
            "linux-image-unsigned-7.4.1+deb13-cloud-amd64",
            "linux-image-5.10.0-30-cloud-amd64",
            "linux-image-5.10.0-9-cloud-amd64",
            "linux-image-cloud-amd64",
        ]
        .map(str::to_owned)
        .to_vec();
        let newest = |version: &[u32]| newest(&names, version, "cloud-amd64");
        assert_eq!(newest(&[]).as_deref(), Some(names[1].as_str()));
        assert_eq!(newest(&[5, 10]).as_deref(), Some(names[5].as_str()));
        assert_eq!(newest(&[6]), None);
    }
}
