//! The tests of rules in the order in which programs run them.

use audit::plan::{Operand, Slot, Test};
use audit::rule::{Action, Field};

use super::{is_object_field, socket_address, wire_test};
use crate::abi::{self, WireEvent, WireTest, word};

/// The `word` of a test of a watch in a rule that suppresses events: names that any user can make do not count.
const TRUSTED_NAMES: u16 = 1;

/// So many rules in a row that begin with a watch get a table of their watches.
const MIN_TABLE_RULES: usize = 4;

/// A table has at most so many entries for each rule: watches of other rules may lie between its own.
const MAX_ENTRIES_PER_RULE: usize = 4;

impl WireTest {
    /// The same test of a sequence that begins `by` tests later.
    pub(crate) fn moved(self, by: u32) -> Self {
        let is_index = [abi::TEST_SAME, abi::TEST_ENTRY].contains(&self.kind);
        Self {
            value: if is_index {
                self.value + by
            } else {
                self.value
            },
            on_false: self.on_false + by,
            ..self
        }
    }
}

/// Tests of some rules; indexes are relative to the first of them.
pub(super) fn tests<'a>(slots: impl Iterator<Item = &'a Slot>) -> Vec<WireTest> {
    in_order(&slots.map(tests_of_rule).collect::<Vec<_>>())
}

/// One sequence of the tests of rules.
///
/// A rule about a watch is tested when some watch is hit, and most such rules are about another one. So rules in a row
/// that begin with a watch are preceded by a table: programs go on at the first one whose watch was hit, and the
/// cost of an event does not depend on the number of rules.
fn in_order(rules: &[Vec<WireTest>]) -> Vec<WireTest> {
    let mut all = Vec::new();
    for row in rules.chunk_by(|one, next| watch_of(one).is_some() && watch_of(next).is_some()) {
        let table = all.len();
        let entries = Entries::of(row);
        all.resize(table + entries.tests(), WireTest::default());
        let mut first_rules = Vec::new();
        for rule in row {
            let first = index(all.len());
            first_rules.push((watch_of(rule), first + tests_of_watch(rule)));
            all.extend(rule.iter().map(|test| test.moved(first)));
        }
        let end = index(all.len());
        if let Some(place) = all.get_mut(table..table + entries.tests()) {
            entries.fill(place, &first_rules, end);
        }
    }
    all.push(WireTest {
        kind: abi::TEST_END,
        ..WireTest::default()
    });
    all
}

/// The watches that a table covers: `count` numbers from `lowest` on, none for rules that need no table.
#[derive(Clone, Copy, Debug)]
struct Entries {
    lowest: u32,
    count: u16,
}

impl Entries {
    /// Those of a row of rules.
    fn of(row: &[Vec<WireTest>]) -> Self {
        let watches = || row.iter().filter_map(|rule| watch_of(rule));
        let lowest = watches().min().unwrap_or_default();
        let highest = watches().max().unwrap_or_default();
        let most = row.len() * MAX_ENTRIES_PER_RULE;
        let count = u16::try_from(highest - lowest + 1).unwrap_or(u16::MAX);
        let is_worth_it = row.len() >= MIN_TABLE_RULES && usize::from(count) <= most;
        Self {
            lowest,
            count: if is_worth_it { count } else { 0 },
        }
    }

    /// The length of the table.
    fn tests(self) -> usize {
        if self.count == 0 {
            0
        } else {
            1 + usize::from(self.count)
        }
    }

    /// Writes the table. `rules` are the watches of the rules with the tests at which programs go on, `end` is the test
    /// after the last.
    fn fill(self, table: &mut [WireTest], rules: &[(Option<u32>, u32)], end: u32) {
        let Some((head, entries)) = table.split_first_mut() else {
            return;
        };
        *head = WireTest {
            kind: abi::TEST_BY_WATCH,
            value: self.lowest,
            word: self.count,
            on_false: end,
            ..WireTest::default()
        };
        for (watch, entry) in (self.lowest..).zip(entries) {
            let rule = rules.iter().find(|(of, _)| *of == Some(watch));
            *entry = WireTest {
                kind: abi::TEST_ENTRY,
                value: rule.map_or(end, |&(_, first)| first),
                ..WireTest::default()
            };
        }
    }
}

