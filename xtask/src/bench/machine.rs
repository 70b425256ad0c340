//! The machine that is measured, in one line, and what its tasks have cost.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a reader must know to compare figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    kernel: String,
    cpu: String,
    cpus: usize,
    /// Of the last minute, before the measurement.
    load: String,
    /// Type of the file system that logs are written to.
    filesystem: String,
    seconds_since_1970: u64,
}

impl Machine {
    /// This machine, with logs below `logs`.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(super) fn of(logs: &Path) -> Result<Self, Box<dyn Error>> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let load = fs::read_to_string("/proc/loadavg")?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            cpu: cpu(&cpuinfo),
            cpus: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            filesystem: filesystem(&mounts, &logs.canonicalize()?)
                .unwrap_or("unknown")
                .to_owned(),
            seconds_since_1970: now.as_secs(),
        })
    }

    /// The same for programs.
    pub(super) fn json(&self) -> String {
        format!(
            "{{\"kernel\":{},\"cpu\":{},\"cpus\":{},\"load\":{},\"log_filesystem\":{},\"time\":{}}}",
            quoted(&self.kernel),
            quoted(&self.cpu),
            self.cpus,
            quoted(&self.load),
            quoted(&self.filesystem),
            self.seconds_since_1970
        )
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "machine: Linux {}, {}, {} CPUs, load {}, logs on {}",
            self.kernel, self.cpu, self.cpus, self.load, self.filesystem
        )
    }
}

/// CPU time of all threads of a process that are alive.
///
/// # Errors
/// When there is no such process.
pub(super) fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let ns = text
            .split_whitespace()
            .next()
            .and_then(|field| field.parse().ok());
        sum += Duration::from_nanos(ns.ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(sum)
}

/// The kernel's thread that hands audit records to auditd.
///
/// # Errors
/// When `/proc` cannot be read.
pub(super) fn kauditd() -> io::Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may have gone meanwhile.
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm == "kauditd\n") {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// A string of JSON.
pub(super) fn quoted(text: &str) -> String {
    let characters = text.chars().map(|character| match character {
        '"' | '\\' => format!("\\{character}"),
        control if control.is_control() => format!("\\u{:04x}", u32::from(control)),
        other => other.to_string(),
    });
    format!("\"{}\"", characters.collect::<String>())
}

/// Vendor names of virtual CPUs say little: family and model tell the generation.
fn cpu(cpuinfo: &str) -> String {
    let field = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted).then(|| value.trim())
        })
    };
    format!(
        "{} (family {} model {})",
        field("model name").unwrap_or("CPU of unknown name"),
        field("cpu family").unwrap_or("?"),
        field("model").unwrap_or("?")
    )
}

/// Type of the file system that holds a path: of all mounts above it, the longest, and of those
/// the last.
fn filesystem<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_told_by_name_family_and_model() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Fast One\n";
        assert_eq!(cpu(cpuinfo), "Fast One (family 6 model 207)");
        assert_eq!(cpu(""), "CPU of unknown name (family ? model ?)");
    }

    #[test]
    fn filesystem_is_that_of_the_innermost_mount() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /var tmpfs rw 0 0\n/dev/b /var xfs rw 0 0\n\
                      /dev/c /variable btrfs rw 0 0\n";
        assert_eq!(filesystem(mounts, Path::new("/var/tmp/x")), Some("xfs"));
        assert_eq!(filesystem(mounts, Path::new("/home")), Some("ext4"));
        assert_eq!(filesystem("", Path::new("/home")), None);
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }

    #[test]
    fn own_cpu_time_is_told_and_a_missing_process_is_an_error() {
        assert!(cpu_time(std::process::id()).unwrap() > Duration::ZERO);
        assert!(cpu_time(u32::MAX).is_err());
    }
}
