//! `tollgate detect test`: whether rules match what they must.

mod junit;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use logs::accounts::Accounts;
use logs::escaped::{Escaped, EscapedJson};
use logs::event_reader::{EventReader, Item};
use logs::log_set::LogSet;
use serde_json::{Value, json};

use crate::cases::{Case, files};
use crate::check::{place, problem_line};
use crate::mapping::{Mapping, ProcessTable};
use crate::output::{Output, table};
use crate::placeholder_file::PlaceholderArgs;
use crate::rule_files::RuleFiles;
use crate::sigma::correlation::EventId;
use crate::sigma::placeholder::Placeholders;
use crate::sigma::{Mistake, Rule, one_line};
use crate::{ERROR, FAILED};

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of cases, or directories with files `*.toml`
    #[arg(value_name = "CASES", required = true)]
    cases: Vec<PathBuf>,
    /// Load RULES too, for all cases
    #[arg(long, value_name = "RULES")]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    placeholders: PlaceholderArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write the result to FILE too, in the XML of continuous integration (`JUnit`)
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// What became of a case.
#[derive(Debug)]
struct Report {
    path: PathBuf,
    outcome: Outcome,
    /// Matching rules with their number of events.
    fired: BTreeMap<String, u64>,
    elapsed: Duration,
}

/// Whether a case passed.
#[derive(Debug)]
enum Outcome {
    Passed,
    /// What was expected and is not so.
    Failed(Vec<String>),
    /// Why the case cannot be run.
    Error(String),
}

impl Outcome {
    const fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Error(_) => "error",
        }
    }

    fn reasons(&self) -> &[String] {
        match self {
            Self::Passed => &[],
            Self::Failed(reasons) => reasons,
            Self::Error(reason) => std::slice::from_ref(reason),
        }
    }
}

/// Runs cases and prints what became of them.
///
/// # Errors
/// A directory cannot be read, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut paths = Vec::new();
    for path in &args.cases {
        paths.extend(files(path).map_err(|mistake| anyhow::anyhow!("{mistake}"))?);
    }
    anyhow::ensure!(!paths.is_empty(), "there are no cases: no file `*.toml`");
    let placeholders = args.placeholders.read()?;
    let mut loaded = Loaded {
        placeholders,
        by_paths: HashMap::new(),
    };
    let reports: Vec<Report> = paths
        .into_iter()
        .map(|path| report(path, &args.rules, &mut loaded))
        .collect();
    if let Some(path) = &args.junit {
        fs::write(path, junit::document(&reports))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let mut out = Output::new();
    match args.json {
        true => out.line(EscapedJson(&as_json(&reports)))?,
        false => print(&reports, &mut out)?,
    }
    out.end()?;
    let has = |name: &str| reports.iter().any(|report| report.outcome.name() == name);
    Ok(match (has("error"), has("failed")) {
        (true, _) => ExitCode::from(ERROR),
        (_, true) => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    })
}

/// Loaded rules.
#[derive(Debug)]
struct Loaded {
    placeholders: Placeholders,
    /// By the paths that they were loaded from.
    by_paths: HashMap<Vec<PathBuf>, RuleFiles>,
}

fn report(path: PathBuf, rules: &[PathBuf], loaded: &mut Loaded) -> Report {
    let started = Instant::now();
    let mut fired = BTreeMap::new();
    let outcome = match Case::read(&path) {
        Ok(case) => run_case(&path, &case, rules, loaded, &mut fired),
        Err(mistake) => Err(located(&path, &mistake)),
    };
    Report {
        path,
        outcome: outcome.unwrap_or_else(Outcome::Error),
        fired,
        elapsed: started.elapsed(),
    }
}

fn located(path: &Path, mistake: &Mistake) -> String {
    format!("{}: {mistake}", place(path, mistake.line))
}

/// Runs a case.
///
/// # Errors
/// Why it cannot be run.
fn run_case(
    path: &Path,
    case: &Case,
    rules: &[PathBuf],
    loaded: &mut Loaded,
    fired: &mut BTreeMap<String, u64>,
) -> Result<Outcome, String> {
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let own = case.rules.iter().map(|rules| directory.join(rules));
    let paths: Vec<PathBuf> = own.chain(rules.iter().cloned()).collect();
    if paths.is_empty() {
        let mistake = Mistake::new(
            1,
            "the case has no rules",
            "write `rules = [\"RULES\"]`, or use --rules",
        );
        return Err(located(path, &mistake));
    }
    let placeholders = &loaded.placeholders;
    let rules = loaded
        .by_paths
        .entry(paths)
        .or_insert_with_key(|paths| RuleFiles::load(paths, placeholders));
    if let Some(problem) = rules.mistakes().next() {
        return Err(problem_line(problem));
    }
    for name in case.expect.names() {
        let mut known = rules.rules().enumerate();
        let known = known.find(|(_, rule)| is_named(rule, name.get_ref()));
        let mistake = match known {
            None => {
                let reason = format!("no loaded rule has the id or title `{}`", name.get_ref());
                case.mistake(name, reason, "correct the name, or load the rule")
            }
            Some((number, _)) if rules.correlations.is_silent(number) => {
                let reason = format!("the rule `{}` makes no alerts of its own", name.get_ref());
                let advice =
                    "name the correlation rule that refers to it, or write `generate: true` there";
                case.mistake(name, reason, advice)
            }
            Some(_) => continue,
        };
        return Err(located(path, &mistake));
    }
    let logs = match (&case.log, &case.events) {
        (Some(log), _) => LogSet::files(&[directory.join(log)]),
        (None, events) => {
            let text = events.clone().unwrap_or_default().into_bytes();
            Ok(LogSet::stream(
                Path::new("events"),
                Box::new(Cursor::new(text)),
            ))
        }
    };
    let logs = logs.map_err(|error| one_line(&error.to_string()))?;
    let counts = matches(rules, logs)?;
    let least = case.expect.least_level();
    let counted: Vec<(&Rule, u64)> = rules
        .rules()
        .zip(counts)
        .filter(|(rule, count)| *count > 0 && rule.level >= least)
        .collect();
    fired.extend(
        counted
            .iter()
            .map(|(rule, count)| (rule.id.clone(), *count)),
    );
    let reasons = breaches(case, &counted);
    Ok(match reasons.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Failed(reasons),
    })
}