/// The watch that must be hit for a rule to match, if that is the rule's first test.
fn watch_of(rule: &[WireTest]) -> Option<u32> {
    let first = rule.first()?;
    [abi::TEST_PATH, abi::TEST_DIR]
        .contains(&first.kind)
        .then_some(first.value)
}

/// The number of a rule's tests that hold because its watch was hit.
fn tests_of_watch(rule: &[WireTest]) -> u32 {
    let holds = |test: &WireTest| {
        test.kind == abi::TEST_DIR && test.word != TRUSTED_NAMES && test.verdict == abi::NO_VERDICT
    };
    u32::from(rule.first().is_some_and(holds))
}

/// Tests of one rule; indexes are relative to the first of them.
fn tests_of_rule(slot: &Slot) -> Vec<WireTest> {
    let mut all = Vec::new();
    let (same, mut others) = split_same_object_tests(slot);
    others.sort_by_key(|test| !is_watch_test(test));
    if !same.is_empty() {
        all.push(WireTest {
            kind: abi::TEST_SAME,
            value: 1,
            word: u16::try_from(same.len()).unwrap_or(u16::MAX),
            ..WireTest::default()
        });
    }
    for test in same.into_iter().chain(others) {
        if test.operand == Operand::Field(Field::SaddrFam) {
            all.push(socket_address::has_sockaddr_test());
        }
        if test.operand == Operand::UringEnter {
            all.push(in_uring_enter_test());
        }
        all.push(wire_test(test));
    }
    if all.is_empty() {
        all.push(WireTest::default());
    }
    let next = index(all.len());
    for test in &mut all {
        test.on_false = next;
        if slot.action == Action::Never && [abi::TEST_PATH, abi::TEST_DIR].contains(&test.kind) {
            test.word = TRUSTED_NAMES;
        }
    }
    let keep = if slot.action == Action::Always {
        abi::RECORD
    } else {
        0
    };
    if let Some(last) = all.last_mut() {
        last.verdict = keep | u32::from(slot.rule.0);
    }
    all
}

fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Whether a test is about the watches that were hit.
const fn is_watch_test(test: &Test) -> bool {
    matches!(test.operand, Operand::Path | Operand::Dir)
}

/// Whether an operation runs in `io_uring_enter`, whose ABI the event has then.
fn in_uring_enter_test() -> WireTest {
    WireTest {
        // `flags` are the upper half of the word that begins with `version`.
        value: u32::from(abi::EVENT_URING_ENTER) << 16,
        word: word!(WireEvent.version),
        op: abi::OP_ANY,
        kind: abi::TEST_WORD,
        ..WireTest::default()
    }
}

