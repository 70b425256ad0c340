//! `cargo xtask log`: writes a large log for measurements, from events in `tests/golden/records`.
//!
//! Processes, programs, users, files, keys, times and serials vary as on a busy machine: few programs and users, many
//! processes and files, and a few files, a user and a key that are rare. With `repeated`, one process opens one file again
//! and again: only time and serial differ. The same arguments write the same log.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::Outcome;
use crate::repository::Repository;

/// Events that are varied.
const EVENTS: [&str; 3] = ["open_success", "open_not_found", "rename_over_existing"];
/// Stamp, process and names in those events.
const STAMP: &str = "1700000000.007:";
const FIRST_SECOND: u64 = 1_790_000_000;
const PER_SECOND: u64 = 500;

/// Writes the log.
///
/// # Errors
/// If an argument is invalid, or a file cannot be read or written.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let (path, mib, is_repeated) = match arguments {
        [path, mib] => (PathBuf::from(path), mib.parse::<u64>()?, false),
        [path, mib, repeated] if repeated == "repeated" => {
            (PathBuf::from(path), mib.parse::<u64>()?, true)
        }
        _ => return Err("`log` takes a file, its size in MiB, and maybe `repeated`".into()),
    };
    let directory = repository.root.join("tests/golden/records");
    let mut templates = Vec::new();
    for name in EVENTS {
        let text = fs::read_to_string(directory.join(format!("{name}.txt")))?;
        templates.push(parts(&text));
    }
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = Random(1);
    let (mut written, mut number) = (0, 0);
    let mut line = String::new();
    while written < mib << 20 {
        // Three of four events open a file that exists.
        let which = [0, 0, 0, 1, 0, 0, 0, 2][random.below(8)];
        line.clear();
        if is_repeated {
            repeated_event(number, &mut line);
        } else if let Some(template) = templates.get(which) {
            event(template, number, &mut random, &mut line);
        }
        out.write_all(line.as_bytes())?;
        written += u64::try_from(line.len())?;
        number += 1;
    }
    out.flush()?;
    println!("{number} events, {written} bytes");
    Ok(ExitCode::SUCCESS)
}

/// Text between what varies, and what varies.
enum Part {
    Text(String),
    Stamp,
    Process,
    Parent,
    Login,
    User,
    Exe,
    Comm,
    File,
    Key,
}

/// A word that varies, and what it becomes.
type Varying = (&'static str, fn() -> Part);

/// Splits an event.
fn parts(text: &str) -> Vec<Part> {
    const VARYING: [Varying; 9] = [
        ("ppid=4321", || Part::Parent),
        ("pid=4322", || Part::Process),
        ("auid=1000", || Part::Login),
        (" uid=0", || Part::User),
        ("\"/usr/bin/cat\"", || Part::Exe),
        ("\"cat\"", || Part::Comm),
        ("\"/etc/shadow\"", || Part::File),
        ("\"missing\"", || Part::File),
        ("\"identity\"", || Part::Key),
    ];
    let mut parts = Vec::new();
    let mut rest = text;
    'text: while !rest.is_empty() {
        let found = VARYING
            .iter()
            .filter_map(|(word, part)| Some((rest.find(word)?, *word, *part)))
            .min_by_key(|(at, ..)| *at);
        let stamp = rest.find(STAMP);
        let (at, len, part) = match (found, stamp) {
            (Some((at, word, part)), stamp) if stamp.is_none_or(|stamp| at < stamp) => {
                (at, word.len(), part())
            }
            (_, Some(at)) => {
                let digits = rest.get(at + STAMP.len()..).unwrap_or_default();
                let serial = digits.find(')').unwrap_or(0);
                (at, STAMP.len() + serial, Part::Stamp)
            }
            _ => {
                parts.push(Part::Text(rest.to_owned()));
                break 'text;
            }
        };
        parts.push(Part::Text(rest.get(..at).unwrap_or_default().to_owned()));
        parts.push(part);
        rest = rest.get(at + len..).unwrap_or_default();
    }
    parts
}

