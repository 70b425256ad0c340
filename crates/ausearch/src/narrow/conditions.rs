//! What the records of every matching event must have, for the index.
//!
//! A question is left out where an event can match without such a record: `(null)` is a text, 0 is the number of what
//! is no number, and the greatest ids mean none.

use std::cell::RefCell;

use bstr::ByteSlice as _;
use logs::event_values::Column;
use logs::index::Condition;

use crate::accounts::Accounts;
use crate::fields::NO_LOGIN;
use crate::filter::{Account, Filter};
use crate::record_type;

use super::needle::Needle;

/// Conditions, each of which a record of every matching event meets.
pub(super) struct Question<'q> {
    pub(super) conditions: Vec<Condition<'q>>,
    /// What a record of every matching event has in its text.
    pub(super) needles: Vec<Needle>,
}

impl<'q> Question<'q> {
    pub(super) fn new(filter: &'q Filter) -> Self {
        let mut question = Self {
            conditions: Vec::new(),
            needles: Vec::new(),
        };
        question.numbers(filter);
        question.users(filter);
        question.texts(filter);
        if let Some(kinds) = filter.kinds.as_ref()
            && !kinds.contains(&record_type::EOE)
        {
            let is_wanted = move |name: &[u8]| kinds.contains(&record_type::by_name(name));
            question.matching(Column::Type, is_wanted);
        }
        question
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.needles.is_empty()
    }

    fn number(&mut self, column: Column, number: impl Into<i64>) {
        let number = number.into();
        let value = number.to_string().into_bytes();
        self.conditions.push(Condition::Value(column, value));
        self.needles.extend(Needle::number(number));
    }

    fn matching(&mut self, column: Column, is_wanted: impl Fn(&[u8]) -> bool + 'q) {
        let condition = Condition::Matching(column, Box::new(is_wanted));
        self.conditions.push(condition);
    }

    fn numbers(&mut self, filter: &Filter) {
        if let Some(serial) = filter.serial {
            self.conditions.push(Condition::Serial(serial));
        }
        if let Some(pid) = filter.pid.filter(|&pid| pid >= 0) {
            self.number(Column::Pid, pid);
        }
        if let Some(ppid) = filter.ppid.filter(|&ppid| ppid >= 0) {
            self.number(Column::Ppid, ppid);
        }
        if let Some(exit) = filter.exit {
            self.number(Column::Exit, exit);
        }
        // An event without a syscall has number 0.
        if let Some(syscall) = filter.syscall.filter(|&syscall| syscall > 0) {
            self.number(Column::Syscall, syscall);
        }
        if let Some(session) = filter.session.filter(|&session| session < NO_LOGIN) {
            self.number(Column::Ses, session);
        }
    }

    fn users(&mut self, filter: &'q Filter) {
        let users = [
            (Column::Uid, filter.uid.as_ref()),
            (Column::Euid, filter.euid.as_ref()),
            (Column::Auid, filter.auid.as_ref()),
        ];
        let by_name = users
            .iter()
            .any(|(_, account)| account.is_some_and(|account| account.name.is_some()));
        let mut conditions = Vec::new();
        for (column, account) in users {
            match account {
                Some(account) if !by_name && !filter.any_user && account.id < NO_LOGIN => {
                    self.number(column, account.id);
                }
                // An id can be unset, and one beside a name is not looked at, unless one of them is enough.
                Some(account) if account.name.is_none() && !filter.any_user => {}
                Some(account) => match user(column, account) {
                    Some(condition) => conditions.push(condition),
                    None if filter.any_user => return,
                    None => {}
                },
                // What is not asked for may be unset.
                None if filter.any_user && !by_name => return,
                None => {}
            }
        }
        if filter.any_user {
            self.conditions.push(Condition::AnyOf(conditions));
        } else {
            self.conditions.append(&mut conditions);
        }
    }

    fn texts(&mut self, filter: &'q Filter) {
        let texts = [
            (Column::Key, filter.key.as_ref()),
            (Column::Exe, filter.exe.as_ref()),
            (Column::Comm, filter.comm.as_ref()),
            (Column::Path, filter.file.as_ref()),
        ];
        for (column, word) in texts {
            let Some(mut word) = word.map(Vec::as_slice) else {
                continue;
            };
            // Names that begin with a dot are joined with the working directory and a slash.
            if column == Column::Path && !filter.whole {
                word = word.strip_suffix(b"/").unwrap_or(word);
            }
            if b"(null)".contains_str(word) || column == Column::Path && word.contains_str("/.") {
                continue;
            }
            if filter.whole {
                self.conditions
                    .push(Condition::Value(column, word.to_vec()));
            } else {
                self.conditions.push(Condition::contains(column, word));
            }
            self.needles.push(Needle::word(word));
        }
        if let Some(host) = &filter.host {
            // Addresses of version 6 can be written in several ways.
            self.matching(Column::Address, move |value| {
                value.contains(&b':') || value.contains_str(host)
            });
        }
    }
}

/// Condition of a user; `None` if the user can be that of an event without one.
fn user(column: Column, account: &Account) -> Option<Condition<'_>> {
    let Some(name) = &account.name else {
        let is_set = account.id < NO_LOGIN;
        let value = account.id.to_string().into_bytes();
        return is_set.then_some(Condition::Value(column, value));
    };
    if *name == b"unset" {
        return None;
    }
    let accounts = RefCell::new(Accounts::default());
    let is_named = move |value: &[u8]| {
        let id = value.to_str().ok().and_then(|value| value.parse().ok());
        id.is_some_and(|id| {
            let found = accounts.borrow_mut().exact_user(id);
            found.as_ref() == Some(name)
        })
    };
    Some(Condition::Matching(column, Box::new(is_named)))
}
