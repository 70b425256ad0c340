//! `cargo xtask counts --stages`: which stages the instructions of audited calls belong to.
//!
//! A debugger follows calls of the session `stages` (`tests/vm/src/count/stages.rs`) instruction by instruction. The
//! lines of BPF programs tell the stage. Of some rounds of each call, the one with the fewest instructions counts: in
//! the others the daemon is woken. The counts of each line are in `target/vm/stages-lines`.

mod code_map;
mod debugger;
mod picture;
mod stage;

use std::cmp::Reverse;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::boot::{FIRST_SEED, Machine, Purpose};
use super::kernel::Kernel;
use super::options::Options;
use super::{pack, ports, target::Target};
use crate::Outcome;
use crate::repository::Repository;
use code_map::CodeMap;
use debugger::Debugger;
use stage::{Counts, Stage};

/// Path of the table.
const FILE: &str = "docs/stages.md";
/// Path of the picture.
const PICTURE: &str = "docs/stages.svg";
/// The kernel.
const KERNEL: &str = "6.12";
/// The sessions that the machine runs.
const FILTER: &str = "^stages";
/// The function with which each round of a call begins.
const MARK: &str = "__x64_sys_getppid";
/// Rounds after which caches are filled.
const FIRST_ROUNDS: usize = 300;
/// Rounds that are followed.
const ROUNDS: usize = 3;
/// The longest round: the daemon may run in it.
const MOST_INSTRUCTIONS: usize = 200_000;
/// The longest time without a line on the serial port, on a slow and busy host.
const MAX_SILENCE: Duration = Duration::from_secs(300);

const HEAD: &str = "\
# Where the instructions of an audited call go

`cargo xtask counts --stages` writes this table and [its picture](stages.svg): a debugger follows calls on Debian's kernel instruction by instruction, and the lines of BPF programs tell the stage.
Functions of the kernel that a program calls, such as hash tables and the ring, count for the stage that calls them.
The rules are the ten of Cloudflare's patch, one about `connect`, and one about links in one of the directories; each column is a round of these calls, with `getppid`, by which rounds are told apart.
All calls on watched files, and `connect`, are recorded.

";

/// A call, and the counts of its instructions.
type Followed = (String, Counts);

