//! What the helper may start: programs named in the configuration, in files that only root can write.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use audit::conf::auditd::{Action, MaxLogFileAction, OverflowAction, Settings};
use audit::conf::plugin::{self, is_plugin};
use bstr::{BStr, BString, ByteSlice as _};

use super::protocol::{HelperProgram, Runlevel};
use crate::config::plugins;
use crate::host::SENDMAIL;
use crate::json_bytes::JsonBytes;

const INIT: &str = "/sbin/init";
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A command that may be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PermittedCommand {
    pub(super) path: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Text for its standard input.
    pub(super) stdin: String,
}

/// Checks a request and returns the command.
///
/// # Errors
/// The configuration does not name it, or a user other than root could have replaced it.
pub(super) fn permit(
    program: &HelperProgram,
    settings: &Settings,
) -> anyhow::Result<PermittedCommand> {
    match program {
        HelperProgram::Plugin { file, path, args } => plugin(file, path, args, settings),
        HelperProgram::Action(program) => {
            let program = bytes(program)?;
            ensure!(
                programs(settings).any(|named| *named == program),
                "no action of auditd.conf runs `{program}`; run `systemctl reload tollgate` after changing auditd.conf"
            );
            Ok(PermittedCommand {
                path: program.to_path().context("the path")?.to_owned(),
                args: Vec::new(),
                stdin: String::new(),
            })
        }
        HelperProgram::Mail { subject, text } => {
            ensure!(
                actions(settings).contains(&&Action::Email),
                "no action of auditd.conf is `email`; run `systemctl reload tollgate` after changing auditd.conf"
            );
            let to = &settings.action_mail_acct;
            Ok(PermittedCommand {
                path: SENDMAIL.into(),
                args: vec!["-t".into()],
                stdin: format!(
                    "To: {to}\nFrom: root\nSubject: {}\n\n{text}\n",
                    subject.replace(char::is_control, " ")
                ),
            })
        }
        HelperProgram::Init(level) => {
            let (argument, action, overflow) = match level {
                Runlevel::Single => ("1", Action::Single, OverflowAction::Single),
                Runlevel::Halt => ("0", Action::Halt, OverflowAction::Halt),
            };
            ensure!(
                actions(settings).contains(&&action) || settings.overflow_action == overflow,
                "no action of auditd.conf requests this runlevel; run `systemctl reload tollgate` after changing auditd.conf"
            );
            Ok(PermittedCommand {
                path: INIT.into(),
                args: vec![argument.into()],
                stdin: String::new(),
            })
        }
    }
}

fn plugin(
    file: &str,
    path: &JsonBytes,
    args: &[JsonBytes],
    settings: &Settings,
) -> anyhow::Result<PermittedCommand> {
    // Also prevents path traversal: a file name has no slash, and its only dot is that of `.conf`.
    ensure!(
        is_plugin(file.as_bytes()) && !file.contains('/'),
        "`{file}` is not a plugin file: its name must end in .conf and have no slash"
    );
    let directory = settings
        .plugin_dir
        .to_path()
        .context("`plugin_dir` of auditd.conf is not a valid path")?;
    let read = plugins::read(&directory.join(file))?;
    let args = args.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
    let same = plugin::PluginProgram::File(bytes(path)?) == read.settings.program
        && args == read.settings.args
        && read.settings.active
        && read.is_valid();
    ensure!(
        same,
        "its file has changed: run `systemctl reload tollgate`"
    );
    let path = bytes(path)?
        .to_path()
        .context("the path of the program is not valid")?
        .to_owned();
    let about =
        std::fs::metadata(&path).with_context(|| format!("cannot inspect `{}`", path.display()))?;
    if !about.is_file() || about.uid() != 0 || about.mode() & WRITABLE_BY_OTHERS != 0 {
        bail!(
            "`{}` must be a regular file, owned by root and writable by root only",
            path.display()
        );
    }
    let args = args.iter().map(|arg| arg.to_os_str_lossy().into_owned());
    Ok(PermittedCommand {
        path,
        args: args.collect(),
        stdin: String::new(),
    })
}

