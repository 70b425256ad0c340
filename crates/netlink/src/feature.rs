//! Features of the kernel's audit that hold whether or not it is enabled.

use std::io;

use crate::protocol::{AUDIT_GET_FEATURE, AUDIT_SET_FEATURE, open, request_with, word};

/// `AUDIT_FEATURE_VERSION` there.
const VERSION: u32 = 1;
/// `AUDIT_FEATURE_TO_MASK(AUDIT_FEATURE_LOGINUID_IMMUTABLE)` there.
const LOGINUID_IMMUTABLE: u32 = 1 << 1;

/// Whether login uids can be changed once they are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoginuidImmutable {
    /// They cannot.
    pub on: bool,
    /// That can no longer be changed before the machine starts again.
    pub locked: bool,
}

impl LoginuidImmutable {
    /// Asks the kernel; `None` when it does not know the feature.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL`, `EPROTONOSUPPORT` or `ECONNREFUSED` when the kernel has no
    /// audit or this is not its first user namespace.
    pub fn ask() -> io::Result<Option<Self>> {
        let mut found = None;
        request_with(&open()?, AUDIT_GET_FEATURE, &[], |kind, body| {
            if kind == AUDIT_GET_FEATURE {
                found = Self::read(body);
            }
        })?;
        Ok(found)
    }

    /// Has the kernel refuse changes of login uids from now on, until the machine starts again.
    ///
    /// # Errors
    /// As [`Self::ask`]; `EPERM` also when it was locked otherwise.
    pub fn lock() -> io::Result<()> {
        let mask = LOGINUID_IMMUTABLE;
        let body = [VERSION, mask, mask, mask].map(u32::to_ne_bytes).concat();
        request_with(&open()?, AUDIT_SET_FEATURE, &body, |_, _| {})
    }

    /// From `struct audit_features`: version, what is known, what is on, what is locked.
    fn read(body: &[u8]) -> Option<Self> {
        let has = |at| Some(word(body, at)? & LOGINUID_IMMUTABLE != 0);
        let known = has(4)?;
        let (on, locked) = (has(8)?, has(12)?);
        known.then_some(Self { on, locked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_word_by_word() {
        let body = |words: [u32; 4]| words.map(u32::to_ne_bytes).concat();
        let read = |words| LoginuidImmutable::read(&body(words));
        let state = |on, locked| Some(LoginuidImmutable { on, locked });
        assert_eq!(read([1, 3, 0, 0]), state(false, false));
        assert_eq!(read([1, 3, 2, 2]), state(true, true));
        assert_eq!(read([1, 3, 2, 1]), state(true, false));
        assert_eq!(read([1, 1, 2, 2]), None);
        assert_eq!(LoginuidImmutable::read(&[0; 8]), None);
    }
}
