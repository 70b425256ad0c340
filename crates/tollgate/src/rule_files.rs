//! Reads, parses and compiles rule files.
//!
//! As `auditctl -R` does, it accepts only regular files that are not world-writable. It also decides,
//! for every command, whether rules with findings are loaded.

pub(crate) mod keys;
mod setting_findings;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::{Command, RuleLine, Severity, parse_file};
use nix::fcntl::OFlag;

use crate::host::{Planner, ThisMachine};
use crate::messages::{self, SourceText, info, warn};

/// Printed before the reason when a starting program cannot load its rules.
pub(crate) const NOTHING_ATTACHED: &str = "nothing is attached";
/// Printed before the reason when a running daemon cannot load new rules.
pub(crate) const RULES_UNCHANGED: &str = "the old rules stay in force";

/// Largest rule file that is accepted: a hundred times the largest public rule set.
const FILE_LIMIT_BYTES: u64 = 16 << 20;

/// A parsed rule file.
#[derive(Clone, Debug)]
pub(crate) struct RuleFile {
    /// The text and the findings about it.
    pub(crate) source: SourceText,
    /// The lines that contain a command and no error.
    pub(crate) lines: Vec<RuleLine>,
}

/// The rule files of a command, in the order given.
#[derive(Clone, Debug)]
pub(crate) struct RuleFiles {
    /// The files.
    pub(crate) files: Vec<RuleFile>,
}

/// Reads rule files.
///
/// # Errors
/// When a file cannot be opened or read, is not a regular file, or is world-writable. Errors in the text
/// are findings: see [`RuleFile::source`] and [`RuleFiles::is_loadable`].
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<RuleFiles> {
    let files = paths
        .iter()
        .map(|path| RuleFile::read(path))
        .collect::<anyhow::Result<_>>()?;
    Ok(RuleFiles { files })
}

/// Reads rule files, and standard input for `-` and `/dev/stdin`: for commands that only look at the rules.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_also_stdin(paths: &[PathBuf]) -> anyhow::Result<RuleFiles> {
    let read = |path: &PathBuf| {
        if !is_stdin(path) {
            return RuleFile::read(path);
        }
        let mut bytes = Vec::new();
        limited(io::stdin().lock(), &mut bytes).context("cannot read rules from standard input")?;
        Ok(RuleFile::parse("standard input".into(), bytes))
    };
    let files = paths.iter().map(read).collect::<anyhow::Result<_>>()?;
    Ok(RuleFiles { files })
}

fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"]
        .iter()
        .any(|name| path.as_os_str() == *name)
}

/// A rule file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleText {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// The result of compiling rule files.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompiledRules {
    /// The files.
    pub(crate) texts: Vec<RuleText>,
    /// The rules, including those that the engine does not support.
    pub(crate) rules: RuleList,
    /// The other commands, in order.
    pub(crate) settings: Vec<Command>,
    /// The plan of the rules.
    pub(crate) plan: Plan,
}

/// Compiles rule files to a plan. Returns `None` when they cannot be loaded, after printing the reason
/// and `consequence`.
///
/// # Errors
/// When the rules record nothing.
pub(crate) fn compile_plan(
    files: RuleFiles,
    partial: bool,
    consequence: &str,
) -> anyhow::Result<Option<Plan>> {
    let planner = Planner::for_this_machine(Vec::new());
    let Ok(CompiledRules { plan, .. }) = compile(files, partial, &planner, consequence) else {
        return Ok(None);
    };
    if plan.syscalls.is_empty() {
        bail!("the rules record nothing: they contain no `always,exit` rule");
    }
    Ok(Some(plan))
}

/// Why rule files cannot be loaded: one line that names the first place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