/// Follows the calls, and writes the table.
///
/// # Errors
/// If a tool is missing, the machine does not do what it should, or the file cannot be written.
pub(super) fn run(repository: &Repository) -> Outcome {
    let arguments = ["--kernel", KERNEL, "--filter", FILTER].map(str::to_owned);
    let options = Options::parse(&arguments)?;
    if !options.build(repository)? {
        return Ok(ExitCode::FAILURE);
    }
    let directory = repository.target().join("vm");
    fs::create_dir_all(&directory)?;
    let kernel = Kernel::parse(KERNEL).ok_or("no such kernel")?;
    let image = kernel.image(&directory)?;
    let initramfs = directory.join("initramfs-stages");
    let packed = pack::pack(
        repository,
        Target::X86_64,
        options.profile,
        None,
        [&image].into_iter(),
    )?;
    fs::write(&initramfs, packed)?;
    let port = directory.join("debugger");
    let machine = Machine {
        target: Target::X86_64,
        purpose: Purpose::General,
        line: &kernel.line,
        kernel: &image.path,
        initramfs,
        filter: FILTER.to_owned(),
        part: None,
        options: String::new(),
        seed: FIRST_SEED,
        debugger: Some(port.clone()),
    };
    let followed = follow_all(&machine, &port)?;
    fs::write(directory.join("stages-lines"), lines(&followed))?;
    let table = table(&followed);
    print!("{table}");
    fs::write(repository.root.join(FILE), format!("{HEAD}{table}"))?;
    fs::write(repository.root.join(PICTURE), picture::draw(&followed))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the machine and follows each call that it announces.
fn follow_all(machine: &Machine<'_>, port: &Path) -> Result<Vec<Followed>, Box<dyn Error>> {
    let mut child = machine.start()?;
    let (tests, kernel) = (child.stdout.take(), child.stderr.take());
    let lines = ports::lines(tests.ok_or("no port")?, kernel.ok_or("no port")?);
    let (mut map, mut followed) = (CodeMap::default(), Vec::new());
    let outcome = loop {
        let Ok(line) = lines.recv_timeout(MAX_SILENCE) else {
            break Err("the machine ended, or is silent".into());
        };
        let Some((_, message)) = line.trim_end().split_once("vm: ") else {
            continue;
        };
        match message.split_once(' ').unwrap_or((message, "")) {
            ("end", _) => break Ok(followed),
            ("FAIL" | "broken", what) => break Err(what.into()),
            ("follow", call) => match follow(&map, port) {
                Ok(round) => {
                    println!("    {call}: {} instructions", round.len());
                    followed.push((call.to_owned(), stage::count(&map, &round)));
                }
                Err(error) => break Err(format!("`{call}`: {error}").into()),
            },
            ("function" | "program" | "line", _) if !map.take(message) => {
                break Err(format!("`{message}` is not understood").into());
            }
            _ => {}
        }
    };
    // It may have ended.
    let _killed = child.kill();
    child.wait()?;
    outcome
}

/// The addresses of the instructions of a round, without one in which another task ran.
fn follow(map: &CodeMap, port: &Path) -> io::Result<Vec<u64>> {
    let mark = map.address(MARK).ok_or_else(|| io::Error::other(MARK))?;
    let mut debugger = Debugger::connect(port)?;
    debugger.break_at(mark)?;
    for _ in 0..FIRST_ROUNDS {
        debugger.run()?;
    }
    debugger.pass(mark)?;
    let mut shortest = Vec::new();
    for _ in 0..ROUNDS {
        let mut round = Vec::new();
        while round.last() != Some(&mark) {
            if round.len() == MOST_INSTRUCTIONS {
                return Err(io::Error::other("a round does not end"));
            }
            round.push(debugger.step()?);
        }
        if shortest.is_empty() || round.len() < shortest.len() {
            shortest = round;
        }
    }
    debugger.leave()?;
    Ok(shortest)
}

/// A row for each stage, a column for each call.
fn table(followed: &[Followed]) -> String {
    let mut text = "| stage |".to_owned();
    for (call, _) in followed {
        // Writing to a string does not fail.
        let _written = write!(text, " {call} |");
    }
    text += "\n| --- |";
    text += &" ---: |".repeat(followed.len());
    text += "\n";
    for stage in Stage::ALL {
        let _written = write!(text, "| {} |", stage.title());
        for (_, counts) in followed {
            let _written = write!(text, " {} |", counts.of(stage));
        }
        text += "\n";
    }
    text += "| added by auditing |";
    for (_, counts) in followed {
        let _written = write!(text, " {} |", counts.added());
    }
    text + "\n"
}

/// `COUNT FILE:LINE [FUNCTION]` for each call, most first.
fn lines(followed: &[Followed]) -> String {
    let mut text = String::new();
    for (call, counts) in followed {
        let mut places: Vec<_> = counts.by_line.iter().collect();
        places.sort_by_key(|&(_, &count)| Reverse(count));
        // Writing to a string does not fail.
        let _written = writeln!(text, "# {call}");
        for (place, count) in places {
            let _written = writeln!(text, "{count:5} {place}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_column_for_each_call() {
        let counts = Counts {
            by_stage: [(Stage::Call, 6000), (Stage::Enter, 300), (Stage::Ring, 700)].into(),
            by_line: [("a.bpf.h:1".to_owned(), 9), ("b.bpf.h:2 f".to_owned(), 10)].into(),
        };
        let followed = [
            ("openat".to_owned(), counts),
            ("connect".to_owned(), Counts::default()),
        ];
        assert_eq!(
            lines(&followed),
            "# openat\n   10 b.bpf.h:2 f\n    9 a.bpf.h:1\n# connect\n"
        );
        let text = table(&followed);
        for line in [
            "| stage | openat | connect |\n| --- | ---: | ---: |\n",
            "| enter and leave programs | 300 | 0 |\n",
            "| the calls themselves | 6000 | 0 |\n",
            "| added by auditing | 1000 | 0 |\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
