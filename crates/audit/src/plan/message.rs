//! The user list: messages that programs send to the audit system and that are not written.
//!
//! It is asked by whoever receives such messages, before one becomes an event.

use crate::ids::MsgType;
use crate::rule::List;

use super::eval::other::{Sender, record_kept};
use super::list::Listed;

/// The rules of the user list, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages(Vec<Listed>);

impl Messages {
    /// Whether every message is kept, and there is nothing to ask.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Listed] {
        &self.0
    }

    /// Adds a rule at the end.
    pub(super) fn push(&mut self, listed: Listed) {
        self.0.push(listed);
    }

    /// Whether a message of this type is written. The sender is as it was when it sent: its ids, its
    /// program and its label.
    ///
    /// # Source
    /// `audit_receive_msg` in `kernel/audit.c`, Linux 6.12, which asks before each message of a type from
    /// `AUDIT_FIRST_USER_MSG` on.
    #[must_use]
    pub fn keeps(&self, kind: MsgType, sender: &Sender<'_>) -> bool {
        let rules = self.0.iter().map(|listed| &listed.rule);
        record_kept(rules, List::User, kind, sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Task;
    use crate::ids::Auid;
    use crate::rule::nobody::Nobody;
    use crate::rule::{Command, parse_line};

    #[test]
    fn a_message_is_kept_unless_the_first_rule_that_matches_says_never() {
        let mut messages = Messages::default();
        assert!(messages.is_empty());
        for (line, text) in (1..).zip([
            "-a always,user -F msgtype=USER_LOGIN",
            "-a never,user -F uid=1000",
        ]) {
            let (command, findings) = parse_line(text.as_bytes(), &Nobody);
            let Some(Command::Add { rule, .. }) = command else {
                panic!("{text}: {findings:?}");
            };
            let source = 0;
            messages.push(Listed { rule, source, line });
        }
        let sender = |uid| Sender {
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
    }
}
