//! Which events a viewer wants.

use bstr::{BString, ByteSlice as _};

use super::facts::EventFacts;

/// A filter. An event must meet each kind of condition, with one of its values; an empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    /// Keys of the rule.
    pub(crate) keys: Vec<BString>,
    /// Login, real or effective users.
    pub(crate) users: Vec<u32>,
    /// Paths of programs; names without a slash are those of the file or of the task.
    pub(crate) programs: Vec<BString>,
    /// The result.
    pub(crate) result: Option<EventResult>,
}

/// Result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventResult {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
}

impl EventFilter {
    /// Whether the filter has no condition.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            keys,
            users,
            programs,
            result,
        } = self;
        keys.is_empty() && users.is_empty() && programs.is_empty() && result.is_none()
    }

    /// Whether an event meets all conditions.
    pub(super) fn matches(&self, event: &EventFacts<'_>) -> bool {
        let has_key = || {
            let mut keys = event.key.iter().flat_map(|key| key.split_str(&[1]));
            keys.any(|key| self.keys.iter().any(|wanted| wanted == key))
        };
        let is_of_user = || {
            let users = event.users.iter().flatten();
            users.into_iter().any(|user| self.users.contains(user))
        };
        let is_program = || self.programs.iter().any(|wanted| is_program(wanted, event));
        (self.keys.is_empty() || has_key())
            && (self.users.is_empty() || is_of_user())
            && (self.programs.is_empty() || is_program())
            && (self.result.is_none() || self.result == event.result)
    }
}

fn is_program(wanted: &[u8], event: &EventFacts<'_>) -> bool {
    let exe = event.exe.as_deref();
    if wanted.contains(&b'/') {
        return exe == Some(wanted);
    }
    let file = exe.and_then(|exe| exe.rsplit_str("/").next());
    file == Some(wanted) || event.comm.as_deref() == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &[u8] =
        b"type=SYSCALL msg=audit(1.000:1): arch=c000003e syscall=2 success=no exit=-13 \
        a0=0 auid=1000 uid=0 euid=33 comm=\"perl\" exe=\"/usr/bin/perl5.36\" key=610162\n\
        type=PATH msg=audit(1.000:1): item=0 name=\"/x\" ouid=7 nametype=NORMAL\n";
    const LOGIN: &[u8] = b"type=USER_LOGIN msg=audit(1.000:2): pid=9 uid=0 auid=1000 ses=1 \
        msg='op=login id=1000 exe=\"/usr/sbin/sshd\" hostname=? terminal=ssh res=success'\n";

    fn matches(filter: &EventFilter, event: &[u8]) -> bool {
        filter.matches(&EventFacts::read(event))
    }

    fn key(key: &str) -> EventFilter {
        EventFilter {
            keys: vec![key.into()],
            ..EventFilter::default()
        }
    }

    fn user(user: u32) -> EventFilter {
        EventFilter {
            users: vec![user],
            ..EventFilter::default()
        }
    }

    fn program(program: &str) -> EventFilter {
        EventFilter {
            programs: vec![program.into()],
            ..EventFilter::default()
        }
    }

    fn result(result: EventResult) -> EventFilter {
        EventFilter {
            result: Some(result),
            ..EventFilter::default()
        }
    }

    #[test]
    fn each_kind_of_condition_is_met_by_one_value() {
        for (filter, event, expected) in [
            (key("a"), EVENT, true),
            (key("b"), EVENT, true),
            (key("ab"), EVENT, false),
            (key("a"), LOGIN, false),
            (user(1000), EVENT, true),
            (user(0), EVENT, true),
            (user(33), EVENT, true),
            // The owner of an object is no user of the event.
            (user(7), EVENT, false),
            (user(1000), LOGIN, true),
            (program("/usr/bin/perl5.36"), EVENT, true),
            (program("perl5.36"), EVENT, true),
            (program("perl"), EVENT, true),
            (program("/usr/bin/perl"), EVENT, false),
            (program("sshd"), LOGIN, true),
            (result(EventResult::Failure), EVENT, true),
            (result(EventResult::Success), EVENT, false),
            (result(EventResult::Success), LOGIN, true),
            (EventFilter::default(), EVENT, true),
        ] {
            assert_eq!(matches(&filter, event), expected, "{filter:?}");
        }
    }

    #[test]
    fn all_kinds_must_be_met() {
        let mut both = key("a");
        both.users = vec![4, 1000];
        assert!(matches(&both, EVENT));
        both.result = Some(EventResult::Success);
        assert!(!matches(&both, EVENT));
        assert!(!both.is_empty() && EventFilter::default().is_empty());
    }
}
