//! The audit feature `loginuid_immutable`, which applies whether or not audit is enabled.

use std::io;

use crate::protocol::{
    AUDIT_GET_FEATURE, AUDIT_SET_FEATURE, change, open_socket, read_u32, request, to_bytes,
};

/// `AUDIT_FEATURE_VERSION` of `include/uapi/linux/audit.h`, Linux 6.12.
const VERSION: u32 = 1;
/// `AUDIT_FEATURE_TO_MASK(AUDIT_FEATURE_LOGINUID_IMMUTABLE)`.
const LOGINUID_IMMUTABLE: u32 = 1 << 1;

/// State of the feature that forbids changing a login UID once it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoginuidImmutable {
    /// The feature is enabled.
    pub on: bool,
    /// The feature cannot be changed until reboot.
    pub locked: bool,
}

impl LoginuidImmutable {
    /// Reads the state from the kernel; `None` when the kernel lacks the feature.
    ///
    /// # Errors
    /// `EPERM` without `CAP_AUDIT_CONTROL` or outside the initial PID namespace; `ECONNREFUSED` outside the
    /// initial user namespace; `EPROTONOSUPPORT` when the kernel has no audit.
    pub fn query() -> io::Result<Option<Self>> {
        let mut found = None;
        request(&open_socket()?, AUDIT_GET_FEATURE, &[], |kind, body| {
            if kind == AUDIT_GET_FEATURE {
                found = Self::parse(body);
            }
        })?;
        Ok(found)
    }

    /// Enables the feature and locks it until reboot.
    ///
    /// # Errors
    /// As [`Self::query`]; `EPERM` also when it is locked in the off state.
    pub fn lock() -> io::Result<()> {
        let mask = LOGINUID_IMMUTABLE;
        let body = to_bytes(&[VERSION, mask, mask, mask]);
        change(&open_socket()?, AUDIT_SET_FEATURE, &body)
    }

    /// Parses `struct audit_features`: `vers`, `mask` (known), `features` (enabled), `lock`.
    fn parse(body: &[u8]) -> Option<Self> {
        let has = |offset| Some(read_u32(body, offset)? & LOGINUID_IMMUTABLE != 0);
        let known = has(4)?;
        let (on, locked) = (has(8)?, has(12)?);
        known.then_some(Self { on, locked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_features_are_parsed() {
        let parse = |words: [u32; 4]| LoginuidImmutable::parse(&to_bytes(&words));
        let state = |on, locked| Some(LoginuidImmutable { on, locked });
        assert_eq!(parse([1, 3, 0, 0]), state(false, false));
        assert_eq!(parse([1, 3, 2, 2]), state(true, true));
        assert_eq!(parse([1, 3, 2, 1]), state(true, false));
        assert_eq!(parse([1, 1, 2, 2]), None);
        assert_eq!(LoginuidImmutable::parse(&[0; 8]), None);
    }
}
