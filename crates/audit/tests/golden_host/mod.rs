//! The host of the golden results of `auditctl`, and the differences that tests permit.

use audit::ids::{Arch, Dialect};
use audit::rule::RuleHost;

/// Permitted differences: input, version and reason.
pub(crate) const PERMITTED: &[(&str, Dialect, &str)] = &[
    (
        "-a always,foo",
        Dialect::V4,
        "4.2.1 adds a rule to no list; 3.0.9 refuses it, and so do we",
    ),
    (
        "-A task,never",
        Dialect::V3,
        "the kernel forgets the flag that puts a rule in front, the shim of the golden run did not",
    ),
    ("-A task,never", Dialect::V4, "as above"),
    (
        "stray -l",
        Dialect::V3,
        "both versions crash; we say what they say of `-l stray`",
    ),
    ("stray -l", Dialect::V4, "as above"),
    (
        "-a always,exit -F arch=b64 -S pread64,pwrite64 -F pers=8 -k renamed",
        Dialect::V3,
        "we also accept the kernel's names of syscalls; auditctl knows `pread` and `pwrite` only",
    ),
    (
        "--reset-lost",
        Dialect::V3,
        "the number is the shim's; offline nothing is counted",
    ),
    ("--reset-lost", Dialect::V4, "as above"),
    (
        "-W /etc/passwd -p wa -k id",
        Dialect::V3,
        "the message is the shim's",
    ),
    ("-W /etc/passwd -p wa -k id", Dialect::V4, "as above"),
    (
        "-R /nonexistent",
        Dialect::V3,
        "reading files is the caller's: tested in `crates/tollgate/src/cli/auditctl`",
    ),
    ("-R /nonexistent", Dialect::V4, "as above"),
];

/// The host of the golden results: Debian 12 without the users chrony and ntp.
pub(crate) struct GoldenHost;

impl RuleHost for GoldenHost {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.ends_with(b".d") || path == b"/etc"
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}