/// Splits the tests of a slot into those that must hold for the same object, if there are several, and the
/// others.
pub(super) fn split_same_object_tests(slot: &Slot) -> (Vec<&Test>, Vec<&Test>) {
    let of_object = |test: &&Test| match test.operand {
        Operand::Path => true,
        Operand::Field(field) => is_object_field(field) && field != Field::FileType,
        _ => false,
    };
    if slot.tests_one_object() && slot.tests.iter().filter(of_object).count() > 1 {
        slot.tests.iter().partition(of_object)
    } else {
        (Vec::new(), slot.tests.iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule that begins with a watch, with so many tests.
    fn watching(kind: u8, watch: u32, tests: u32) -> Vec<WireTest> {
        let mut rule: Vec<WireTest> = (0..tests)
            .map(|_| WireTest {
                kind: abi::TEST_WORD,
                on_false: tests,
                ..WireTest::default()
            })
            .collect();
        let first = rule.first_mut().unwrap();
        (first.kind, first.value) = (kind, watch);
        rule.last_mut().unwrap().verdict = watch;
        rule
    }

    /// The test at which programs go on behind a table: `first_of_watches()` in `bpf/lib/filter.bpf.h`.
    fn first_of_watches(tests: &[WireTest], table: u32, hits: &[u32]) -> u32 {
        let test = |index: u32| tests[usize::try_from(index).unwrap()];
        let head = test(table);
        assert_eq!(head.kind, abi::TEST_BY_WATCH);
        let entries = hits.iter().filter_map(|hit| {
            let entry = hit.wrapping_sub(head.value);
            (entry < u32::from(head.word)).then(|| test(table + 1 + entry))
        });
        entries
            .map(|entry| {
                assert_eq!(entry.kind, abi::TEST_ENTRY);
                entry.value
            })
            .fold(head.on_false, u32::min)
    }

    #[test]
    fn table_leads_to_the_first_rule_about_a_watch_that_was_hit() {
        let other = vec![WireTest::default()];
        let row = [(7, 2), (5, 1), (9, 3), (5, 2)]
            .map(|(watch, tests)| watching(abi::TEST_PATH, watch, tests));
        let rules = [vec![other.clone()], row.to_vec(), vec![other]].concat();
        let tests = in_order(&rules);
        // The rule before, the table for watches 5 to 9, then the rules.
        let firsts = [7, 9, 10, 13, 15];
        assert_eq!(tests.len(), 17);
        for (hits, first) in [
            (&[][..], firsts[4]),
            (&[4, 8, 10], firsts[4]),
            (&[7], firsts[0]),
            (&[5], firsts[1]),
            (&[9, 5], firsts[1]),
            (&[9], firsts[2]),
        ] {
            assert_eq!(first_of_watches(&tests, 1, hits), first, "{hits:?}");
        }
        // A sequence that is moved, as to the other half of the map.
        let behind = vec![WireTest::default(); 100];
        let moved: Vec<WireTest> = tests.iter().map(|test| test.moved(100)).collect();
        let all = [behind, moved].concat();
        assert_eq!(first_of_watches(&all, 101, &[9]), 100 + firsts[2]);
    }

    #[test]
    fn table_leads_behind_a_test_that_holds() {
        let after_table = |row: [Vec<WireTest>; 4]| {
            let tests = in_order(&row);
            [1, 2].map(|watch| first_of_watches(&tests, 0, &[watch]))
        };
        let dir = |watch, tests| watching(abi::TEST_DIR, watch, tests);
        // The table has three tests. The second rule has no other test.
        let row = [dir(1, 2), dir(2, 1), dir(1, 1), dir(1, 1)];
        assert_eq!(after_table(row.clone()), [4, 5]);
        let mut suppressing = row;
        suppressing[0][0].word = TRUSTED_NAMES;
        assert_eq!(after_table(suppressing), [3, 5]);
    }

    #[test]
    fn few_rules_or_scattered_watches_have_no_table() {
        let is_table = |rules: &[Vec<WireTest>]| {
            let tests = in_order(rules);
            tests.iter().any(|test| test.kind == abi::TEST_BY_WATCH)
        };
        let row = |watches: [u32; 4]| watches.map(|watch| watching(abi::TEST_DIR, watch, 1));
        assert!(is_table(&row([0, 1, 2, 3])));
        assert!(!is_table(&row([0, 1, 2, 3])[1..]));
        assert!(is_table(&row([0, 1, 2, 15])));
        assert!(!is_table(&row([0, 1, 2, 16])));
    }

    #[test]
    fn indexes_of_tests_move_with_the_sequence() {
        let test = |kind| WireTest {
            kind,
            value: 7,
            on_false: 2,
            ..WireTest::default()
        };
        for (kind, value) in [
            (abi::TEST_SAME, 107),
            (abi::TEST_ENTRY, 107),
            (abi::TEST_BY_WATCH, 7),
            (abi::TEST_WORD, 7),
        ] {
            let moved = test(kind).moved(100);
            assert_eq!((moved.value, moved.on_false), (value, 102), "{kind}");
        }
    }
}
