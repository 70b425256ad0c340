//! The observer of a log: makes probe calls and records when the log grows.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bstr::ByteSlice as _;

/// Interval between two checks of the log size.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Interval between two probe calls.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// How long the log is watched after the last probe call.
const GRACE_PERIOD: Duration = Duration::from_millis(500);
/// Prefix of the file names in probe calls.
const NAME: &str = "probe-";

/// A probe call, by the observer's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Probe {
    /// Just before the call.
    pub(crate) before_ns: f64,
    /// Just after the call.
    pub(crate) after_ns: f64,
}

/// Sleeps.
pub(crate) fn wait(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now())
        && !left.is_zero()
    {
        thread::park_timeout(left);
    }
}

/// What an observer saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observation {
    /// In the order of their numbers.
    pub(crate) probes: Vec<Probe>,
    /// Times at which the log was first seen with a size.
    sizes: Vec<(f64, u64)>,
}

/// Makes probe calls for this time. Standard input is the log.
///
/// # Errors
/// When the size of the log cannot be read.
pub(crate) fn observe(duration: Duration) -> anyhow::Result<()> {
    let log = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let began = Instant::now();
    let since = |moment: Instant| moment.duration_since(began).as_nanos();
    let done = AtomicBool::new(false);
    let mut text = String::new();
    let sizes = thread::scope(|scope| -> io::Result<Vec<(u128, u64)>> {
        let sizes = scope.spawn(|| {
            let (mut sizes, mut last) = (Vec::new(), 0);
            while !done.load(Ordering::Relaxed) {
                let bytes = log.metadata()?.len();
                if bytes != last {
                    sizes.push((since(Instant::now()), bytes));
                    last = bytes;
                }
                thread::park_timeout(POLL_INTERVAL);
            }
            // Bounds the delay of records that have not arrived.
            sizes.push((since(Instant::now()), u64::MAX));
            Ok(sizes)
        });
        let mut number = 0;
        while began.elapsed() < duration {
            let name = format!("{NAME}{number}");
            let before = Instant::now();
            // The file does not exist.
            let _missing = File::open(&name);
            let after = Instant::now();
            text.extend([format!("probe {} {}\n", since(before), since(after))]);
            number += 1;
            thread::park_timeout(PROBE_INTERVAL);
        }
        wait(GRACE_PERIOD);
        done.store(true, Ordering::Relaxed);
        sizes
            .join()
            .unwrap_or_else(|_panic| Err(io::ErrorKind::Other.into()))
    })
    .context("cannot get the size of the log")?;
    for (at, bytes) in sizes {
        text.extend([format!("size {at} {bytes}\n")]);
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot print the observation")
}

impl Probe {
    /// The number of the probe call that a log line is about.
    pub(crate) fn in_line(line: &[u8]) -> Option<usize> {
        if !line.starts_with(b"type=PATH ") {
            return None;
        }
        let at = line.find(b" name=\"probe-")?;
        let digits = line.get(at + b" name=\"probe-".len()..)?;
        let digits = digits.split(|byte| !byte.is_ascii_digit()).next()?;
        digits.to_str().ok()?.parse().ok()
    }
}

impl Observation {
    /// Parses the output of [`observe`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut observation = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["probe", before, after] => observation.probes.push(Probe {
                    before_ns: before.parse().ok()?,
                    after_ns: after.parse().ok()?,
                }),
                ["size", at, bytes] => {
                    observation
                        .sizes
                        .push((at.parse().ok()?, bytes.parse().ok()?));
                }
                _ => return None,
            }
        }
        Some(observation)
    }

    /// Time from a probe call until the log had this size.
    pub(crate) fn delay_ns(&self, probe: Probe, bytes: u64) -> f64 {
        let first = self.sizes.partition_point(|&(_, seen)| seen < bytes);
        let at = self.sizes.get(first).map_or(f64::INFINITY, |&(at, _)| at);
        // The record may arrive before the call returns.
        (at - probe.after_ns).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_in_the_log_once_the_size_includes_it() {
        let text = "probe 100 150\nprobe 1000 1100\nsize 500 10\nsize 1500 30\nsize 9000 18446744073709551615\n";
        let observation = Observation::parse(text).unwrap();
        let [first, second] = observation.probes[..] else {
            panic!("{observation:?}");
        };
        assert_eq!(observation.delay_ns(first, 10), 350.0);
        assert_eq!(observation.delay_ns(first, 11), 1350.0);
        assert_eq!(observation.delay_ns(second, 9), 0.0);
        assert_eq!(observation.delay_ns(second, 31), 7900.0);
        assert!(Observation::parse("probe 1\n").is_none());
    }

    #[test]
    fn probe_names_differ_from_other_names() {
        let path =
            |name: &str| format!("type=PATH msg=audit(1.5:1): item=0 name=\"{name}\" inode=3\n");
        assert_eq!(Probe::in_line(path("probe-205").as_bytes()), Some(205));
        assert_eq!(Probe::in_line(path("probe-").as_bytes()), None);
        assert_eq!(Probe::in_line(path("file1").as_bytes()), None);
        assert_eq!(Probe::in_line(b"type=CWD name=\"probe-2\"\n"), None);
    }
}
