//! This host, for the parser of audit rules.

use std::path::Path;

use audit::ids::{Arch, NativeArch};
use audit::rule::RuleHost;
use bstr::ByteSlice as _;
use logs::accounts::Accounts;

/// Names of users and groups, and directories.
#[derive(Debug, Default)]
pub(super) struct Host(Accounts);

impl Host {
    /// This machine.
    pub(super) fn of_this_machine() -> Self {
        Self(Accounts::read().unwrap_or_default())
    }
}

impl RuleHost for Host {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        self.0.uids(name.to_str().ok()?).next()
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        self.0.gids(name.to_str().ok()?).next()
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.to_path().is_ok_and(Path::is_dir)
    }

    fn native(&self) -> Arch {
        NativeArch::BUILD.b64()
    }
}
