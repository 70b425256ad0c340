//! What `ausearch` looks for, and whether an event has it.

use crate::event::Event;
use crate::fields::{Avc, Found, NO_ID, NO_LOGIN, Success, User, Wanted};
use crate::interpret::Machine;

/// A user in a question: a number, and the name if a name was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) id: u32,
    pub(crate) name: Option<Vec<u8>>,
}

/// What to look for. An event must have all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) serial: Option<u32>,
    pub(crate) nodes: Vec<Vec<u8>>,
    pub(crate) kinds: Option<Vec<i32>>,
    pub(crate) pid: Option<i32>,
    pub(crate) ppid: Option<i32>,
    pub(crate) uid: Option<Account>,
    pub(crate) euid: Option<Account>,
    pub(crate) auid: Option<Account>,
    /// One of the users is enough.
    pub(crate) any_user: bool,
    pub(crate) gid: Option<u32>,
    pub(crate) egid: Option<u32>,
    /// One of the groups is enough.
    pub(crate) any_group: bool,
    pub(crate) session: Option<u32>,
    pub(crate) success: Option<Success>,
    pub(crate) exit: Option<i64>,
    pub(crate) machine: Option<Machine>,
    pub(crate) syscall: Option<i32>,
    pub(crate) file: Option<Vec<u8>>,
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) terminal: Option<Vec<u8>>,
    pub(crate) exe: Option<Vec<u8>>,
    pub(crate) comm: Option<Vec<u8>>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) vm: Option<Vec<u8>>,
    pub(crate) uuid: Option<Vec<u8>>,
    pub(crate) subject: Option<Vec<u8>>,
    pub(crate) object: Option<Vec<u8>>,
    /// One of the labels is enough.
    pub(crate) any_label: bool,
    /// Texts must be equal, and not only contain the word.
    pub(crate) whole: bool,
}

impl Filter {
    /// The fields that decide.
    pub(crate) fn wanted(&self) -> Wanted {
        let named = [&self.uid, &self.euid, &self.auid]
            .into_iter()
            .flatten()
            .any(|account| account.name.is_some());
        [
            (self.pid.is_some(), Wanted::PID),
            (self.ppid.is_some(), Wanted::PPID),
            (self.uid.is_some(), Wanted::UID),
            (self.euid.is_some(), Wanted::EUID),
            (self.auid.is_some(), Wanted::AUID),
            (named, Wanted::USER_NAMES),
            (self.gid.is_some(), Wanted::GID),
            (self.egid.is_some(), Wanted::EGID),
            (self.session.is_some(), Wanted::SESSION),
            (self.success.is_some(), Wanted::SUCCESS),
            (self.exit.is_some(), Wanted::EXIT),
            (self.machine.is_some(), Wanted::ARCH),
            (self.file.is_some(), Wanted::FILE),
            (self.host.is_some(), Wanted::HOST),
            (self.terminal.is_some(), Wanted::TERMINAL),
            (self.exe.is_some(), Wanted::EXE),
            (self.comm.is_some(), Wanted::COMM),
            (self.key.is_some(), Wanted::KEY),
            (self.vm.is_some(), Wanted::VM),
            (self.uuid.is_some(), Wanted::UUID),
            (self.subject.is_some(), Wanted::SUBJECT),
            (self.object.is_some(), Wanted::OBJECT),
        ]
        .into_iter()
        .filter(|&(is_wanted, _)| is_wanted)
        .fold(Wanted::empty(), |wanted, (_, field)| wanted | field)
    }

    /// Whether the stamp of an event is one that is looked for.
    pub(crate) fn has_stamp(&self, event: &Event) -> bool {
        let seconds = event.id.seconds.cast_signed();
        let serial = self
            .serial
            .is_none_or(|serial| u64::from(serial) == event.id.serial);
        serial
            && (self.start == 0 || seconds >= self.start)
            && (self.end == 0 || seconds <= self.end)
    }

    /// Whether an event comes from a node that is looked for.
    pub(crate) fn has_node(&self, event: &Event) -> bool {
        self.nodes.is_empty()
            || event
                .id
                .node
                .as_ref()
                .is_some_and(|node| self.nodes.contains(node))
    }

