//! A host for the parser of rules.

use audit::ids::Arch;
use audit::rule::RuleHost;

/// An x86-64 host without users and groups, where paths that end in `.d` are directories.
#[derive(Clone, Copy, Debug)]
pub struct TestHost;

impl RuleHost for TestHost {
    fn uid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn gid(&self, _name: &[u8]) -> Option<u32> {
        None
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.ends_with(b".d")
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}
