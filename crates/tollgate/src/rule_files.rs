//! Rule files: opened with care, read whole, and parsed.
//!
//! What must hold of a file is what `auditctl -R` asks: it is a regular file, and not everyone may
//! write to it. What the findings mean for loading is decided here, once, for every command.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use audit::plan::Plan;
use audit::plan::list::RuleList;
use audit::rule::{Command, Diagnostic, Line, Severity, parse_file};
use nix::fcntl::OFlag;

use super::report::{self, info, warn};
use crate::host::{Planner, ThisMachine};

/// What follows when rules cannot be loaded by a program that starts.
pub(crate) const NOTHING: &str = "nothing is attached";
/// What follows when they cannot be loaded by a daemon that audits.
pub(crate) const OLD: &str = "the old rules stay in force";

/// Larger files are no rule files: a hundred times the largest public rule set.
const FILE_LIMIT_BYTES: u64 = 16 << 20;

/// A rule file that was read.
#[derive(Clone, Debug)]
pub(crate) struct RuleFile {
    /// As the user named it.
    pub(crate) path: PathBuf,
    /// Its text; the spans of lines and findings count in it.
    pub(crate) bytes: Vec<u8>,
    /// The lines that ask for something and hold no error.
    pub(crate) lines: Vec<Line>,
    /// What is to be said about it.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// All rule files of a command, in the order given.
#[derive(Clone, Debug)]
pub(crate) struct RuleFiles {
    /// The files.
    pub(crate) files: Vec<RuleFile>,
}

/// Reads rule files.
///
/// # Errors
/// A file that cannot be opened or read, or that must not be trusted. Mistakes in the text are no
/// error here: see [`RuleFile::diagnostics`] and [`RuleFiles::is_loadable`].
pub(crate) fn load(paths: &[PathBuf]) -> anyhow::Result<RuleFiles> {
    let files = paths
        .iter()
        .map(|path| RuleFile::read(path))
        .collect::<anyhow::Result<_>>()?;
    Ok(RuleFiles { files })
}

/// What rule files leave loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompiledRules {
    /// The rules, those that cannot be honoured among them.
    pub(crate) rules: RuleList,
    /// What else they ask for, in order.
    pub(crate) settings: Vec<Command>,
    /// The plan of the rules.
    pub(crate) plan: Plan,
}

/// The plan of the rule files; `None` when they cannot be loaded, which has been said, and what follows
/// from that: `otherwise`.
///
/// # Errors
/// Rules that record nothing.
pub(crate) fn plan(loaded: RuleFiles, partial: bool, otherwise: &str) -> anyhow::Result<Option<Plan>> {
    let planner = Planner::here(Vec::new());
    let Some(CompiledRules { plan, .. }) = list(loaded, partial, &planner, otherwise) else {
        return Ok(None);
    };
    if plan.calls.is_empty() {
        bail!("the rules record nothing: no rule of the exit list says always");
    }
    Ok(Some(plan))
}

/// What the rule files leave loaded; `None` when they cannot be loaded, which has been said, and what
/// follows from that: `otherwise`.
pub(crate) fn list(
    loaded: RuleFiles,
    partial: bool,
    planner: &Planner,
    otherwise: &str,
) -> Option<CompiledRules> {
    report::warnings(&loaded);
    if !loaded.is_loadable() {
        warn(&format!("{otherwise}: the rules above are wrong"));
        return None;
    }
    let mut listing = CompiledRules::default();
    let mut names = Vec::new();
    for (source, file) in loaded.files.into_iter().enumerate() {
        let forgiving = file.forgives().is_some();
        let commands = file.lines.iter().map(|line| line.command.clone());
        listing.settings.extend(commands.filter(is_setting));
        for finding in listing.rules.load(source, file.lines) {
            info(&format!(
                "{}:{}: {}; {}",
                file.path.display(),
                finding.line,
                finding.message,
                finding.advice
            ));
        }
        names.push((file.path, forgiving));
    }
    let rules = listing.rules.clone().into_rules();
    listing.plan = planner.plan(rules);
    let of = |source: usize, line, what: &str| {
        let unnamed = (PathBuf::new(), false);
        let (path, forgiving) = names.get(source).unwrap_or(&unnamed);
        info(&format!("{}:{line}: {what}", path.display()));
        *forgiving
    };
    let mut refused = 0;
    for rule in &listing.plan.unsupported {
        let forgiving = of(rule.source, rule.line, &rule.reason);
        if rule.loses && !forgiving && !partial {
            refused += 1;
        }
    }
    for (source, line, field) in listing.plan.without_labels() {
        let _forgiving = of(
            source,
            line,
            &format!("matches nothing: no security module here compares `{field}`"),
        );
    }
    if refused != 0 {
        warn(&format!(
            "{otherwise}: {refused} rules cannot be honoured; --partial, or `-i` in the file, loads the rest"
        ));
        return None;
    }
    Some(listing)
}

/// Whether a command is about neither rules nor the reading of rules.
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
    /// Whether the rules may be put into force: no file holds an error that it does not forgive.
    pub(crate) fn is_loadable(&self) -> bool {
        self.files.iter().all(RuleFile::is_loadable)
    }

    /// Number of findings of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.files.iter().map(|file| file.count(severity)).sum()
    }

    /// Number of rules that the files add.
    pub(crate) fn rules(&self) -> usize {
        self.files.iter().map(RuleFile::rules).sum()
    }
}

