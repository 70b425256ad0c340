//! Findings about the settings of a rule file: `-b`, `-e`, `-f` and others.

use audit::rule::{Command, Diagnostic, RuleLine, Severity};

/// Returns a finding for each setting that has no effect on tollgate, stops recording, or can stop the
/// machine. Of several `-e` or `-f` the last one counts.
pub(super) fn check(lines: &[RuleLine]) -> impl Iterator<Item = Diagnostic> {
    let last = |is_kind: fn(&Command) -> bool| {
        let mut of_kind = lines.iter().filter(move |line| is_kind(&line.command));
        of_kind.next_back().map(|line| line.number)
    };
    let last_enabled = last(|command| matches!(command, Command::Enabled(_)));
    let last_failure = last(|command| matches!(command, Command::Failure(_)));
    lines.iter().filter_map(move |line| {
        let is_superseded = match line.command {
            Command::Enabled(_) => last_enabled != Some(line.number),
            Command::Failure(_) => last_failure != Some(line.number),
            _ => false,
        };
        if is_superseded {
            None
        } else {
            check_line(line)
        }
    })
}

fn check_line(line: &RuleLine) -> Option<Diagnostic> {
    let without_effect = |option: &str| {
        (
            Severity::Note,
            "kernel-setting",
            format!("`{option}` configures the kernel's audit and has no effect on tollgate"),
            "keep the line for `auditctl`, or remove it",
        )
    };
    let (severity, code, message, advice) = match line.command {
        Command::Backlog(_) => without_effect("-b"),
        Command::BacklogWait(_) => without_effect("--backlog_wait_time"),
        Command::LoginuidImmutable => without_effect("--loginuid-immutable"),
        Command::Enabled(0) => (
            Severity::Warning,
            "auditing-disabled",
            "`-e 0` disables auditing: the rules are loaded and record nothing".to_owned(),
            "remove the line, or write `-e 1`",
        ),
        Command::Enabled(2) => (
            Severity::Note,
            "locks",
            "`-e 2` locks rules, settings and log until the machine restarts".to_owned(),
            "every later daemon continues with them, also after a trial with --rules or --log, and a new version of \
             tollgate starts only after a reboot; leave it out until the rules are final",
        ),
        Command::Failure(2) => (
            Severity::Note,
            "panic-on-loss",
            "`-f 2` panics the kernel when tollgate loses an event".to_owned(),
            "tasks never wait for room in the ring, so a burst of events can panic the machine; `-f 1` \
             writes to the kernel log instead",
        ),
        _ => return None,
    };
    Some(finding(line, severity, code, message, advice))
}

/// Returns a warning for each line that changes rules or settings after `-e 2`.
///
/// # Source
/// `audit_receive_msg()` and `audit_do_config_change()` in `kernel/audit.c`, Linux 6.12: while
/// `audit_enabled` is `AUDIT_LOCKED`, they return `EPERM`. `audit_set_feature()` does not.
pub(super) fn check_after_lock(lines: &[RuleLine]) -> impl Iterator<Item = Diagnostic> {
    let is_lock = |line: &RuleLine| matches!(line.command, Command::Enabled(2));
    let lock = lines.iter().position(is_lock);
    let after = lock.map_or(&[][..], |at| lines.get(at + 1..).unwrap_or_default());
    let locked_by = lock
        .and_then(|at| lines.get(at))
        .map_or(0, |line| line.number);
    let changes = |command: &Command| {
        !matches!(
            command,
            Command::IgnoreErrors | Command::ContinueOnErrors | Command::LoginuidImmutable
        )
    };
    after
        .iter()
        .filter(move |line| changes(&line.command))
        .map(move |line| {
            finding(
                line,
                Severity::Warning,
                "after-lock",
                format!("`auditctl -R` refuses this line: `-e 2` in line {locked_by} locks the configuration"),
                "make `-e 2` the last line of the last file; `augenrules` moves it there, and `tollgate daemon` loads \
                 all its rule files before it locks",
            )
        })
}

/// Returns a finding about a whole line.
fn finding(
    line: &RuleLine,
    severity: Severity,
    code: &'static str,
    message: String,
    advice: &str,
) -> Diagnostic {
    Diagnostic {
        severity,
        code,
        line: line.number,
        column: 1,
        span: line.span.clone(),
        message,
        advice: advice.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use audit::rule::diagnostic_codes;

    use super::*;
    use crate::rule_files::RuleFile;

    /// Line, severity and code of each finding.
    fn found(text: &str) -> Vec<(u32, Severity, &'static str)> {
        let file = RuleFile::parse(PathBuf::from("x"), text.into());
        assert!(file.is_loadable(), "{text}");
        file.source
            .diagnostics
            .iter()
            .inspect(|found| assert!(diagnostic_codes::explain(found.code).is_some(), "{found:?}"))
            .map(|found| (found.line, found.severity, found.code))
            .collect()
    }

    #[test]
    fn kernel_settings_get_a_note() {
        assert_eq!(
            found("-D\n-b 8192\n-e 1\n-f 1\n-r 0\n-w /x -p w\n"),
            [(2, Severity::Note, "kernel-setting")]
        );
    }

    #[test]
    fn disabled_auditing_is_a_warning_and_panic_a_note() {
        assert_eq!(
            found("-D\n-f 2\n-w /x -p w\n-e 0\n"),
            [
                (2, Severity::Note, "panic-on-loss"),
                (4, Severity::Warning, "auditing-disabled")
            ]
        );
        assert_eq!(found("-f 2\n-e 0\n-w /x -p w\n-f 1\n-e 1\n"), []);
    }

    #[test]
    fn lines_after_the_lock_get_a_warning() {
        let locks = |line| (line, Severity::Note, "locks");
        let after = |line| (line, Severity::Warning, "after-lock");
        assert_eq!(
            found("-w /x -p w\n-e 2\n# x\n-i\n-w /y -p w\n-r 5\n-D\n-e 2\n"),
            [after(5), after(6), after(7), locks(8), after(8)]
        );
        assert_eq!(found("-w /x -p w\n-e 2\n-i\n"), [locks(2)]);
        assert_eq!(found("-e 1\n-w /x -p w\n"), []);
    }
}