/// Compiles rule files.
///
/// # Errors
/// When they cannot be loaded, after printing every reason and `consequence`.
pub(crate) fn compile(
    files: RuleFiles,
    partial: bool,
    planner: &Planner,
    consequence: &str,
) -> Result<CompiledRules, Refused> {
    files.print_findings();
    if let Some(errors) = files.errors() {
        warn(&format!("{consequence}: the rules above contain errors"));
        return Err(Refused(errors));
    }
    let mut compiled = CompiledRules::default();
    let mut names = Vec::new();
    for (source, file) in files.files.into_iter().enumerate() {
        let ignores_errors = file.ignores_errors_from().is_some();
        let commands = file.lines.iter().map(|line| line.command.clone());
        compiled.settings.extend(commands.filter(is_setting));
        for finding in compiled.rules.load(source, file.lines) {
            info(&format!(
                "{}:{}: {}; {}",
                file.source.path.display(),
                finding.line,
                finding.message,
                finding.advice
            ));
        }
        names.push((file.source.path.clone(), ignores_errors));
        compiled.texts.push(RuleText {
            path: file.source.path,
            bytes: file.source.bytes,
        });
    }
    let rules = compiled.rules.clone().into_rules();
    compiled.plan = planner.plan(rules);
    // Prints a message about a rule; returns it, and whether its file ignores errors.
    let report = |source: usize, line, message: &str| {
        let unnamed = (PathBuf::new(), false);
        let (path, ignores_errors) = names.get(source).unwrap_or(&unnamed);
        let text = format!("{}:{line}: {message}", path.display());
        info(&text);
        (text, *ignores_errors)
    };
    let mut refused = Vec::new();
    for rule in &compiled.plan.unsupported {
        let (text, ignores_errors) = report(rule.source, rule.line, &rule.reason);
        if rule.loses_records && !ignores_errors && !partial {
            refused.push(text);
        }
    }
    for (source, line, field) in compiled.plan.unmatchable_label_rules() {
        let _reported = report(
            source,
            line,
            &format!("matches nothing: no active security module compares `{field}`"),
        );
    }
    if let [first, ..] = refused.as_slice() {
        let count = refused.len();
        warn(&format!(
            "{consequence}: {} not supported (the reasons are above); use --partial, or `-i` in the file, to load the rest",
            if count == 1 {
                "1 rule is".to_owned()
            } else {
                format!("{count} rules are")
            }
        ));
        return Err(Refused(messages::first_of(first, count)));
    }
    // Without rule files, the rules arrive over the control socket.
    if !names.is_empty()
        && let Some(key) = keys::unused(planner.denies(), &compiled.rules).first()
    {
        let reason = keys::unused_key(key);
        warn(&format!(
            "{consequence}: {reason}; correct tollgate.toml, or add `-k` with the key to the rules that are to deny"
        ));
        return Err(Refused(reason));
    }
    Ok(compiled)
}

/// Whether a command is a setting rather than a rule or an option of the parser.
const fn is_setting(command: &Command) -> bool {
    matches!(
        command,
        Command::Enabled(_)
            | Command::Failure(_)
            | Command::Rate(_)
            | Command::Backlog(_)
            | Command::BacklogWait(_)
            | Command::LoginuidImmutable
    )
}

impl RuleFiles {
    /// Whether the rules can be loaded: no file contains an error that it does not ignore.
    pub(crate) fn is_loadable(&self) -> bool {
        self.files.iter().all(RuleFile::is_loadable)
    }

    /// Describes the errors of the first file that cannot be loaded.
    pub(crate) fn errors(&self) -> Option<String> {
        let mut refused = self.files.iter().filter(|file| !file.is_loadable());
        refused.find_map(|file| file.source.errors())
    }

    /// Returns the number of findings of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.files
            .iter()
            .map(|file| file.source.count(severity))
            .sum()
    }

    /// Returns the number of rules that the files add.
    pub(crate) fn rule_count(&self) -> usize {
        self.files.iter().map(RuleFile::rule_count).sum()
    }

    /// Prints errors and warnings on standard error.
    pub(crate) fn print_findings(&self) {
        for file in &self.files {
            messages::print_findings(&file.source);
        }
    }
}

