//! The audit rules to compare with: those of files, or of this machine.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::ids::NativeArch;
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::{Severity, augenrules, parse_file};
use bstr::ByteSlice as _;
use logs::accounts::Accounts;
use logs::escaped::Escaped;
use serde::Deserialize;

/// Most bytes of a file of audit rules, as `tollgate check` reads.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// What `auditctl -l` prints if no rule is loaded.
const NO_RULES: &[u8] = b"No rules\n";
/// Program that asks the daemon and knows what rules cost. It is looked up beside this one.
const TOLLGATE: &str = "tollgate";

/// Audit rules.
#[derive(Debug)]
pub(super) struct RuleSource {
    /// Where they are from, for people.
    pub(super) name: String,
    /// Names of the files; the rules of the plan name them by index.
    pub(super) files: Vec<String>,
    pub(super) plan: Plan,
    /// Lines that are no rules, with the reason.
    pub(super) errors: Vec<String>,
}

impl RuleSource {
    /// The rules of a file, or of the files `*.rules` in a directory.
    ///
    /// # Errors
    /// A file or the directory cannot be read, or has no rules.
    pub(super) fn of_path(path: &Path) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        if path.is_dir() {
            let entries = fs::read_dir(path).with_context(|| unreadable(path))?;
            for entry in entries {
                files.push(entry.with_context(|| unreadable(path))?.path());
            }
            files.retain(|file| file.extension().is_some_and(|end| end == "rules"));
            let name = |file: &Path| file.as_os_str().as_encoded_bytes().to_owned();
            files.sort_by(|one, other| augenrules::compare(&name(one), &name(other)));
            ensure!(
                !files.is_empty(),
                "directory `{}` has no files `*.rules`: name a rule file",
                path.display()
            );
        } else {
            files.push(path.to_owned());
        }
        Self::of_files(path.display().to_string(), &files)
    }

    /// The rules that the daemon has loaded; without a daemon, the files that it would read.
    ///
    /// # Errors
    /// What to do if there are neither.
    pub(super) fn of_this_machine() -> anyhow::Result<Self> {
        if let Ok(text) = ask(&["auditctl", "-l"], b"") {
            let name = "the loaded rules".to_owned();
            let texts = match text == NO_RULES {
                true => Vec::new(),
                false => vec![(name.clone(), text)],
            };
            return Ok(Self::of_texts(name, texts));
        }
        let read = ask(&["explain", "--json"], b"").ok();
        match read.and_then(|text| Explanation::of(&text)) {
            Some(read) => Self::of_files("the rule files of this machine".to_owned(), &read.files),
            None => anyhow::bail!(
                "the audit rules of this machine are not known: name them with --rules-file"
            ),
        }
    }

    fn of_files(name: String, files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut texts = Vec::new();
        for path in files {
            let shown = Escaped(path.as_os_str().as_encoded_bytes()).to_string();
            texts.push((shown, read(path)?));
        }
        Ok(Self::of_texts(name, texts))
    }

    /// The rules of texts with their names.
    pub(super) fn of_texts(name: String, texts: Vec<(String, Vec<u8>)>) -> Self {
        let host = Accounts::read().unwrap_or_default();
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        let mut list = RuleList::default();
        for (number, (file, text)) in texts.into_iter().enumerate() {
            let (lines, mut findings) = parse_file(&text, &host);
            findings.extend(list.load(number, lines));
            findings.retain(|finding| finding.severity == Severity::Error);
            errors.extend(findings.iter().map(|finding| {
                let (line, column) = (finding.line, finding.column);
                format!(
                    "{file}:{line}:{column}: {}; {}",
                    finding.message, finding.advice
                )
            }));
            files.push(file);
        }
        let plan = Plan::compile(list.into_rules(), &NativeArch::BUILD.abis());
        Self {
            name,
            files,
            plan,
            errors,
        }
    }

    /// How a line is named.
    pub(super) fn line(&self, file: usize, line: u32) -> String {
        match self.files.get(file) {
            Some(file) if self.files.len() > 1 => format!("{file}:{line}"),
            _ => format!("line {line}"),
        }
    }
}

/// What audit rules cost on the engine that the daemon would take, as `tollgate explain` tells.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Explanation {
    pub(super) engine: String,
    pub(super) measured_on: String,
    pub(super) every_syscall_ns: u32,
    pub(super) paying_syscall_ns: Option<u32>,
    /// The rule files, in their order.
    files: Vec<PathBuf>,
}

impl Explanation {
    /// The explanation of the rules of a file; `None` if `tollgate` is not beside this program, or fails.
    pub(super) fn of_rules(text: &str) -> Option<Self> {
        Self::of(&ask(&["explain", "--json", "-"], text.as_bytes()).ok()?)
    }

    fn of(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}

/// Output of `tollgate`.
fn ask(words: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let program = std::env::current_exe()?.with_file_name(TOLLGATE);
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut to = child.stdin.take().context("no pipe")?;
    let input = input.to_owned();
    // The output may come before all of the input is read.
    let writer = std::thread::spawn(move || to.write_all(&input));
    let output = child.wait_with_output()?;
    let written = writer.join().is_ok_and(|written| written.is_ok());
    ensure!(output.status.success() && written, "`tollgate` failed");
    Ok(output.stdout)
}

fn unreadable(path: &Path) -> String {
    format!("cannot read `{}`", path.display())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| unreadable(path))?;
    let about = file.metadata().with_context(|| unreadable(path))?;
    ensure!(
        about.is_file(),
        "cannot read `{}`: it is not a regular file",
        path.display()
    );
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .with_context(|| unreadable(path))?;
    match bytes.as_bstr().len() {
        length if u64::try_from(length).is_ok_and(|length| length < MAX_FILE_BYTES) => Ok(bytes),
        _ => anyhow::bail!(
            "cannot read `{}`: it has more than {MAX_FILE_BYTES} bytes",
            path.display()
        ),
    }
}
