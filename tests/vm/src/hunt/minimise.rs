//! The shortest form of a program that still differs in the same way.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{Batch, Case, Setup};
use super::judge::{Finding, Verdict};
use crate::daemon::Daemon;

/// Differences of a run that are minimised; others are printed as they were found.
const MOST: usize = 3;

/// How often each signature was found.
#[derive(Debug, Default)]
pub(super) struct Signatures(BTreeMap<String, usize>);

impl Signatures {
    /// Prints how often each was found.
    pub(super) fn print(&self) {
        for (signature, uses) in &self.0 {
            println!("vm: note {uses:5} programs: {signature}");
        }
    }
}

/// Prints the differences of a program, and its shortest form for those that no earlier program had.
///
/// # Errors
/// If the shorter forms cannot run.
pub(super) fn report(
    daemon: &Daemon,
    setup: &Setup,
    name: &str,
    case: &Case,
    verdict: &Verdict,
    known: &mut Signatures,
) -> anyhow::Result<()> {
    for finding in &verdict.findings {
        let minimised = known.0.len();
        let uses = known.0.entry(finding.signature.clone()).or_default();
        *uses += 1;
        println!("vm: note DIFFERS {name}: {}", finding.signature);
        if *uses > 1 {
            continue;
        }
        if minimised >= MOST {
            print(case, &verdict.rules, finding);
            continue;
        }
        match shortest(daemon, setup, case, &finding.signature)? {
            Some(Form {
                case,
                rules,
                finding,
            }) => print(&case, &rules, &finding),
            None => {
                println!("vm: note   alone, the program does not differ again");
                print(case, &verdict.rules, finding);
            }
        }
    }
    Ok(())
}

fn print(case: &Case, rules: &[String], finding: &Finding) {
    let program = case.program.to_string();
    let rules = rules.iter().map(String::as_str);
    let text = finding.text.iter().map(String::as_str);
    for line in program.lines().chain(rules).chain(text) {
        println!("vm: note   {line}");
    }
}

/// A program that differs.
struct Form {
    case: Case,
    rules: Vec<String>,
    finding: Finding,
}

/// The shortest form; none if the program does not differ again.
///
/// Each round runs the program without each part of it. The next round starts from the shortest form that differs, and
/// tries whether all parts can be left out that could be left out alone.
fn shortest(
    daemon: &Daemon,
    setup: &Setup,
    case: &Case,
    signature: &str,
) -> anyhow::Result<Option<Form>> {
    let mut best = None;
    let mut base = case.clone();
    let mut bold = BTreeSet::new();
    loop {
        let mut parts = parts(base.program.steps.len());
        parts.insert(0, bold);
        let forms = parts.iter().map(|part| base.without(part)).collect();
        let verdicts = Batch::new(forms).run(daemon, setup)?;
        let mut differing: Vec<(BTreeSet<usize>, Form)> = Vec::new();
        for (part, verdict) in parts.into_iter().zip(verdicts) {
            let same = |finding: &&Finding| finding.signature == signature;
            if let Some(finding) = verdict.findings.iter().find(same) {
                let form = Form {
                    case: base.without(&part),
                    rules: verdict.rules,
                    finding: finding.clone(),
                };
                differing.push((part, form));
            }
        }
        let all: BTreeSet<usize> = differing
            .iter()
            .flat_map(|(part, _)| part)
            .copied()
            .collect();
        let length = |(_, form): &(_, Form)| form.case.program.steps.len();
        let Some((part, form)) = differing.into_iter().min_by_key(length) else {
            return Ok(best);
        };
        if part.is_empty() {
            return Ok(Some(form));
        }
        // Steps of the next base, by their number in it.
        bold = base.renumbered(&part, &all);
        base = form.case.clone();
        best = Some(form);
    }
}

/// The halves, quarters and so on of so many steps, down to each one.
fn parts(count: usize) -> Vec<BTreeSet<usize>> {
    let mut parts = Vec::new();
    let mut size = count.div_ceil(2);
    while size > 0 {
        let starts = (0..count).step_by(size);
        parts.extend(starts.map(|start| (start..(start + size).min(count)).collect()));
        size /= 2;
    }
    parts
}

impl Case {
    fn without(&self, steps: &BTreeSet<usize>) -> Self {
        Self {
            program: self.program.without(steps),
            ..self.clone()
        }
    }

    /// The numbers that steps have when others are left out.
    fn renumbered(&self, without: &BTreeSet<usize>, steps: &BTreeSet<usize>) -> BTreeSet<usize> {
        let kept = (0..self.program.steps.len()).filter(|step| !without.contains(step));
        let numbered = kept.enumerate().filter(|(_, old)| steps.contains(old));
        numbered.map(|(new, _)| new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_halves_down_to_single_steps() {
        let parts: Vec<Vec<usize>> = parts(4).into_iter().map(Vec::from_iter).collect();
        let expected: [&[usize]; 6] = [&[0, 1], &[2, 3], &[0], &[1], &[2], &[3]];
        assert_eq!(parts, expected);
        assert!(super::parts(0).is_empty());
    }
}