impl RuleFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let bytes = bytes(path).with_context(|| format!("cannot read rule file `{shown}`"))?;
        Ok(Self::parse(path.to_owned(), bytes))
    }

    /// Parses text that is already here.
    pub(crate) fn parse(path: PathBuf, bytes: Vec<u8>) -> Self {
        let (lines, mut diagnostics) = parse_file(&bytes, &ThisMachine);
        diagnostics.extend(lines.iter().filter_map(without_effect));
        diagnostics.sort_by_key(|finding| finding.span.start);
        Self {
            path,
            bytes,
            lines,
            diagnostics,
        }
    }

    /// Whether every error comes after a line that forgives errors, `-i` or `-c`, as `auditctl`
    /// has it. Lines with an error are left out in either case.
    pub(crate) fn is_loadable(&self) -> bool {
        let forgiving = self.forgives();
        self.diagnostics
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .all(|error| forgiving.is_some_and(|line| line < error.line))
    }

    /// The line from which on errors are forgiven.
    pub(crate) fn forgives(&self) -> Option<u32> {
        let forgives = |command: &Command| {
            matches!(command, Command::IgnoreErrors | Command::ContinueOnErrors)
        };
        let line = self.lines.iter().find(|line| forgives(&line.command))?;
        Some(line.number)
    }

    /// Number of findings of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.diagnostics
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Number of rules that the file adds.
    pub(crate) fn rules(&self) -> usize {
        self.lines
            .iter()
            .filter(|line| matches!(line.command, Command::Add { .. }))
            .count()
    }
}

/// The note that a line deserves which sets the kernel's own audit: tollgate leaves that alone.
fn without_effect(line: &Line) -> Option<Diagnostic> {
    let option = match line.command {
        Command::Backlog(_) => "-b",
        Command::BacklogWait(_) => "--backlog_wait_time",
        Command::LoginuidImmutable => "--loginuid-immutable",
        _ => return None,
    };
    Some(Diagnostic {
        severity: Severity::Note,
        code: "kernel-setting",
        line: line.number,
        column: 1,
        span: line.span.clone(),
        message: format!("`{option}` is about the kernel's own audit and has no effect here"),
        advice: "keep the line for `auditctl`, or take it out".into(),
    })
}

/// Why a rule file is not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It cannot be opened or read.
    Io(io::Error),
    /// It is a directory, a pipe, a device.
    NotRegular,
    /// Everyone may write to it.
    WorldWritable,
    /// It is longer than any rule file.
    TooLarge,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotRegular => f.write_str("it is not a regular file"),
            Self::WorldWritable => {
                f.write_str("everyone may write to it: take that away with `chmod o-w`")
            }
            Self::TooLarge => write!(f, "it has more than {FILE_LIMIT_BYTES} bytes"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a rule file whole.
///
/// # Errors
/// A file that cannot be opened or read, or that must not be trusted.
pub(crate) fn bytes(path: &Path) -> anyhow::Result<Vec<u8>, ReadError> {
    // The type of the file is asked of the descriptor, so that nobody can put another in its
    // place; without O_NONBLOCK a named pipe would keep us waiting for a writer.
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
    file.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut bytes)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > FILE_LIMIT_BYTES {
        return Err(ReadError::TooLarge);
    }
    Ok(bytes)
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
        format!("{:#}", load(&[path.to_owned()]).unwrap_err())
    }

    fn parsed(text: &str) -> RuleFile {
        RuleFile::parse(PathBuf::from("x"), text.into())
    }

    #[test]
    fn a_rule_file_is_read_and_parsed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rules");
        fs::write(&path, "-D\n-w /etc/shadow -p w\n-x\n").unwrap();
        let loaded = load(std::slice::from_ref(&path)).unwrap();
        assert_eq!((loaded.rules(), loaded.count(Severity::Error)), (1, 1));
        assert_eq!(loaded.files[0].path, path);
        assert_eq!(loaded.files[0].lines.len(), 2);
        assert!(!loaded.is_loadable());
    }

    #[test]
    fn files_that_are_not_to_be_trusted_are_refused_by_name() {
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
        assert!(refusal(&path("open")).contains("everyone may write"));

        let large = fs::File::create(path("large")).unwrap();
        large.set_len(FILE_LIMIT_BYTES + 1).unwrap();
        assert!(refusal(&path("large")).contains("more than 16777216 bytes"));
    }

    #[test]
    fn settings_of_the_kernel_are_named_and_are_no_mistake() {
        let file = parsed("-D\n-b 8192\n-e 1\n-f 1\n-r 0\n-w /x -p w\n");
        let named: Vec<(u32, &str)> = file
            .diagnostics
            .iter()
            .map(|finding| (finding.line, finding.code))
            .collect();
        let setting = "kernel-setting";
        assert_eq!(named, [(2, setting)]);
        assert!(file.is_loadable());
        assert_eq!(file.count(Severity::Warning), 0);
    }

    #[test]
    fn errors_are_forgiven_after_the_line_that_says_so() {
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
