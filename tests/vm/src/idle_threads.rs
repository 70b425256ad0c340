//! Threads of the user that sleep outside any recorded syscall.

use std::fs;

use crate::machine::{USER, start_waiting};
use crate::program::{Arg, Entry, Program, Task, args};

/// Syscall numbers of the 64-bit table.
const READ: u32 = 0;
const OPENAT: u32 = 257;

/// Runs something while many threads of the user sleep, outside any recorded syscall, after an open for reading.
pub(crate) fn with_idle_threads<T>(
    opened: &'static str,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    const THREADS: usize = 400;
    let read = || args![0, Arg::Buffer, 1];
    let thread = || {
        Program::new(Entry::Syscall)
            .call(OPENAT, args![-100, opened, 0])
            .call(READ, read())
    };
    let program = (0..THREADS).fold(Program::new(Entry::Syscall), |all, _| {
        all.start(Task::Thread, thread(), None)
    });
    let program = program.call(READ, read()).install("idle")?;
    let mut idle = start_waiting(&program, USER)?;
    let tasks = format!("/proc/{}/task", idle.id());
    let waited = support::wait::wait_for("all threads to sleep", || {
        let tasks = fs::read_dir(&tasks)?.flatten();
        let calls = tasks.filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok());
        Ok((calls.filter(|call| call.starts_with("0 ")).count() > THREADS).then_some(()))
    });
    let worked = waited.and_then(|()| work());
    let _gone = idle.kill();
    let _status = idle.wait();
    worked
}
