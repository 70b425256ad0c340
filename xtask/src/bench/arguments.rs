//! The command line of `cargo xtask bench`.

use std::path::PathBuf;
use std::str::FromStr as _;

use super::state::{Scheduling, State};

/// How the chore is called; printed with every mistake.
const USAGE: &str = "cargo xtask bench [loader|getpid|run|all] [--rounds N] [--pairs N] \
                     [--against off,kernel,tollgate] [--fifo] [--json FILE] [--goals]";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A loop in which every syscall is audited.
    Loader,
    /// Syscalls that no rule selects while rules are loaded.
    Getpid,
    /// One command followed without root, next to strace.
    Run,
}

impl Subject {
    const ALL: [Self; 3] = [Self::Loader, Self::Getpid, Self::Run];
}

/// What to measure, how often, and against what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) subjects: Vec<Subject>,
    pub(super) rounds: u32,
    /// Pairs of open and close in one run of the loader.
    pub(super) pairs: u32,
    /// Without repetition; [`State::Off`] is the first, because it is what others are divided by.
    pub(super) states: Vec<State>,
    pub(super) scheduling: Scheduling,
    pub(super) json: Option<PathBuf>,
    /// A missed goal is a failure.
    pub(super) goals: bool,
}

impl Arguments {
    /// Reads the words after `bench`.
    ///
    /// # Errors
    /// The first word that is not understood, with how to call the chore.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut arguments = Self {
            subjects: Vec::new(),
            rounds: 3,
            pairs: 50_000,
            states: vec![State::Off, State::Kernel, State::Tollgate],
            scheduling: Scheduling::Ordinary,
            json: None,
            goals: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("`{word}` needs a value\n{USAGE}"))
            };
            match word.as_str() {
                "loader" => arguments.subject(&[Subject::Loader]),
                "getpid" => arguments.subject(&[Subject::Getpid]),
                "run" => arguments.subject(&[Subject::Run]),
                "all" => arguments.subject(&Subject::ALL),
                "--rounds" => arguments.rounds = count(word, value()?)?,
                "--pairs" => arguments.pairs = count(word, value()?)?,
                "--against" => arguments.states = states(value()?)?,
                "--fifo" => arguments.scheduling = Scheduling::Fifo,
                "--json" => arguments.json = Some(PathBuf::from(value()?)),
                "--goals" => arguments.goals = true,
                _ => return Err(format!("`{word}` is not understood\n{USAGE}")),
            }
        }
        if arguments.subjects.is_empty() {
            arguments.subject(&Subject::ALL);
        }
        if arguments.goals && !arguments.states.contains(&State::Tollgate) {
            return Err("the goals are tollgate's: `--against` must name it".into());
        }
        Ok(arguments)
    }

    fn subject(&mut self, named: &[Subject]) {
        for subject in named {
            if !self.subjects.contains(subject) {
                self.subjects.push(*subject);
            }
        }
    }

    /// The states of a round. Each round starts with another one, so that what drifts, such as the
    /// clock rate of a warm CPU, favours none.
    pub(super) fn round(&self, number: u32) -> impl Iterator<Item = State> {
        let first = usize::try_from(number).unwrap_or(0) % self.states.len().max(1);
        let states = self.states.iter().cycle().skip(first);
        states.take(self.states.len()).copied()
    }
}

fn count(option: &str, text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{option} {text}`: a number above 0 is wanted")),
        Ok(number) => Ok(number),
    }
}

fn states(list: &str) -> Result<Vec<State>, String> {
    let mut states = vec![State::Off];
    for name in list.split(',') {
        let state = State::from_str(name)?;
        if !states.contains(&state) {
            states.push(state);
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn nothing_means_everything() {
        let arguments = parse("").unwrap();
        assert_eq!(arguments.subjects, Subject::ALL);
        assert_eq!(
            arguments.states,
            [State::Off, State::Kernel, State::Tollgate]
        );
        assert_eq!((arguments.rounds, arguments.pairs), (3, 50_000));
        assert_eq!(parse("all").unwrap(), arguments);
    }

    #[test]
    fn every_option_is_read() {
        let line =
            "getpid --rounds 5 --pairs 7 --against tollgate,tollgate --fifo --json a.json --goals";
        assert_eq!(
            parse(line).unwrap(),
            Arguments {
                subjects: vec![Subject::Getpid],
                rounds: 5,
                pairs: 7,
                states: vec![State::Off, State::Tollgate],
                scheduling: Scheduling::Fifo,
                json: Some("a.json".into()),
                goals: true,
            }
        );
    }

    #[test]
    fn mistakes_name_the_word() {
        for (line, part) in [
            ("frobnicate", "`frobnicate`"),
            ("--rounds", "`--rounds` needs a value"),
            ("--rounds 0", "`--rounds 0`"),
            ("--pairs many", "`--pairs many`"),
            ("--against off,bpftrace", "`bpftrace`"),
            ("--against kernel --goals", "must name it"),
        ] {
            let message = parse(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }

    #[test]
    fn rounds_rotate_through_all_states() {
        let arguments = parse("").unwrap();
        for number in 0..4 {
            let round: Vec<_> = arguments.round(number).collect();
            assert_eq!(round.len(), 3);
            for state in &arguments.states {
                assert!(round.contains(state), "{number}: {round:?}");
            }
        }
        assert_ne!(
            arguments.round(0).next(),
            arguments.round(1).next(),
            "the second round starts as the first does"
        );
    }
}