    /// Whether an event has what is looked for, given its fields.
    pub(crate) fn matches(&self, event: &Event, found: &Found<'_>) -> bool {
        self.has_node(event)
            && self.has_numbers(found)
            && self
                .kinds
                .as_ref()
                .is_none_or(|kinds| event.kinds().any(|kind| kinds.contains(&kind)))
            && self.has_texts(found)
            && self.has_labels(found)
    }

    fn has_numbers(&self, found: &Found<'_>) -> bool {
        fn is<T: PartialEq + Copy>(wanted: Option<T>, found: T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        self.has_users(found)
            && self.has_groups(found)
            && is(self.ppid, found.ppid)
            && is(self.pid, found.pid)
            && self
                .machine
                .is_none_or(|machine| machine == Machine::of_arch(found.arch))
            && is(self.syscall, found.syscall)
            && is(self.session, found.session)
            && self.exit.is_none_or(|exit| found.exit == Some(exit))
            && is(self.success, found.success)
    }

    fn has_users(&self, found: &Found<'_>) -> bool {
        let pairs = [
            (&self.uid, &found.uid, NO_ID),
            (&self.euid, &found.euid, NO_ID),
            (&self.auid, &found.auid, NO_LOGIN),
        ];
        let by_name = pairs.iter().any(|(wanted, ..)| {
            wanted
                .as_ref()
                .is_some_and(|account| account.name.is_some())
        });
        let same = |(wanted, found, unset): &(&Option<Account>, &User, u32)| match wanted {
            Some(Account {
                name: Some(name), ..
            }) => found.name.as_ref() == Some(name),
            Some(Account { id, .. }) => *id == found.id,
            None => !by_name && *unset == found.id,
        };
        if self.any_user {
            return pairs.iter().any(same);
        }
        // A number beside a name is not looked at.
        pairs.iter().all(|pair| match pair.0 {
            None => true,
            Some(account) if by_name && account.name.is_none() => true,
            Some(_) => same(pair),
        })
    }

    fn has_groups(&self, found: &Found<'_>) -> bool {
        if self.any_group {
            return self.gid.unwrap_or(NO_ID) == found.gid
                || self.egid.unwrap_or(NO_ID) == found.egid;
        }
        self.gid.is_none_or(|gid| gid == found.gid)
            && self.egid.is_none_or(|egid| egid == found.egid)
    }

    /// Whether a text is or contains a word.
    fn has_word(&self, word: &[u8], text: &[u8]) -> bool {
        if self.whole {
            text == word
        } else {
            bstr::ByteSlice::contains_str(text, word)
        }
    }

    fn has_texts(&self, found: &Found<'_>) -> bool {
        let has = |word: &Option<Vec<u8>>, text: Option<&[u8]>| match word {
            Some(word) => text.is_some_and(|text| self.has_word(word, text)),
            None => true,
        };
        self.has_file(found)
            && has(&self.host, found.host.as_deref())
            && has(&self.terminal, found.terminal.as_deref())
            && has(&self.exe, found.exe.as_deref())
            && has(&self.comm, found.comm.as_deref())
            && self.key.as_ref().is_none_or(|word| {
                let mut keys = found.keys.iter().flatten();
                keys.any(|key| self.has_word(word, key))
            })
            && has(&self.vm, found.vm.as_deref())
            && has(&self.uuid, found.uuid.as_deref())
    }

    fn has_file(&self, found: &Found<'_>) -> bool {
        let Some(word) = &self.file else {
            return true;
        };
        let mut files = found.files.iter().flatten();
        files.any(|file| self.has_word(word, &file.name))
            || found
                .cwd
                .as_ref()
                .is_some_and(|cwd| self.has_word(word, cwd))
    }

    fn has_labels(&self, found: &Found<'_>) -> bool {
        let has = |word: &Option<Vec<u8>>, label: for<'a> fn(&'a Avc<'_>) -> Option<&'a [u8]>| {
            word.as_ref().map(|word| {
                let mut labels = found.avcs.iter().flatten().filter_map(label);
                labels.any(|label| self.has_word(word, label))
            })
        };
        let subject = has(&self.subject, |avc| avc.subject);
        let object = has(&self.object, |avc| avc.object);
        if self.any_label {
            return subject == Some(true) || object == Some(true);
        }
        subject != Some(false) && object != Some(false)
    }
}
