//! Directories that are removed after a file in them was opened: their memory is given to others, and what programs
//! know of them counts for none of these.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use support::wait::wait_for;

use super::{PLACE, events, named, read, shell};
use crate::daemon::Daemon;

/// Directories that are removed.
const REMOVED: usize = 50;

/// Longer than the kernel takes to free the memory of a directory.
const FREED: Duration = Duration::from_millis(40);

/// Makes the directories, each with a file, in one that is not watched.
const MAKE: &str = "mkdir -p plain; i=0
    while [ $i -lt 50 ]; do mkdir plain/d$i; echo text > plain/d$i/leaf; i=$((i + 1)); done; sync";

/// A directory and its copy in a snapshot have the same inode number and generation.
pub(super) fn snapshot_is_another_directory(daemon: &Daemon) -> anyhow::Result<()> {
    let place = Path::new(PLACE).join("btrfs");
    shell(&format!(
        "cd {}; /usr/bin/btrfs -q subvolume create plain; {MAKE}
         /usr/bin/btrfs -q subvolume snapshot plain dir/snap; sync; echo 2 > /proc/sys/vm/drop_caches",
        place.display()
    ))?;
    let snapshot = place.join("dir/snap");
    let before = events(daemon, "dir")?.len();
    remove_each(&place.join("plain"), |at| {
        fs::metadata(&snapshot)?;
        read(snapshot.join(format!("d{at}/leaf")))
    })?;
    let found = settled(daemon, &place)? - before;
    ensure!(found == REMOVED, "{found} events of {REMOVED} opens");
    Ok(())
}

/// A new directory has the inode number of one that was removed.
pub(super) fn same_number_is_another_directory(daemon: &Daemon) -> anyhow::Result<()> {
    let place = Path::new(PLACE).join("ext4");
    shell(&format!(
        "cd {}; {MAKE}; echo 2 > /proc/sys/vm/drop_caches",
        place.display()
    ))?;
    let new = |at| place.join(format!("dir/new{at}"));
    remove_each(&place.join("plain"), |at| {
        let directory = new(at);
        fs::create_dir(&directory)?;
        fs::write(directory.join("leaf"), "text")?;
        read(directory.join("leaf"))
    })?;
    settled(daemon, &place)?;
    for at in 0..REMOVED {
        // It is written, then read.
        named(daemon, &new(at).join("leaf"), 2)?;
    }
    Ok(())
}

/// Opens a file in each directory, removes both, and does more, all on one processor.
fn remove_each(
    plain: &Path,
    then: impl Fn(usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let work = || -> anyhow::Result<()> {
        let mut processors = CpuSet::new();
        processors.set(0)?;
        sched_setaffinity(Pid::from_raw(0), &processors)?;
        for at in 0..REMOVED {
            let directory = plain.join(format!("d{at}"));
            // While they are open, the kernel keeps no record of their absence, which would hold the memory.
            let held = [File::open(directory.join("leaf"))?, File::open(&directory)?];
            fs::remove_file(directory.join("leaf"))?;
            fs::remove_dir(&directory)?;
            drop(held);
            thread::park_timeout(FREED);
            then(at)?;
        }
        Ok(())
    };
    let ended = thread::scope(|scope| scope.spawn(work).join());
    ended.map_err(|_panic| anyhow!("the thread has panicked"))?
}

/// Waits until all earlier events are in the log. Returns how many have the key `dir`.
fn settled(daemon: &Daemon, place: &Path) -> anyhow::Result<usize> {
    let last = place.join("dir/last");
    fs::write(&last, "text").context("cannot write")?;
    wait_for("the last event", || {
        Ok(named(daemon, &last, 1).is_ok().then_some(()))
    })?;
    Ok(events(daemon, "dir")?.len() - 1)
}
