//! What feeds a Sigma rule: records that audit rules choose, and records that come without them.

use std::collections::BTreeSet;

use audit::ids::NativeArch;
use audit::plan::SyscallId;
use audit::rule::{Action, Command, Field, List, parse_line, print};
use bstr::ByteSlice as _;
use logs::accounts::Accounts;

use super::demand::{Condition, Demand, Kind};
use super::record_types::{Origin, syscall_ids};
use crate::sigma::Source;
use crate::sigma::need::{Need, Place, Way};

/// Most audit rules for the alternatives of one way; beyond them conditions are left out.
const MAX_ALTERNATIVES: usize = 8;

/// What feeds a way of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feed {
    /// Audit rules must record these events.
    Recorded(Demand),
    /// Audit rules of the author, whose key the rule tests.
    Written {
        /// The key.
        key: String,
        /// The rules, as `auditctl -l` prints them.
        lines: Vec<String>,
    },
    /// Records that are sent without audit rules.
    Sent {
        /// Type of the records.
        kind: String,
        /// Who sends them.
        sender: &'static str,
    },
    /// Nothing can feed it.
    Nothing(String),
}

/// What feeds a rule, sorted.
pub(super) fn feeds(need: &Need) -> Vec<Feed> {
    let mut feeds: Vec<Feed> = Vec::new();
    for way in &need.ways {
        if let Some(field) = &way.absent {
            let source = need.source;
            feeds.push(Feed::Nothing(format!("no {source} event has `{field}`")));
            continue;
        }
        match need.source {
            Source::Record => of_record(way, need.definition.as_deref(), &mut feeds),
            Source::Process => {
                let demand = Demand::exec(Vec::new(), &["SYSCALL", "EXECVE"]);
                feeds.push(Feed::Recorded(demand));
            }
            Source::File => {
                let places = places(way);
                let demands = places.iter().flat_map(Demand::written_files);
                feeds.extend(demands.map(Feed::Recorded));
            }
            Source::Network => {
                let directions = [true, false].into_iter();
                let wanted = directions.filter(|out| way.is_initiated.is_none_or(|is| is == *out));
                feeds.extend(wanted.flat_map(Demand::connections).map(Feed::Recorded));
            }
        }
    }
    if feeds.is_empty() {
        feeds.push(Feed::Nothing("its condition contradicts itself".to_owned()));
    }
    feeds.sort();
    feeds.dedup();
    feeds
}

/// Where the names of a way are.
fn places(way: &Way) -> BTreeSet<Place> {
    let anywhere = || BTreeSet::from([Place::Anywhere]);
    way.places.clone().unwrap_or_else(anywhere)
}

/// What feeds a way of a rule for records.
fn of_record(way: &Way, definition: Option<&str>, feeds: &mut Vec<Feed>) {
    let types = match &way.types {
        Some(types) => types.clone(),
        // The fields are those of the syscall's record.
        None if way.syscalls.is_some() || way.keys.is_some() || way.tests_process => {
            BTreeSet::from(["SYSCALL".to_owned()])
        }
        None => {
            let reason =
                "it names neither a record type nor a field that tells which records it needs";
            feeds.push(Feed::Nothing(reason.to_owned()));
            return;
        }
    };
    for kind in types {
        let origin = Origin::of(&kind);
        let sent = |sender| Feed::Sent {
            kind: kind.clone(),
            sender,
        };
        match origin {
            Origin::AnySyscall => of_syscalls(way, &kind, None, definition, feeds),
            Origin::Names => of_names(way, &kind, feeds),
            Origin::Syscalls(names) => {
                let made = syscall_ids(&names).collect();
                of_syscalls(way, &kind, Some(made), definition, feeds);
            }
            Origin::Operations => feeds.push(Feed::Nothing(
                "records of io_uring need a rule of the list io_uring, which is not made here"
                    .to_owned(),
            )),
            Origin::Kernel if matches!(&*kind, "TTY" | "USER_TTY") => {
                feeds.push(sent("the kernel, if pam_tty_audit(8) asks for it"));
            }
            Origin::Kernel => feeds.push(sent("the kernel")),
            Origin::Programs => feeds.push(sent("programs")),
            Origin::Unknown => {
                feeds.push(Feed::Nothing(format!("no record has the type `{kind}`")));
            }
        }
    }
}