fn event(parts: &[Part], number: u64, random: &mut Random, out: &mut String) {
    const PROGRAMS: [&str; 12] = [
        "cat", "bash", "sshd", "systemd", "python3", "cron", "nginx", "postgres", "sudo", "make",
        "cc1", "git",
    ];
    const KEYS: [&str; 6] = ["identity", "access", "delete", "exec", "perm_mod", "logins"];
    let program = PROGRAMS.get(random.below(12)).copied().unwrap_or_default();
    let process = 1000 + number / 40 % 30_000;
    let sec = FIRST_SECOND + number / PER_SECOND;
    let milli = number % PER_SECOND * 1000 / PER_SECOND;
    let user = random.below(20);
    for part in parts {
        let text = match part {
            Part::Text(text) => text.clone(),
            Part::Stamp => format!("{sec}.{milli:03}:{}", (1 << 31) + number % (1 << 31)),
            Part::Process => format!("pid={process}"),
            Part::Parent => format!("ppid={}", 1000 + process % 300),
            Part::Login if user == 0 => "auid=4294967295".to_owned(),
            Part::Login => format!("auid={}", 1000 + user),
            // A user who is seldom there.
            Part::User if (555_000..555_050).contains(&(number % 1_000_000)) => " uid=1077".into(),
            Part::User => " uid=0".to_owned(),
            Part::Exe => format!("\"/usr/bin/{program}\""),
            Part::Comm => format!("\"{program}\""),
            // One file in a million events is rare.
            Part::File if number % 1_000_000 == 777_777 => "\"/etc/rare.conf\"".to_owned(),
            Part::File => match random.below(10) {
                0 => format!("\"/home/user{user}/src/file{}.c\"", random.below(50_000)),
                _ => format!(
                    "\"/usr/lib/part{}/lib{}.so\"",
                    random.below(40),
                    random.below(9)
                ),
            },
            // A rare key, all over the log.
            Part::Key if number % 20_000 == 7777 => "\"incident\"".to_owned(),
            Part::Key => format!(
                "\"{}\"",
                KEYS.get(random.below(6)).copied().unwrap_or_default()
            ),
        };
        out.push_str(&text);
    }
}

/// One of two events that alternate: a file is opened and closed.
fn repeated_event(number: u64, out: &mut String) {
    let serial = 1_000_000 + number;
    let (sec, milli) = (FIRST_SECOND + number / 100_000, number / 100 % 1000);
    let stamp = format!("msg=audit({sec}.{milli:03}:{serial}): ");
    let (syscall, exit, items) = match number % 2 {
        0 => (257, 3, 1),
        _ => (3, 0, 0),
    };
    // A `String` takes any text.
    let _infallible = writeln!(
        out,
        "type=SYSCALL {stamp}arch=c000003e syscall={syscall} success=yes exit={exit} a0=ffffff9c a1=7ffd12345678 \
         a2=80000 a3=0 items={items} ppid=4321 pid=4322 auid=1000 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 \
         fsgid=0 tty=pts0 ses=3 comm=\"loader\" exe=\"/usr/bin/loader\" key=\"access\""
    );
    if items == 1 {
        let _infallible = writeln!(
            out,
            "type=CWD {stamp}cwd=\"/home/alice\"\n\
             type=PATH {stamp}item=0 name=\"/etc/shadow\" inode=131074 dev=08:01 mode=0100640 ouid=0 ogid=42 \
             rdev=00:00 nametype=NORMAL cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0"
        );
    }
    let _infallible = writeln!(
        out,
        "type=PROCTITLE {stamp}proctitle=\"loader\"\ntype=EOE {stamp}"
    );
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from((self.0 >> 33) % limit).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_vary_and_keep_their_records() {
        let text =
            "type=SYSCALL msg=audit(1700000000.007:1): ppid=4321 pid=4322 exe=\"/usr/bin/cat\"\n";
        let template = parts(text);
        let mut random = Random(1);
        let mut written = |number| {
            let mut out = String::new();
            event(&template, number, &mut random, &mut out);
            out
        };
        let (first, second) = (written(0), written(40));
        assert!(first.starts_with(
            "type=SYSCALL msg=audit(1790000000.000:2147483648): ppid=1100 pid=1000 exe=\"/usr/bin/"
        ));
        assert!(second.contains(" pid=1001 "), "{second}");
        assert!(first.ends_with("\"\n"));
    }
}
