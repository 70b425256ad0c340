//! The user list: filters messages that programs send to the audit system.
//!
//! The receiver of such messages evaluates it before a message becomes an event.

use crate::ids::MsgType;
use crate::rule::List;

use super::eval::other_lists::{Actor, record_kept};
use super::rule_list::RuleEntry;

/// The rules of the user list, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserList(Vec<RuleEntry>);

impl UserList {
    /// Whether [`UserList::keeps`] applies to messages of this type: the list has rules, and the type is for
    /// messages of programs rather than the kernel.
    ///
    /// # Source
    /// `audit_receive_msg` in `kernel/audit.c`, Linux 6.12: `AUDIT_USER`, and both ranges of types for user
    /// messages in `include/uapi/linux/audit.h`.
    #[must_use]
    pub const fn applies_to(&self, kind: MsgType) -> bool {
        !self.0.is_empty() && matches!(kind, MsgType::USER | MsgType(1100..=1199 | 2100..=2999))
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

    /// Whether a message of this type is written. The sender's ids, program and label are those at the time of
    /// sending.
    #[must_use]
    pub fn keeps(&self, kind: MsgType, sender: &Actor<'_>) -> bool {
        let rules = self.0.iter().map(|listed| &listed.rule);
        record_kept(rules, List::User, kind, sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Task;
    use crate::ids::Auid;
    use crate::rule::test_host::TestHost;
    use crate::rule::{Command, parse_line};

    #[test]
    fn first_matching_never_rule_drops_the_message() {
        let mut messages = UserList::default();
        assert!(!messages.applies_to(MsgType(1112)));
        for (line, text) in (1..).zip([
            "-a always,user -F msgtype=USER_LOGIN",
            "-a never,user -F uid=1000",
        ]) {
            let (command, findings) = parse_line(text.as_bytes(), &TestHost);
            let Some(Command::Add { rule, .. }) = command else {
                panic!("{text}: {findings:?}");
            };
            let source = 0;
            messages.push(RuleEntry { rule, source, line });
        }
        let sender = |uid| Actor {
            task: Task {
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
                comm: b"su",
                exe: Some(b"/bin/su"),
                subj: None,
            },
            label: None,
        };
        let (login, auth) = (MsgType(1112), MsgType(1100));
        assert!(messages.keeps(login, &sender(1000)));
        assert!(!messages.keeps(auth, &sender(1000)));
        assert!(messages.keeps(auth, &sender(0)));
        for (kind, asked) in [
            (1005, true),
            (1099, false),
            (1100, true),
            (1199, true),
            (1200, false),
            (1701, false),
            (2099, false),
            (2100, true),
            (2999, true),
            (3000, false),
        ] {
            assert_eq!(messages.applies_to(MsgType(kind)), asked, "{kind}");
        }
    }
}
