//! What rule files and `auditctl` 4 read differently, for the tests that compare the two.

use audit::rule::{Command, Field, SyscallMask};

/// A rule with `perm` without its syscalls: `auditctl` 4 adds some, the parser of rule files none.
pub(crate) fn without_perm_syscalls(command: &Command) -> Command {
    let mut command = command.clone();
    if let Command::Add { rule, .. } = &mut command
        && rule.fields.iter().any(|test| test.field == Field::Perm)
    {
        rule.syscalls = SyscallMask::all();
    }
    command
}
