//! The measured machine, and the cost of its tasks.

use nix::errno::Errno;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::programs::AUDITCTL;

/// What a reader needs to compare figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// Kernel release.
    pub(crate) kernel: String,
    /// Kernel version: preemption and build date.
    pub(crate) build: String,
    /// CPU model name, family and model.
    pub(crate) cpu: String,
    /// Number of CPUs.
    pub(crate) cpus: usize,
    /// Whether there is a hypervisor.
    pub(crate) is_virtual: bool,
    /// CPU frequency governor; empty if unknown.
    pub(crate) governor: String,
    /// Memory.
    pub(crate) memory_mib: u64,
    /// Load average of the minute before the measurement.
    pub(crate) load: String,
    /// File system type of the logs.
    pub(crate) log_filesystem: String,
    /// Version of auditctl; empty if it is missing.
    pub(crate) auditd: String,
    /// Time of the measurement.
    pub(crate) seconds_since_1970: u64,
}

impl Machine {
    /// Detects this machine; `logs` is the directory of the logs.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn detect(logs: &Path) -> anyhow::Result<Self> {
        let read =
            |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read `{path}`"));
        let cpuinfo = read("/proc/cpuinfo")?;
        let mounts = read("/proc/self/mounts")?;
        let logs = logs.canonicalize().context("cannot find the logs")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            build: read("/proc/sys/kernel/version")?.trim().to_owned(),
            cpu: cpu(&cpuinfo),
            cpus: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            is_virtual: cpuinfo
                .lines()
                .find(|line| line.starts_with("flags"))
                .is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor")),
            governor: fs::read_to_string(governor)
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
            memory_mib: parse_kib(&read("/proc/meminfo")?, "MemTotal").unwrap_or(0) / 1024,
            load: read("/proc/loadavg")?
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
            log_filesystem: filesystem(&mounts, &logs).unwrap_or("unknown").to_owned(),
            auditd: auditd_version(),
            seconds_since_1970: now.context("the clock is wrong")?.as_secs(),
        })
    }

    /// The machine on one line.
    pub(crate) fn describe(&self) -> String {
        let Self {
            kernel,
            build,
            cpu,
            cpus,
            is_virtual,
            governor,
            memory_mib,
            load,
            log_filesystem,
            auditd,
            seconds_since_1970: _,
        } = self;
        let place = if *is_virtual { "virtual machine" } else { "" };
        let with = |name: &str, value: &str| {
            if value.is_empty() {
                String::new()
            } else {
                format!("{name} {value}")
            }
        };
        let count = |number: u64, name: &str| {
            if number == 0 {
                String::new()
            } else {
                format!("{number} {name}")
            }
        };
        let parts = [
            format!("Linux {kernel} ({build})"),
            place.to_owned(),
            with(&count(u64::try_from(*cpus).unwrap_or(0), "CPUs"), cpu),
            count(memory_mib.div_ceil(1024), "GiB"),
            with("logs on", log_filesystem),
            with("load", load),
            with("governor", governor),
            with("audit", auditd),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    }
}

/// CPU time of all live threads of a process.
///
/// # Errors
/// When the process does not exist.
pub(crate) fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            // The thread has ended since the directory was read.
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        let ns = text
            .split_whitespace()
            .next()
            .and_then(|field| field.parse().ok());
        sum += Duration::from_nanos(ns.ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(sum)
}

/// Whether a file of a thread cannot be read because the thread has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Peak memory of a process in bytes.
///
/// # Errors
/// When the process does not exist.
pub(crate) fn peak_memory(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = parse_kib(&status, "VmHWM").ok_or(io::ErrorKind::InvalidData)?;
    Ok(kib * 1024)
}

/// Memory of a process in bytes without BPF maps: the daemon maps the ring twice.
///
/// # Errors
/// When the process does not exist.
pub(crate) fn resident_without_ring(pid: u32) -> io::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    if maps.is_empty() {
        // A zombie.
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(rss_without_bpf_kib(&maps) * 1024)
}

