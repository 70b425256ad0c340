//! The exclude list: drops records by type or by task.
//!
//! It is applied to encoded lines and therefore to all record types.

use crate::event::Task;
use crate::rule::List;
use crate::table;

use super::eval::other_lists::{Actor, record_kept};
use super::rule_list::RuleEntry;

/// The rules of the exclude list, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludeList(Vec<RuleEntry>);

impl ExcludeList {
    /// Whether the list has no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[RuleEntry] {
        &self.0
    }

    /// Adds a rule at the end.
    pub(super) fn push(&mut self, listed: RuleEntry) {
        self.0.push(listed);
    }

    /// Removes excluded records from the lines of an event of `task`. The lines are `text` from `start` on.
    ///
    /// # Source
    /// `audit_log_start` in `kernel/audit.c`, Linux 6.12, which evaluates the list for each record.
    pub fn remove_excluded(&self, task: &Task<'_>, text: &mut Vec<u8>, start: usize) {
        if self.is_empty() {
            return;
        }
        let sender = Actor {
            task: *task,
            label: None,
        };
        let (mut to, mut from) = (start, start);
        while let Some(rest) = text.get(from..).filter(|rest| !rest.is_empty()) {
            let length = rest.iter().position(|&byte| byte == b'\n');
            let length = length.map_or(rest.len(), |end| end + 1);
            if self.keeps(rest, &sender) {
                text.copy_within(from..from + length, to);
                to += length;
            }
            from += length;
        }
        text.truncate(to);
    }

    /// Whether the record at the start of a line is written. A record of an unknown type is written.
    fn keeps(&self, line: &[u8], sender: &Actor<'_>) -> bool {
        let name = line
            .strip_prefix(b"type=")
            .and_then(|rest| rest.split(|&byte| byte == b' ').next());
        let number = name.and_then(table::msg_type_number);
        let rules = self.0.iter().map(|listed| &listed.rule);
        number.is_none_or(|number| record_kept(rules, List::Exclude, number, sender))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Auid;
    use crate::rule::test_host::TestHost;
    use crate::rule::{Command, parse_line};

    const EVENT: &str = "type=SYSCALL msg=audit(1.000:1): a\n\
                         type=CWD msg=audit(1.000:1): cwd=\"/type=CWD \"\n\
                         type=PATH msg=audit(1.000:1): b\n\
                         type=PROCTITLE msg=audit(1.000:1): c\n";

    #[track_caller]
    fn exclude(lines: &[&str]) -> ExcludeList {
        let mut exclude = ExcludeList::default();
        for line in lines {
            let (command, findings) = parse_line(line.as_bytes(), &TestHost);
            let Some(Command::Add { rule, .. }) = command else {
                panic!("{line}: {findings:?}");
            };
            let (source, line) = (0, 1);
            exclude.push(RuleEntry { rule, source, line });
        }
        exclude
    }

    /// Types of the remaining records of two events. The second event is by uid 0.
    fn left(lines: &[&str]) -> [String; 2] {
        let exclude = exclude(lines);
        let mut text = Vec::new();
        [1000, 0].map(|uid| {
            let task = Task {
                ppid: 1,
                pid: 2,
                auid: Auid(1000),
                uid,
                gid: 0,
                euid: 0,
                suid: 0,
                fsuid: 0,
                egid: 0,
                sgid: 0,
                fsgid: 0,
                ses: 1,
                tty: b"",
                comm: b"cat",
                exe: Some(b"/bin/cat"),
                subj: None,
            };
            let start = text.len();
            text.extend_from_slice(EVENT.as_bytes());
            exclude.remove_excluded(&task, &mut text, start);
            let left = String::from_utf8(text[start..].to_vec()).unwrap();
            let types = left
                .lines()
                .map(|line| line.split([' ', '=']).nth(1).unwrap());
            types.collect::<Vec<_>>().join(" ")
        })
    }

    #[test]
    fn records_are_excluded_by_type() {
        let without_cwd = "SYSCALL PATH PROCTITLE";
        assert_eq!(left(&[]), ["SYSCALL CWD PATH PROCTITLE"; 2]);
        assert_eq!(
            left(&["-a always,exclude -F msgtype=CWD"]),
            [without_cwd; 2]
        );
        assert_eq!(
            left(&["-a exclude,never -F msgtype=CWD"]),
            [without_cwd; 2],
            "the action has no effect"
        );
        assert_eq!(left(&["-a always,exclude -F msgtype>=PATH"])[0], "SYSCALL");
    }

    #[test]
    fn records_are_excluded_by_task() {
        let all = "SYSCALL CWD PATH PROCTITLE";
        assert_eq!(left(&["-a always,exclude -F uid=0"]), [all, ""]);
        assert_eq!(
            left(&["-a always,exclude -F msgtype=PATH -F uid!=0"]),
            ["SYSCALL CWD PROCTITLE", all]
        );
        assert_eq!(left(&["-a always,exclude -F exe=/bin/cat"]), [""; 2]);
    }
}