/// What feeds a way about records of a type that syscalls make: these, or any.
fn of_syscalls(
    way: &Way,
    kind: &str,
    made: Option<BTreeSet<SyscallId>>,
    definition: Option<&str>,
    feeds: &mut Vec<Feed>,
) {
    let syscalls = match (&way.syscalls, made) {
        (Some(wanted), Some(made)) => Some(wanted.intersection(&made).copied().collect()),
        (Some(wanted), None) => Some(wanted.clone()),
        (None, made) => made,
    };
    if let (None, Some(keys)) = (&syscalls, &way.keys) {
        feeds.push(by_key(keys, definition));
        return;
    }
    let tests_ids = way.numbers.keys().any(|field| *field != Field::Auid);
    for tests in alternatives(way, kind) {
        let types = [kind];
        let demand = match &syscalls {
            Some(syscalls) if syscalls.is_empty() => continue,
            Some(syscalls) if is_exec(syscalls) && kind != "SYSCALL" => Demand::exec(tests, &types),
            Some(syscalls) if is_exec(syscalls) => {
                Demand::new(Kind::Exec, syscalls.clone(), &types, tests)
            }
            Some(syscalls) => Demand::new(Kind::Call, syscalls.clone(), &types, tests),
            // A program that does something was executed before.
            None if !way.tests_other && !tests_ids && way.success != Some(false) => {
                Demand::exec(tests, &types)
            }
            None => Demand::every(tests, &types),
        };
        feeds.push(keyed(way, demand));
    }
}

/// What feeds a way about records of names.
fn of_names(way: &Way, kind: &str, feeds: &mut Vec<Feed>) {
    for (place, tests) in places(way).iter().flat_map(|place| {
        alternatives(way, kind)
            .into_iter()
            .map(move |tests| (place, tests))
    }) {
        let demands = match (&way.syscalls, way.creates) {
            (Some(syscalls), _) => {
                let demand = Demand::new(Kind::Call, syscalls.clone(), &[kind], Vec::new());
                vec![demand.at(place)]
            }
            (None, true) => Demand::created_names(place),
            (None, false) => vec![Demand::access(place)],
        };
        for mut demand in demands {
            demand.tests.extend(tests.iter().cloned());
            demand.tests.sort();
            demand.tests.dedup();
            feeds.push(keyed(way, demand));
        }
    }
}

/// A demand with the key that a way tests.
fn keyed(way: &Way, mut demand: Demand) -> Feed {
    match &way.keys {
        None => Feed::Recorded(demand),
        Some(keys) => match keys.first().filter(|key| is_key(key)) {
            Some(key) => {
                demand.key = Some(key.clone());
                Feed::Recorded(demand)
            }
            None => Feed::Nothing("it tests the key of audit rules by a pattern".to_owned()),
        },
    }
}

/// The author's audit rules that have a key.
fn by_key(keys: &BTreeSet<String>, definition: Option<&str>) -> Feed {
    let Some(key) = keys.first().filter(|key| is_key(key)) else {
        return Feed::Nothing("it tests the key of audit rules by a pattern".to_owned());
    };
    let mut lines: Vec<String> = Vec::new();
    for line in definition.unwrap_or_default().lines() {
        let (command, _) = parse_line(line.trim().as_bytes(), &Accounts::default());
        if let Some(Command::Add { rule, .. }) = command
            && (rule.list, rule.action) == (List::Exit, Action::Always)
            && rule
                .keys
                .iter()
                .any(|own| own.eq_ignore_ascii_case(key.as_bytes()))
        {
            let text = print(&rule, NativeArch::BUILD.b64(), audit::ids::Dialect::V3);
            lines.extend(text.to_str().ok().map(str::to_owned));
        }
    }
    match lines.is_empty() {
        true => Feed::Nothing(format!(
            "it needs an audit rule with the key `{key}`, and does not tell what that records"
        )),
        false => Feed::Written {
            key: key.clone(),
            lines,
        },
    }
}

/// Whether a key can be written in an audit rule.
fn is_key(key: &str) -> bool {
    (1..=64).contains(&key.len())
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+/@".contains(&byte))
}

fn is_exec(syscalls: &BTreeSet<SyscallId>) -> bool {
    syscalls.iter().all(|syscall| syscall.is_exec())
}

/// The conditions of a way; one of the returned ones holds for each of its events.
fn alternatives(way: &Way, kind: &str) -> Vec<Vec<Condition>> {
    let mut all = vec![Vec::new()];
    if let Some(success) = way.success {
        multiply(
            &mut all,
            &[Condition::number(Field::Success, success.into())],
        );
    }
    if let Some(programs) = &way.programs {
        let programs = programs.iter().map(|path| Condition::program(path));
        multiply(&mut all, &programs.collect::<Vec<_>>());
    }
    for (field, numbers) in &way.numbers {
        let is_argument = matches!(field, Field::A0 | Field::A1 | Field::A2 | Field::A3);
        // Arguments of other records are not those of the syscall.
        if !is_argument || kind == "SYSCALL" {
            let numbers = numbers
                .iter()
                .map(|number| Condition::number(*field, *number));
            multiply(&mut all, &numbers.collect::<Vec<_>>());
        }
    }
    all
}

fn multiply(all: &mut Vec<Vec<Condition>>, conditions: &[Condition]) {
    if all.len() * conditions.len() > MAX_ALTERNATIVES {
        return;
    }
    let with = |tests: &Vec<Condition>| {
        let tests = tests.clone();
        let with = conditions.iter().map(move |condition| {
            let more = std::iter::once(condition.clone());
            tests.iter().cloned().chain(more).collect()
        });
        with.collect::<Vec<Vec<Condition>>>()
    };
    *all = all.iter().flat_map(with).collect();
}
