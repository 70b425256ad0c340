//! A host for tests: it has no users, and `/etc` is the only directory.

use super::RuleHost;
use crate::ids::Arch;

/// The host.
pub(crate) struct TestHost;

impl RuleHost for TestHost {
    fn uid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn gid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path == b"/etc"
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}