/// Sums `Rss` of the mappings in `smaps`; the first line of each ends with its name.
fn rss_without_bpf_kib(maps: &str) -> u64 {
    let (mut sum, mut of_bpf) = (0, false);
    for line in maps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if !first.ends_with(':') {
            of_bpf = line.ends_with("anon_inode:bpf-map");
        } else if first == "Rss:" && !of_bpf {
            sum += parse_kib(line, "Rss").unwrap_or(0);
        }
    }
    sum
}

/// Process id of `kauditd`, the kernel thread that sends records to auditd.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn kauditd_pid() -> io::Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have exited.
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm == "kauditd\n") {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Finds other tollgate daemons: they add overhead in every mode.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn other_daemons() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have exited.
        let Ok(tasks) = fs::read_dir(entry.path().join("task")) else {
            continue;
        };
        let drains = tasks.filter_map(Result::ok).any(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm == "tlg-ring\n")
        });
        if drains {
            found.push(pid);
        }
    }
    Ok(found)
}

fn auditd_version() -> String {
    let Some(path) = AUDITCTL.path() else {
        return String::new();
    };
    let printed = Command::new(path).arg("-v").output();
    printed
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .and_then(|text| text.split_whitespace().last().map(str::to_owned))
        .unwrap_or_default()
}

/// A field of `/proc/meminfo` or `/proc/PID/status`.
fn parse_kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, rest) = line.split_once(':')?;
        let kib = rest.trim().strip_suffix("kB")?.trim();
        (found == name).then(|| kib.parse().ok()).flatten()
    })
}

/// CPU name, family and model; the vendor names of virtual CPUs are vague.
fn cpu(cpuinfo: &str) -> String {
    let field = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted).then(|| value.trim())
        })
    };
    format!(
        "{} (family {} model {})",
        field("model name").unwrap_or("of unknown name"),
        field("cpu family").unwrap_or("?"),
        field("model").unwrap_or("?")
    )
}

/// File system type of a path: the last of the longest matching mount points.
pub(crate) fn filesystem<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
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
    fn cpu_is_described_by_name_family_and_model() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Fast One\n";
        assert_eq!(cpu(cpuinfo), "Fast One (family 6 model 207)");
        assert_eq!(cpu(""), "of unknown name (family ? model ?)");
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
    fn unknown_facts_of_a_machine_are_omitted() {
        let machine = Machine {
            kernel: "6.12".into(),
            build: "of Debian".into(),
            ..Machine::default()
        };
        assert_eq!(machine.describe(), "Linux 6.12 (of Debian)");
        let machine = Machine {
            cpus: 2,
            cpu: "Fast One".into(),
            ..machine
        };
        assert_eq!(
            machine.describe(),
            "Linux 6.12 (of Debian), 2 CPUs Fast One"
        );
    }

    #[test]
    fn sizes_are_read_by_whole_name() {
        let text = "VmHWMX:\t 3 kB\nVmHWM:\t    1234 kB\nThreads:\t1\n";
        assert_eq!(parse_kib(text, "VmHWM"), Some(1234));
        assert_eq!(parse_kib(text, "Threads"), None);
    }

    #[test]
    fn ring_is_not_counted() {
        let maps = "7f00-7f01 rw-s 00000000 00:0e 1041       anon_inode:bpf-map\nSize:  4 kB\nRss:  4000 kB\n\
                    7f02-7f03 rw-p 00000000 00:00 0 \nSize:   64 kB\nRss:    30 kB\nPss:   7 kB\n\
                    7f04-7f05 r-xp 00000000 fe:00 9       /usr/bin/tollgate\nRss:    5 kB\nVmFlags: rd\n";
        assert_eq!(rss_without_bpf_kib(maps), 35);
        assert!(resident_without_ring(std::process::id()).unwrap() > 1 << 16);
    }

    #[test]
    fn cost_of_a_missing_process_is_an_error() {
        let own = std::process::id();
        assert!(cpu_time(own).unwrap() > Duration::ZERO);
        assert!(peak_memory(own).unwrap() > 1 << 16);
        assert!(cpu_time(u32::MAX).is_err() && peak_memory(u32::MAX).is_err());
    }
}