fn bytes(text: &JsonBytes) -> anyhow::Result<BString> {
    text.bytes().context("malformed text in the request")
}

/// Disk actions, without the overflow action of plugin queues.
const fn actions(settings: &Settings) -> [&Action; 4] {
    [
        &settings.space_left_action,
        &settings.admin_space_left_action,
        &settings.disk_full_action,
        &settings.disk_error_action,
    ]
}

/// Programs that actions run.
fn programs(settings: &Settings) -> impl Iterator<Item = &BStr> {
    let of_size = match &settings.max_log_file_action {
        MaxLogFileAction::Exec(program) => Some(program.as_ref()),
        _ => None,
    };
    let others = actions(settings)
        .into_iter()
        .filter_map(|action| match action {
            Action::Exec(program) => Some(program.as_ref()),
            _ => None,
        });
    of_size.into_iter().chain(others)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn refusal(program: &HelperProgram, settings: &Settings) -> String {
        format!("{:#}", permit(program, settings).unwrap_err())
    }

    #[test]
    fn only_configured_programs_may_be_started() {
        let none = Settings::default();
        let settings = Settings {
            space_left_action: Action::Email,
            disk_full_action: Action::Exec("/usr/bin/true".into()),
            overflow_action: OverflowAction::Single,
            action_mail_acct: "ops".into(),
            ..Settings::default()
        };
        let action = |path: &[u8]| HelperProgram::Action(JsonBytes::new(path));
        let permitted = permit(&action(b"/usr/bin/true"), &settings).unwrap();
        assert_eq!(permitted.path, PathBuf::from("/usr/bin/true"));
        assert!(refusal(&action(b"/bin/sh"), &settings).contains("/bin/sh"));
        assert!(refusal(&action(b"/usr/bin/true"), &none).contains("no action"));
        let mail = HelperProgram::Mail {
            subject: "full\nBcc: all".into(),
            text: "text".into(),
        };
        let permitted = permit(&mail, &settings).unwrap();
        assert_eq!(
            permitted.stdin,
            "To: ops\nFrom: root\nSubject: full Bcc: all\n\ntext\n"
        );
        refusal(&mail, &none);
        permit(&HelperProgram::Init(Runlevel::Single), &settings).unwrap();
        refusal(&HelperProgram::Init(Runlevel::Halt), &settings);
    }

    #[test]
    fn plugin_must_match_its_current_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.conf");
        let settings = Settings {
            plugin_dir: directory.path().to_str().unwrap().into(),
            ..Settings::default()
        };
        let plugin = |file: &str, path: &str, arg: &str| HelperProgram::Plugin {
            file: file.to_owned(),
            path: JsonBytes::new(path.as_bytes()),
            args: vec![JsonBytes::new(arg.as_bytes())],
        };
        fs::write(&file, "active = yes\npath = /bin/sh\nargs = -e\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let permitted = permit(&plugin("a.conf", "/bin/sh", "-e"), &settings).unwrap();
        assert_eq!(permitted.args, ["-e"]);
        for other in [
            plugin("a.conf", "/bin/sh", "-c"),
            plugin("a.conf", "/bin/cat", "-e"),
        ] {
            assert!(refusal(&other, &settings).contains("has changed"));
        }
        refusal(&plugin("b.conf", "/bin/sh", "-e"), &settings);
        let outside = plugin("x/../a.conf", "/bin/sh", "-e");
        assert!(refusal(&outside, &settings).contains("not a plugin file"));
        fs::write(&file, "active = no\npath = /bin/sh\nargs = -e\n").unwrap();
        assert!(refusal(&plugin("a.conf", "/bin/sh", "-e"), &settings).contains("has changed"));
    }
}
