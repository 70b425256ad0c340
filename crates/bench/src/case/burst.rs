//! A burst of deletes in a watched directory.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::{Case, FigureSpec, RECORDED, Sample, mib, with_audit};
use crate::Options;
use crate::report::Bound;
use crate::variant::AuditMode;
use crate::variant::Variant;
use crate::work_dir::{BackgroundCommand, CpuAffinity, UID, WorkDir, parse_value};
use crate::workload::DELETE;

#[derive(Debug)]
pub(crate) struct Burst;

const DELETES: u32 = 50_000;
const BRIEF_DELETES: u32 = 300;
/// Suffix of the variants that use `rm`.
const RM: &str = ", rm -r, one CPU";
/// The directory that `rm` removes.
const TREE: &str = "tree";

impl Case for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn about(&self) -> &'static str {
        "50,000 deletes in a watched directory, also by rm -r on the daemon's CPU: recorded events and the cost of the daemon"
    }

    fn origin(&self) -> &'static str {
        "public comparisons of file integrity monitors"
    }

    fn figures(&self) -> &'static [FigureSpec] {
        const {
            &[
                FigureSpec::more("deletes", "/s").headlines(RECORDED),
                FigureSpec::more("recorded", "%").goals(&[
                    ("tollgate", Bound::Exactly(100.0)),
                    ("tollgate, rm -r, one CPU", Bound::Exactly(100.0)),
                ]),
                FigureSpec::less("daemon CPU per delete", "us").relative_to("kernel"),
                FigureSpec::less("daemon memory", "MiB").relative_to("kernel"),
            ]
        }
    }

    fn variants(&self, options: &Options, work: &Path) -> Vec<Variant> {
        let directory = work.join("burst");
        let rules = format!(
            "-a always,exit -F arch=b64 -S unlink,unlinkat,rename,renameat,renameat2 -F dir={} -F key=burst\n",
            directory.display()
        );
        let rules_of = |mode| if mode == AuditMode::Off { "" } else { &rules };
        let states = options.against.iter();
        let own = states
            .clone()
            .map(|&mode| Variant::plain(mode, rules_of(mode)));
        // auditd takes minutes on one CPU.
        let by_rm = states.filter(|&&mode| mode != AuditMode::Kernel);
        let by_rm = by_rm.map(|&mode| Variant {
            affinity: CpuAffinity::First,
            ..Variant::named(&format!("{}{RM}", mode.name()), mode, rules_of(mode))
        });
        own.chain(by_rm).collect()
    }

    fn seconds(&self) -> u32 {
        5
    }

    fn sample(&self, work_dir: &WorkDir, variant: &Variant, brief: bool) -> anyhow::Result<Sample> {
        let deletes = if brief { BRIEF_DELETES } else { DELETES };
        let directory = work_dir.create_unprivileged("burst")?;
        let by_rm = variant.name.ends_with(RM);
        // Creating files with the kernel's audit enabled takes longer.
        make_files(&directory.join(TREE), deletes).context("cannot create files")?;
        let (done, spent) = with_audit(work_dir, variant, || {
            if by_rm {
                rm(work_dir, &directory, deletes)
            } else {
                delete(work_dir, &directory.join(TREE), deletes)
            }
        })?;
        if !by_rm {
            fs::remove_dir(directory.join(TREE)).context("files remain")?;
        }
        let count = f64::from(deletes);
        let mut sample = Sample {
            values: vec![("deletes", done.rate)],
            startup_line: spent.startup_line,
            ..Sample::default()
        };
        if variant.mode != AuditMode::Off {
            let recorded = deletes_in(&work_dir.log(), &done).context("cannot read the log")?;
            sample.values.extend([
                ("recorded", f64::from(recorded) * 100.0 / count),
                (
                    "daemon CPU per delete",
                    spent.cpu.as_secs_f64() * 1e6 / count,
                ),
                ("daemon memory", mib(spent.memory_bytes)),
            ]);
            if variant.mode == AuditMode::Tollgate && recorded != deletes {
                sample.failures.push(format!(
                    "{recorded} of {deletes} deletes are in the log, which reports {} lost",
                    spent.lost
                ));
            }
        }
        Ok(sample)
    }
}

/// A finished deletion.
struct Deletion {
    pid: u32,
    /// Files per second.
    rate: f64,
    /// Fields that identify the deleting syscall.
    calls: &'static [&'static str],
}

/// Deletes files with `unlink`, 87 on x86-64.
fn delete(work_dir: &WorkDir, directory: &Path, files: u32) -> anyhow::Result<Deletion> {
    let mut command = work_dir.unprivileged(CpuAffinity::First)?;
    command
        .args(work_dir.workload_program())
        .args([DELETE, &files.to_string()])
        .current_dir(directory);
    let child = BackgroundCommand::start(&mut command)?;
    Ok(Deletion {
        pid: child.pid(),
        rate: parse_value(&child.output()?, "rate")?,
        calls: &["syscall=87"],
    })
}

/// Deletes files with `rm -r`, which uses `unlinkat`, 263 on x86-64.
fn rm(work_dir: &WorkDir, directory: &Path, files: u32) -> anyhow::Result<Deletion> {
    let mut command = work_dir.unprivileged(CpuAffinity::First)?;
    command.args(["rm", "-r", TREE]).current_dir(directory);
    let began = Instant::now();
    let child = BackgroundCommand::start(&mut command)?;
    let pid = child.pid();
    child.output()?;
    Ok(Deletion {
        pid,
        rate: f64::from(files) / began.elapsed().as_secs_f64(),
        // Removing the directory sets a flag.
        calls: &["syscall=263", "a2=0"],
    })
}

/// Creates hard links to one file: where many files were just deleted, ext4 takes long to find a free inode.
fn make_files(directory: &Path, names: u32) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    let first = directory.join("0");
    File::create(&first)?;
    for number in 1..names {
        fs::hard_link(&first, directory.join(number.to_string()))?;
    }
    chown(directory, Some(UID), Some(UID))
}

/// Counts the deletes in a log.
fn deletes_in(log: &Path, done: &Deletion) -> std::io::Result<u32> {
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
        let work_dir = tempfile::tempdir().unwrap();
        let log = work_dir.path().join("log");
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
            let done = Deletion {
                pid: 70,
                rate: 0.0,
                calls,
            };
            assert_eq!(deletes_in(&log, &done).unwrap(), 1, "{calls:?}");
        }
    }
}