impl RuleFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let bytes = read_bytes(path).with_context(|| format!("cannot read rule file `{shown}`"))?;
        Ok(Self::parse(path.to_owned(), bytes))
    }

    /// Parses the text of a rule file.
    pub(crate) fn parse(path: PathBuf, bytes: Vec<u8>) -> Self {
        let (lines, mut diagnostics) = parse_file(&bytes, &ThisMachine);
        diagnostics.extend(setting_findings::check(&lines));
        diagnostics.extend(setting_findings::check_after_lock(&lines));
        diagnostics.sort_by_key(|finding| finding.span.start);
        Self {
            source: SourceText {
                path,
                bytes,
                diagnostics,
            },
            lines,
        }
    }

    /// Whether every error comes after `-i` or `-c`, as in `auditctl`. Lines with an error are left out
    /// in either case.
    pub(crate) fn is_loadable(&self) -> bool {
        let ignored_from = self.ignores_errors_from();
        self.source
            .diagnostics
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .all(|error| ignored_from.is_some_and(|line| line < error.line))
    }

    /// Returns the line of the first `-i` or `-c`, after which errors are ignored.
    pub(crate) fn ignores_errors_from(&self) -> Option<u32> {
        let ignores = |command: &Command| {
            matches!(command, Command::IgnoreErrors | Command::ContinueOnErrors)
        };
        let line = self.lines.iter().find(|line| ignores(&line.command))?;
        Some(line.number)
    }

    /// Returns the number of rules that the file adds.
    pub(crate) fn rule_count(&self) -> usize {
        self.lines
            .iter()
            .filter(|line| matches!(line.command, Command::Add { .. }))
            .count()
    }
}

/// The reason why a rule file is not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Opening or reading the file failed.
    Io(io::Error),
    /// The file is a directory, pipe or device.
    NotRegular,
    /// The file is world-writable.
    WorldWritable,
    /// The file exceeds [`FILE_LIMIT_BYTES`].
    TooLarge,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotRegular => f.write_str("it is not a regular file"),
            Self::WorldWritable => f.write_str("it is world-writable: run `chmod o-w` on it"),
            Self::TooLarge => write!(f, "it is larger than {FILE_LIMIT_BYTES} bytes"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a whole rule file.
///
/// # Errors
/// When the file cannot be opened or read, is not a regular file, is world-writable or is too large.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    // fstat on the descriptor: the file cannot be replaced between check and read. O_NONBLOCK: opening
    // a named pipe does not wait for a writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return Err(ReadError::WorldWritable);
    }
    let mut bytes = Vec::new();
    limited(file, &mut bytes)?;
    Ok(bytes)
}

fn limited(input: impl Read, bytes: &mut Vec<u8>) -> Result<(), ReadError> {
    input.take(FILE_LIMIT_BYTES + 1).read_to_end(bytes)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > FILE_LIMIT_BYTES {
        return Err(ReadError::TooLarge);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::Permissions;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[track_caller]
    fn refusal(path: &Path) -> String {
        format!("{:#}", read(&[path.to_owned()]).unwrap_err())
    }

    fn parsed(text: &str) -> RuleFile {
        RuleFile::parse(PathBuf::from("x"), text.into())
    }

    #[test]
    fn rule_file_is_read_and_parsed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rules");
        fs::write(&path, "-D\n-w /etc/shadow -p w\n-x\n").unwrap();
        let loaded = read(std::slice::from_ref(&path)).unwrap();
        assert_eq!((loaded.rule_count(), loaded.count(Severity::Error)), (1, 1));
        assert_eq!(loaded.files[0].source.path, path);
        assert_eq!(loaded.files[0].lines.len(), 2);
        assert!(!loaded.is_loadable());
    }

    #[test]
    fn untrusted_files_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);

        let missing = refusal(&path("missing"));
        assert!(
            missing.contains("missing") && missing.contains("No such file"),
            "{missing}"
        );
        assert!(refusal(directory.path()).contains("not a regular file"));

        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        assert!(refusal(&path("pipe")).contains("not a regular file"));

        fs::write(path("open"), "-D\n").unwrap();
        fs::set_permissions(path("open"), Permissions::from_mode(0o666)).unwrap();
        assert!(refusal(&path("open")).contains("world-writable"));

        let large = fs::File::create(path("large")).unwrap();
        large.set_len(FILE_LIMIT_BYTES + 1).unwrap();
        assert!(refusal(&path("large")).contains("larger than 16777216 bytes"));
    }

    #[test]
    fn errors_are_ignored_after_i_and_c() {
        for (text, is_loadable) in [
            ("-w /x -p w\n", true),
            ("-x\n", false),
            ("-i\n-x\n", true),
            ("-c\n-x\n", true),
            ("-x\n-i\n", false),
            ("-i -D\n-x\n", false),
            ("-F a=b\n-c\n-x\n", false),
            ("-a always,exit -S open\n", true),
        ] {
            assert_eq!(parsed(text).is_loadable(), is_loadable, "{text}");
        }
    }
}
