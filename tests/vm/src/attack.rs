//! Syscall arguments in memory that another process keeps rewriting.
//!
//! A record that does not name the object on which the kernel acted lets an attacker hide. The result of each
//! syscall shows which of two words the kernel has read; the tests compare the record with it. Programs count how
//! often the word changes during a syscall: rarely on a host with less than two idle CPUs.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use support::event::Event;
use support::wait::{wait_for, wait_within};

use crate::daemon::{Daemon, replace};
use crate::machine::{USER, WORK, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "attack",
    engine: "fentry",
    prepare,
    rules: Rules::Text(RULES),
    tests: &[
        (
            "open_record_has_the_opened_name",
            open_record_has_the_opened_name,
        ),
        (
            "failed_open_record_has_the_missing_name",
            failed_open_record_has_the_missing_name,
        ),
        ("open_refused_by_its_mode_evades_no_watch", |daemon| {
            refused_open_evades_no_watch(daemon, CLOSED)
        }),
        ("open_of_a_named_directory_evades_no_watch", |daemon| {
            refused_open_evades_no_watch(daemon, DIRECTORY)
        }),
        (
            "refused_open_has_the_used_flags",
            refused_open_has_the_used_flags,
        ),
        (
            "chmod_record_has_the_changed_object",
            chmod_record_has_the_changed_object,
        ),
        (
            "connect_record_has_the_used_address",
            connect_record_has_the_used_address,
        ),
        (
            "execve_record_has_the_used_arguments",
            execve_record_has_the_used_arguments,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const RULES: &str =
    "-a always,exit -F arch=b64 -S openat,chmod,connect,execve -F uid=1001 -k attacked\n";

/// Syscalls of each test.
const ROUNDS: u32 = 10_000;

/// Starting as many programs takes a minute on an emulated CPU, and two with `PREEMPT_RT` and other machines beside.
const LONGEST_CHAIN: Duration = Duration::from_secs(240);

/// The file that both processes map.
const SHARED: &str = "/tmp/work/shared";
/// Its address in both.
const AT: u64 = 0x1000_0000;
/// The address of the rewritten word. The family of a socket address precedes it.
const WORD: u64 = AT + 8;

/// Names of files and sockets, and arguments; each fits a word.
const FIRST: &str = "aaaaaaa";
const SECOND: &str = "bbbbbbb";
const MISSING: &str = "missing";
const CLOSED: &str = "closed1";
const DIRECTORY: &str = "adirect";
const READABLE: &str = "readable";

/// Syscall numbers of the 64-bit table.
mod nr {
    pub(super) const WRITE: u32 = 1;
    pub(super) const CLOSE: u32 = 3;
    pub(super) const MMAP: u32 = 9;
    pub(super) const SOCKET: u32 = 41;
    pub(super) const CONNECT: u32 = 42;
    pub(super) const BIND: u32 = 49;
    pub(super) const EXECVE: u32 = 59;
    pub(super) const CHMOD: u32 = 90;
    pub(super) const SCHED_SETAFFINITY: u32 = 203;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const OPENAT2: u32 = 437;
}

fn prepare() -> anyhow::Result<()> {
    for name in [FIRST, SECOND] {
        make_file(&Path::new(WORK).join(name), USER)?;
    }
    let closed = Path::new(WORK).join(CLOSED);
    make_file(&closed, 0)?;
    make_file(&Path::new(WORK).join(READABLE), 0)?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600))?;
    fs::create_dir_all(Path::new(WORK).join(DIRECTORY)).context("cannot make a directory")?;
    let mut page = vec![0; 4096];
    for (byte, value) in page.iter_mut().skip(6).zip(b"\x01\0aaaaaaa") {
        *byte = *value;
    }
    fs::write(SHARED, page).context("cannot write the memory")?;
    fs::set_permissions(SHARED, fs::Permissions::from_mode(0o666))?;
    Ok(())
}

/// A program that maps the shared memory, its standard input, and runs on its own CPU.
fn with_memory(processor: u64) -> Program {
    let (read_write, shared_fixed) = (3, 0x11);
    let only = Arg::Bytes((1_u64 << processor).to_ne_bytes().into());
    Program::new(Entry::Syscall)
        .call(
            nr::MMAP,
            args![at(AT), 4096, read_write, shared_fixed, 0, 0],
        )
        .call(nr::SCHED_SETAFFINITY, args![0, 8, only])
}

/// The shared memory as standard input.
fn memory() -> anyhow::Result<Stdio> {
    let file = File::options().read(true).write(true).open(SHARED);
    Ok(file.context("cannot open the memory")?.into())
}

fn at(address: u64) -> Arg {
    Arg::Number(address.cast_signed())
}

/// A word with a name of seven letters and the byte after or before it.
fn word(bytes: &str) -> anyhow::Result<u64> {
    let bytes = bytes.as_bytes().try_into().context("not eight bytes")?;
    Ok(u64::from_le_bytes(bytes))
}

/// A process that writes two words in turn; killed on drop.
struct Attacker(Child);

impl Attacker {
    fn start(words: [&str; 2]) -> anyhow::Result<Self> {
        let [first, second] = words;
        // The victim may run first, and the word of an earlier attack names nothing here.
        let shared = File::options().write(true).open(SHARED);
        shared
            .and_then(|file| file.write_all_at(first.as_bytes(), WORD - AT))
            .context("cannot write the memory")?;
        let path = with_memory(1)
            .then_rounds(u32::MAX)
            .store(None, WORD, word(first)?)
            .store(None, WORD, word(second)?)
            .install("attacker")?;
        let child = Command::new(&path).stdin(memory()?).spawn();
        Ok(Self(child.context("cannot start the attacker")?))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // It runs until killed.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Maximum number of runs until the word changes during a syscall: on a busy host the two processes rarely run at
/// the same time.
const MOST_RUNS: u32 = 10;

/// Attacks a program until the word changes during a syscall; returns the events of that run without its start.
fn attack(
    daemon: &Daemon,
    name: &str,
    words: [&str; 2],
    program: &Program,
    call: &str,
) -> anyhow::Result<Vec<Event>> {
    for _ in 0..MOST_RUNS {
        let (changed, victim) = attack_once(name, words, program)?;
        println!("vm: note attack: the word changed during {changed} of {ROUNDS} calls ({name})");
        if changed > 0 {
            let count = usize::try_from(ROUNDS)?;
            return wait_for("the events of all calls", || {
                let mut events = daemon.logged(victim)?;
                events.retain(|event| event.summary().starts_with(call));
                Ok((events.len() >= count).then_some(events))
            });
        }
    }
    anyhow::bail!("the word did not change during any syscall")
}

/// Runs a program under attack; returns how often its word changed during a syscall, and its process id.
fn attack_once(name: &str, words: [&str; 2], program: &Program) -> anyhow::Result<(u64, u32)> {
    let path = program.install(name)?;
    let attacker = Attacker::start(words)?;
    let mut victim = Command::new(&path)
        .current_dir(WORK)
        .uid(USER)
        .gid(USER)
        .stdin(memory()?)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a workload")?;
    let mut changed = [0; 8];
    let output = victim.stdout.take().context("no output")?;
    let read = { output }.read_exact(&mut changed);
    let status = victim.wait().context("cannot wait for a workload")?;
    drop(attacker);
    read.context("the workload did not write the number of changes")?;
    ensure!(status.success(), "it ended with {status}");
    Ok((u64::from_le_bytes(changed), victim.id()))
}

/// Fails unless every event is correct and both words occur.
fn judge(
    events: &[Event],
    words: [&str; 2],
    named: impl Fn(&Event) -> String,
    acted_on: impl Fn(&Event) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let mut seen = [0; 2];
    for event in events {
        let truth = acted_on(event)?;
        for (seen, word) in seen.iter_mut().zip(words) {
            *seen += usize::from(truth == word);
        }
        if named(event) != truth {
            wrong.push(event);
        }
    }
    println!(
        "vm: note attack: {} of {} records are wrong; the kernel acted on {words:?} {seen:?} times",
        wrong.len(),
        events.len()
    );
    if let Some(first) = wrong.first() {
        anyhow::bail!(
            "{} of {} records are wrong, the first: {} should name {}",
            wrong.len(),
            events.len(),
            first.summary(),
            acted_on(first)?
        );
    }
    ensure!(
        seen.iter().all(|&seen| seen > 0),
        "the kernel read only one of the words: {seen:?}"
    );
    Ok(())
}

/// Which of the two files has the event's inode.
fn file_of(event: &Event) -> anyhow::Result<String> {
    let inode = event.field("PATH", "inode");
    for name in [FIRST, SECOND] {
        let found = fs::metadata(Path::new(WORK).join(name)).context("a file is missing")?;
        if found.ino().to_string() == inode {
            return Ok(name.to_owned());
        }
    }
    anyhow::bail!("no file has the inode `{inode}` of: {}", event.summary())
}

fn name_of(event: &Event) -> String {
    event.field("PATH", "name")
}

fn open_record_has_the_opened_name(daemon: &Daemon) -> anyhow::Result<()> {
    let program = with_memory(0)
        .then_rounds(ROUNDS)
        .call(nr::OPENAT, args![-100, at(WORD), 0, 0])
        .watch(WORD)
        .call(nr::CLOSE, vec![Arg::Result]);
    let events = attack(
        daemon,
        "two",
        ["aaaaaaa\0", "bbbbbbb\0"],
        &program,
        "openat",
    )?;
    judge(&events, [FIRST, SECOND], name_of, file_of)
}

fn failed_open_record_has_the_missing_name(daemon: &Daemon) -> anyhow::Result<()> {
    let program = with_memory(0)
        .then_rounds(ROUNDS)
        .call(nr::OPENAT, args![-100, at(WORD), 0, 0])
        .watch(WORD)
        .call(nr::CLOSE, vec![Arg::Result]);
    let words = ["aaaaaaa\0", "missing\0"];
    let events = attack(daemon, "missing", words, &program, "openat")?;
    judge(&events, [FIRST, MISSING], name_of, |event| {
        let found = event.field("SYSCALL", "success") == "yes";
        Ok(if found { FIRST } else { MISSING }.to_owned())
    })
}

/// Opens to write two watched objects, of which one is refused. No other rule is about opens.
fn refused_open_evades_no_watch(daemon: &Daemon, refused: &'static str) -> anyhow::Result<()> {
    let write_only = 1;
    let program = with_memory(0)
        .then_rounds(ROUNDS)
        .call(nr::OPENAT, args![-100, at(WORD), write_only, 0])
        .watch(WORD)
        .call(nr::CLOSE, vec![Arg::Result]);
    let rules = [FIRST, refused].map(|name| format!("-w {WORK}/{name} -p w -k attacked\n"));
    replace(daemon, &rules.concat())?;
    let words = [FIRST, refused].map(|name| format!("{name}\0"));
    let events = attack(
        daemon,
        refused,
        words.each_ref().map(String::as_str),
        &program,
        "openat",
    );
    replace(daemon, RULES)?;
    judge(&events?, [FIRST, refused], name_of, |event| {
        let opened = event.field("SYSCALL", "success") == "yes";
        Ok(if opened { FIRST } else { refused }.to_owned())
    })
}

/// The flags of an `openat2` that may read a file and is refused to write it. A rule about each names its key.
fn refused_open_has_the_used_flags(daemon: &Daemon) -> anyhow::Result<()> {
    let path = format!("{WORK}/{READABLE}\0");
    let open_how_bytes = 24;
    let program = with_memory(0)
        .then_rounds(ROUNDS)
        .call(
            nr::OPENAT2,
            args![
                -100,
                Arg::Bytes(path.into_bytes()),
                at(WORD),
                open_how_bytes
            ],
        )
        .watch(WORD)
        .call(nr::CLOSE, vec![Arg::Result]);
    let keys = ["reads", "writes"];
    let rules = ["r -k reads", "w -k writes"];
    let rules = rules.map(|rule| format!("-w {WORK}/{READABLE} -p {rule}\n"));
    replace(daemon, &rules.concat())?;
    let read_or_write = ["\0\0\0\0\0\0\0\0", "\x01\0\0\0\0\0\0\0"];
    let events = attack(daemon, "flags", read_or_write, &program, "openat2");
    replace(daemon, RULES)?;
    let key = |event: &Event| event.field("SYSCALL", "key");
    judge(&events?, keys, key, |event| {
        let [reads, writes] = keys;
        let opened = event.field("SYSCALL", "success") == "yes";
        Ok(if opened { reads } else { writes }.to_owned())
    })
}

fn chmod_record_has_the_changed_object(daemon: &Daemon) -> anyhow::Result<()> {
    let program = with_memory(0)
        .then_rounds(ROUNDS)
        .call(nr::CHMOD, args![at(WORD), 0o600])
        .watch(WORD);
    let words = ["aaaaaaa\0", "bbbbbbb\0"];
    let events = attack(daemon, "changed", words, &program, "chmod")?;
    // An unverified name is replaced with the path of the object that the kernel found.
    let file_named = |event: &Event| {
        let name = name_of(event);
        let path = name.strip_prefix(WORK);
        let path = path.and_then(|path| path.strip_prefix('/'));
        path.unwrap_or(&name).to_owned()
    };
    judge(&events, [FIRST, SECOND], file_named, file_of)
}

/// The first name is bound, the second is not. The kernel copies an address in two parts and may get a mix of
/// both, which is not bound either.
fn connect_record_has_the_used_address(daemon: &Daemon) -> anyhow::Result<()> {
    let (unix, datagram) = (1, 2);
    let bound = Arg::Bytes(b"\x01\0\0aaaaaaa".into());
    let program = with_memory(0)
        .call(nr::SOCKET, args![unix, datagram, 0])
        .call(nr::BIND, vec![Arg::Result, bound, 10.into()])
        .call(nr::SOCKET, args![unix, datagram, 0])
        .save("socket")
        .then_rounds(ROUNDS)
        .call(nr::CONNECT, args![Arg::Saved("socket"), at(WORD - 2), 10])
        .watch(WORD);
    let words = ["\0aaaaaaa", "\0bbbbbbb"];
    let events = attack(daemon, "sockets", words, &program, "connect")?;
    let [first, second] = ["01000061616161616161", "01000062626262626262"];
    let address = |event: &Event| event.field("SOCKADDR", "saddr");
    judge(&events, [first, second], address, |event| {
        let found = event.field("SYSCALL", "success") == "yes";
        let address = address(event);
        Ok(match address.as_str() {
            _ if found => first.to_owned(),
            other if other != first && other.len() == first.len() => address,
            _ => second.to_owned(),
        })
    })
}

/// A program that executes itself repeatedly and prints its argument each time.
fn execve_record_has_the_used_arguments(daemon: &Daemon) -> anyhow::Result<()> {
    let words = Arg::Words(vec!["chain".into(), at(WORD), 0.into()]);
    let itself = vec!["/tmp/programs/chain".into(), words, 0.into()];
    let path = with_memory(0)
        .call(nr::WRITE, args![1, Arg::Argument(1), 7])
        .call(nr::EXECVE, itself)
        .install("chain")?;
    let printed = "/tmp/arguments";
    let file = File::create(printed).context("cannot make a file")?;
    let attacker = Attacker::start(["aaaaaaa\0", "bbbbbbb\0"])?;
    let mut victim = Command::new(&path)
        .arg(FIRST)
        .uid(USER)
        .gid(USER)
        .stdin(memory()?)
        .stdout(file)
        .spawn()
        .context("cannot start a workload")?;
    let count = usize::try_from(ROUNDS)?;
    let enough = wait_within(LONGEST_CHAIN, "the last program", || {
        let size = fs::metadata(printed).context("no file")?.len();
        Ok((size >= 7 * u64::from(ROUNDS)).then_some(()))
    });
    victim.kill().context("the chain ended early")?;
    victim.wait().context("cannot wait for a workload")?;
    drop(attacker);
    enough?;
    let events = wait_for("the events of all programs", || {
        let mut events = daemon.logged(victim.id())?;
        events.retain(|event| !event.fields("EXECVE", "a1").is_empty());
        Ok((events.len() >= count).then_some(events))
    })?;
    let printed = fs::read_to_string(printed).context("cannot read the printed arguments")?;
    let truths: Vec<&str> = (0..count)
        .filter_map(|number| printed.get(7 * number..7 * number + 7))
        .collect();
    let pairs: Vec<_> = events.into_iter().zip(truths).collect();
    let wrong = pairs
        .iter()
        .filter(|(event, truth)| event.field("EXECVE", "a1") != *truth)
        .count();
    let second = pairs.iter().filter(|(_, truth)| *truth == SECOND).count();
    println!(
        "vm: note attack: {wrong} of {} records are wrong; {second} programs got `{SECOND}`",
        pairs.len()
    );
    ensure!(wrong == 0, "{wrong} of {} records are wrong", pairs.len());
    ensure!(
        second > 0 && second < pairs.len(),
        "the argument did not change during any execve"
    );
    Ok(())
}
