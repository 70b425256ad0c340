//! `tollgate detect check`: which rules can be loaded, and why others cannot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use logs::escaped::{Escaped, EscapedJson};
use serde_json::{Value, json};

use crate::output::{Output, table};
use crate::placeholder_file::PlaceholderArgs;
use crate::rule_files::{Problem, RuleFiles};
use crate::sigma::{Level, Source};
use crate::{ERROR, FAILED};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of rules, or directories with files `*.yml` and `*.yaml`
    #[arg(value_name = "RULES", required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    placeholders: PlaceholderArgs,
    /// Print one JSON object: all rules, loaded or not
    #[arg(long)]
    json: bool,
    /// Name each rule for other log sources too, not only their number
    #[arg(long, conflicts_with = "json")]
    all: bool,
}

/// Loads rules and prints what became of them.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = RuleFiles::load(&args.rules, &args.placeholders.read()?);
    let mut out = Output::new();
    match args.json {
        true => out.line(EscapedJson(&as_json(&rules)))?,
        false => print(&rules, args.all, &mut out)?,
    }
    out.end()?;
    Ok(match rules.mistakes().next() {
        Some(_) => ExitCode::from(FAILED),
        None if rules.places.is_empty() && rules.problems.is_empty() => ExitCode::from(ERROR),
        None => ExitCode::SUCCESS,
    })
}

/// `FILE:LINE`.
pub(crate) fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", Escaped(path.as_os_str().as_encoded_bytes()))
}

/// A problem on one line.
pub(crate) fn problem_line(problem: &Problem) -> String {
    let place = place(&problem.path, problem.mistake.line);
    format!("{place}: {}", problem.mistake)
}

fn print(rules: &RuleFiles, names_foreign: bool, out: &mut Output) -> anyhow::Result<()> {
    let mut foreign: BTreeMap<&str, usize> = BTreeMap::new();
    for problem in &rules.problems {
        if let Some(source) = &problem.mistake.foreign {
            *foreign.entry(source).or_default() += 1;
        }
        if problem.mistake.foreign.is_none() || names_foreign {
            out.line(problem_line(problem))?;
        }
    }
    for ((path, line), rule) in rules.places.iter().zip(rules.rules()) {
        if !rule.absent_fields.is_empty() {
            let fields = rule.absent_fields.join("`, `");
            let (place, fields) = (place(path, *line), crate::sigma::one_line(&fields));
            out.line(match rule.source {
                Some(source) => {
                    format!("{place}: note: no {source} event has `{fields}`; tests of it never match")
                }
                None => format!(
                    "{place}: note: events of a rule of this correlation do not have `{fields}`, which is empty for them"
                ),
            })?;
        }
    }
    for (number, ((path, line), rule)) in rules.places.iter().zip(rules.rules()).enumerate() {
        if rules.correlations.is_silent(number) {
            let place = place(path, *line);
            out.line(format!(
                "{place}: note: `{}` makes no alerts of its own: a correlation rule without `generate: true` refers to it",
                rule.title
            ))?;
        }
    }
    for line in table(&summary(rules)) {
        out.line(line)?;
    }
    let mistakes = rules.mistakes().count();
    let filters = match rules.filters {
        0 => String::new(),
        count => format!(", {count} filters"),
    };
    out.line(format!(
        "{} files{filters}; {mistakes} rules or files cannot be loaded",
        rules.files
    ))?;
    for (source, count) in foreign {
        out.line(format!("{count} rules for another log source: {source}"))?;
    }
    Ok(())
}

/// Loaded rules by log source and level.
fn summary(rules: &RuleFiles) -> Vec<Vec<String>> {
    let mut header = vec!["log source".to_owned()];
    header.extend(Level::ALL.map(|level| level.name().to_owned()));
    header.push("loaded".to_owned());
    let mut rows = vec![header];
    let count = |source: Option<&str>, level: Option<Level>| {
        let counted = rules.rules().filter(|rule| {
            source.is_none_or(|source| rule.source_name() == source)
                && level.is_none_or(|level| rule.level == level)
        });
        counted.count().to_string()
    };
    let mut sources: Vec<&str> = Source::ALL.map(Source::name).to_vec();
    if !rules.correlations.rules().is_empty() {
        sources.push("correlation");
    }
    let sources = sources.into_iter().map(|name| (name, Some(name)));
    for (name, source) in sources.chain([("all", None)]) {
        let mut row = vec![name.to_owned()];
        row.extend(Level::ALL.map(|level| count(source, Some(level))));
        row.push(count(source, None));
        rows.push(row);
    }
    rows
}

fn as_json(rules: &RuleFiles) -> Value {
    let file = |path: &Path| logs::json::text(path.as_os_str().as_encoded_bytes());
    let loaded = rules.places.iter().zip(rules.rules()).enumerate();
    let loaded = loaded.map(|(number, ((path, line), rule))| {
        json!({
            "id": rule.id,
            "title": rule.title,
            "author": rule.author,
            "level": rule.level.name(),
            "tags": rule.tags,
            "log_source": rule.source_name(),
            "file": file(path),
            "line": line,
            "absent_fields": rule.absent_fields,
            "alerts": !rules.correlations.is_silent(number),
        })
    });
    let problems = rules.problems.iter().map(|problem| {
        let mistake = &problem.mistake;
        json!({
            "file": file(&problem.path),
            "line": mistake.line,
            "reason": mistake.reason,
            "advice": mistake.advice,
            "other_log_source": mistake.foreign,
        })
    });
    json!({
        "files": rules.files,
        "filters": rules.filters,
        "rules": loaded.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
    })
}
