//! Tests of programs on the host.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::*;

/// Locked from writing a program until it runs. A child that another thread forks meanwhile has this program's file
/// open for writing until its own `execve`, and the kernel refuses to run such a file (`ETXTBSY`,
/// `deny_write_access()` in fs/exec.c).
static EXEC_LOCK: Mutex<()> = Mutex::new(());

#[track_caller]
fn run(program: &Program) -> std::process::Output {
    let _alone = EXEC_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("program");
    program.write(&path).unwrap();
    let output = Command::new(&path).output().unwrap();
    assert_eq!(output.status.signal(), None, "{program:?}");
    output
}

#[test]
fn each_round_makes_the_calls_in_order() {
    let program = Program::new(Entry::Syscall)
        .call(1, args![1, "one ", 4])
        .call(1, args![1, "two\n", 4])
        .rounds(2);
    assert_eq!(run(&program).stdout, b"one two\none two\n");
}

#[test]
fn result_is_an_argument_of_the_next_call() {
    let program = Program::new(Entry::Syscall)
        .call(32, args![1]) // dup
        .call(1, vec![Arg::Result, "x".into(), 1.into()]);
    assert_eq!(run(&program).stdout, b"x");
}

#[test]
fn counting_program_writes_one_word_per_round() {
    let program = Program::new(Entry::Syscall)
        .call(257, args![-100, "/proc/self/stat", 0]) // openat
        .call(5, vec![Arg::Result, Arg::Buffer]) // fstat
        .rounds(300)
        .counting();
    let output = run(&program);
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), 300 * 8);
    let (words, _) = output.stdout.as_chunks();
    let counts: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn counting_program_reports_a_failure() {
    let failing = Program::new(Entry::Syscall).call(3, args![-1]).counting(); // close
    assert_eq!(run(&failing).status.code(), Some(1));
    let idle = Program::new(Entry::Syscall).counting();
    assert_eq!(run(&idle).status.code(), Some(0));
}

#[test]
fn saved_result_is_an_argument_of_later_calls() {
    for (entry, [dup, close, write]) in [
        (Entry::Syscall, [32, 3, 1]),
        (Entry::Int80, [41, 6, 4]),
        (Entry::I386, [41, 6, 4]),
    ] {
        let program = Program::new(entry)
            .call(dup, args![1])
            .save("copy")
            .call(close, args![-1])
            .call(
                write,
                vec![Arg::Saved("copy"), Arg::Bytes(b"y".into()), 1.into()],
            );
        assert_eq!(run(&program).stdout, b"y");
    }
}

#[test]
fn named_bytes_are_shared() {
    let name = || Arg::Shared("name", vec![0; 256]);
    let list = Arg::Words(vec![Arg::Bytes(b"two".into()), 3.into()]);
    let program = Program::new(Entry::Syscall)
        .call(79, vec![name(), 256.into()]) // getcwd
        .call(1, vec![1.into(), name(), 1.into()])
        .call(20, vec![1.into(), list, 1.into()]); // writev
    assert_eq!(run(&program).stdout, b"/two");
}

#[test]
fn array_of_strings_becomes_arguments() {
    let words = Arg::Texts(&["sh", "-c", "echo $0", "there"]);
    let program = Program::new(Entry::Syscall).call(59, vec!["/bin/sh".into(), words, 0.into()]);
    assert_eq!(run(&program).stdout, b"there\n");
}

#[test]
fn program_reads_its_own_arguments() {
    let program = Program::new(Entry::Syscall).call(1, vec![1.into(), Arg::Argument(0), 1.into()]);
    assert_eq!(run(&program).stdout, b"/");
}

#[test]
fn stored_word_is_read_by_a_call() {
    let (at, anonymous, read_write) = (0x1000_0000, 0x32, 3);
    let memory = i64::try_from(at).unwrap();
    let program = Program::new(Entry::Syscall)
        .call(9, args![memory, 4096, read_write, anonymous, -1, 0]) // mmap
        .store(None, at, u64::from_le_bytes(*b"nothing!"))
        .then_rounds(2)
        .call(1, args![1, memory, 8])
        .store(None, at, u64::from_le_bytes(*b"written!"));
    assert_eq!(run(&program).stdout, b"nothing!written!");
}

#[test]
fn changes_of_a_watched_word_are_counted() {
    let (at, anonymous, read_write) = (0x1000_0000, 0x32, 3);
    let memory = i64::try_from(at).unwrap();
    let program = |call| {
        Program::new(Entry::Syscall)
            .call(9, args![memory, 4096, read_write, anonymous, -1, 0]) // mmap
            .then_rounds(3)
            .call(call, args![memory]) // time, or getpid
            .watch(at)
            .store(None, at, 0)
    };
    assert_eq!(run(&program(201)).stdout, 3_u64.to_le_bytes());
    assert_eq!(run(&program(39)).stdout, 0_u64.to_le_bytes());
}

#[test]
fn tasks_run_their_own_steps() {
    let (wait4, read) = (61, 0);
    let writer = |text: &'static str| {
        let text = [1.into(), text.into(), 1.into()];
        Program::new(Entry::Syscall).call(1, text.into())
    };
    let child = Program::new(Entry::Syscall)
        .start(Task::Child, writer("c"), Some("child"))
        .call(
            wait4,
            vec![Arg::Saved("child"), 0.into(), 0.into(), 0.into()],
        )
        .call(1, args![1, "p", 1]);
    assert_eq!(run(&child).stdout, b"cp");
    // The process ends when its last thread does.
    let count = || Arg::Bytes(2_u64.to_ne_bytes().to_vec());
    let late = Program::new(Entry::Syscall)
        .call(read, vec![Arg::Saved("event"), Arg::Buffer, 8.into()])
        .call(1, args![1, "t", 1]);
    let (eventfd2, semaphore) = (290, 1);
    let threads = Program::new(Entry::Syscall)
        .call(eventfd2, args![0, semaphore])
        .save("event")
        .start(Task::Thread, late.clone(), None)
        .start(Task::Thread, late, None)
        .call(1, args![1, "m", 1])
        .call(1, vec![Arg::Saved("event"), count(), 8.into()]);
    assert_eq!(run(&threads).stdout, b"mtt");
}