/// Number of events that each rule matches; none for a rule that makes no alerts of its own.
///
/// # Errors
/// The log cannot be read.
fn matches(rules: &mut RuleFiles, logs: LogSet) -> Result<Vec<u64>, String> {
    let mut counts = vec![0; rules.places.len()];
    // Cases must not depend on those before.
    rules.correlations.forget();
    // Results must not depend on the users of this machine.
    let accounts = Accounts::parse(b"root:x:0:0::/:\n", b"root:x:0:\n");
    let mut mapping = Mapping::new(accounts, ProcessTable::default());
    let mut reader = EventReader::new(logs);
    let (mut found, mut correlated) = (Vec::new(), Vec::new());
    loop {
        match reader.next_item() {
            Ok(None | Some(Item::Idle | Item::Lost)) => return Ok(counts),
            Ok(Some(Item::Event(event))) => {
                mapping.find(&*rules.engine, event, &mut found);
                let event = EventId::of(event);
                rules.correlations.find(&event, &found, &mut correlated);
            }
            Ok(Some(Item::Malformed { path, line, error })) => {
                let line = usize::try_from(line).unwrap_or(usize::MAX);
                return Err(format!("{}: {error}", place(path, line)));
            }
            Err(error) => return Err(one_line(&error.to_string())),
        }
        let numbers = found.drain(..).map(|matched| matched.rule);
        let numbers = numbers.chain(correlated.drain(..).map(|matched| matched.rule));
        for number in numbers.filter(|number| !rules.correlations.is_silent(*number)) {
            if let Some(count) = counts.get_mut(number) {
                *count += 1;
            }
        }
    }
}

fn is_named(rule: &Rule, name: &str) -> bool {
    rule.id == name || rule.title == name
}

/// What is expected and not so.
fn breaches(case: &Case, fired: &[(&Rule, u64)]) -> Vec<String> {
    let expect = &case.expect;
    let has_fired = |name: &str| fired.iter().any(|(rule, _)| is_named(rule, name));
    let mut reasons = Vec::new();
    let required = expect
        .at_least
        .iter()
        .chain(expect.exactly.iter().flatten());
    for name in required.filter(|name| !has_fired(name.get_ref())) {
        reasons.push(format!("`{}` does not match", one_line(name.get_ref())));
    }
    let mut unexpected = |rule: &Rule, count: u64| {
        let events = if count == 1 { "event" } else { "events" };
        reasons.push(format!(
            "`{}` ({}) matches {count} {events}",
            rule.id, rule.title
        ));
    };
    for (rule, count) in fired {
        let is_in =
            |list: &[toml::Spanned<String>]| list.iter().any(|name| is_named(rule, name.get_ref()));
        if is_in(&expect.none)
            || expect
                .exactly
                .as_ref()
                .is_some_and(|exactly| !is_in(exactly))
        {
            unexpected(rule, *count);
        }
    }
    reasons
}

fn print(reports: &[Report], out: &mut Output) -> anyhow::Result<()> {
    let mut rows = vec![
        ["case", "result", "rules", "events", "ms"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for report in reports {
        rows.push(vec![
            Escaped(report.path.as_os_str().as_encoded_bytes()).to_string(),
            report.outcome.name().to_owned(),
            report.fired.len().to_string(),
            report.fired.values().sum::<u64>().to_string(),
            report.elapsed.as_millis().to_string(),
        ]);
    }
    let lines = table(&rows);
    for (number, line) in lines.iter().enumerate() {
        out.line(line)?;
        let report = number.checked_sub(1).and_then(|number| reports.get(number));
        for reason in report.map_or(&[][..], |report| report.outcome.reasons()) {
            out.line(format_args!("  {reason}"))?;
        }
    }
    let count = |name: &str| {
        let named = reports
            .iter()
            .filter(|report| report.outcome.name() == name);
        named.count()
    };
    out.line(format_args!(
        "{} passed, {} failed, {} errors",
        count("passed"),
        count("failed"),
        count("error")
    ))
}

fn as_json(reports: &[Report]) -> Value {
    let cases = reports.iter().map(|report| {
        json!({
            "file": logs::json::text(report.path.as_os_str().as_encoded_bytes()),
            "result": report.outcome.name(),
            "reasons": report.outcome.reasons(),
            "fired": report.fired,
            "seconds": report.elapsed.as_secs_f64(),
        })
    });
    json!({ "cases": cases.collect::<Vec<_>>() })
}
