//! This machine, as the rule parser asks about it.

use std::path::Path;

use audit::ids::Arch;
use audit::rule::Host;
use bstr::ByteSlice as _;
use nix::unistd::{Group, User};

/// The machine that tollgate runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisMachine;

impl Host for ThisMachine {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        let user = User::from_name(name.to_str().ok()?).ok()??;
        Some(user.uid.as_raw())
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        let group = Group::from_name(name.to_str().ok()?).ok()??;
        Some(group.gid.as_raw())
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.to_path().is_ok_and(Path::is_dir)
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}
