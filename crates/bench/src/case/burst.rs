//! A burst of deletes in a watched directory: what a monitor of file integrity must not miss.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::{Case, Figure, Sample, in_state, mib};
use crate::Options;
use crate::place::{Beside, Place, Placement, UID, figure};
use crate::report::Bound;
use crate::state::State;
use crate::variant::Variant;
use crate::workload::DELETE;

#[derive(Debug)]
pub(crate) struct Burst;

const DELETES: u32 = 50_000;
const BRIEF_DELETES: u32 = 300;
/// How the variants are called that use `rm`.
const RM: &str = ", rm -r, one CPU";
/// The directory that it removes.
const TREE: &str = "tree";

impl Case for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn about(&self) -> &'static str {
        "50,000 deletes in a watched directory, also by rm -r with the daemon on the same CPU: how many are in the log, and what the daemon takes for it"
    }

    fn seed(&self) -> &'static str {
        "public comparisons of monitors of file integrity"
    }

    fn figures(&self) -> &'static [Figure] {
        const {
            &[
                Figure::more("deletes", "/s"),
                Figure::more("kept", "%").goals(&[
                    ("tollgate", Bound::Exactly(100.0)),
                    ("tollgate, rm -r, one CPU", Bound::Exactly(100.0)),
                ]),
                Figure::less("daemon CPU a delete", "us").beside("kernel"),
                Figure::less("daemon memory", "MiB").beside("kernel"),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let directory = work.join("burst");
        let rules = format!(
            "-a always,exit -F arch=b64 -S unlink,unlinkat,rename,renameat,renameat2 -F dir={} -F key=burst\n",
            directory.display()
        );
        let rules_of = |state| if state == State::Off { "" } else { &rules };
        let states = options.against.iter();
        let own = states
            .clone()
            .map(|&state| Variant::plain(state, rules_of(state)));
        // With auditd on that CPU as well it takes minutes.
        let by_rm = states.filter(|&&state| state != State::Kernel);
        let by_rm = by_rm.map(|&state| Variant {
            daemon: Placement::OneCpu,
            ..Variant::named(&format!("{}{RM}", state.name()), state, rules_of(state))
        });
        own.chain(by_rm).collect()
    }

    fn seconds(&self) -> u32 {
        5
    }

    fn sample(&self, place: &Place, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let deletes = if brief { BRIEF_DELETES } else { DELETES };
        let directory = place.nobodys("burst")?;
        let by_rm = variant.name.ends_with(RM);
        // With the kernel's audit enabled it would take longer.
        make_files(&directory.join(TREE), deletes).context("cannot make files")?;
        let (done, spent) = in_state(place, variant, || {
            if by_rm {
                rm(place, &directory, deletes)
            } else {
                delete(place, &directory.join(TREE), deletes)
            }
        })?;
        if !by_rm {
            fs::remove_dir(directory.join(TREE)).context("files are left")?;
        }
        let count = f64::from(deletes);
        let mut sample = Sample {
            values: vec![("deletes", done.rate)],
            said: spent.said,
            ..Sample::default()
        };
        if variant.state != State::Off {
            let kept = deletes_in(&place.log(), &done).context("cannot read the log")?;
            sample.values.extend([
                ("kept", f64::from(kept) * 100.0 / count),
                ("daemon CPU a delete", spent.cpu.as_secs_f64() * 1e6 / count),
                ("daemon memory", mib(spent.memory_bytes)),
            ]);
            if variant.state == State::Tollgate && kept != deletes {
                sample.complaints.push(format!(
                    "{kept} of {deletes} deletes are in the log, and it says that {} are lost",
                    spent.lost
                ));
            }
        }
        Ok(sample)
    }
}

/// What has deleted, and how.
struct Done {
    pid: u32,
    /// Files a second.
    rate: f64,
    /// What tells the calls that delete a file.
    calls: &'static [&'static str],
}

/// Deletes files that are there with `unlink`, 87 on x86-64.
fn delete(place: &Place, directory: &Path, files: u32) -> anyhow::Result<Done> {
    let mut command = place.as_nobody(Placement::OneCpu)?;
    command
        .args(place.workload_words())
        .args([DELETE, &files.to_string()])
        .current_dir(directory);
    let child = Beside::start(&mut command)?;
    Ok(Done {
        pid: child.pid(),
        rate: figure(&child.output()?, "rate")?,
        calls: &["syscall=87"],
    })
}

/// Has `rm -r` delete them, with `unlinkat`, 263 on x86-64.
fn rm(place: &Place, directory: &Path, files: u32) -> anyhow::Result<Done> {
    let mut command = place.as_nobody(Placement::OneCpu)?;
    command.args(["rm", "-r", TREE]).current_dir(directory);
    let began = Instant::now();
    let child = Beside::start(&mut command)?;
    let pid = child.pid();
    child.output()?;
    Ok(Done {
        pid,
        rate: f64::from(files) / began.elapsed().as_secs_f64(),
        // The directory is removed with a flag.
        calls: &["syscall=263", "a2=0"],
    })
}

/// Makes a directory of nobody's with so many names of one file: ext4 looks long for a number for a file
/// where many have just been deleted.
fn make_files(directory: &Path, names: u32) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    let first = directory.join("0");
    File::create(&first)?;
    for number in 1..names {
        fs::hard_link(&first, directory.join(number.to_string()))?;
    }
    chown(directory, Some(UID), Some(UID))
}

/// Deletes of files that are in a log.
fn deletes_in(log: &Path, done: &Done) -> std::io::Result<u32> {
    let mut lines = BufReader::with_capacity(1 << 20, File::open(log)?);
    let (mut line, mut found) = (Vec::new(), 0);
    let pid = format!("pid={}", done.pid);
    while lines.read_until(b'\n', &mut line)? != 0 {
        if line.starts_with(b"type=SYSCALL ") {
            let text = String::from_utf8_lossy(&line);
            let has = |wanted: &str| text.split_ascii_whitespace().any(|field| field == wanted);
            found += u32::from(
                done.calls.iter().all(|call| has(call)) && has("success=yes") && has(&pid),
            );
        }
        line.clear();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deletes_of_the_process_count() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let line = |call: &str, pid: &str| {
            format!(
                "type=SYSCALL msg=audit(1.5:1): syscall={call} success=yes a2=0 ppid=7 pid={pid}\n"
            )
        };
        let removed = line("263", "70").replace("a2=0", "a2=200");
        let text = [
            line("87", "7"),
            line("87", "70"),
            line("3", "70"),
            line("263", "70"),
            removed,
        ]
        .concat();
        fs::write(
            &log,
            text + "type=PATH msg=audit(1.5:1): pid=70 syscall=87\n",
        )
        .unwrap();
        const CALLS: [&[&str]; 2] = [&["syscall=87"], &["syscall=263", "a2=0"]];
        for calls in CALLS {
            let done = Done {
                pid: 70,
                rate: 0.0,
                calls,
            };
            assert_eq!(deletes_in(&log, &done).unwrap(), 1, "{calls:?}");
        }
    }
}
