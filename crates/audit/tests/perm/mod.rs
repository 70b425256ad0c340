//! Normalises rules, for tests that compare the parsers of rule files and of `auditctl` 4.

use audit::rule::{Command, Field, SyscallMask};

/// Removes the syscalls of a rule with `perm`: `auditctl` 4 adds some, the parser of rule files none.
pub(crate) fn without_perm_syscalls(command: &Command) -> Command {
    let mut command = command.clone();
    if let Command::Add { rule, .. } = &mut command
        && rule.fields.iter().any(|test| test.field == Field::Perm)
    {
        rule.syscalls = SyscallMask::all();
    }
    command
}
